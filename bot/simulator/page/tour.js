// The bar below the header: the model that answers, the steps of the running tour, and offers of the tour and a key.

import { store } from "/static/connection.js";
import { h, updateOnlyChild } from "/static/dom.js";
import { openKeyForm } from "./key.js";

// An empty conversation offers this many steps.
const MAX_PROMPTS = 4;

const bar = h("section", { id: "setup", "aria-label": "Tour and key" });
document.getElementById("top").append(bar);

// The newest result of the tour that the user has seen, and the index of the step after it.
let newestResult = { at: 0, nextStep: 0 };

// Returns the messages of the first steps, during the tour.
export function getTourPrompts() {
  return (store.get("parley")?.tour?.steps ?? []).slice(0, MAX_PROMPTS).map(([, prompt]) => prompt);
}

// Updates the bar, with the views of the page.
export function updateSetupBar(views) {
  const parley = store.get("parley");
  if (!parley) return;
  const currentStep = parley.tour ? findCurrentStep(parley.tour.states, views.activePane.key) : null;
  updateOnlyChild(bar, [Boolean(parley.tour), currentStep, parley.lacks_key, parley.notices], () => renderSetupBar(parley, currentStep, views));
}

// Returns the index of the step that is open in a pane, or else of the step after the newest result in any pane.
function findCurrentStep(states, pane) {
  for (const state of Object.values(states)) {
    if (state.next_step !== null && state.result_at >= newestResult.at) newestResult = { at: state.result_at, nextStep: state.next_step };
  }
  return states[pane].open_step ?? newestResult.nextStep;
}

// Posts the message of a step in the active pane.
function takeStep(views, step) {
  const pane = views.activePane;
  if (!pane.element.checkVisibility()) views.open(pane.key);
  pane.scrollToEnd();
  pane.focus();
  pane.sendAction("take_step", { step });
}

function renderSetupBar(bot, currentStep, views) {
  const hint = bot.tour ? "" : " See tools, approvals, questions, files and a second agent, without your model.";
  return h(
    "div",
    { class: "setup" },
    h("p", { role: "status" }, bot.notices.join(" "), h("span", { class: bot.notices.length ? "setup-hint" : "" }, hint)),
    h(
      "div",
      { class: "setup-buttons" },
      bot.tour ? renderSteps(bot.tour.steps, currentStep, (step) => takeStep(views, step)) : renderRestartButton("Take the tour", "primary", () => views.runAction("start_tour")),
      bot.lacks_key ? h("button", { type: "button", class: "button plain", "data-focus": "key", onclick: openKeyForm }, "Paste a key…") : null,
      bot.tour ? renderRestartButton("End the tour", "plain", () => views.runAction("end_tour")) : null,
    ),
  );
}

function renderSteps(steps, currentStep, takeStep) {
  const renderStep = ([title, prompt], index) => {
    const isCurrent = index === currentStep;
    const item = h("li", {}, h("button", { type: "button", class: `button ${isCurrent ? "primary" : "plain"}`, "aria-current": isCurrent ? "step" : null, title: prompt, "data-focus": `step ${index}`, onclick: () => takeStep(index) }, `${index + 1}. ${title}`));
    if (isCurrent) requestAnimationFrame(() => item.scrollIntoView({ block: "nearest", inline: "center" })); // on a phone, the steps scroll
    return item;
  };
  return h("ol", { class: "setup-buttons", "aria-label": "Steps of the tour" }, steps.map(renderStep));
}

// Returns a button that is busy until the bot has restarted.
function renderRestartButton(label, style, restart) {
  const onclick = async (event) => {
    const button = event.currentTarget;
    button.disabled = true;
    button.setAttribute("aria-busy", "true");
    await restart();
    button.disabled = false;
    button.removeAttribute("aria-busy");
  };
  return h("button", { type: "button", class: `button ${style}`, "data-focus": "tour", onclick }, label);
}
