// The inspector: turns and prompts, API calls and rate limits, and the fault switches.

import { h, keep, show } from "./dom.js";
import { icon } from "./icons.js";
import { act as send, store } from "./connection.js";

const TABS = [["turns", "Turns"], ["calls", "API calls"], ["faults", "Faults"]];

export class Inspector {
  constructor(element, toast) {
    this.element = element;
    this.toast = toast;
    this.tab = "turns";
    this.prompts = new Map(); // loaded prompts by the id of their model call; a prompt does not change
    this.tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Inspector" });
    this.body = h("div", { class: "panel", role: "tabpanel", tabindex: "0" });
    this.rooms = Object.fromEntries(TABS.map(([key]) => [key, h("div", { class: `tab-content ${key}` })]));
    this.budgets = h("div", { class: "rate-limits" });
    this.calls = h("div", { class: "rows" });
    this.rooms.calls.append(this.budgets, this.calls);
    this.body.append(...Object.values(this.rooms));
    this.element.append(this.tabs, this.body);
    this.tabs.addEventListener("keydown", (event) => this.onKey(event));
  }

  async act(action, about = {}) {
    try {
      const answer = await send(action, about);
      if (typeof answer === "string" && answer) this.toast(answer, "Sandbox");
      return answer;
    } catch (error) {
      this.toast(error.message, "Sandbox");
      return null;
    }
  }

  paint() {
    const counts = { turns: store.get("turns")?.length ?? 0, calls: store.get("call_count") ?? 0, faults: (store.get("faults") ?? []).filter((one) => one.active).length };
    keep(this.tabs, TABS.map(([key, label]) => ({ key, value: [label, counts[key], key === this.tab] })), ([label, count, here], key) =>
      h("button", { type: "button", role: "tab", id: `tab-${key}`, "aria-selected": String(here), tabindex: here ? "0" : "-1", "data-focus": `tab ${key}`, onclick: () => this.choose(key) }, label, count ? h("span", { class: "count" }, String(count)) : null),
    );
    for (const [key, room] of Object.entries(this.rooms)) room.hidden = key !== this.tab;
    this.body.setAttribute("aria-labelledby", `tab-${this.tab}`);
    if (this.tab === "turns") this.paintTurns();
    if (this.tab === "calls") this.paintCalls();
    if (this.tab === "faults") this.paintFaults();
  }

  choose(key) {
    this.tab = key;
    this.paint();
  }

  onKey(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = TABS.findIndex(([key]) => key === this.tab);
    this.choose(TABS[(at + step + TABS.length) % TABS.length][0]);
    this.tabs.querySelector("[aria-selected=true]").focus();
  }

  // Turns

  paintTurns() {
    const order = store.get("turns") ?? [];
    if (!order.length) {
      show(this.rooms.turns, "none", () => h("p", { class: "explanation" }, "No turns yet. Each question becomes a turn: see here its model calls, prompts, tools, cost and timings."));
      return;
    }
    const items = order.map((id) => ({ key: id, value: store.get(`turn/${id}`) })).filter((item) => item.value);
    keep(this.rooms.turns, items, (turn) => this.turn(turn));
  }

