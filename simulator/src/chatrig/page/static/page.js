// The page: the open view, keyboard shortcuts, and the update of all parts after a change.

import { connect, onChange, sendAction, store } from "./connection.js";
import { h } from "./dom.js";
import { extension } from "./extension.js";
import { Header } from "./header.js";
import { renderIcon } from "./icons.js";
import { Inspector } from "./inspector.js";
import { Pane } from "./pane/pane.js";
import { restoreTheme } from "./theme.js";

// From this width on, both platforms are side by side, and the inspector opens beside them.
const WIDE = window.matchMedia("(min-width: 1100px)");

// From this width on, the inspector is open at first.
const EXTRA_WIDE = window.matchMedia("(min-width: 1400px)");

const TOAST_MILLISECONDS = 9000;

// A pressed button counts as released after this time: browsers report no release of a scroll bar.
const MAX_CLICK_MILLISECONDS = 500;

const getElement = (id) => document.getElementById(id);

const panes = [new Pane(getElement("slack"), "slack", "Slack"), new Pane(getElement("discord"), "discord", "Discord")];
const inspector = new Inspector(getElement("inspector"), runAction);
let isInspectorOpen = EXTRA_WIDE.matches;
let isUpdateScheduled = false;
let clickTimer = 0; // runs while a button of the mouse or a finger is down
let lastUsedPane = panes[0]; // the platform whose message box had the focus last

const views = {
  current: "slack",
  get isInspectorOpen() {
    return isInspectorOpen;
  },
  open(key) {
    views.current = key;
    if (key === "inspector") isInspectorOpen = true;
    update();
    panes.find((pane) => pane.key === key)?.scrollToEnd(); // a hidden list has no height, so it could not be scrolled
  },
  // The pane whose message box was used last, or the only visible one.
  get activePane() {
    const visible = panes.filter((pane) => pane.element.checkVisibility());
    return visible.length && !visible.includes(lastUsedPane) ? visible[0] : lastUsedPane;
  },
  toggleInspector() {
    isInspectorOpen = !isInspectorOpen;
    update();
  },
  runAction,
};
const header = new Header(views, runAction);

function showToast(text) {
  const toast = h("div", { class: "toast" }, text, h("button", { type: "button", class: "icon-button", "aria-label": "Dismiss", onclick: () => toast.remove() }, renderIcon("close")));
  getElement("toasts").replaceChildren(toast);
  setTimeout(() => toast.remove(), TOAST_MILLISECONDS);
}

// Sends an action, and returns its result; shows a notice or an error, and returns null after an error.
async function runAction(action, parameters) {
  try {
    const result = await sendAction(action, parameters);
    if (typeof result === "string" && result) showToast(result);
    return result;
  } catch (error) {
    showToast(error.message);
    return null;
  }
}

function update() {
  isUpdateScheduled = false;
  document.body.dataset.view = views.current;
  document.body.dataset.inspector = isInspectorOpen ? "open" : "closed";
  header.update(Object.fromEntries(panes.map((pane) => [pane.key, pane.countUnread()])));
  for (const pane of panes) pane.update();
  inspector.update();
  for (const updateExtension of extension.updates) updateExtension(views);
  if (store.size) document.fonts.ready.then(() => document.body.classList.add("ready")); // another font would move texts
}

// Updates the page with the next frame, or after a click: an element that is replaced before the release gets no click.
function scheduleUpdate() {
  isUpdateScheduled = true;
  requestAnimationFrame(() => {
    if (isUpdateScheduled && !clickTimer) update();
  });
}

function endClick() {
  clearTimeout(clickTimer);
  clickTimer = 0;
  if (isUpdateScheduled) scheduleUpdate();
}

function switchUser() {
  const me = store.get("me");
  runAction("switch_user", { name: me.people[(me.people.indexOf(me.name) + 1) % me.people.length] });
}

for (const pane of panes) {
  pane.element.addEventListener("focusin", () => {
    lastUsedPane = pane;
    if (!isUpdateScheduled) scheduleUpdate();
  });
}

document.addEventListener("pointerdown", () => {
  clearTimeout(clickTimer);
  clickTimer = setTimeout(endClick, MAX_CLICK_MILLISECONDS);
}, true);
for (const type of ["pointerup", "pointercancel"]) document.addEventListener(type, endClick, true);

document.addEventListener("keydown", (event) => {
  if (!event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.code === "Digit1" || event.code === "Digit2") {
    const pane = panes[event.code === "Digit1" ? 0 : 1];
    views.open(pane.key);
    pane.composer.focus();
  } else if (event.code === "Digit3") {
    views.open("inspector");
    getElement("inspector").querySelector("[role=tab][aria-selected=true]").focus();
  } else if (event.code === "KeyP") {
    switchUser();
  } else return;
  event.preventDefault();
});

WIDE.addEventListener("change", () => {
  if (WIDE.matches && views.current === "inspector") views.current = "slack";
  update();
});

restoreTheme();
onChange(() => {
  if (!isUpdateScheduled) scheduleUpdate();
});
connect((isConnected) => {
  document.body.classList.toggle("disconnected", !isConnected);
  if (isConnected) for (const pane of panes) pane.reset();
});
