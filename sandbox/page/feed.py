"""What the bot tells of itself, while it is in the sandbox: its turns, what it asks the model, its calls of tools.

The bot is another process: it connects to an address that it was given in its environment, and sends one JSON object a
message, with one key each: `turn`, `ask`, `answer` or `tool`. Each has an `id`; what comes later under an id is
added to what came before. The page answers with `{"slow": SECONDS}`, by which each question to the model is delayed.
"""

from collections.abc import Mapping
from time import time
from typing import Any

from sandbox.subscriptions import Watch

Json = dict[str, Any]

#: Turns that the page knows, the newest ones; and the most letters of a prompt that are sent to the page at once.
TURNS, LETTERS = 60, 400_000


class Feed(Watch[None]):
    """Attributes:
    turns: by their ids, the oldest first; each has `states`, `asks` and `tools`.
    prompts: what the model was asked, by the id of the question.
    slow: seconds by which a question to the model is delayed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.turns: dict[str, Json] = {}
        self.prompts: dict[str, Json] = {}
        self.slow = 0.0

    def told(self, news: Mapping[str, Json]) -> None:
        """Take in what the bot has said."""
        for kind, about in news.items():
            if kind == "turn":
                self._turn(about)
            elif (turn := self.turns.get(about["turn"])) is not None:
                part = {key: value for key, value in about.items() if key not in ("turn", "prompt")}
                of = turn["tools" if kind == "tool" else "asks"]
                of[about["id"]] = of.get(about["id"], {}) | part
                if "prompt" in about:
                    self.prompts[about["id"]] = about["prompt"]
        self.tick()

    def view(self) -> dict[str, Any]:
        """The turns by keys, and the order in which they stand: the newest first."""
        shown = {
            f"turn/{id_}": turn | {"asks": list(turn["asks"].values()), "tools": list(turn["tools"].values())}
            for id_, turn in self.turns.items()
        }
        return {**shown, "turns": list(reversed(self.turns))}

    def _turn(self, about: Json) -> None:
        id_ = about["id"]
        turn = self.turns.setdefault(id_, {"states": [], "asks": {}, "tools": {}})
        if not turn["states"] or turn["states"][-1][0] != about["state"]:
            turn["states"].append([about["state"], time()])
        turn.update(about)
        while len(self.turns) > TURNS:
            gone = self.turns.pop(next(iter(self.turns)))
            for ask in gone["asks"]:
                self.prompts.pop(ask, None)