  turn(turn) {
    const platform = (turn.session ?? "").split(":")[0];
    return h(
      "details",
      { class: `card turn ${turn.state}`, "data-fold": turn.id },
      h(
        "summary",
        { "data-focus": `turn ${turn.id}` },
        h("span", { class: `pill ${turn.state}` }, turn.state),
        h("span", { class: "turn-title" }, turn.title || turnLabel(turn)),
        h("span", { class: "meta" }, platform, turn.kind && turn.kind !== "message" ? ` · ${turn.kind}` : "", turn.attempt > 1 ? ` · attempt ${turn.attempt}` : "", turn.seconds ? ` · ${turn.seconds.toFixed(1)} s` : "", turn.tokens ? ` · ${turn.tokens} tokens` : "", formatCost(turn)),
      ),
      h("div", { class: "card-body" }, h("ol", { class: "states", "aria-label": "States" }, turn.states.map(([state, at], index) => h("li", {}, h("span", { class: `pill ${state}` }, state), index ? h("small", {}, `+${(at - turn.states[0][1]).toFixed(1)} s`) : h("small", {}, new Date(at * 1000).toTimeString().slice(0, 8))))),
        turn.error ? h("p", { class: "error" }, turn.error) : null,
        turn.model_calls.map((ask, index) => this.ask(ask, index)),
        turn.tool_calls.map(tool),
        turn.context?.messages || turn.context?.omitted_messages ? h("p", { class: "meta" }, `Messages by others in the prompt: ${turn.context.messages}, left out: ${turn.context.omitted_messages}`) : null,
        h("p", { class: "ids" }, "turn ", h("code", {}, turn.id), turn.chunks ? ` · ${turn.chunks} message${turn.chunks === 1 ? "" : "s"} shown` : ""),
      ),
    );
  }

  ask(ask, index) {
    const tokens = ask.tokens ?? {};
    const fold = h(
      "details",
      { class: "model-call", "data-fold": ask.id },
      h(
        "summary",
        { "data-focus": `ask ${ask.id}` },
        h("b", {}, `Model call ${index + 1}`),
        h("span", { class: "meta" }, ask.model, ` · ${ask.message_count} messages`, ask.cut_count ? ` · ${ask.cut_count} cut` : "", ask.first_text_seconds ? ` · first text ${ask.first_text_seconds.toFixed(2)} s` : "", ask.ended ? ` · ${ask.seconds.toFixed(2)} s` : " · running…", tokens.input ? ` · ${tokens.input} in, ${tokens.output} out` : "", ask.error ? ` · ${ask.error}` : ""),
      ),
      h("div", { class: "prompt" }, promptView(ask.id, this.prompts.get(ask.id))),
    );
    const load = async () => {
      const room = fold.querySelector(".prompt");
      if (!fold.open || room.childElementCount) return;
      const prompt = await this.act("get_prompt", { model_call: ask.id });
      if (!prompt?.messages) return;
      this.prompts.set(ask.id, prompt);
      room.replaceChildren(...promptView(ask.id, prompt));
    };
    fold.addEventListener("toggle", load);
    return fold;
  }

  // Calls

  paintCalls() {
    const budgets = (store.get("rate_limits") ?? []).map((one) => ({ key: `${one.platform} ${one.name}`, value: one }));
    keep(this.budgets, budgets, (one) =>
      h("div", { class: `rate-limit${one.remaining === 0 ? " exhausted" : ""}`, title: `${one.limit} in ${one.seconds} s` }, h("span", { class: "name" }, h("i", { class: one.platform.toLowerCase() }), one.name), h("meter", { min: "0", max: String(one.limit), low: String(one.limit * 0.34), optimum: String(one.limit), value: one.remaining, "aria-label": `${one.name}: remaining` }), h("span", { class: "remaining" }, `${one.remaining}/${one.limit}`)),
    );
    const order = store.get("calls") ?? [];
    keep(this.calls, order.map((key) => ({ key, value: store.get(key) })).filter((item) => item.value), (call, key) => this.call(call, key));
  }

