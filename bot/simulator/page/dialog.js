// A dialog of the page that asks for one text.

import { h } from "/static/dom.js";

// Opens the dialog; resolves to the text, or to "" if the user cancels.
export function askText(title, label, placeholder) {
  return new Promise((resolve) => {
    const input = h("input", { id: "dialog-field", type: "text", required: true, placeholder, autocomplete: "off", spellcheck: "false" });
    const dialog = h(
      "dialog",
      { class: "dialog", "aria-labelledby": "dialog-title" },
      h(
        "form",
        { onsubmit: (event) => { event.preventDefault(); dialog.close(input.value.trim()); } },
        h("h2", { id: "dialog-title" }, title),
        h("div", { class: "field" }, h("label", { for: "dialog-field" }, label), input),
        h("footer", {}, h("button", { type: "button", class: "button plain", onclick: () => dialog.close("") }, "Cancel"), h("button", { type: "submit", class: "button primary" }, "OK")),
      ),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
