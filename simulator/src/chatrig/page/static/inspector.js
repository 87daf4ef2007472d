// The inspector: turns and prompts, API calls and rate limits, and the fault switches.

import { h, updateChildren, updateOnlyChild } from "./dom.js";
import { renderIcon } from "./icons.js";
import { sendAction, store } from "./connection.js";

const TABS = [["turns", "Turns"], ["calls", "API calls"], ["faults", "Faults"]];

// The inspector with its tabs, one of which is open.
export class Inspector {
  // `showToast` shows a text of the simulator.
  constructor(element, showToast) {
    this.element = element;
    this.showToast = showToast;
    this.openTab = "turns";
    this.prompts = new Map(); // loaded prompts by the id of their model call; a prompt does not change
    this.tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Inspector" });
    this.panel = h("div", { class: "panel", role: "tabpanel", tabindex: "0" });
    this.tabContents = Object.fromEntries(TABS.map(([key]) => [key, h("div", { class: `tab-content ${key}` })]));
    this.rateLimits = h("div", { class: "rate-limits" });
    this.calls = h("div", { class: "rows" });
    this.tabContents.calls.append(this.rateLimits, this.calls);
    this.panel.append(...Object.values(this.tabContents));
    this.element.append(this.tabs, this.panel);
    this.tabs.addEventListener("keydown", (event) => this.handleKeydown(event));
  }

  // Sends an action, and returns its result; shows a notice or an error, and returns null after an error.
  async sendAction(action, parameters = {}) {
    try {
      const result = await sendAction(action, parameters);
      if (typeof result === "string" && result) this.showToast(result, "Simulator");
      return result;
    } catch (error) {
      this.showToast(error.message, "Simulator");
      return null;
    }
  }

  // Updates the tabs and the content of the open one.
  update() {
    const counts = { turns: store.get("turns")?.length ?? 0, calls: store.get("call_count") ?? 0, faults: (store.get("faults") ?? []).filter((fault) => fault.active).length };
    updateChildren(this.tabs, TABS.map(([key, label]) => ({ key, value: [label, counts[key], key === this.openTab] })), ([label, count, isOpen], key) =>
      h("button", { type: "button", role: "tab", id: `tab-${key}`, "aria-selected": String(isOpen), tabindex: isOpen ? "0" : "-1", "data-focus": `tab ${key}`, onclick: () => this.selectTab(key) }, label, count ? h("span", { class: "count" }, String(count)) : null),
    );
    for (const [key, content] of Object.entries(this.tabContents)) content.hidden = key !== this.openTab;
    this.panel.setAttribute("aria-labelledby", `tab-${this.openTab}`);
    if (this.openTab === "turns") this.updateTurns();
    if (this.openTab === "calls") this.updateCalls();
    if (this.openTab === "faults") this.updateFaults();
  }

  selectTab(key) {
    this.openTab = key;
    this.update();
  }

  handleKeydown(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const index = TABS.findIndex(([key]) => key === this.openTab);
    this.selectTab(TABS[(index + step + TABS.length) % TABS.length][0]);
    this.tabs.querySelector("[aria-selected=true]").focus();
  }

  // Turns

  updateTurns() {
    const ids = store.get("turns") ?? [];
    if (!ids.length) {
      updateOnlyChild(this.tabContents.turns, "none", () => h("p", { class: "explanation" }, "No turns yet. Each question becomes a turn: see here its model calls, prompts, tools, cost and timings."));
      return;
    }
    const items = ids.map((id) => ({ key: id, value: store.get(`turn/${id}`) })).filter((item) => item.value);
    updateChildren(this.tabContents.turns, items, (turn) => this.renderTurn(turn));
  }

  renderTurn(turn) {
    const platform = (turn.session ?? "").split(":")[0];
    return h(
      "details",
      { class: `card turn ${turn.state}`, "data-details": turn.id },
      h(
        "summary",
        { "data-focus": `turn ${turn.id}` },
        h("span", { class: `pill ${turn.state}` }, turn.state),
        h("span", { class: "turn-title" }, turn.title || getTurnLabel(turn)),
        h("span", { class: "meta" }, platform, turn.kind && turn.kind !== "message" ? ` · ${turn.kind}` : "", turn.attempt > 1 ? ` · attempt ${turn.attempt}` : "", turn.seconds ? ` · ${turn.seconds.toFixed(1)} s` : "", turn.tokens ? ` · ${turn.tokens} tokens` : "", formatCost(turn)),
      ),
      h("div", { class: "card-body" }, h("ol", { class: "states", "aria-label": "States" }, turn.states.map(([state, time], index) => h("li", {}, h("span", { class: `pill ${state}` }, state), index ? h("small", {}, `+${(time - turn.states[0][1]).toFixed(1)} s`) : h("small", {}, new Date(time * 1000).toTimeString().slice(0, 8))))),
        turn.error ? h("p", { class: "error" }, turn.error) : null,
        turn.model_calls.map((modelCall, index) => this.renderModelCall(modelCall, index)),
        turn.tool_calls.map(renderToolCall),
        turn.context?.messages || turn.context?.omitted_messages ? h("p", { class: "meta" }, `Messages by others in the prompt: ${turn.context.messages}, left out: ${turn.context.omitted_messages}`) : null,
        h("p", { class: "ids" }, "turn ", h("code", {}, turn.id), turn.chunks ? ` · ${turn.chunks} message${turn.chunks === 1 ? "" : "s"} shown` : ""),
      ),
    );
  }

