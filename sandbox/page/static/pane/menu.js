// The menus and pickers of a message.

import { clearDrafts, h, markDrafts } from "../dom.js";
import { boxes, entry } from "./field.js";

// `send` sends the selected values, and returns the notice of a refusal.
export function messageMenu(one, id, send) {
  const focus = { "data-focus": `${id} ${one.name}` };
  if (one.multiple) return choices(one, id, send);
  if (one.options.length) return select(one, focus, send);
  return picker(one, focus, send);
}

function select(one, focus, send) {
  const pick = entry(one, { "aria-label": one.label, ...focus });
  const before = pick.value;
  pick.addEventListener("change", async () => {
    if (!pick.value) return;
    pick.disabled = true;
    const refusal = await send([pick.value]);
    pick.disabled = false;
    if (refusal) pick.value = before; // the same option can be selected again
  });
  return pick;
}

// Several options, which are sent together.
function choices(one, id, send) {
  const names = one.options.filter(([value]) => one.values.includes(value)).map(([, name]) => name);
  const submit = async (event) => {
    event.preventDefault();
    const values = new FormData(form).getAll(one.name);
    if (await send(values)) return;
    clearDrafts(form);
    fold.open = false;
  };
  const form = h(
    "form",
    { onsubmit: submit, "aria-label": one.label },
    h("div", { class: "options" }, boxes(one)),
    h("button", { type: "submit", class: "button primary" }, "Select"),
  );
  markDrafts(form);
  const fold = h("details", { class: "choices", "data-fold": one.name }, h("summary", { "data-focus": `${id} ${one.name}` }, names.join(", ") || one.label), form);
  fold.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !fold.open) return;
    fold.open = false;
    fold.querySelector("summary").focus();
    event.stopPropagation();
  });
  return fold;
}

// A date or time. Browsers report each typed digit as a change, so it is sent by its button, or by Enter.
function picker(one, focus, send) {
  const pick = entry(one, { "aria-label": one.label, required: true, "data-entry": one.name, ...focus });
  const submit = (event) => {
    event.preventDefault();
    clearDrafts(form);
    send([pick.value]);
  };
  const form = h("form", { class: "picker", onsubmit: submit }, pick, h("button", { type: "submit", class: "button plain", "aria-label": `${one.label}: send` }, "Set"));
  markDrafts(form);
  return form;
}
