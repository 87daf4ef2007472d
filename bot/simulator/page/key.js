// The form for the API key of a model vendor. The key leaves the form once, for the server, and is cleared at once.

import { h } from "/static/dom.js";
import { sendAction } from "/static/connection.js";

const VENDORS = [["", "Recognize it by the key"], ["gemini", "Google Gemini"], ["openai", "OpenAI"], ["anthropic", "Anthropic"]];

// Opens the form in a dialog.
export function openKeyForm() {
  const keyInput = h("input", { id: "key", type: "password", autocomplete: "off", spellcheck: "false", required: true });
  const vendorSelect = h("select", { id: "key-vendor" }, VENDORS.map(([value, label]) => h("option", { value }, label)));
  const error = h("p", { class: "error", role: "alert" });
  const submitButton = h("button", { type: "submit", class: "button primary" }, "Try and save");
  const closeDialog = () => dialog.close();
  const form = h(
    "form",
    {},
    h("h2", { id: "key-title" }, "Paste a key"),
    h("p", {}, "The simulator sends one short request with it. If the model answers, the key is stored in .env on this machine, and the bot restarts."),
    h("div", { class: "field" }, h("label", { for: "key" }, "API key"), keyInput),
    h("div", { class: "field" }, h("label", { for: "key-vendor" }, "Provider"), vendorSelect),
    error,
    h("footer", {}, h("button", { type: "button", class: "button plain", onclick: closeDialog }, "Cancel"), submitButton),
  );
  const dialog = h("dialog", { class: "dialog", "aria-labelledby": "key-title" }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const parameters = { key: keyInput.value, vendor: vendorSelect.value };
    keyInput.value = error.textContent = "";
    submitButton.disabled = true;
    submitButton.textContent = "Asking the model…";
    try {
      const refusal = await sendAction("save_key", parameters);
      if (!refusal) return closeDialog();
      error.textContent = refusal;
    } catch (failure) {
      error.textContent = failure.message;
    }
    submitButton.disabled = false;
    submitButton.textContent = "Try and save";
    keyInput.focus();
  });
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
