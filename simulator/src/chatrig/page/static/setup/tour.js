// The bar below the header: offers the tour and a key, or lists the steps of the running tour.

import { h } from "../dom.js";
import { openKeyForm } from "./key.js";

let nextStep = 0; // index of the step after the last selected one

// Returns the bar. `sendAction` sends an action to the server; `fillMessageBox` puts a text into the message box that was
// used last.
export function renderSetupBar(bot, sendAction, fillMessageBox) {
  if (bot.tour) return renderTourBar(bot, sendAction, fillMessageBox);
  nextStep = 0;
  return h(
    "div",
    { class: "setup" },
    h("p", {}, bot.lacks_key ? [h("b", {}, "Tiny local model, often wrong."), h("span", { class: "setup-hint" }, " Paste a key, or see everything without one: tools, approvals, questions, files and a second agent.")] : "See tools, approvals, questions, files and a second agent, without your model."),
    h("div", { class: "setup-buttons" }, renderRestartButton("Take the tour", "primary", () => sendAction("start_tour")), bot.lacks_key ? h("button", { type: "button", class: "button plain", "data-focus": "key", onclick: openKeyForm }, "Paste a key…") : null),
  );
}

function renderTourBar(bot, sendAction, fillMessageBox) {
  return h(
    "div",
    { class: "setup" },
    h("p", {}, h("b", {}, "Scripted tour: no model is asked."), h("span", { class: "setup-hint" }, " Each step puts its message into the message box; Enter sends it.")),
    h(
      "ol",
      { class: "setup-buttons", "aria-label": "Steps of the tour" },
      bot.tour.map(([title, prompt], index) => h("li", {}, h("button", { type: "button", class: `button ${index === nextStep ? "primary" : "plain"}`, title: prompt, "data-focus": `step ${index}`, onclick: (event) => selectStep(event.currentTarget, index, prompt, fillMessageBox) }, `${index + 1}. ${title}`))),
    ),
    renderRestartButton("End the tour", "plain", () => sendAction("end_tour")),
  );
}

function selectStep(button, index, prompt, fillMessageBox) {
  nextStep = index + 1;
  const stepButtons = [...button.closest("ol").querySelectorAll("button")];
  for (const [stepIndex, stepButton] of stepButtons.entries()) stepButton.className = `button ${stepIndex === nextStep ? "primary" : "plain"}`;
  stepButtons[nextStep]?.scrollIntoView({ block: "nearest", inline: "nearest" });
  fillMessageBox(prompt);
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
