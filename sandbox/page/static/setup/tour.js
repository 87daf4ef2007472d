// The bar below the header: offers the tour and a key, or lists the steps of the running tour.

import { h } from "../dom.js";
import { openKeyForm } from "./key.js";

let done = 0; // steps whose message was put into a message box

// `run` sends an action to the server; `write` puts a text into the message box of the open platform.
export function setupBar(bot, run, write) {
  if (bot.tour) return tourBar(bot, run, write);
  done = 0;
  return h(
    "div",
    { class: "setup" },
    h("p", {}, bot.lacks_key ? [h("b", {}, "Tiny local model, often wrong."), h("span", { class: "setup-hint" }, " Paste a key, or see everything without one: tools, approvals, questions, files and a second agent.")] : "See tools, approvals, questions, files and a second agent, without your model."),
    h("div", { class: "setup-buttons" }, restartButton("Take the tour", "primary", () => run("start_tour")), bot.lacks_key ? h("button", { type: "button", class: "button plain", "data-focus": "key", onclick: openKeyForm }, "Paste a key…") : null),
  );
}

function tourBar(bot, run, write) {
  return h(
    "div",
    { class: "setup" },
    h("p", {}, h("b", {}, "Scripted tour: no model is asked."), h("span", { class: "setup-hint" }, " Each step puts its message into the message box; Enter sends it.")),
    h(
      "ol",
      { class: "setup-buttons", "aria-label": "Steps of the tour" },
      bot.tour.map(([title, prompt], index) => h("li", {}, h("button", { type: "button", class: `button ${index === done ? "primary" : "plain"}`, title: prompt, "data-focus": `step ${index}`, onclick: (event) => choose(event.currentTarget, index, prompt, write) }, `${index + 1}. ${title}`))),
    ),
    restartButton("End the tour", "plain", () => run("end_tour")),
  );
}

function choose(button, index, prompt, write) {
  done = index + 1;
  const steps = [...button.closest("ol").querySelectorAll("button")];
  for (const [at, each] of steps.entries()) each.className = `button ${at === done ? "primary" : "plain"}`;
  steps[done]?.scrollIntoView({ block: "nearest", inline: "nearest" });
  write(prompt);
}

// A button that is busy until the bot has restarted.
function restartButton(label, look, restart) {
  const onclick = async (event) => {
    const button = event.currentTarget;
    button.disabled = true;
    button.setAttribute("aria-busy", "true");
    await restart();
    button.disabled = false;
    button.removeAttribute("aria-busy");
  };
  return h("button", { type: "button", class: `button ${look}`, "data-focus": "tour", onclick }, label);
}
