// The page: the open view, keyboard shortcuts, and repainting after a change.

import { act, connect, onChange, store } from "./connection.js";
import { h } from "./dom.js";
import { Header } from "./header.js";
import { icon } from "./icons.js";
import { Inspector } from "./inspector.js";
import { Pane } from "./pane/pane.js";
import { restoreTheme } from "./theme.js";

// From this width on, both platforms are side by side, and the inspector opens beside them.
const WIDE = window.matchMedia("(min-width: 1100px)");

// From this width on, the inspector is open at first.
const EXTRA_WIDE = window.matchMedia("(min-width: 1400px)");

const TOAST_MILLISECONDS = 9000;

const find = (id) => document.getElementById(id);

const panes = [new Pane(find("slack"), "slack", "Slack"), new Pane(find("discord"), "discord", "Discord")];
const inspector = new Inspector(find("inspector"), toast);
let hasInspector = EXTRA_WIDE.matches;
let isDue = false;
let lastUsed = panes[0]; // the platform whose message box had the focus last

const views = {
  current: "slack",
  get hasInspector() {
    return hasInspector;
  },
  open(key) {
    views.current = key;
    if (key === "inspector") hasInspector = true;
    paint();
    panes.find((pane) => pane.key === key)?.scrollToEnd(); // a hidden list has no height, so it could not be scrolled
  },
  // Puts a text into the message box that was used last, or that of the only visible platform.
  write(text) {
    const visible = panes.filter((pane) => pane.element.checkVisibility());
    if (!visible.length) views.open(lastUsed.key);
    (visible.length && !visible.includes(lastUsed) ? visible[0] : lastUsed).write(text);
  },
  toggleInspector() {
    hasInspector = !hasInspector;
    paint();
  },
};
const header = new Header(views, toast);

function toast(text) {
  const note = h("div", { class: "toast" }, text, h("button", { type: "button", class: "icon-button", "aria-label": "Dismiss", onclick: () => note.remove() }, icon("close")));
  find("toasts").replaceChildren(note);
  setTimeout(() => note.remove(), TOAST_MILLISECONDS);
}

function paint() {
  isDue = false;
  document.body.dataset.view = views.current;
  document.body.dataset.inspector = hasInspector ? "open" : "closed";
  header.paint(Object.fromEntries(panes.map((pane) => [pane.key, pane.countUnread()])));
  for (const pane of panes) pane.paint();
  inspector.paint();
}

async function switchUser() {
  const me = store.get("me");
  try {
    await act("switch_user", { name: me.people[(me.people.indexOf(me.name) + 1) % me.people.length] });
  } catch (error) {
    toast(error.message);
  }
}

for (const pane of panes) pane.element.addEventListener("focusin", () => (lastUsed = pane));

document.addEventListener("keydown", (event) => {
  if (!event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.code === "Digit1" || event.code === "Digit2") {
    const pane = panes[event.code === "Digit1" ? 0 : 1];
    views.open(pane.key);
    pane.composer.focus();
  } else if (event.code === "Digit3") {
    views.open("inspector");
    find("inspector").querySelector("[role=tab][aria-selected=true]").focus();
  } else if (event.code === "KeyP") {
    switchUser();
  } else return;
  event.preventDefault();
});

WIDE.addEventListener("change", () => {
  if (WIDE.matches && views.current === "inspector") views.current = "slack";
  paint();
});

restoreTheme();
onChange(() => {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(paint);
});
connect((open) => {
  document.body.classList.toggle("disconnected", !open);
  if (open) for (const pane of panes) pane.reset();
});
