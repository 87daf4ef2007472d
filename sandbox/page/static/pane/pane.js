// One platform: its places, the messages of the open place and the message box.

import { Composer } from "./composer.js";
import { act as send, onChange, store } from "../connection.js";
import { h, keep, show } from "../dom.js";
import { icon } from "../icons.js";
import { dots, message } from "./message.js";
import { modal } from "./modal.js";
import { keyOf, Places } from "./places.js";

// A list this close to its end, in pixels, follows new messages.
const END_PIXELS = 60;

// A hint of the sandbox disappears after this time.
const HINT_MILLISECONDS = 12000;

const DOT = { true: "connected", false: "not connected" };

export class Pane {
  constructor(element, key, name) {
    this.element = element;
    this.key = key;
    this.name = name;
    this.place = "";
    this.target = null; // the view of the chosen place, until the server sends it
    this.views = new Map(); // the last known view of each place
    this.isNew = true; // nothing was painted since the page was loaded
    this.build();
  }

  // Sends an action for this platform, and shows the server's notice.
  async act(action, about = {}) {
    const notice = await this.request(action, about);
    if (notice) this.showHint(notice);
    return notice;
  }

  // Sends an action for this platform, and returns the server's notice.
  async request(action, about = {}) {
    try {
      return await send(action, { platform: this.key, ...about });
    } catch (error) {
      return error.message;
    }
  }

  build() {
    this.places = new Places(this.name, (place) => this.open(place));
    this.title = h("div", { class: "title" });
    this.list = h("div", { class: "messages", role: "log", "aria-live": "polite", "aria-label": `Messages in ${this.name}`, tabindex: "0" });
    this.empty = h("div", { class: "empty" });
    this.hint = h("div", { class: "hint", role: "status", hidden: true });
    this.typing = h("div", { class: "typing", "aria-live": "polite" });
    this.composer = new Composer(this);
    this.modal = h("div", { class: "modal-overlay", hidden: true });
    const talk = h("div", { class: "conversation" }, this.title, this.list, this.empty, this.hint, this.composer.form, this.typing);
    this.element.append(this.places.nav, talk, this.modal);

    this.element.addEventListener("dragover", (event) => event.preventDefault());
    this.element.addEventListener("drop", (event) => {
      event.preventDefault();
      this.composer.attach(event.dataTransfer.files);
    });
    this.list.addEventListener("keydown", (event) => this.onListKey(event));
    this.list.addEventListener("click", (event) => event.target.closest(".spoiler")?.classList.toggle("open"));
    new ResizeObserver(() => this.keepEnd()).observe(this.list);
    this.list.addEventListener("load", () => this.keepEnd(), true); // a picture has its height once it is loaded
    this.list.addEventListener("scroll", () => { this.isAtEnd = this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < END_PIXELS; });
    this.isAtEnd = true;
    onChange((keys) => {
      if (this.target?.isOpen && keys.has(this.key)) this.target = null; // a message may have opened another place since
    });
  }

  // Scrolling

  scrollToEnd() {
    this.isAtEnd = true;
    this.list.scrollTop = this.list.scrollHeight;
  }

  keepEnd() {
    if (this.isAtEnd) this.list.scrollTop = this.list.scrollHeight;
  }

  // Places

  countUnread() {
    return (store.get(this.key)?.places ?? []).reduce((sum, place) => sum + place.unread, 0);
  }

  // The view of the chosen place; the last known one while the server still shows another place.
  view() {
    const about = store.get(this.key);
    const key = keyOf(about.place);
    if (this.target && this.target.key !== key) return this.target;
    this.target = null;
    const messages = new Map(about.message_ids.map((id) => [id, store.get(`${this.key}/${id}`)]));
    this.views.set(key, { key, about, messages });
    return this.views.get(key);
  }

