// Entries: of the fields of a form, and of the menus of a message.

import { h } from "../dom.js";

// One text, date or option.
export function entry(one, about) {
  const [value = ""] = one.values;
  if (one.options.length) {
    const chosen = h("select", about, h("option", { value: "" }, one.placeholder || "Choose an option"), one.options.map(([each, label]) => h("option", { value: each }, label)));
    chosen.value = value;
    return chosen;
  }
  if (one.multiline) return h("textarea", { rows: "4", ...about, placeholder: one.placeholder || null, value });
  return h("input", { type: one.type, ...about, placeholder: one.placeholder || null, value, autocomplete: "off" });
}

// Several options.
export function boxes(one) {
  return one.options.map(([value, name]) => h("label", {}, h("input", { type: "checkbox", name: one.name, value, checked: one.values.includes(value), "data-entry": `${one.name} ${value}` }), name));
}
