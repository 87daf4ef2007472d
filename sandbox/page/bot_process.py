"""Interface of the bot's process, which the page can kill and restart."""

from typing import Literal, Protocol

BotState = Literal["starting", "running", "ended"]


class ManagedBot(Protocol):
    """The bot that is connected to the sandboxes.

    Attributes:
        state: the state of its process.
        exit_reason: the reason of its last exit.
        log_tail: the end of its log at that exit.
        model: the full name of its model.
        models: the models to choose from.
        agent: the folder of the watched agent, if any.
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
        """Kill the process; it is started again."""

    async def restart(self, model: str = "") -> None:
        """Shut the bot down and start it again, perhaps with another model."""

    async def wait_for_change(self) -> None:
        """Wait until one of the attributes changes."""