  // Shows a place at once: as it was seen last, until the server sends it.
  async open({ channel, thread }) {
    const { places } = store.get(this.key);
    const found = places.find((one) => one.channel === channel && one.thread === thread);
    if (found) this.showTarget(found, []);
    await this.settle(this.act("open_place", { channel, thread }));
  }

  // Opens the thread of a message; a thread that exists is shown at once.
  async openThread(said) {
    const { places, place } = store.get(this.key);
    const thread = this.key === "slack" ? said.id : said.thread?.id;
    const found = places.find((one) => one.channel === place.channel && one.thread === thread);
    if (thread && !place.thread) this.showTarget(found ?? { ...place, thread, is_dm: false }, [said, said.replies?.newest]);
    await this.settle(this.act("open_thread", { message: said.id }));
  }

  showTarget(place, messages) {
    const { places, ...about } = store.get(this.key);
    const home = places.find((one) => one.channel === place.channel && !one.thread) ?? about.place;
    const key = keyOf(place);
    const known = messages.filter(Boolean).map((one) => [one.id, { ...one, replies: null, thread: null }]);
    const view = this.views.get(key) ?? { about: { ...about, title: "", typing: "", suggested_prompts: [], isLoading: true, message_ids: known.map(([id]) => id) }, messages: new Map(known) };
    const shown = { channel: place.channel, thread: place.thread, name: place.name, channel_name: home.channel_name ?? home.name };
    this.target = { key, about: { ...view.about, places, connected: about.connected, is_dm: home.is_dm, place: shown }, messages: view.messages };
    this.paint();
    this.focus();
  }

  async settle(action) {
    const target = this.target;
    if (!(await action)) {
      if (target) target.isOpen = true;
      return;
    }
    this.target = null; // the server refused
    this.paint();
  }

  back() {
    const { place } = this.view().about;
    if (place.thread) this.open({ channel: place.channel, thread: null });
  }

  // Puts a message into the message box, with a mention where the bot needs one.
  write(text) {
    const { is_dm: direct, place, bot } = this.view().about;
    this.composer.write(direct || place.thread ? text : `@${bot} ${text}`);
  }

  reset() {
    this.place = "";
    this.target = null;
    this.views.clear();
  }

  // Focuses the message box where that opens no keyboard on the screen.
  focus() {
    if (window.matchMedia("(hover: hover)").matches) this.composer.focus();
  }

  // Painting

  paint() {
    if (!store.get(this.key)) return;
    const { key: place, about, messages } = this.view();
    const isMoved = place !== this.place;
    if (isMoved) {
      this.composer.switchDraft(this.place, place);
      this.place = place;
      this.list.replaceChildren();
      this.showHint("");
    }
    this.places.paint(about, store.get("me")?.name ?? "");
    this.paintTitle(about);
    this.paintMessages(about, messages, isMoved);
    show(this.typing, about.typing, (text) => h("span", {}, text ? [dots(), text] : ""));
    show(this.modal, about.modal, (open) => modal(this.key, open, (action, more) => this.request(action, more)));
    if (!about.modal && !this.modal.hidden && document.activeElement === document.body) this.focus();
    this.modal.hidden = !about.modal;
    this.composer.paint(about);
    if (this.isNew && document.body.dataset.view === this.key && document.activeElement === document.body) this.focus();
    this.isNew = false;
  }

  // Shows a text of the sandbox above the message box; an empty one hides it.
  showHint(text) {
    clearTimeout(this.hintTimer);
    this.hint.hidden = !text;
    if (!text) return;
    this.hint.replaceChildren(h("span", {}, text), h("button", { type: "button", class: "icon-button", "aria-label": "Dismiss", onclick: () => this.showHint("") }, icon("close")));
    this.hintTimer = setTimeout(() => this.showHint(""), HINT_MILLISECONDS);
  }

