// A Slack modal.

import { h } from "../dom.js";

export function modal(open, act) {
  if (!open) return h("div");
  const fields = open.parts.filter((part) => part.name);
  const close = () => act("close_modal", { modal: open.id });
  const send = (event) => {
    event.preventDefault();
    const values = Object.fromEntries(fields.map((part) => [part.name, form.elements[part.name].value]));
    act("submit_modal", { modal: open.id, values });
  };
  const form = h(
    "form",
    { onsubmit: send },
    h("header", {}, h("h3", { id: `${open.id}-title` }, open.title), h("button", { type: "button", class: "tool", "aria-label": "Close", onclick: close }, "×")),
    h("div", { class: "parts" }, open.parts.map(part)),
    h("footer", {}, h("button", { type: "button", class: "button plain", onclick: close }, open.close || "Close"), open.submit ? h("button", { type: "submit", class: "button primary" }, open.submit) : null),
  );
  const dialog = h("div", { class: "modal", role: "dialog", "aria-modal": "true", "aria-labelledby": `${open.id}-title` }, form);
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    if (event.key === "Tab") trapFocus(event, dialog);
  });
  requestAnimationFrame(() => dialog.querySelector("textarea, input, select")?.focus());
  return dialog;
}

function part(one) {
  if (!one.name) return h("div", { class: "text", html: one.html });
  const about = { name: one.name, id: `field-${one.name}`, required: !one.optional, placeholder: one.hint };
  let field = h("input", { type: one.kind === "number_input" ? "number" : "text", ...about, value: one.value });
  if (one.many) field = h("textarea", { rows: "4", ...about, value: one.value });
  if (one.options.length) field = h("select", about, one.options.map(([value, label]) => h("option", { value }, label)));
  return h("div", { class: "field" }, h("label", { for: about.id }, one.label), field, one.error ? h("p", { class: "error" }, one.error) : null);
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
