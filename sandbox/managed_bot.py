"""Interface of the bot's process, which the page and the terminal control."""

from typing import Literal, Protocol

BotState = Literal["starting", "running", "ended"]


class ManagedBot(Protocol):
    """The bot that is connected to the sandboxes.

    Attributes:
        is_tour: whether the tour's agent answers, with a scripted model.
        state: the state of its process.
        exit_reason: the reason of its last exit.
        log_tail: the end of its log at that exit.
        model: the full name of its model.
        models: the models to choose from.
        agent: the folder of the watched agent, if any.
        notices: lines about its model, for the top of the page and of the terminal.
    """

    is_tour: bool
    state: BotState
    exit_reason: str
    log_tail: str
    model: str
    models: list[str]
    agent: str

    @property
    def lacks_key(self) -> bool:
        """True if the local model answers, for want of a key."""
        ...

    @property
    def notices(self) -> list[str]: ...

    async def kill(self) -> None:
        """Kill the process; it is started again."""

    async def restart(self, model: str = "") -> None:
        """Shut the bot down and start it again, perhaps with another model."""

    async def start_tour(self) -> None:
        """Restart with the tour's agent, and return once it is connected or has exited."""

    async def end_tour(self) -> None:
        """Restart with the own agent and model, and return once it is connected or has exited."""

    async def save_key(self, key: str, vendor: str = "") -> None:
        """Try a vendor's API key, store it, and restart with its model.

        Args:
            vendor: `gemini`, `openai` or `anthropic`; empty to recognize it by the key.

        Raises:
            ValueError: the key was not stored; the text tells the user why.
        """

    async def wait_for_change(self) -> None:
        """Wait until one of the attributes changes."""


def describe_model(bot: ManagedBot) -> list[str]:
    """Return lines about the bot's model for the terminal."""
    return bot.notices or [f"Model: {bot.model}"]
