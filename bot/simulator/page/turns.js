// The tab "Turns" of the inspector: turns with their model calls, prompts, tool calls, cost and timings.

import { store } from "/static/connection.js";
import { h, updateChildren, updateOnlyChild } from "/static/dom.js";
import { renderIcon } from "/static/icons.js";

const prompts = new Map(); // loaded prompts by the id of their model call; a prompt does not change

export const turnsTab = { key: "turns", label: "Turns", count: () => store.get("turns")?.length ?? 0, update: updateTurns };

function updateTurns(content, { runAction }) {
  const ids = store.get("turns") ?? [];
  if (!ids.length) {
    updateOnlyChild(content, "none", () => h("p", { class: "explanation" }, "No turns yet. Each question becomes a turn: see here its model calls, prompts, tools, cost and timings."));
    return;
  }
  const items = ids.map((id) => ({ key: id, value: store.get(`turn/${id}`) })).filter((item) => item.value);
  updateChildren(content, items, (turn) => renderTurn(turn, runAction));
}

function renderTurn(turn, runAction) {
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
      turn.model_calls.map((modelCall, index) => renderModelCall(modelCall, index, runAction)),
      turn.tool_calls.map(renderToolCall),
      turn.context?.messages || turn.context?.omitted_messages ? h("p", { class: "meta" }, `Messages by others in the prompt: ${turn.context.messages}, left out: ${turn.context.omitted_messages}`) : null,
      h("p", { class: "ids" }, "turn ", h("code", {}, turn.id), turn.chunks ? ` · ${turn.chunks} message${turn.chunks === 1 ? "" : "s"} shown` : ""),
    ),
  );
}

function renderModelCall(modelCall, index, runAction) {
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
    h("div", { class: "prompt" }, renderPrompt(modelCall.id, prompts.get(modelCall.id))),
  );
  const loadPrompt = async () => {
    const container = details.querySelector(".prompt");
    if (!details.open || container.childElementCount) return;
    const prompt = await runAction("get_prompt", { model_call: modelCall.id });
    if (!prompt?.messages) return;
    prompts.set(modelCall.id, prompt);
    container.replaceChildren(...renderPrompt(modelCall.id, prompt));
  };
  details.addEventListener("toggle", loadPrompt);
  return details;
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
