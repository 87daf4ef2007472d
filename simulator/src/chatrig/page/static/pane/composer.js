// The message box of a pane: text, files, and completion of slash commands and names.

import { store } from "../connection.js";
import { h } from "../dom.js";
import { renderIcon } from "../icons.js";

// The largest file to upload, in bytes.
const MAX_FILE_BYTES = 10 * 1048576;

const MAX_HEIGHT_PIXELS = 160;

// The message box, with a draft for each place.
export class Composer {
  constructor(pane) {
    this.pane = pane;
    this.files = [];
    this.editedMessage = null;
    this.drafts = new Map(); // unsent texts by the key of their place
    this.selectedIndex = 0; // of the suggestions
    const { key, name } = pane;
    this.suggestionList = h("ul", { class: "commands", role: "listbox", id: `${key}-commands`, "aria-label": `Suggestions in ${name}`, hidden: true });
    this.attachments = h("div", { class: "attachments" });
    this.textarea = h("textarea", { id: `${key}-line`, rows: "1", spellcheck: "true", "aria-autocomplete": "list", "aria-controls": `${key}-commands` });
    this.fileInput = h("input", { type: "file", multiple: true, hidden: true, "aria-label": `Files to send to ${name}` });
    const renderInsertButton = (label, iconName, text) => h("button", { type: "button", class: "icon-button insert", "aria-label": `${label} in ${name}`, title: label, onclick: () => this.insertText(text) }, renderIcon(iconName));
    this.form = h(
      "form",
      { class: "composer" },
      this.suggestionList,
      this.attachments,
      h(
        "div",
        { class: "box" },
        h("button", { type: "button", class: "icon-button attach", "aria-label": `Attach a file in ${name}`, title: "Attach a file", onclick: () => this.fileInput.click() }, renderIcon("plus")),
        this.textarea,
        renderInsertButton("Mention someone", "at", "@"),
        renderInsertButton("Slash commands", "slash", "/"),
        h("button", { type: "submit", class: "icon-button send", "aria-label": `Send to ${name}`, title: "Send (Enter)" }, renderIcon("send")),
      ),
      this.fileInput,
    );
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    this.textarea.addEventListener("keydown", (event) => this.handleKeydown(event));
    this.textarea.addEventListener("input", () => this.handleTextChange());
    this.textarea.addEventListener("blur", () => this.updateSuggestions());
    this.textarea.addEventListener("paste", (event) => event.clipboardData.files.length && this.attachFiles(event.clipboardData.files));
    this.fileInput.addEventListener("change", () => this.attachFiles(this.fileInput.files));
  }

  focus() {
    this.textarea.focus();
  }

  // Stores the draft of the old place, and shows that of the new one.
  switchDraft(oldPlaceKey, placeKey) {
    this.drafts.set(oldPlaceKey, this.textarea.value);
    this.textarea.value = this.drafts.get(placeKey) ?? "";
    this.editedMessage = null;
    this.handleTextChange();
  }

  // Updates the message box; `state` is the pane's.
  update(state) {
    this.textarea.placeholder = this.editedMessage ? "Edit message" : getPlaceholder(state);
    this.textarea.setAttribute("aria-label", `Message to ${state.place.channel_name} in ${this.pane.name}`);
    this.updateSuggestions();
  }

  async send() {
    const text = this.textarea.value;
    if (this.editedMessage) {
      const { id } = this.editedMessage;
      this.editedMessage = null;
      this.clearText();
      await this.pane.sendAction("edit_message", { message: id, text });
      return;
    }
    if (!text.trim() && !this.files.length) return;
    const files = this.files;
    this.files = [];
    this.clearText();
    this.updateAttachments();
    this.pane.scrollToEnd();
    await this.pane.sendAction("post_message", { text, files });
  }

  clearText() {
    this.textarea.value = "";
    this.handleTextChange();
  }

  // Puts the text of a message into the message box; sending it edits the message.
  startEditing(message) {
    this.editedMessage = message;
    this.textarea.value = message.source;
    this.textarea.focus();
    this.handleTextChange();
    this.textarea.placeholder = "Edit message";
  }

  insertText(text) {
    const before = this.textarea.value.slice(0, this.textarea.selectionStart);
    const space = text === "@" && before && !/\s$/.test(before) ? " " : "";
    if (text === "/") this.textarea.value = "/";
    else this.textarea.setRangeText(space + text, this.textarea.selectionStart, this.textarea.selectionEnd, "end");
    this.textarea.focus();
    this.handleTextChange();
  }

