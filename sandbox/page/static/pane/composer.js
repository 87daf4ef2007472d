// The message box of a pane: text, files, and completion of slash commands and names.

import { store } from "../connection.js";
import { h } from "../dom.js";
import { icon } from "../icons.js";

// The largest file to upload, in bytes.
const MAX_FILE_BYTES = 10 * 1048576;

const MAX_HEIGHT_PIXELS = 160;

export class Composer {
  constructor(pane) {
    this.pane = pane;
    this.files = [];
    this.editing = null;
    this.drafts = new Map();
    this.choice = 0;
    const { key, name } = pane;
    this.commands = h("ul", { class: "commands", role: "listbox", id: `${key}-commands`, "aria-label": `Suggestions in ${name}`, hidden: true });
    this.attached = h("div", { class: "attachments" });
    this.line = h("textarea", { id: `${key}-line`, rows: "1", spellcheck: "true", "aria-autocomplete": "list", "aria-controls": `${key}-commands` });
    this.pick = h("input", { type: "file", multiple: true, hidden: true, "aria-label": `Files to send to ${name}` });
    const insert = (label, sign, text) => h("button", { type: "button", class: "icon-button insert", "aria-label": `${label} in ${name}`, title: label, onclick: () => this.insert(text) }, icon(sign));
    this.form = h(
      "form",
      { class: "composer" },
      this.commands,
      this.attached,
      h(
        "div",
        { class: "box" },
        h("button", { type: "button", class: "icon-button attach", "aria-label": `Attach a file in ${name}`, title: "Attach a file", onclick: () => this.pick.click() }, icon("plus")),
        this.line,
        insert("Mention someone", "at", "@"),
        insert("Slash commands", "slash", "/"),
        h("button", { type: "submit", class: "icon-button send", "aria-label": `Send to ${name}`, title: "Send (Enter)" }, icon("send")),
      ),
      this.pick,
    );
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    this.line.addEventListener("keydown", (event) => this.onKey(event));
    this.line.addEventListener("input", () => this.grow());
    this.line.addEventListener("blur", () => this.suggest());
    this.line.addEventListener("paste", (event) => event.clipboardData.files.length && this.attach(event.clipboardData.files));
    this.pick.addEventListener("change", () => this.attach(this.pick.files));
  }

  focus() {
    this.line.focus();
  }

  write(text) {
    this.line.value = text;
    this.grow();
    this.focus();
  }

  // Keeps the draft of the old place, and shows that of the new one.
  switchDraft(old, place) {
    this.drafts.set(old, this.line.value);
    this.line.value = this.drafts.get(place) ?? "";
    this.editing = null;
    this.grow();
  }

  paint(about) {
    this.line.placeholder = this.editing ? "Edit message" : placeholder(about);
    this.line.setAttribute("aria-label", `Message to ${about.place.channel_name} in ${this.pane.name}`);
    this.suggest();
  }

  async send() {
    const text = this.line.value;
    this.pane.showHint("");
    if (this.editing) {
      const { id } = this.editing;
      this.editing = null;
      this.clear();
      await this.pane.act("edit_message", { message: id, text });
      return;
    }
    if (!text.trim() && !this.files.length) return;
    const files = this.files;
    this.files = [];
    this.clear();
    this.paintFiles();
    this.pane.scrollToEnd();
    await this.pane.act("post_message", { text, files });
  }

  clear() {
    this.line.value = "";
    this.grow();
  }

  edit(said) {
    this.editing = said;
    this.line.value = said.source;
    this.line.focus();
    this.grow();
    this.line.placeholder = "Edit message";
  }

  insert(text) {
    const before = this.line.value.slice(0, this.line.selectionStart);
    const gap = text === "@" && before && !/\s$/.test(before) ? " " : "";
    if (text === "/") this.line.value = "/";
    else this.line.setRangeText(gap + text, this.line.selectionStart, this.line.selectionEnd, "end");
    this.line.focus();
    this.grow();
  }

  async attach(chosen) {
    for (const file of chosen) {
      if (file.size > MAX_FILE_BYTES) {
        this.pane.showHint(`${file.name} is larger than 10 MB.`);
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
    const remove = (file) => {
      this.files = this.files.filter((one) => one !== file);
      this.paintFiles();
    };
    this.attached.replaceChildren(
      ...this.files.map((file) => h("span", { class: "chip" }, icon("file"), file.name, h("button", { type: "button", class: "icon-button", "aria-label": `Remove ${file.name}`, onclick: () => remove(file) }, icon("close")))),
    );
  }

  grow() {
    this.line.style.height = "auto";
    if (this.line.value) this.line.style.height = `${Math.min(this.line.scrollHeight, MAX_HEIGHT_PIXELS)}px`;
    this.choice = 0;
    this.suggest();
  }

  // Completion

  suggestions() {
    const about = store.get(this.pane.key);
    const text = this.line.value;
    if (!about || this.editing) return [];
    if (/^\/[\w-]*$/.test(text)) {
      const found = about.commands.filter((command) => `/${command.name}`.startsWith(text));
      found.sort((one, other) => (`/${other.name}` === text) - (`/${one.name}` === text)); // an exact match is sent, not completed
      return found.map((command) => ({ text: `/${command.name} `, label: `/${command.name}`, hint: command.usage, about: command.description }));
    }
    const at = /(?:^|\s)@([\w-]*)$/.exec(text.slice(0, this.line.selectionStart));
    if (!at) return [];
    const people = [about.bot, ...(store.get("me")?.people ?? [])];
    return people.filter((name) => name.startsWith(at[1].toLowerCase()) && name !== at[1]).map((name) => ({ text: `${text.slice(0, this.line.selectionStart - at[1].length)}${name} ${text.slice(this.line.selectionStart)}`, label: `@${name}`, hint: "", about: name === about.bot ? "the bot" : "" }));
  }

  suggest() {
    const found = document.activeElement === this.line ? this.suggestions() : [];
    this.commands.hidden = !found.length;
    const options = found.map((one, index) =>
      h(
        "li",
        { role: "option", id: `${this.pane.key}-c${index}`, "aria-selected": String(index === this.choice), onmousedown: (event) => { event.preventDefault(); this.take(one); } },
        h("b", {}, one.label), " ", h("code", {}, one.hint), h("span", {}, one.about),
      ),
    );
    this.commands.replaceChildren(...options);
    if (found.length) this.line.setAttribute("aria-activedescendant", `${this.pane.key}-c${this.choice}`);
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
      this.send();
    } else if (event.key === "Escape") {
      if (found.length) this.commands.hidden = true;
      else if (this.editing) { this.editing = null; this.clear(); }
      else this.pane.back();
    } else if (event.key === "ArrowUp" && !this.line.value) {
      event.preventDefault();
      this.pane.list.lastElementChild?.focus();
    }
  }
}

function placeholder({ place, bot, is_dm: direct, thread_support: threads }) {
  if (place.thread) return "Reply…";
  if (direct) return `Message ${bot}`;
  return threads === "all" ? `New post: @${bot} …` : `Message ${place.channel_name}`;
}
