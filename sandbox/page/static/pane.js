// One platform: the open place, its messages and the message box.

import { h, keep, show } from "./dom.js";
import { icon } from "./icons.js";
import { act as send, store } from "./line.js";
import { dots, message } from "./message.js";
import { modal } from "./modal.js";

// The largest file to upload, in bytes.
const MAX_FILE_BYTES = 10 * 1048576;

const DOT = { true: "connected", false: "not connected" };

export class Pane {
  constructor(element, key, name, toast) {
    this.element = element;
    this.key = key;
    this.name = name;
    this.toast = toast;
    this.files = [];
    this.editing = null;
    this.drafts = new Map();
    this.place = "";
    this.target = null; // the view of the chosen place, until the server sends it
    this.views = new Map(); // the last known view of each place
    this.choice = 0;
    this.build();
  }

  // Sends an action for this platform, and shows the server's notice.
  async act(action, about = {}) {
    try {
      const notice = await send(action, { on: this.key, ...about });
      if (notice) this.toast(notice, this.name);
      return notice;
    } catch (error) {
      this.toast(error.message, this.name);
      return error.message;
    }
  }

  build() {
    const key = this.key;
    this.head = h("div", { class: "pane-head" });
    this.nav = h("nav", { class: "places", "aria-label": `Places in ${this.name}` });
    this.title = h("div", { class: "title" });
    this.list = h("div", { class: "messages", role: "log", "aria-live": "polite", "aria-label": `Messages in ${this.name}`, tabindex: "0" });
    this.empty = h("div", { class: "empty" });
    this.typing = h("div", { class: "typing", "aria-live": "polite" });
    this.commands = h("ul", { class: "commands", role: "listbox", id: `${key}-commands`, "aria-label": "Slash commands", hidden: true });
    this.attached = h("div", { class: "attached" });
    this.line = h("textarea", { id: `${key}-line`, rows: "1", spellcheck: "true", "aria-autocomplete": "list", "aria-controls": `${key}-commands` });
    this.pick = h("input", { type: "file", multiple: true, hidden: true, "aria-label": "Files to send" });
    this.form = h(
      "form",
      { class: "composer" },
      this.commands,
      this.attached,
      h(
        "div",
        { class: "box" },
        h("button", { type: "button", class: "attach", "aria-label": `Attach a file in ${this.name}`, title: "Attach a file", onclick: () => this.pick.click() }, icon("attach")),
        this.line,
        h("button", { type: "submit", class: "send", "aria-label": `Send to ${this.name}`, title: "Send (Enter)" }, icon("send")),
      ),
      this.pick,
    );
    this.modal = h("div", { class: "modal-room" });
    const talk = h("div", { class: "talk" }, this.title, this.list, this.empty, this.typing, this.form);
    this.element.append(this.head, h("div", { class: "rooms" }, this.nav, talk), this.modal);

    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.say();
    });
    this.line.addEventListener("keydown", (event) => this.onKey(event));
    this.line.addEventListener("input", () => this.grow());
    this.pick.addEventListener("change", () => this.attach(this.pick.files));
    this.element.addEventListener("dragover", (event) => event.preventDefault());
    this.element.addEventListener("drop", (event) => {
      event.preventDefault();
      this.attach(event.dataTransfer.files);
    });
    this.line.addEventListener("paste", (event) => event.clipboardData.files.length && this.attach(event.clipboardData.files));
    this.list.addEventListener("keydown", (event) => this.onListKey(event));
    this.list.addEventListener("click", (event) => event.target.closest(".spoiler")?.classList.toggle("open"));
  }

  // Painting

  // The view of the chosen place; the last known one while the server still shows another place.
  view() {
    const about = store.get(this.key);
    const key = keyOf(about.place);
    if (this.target && this.target.key !== key) return this.target;
    this.target = null;
    const messages = new Map(about.order.map((id) => [id, store.get(`${this.key}/${id}`)]));
    this.views.set(key, { key, about, messages });
    return this.views.get(key);
  }

  async go(channel, thread) {
    const about = store.get(this.key);
    const found = about.places.find((one) => one.channel === channel && one.thread === thread);
    const home = about.places.find((one) => one.channel === channel && !one.thread);
    if (found && home) {
      const key = keyOf(found);
      const known = this.views.get(key) ?? { about: { ...about, title: "", typing: "", prompts: [], order: [], loading: true }, messages: new Map() };
      const place = { channel, thread: found.thread, name: found.name, home: home.name };
      this.target = { key, about: { ...known.about, places: about.places, connected: about.connected, direct: found.direct, place }, messages: known.messages };
      this.paint();
    }
    if (await this.act("open_place", { channel, thread })) {
      this.target = null;
      this.paint();
    }
  }

  // Puts a message into the message box, with a mention where the bot needs one.
  write(text) {
    const { direct, place, bot } = this.view().about;
    this.line.value = direct || place.thread ? text : `@${bot} ${text}`;
    this.grow();
    this.line.focus();
  }

  reset() {
    this.place = "";
    this.target = null;
    this.views.clear();
  }

  paint() {
    if (!store.get(this.key)) return;
    const { key: place, about, messages } = this.view();
    const moved = place !== this.place;
    if (moved) {
      this.drafts.set(this.place, this.line.value);
      this.place = place;
      this.line.value = this.drafts.get(place) ?? "";
      this.editing = null;
      this.list.replaceChildren();
      this.grow();
    }
    show(this.head, [about.connected, about.bot], () =>
      h("div", { class: "brand" }, h("h2", {}, this.name), h("span", { class: `state ${about.connected ? "on" : "off"}` }, h("i", { "aria-hidden": "true" }), `${about.bot} ${DOT[about.connected]}`)),
    );
    this.paintPlaces(about);
    this.paintTitle(about);
    this.paintMessages(about, messages, moved);
    show(this.typing, about.typing, (text) => h("span", {}, text ? [dots(), text] : ""));
    show(this.modal, about.modal, (open) => modal(open, (action, more) => this.act(action, more)));
    this.modal.hidden = !about.modal;
    this.line.placeholder = this.editing ? "Edit message" : hint(about);
    this.line.setAttribute("aria-label", `Message to ${about.place.home} in ${this.name}`);
    this.suggest();
  }

  paintPlaces(about) {
    const here = about.place;
    const items = about.places.map((place) => ({ key: keyOf(place), value: { ...place, here: place.channel === here.channel && place.thread === here.thread } }));
    keep(this.nav, items, (place, key) =>
      h(
        "button",
        { type: "button", class: `place${place.thread ? " sub" : ""}${place.here ? " here" : ""}${place.unread ? " unread" : ""}`, "aria-current": place.here ? "true" : null, "data-focus": `place ${key}`, title: place.name, onclick: () => this.go(place.channel, place.thread) },
        h("span", { class: "label" }, place.thread ? `↳ ${place.name}` : place.name.replace(/^([#@])/, "$1 ")),
        place.unread ? h("span", { class: "count", "aria-label": `${place.unread} unread` }, String(place.unread)) : null,
      ),
    );
  }

  paintTitle(about) {
    show(this.title, [about.place, about.title], ([place, title]) =>
      h(
        "div",
        { class: "bar" },
        place.thread ? h("button", { type: "button", class: "back", "data-focus": "back", "aria-label": `Back to ${place.home}`, onclick: () => this.go(place.channel, null) }, "‹") : null,
        h("h3", {}, place.thread ? "Thread" : place.home),
        h("span", { class: "about" }, place.thread ? `${place.home}${title ? ` · ${title}` : ""}` : title),
      ),
    );
  }

  paintMessages(about, messages, moved) {
    const list = this.list;
    const atEnd = moved || list.scrollHeight - list.scrollTop - list.clientHeight < 60;
    const tools = { act: (action, more) => this.act(action, more), edit: (said) => this.edit(said), menu: () => store.get(this.key)?.menu ?? [] };
    const items = about.order.map((id) => ({ key: id, value: messages.get(id) })).filter((item) => item.value);
    keep(list, items, (said) => message(this.key, said, tools));
    let last = null;
    for (const element of list.children) {
      const said = messages.get(element.dataset.key);
      const follows = last && last.author === said.author && last.time === said.time && !said.to && !last.replies && said.ephemeral === last.ephemeral;
      element.classList.toggle("follows", Boolean(follows));
      last = said;
    }
    list.classList.toggle("is-thread", Boolean(about.place.thread));
    this.empty.hidden = items.length > 0 || Boolean(about.loading);
    show(this.empty, [about.place, about.prompts, this.empty.hidden], () => (this.empty.hidden ? h("div") : this.welcome(about)));
    if (atEnd) list.scrollTop = list.scrollHeight;
  }

  welcome(about) {
    const direct = about.direct && !about.place.thread;
    const suggested = about.prompts.length ? about.prompts : direct ? [{ title: "Say hello", message: "Hello! Who are you?" }] : [{ title: `@${about.bot} hello`, message: `@${about.bot} hello!` }];
    return h(
      "div",
      { class: "welcome" },
      h("div", { class: "big", "aria-hidden": "true" }, icon(direct ? "thread" : "hash")),
      h("h4", {}, direct ? `This is the beginning of your direct messages with ${about.bot}` : about.place.home),
      h("p", {}, direct ? "Ask something below, and watch the answer stream in." : `No messages yet. In a channel, mention @${about.bot} to get an answer.`),
      h("div", { class: "prompts" }, suggested.map((prompt) => h("button", { type: "button", class: "prompt", "data-focus": `prompt ${prompt.title}`, onclick: () => this.act("post_message", { text: prompt.message }) }, prompt.title))),
    );
  }

  // Actions

  async say() {
    const text = this.line.value;
    if (this.editing) {
      const { id } = this.editing;
      this.editing = null;
      this.line.value = "";
      this.grow();
      await this.act("edit_message", { message: id, text });
      return;
    }
    if (!text.trim() && !this.files.length) return;
    const files = this.files;
    this.files = [];
    this.line.value = "";
    this.paintFiles();
    this.grow();
    this.list.scrollTop = this.list.scrollHeight;
    await this.act("post_message", { text, files });
  }

  edit(said) {
    this.editing = said;
    this.line.value = said.source;
    this.line.focus();
    this.grow();
    this.paint();
  }

  async attach(chosen) {
    for (const file of chosen) {
      if (file.size > MAX_FILE_BYTES) {
        this.toast(`${file.name} is larger than 10 MB.`, this.name);
        continue;
      }
      const bytes = new Uint8Array(await file.arrayBuffer());
      let letters = "";
      for (let at = 0; at < bytes.length; at += 32768) letters += String.fromCharCode(...bytes.subarray(at, at + 32768));
      this.files.push({ name: file.name, data: btoa(letters) });
    }
    this.pick.value = "";
    this.paintFiles();
    this.line.focus();
  }

  paintFiles() {
    this.attached.replaceChildren(
      ...this.files.map((file) =>
        h("span", { class: "chip" }, icon("file"), file.name, h("button", { type: "button", "aria-label": `Remove ${file.name}`, onclick: () => { this.files = this.files.filter((one) => one !== file); this.paintFiles(); } }, "×")),
      ),
    );
  }

  grow() {
    this.line.style.height = "auto";
    if (this.line.value) this.line.style.height = `${Math.min(this.line.scrollHeight, 160)}px`;
    this.choice = 0;
    this.suggest();
  }

  // Completion of slash commands and names

  suggestions() {
    const about = store.get(this.key);
    const text = this.line.value;
    if (!about || this.editing) return [];
    if (/^\/[\w-]*$/.test(text)) {
      const found = about.commands.filter((command) => `/${command.name}`.startsWith(text));
      found.sort((one, other) => (`/${other.name}` === text) - (`/${one.name}` === text)); // an exact match is sent, not completed
      return found.map((command) => ({ text: `/${command.name} `, label: `/${command.name}`, hint: command.hint, about: command.about }));
    }
    const at = /(?:^|\s)@([\w-]*)$/.exec(text.slice(0, this.line.selectionStart));
    if (!at) return [];
    const people = [about.bot, ...(store.get("me")?.people ?? [])];
    return people.filter((name) => name.startsWith(at[1].toLowerCase()) && name !== at[1]).map((name) => ({ text: `${text.slice(0, this.line.selectionStart - at[1].length)}${name} ${text.slice(this.line.selectionStart)}`, label: `@${name}`, hint: "", about: name === about.bot ? "the bot" : "" }));
  }

  suggest() {
    const found = document.activeElement === this.line ? this.suggestions() : [];
    this.commands.hidden = !found.length;
    this.line.setAttribute("aria-expanded", String(found.length > 0));
    this.commands.replaceChildren(
      ...found.map((one, index) =>
        h(
          "li",
          { role: "option", id: `${this.key}-c${index}`, "aria-selected": String(index === this.choice), onmousedown: (event) => { event.preventDefault(); this.take(one); } },
          h("b", {}, one.label), " ", h("code", {}, one.hint), h("span", {}, one.about),
        ),
      ),
    );
    if (found.length) this.line.setAttribute("aria-activedescendant", `${this.key}-c${this.choice}`);
    else this.line.removeAttribute("aria-activedescendant");
    this.commands.children[this.choice]?.scrollIntoView({ block: "nearest" });
  }

  take(one) {
    this.line.value = one.text;
    this.line.focus();
    this.grow();
  }

  onKey(event) {
    const found = this.commands.hidden ? [] : this.suggestions();
    if (found.length && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      this.choice = (this.choice + (event.key === "ArrowDown" ? 1 : found.length - 1)) % found.length;
      this.suggest();
    } else if (found.length && (event.key === "Tab" || (event.key === "Enter" && this.line.value.trim() !== found[this.choice].text.trim()))) {
      event.preventDefault();
      this.take(found[this.choice]);
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      this.say();
    } else if (event.key === "Escape") {
      if (found.length) this.commands.hidden = true;
      else if (this.editing) { this.editing = null; this.line.value = ""; this.paint(); }
      else this.back();
    } else if (event.key === "ArrowUp" && !this.line.value) {
      event.preventDefault();
      this.list.lastElementChild?.focus();
    }
  }

  back() {
    const place = store.get(this.key)?.place;
    if (place?.thread) this.go(place.channel, null);
  }

  onListKey(event) {
    const here = event.target.closest(".messages > .message");
    if (event.key === "ArrowUp") (here ? here.previousElementSibling : this.list.lastElementChild)?.focus();
    else if (event.key === "ArrowDown") (here?.nextElementSibling ?? this.line).focus();
    else if (event.key === "Escape") this.line.focus();
    else if (event.key === "Enter" && event.target === here) here.querySelector(".open, .thread, [data-focus$='t thread']")?.click();
    else return;
    event.preventDefault();
  }
}

function keyOf(place) {
  return `${place.channel} ${place.thread}`;
}

function hint(about) {
  const { place, bot } = about;
  if (place.thread) return "Reply…";
  if (about.direct) return `Message ${bot}, or / for commands`;
  return about.threads === "all" ? `New post: @${bot} …` : `Message ${place.home}; mention @${bot} to get an answer`;
}
