// One platform: its places, the messages of the open place and the message box.

import { Composer } from "./composer.js";
import { onChange, sendAction, store } from "../connection.js";
import { h, updateChildren, updateOnlyChild } from "../dom.js";
import { extension } from "../extension.js";
import { renderIcon } from "../icons.js";
import { renderMessage, renderTypingDots } from "./message.js";
import { renderModal } from "./modal.js";
import { getPlaceKey, Sidebar } from "./sidebar.js";

// A list this close to its end, in pixels, follows new messages.
const MAX_PIXELS_FROM_END = 60;

// A hint of the simulator is hidden after this time.
const HINT_MILLISECONDS = 12000;

const CONNECTION_STATES = { true: "connected", false: "not connected" };

// The pane of one platform.
export class Pane {
  constructor(element, key, name) {
    this.element = element;
    this.key = key;
    this.name = name;
    this.placeKey = ""; // of the place that is shown
    this.pendingSnapshot = null; // of the place that the user opens, until the server sends it
    this.snapshots = new Map(); // the last known state and messages of each place
    this.isFirstUpdate = true;
    this.createElements();
  }

  // Sends an action for this platform; shows the resulting notice or error as a hint in place of the former one, and
  // returns it.
  async sendAction(action, parameters = {}) {
    this.showHint("");
    const notice = await this.sendActionWithoutHint(action, parameters);
    if (notice) this.showHint(notice);
    return notice;
  }

  // Sends an action for this platform; returns the resulting notice, or the text of the error.
  async sendActionWithoutHint(action, parameters = {}) {
    try {
      return await sendAction(action, { platform: this.key, ...parameters });
    } catch (error) {
      return error.message;
    }
  }

  createElements() {
    this.sidebar = new Sidebar(this.name, (place) => this.openPlace(place));
    this.title = h("div", { class: "title" });
    this.list = h("div", { class: "messages", role: "log", "aria-live": "polite", "aria-label": `Messages in ${this.name}`, tabindex: "0" });
    this.empty = h("div", { class: "empty" });
    this.loading = h("div", { class: "empty", role: "status", hidden: true }, h("p", {}, renderTypingDots(), "Loading…"));
    this.hint = h("div", { class: "hint", role: "status", hidden: true });
    this.typing = h("div", { class: "typing", "aria-live": "polite" });
    this.composer = new Composer(this);
    this.modal = h("div", { class: "modal-overlay", hidden: true });
    const conversation = h("div", { class: "conversation" }, this.title, this.list, this.empty, this.loading, this.hint, this.composer.form, this.typing);
    this.element.append(this.sidebar.nav, conversation, this.modal);

    this.element.addEventListener("dragover", (event) => event.preventDefault());
    this.element.addEventListener("drop", (event) => {
      event.preventDefault();
      this.composer.attachFiles(event.dataTransfer.files);
    });
    this.list.addEventListener("keydown", (event) => this.handleListKeydown(event));
    this.list.addEventListener("click", (event) => event.target.closest(".spoiler")?.classList.toggle("open"));
    new ResizeObserver(() => this.followEnd()).observe(this.list);
    this.list.addEventListener("load", () => this.followEnd(), true); // an image has its height once it is loaded
    this.list.addEventListener("scroll", () => { this.isAtEnd = this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < MAX_PIXELS_FROM_END; });
    this.isAtEnd = true;
    onChange((keys) => {
      if (this.pendingSnapshot?.isConfirmed && keys.has(this.key)) this.pendingSnapshot = null; // a message may have opened another place since
    });
  }

  // Scrolling

  scrollToEnd() {
    this.isAtEnd = true;
    this.list.scrollTop = this.list.scrollHeight;
  }

  // Scrolls to the end again, if the list was there before its content or size changed.
  followEnd() {
    if (this.isAtEnd) this.list.scrollTop = this.list.scrollHeight;
  }

  // Places

  countUnread() {
    return (store.get(this.key)?.places ?? []).reduce((sum, place) => sum + place.unread, 0);
  }

  // Returns the place, state and messages to show: the pending ones while the server still shows another place.
  getSnapshot() {
    const state = store.get(this.key);
    const key = getPlaceKey(state.place);
    if (this.pendingSnapshot && this.pendingSnapshot.key !== key) return this.pendingSnapshot;
    this.pendingSnapshot = null;
    const messages = new Map(state.message_ids.map((id) => [id, store.get(`${this.key}/${id}`)]));
    this.snapshots.set(key, { key, state, messages });
    return this.snapshots.get(key);
  }

