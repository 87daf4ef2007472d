// A form of the bot: a modal of Slack or Discord.

import { h } from "../dom.js";
import { renderCheckboxes, renderInput } from "./field.js";

// Returns a modal. `sendAction` sends an action, and returns the notice of a refusal.
export function renderModal(platform, modal, sendAction) {
  if (!modal) return h("div");
  const closeModal = () => sendAction("close_modal", { modal: modal.id });
  const error = h("p", { class: "error", role: "alert" });
  const submit = async (event) => {
    event.preventDefault();
    const formData = new FormData(form);
    const values = Object.fromEntries(modal.fields.map(({ name }) => [name, formData.getAll(name).filter(Boolean)]));
    error.textContent = (await sendAction("submit_modal", { modal: modal.id, values })) || "";
  };
  const form = h(
    "form",
    { onsubmit: submit },
    h("header", {}, h("h3", { id: `${modal.id}-title` }, modal.title), h("button", { type: "button", class: "icon-button", "aria-label": "Close", onclick: closeModal }, "×")),
    h("div", { class: "parts" }, modal.html ? h("div", { class: "text", html: modal.html }) : null, modal.fields.map((field) => renderField(platform, field)), error),
    h("footer", {}, h("button", { type: "button", class: "button plain", onclick: closeModal }, modal.close_label), modal.submit_label ? h("button", { type: "submit", class: "button primary" }, modal.submit_label) : null),
  );
  const dialog = h("div", { class: "modal", role: "dialog", "aria-modal": "true", "aria-labelledby": `${modal.id}-title` }, form);
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "Escape") closeModal();
    if (event.key === "Tab") trapFocus(event, dialog);
  });
  requestAnimationFrame(() => (dialog.querySelector("[aria-invalid]") ?? dialog.querySelector("textarea, input, select"))?.focus());
  return dialog;
}

function renderField(platform, field) {
  const id = `${platform}-${field.name}`;
  const notes = [field.description ? h("p", { class: "note", id: `${id}-description` }, field.description) : null, field.error ? h("p", { class: "error", id: `${id}-error` }, field.error) : null];
  const describedBy = [field.description && `${id}-description`, field.error && `${id}-error`].filter(Boolean).join(" ") || null;
  const attributes = { name: field.name, "aria-describedby": describedBy, "aria-invalid": field.error ? "true" : null };
  const label = [field.label, field.required ? h("span", { class: "required", "aria-hidden": "true" }, " *") : h("span", { class: "note" }, " (optional)")];
  if (field.multiple) {
    return h("fieldset", { class: "field", "aria-describedby": describedBy }, h("legend", {}, label), renderCheckboxes(field), notes);
  }
  return h("div", { class: "field" }, h("label", { for: id }, label), renderInput(field, { ...attributes, id, required: field.required }), notes);
}

// Keeps the focus of Tab inside the modal.
function trapFocus(event, dialog) {
  const focusable = [...dialog.querySelectorAll("button, input, textarea, select")];
  const first = focusable[0];
  const last = focusable[focusable.length - 1];
  if (event.shiftKey && document.activeElement === first) {
    event.preventDefault();
    last.focus();
  } else if (!event.shiftKey && document.activeElement === last) {
    event.preventDefault();
    first.focus();
  }
}
