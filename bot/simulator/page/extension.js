// Parley's additions to the simulator's page: turns, the models that answer, the tour, and the form for a key.

import { store } from "/static/connection.js";
import { extension } from "/static/extension.js";
import { agentControl, modelControl } from "./models.js";
import { getTourPrompts, updateSetupBar } from "./tour.js";
import { turnsTab } from "./turns.js";

const getModelDelay = () => store.get("parley")?.model_delay ?? 0;

extension.tabs.push(turnsTab);
extension.controls.push(agentControl, modelControl);
extension.switches.push({
  label: "Slow model",
  description: "Delays each model call by two seconds and streams slowly",
  isActive: () => getModelDelay() > 0,
  toggle: (runAction) => runAction("set_model_delay", { seconds: getModelDelay() > 0 ? 0 : 2 }),
});
extension.updates.push(updateSetupBar);
extension.getPrompts = getTourPrompts;