  renderModelCall(modelCall, index) {
    const tokens = modelCall.tokens ?? {};
    const details = h(
      "details",
      { class: "model-call", "data-details": modelCall.id },
      h(
        "summary",
        { "data-focus": `model-call ${modelCall.id}` },
        h("b", {}, `Model call ${index + 1}`),
        h("span", { class: "meta" }, modelCall.model, ` · ${modelCall.message_count} messages`, modelCall.cut_count ? ` · ${modelCall.cut_count} cut` : "", modelCall.first_text_seconds ? ` · first text ${modelCall.first_text_seconds.toFixed(2)} s` : "", modelCall.ended ? ` · ${modelCall.seconds.toFixed(2)} s` : " · running…", tokens.input ? ` · ${tokens.input} in, ${tokens.output} out` : "", modelCall.error ? ` · ${modelCall.error}` : ""),
      ),
      h("div", { class: "prompt" }, renderPrompt(modelCall.id, this.prompts.get(modelCall.id))),
    );
    const loadPrompt = async () => {
      const container = details.querySelector(".prompt");
      if (!details.open || container.childElementCount) return;
      const prompt = await this.sendAction("get_prompt", { model_call: modelCall.id });
      if (!prompt?.messages) return;
      this.prompts.set(modelCall.id, prompt);
      container.replaceChildren(...renderPrompt(modelCall.id, prompt));
    };
    details.addEventListener("toggle", loadPrompt);
    return details;
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
      const callDetails = await this.sendAction("get_call", { call: key.slice(5) });
      if (callDetails?.request !== undefined) container.replaceChildren(h("h3", {}, "Request"), h("pre", { tabindex: "0" }, callDetails.request), h("h3", {}, "Response"), h("pre", { tabindex: "0" }, callDetails.response));
    });
    return details;
  }

  // Faults

  updateFaults() {
    const bot = store.get("bot");
    const faults = store.get("faults") ?? [];
    updateOnlyChild(this.tabContents.faults, [faults, bot?.model_delay, bot?.state], () =>
      h(
        "div",
        {},
        h("p", { class: "explanation" }, "Inject a fault while an answer streams, and watch the bot recover."),
        renderSwitchGroup("Bot", [
          renderSwitch("Kill the bot", "SIGKILL; restarts after a second", false, () => this.sendAction("kill_bot"), "danger"),
          renderSwitch("Restart", "Graceful shutdown, then a new start", false, () => this.sendAction("restart_bot")),
          renderSwitch("Slow model", "Delays each model call by two seconds and streams slowly", bot?.model_delay > 0, () => this.sendAction("set_model_delay", { seconds: bot.model_delay > 0 ? 0 : 2 })),
        ]),
        ...["slack", "discord"].map((platform) => renderSwitchGroup(platform === "slack" ? "Slack" : "Discord", faults.filter((fault) => fault.platform === platform).map((fault) => renderSwitch(fault.label, fault.description, fault.active, () => this.sendAction("toggle_fault", { platform, name: fault.name }))))),
      ),
    );
  }
}

function renderSwitchGroup(name, switches) {
  return h("fieldset", {}, h("legend", {}, name), switches);
}

function renderSwitch(label, description, isActive, toggle, style = "plain") {
  return h("div", { class: "switch" }, h("button", { type: "button", class: `button ${isActive ? "primary" : style}`, "aria-pressed": String(isActive), "data-focus": `switch ${label} ${description}`, onclick: toggle }, label), h("small", {}, description));
}

function renderToolCall(call) {
  return h("div", { class: "tool-call" }, h("b", {}, renderIcon("tool"), call.tool), h("span", { class: `pill ${call.state === "ended" ? "done" : "running"}` }, call.state), h("pre", { tabindex: "0" }, call.arguments), call.result ? h("pre", { tabindex: "0" }, call.result) : null);
}

function renderPrompt(id, prompt) {
  if (!prompt) return [];
  const cut = prompt.cut;
  return [
    prompt.tools.length ? h("p", { class: "meta" }, `Tools: ${prompt.tools.join(", ")}`) : null,
    cut.count ? h("details", { class: "cut", "data-details": `cut ${id}` }, h("summary", { "data-focus": `cut ${id}` }, `${cut.count === 1 ? "1 older message was" : `${cut.count} older messages were`} cut (${cut.tokens} tokens)`), cut.newest.map((message) => renderPromptMessage(message.role, [["text", message.text]]))) : null,
    ...prompt.messages.map((message) => renderPromptMessage(message.role, message.parts)),
  ].filter(Boolean);
}

function renderPromptMessage(role, parts) {
  return h("div", { class: `prompt-message ${role}` }, h("span", { class: "role" }, role), parts.map(([kind, text]) => h("pre", { tabindex: "0", class: kind }, kind === "text" ? text : `${kind}: ${text}`)));
}

function getTurnLabel(turn) {
  return { retry: "Retry", regenerate: "Regenerate", revise: "Edited question", decision: "Decision" }[turn.kind] ?? "…";
}

function formatCost(turn) {
  if (turn.cost === undefined || turn.cost === null) return "";
  return turn.cost === 0 ? " · free" : ` · $${turn.cost.toPrecision(2)}`;
}