  // Opens a place. It is shown at once, with its last known messages until the server sends the current ones.
  async openPlace({ channel, thread }) {
    const { places } = store.get(this.key);
    const place = places.find((candidate) => candidate.channel === channel && candidate.thread === thread);
    if (place) this.showPendingPlace(place, []);
    await this.confirmPendingPlace(this.sendAction("open_place", { channel, thread }));
  }

  // Opens the thread of a message. A thread that exists is shown at once.
  async openThread(message) {
    const { places, place } = store.get(this.key);
    const thread = this.key === "slack" ? message.id : message.thread?.id;
    const threadPlace = places.find((candidate) => candidate.channel === place.channel && candidate.thread === thread);
    if (thread && !place.thread) this.showPendingPlace(threadPlace ?? { ...place, thread, is_dm: false }, [message, message.replies?.newest]);
    await this.confirmPendingPlace(this.sendAction("open_thread", { message: message.id }));
  }

  // Shows a place before the server sends it: as it was last, or else with these messages.
  showPendingPlace(place, messages) {
    const { places, ...state } = store.get(this.key);
    const channel = places.find((candidate) => candidate.channel === place.channel && !candidate.thread) ?? state.place;
    const key = getPlaceKey(place);
    const messageEntries = messages.filter(Boolean).map((message) => [message.id, { ...message, replies: null, thread: null }]);
    const snapshot = this.snapshots.get(key) ?? { state: { ...state, title: "", typing: "", suggested_prompts: [], isLoading: true, message_ids: messageEntries.map(([id]) => id) }, messages: new Map(messageEntries) };
    const shownPlace = { channel: place.channel, thread: place.thread, name: place.name, channel_name: channel.channel_name ?? channel.name };
    this.pendingSnapshot = { key, state: { ...snapshot.state, places, connected: state.connected, is_dm: channel.is_dm, place: shownPlace }, messages: snapshot.messages };
    this.update();
    this.focus();
  }

  // Waits for the result of the action that opens the pending place; after a refusal, the former place is shown again.
  async confirmPendingPlace(action) {
    const snapshot = this.pendingSnapshot;
    if (!(await action)) {
      if (snapshot) snapshot.isConfirmed = true;
      return;
    }
    this.pendingSnapshot = null; // the server refused
    this.update();
  }

  goBack() {
    const { place } = this.getSnapshot().state;
    if (place.thread) this.openPlace({ channel: place.channel, thread: null });
  }

  // Forgets the known places, which a new connection sends again.
  reset() {
    this.placeKey = "";
    this.pendingSnapshot = null;
    this.snapshots.clear();
  }

  // Focuses the message box where that opens no keyboard on the screen.
  focus() {
    if (window.matchMedia("(hover: hover)").matches) this.composer.focus();
  }

  // Rendering

  // Updates the pane from the store.
  update() {
    if (!store.get(this.key)) return;
    const { key, state, messages } = this.getSnapshot();
    const isNewPlace = key !== this.placeKey;
    if (isNewPlace) {
      this.composer.switchDraft(this.placeKey, key);
      this.placeKey = key;
      this.list.replaceChildren();
      this.showHint("");
    }
    this.sidebar.update(state, store.get("me")?.name ?? "");
    this.updateTitle(state);
    this.updateMessages(state, messages, isNewPlace);
    updateOnlyChild(this.typing, state.typing, (text) => h("span", {}, text ? [renderTypingDots(), text] : ""));
    updateOnlyChild(this.modal, state.modal, (modal) => renderModal(this.key, modal, (action, parameters) => this.sendActionWithoutHint(action, parameters)));
    if (!state.modal && !this.modal.hidden && document.activeElement === document.body) this.focus();
    this.modal.hidden = !state.modal;
    this.composer.update(state);
    if (this.isFirstUpdate && document.body.dataset.view === this.key && document.activeElement === document.body) this.focus();
    this.isFirstUpdate = false;
  }

  // Shows a text of the simulator above the message box; an empty one hides it.
  showHint(text) {
    clearTimeout(this.hintTimer);
    this.hint.hidden = !text;
    if (!text) return;
    this.hint.replaceChildren(h("span", {}, text), h("button", { type: "button", class: "icon-button", "aria-label": "Dismiss", onclick: () => this.showHint("") }, renderIcon("close")));
    this.hintTimer = setTimeout(() => this.showHint(""), HINT_MILLISECONDS);
  }

