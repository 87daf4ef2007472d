"""Turns, model calls and tool calls that the bot sends to the page's inspector.

The bot is another process. It connects a WebSocket to an address from its environment and sends JSON objects. Their
keys are `turn`, `model_call`, `model_response`, `tool_call` and `agent_models`. Each value has an `id`; later values
update earlier ones with that id. The page sends `{"model_delay": SECONDS}`, the delay of each model call.
"""

from collections.abc import Mapping
from time import time
from typing import Any

from bot.simulator.process import AgentModels
from chatrig.subscriptions import ChangePublisher

Json = dict[str, Any]

#: Most turns that the page stores; the oldest are removed.
MAX_TURNS = 60


class InspectorStore(ChangePublisher[None]):
    """Turns, model calls and tool calls that the bot has sent to the page.

    Each update wakes the tasks in `wait_for_change`; subscriptions get nothing.

    Attributes:
        turns: the newest `MAX_TURNS` turns by id, oldest first; each has the fields that the bot sent, and `states`
            (pairs of a state and its Unix time), `model_calls` and `tool_calls` by id.
        prompts: the requests of model calls by the id of the call.
        model_delay: the delay of each model call that the user set, in seconds.
    """

    def __init__(self) -> None:
        super().__init__()
        self.turns: dict[str, Json] = {}
        self.prompts: dict[str, Json] = {}
        self.agent_models: AgentModels | None = None
        self.model_delay = 0.0

    def apply_updates(self, updates: Mapping[str, Json]) -> None:
        """Store the objects of one WebSocket message from the bot, and wake waiting tasks.

        The fields of a known turn or call replace its former fields of the same names. The field `prompt` of a model
        call goes to `prompts`. Model and tool calls of an unknown turn are ignored.
        """
        for kind, fields in updates.items():
            if kind == "turn":
                self._update_turn(fields)
            elif kind == "agent_models":
                self.agent_models = AgentModels(fields["names"], fields["uses_default"], fields["replaced"])
            elif (turn := self.turns.get(fields["turn"])) is not None:
                call = {key: value for key, value in fields.items() if key not in ("turn", "prompt")}
                calls_by_id = turn["tool_calls" if kind == "tool_call" else "model_calls"]
                calls_by_id[fields["id"]] = calls_by_id.get(fields["id"], {}) | call
                if "prompt" in fields:
                    self.prompts[fields["id"]] = fields["prompt"]
        self.notify()

    def create_view(self) -> dict[str, Any]:
        """Return the turns as `turn/ID`, and their ids, newest first, as `turns`, for the browser."""
        turns_by_key = {
            f"turn/{id_}": turn
            | {"model_calls": list(turn["model_calls"].values()), "tool_calls": list(turn["tool_calls"].values())}
            for id_, turn in self.turns.items()
        }
        return {**turns_by_key, "turns": list(reversed(self.turns))}

    def _update_turn(self, fields: Json) -> None:
        id_ = fields["id"]
        turn = self.turns.setdefault(id_, {"states": [], "model_calls": {}, "tool_calls": {}})
        if not turn["states"] or turn["states"][-1][0] != fields["state"]:
            turn["states"].append([fields["state"], time()])
        turn.update(fields)
        while len(self.turns) > MAX_TURNS:
            oldest = self.turns.pop(next(iter(self.turns)))
            for model_call in oldest["model_calls"]:
                self.prompts.pop(model_call, None)
