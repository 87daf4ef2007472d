// Inputs: of the fields of a form, and of the menus of a message.

import { h } from "../dom.js";

// Returns the input for one text, date or option.
export function renderInput(field, attributes) {
  const [value = ""] = field.values;
  if (field.options.length) {
    const select = h("select", attributes, h("option", { value: "" }, field.placeholder || "Choose an option"), field.options.map(([option, label]) => h("option", { value: option }, label)));
    select.value = value;
    return select;
  }
  if (field.multiline) return h("textarea", { rows: "4", ...attributes, placeholder: field.placeholder || null, value });
  return h("input", { type: field.type, ...attributes, placeholder: field.placeholder || null, value, autocomplete: "off" });
}

// Returns the checkboxes for several options.
export function renderCheckboxes(field) {
  return field.options.map(([value, label]) => h("label", {}, h("input", { type: "checkbox", name: field.name, value, checked: field.values.includes(value), "data-input": `${field.name} ${value}` }), label));
}