  updateTitle(state) {
    updateOnlyChild(this.title, [state.place, state.title, state.is_dm, state.connected, state.bot], ([place, title]) =>
      h(
        "div",
        { class: "bar" },
        h("button", { type: "button", class: "icon-button open-sidebar", "aria-label": `Channels and threads of ${this.name}`, title: "Channels and threads", "data-focus": "places", onclick: () => this.sidebar.toggle() }, renderIcon("list")),
        place.thread ? h("button", { type: "button", class: "icon-button back", "data-focus": "back", "aria-label": `Back to ${place.channel_name}`, title: `Back to ${place.channel_name}`, onclick: () => this.goBack() }, renderIcon("back")) : null,
        h("h2", {}, place.thread ? "Thread" : place.channel_name),
        h("span", { class: "subtitle" }, place.thread ? `${place.channel_name}${title || place.name ? ` · ${title || place.name}` : ""}` : title),
        h("span", { class: `state ${state.connected ? "on" : "off"}`, title: `${state.bot} is ${CONNECTION_STATES[state.connected]} to ${this.name}` }, h("i", { "aria-hidden": "true" }), h("span", {}, `${state.bot} ${CONNECTION_STATES[state.connected]}`)),
      ),
    );
  }

  updateMessages(state, messages, isNewPlace) {
    const list = this.list;
    const actions = { sendAction: (action, parameters) => this.sendAction(action, parameters), startEditing: (message) => this.composer.startEditing(message), openThread: (message) => this.openThread(message), getMenuEntries: () => store.get(this.key)?.menu_entries ?? [] };
    const items = state.message_ids.map((id) => ({ key: id, value: messages.get(id) })).filter((item) => item.value);
    updateChildren(list, items, (message) => renderMessage(this.key, message, actions));
    let previous = null;
    for (const element of list.children) {
      const message = messages.get(element.dataset.key);
      const isFollowUp = previous && previous.author === message.author && previous.time === message.time && !message.reference && !previous.replies && message.ephemeral === previous.ephemeral;
      element.classList.toggle("follows", Boolean(isFollowUp));
      previous = message;
    }
    list.classList.toggle("is-thread", Boolean(state.place.thread));
    this.empty.hidden = items.length > 0 || Boolean(state.isLoading);
    this.loading.hidden = items.length > 0 || !state.isLoading;
    const prompts = extension.getPrompts();
    updateOnlyChild(this.empty, [state.place, state.suggested_prompts, state.is_dm, prompts, this.empty.hidden], () => (this.empty.hidden ? h("div") : this.renderWelcome(state, prompts)));
    if (isNewPlace) this.scrollToEnd();
    else this.followEnd();
  }

  renderWelcome(state, prompts) {
    const isDm = state.is_dm && !state.place.thread;
    const isForum = !isDm && !state.place.thread && state.thread_support === "all";
    const mention = isDm ? "" : `@${state.bot} `;
    const defaultPrompts = prompts.length ? prompts.map((prompt) => ({ title: prompt, message: mention + prompt })) : [{ title: isDm ? "Say hello" : `${mention}hello`, message: isDm ? "Hello! Who are you?" : `${mention}hello!` }];
    const suggestedPrompts = state.suggested_prompts.length ? state.suggested_prompts : defaultPrompts;
    const channelHint = isForum ? `No posts yet. Write one below, and mention @${state.bot} in it to get an answer.` : `No messages yet. In a channel, mention @${state.bot} to get an answer.`;
    const postPrompt = ({ message: text }) => {
      this.sendAction("post_message", { text });
      this.focus();
    };
    return h(
      "div",
      { class: "welcome" },
      isDm ? h("img", { class: "big", src: "/static/icon.svg", alt: "" }) : h("div", { class: "big", "aria-hidden": "true" }, renderIcon("hash")),
      h("h3", {}, isDm ? `This is the beginning of your direct messages with ${state.bot}` : `Welcome to ${state.place.channel_name}`),
      h("p", {}, isDm ? "Ask something below, and watch the answer stream in." : channelHint),
      h("div", { class: "prompts" }, suggestedPrompts.map((prompt) => h("button", { type: "button", class: "prompt", "data-focus": `prompt ${prompt.title}`, onclick: () => postPrompt(prompt) }, prompt.title))),
    );
  }

  handleListKeydown(event) {
    const message = event.target.closest(".messages > .message");
    if (event.key === "ArrowUp") (message ? message.previousElementSibling : this.list.lastElementChild)?.focus();
    else if (event.key === "ArrowDown") (message?.nextElementSibling ?? this.composer.textarea).focus();
    else if (event.key === "Escape") this.composer.focus();
    else if (event.key === "Enter" && event.target === message) message.querySelector(".open, .thread, [data-focus$='t thread']")?.click();
    else return;
    event.preventDefault();
  }
}
