// The menus and pickers of a message.

import { clearDrafts, h, markDrafts } from "../dom.js";
import { renderCheckboxes, renderInput } from "./field.js";

// Returns a menu of a message. `selectValues` sends the selected values, and returns the notice of a refusal.
export function renderMessageMenu(menu, id, selectValues) {
  const focusAttributes = { "data-focus": `${id} ${menu.name}` };
  if (menu.multiple) return renderMultiSelect(menu, id, selectValues);
  if (menu.options.length) return renderSelect(menu, focusAttributes, selectValues);
  return renderPicker(menu, focusAttributes, selectValues);
}

function renderSelect(menu, focusAttributes, selectValues) {
  const select = renderInput(menu, { "aria-label": menu.label, ...focusAttributes });
  const previousValue = select.value;
  select.addEventListener("change", async () => {
    if (!select.value) return;
    select.disabled = true;
    const refusal = await selectValues([select.value]);
    select.disabled = false;
    if (refusal) select.value = previousValue; // the same option can be selected again
  });
  return select;
}

// Returns a menu for several options, which are sent together.
function renderMultiSelect(menu, id, selectValues) {
  const names = menu.options.filter(([value]) => menu.values.includes(value)).map(([, name]) => name);
  const submit = async (event) => {
    event.preventDefault();
    const values = new FormData(form).getAll(menu.name);
    if (await selectValues(values)) return;
    clearDrafts(form);
    details.open = false;
  };
  const form = h(
    "form",
    { onsubmit: submit, "aria-label": menu.label },
    h("div", { class: "options" }, renderCheckboxes(menu)),
    h("button", { type: "submit", class: "button primary" }, "Select"),
  );
  markDrafts(form);
  const details = h("details", { class: "choices", "data-details": menu.name }, h("summary", { "data-focus": `${id} ${menu.name}` }, names.join(", ") || menu.label), form);
  details.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !details.open) return;
    details.open = false;
    details.querySelector("summary").focus();
    event.stopPropagation();
  });
  return details;
}

// Returns a form for a date or time. Browsers report each typed digit as a change, so it is sent by its button, or by Enter.
function renderPicker(menu, focusAttributes, selectValues) {
  const input = renderInput(menu, { "aria-label": menu.label, required: true, "data-input": menu.name, ...focusAttributes });
  const submit = (event) => {
    event.preventDefault();
    clearDrafts(form);
    selectValues([input.value]);
  };
  const form = h("form", { class: "picker", onsubmit: submit }, input, h("button", { type: "submit", class: "button plain", "aria-label": `${menu.label}: send` }, "Set"));
  markDrafts(form);
  return form;
}
