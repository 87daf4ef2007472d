// The inspector: API calls and rate limits, the fault switches, and the tabs of the extension.

import { store } from "./connection.js";
import { h, updateChildren, updateOnlyChild } from "./dom.js";
import { extension } from "./extension.js";

const TABS = [
  ...extension.tabs,
  { key: "calls", label: "API calls", count: () => store.get("call_count") ?? 0, update: (content, inspector) => inspector.updateCalls() },
  { key: "faults", label: "Faults", count: () => (store.get("faults") ?? []).filter((fault) => fault.active).length, update: (content, inspector) => inspector.updateFaults() },
];

// The inspector with its tabs, one of which is open.
export class Inspector {
  // `runAction` sends an action, shows its notice, and returns its result.
  constructor(element, runAction) {
    this.element = element;
    this.runAction = runAction;
    this.openTab = TABS[0].key;
    this.tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Inspector" });
    this.panel = h("div", { class: "panel", role: "tabpanel", tabindex: "0" });
    this.tabContents = Object.fromEntries(TABS.map(({ key }) => [key, h("div", { class: `tab-content ${key}` })]));
    this.rateLimits = h("div", { class: "rate-limits" });
    this.calls = h("div", { class: "rows" });
    this.tabContents.calls.append(this.rateLimits, this.calls);
    this.panel.append(...Object.values(this.tabContents));
    this.element.append(this.tabs, this.panel);
    this.tabs.addEventListener("keydown", (event) => this.handleKeydown(event));
  }

  // Updates the tabs and the content of the open one.
  update() {
    updateChildren(this.tabs, TABS.map(({ key, label, count }) => ({ key, value: [label, count(), key === this.openTab] })), ([label, count, isOpen], key) =>
      h("button", { type: "button", role: "tab", id: `tab-${key}`, "aria-selected": String(isOpen), tabindex: isOpen ? "0" : "-1", "data-focus": `tab ${key}`, onclick: () => this.selectTab(key) }, label, count ? h("span", { class: "count" }, String(count)) : null),
    );
    for (const [key, content] of Object.entries(this.tabContents)) content.hidden = key !== this.openTab;
    this.panel.setAttribute("aria-labelledby", `tab-${this.openTab}`);
    TABS.find(({ key }) => key === this.openTab).update(this.tabContents[this.openTab], this);
  }

  selectTab(key) {
    this.openTab = key;
    this.update();
  }

  handleKeydown(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const index = TABS.findIndex(({ key }) => key === this.openTab);
    this.selectTab(TABS[(index + step + TABS.length) % TABS.length].key);
    this.tabs.querySelector("[aria-selected=true]").focus();
  }

  // Calls

  updateCalls() {
    const rateLimits = (store.get("rate_limits") ?? []).map((rateLimit) => ({ key: `${rateLimit.platform} ${rateLimit.name}`, value: rateLimit }));
    updateChildren(this.rateLimits, rateLimits, (rateLimit) =>
      h("div", { class: `rate-limit${rateLimit.remaining === 0 ? " exhausted" : ""}`, title: `${rateLimit.limit} in ${rateLimit.seconds} s` }, h("span", { class: "name" }, h("i", { class: rateLimit.platform.toLowerCase() }), rateLimit.name), h("meter", { min: "0", max: String(rateLimit.limit), low: String(rateLimit.limit * 0.34), optimum: String(rateLimit.limit), value: rateLimit.remaining, "aria-label": `${rateLimit.name}: remaining` }), h("span", { class: "remaining" }, `${rateLimit.remaining}/${rateLimit.limit}`)),
    );
    const keys = store.get("calls") ?? [];
    updateChildren(this.calls, keys.map((key) => ({ key, value: store.get(key) })).filter((item) => item.value), (call, key) => this.renderCall(call, key));
  }

  renderCall(call, key) {
    const isOk = call.status >= 200 && call.status < 300 && !call.error;
    const result = call.response_lost ? "response lost" : call.status === 0 ? "…" : isOk ? String(call.status) : `${call.status} ${call.error}`.trim();
    const details = h(
      "details",
      { class: `card call${isOk || call.status === 0 ? "" : " failed"}${call.response_lost ? " failed" : ""}`, "data-details": key },
      h("summary", { "data-focus": key }, h("i", { class: call.platform.toLowerCase(), title: call.platform }), h("code", {}, call.name), h("span", { class: "result" }, result), call.rate_limit ? h("span", { class: "remaining", title: "Remaining in the rate limit" }, `${call.rate_limit[0]}/${call.rate_limit[1]}`) : null, h("span", { class: "meta" }, call.time, call.summary ? ` · ${call.summary}` : "")),
      h("div", { class: "card-body" }),
    );
    details.addEventListener("toggle", async () => {
      const container = details.querySelector(".card-body");
      if (!details.open || container.childElementCount) return;
      const callDetails = await this.runAction("get_call", { call: key.slice(5) });
      if (callDetails?.request !== undefined) container.replaceChildren(h("h3", {}, "Request"), h("pre", { tabindex: "0" }, callDetails.request), h("h3", {}, "Response"), h("pre", { tabindex: "0" }, callDetails.response));
    });
    return details;
  }

  // Faults

  updateFaults() {
    const bot = store.get("bot");
    const faults = store.get("faults") ?? [];
    const botSwitches = extension.switches.map((item) => ({ ...item, isActive: item.isActive() }));
    updateOnlyChild(this.tabContents.faults, [faults, bot?.state, botSwitches], () =>
      h(
        "div",
        {},
        h("p", { class: "explanation" }, "Inject a fault while an answer streams, and watch the bot recover."),
        renderSwitchGroup("Bot", [
          bot ? renderSwitch("Kill the bot", "SIGKILL; restarts after a second", false, () => this.runAction("kill_bot"), "danger") : null,
          bot ? renderSwitch("Restart", "Graceful shutdown, then a new start", false, () => this.runAction("restart_bot")) : null,
          ...botSwitches.map(({ label, description, isActive, toggle }) => renderSwitch(label, description, isActive, () => toggle(this.runAction))),
        ]),
        ...["slack", "discord"].map((platform) => renderSwitchGroup(platform === "slack" ? "Slack" : "Discord", faults.filter((fault) => fault.platform === platform).map((fault) => renderSwitch(fault.label, fault.description, fault.active, () => this.runAction("toggle_fault", { platform, name: fault.name }))))),
      ),
    );
  }
}

function renderSwitchGroup(name, switches) {
  return switches.some(Boolean) ? h("fieldset", {}, h("legend", {}, name), switches) : null;
}

function renderSwitch(label, description, isActive, toggle, style = "plain") {
  return h("div", { class: "switch" }, h("button", { type: "button", class: `button ${isActive ? "primary" : style}`, "aria-pressed": String(isActive), "data-focus": `switch ${label} ${description}`, onclick: toggle }, label), h("small", {}, description));
}
