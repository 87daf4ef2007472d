"""The bot, as the page knows it: a process that it can have killed and started again."""

from typing import Literal, Protocol

BotState = Literal["starting", "running", "ended"]


class ManagedBot(Protocol):
    """The one that is connected to the sandboxes.

    Attributes:
        state: what its process does.
        told: why it has ended by itself, in its own words.
        log_tail: the end of its log, then.
        model: the one that it asks, by its full name.
        models: what may be chosen in its place.
        agent: the folder of the agent that is watched, if there is one.
        notices: lines about the model.
    """

    state: BotState
    exit_reason: str
    log_tail: str
    model: str
    models: list[str]
    agent: str

    @property
    def notices(self) -> list[str]: ...

    async def kill(self) -> None:
        """Kill it, as an accident would; it is started again."""

    async def restart(self, model: str = "") -> None:
        """Let it end in good order, and start it again, perhaps with another model."""

    async def wait_for_change(self) -> None:
        """Wait until one of these changes."""
