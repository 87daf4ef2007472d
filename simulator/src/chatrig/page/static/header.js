// The top bar: views, current user, bot state and the controls of the extension. The bot's errors are below it.

import { store } from "./connection.js";
import { h, updateChildren, updateOnlyChild } from "./dom.js";
import { extension } from "./extension.js";
import { renderIcon } from "./icons.js";
import { renderAvatar } from "./pane/message.js";
import { toggleTheme } from "./theme.js";

// Keys and labels of the views.
const VIEWS = [["slack", "Slack"], ["discord", "Discord"], ["inspector", "Inspector"]];

const BOT_STATES = { starting: "starting…", running: "running", ended: "not running" };

const getElement = (id) => document.getElementById(id);

// The top bar and the lines below it.
export class Header {
  // `views` has the open view, and opens another; `runAction` sends an action, and shows its notice.
  constructor(views, runAction) {
    this.views = views;
    this.runAction = runAction;
    this.tabs = h("nav", { id: "tabs", "aria-label": "Views" });
    this.settings = h("div", { id: "settings" });
    this.settingsButton = h("button", { type: "button", class: "icon-button menu-button", "aria-label": "Settings", "aria-expanded": "false", "aria-controls": "settings", onclick: () => this.toggleSettings() });
    this.inspectorButton = h("button", { type: "button", class: "icon-button inspect", "aria-label": "Inspector", title: "Inspector (Alt+3)", onclick: () => views.toggleInspector() }, renderIcon("inspect"));
    getElement("bar").append(
      h("h1", {}, h("img", { src: "/static/icon.svg", alt: "", width: "26", height: "26" }), h("span", {}, document.title.replace(/simulator$/, ""), h("small", {}, "simulator"))),
      this.tabs,
      this.settings,
      this.inspectorButton,
      this.settingsButton,
    );
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !this.isOpen) return;
      this.toggleSettings(false);
      this.settingsButton.focus();
    });
    document.addEventListener("pointerdown", (event) => {
      if (this.isOpen && !this.settings.contains(event.target) && !this.settingsButton.contains(event.target)) this.toggleSettings(false);
    });
  }

  get isOpen() {
    return this.settingsButton.getAttribute("aria-expanded") === "true";
  }

  toggleSettings(open = !this.isOpen) {
    this.settingsButton.setAttribute("aria-expanded", String(open));
    this.settings.classList.toggle("open", open);
  }

  // Updates the header; `unreadCounts` has the number of unread messages by platform.
  update(unreadCounts) {
    this.updateTabs(unreadCounts);
    const me = store.get("me");
    const bot = store.get("bot");
    if (!me) return;
    this.inspectorButton.setAttribute("aria-pressed", String(this.views.isInspectorOpen));
    updateOnlyChild(this.settingsButton, me.name, (name) => h("span", { class: "menu-avatar" }, renderAvatar(name, "small"), renderIcon("more")));
    updateOnlyChild(this.settings, [me, bot?.state, extension.controls.map((control) => control.read())], () =>
      h(
        "div",
        { class: "settings" },
        this.renderPeople(me),
        extension.controls.map((control) => control.render(this.runAction)).flat(),
        bot ? h("span", { class: `state ${bot.state}`, role: "status" }, h("i", { "aria-hidden": "true" }), BOT_STATES[bot.state]) : null,
        h("button", { type: "button", class: "icon-button theme", "aria-label": "Switch theme", title: "Switch theme", "data-focus": "theme", onclick: toggleTheme }, renderIcon("theme")),
      ),
    );
    this.updateBotError(bot);
  }

  updateTabs(unreadCounts) {
    updateChildren(this.tabs, VIEWS.map(([key, label]) => ({ key, value: [label, key === this.views.current, key === this.views.current ? 0 : unreadCounts[key] || 0] })), ([label, isCurrent, count], key) =>
      h("button", { type: "button", class: `tab tab-${key}${isCurrent ? " current" : ""}`, "aria-current": isCurrent ? "page" : null, "data-focus": `view ${key}`, onclick: () => this.views.open(key) }, label, count ? h("span", { class: "count" }, h("span", { class: "hidden" }, "unread: "), String(count)) : null),
    );
  }

  renderPeople(me) {
    const renderPerson = (name) => h("button", { type: "button", class: `person${name === me.name ? " current" : ""}`, "aria-pressed": String(name === me.name), "data-focus": `user ${name}`, onclick: () => this.runAction("switch_user", { name }) }, renderAvatar(name, "small"), name);
    return h("div", { class: "people", role: "group", "aria-label": "Act as" }, h("span", { class: "people-label", "aria-hidden": "true" }, "Act as"), me.people.map(renderPerson));
  }

  updateBotError(bot) {
    const botError = getElement("bot-error");
    botError.hidden = !bot?.exit_reason;
    updateOnlyChild(botError, [bot?.exit_reason, bot?.log, bot?.state], ([reason, log, state]) =>
      h(
        "div",
        {},
        h("div", { class: "error-text" }, h("b", {}, "The bot is not running"), h("p", { class: "reason" }, reason), log ? h("details", { "data-details": "log" }, h("summary", { "data-focus": "log" }, "Log"), h("pre", { tabindex: "0" }, log)) : null),
        state === "ended" && h("button", { type: "button", class: "button plain", "data-focus": "restart", onclick: () => this.runAction("restart_bot") }, "Start again"),
      ),
    );
  }
}
