// Controls of the header: the agent that is reloaded, and the models that answer.

import { store } from "/static/connection.js";
import { h } from "/static/dom.js";
import { renderIcon } from "/static/icons.js";
import { askText } from "./dialog.js";

// The control of the folder of the agent.
export const agentControl = {
  read() {
    const { agent, tour } = store.get("parley");
    return tour ? "" : agent;
  },
  render() {
    const agent = this.read();
    return agent ? h("span", { class: "agent", title: "This agent is reloaded when its files change" }, renderIcon("folder"), h("span", {}, agent)) : null;
  },
};

// The control with the names of the models that answer, and a menu for the model that the user can select.
export const modelControl = {
  read() {
    const { model, models, agent_models: agentModels, tour } = store.get("parley");
    return tour ? null : { model, models, agentModels };
  },
  render(runAction) {
    const { model, models, agentModels } = this.read() ?? {};
    if (!agentModels) return null;
    const { names, uses_default: usesDefault } = agentModels;
    const others = names.filter((name) => !usesDefault || name !== model);
    return [usesDefault ? renderModelSelect(model, models, runAction) : null, others.length ? h("span", { class: "model" }, h("span", {}, usesDefault ? "and" : "Model"), h("span", { id: "fixed-models", title: "The agent names its model" }, others.join(", "))) : null];
  },
};

function renderModelSelect(model, models, runAction) {
  const names = models.includes(model) ? models : [...models, model];
  const select = h("select", { id: "model", "data-focus": "model" }, names.map((name) => h("option", { value: name }, name)), h("option", { value: "?" }, "another model…"));
  select.value = model;
  select.addEventListener("change", async () => {
    const name = select.value === "?" ? await askText("Another model", "Model name, as in the MODEL setting", "openai/gpt-5-mini") : select.value;
    if (name) await runAction("select_model", { model: name });
    else select.value = model;
  });
  return h("label", { class: "model" }, h("span", {}, "Model"), select);
}
