"""Ids for the calls of stored messages that came without."""

from collections import Counter


class CallIds:
    """Ids for calls that came without: `call_` and the tool's name, repeats counted."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()

    def take(self, id_: str | None, name: str | None) -> str:
        wanted = id_ or f"call_{name or 'tool'}"
        self._taken[wanted] += 1
        count = self._taken[wanted]
        if count == 1:
            return wanted
        return self.take(f"{wanted}_{count}", name)
