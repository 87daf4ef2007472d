// The page: the current user, the open view, and repainting of all parts after a change.

import { h, show } from "./dom.js";
import { icon } from "./icons.js";
import { Inspector } from "./inspector.js";
import { act, connect, onChange, store } from "./line.js";
import { Pane } from "./pane.js";
import { hue } from "./message.js";
import { setupBar } from "./setup/tour.js";

const VIEWS = [["slack", "Slack"], ["discord", "Discord"], ["inspector", "Inspector"]];

const find = (id) => document.getElementById(id);

function toast(text, from) {
  const note = h("div", { class: "toast" }, h("b", {}, from), " ", text, h("button", { type: "button", "aria-label": "Dismiss", onclick: () => note.remove() }, "×"));
  find("toasts").append(note);
  setTimeout(() => note.remove(), 9000);
}

const panes = [new Pane(find("slack"), "slack", "Slack", toast), new Pane(find("discord"), "discord", "Discord", toast)];
const inspector = new Inspector(find("inspector"), toast);
let view = "slack";
let due = false;
let used = panes[0]; // the platform whose message box had the focus last

async function send(action, about) {
  try {
    const notice = await act(action, about);
    if (notice) toast(notice, "Sandbox");
  } catch (error) {
    toast(error.message, "Sandbox");
  }
}

function paint() {
  due = false;
  paintTop();
  paintTabs();
  for (const pane of panes) pane.paint();
  inspector.paint();
}

function paintTop() {
  const me = store.get("me");
  const bot = store.get("bot");
  if (!me || !bot) return;
  show(find("top"), [me, bot.state, bot.model, bot.models, bot.agent, bot.tour, document.documentElement.dataset.theme], () =>
    h(
      "div",
      { class: "bar" },
      h("h1", {}, h("img", { src: "/static/icon.svg", alt: "", width: "24", height: "24" }), h("span", {}, "Parley ", h("small", {}, "sandbox"))),
      h("div", { class: "people", role: "group", "aria-label": "Act as" }, h("span", { class: "as", "aria-hidden": "true" }, "Act as"), me.people.map((name) => h("button", { type: "button", class: `person${name === me.name ? " here" : ""}`, "aria-pressed": String(name === me.name), "data-focus": `be ${name}`, onclick: () => send("switch_user", { name }) }, h("span", { class: `face small c${hue(name)}`, "aria-hidden": "true" }, name.slice(0, 1).toUpperCase()), name))),
      h("div", { class: "grow" }),
      bot.agent && !bot.tour ? h("span", { class: "agent", title: "This agent is reloaded when its files change" }, icon("folder"), bot.agent) : null,
      bot.tour ? null : model(bot),
      h("span", { class: `state ${bot.state}`, role: "status" }, h("i", { "aria-hidden": "true" }), { starting: "starting…", running: "running", ended: "not running" }[bot.state]),
      h("button", { type: "button", class: "tool theme", "aria-label": "Switch theme", title: "Switch theme", "data-focus": "theme", onclick: swap }, icon("theme")),
    ),
  );
  const trouble = find("trouble");
  trouble.hidden = !bot.exit_reason;
  show(trouble, [bot.exit_reason, bot.log, bot.state], ([reason, log, state]) => h("div", {}, h("div", { class: "why" }, h("b", {}, "The bot is not running"), h("p", { class: "reason" }, reason), log ? h("details", {}, h("summary", {}, "Log"), h("pre", { tabindex: "0" }, log)) : null), state === "ended" && h("button", { type: "button", class: "button plain", "data-focus": "again", onclick: () => send("restart_bot") }, "Start again")));
  const setup = find("setup");
  setup.hidden = false;
  show(setup, [bot.tour, bot.lacks_key], () => setupBar(bot, send, write));
  const notices = find("notices");
  notices.hidden = !bot.notices.length;
  show(notices, bot.notices, (lines) => h("div", {}, lines.map((line) => h("p", {}, line))));
}

// Puts a text into the message box that was used last, or that of the only visible platform.
function write(text) {
  const shown = panes.filter((pane) => pane.element.checkVisibility());
  if (!shown.length) look(used.key);
  (shown.length && !shown.includes(used) ? shown[0] : used).write(text);
}

function model(bot) {
  const pick = h("select", { id: "model", "data-focus": "model" }, bot.models.map((name) => h("option", { value: name }, name)), bot.models.includes(bot.model) ? null : h("option", { value: bot.model }, bot.model), h("option", { value: "?" }, "another model…"));
  pick.value = bot.model;
  pick.addEventListener("change", () => {
    const name = pick.value === "?" ? window.prompt("Model name, as in the MODEL setting (openai/gpt-5-mini):") : pick.value;
    if (name) send("restart_bot", { model: name });
    else pick.value = bot.model;
  });
  return h("label", { class: "model" }, h("span", {}, "Model"), pick);
}

function paintTabs() {
  const unread = Object.fromEntries(panes.map((pane) => [pane.key, (store.get(pane.key)?.places ?? []).reduce((sum, place) => sum + place.unread, 0)]));
  show(find("tabs"), [view, unread], () =>
    h("div", {}, VIEWS.map(([key, label]) => h("button", { type: "button", class: `tab${key === view ? " here" : ""}`, "aria-current": key === view ? "true" : null, "data-focus": `view ${key}`, onclick: () => look(key) }, label, unread[key] ? h("span", { class: "count" }, String(unread[key])) : null))),
  );
  document.body.dataset.view = view;
}

function look(key) {
  view = key;
  paint();
  const pane = panes.find((one) => one.key === key);
  if (pane) pane.list.scrollTop = pane.list.scrollHeight; // a hidden list has no height, so it could not be scrolled
}

function swap() {
  const dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
  try {
    localStorage.setItem("theme", document.documentElement.dataset.theme);
  } catch {
    // The browser does not allow storage: the theme lasts until the page is closed.
  }
  paint();
}

try {
  const theme = localStorage.getItem("theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch {
  // The browser does not allow storage.
}

for (const pane of panes) pane.element.addEventListener("focusin", () => (used = pane));

document.addEventListener("keydown", (event) => {
  if (!event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.code === "Digit1" || event.code === "Digit2") {
    const key = event.code === "Digit1" ? "slack" : "discord";
    look(key);
    find(`${key}-line`).focus();
  } else if (event.code === "Digit3") {
    look("inspector");
    find("inspector").querySelector("[role=tab][aria-selected=true]").focus();
  } else if (event.code === "KeyP") {
    const me = store.get("me");
    send("switch_user", { name: me.people[(me.people.indexOf(me.name) + 1) % me.people.length] });
  } else return;
  event.preventDefault();
});

onChange(() => {
  if (due) return;
  due = true;
  requestAnimationFrame(paint);
});
connect((open) => {
  document.body.classList.toggle("away", !open);
  if (open) for (const pane of panes) pane.reset();
});
