// The top bar: views, current user, model and bot state. The bot's errors and notices are below it.

import { act, store } from "./connection.js";
import { askText } from "./dialog.js";
import { h, keep, show } from "./dom.js";
import { icon } from "./icons.js";
import { face } from "./pane/message.js";
import { setupBar } from "./setup/tour.js";
import { swapTheme } from "./theme.js";

const VIEWS = [["slack", "Slack"], ["discord", "Discord"], ["inspector", "Inspector"]];

const STATES = { starting: "starting…", running: "running", ended: "not running" };

const find = (id) => document.getElementById(id);

export class Header {
  // `views` has the open view, `open` shows another one, `write` puts a text into a message box; `toast` shows a text of
  // the sandbox.
  constructor(views, toast) {
    this.views = views;
    this.toast = toast;
    this.dismissed = new Set();
    this.tabs = h("nav", { id: "tabs", "aria-label": "Views" });
    this.settings = h("div", { id: "settings" });
    this.menu = h("button", { type: "button", class: "icon-button menu-button", "aria-label": "Settings", "aria-expanded": "false", "aria-controls": "settings", onclick: () => this.toggleSettings() });
    this.inspect = h("button", { type: "button", class: "icon-button inspect", "aria-label": "Inspector", title: "Inspector (Alt+3)", onclick: () => views.toggleInspector() }, icon("inspect"));
    find("bar").append(
      h("h1", {}, h("img", { src: "/static/icon.svg", alt: "", width: "26", height: "26" }), h("span", {}, "Parley ", h("small", {}, "sandbox"))),
      this.tabs,
      this.settings,
      this.inspect,
      this.menu,
    );
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !this.isOpen) return;
      this.toggleSettings(false);
      this.menu.focus();
    });
    document.addEventListener("pointerdown", (event) => {
      if (this.isOpen && !this.settings.contains(event.target) && !this.menu.contains(event.target)) this.toggleSettings(false);
    });
  }

  get isOpen() {
    return this.menu.getAttribute("aria-expanded") === "true";
  }

  toggleSettings(open = !this.isOpen) {
    this.menu.setAttribute("aria-expanded", String(open));
    this.settings.classList.toggle("open", open);
  }

  async send(action, about) {
    try {
      const notice = await act(action, about);
      if (notice) this.toast(notice);
    } catch (error) {
      this.toast(error.message);
    }
  }

  paint(unread) {
    this.paintTabs(unread);
    const me = store.get("me");
    const bot = store.get("bot");
    if (!me || !bot) return;
    this.inspect.setAttribute("aria-pressed", String(this.views.hasInspector));
    show(this.menu, me.name, (name) => h("span", { class: "menu-avatar" }, face(name, "small"), icon("more")));
    show(this.settings, [me, bot.state, bot.model, bot.models, bot.agent, bot.tour], () =>
      h(
        "div",
        { class: "settings" },
        this.people(me),
        bot.agent && !bot.tour ? h("span", { class: "agent", title: "This agent is reloaded when its files change" }, icon("folder"), h("span", {}, bot.agent)) : null,
        bot.tour ? null : this.model(bot),
        h("span", { class: `state ${bot.state}`, role: "status" }, h("i", { "aria-hidden": "true" }), STATES[bot.state]),
        h("button", { type: "button", class: "icon-button theme", "aria-label": "Switch theme", title: "Switch theme", "data-focus": "theme", onclick: swapTheme }, icon("theme")),
      ),
    );
    this.paintTrouble(bot);
    this.paintNotices(bot);
    find("setup").hidden = false;
    show(find("setup"), [bot.tour, bot.lacks_key], () => setupBar(bot, (action, about) => this.send(action, about), this.views.write));
  }

  paintTabs(unread) {
    keep(this.tabs, VIEWS.map(([key, label]) => ({ key, value: [label, key === this.views.current, key === this.views.current ? 0 : unread[key] || 0] })), ([label, here, count], key) =>
      h("button", { type: "button", class: `tab tab-${key}${here ? " current" : ""}`, "aria-current": here ? "page" : null, "data-focus": `view ${key}`, onclick: () => this.views.open(key) }, label, count ? h("span", { class: "count" }, h("span", { class: "hidden" }, "unread: "), String(count)) : null),
    );
  }

  people(me) {
    const person = (name) => h("button", { type: "button", class: `person${name === me.name ? " current" : ""}`, "aria-pressed": String(name === me.name), "data-focus": `be ${name}`, onclick: () => this.send("switch_user", { name }) }, face(name, "small"), name);
    return h("div", { class: "people", role: "group", "aria-label": "Act as" }, h("span", { class: "people-label", "aria-hidden": "true" }, "Act as"), me.people.map(person));
  }

  model(bot) {
    const names = bot.models.includes(bot.model) ? bot.models : [...bot.models, bot.model];
    const pick = h("select", { id: "model", "data-focus": "model" }, names.map((name) => h("option", { value: name }, name)), h("option", { value: "?" }, "another model…"));
    pick.value = bot.model;
    pick.addEventListener("change", async () => {
      const name = pick.value === "?" ? await askText("Another model", "Model name, as in the MODEL setting", "openai/gpt-5-mini") : pick.value;
      if (name) await this.send("restart_bot", { model: name });
      else pick.value = bot.model;
    });
    return h("label", { class: "model" }, h("span", {}, "Model"), pick);
  }

  paintTrouble(bot) {
    const trouble = find("bot-error");
    trouble.hidden = !bot.exit_reason;
    show(trouble, [bot.exit_reason, bot.log, bot.state], ([reason, log, state]) =>
      h(
        "div",
        {},
        h("div", { class: "error-text" }, h("b", {}, "The bot is not running"), h("p", { class: "reason" }, reason), log ? h("details", { "data-fold": "log" }, h("summary", { "data-focus": "log" }, "Log"), h("pre", { tabindex: "0" }, log)) : null),
        state === "ended" && h("button", { type: "button", class: "button plain", "data-focus": "again", onclick: () => this.send("restart_bot") }, "Start again"),
      ),
    );
  }

  paintNotices(bot) {
    const lines = bot.notices.filter((line) => !this.dismissed.has(line));
    find("notices").hidden = !lines.length;
    const dismiss = (line) => {
      this.dismissed.add(line);
      this.paintNotices(bot);
    };
    keep(find("notices"), lines.map((line) => ({ key: line, value: line })), (line) =>
      h("p", {}, h("span", {}, line), h("button", { type: "button", class: "icon-button", "aria-label": "Dismiss", onclick: () => dismiss(line) }, icon("close"))),
    );
  }
}
