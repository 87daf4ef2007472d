// A form of the bot: a modal of Slack or Discord.

import { h } from "../dom.js";
import { boxes, entry } from "./field.js";

// `act` sends an action, and returns the notice of a refusal.
export function modal(platform, open, act) {
  if (!open) return h("div");
  const close = () => act("close_modal", { modal: open.id });
  const refusal = h("p", { class: "error", role: "alert" });
  const send = async (event) => {
    event.preventDefault();
    const entered = new FormData(form);
    const values = Object.fromEntries(open.fields.map(({ name }) => [name, entered.getAll(name).filter(Boolean)]));
    refusal.textContent = (await act("submit_modal", { modal: open.id, values })) || "";
  };
  const form = h(
    "form",
    { onsubmit: send },
    h("header", {}, h("h3", { id: `${open.id}-title` }, open.title), h("button", { type: "button", class: "icon-button", "aria-label": "Close", onclick: close }, "×")),
    h("div", { class: "parts" }, open.html ? h("div", { class: "text", html: open.html }) : null, open.fields.map((each) => field(platform, each)), refusal),
    h("footer", {}, h("button", { type: "button", class: "button plain", onclick: close }, open.close_label), open.submit_label ? h("button", { type: "submit", class: "button primary" }, open.submit_label) : null),
  );
  const dialog = h("div", { class: "modal", role: "dialog", "aria-modal": "true", "aria-labelledby": `${open.id}-title` }, form);
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    if (event.key === "Tab") trapFocus(event, dialog);
  });
  requestAnimationFrame(() => (dialog.querySelector("[aria-invalid]") ?? dialog.querySelector("textarea, input, select"))?.focus());
  return dialog;
}

function field(platform, one) {
  const id = `${platform}-${one.name}`;
  const notes = [one.description ? h("p", { class: "note", id: `${id}-about` }, one.description) : null, one.error ? h("p", { class: "error", id: `${id}-error` }, one.error) : null];
  const described = [one.description && `${id}-about`, one.error && `${id}-error`].filter(Boolean).join(" ") || null;
  const about = { name: one.name, "aria-describedby": described, "aria-invalid": one.error ? "true" : null };
  const label = [one.label, one.required ? h("span", { class: "required", "aria-hidden": "true" }, " *") : h("span", { class: "note" }, " (optional)")];
  if (one.multiple) {
    return h("fieldset", { class: "field", "aria-describedby": described }, h("legend", {}, label), boxes(one), notes);
  }
  return h("div", { class: "field" }, h("label", { for: id }, label), entry(one, { ...about, id, required: one.required }), notes);
}

// Keep the focus of Tab inside the modal.
function trapFocus(event, dialog) {
  const stops = [...dialog.querySelectorAll("button, input, textarea, select")];
  const first = stops[0];
  const last = stops[stops.length - 1];
  if (event.shiftKey && document.activeElement === first) {
    event.preventDefault();
    last.focus();
  } else if (!event.shiftKey && document.activeElement === last) {
    event.preventDefault();
    first.focus();
  }
}
