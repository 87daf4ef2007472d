// The bar below the header: the model that answers, the steps of the running tour, and offers of the tour and a key.

import { h } from "../dom.js";
import { openKeyForm } from "./key.js";

// Returns the bar. `currentStep` is the index of the tour's open or next step; `sendAction` sends an action to the server;
// `takeStep` posts the message of a step.
export function renderSetupBar(bot, currentStep, sendAction, takeStep) {
  const hint = bot.tour ? "" : " See tools, approvals, questions, files and a second agent, without your model.";
  return h(
    "div",
    { class: "setup" },
    h("p", { role: "status" }, bot.notices.join(" "), h("span", { class: bot.notices.length ? "setup-hint" : "" }, hint)),
    h(
      "div",
      { class: "setup-buttons" },
      bot.tour ? renderSteps(bot.tour.steps, currentStep, takeStep) : renderRestartButton("Take the tour", "primary", () => sendAction("start_tour")),
      bot.lacks_key ? h("button", { type: "button", class: "button plain", "data-focus": "key", onclick: openKeyForm }, "Paste a key…") : null,
      bot.tour ? renderRestartButton("End the tour", "plain", () => sendAction("end_tour")) : null,
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
