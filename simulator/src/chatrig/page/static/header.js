// The top bar: views, current user, model and bot state. The bot's errors, its model and the tour are below it.

import { sendAction, store } from "./connection.js";
import { askText } from "./dialog.js";
import { h, updateChildren, updateOnlyChild } from "./dom.js";
import { renderIcon } from "./icons.js";
import { renderAvatar } from "./pane/message.js";
import { renderSetupBar } from "./setup/tour.js";
import { toggleTheme } from "./theme.js";

// Keys and labels of the views.
const VIEWS = [["slack", "Slack"], ["discord", "Discord"], ["inspector", "Inspector"]];

const BOT_STATES = { starting: "starting…", running: "running", ended: "not running" };

const getElement = (id) => document.getElementById(id);

// The top bar and the lines below it.
export class Header {
  // `views` has the open view and the active pane, opens another view and takes steps of the tour; `showToast` shows a text
  // of the simulator.
  constructor(views, showToast) {
    this.views = views;
    this.showToast = showToast;
    this.tabs = h("nav", { id: "tabs", "aria-label": "Views" });
    this.settings = h("div", { id: "settings" });
    this.settingsButton = h("button", { type: "button", class: "icon-button menu-button", "aria-label": "Settings", "aria-expanded": "false", "aria-controls": "settings", onclick: () => this.toggleSettings() });
    this.inspectorButton = h("button", { type: "button", class: "icon-button inspect", "aria-label": "Inspector", title: "Inspector (Alt+3)", onclick: () => views.toggleInspector() }, renderIcon("inspect"));
    getElement("bar").append(
      h("h1", {}, h("img", { src: "/static/icon.svg", alt: "", width: "26", height: "26" }), h("span", {}, "Parley ", h("small", {}, "simulator"))),
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

  // Sends an action, and shows the notice or the error that results.
  async sendAction(action, parameters) {
    try {
      const notice = await sendAction(action, parameters);
      if (notice) this.showToast(notice);
    } catch (error) {
      this.showToast(error.message);
    }
  }

  // Updates the header; `unreadCounts` has the number of unread messages by platform.
  update(unreadCounts) {
    this.updateTabs(unreadCounts);
    const me = store.get("me");
    const bot = store.get("bot");
    if (!me || !bot) return;
    this.inspectorButton.setAttribute("aria-pressed", String(this.views.isInspectorOpen));
    updateOnlyChild(this.settingsButton, me.name, (name) => h("span", { class: "menu-avatar" }, renderAvatar(name, "small"), renderIcon("more")));
    updateOnlyChild(this.settings, [me, bot.state, bot.model, bot.models, bot.agent_models, bot.agent, Boolean(bot.tour)], () =>
      h(
        "div",
        { class: "settings" },
        this.renderPeople(me),
        bot.agent && !bot.tour ? h("span", { class: "agent", title: "This agent is reloaded when its files change" }, renderIcon("folder"), h("span", {}, bot.agent)) : null,
        bot.tour ? null : this.renderModels(bot),
        h("span", { class: `state ${bot.state}`, role: "status" }, h("i", { "aria-hidden": "true" }), BOT_STATES[bot.state]),
        h("button", { type: "button", class: "icon-button theme", "aria-label": "Switch theme", title: "Switch theme", "data-focus": "theme", onclick: toggleTheme }, renderIcon("theme")),
      ),
    );
    this.updateBotError(bot);
    const currentStep = bot.tour?.current[this.views.activePane.key];
    updateOnlyChild(getElement("setup"), [Boolean(bot.tour), currentStep, bot.lacks_key, bot.notices], () => renderSetupBar(bot, currentStep, (action, parameters) => this.sendAction(action, parameters), this.views.takeStep));
  }

  updateTabs(unreadCounts) {
    updateChildren(this.tabs, VIEWS.map(([key, label]) => ({ key, value: [label, key === this.views.current, key === this.views.current ? 0 : unreadCounts[key] || 0] })), ([label, isCurrent, count], key) =>
      h("button", { type: "button", class: `tab tab-${key}${isCurrent ? " current" : ""}`, "aria-current": isCurrent ? "page" : null, "data-focus": `view ${key}`, onclick: () => this.views.open(key) }, label, count ? h("span", { class: "count" }, h("span", { class: "hidden" }, "unread: "), String(count)) : null),
    );
  }

  renderPeople(me) {
    const renderPerson = (name) => h("button", { type: "button", class: `person${name === me.name ? " current" : ""}`, "aria-pressed": String(name === me.name), "data-focus": `user ${name}`, onclick: () => this.sendAction("switch_user", { name }) }, renderAvatar(name, "small"), name);
    return h("div", { class: "people", role: "group", "aria-label": "Act as" }, h("span", { class: "people-label", "aria-hidden": "true" }, "Act as"), me.people.map(renderPerson));
  }

  // Returns the names of the models that answer, with a menu for the model that the user can select.
  renderModels(bot) {
    if (!bot.agent_models) return null;
    const { names, uses_default: usesDefault } = bot.agent_models;
    const others = names.filter((name) => !usesDefault || name !== bot.model);
    return [usesDefault ? this.renderModelSelect(bot) : null, others.length ? h("span", { class: "model" }, h("span", {}, usesDefault ? "and" : "Model"), h("span", { id: "fixed-models", title: "The agent names its model" }, others.join(", "))) : null];
  }

  renderModelSelect(bot) {
    const names = bot.models.includes(bot.model) ? bot.models : [...bot.models, bot.model];
    const select = h("select", { id: "model", "data-focus": "model" }, names.map((name) => h("option", { value: name }, name)), h("option", { value: "?" }, "another model…"));
    select.value = bot.model;
    select.addEventListener("change", async () => {
      const name = select.value === "?" ? await askText("Another model", "Model name, as in the MODEL setting", "openai/gpt-5-mini") : select.value;
      if (name) await this.sendAction("restart_bot", { model: name });
      else select.value = bot.model;
    });
    return h("label", { class: "model" }, h("span", {}, "Model"), select);
  }

  updateBotError(bot) {
    const botError = getElement("bot-error");
    botError.hidden = !bot.exit_reason;
    updateOnlyChild(botError, [bot.exit_reason, bot.log, bot.state], ([reason, log, state]) =>
      h(
        "div",
        {},
        h("div", { class: "error-text" }, h("b", {}, "The bot is not running"), h("p", { class: "reason" }, reason), log ? h("details", { "data-details": "log" }, h("summary", { "data-focus": "log" }, "Log"), h("pre", { tabindex: "0" }, log)) : null),
        state === "ended" && h("button", { type: "button", class: "button plain", "data-focus": "restart", onclick: () => this.sendAction("restart_bot") }, "Start again"),
      ),
    );
  }
}