  call(call, key) {
    const ok = call.status >= 200 && call.status < 300 && !call.error;
    const result = call.response_lost ? "response lost" : call.status === 0 ? "…" : ok ? String(call.status) : `${call.status} ${call.error}`.trim();
    const fold = h(
      "details",
      { class: `card call${ok || call.status === 0 ? "" : " failed"}${call.response_lost ? " failed" : ""}`, "data-fold": key },
      h("summary", { "data-focus": key }, h("i", { class: call.platform.toLowerCase(), title: call.platform }), h("code", {}, call.name), h("span", { class: "result" }, result), call.rate_limit ? h("span", { class: "remaining", title: "Remaining in the rate limit" }, `${call.rate_limit[0]}/${call.rate_limit[1]}`) : null, h("span", { class: "meta" }, call.time, call.summary ? ` · ${call.summary}` : "")),
      h("div", { class: "card-body" }),
    );
    fold.addEventListener("toggle", async () => {
      const room = fold.querySelector(".card-body");
      if (!fold.open || room.childElementCount) return;
      const whole = await this.act("get_call", { call: key.slice(5) });
      if (whole?.request !== undefined) room.replaceChildren(h("h3", {}, "Request"), h("pre", { tabindex: "0" }, whole.request), h("h3", {}, "Response"), h("pre", { tabindex: "0" }, whole.response));
    });
    return fold;
  }

  // Faults

  paintFaults() {
    const bot = store.get("bot");
    const faults = store.get("faults") ?? [];
    show(this.rooms.faults, [faults, bot?.model_delay, bot?.state], () =>
      h(
        "div",
        {},
        h("p", { class: "explanation" }, "Inject a fault while an answer streams, and watch the bot recover."),
        group("Bot", [
          switchOf("Kill the bot", "SIGKILL; restarts after a second", false, () => this.act("kill_bot"), "danger"),
          switchOf("Restart", "Graceful shutdown, then a new start", false, () => this.act("restart_bot")),
          switchOf("Slow model", "Delays each model call by two seconds and streams slowly", bot?.model_delay > 0, () => this.act("set_model_delay", { seconds: bot.model_delay > 0 ? 0 : 2 })),
        ]),
        ...["slack", "discord"].map((on) => group(on === "slack" ? "Slack" : "Discord", faults.filter((one) => one.platform === on).map((one) => switchOf(one.label, one.description, one.active, () => this.act("toggle_fault", { platform: on, name: one.name }))))),
      ),
    );
  }
}

function group(name, switches) {
  return h("fieldset", {}, h("legend", {}, name), switches);
}

function switchOf(label, about, active, toggle, look = "plain") {
  return h("div", { class: "switch" }, h("button", { type: "button", class: `button ${active ? "primary" : look}`, "aria-pressed": String(active), "data-focus": `switch ${label} ${about}`, onclick: toggle }, label), h("small", {}, about));
}

function tool(one) {
  return h("div", { class: "tool-call" }, h("b", {}, icon("tool"), one.tool), h("span", { class: `pill ${one.state === "ended" ? "done" : "running"}` }, one.state), h("pre", { tabindex: "0" }, one.arguments), one.result ? h("pre", { tabindex: "0" }, one.result) : null);
}

function promptView(id, prompt) {
  if (!prompt) return [];
  const cut = prompt.cut;
  return [
    prompt.tools.length ? h("p", { class: "meta" }, `Tools: ${prompt.tools.join(", ")}`) : null,
    cut.count ? h("details", { class: "cut", "data-fold": `cut ${id}` }, h("summary", { "data-focus": `cut ${id}` }, `${cut.count === 1 ? "1 older message was" : `${cut.count} older messages were`} cut (${cut.tokens} tokens)`), cut.newest.map((one) => entry(one.role, [["text", one.text]]))) : null,
    ...prompt.messages.map((one) => entry(one.role, one.parts)),
  ].filter(Boolean);
}

function entry(role, parts) {
  return h("div", { class: `prompt-message ${role}` }, h("span", { class: "role" }, role), parts.map(([what, text]) => h("pre", { tabindex: "0", class: what }, what === "text" ? text : `${what}: ${text}`)));
}

function turnLabel(turn) {
  return { retry: "Retry", regenerate: "Regenerate", revise: "Edited question", decision: "Decision" }[turn.kind] ?? "…";
}

function formatCost(turn) {
  if (turn.cost === undefined || turn.cost === null) return "";
  return turn.cost === 0 ? " · free" : ` · $${turn.cost.toPrecision(2)}`;
}
