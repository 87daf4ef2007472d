// The form for the API key of a model vendor. The key leaves the form once, for the server, and is cleared at once.

import { h } from "../dom.js";
import { act } from "../connection.js";

const VENDORS = [["", "Recognize it by the key"], ["gemini", "Google Gemini"], ["openai", "OpenAI"], ["anthropic", "Anthropic"]];

export function openKeyForm() {
  const key = h("input", { id: "key", type: "password", autocomplete: "off", spellcheck: "false", required: true });
  const vendor = h("select", { id: "key-vendor" }, VENDORS.map(([value, label]) => h("option", { value }, label)));
  const error = h("p", { class: "error", role: "alert" });
  const submit = h("button", { type: "submit", class: "button primary" }, "Try and save");
  const close = () => dialog.close();
  const form = h(
    "form",
    {},
    h("h2", { id: "key-title" }, "Paste a key"),
    h("p", {}, "The sandbox sends one short request with it. If the model answers, the key is stored in .env on this machine, and the bot restarts."),
    h("div", { class: "field" }, h("label", { for: "key" }, "API key"), key),
    h("div", { class: "field" }, h("label", { for: "key-vendor" }, "Provider"), vendor),
    error,
    h("footer", {}, h("button", { type: "button", class: "button plain", onclick: close }, "Cancel"), submit),
  );
  const dialog = h("dialog", { class: "dialog", "aria-labelledby": "key-title" }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const about = { key: key.value, vendor: vendor.value };
    key.value = error.textContent = "";
    submit.disabled = true;
    submit.textContent = "Asking the model…";
    try {
      const refusal = await act("save_key", about);
      if (!refusal) return close();
      error.textContent = refusal;
    } catch (failure) {
      error.textContent = failure.message;
    }
    submit.disabled = false;
    submit.textContent = "Try and save";
    key.focus();
  });
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