  paintTitle(about) {
    show(this.title, [about.place, about.title, about.is_dm, about.connected, about.bot], ([place, title, direct]) =>
      h(
        "div",
        { class: "bar" },
        h("button", { type: "button", class: "icon-button open-sidebar", "aria-label": `Channels and threads of ${this.name}`, title: "Channels and threads", "data-focus": "places", onclick: () => this.places.toggle() }, icon("list")),
        place.thread ? h("button", { type: "button", class: "icon-button back", "data-focus": "back", "aria-label": `Back to ${place.channel_name}`, title: `Back to ${place.channel_name}`, onclick: () => this.back() }, icon("back")) : null,
        h("h2", {}, place.thread ? "Thread" : place.channel_name),
        h("span", { class: "subtitle" }, place.thread ? `${place.channel_name}${title || place.name ? ` · ${title || place.name}` : ""}` : title),
        h("span", { class: `state ${about.connected ? "on" : "off"}`, title: `${about.bot} is ${DOT[about.connected]} to ${this.name}` }, h("i", { "aria-hidden": "true" }), h("span", {}, `${about.bot} ${DOT[about.connected]}`)),
      ),
    );
  }

  paintMessages(about, messages, isMoved) {
    const list = this.list;
    const tools = { act: (action, more) => this.act(action, more), edit: (said) => this.composer.edit(said), openThread: (said) => this.openThread(said), menu: () => store.get(this.key)?.menu_entries ?? [] };
    const items = about.message_ids.map((id) => ({ key: id, value: messages.get(id) })).filter((item) => item.value);
    keep(list, items, (said) => message(this.key, said, tools));
    let last = null;
    for (const element of list.children) {
      const said = messages.get(element.dataset.key);
      const follows = last && last.author === said.author && last.time === said.time && !said.reference && !last.replies && said.ephemeral === last.ephemeral;
      element.classList.toggle("follows", Boolean(follows));
      last = said;
    }
    list.classList.toggle("is-thread", Boolean(about.place.thread));
    this.empty.hidden = items.length > 0 || Boolean(about.isLoading);
    show(this.empty, [about.place, about.suggested_prompts, about.is_dm, this.empty.hidden], () => (this.empty.hidden ? h("div") : this.welcome(about)));
    if (isMoved) this.scrollToEnd();
    else this.keepEnd();
  }

  welcome(about) {
    const direct = about.is_dm && !about.place.thread;
    const suggested = about.suggested_prompts.length ? about.suggested_prompts : direct ? [{ title: "Say hello", message: "Hello! Who are you?" }] : [{ title: `@${about.bot} hello`, message: `@${about.bot} hello!` }];
    const ask = ({ message: text }) => {
      this.act("post_message", { text });
      this.focus();
    };
    return h(
      "div",
      { class: "welcome" },
      direct ? h("img", { class: "big", src: "/static/icon.svg", alt: "" }) : h("div", { class: "big", "aria-hidden": "true" }, icon("hash")),
      h("h3", {}, direct ? `This is the beginning of your direct messages with ${about.bot}` : `Welcome to ${about.place.channel_name}`),
      h("p", {}, direct ? "Ask something below, and watch the answer stream in." : `No messages yet. In a channel, mention @${about.bot} to get an answer.`),
      h("div", { class: "prompts" }, suggested.map((prompt) => h("button", { type: "button", class: "prompt", "data-focus": `prompt ${prompt.title}`, onclick: () => ask(prompt) }, prompt.title))),
    );
  }

  onListKey(event) {
    const here = event.target.closest(".messages > .message");
    if (event.key === "ArrowUp") (here ? here.previousElementSibling : this.list.lastElementChild)?.focus();
    else if (event.key === "ArrowDown") (here?.nextElementSibling ?? this.composer.line).focus();
    else if (event.key === "Escape") this.composer.focus();
    else if (event.key === "Enter" && event.target === here) here.querySelector(".open, .thread, [data-focus$='t thread']")?.click();
    else return;
    event.preventDefault();
  }
}