  async attachFiles(files) {
    for (const file of files) {
      if (file.size > MAX_FILE_BYTES) {
        this.pane.showHint(`${file.name} is larger than 10 MB.`);
        continue;
      }
      const bytes = new Uint8Array(await file.arrayBuffer());
      let binary = "";
      for (let start = 0; start < bytes.length; start += 32768) binary += String.fromCharCode(...bytes.subarray(start, start + 32768));
      this.files.push({ name: file.name, data: btoa(binary) });
    }
    this.fileInput.value = "";
    this.updateAttachments();
    this.textarea.focus();
  }

  updateAttachments() {
    const remove = (file) => {
      this.files = this.files.filter((attachment) => attachment !== file);
      this.updateAttachments();
    };
    this.attachments.replaceChildren(
      ...this.files.map((file) => h("span", { class: "chip" }, renderIcon("file"), file.name, h("button", { type: "button", class: "icon-button", "aria-label": `Remove ${file.name}`, onclick: () => remove(file) }, renderIcon("close")))),
    );
  }

  // Fits the height to the text, and updates the suggestions.
  handleTextChange() {
    this.textarea.style.height = "auto";
    if (this.textarea.value) this.textarea.style.height = `${Math.min(this.textarea.scrollHeight, MAX_HEIGHT_PIXELS)}px`;
    this.selectedIndex = 0;
    this.updateSuggestions();
  }

  // Completion

  // Returns the suggestions for the text: slash commands at its beginning, or names after `@`.
  findSuggestions() {
    const state = store.get(this.pane.key);
    const text = this.textarea.value;
    if (!state || this.editedMessage) return [];
    if (/^\/[\w-]*$/.test(text)) {
      const commands = state.commands.filter((command) => `/${command.name}`.startsWith(text));
      commands.sort((a, b) => (`/${b.name}` === text) - (`/${a.name}` === text)); // an exact match is sent, not completed
      return commands.map((command) => ({ text: `/${command.name} `, label: `/${command.name}`, usage: command.usage, description: command.description }));
    }
    const mention = /(?:^|\s)@([\w-]*)$/.exec(text.slice(0, this.textarea.selectionStart));
    if (!mention) return [];
    const people = [state.bot, ...(store.get("me")?.people ?? [])];
    return people.filter((name) => name.startsWith(mention[1].toLowerCase()) && name !== mention[1]).map((name) => ({ text: `${text.slice(0, this.textarea.selectionStart - mention[1].length)}${name} ${text.slice(this.textarea.selectionStart)}`, label: `@${name}`, usage: "", description: name === state.bot ? "the bot" : "" }));
  }

  updateSuggestions() {
    const suggestions = document.activeElement === this.textarea ? this.findSuggestions() : [];
    this.suggestionList.hidden = !suggestions.length;
    const options = suggestions.map((suggestion, index) =>
      h(
        "li",
        { role: "option", id: `${this.pane.key}-c${index}`, "aria-selected": String(index === this.selectedIndex), onmousedown: (event) => { event.preventDefault(); this.applySuggestion(suggestion); } },
        h("b", {}, suggestion.label), " ", h("code", {}, suggestion.usage), h("span", {}, suggestion.description),
      ),
    );
    this.suggestionList.replaceChildren(...options);
    if (suggestions.length) this.textarea.setAttribute("aria-activedescendant", `${this.pane.key}-c${this.selectedIndex}`);
    else this.textarea.removeAttribute("aria-activedescendant");
    this.suggestionList.children[this.selectedIndex]?.scrollIntoView({ block: "nearest" });
  }

  applySuggestion(suggestion) {
    this.textarea.value = suggestion.text;
    this.textarea.focus();
    this.handleTextChange();
  }

  handleKeydown(event) {
    const suggestions = this.suggestionList.hidden ? [] : this.findSuggestions();
    if (suggestions.length && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      this.selectedIndex = (this.selectedIndex + (event.key === "ArrowDown" ? 1 : suggestions.length - 1)) % suggestions.length;
      this.updateSuggestions();
    } else if (suggestions.length && (event.key === "Tab" || (event.key === "Enter" && this.textarea.value.trim() !== suggestions[this.selectedIndex].text.trim()))) {
      event.preventDefault();
      this.applySuggestion(suggestions[this.selectedIndex]);
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      this.send();
    } else if (event.key === "Escape") {
      if (suggestions.length) this.suggestionList.hidden = true;
      else if (this.editedMessage) { this.editedMessage = null; this.clearText(); }
      else this.pane.goBack();
    } else if (event.key === "ArrowUp" && !this.textarea.value) {
      event.preventDefault();
      this.pane.list.lastElementChild?.focus();
    }
  }
}

function getPlaceholder({ place, bot, is_dm: isDm, thread_support: threadSupport }) {
  if (place.thread) return "Reply…";
  if (isDm) return `Message ${bot}`;
  return threadSupport === "all" ? `New post: @${bot} …` : `Message ${place.channel_name}`;
}
