"""Interface between the simulator's user interfaces and the bot's process."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

BotState = Literal["starting", "running", "ended"]


@dataclass(frozen=True, slots=True)
class AgentModels:
    """Models of the bot's agents, as the bot reports them once its agents are loaded.

    Attributes:
        names: the full names of the models that answer.
        uses_default: whether the model that a user selects in the simulator answers for an agent.
        replaced: the full names of the agents' models without an API key, for which that model answers.
    """

    names: Sequence[str]
    uses_default: bool
    replaced: Sequence[str] = ()


class ManagedBot(Protocol):
    """Process of the bot that is connected to the local platforms.

    After an unexpected exit, only `restart`, `save_key`, or a start or end of the tour starts it again.

    Attributes:
        is_tour: whether the bot runs the agent of the guided tour, which answers from a script without a model.
        state: "starting" until the bot is connected, then "running"; "ended" after an unexpected exit.
        exit_reason: a sentence about the bot's last exit; "" once a new process starts.
        log_tail: the last lines of the bot's log at an unexpected exit; "" once a new process starts.
        model: the full name of the bot's model, such as `openai/gpt-5`.
        models: the full names of the models that a user can select.
        agent_models: the models that answer; None until the bot has loaded its agents.
        agent: the folder of the agent that is reloaded on changes, or a file in it; "" for none.
        notices: lines about the model, for the top of the page and of the terminal.
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
        """True if a tiny local model answers, or a model without an API key is replaced."""
        ...

    @property
    def agent_models(self) -> AgentModels | None: ...

    @property
    def notices(self) -> list[str]: ...

    async def kill(self) -> None:
        """Kill the bot's process without a shutdown, if it runs; it restarts by itself.

        Neither its exit nor the restart is awaited.
        """

    async def restart(self, model: str = "") -> None:
        """Stop the bot's process gracefully and start it again in the background.

        Return once the old process has exited. If it must be killed after a time limit, the restart has a delay.

        Args:
            model: the full name of the new model of the user's agent; "" for the same one. A running tour goes on,
                without this model.
        """

    async def start_tour(self) -> None:
        """Restart with the tour's agent; wait until the bot is connected or has exited.

        If the tour already runs, nothing changes. The wait ends after a time limit, too; the state is then still
        "starting".
        """

    async def end_tour(self) -> None:
        """Restart with the user's agent; wait until the bot is connected or has exited.

        If no tour runs, nothing changes. The wait ends after a time limit, too; the state is then still
        "starting".
        """

    async def save_key(self, key: str, vendor: str = "") -> None:
        """Try a vendor's API key, store it, and restart the bot with the vendor's model.

        Wait until the bot is connected or has exited. The wait ends after a time limit, too; the state is then still
        "starting". If the scripted agent of the guided tour runs, the user's agent replaces it.

        Args:
            vendor: `gemini`, `openai` or `anthropic`; "" to recognize it by the key.

        Raises:
            ValueError: the key was not stored; the message explains the reason to the user.
        """

    async def wait_for_change(self) -> None:
        """Wait until `state` is set again, perhaps to the value that it has."""


def describe_model(bot: ManagedBot) -> list[str]:
    """Return the bot's `notices`, or a line with the names of the models that answer.

    The list is empty until the bot has loaded its agents.
    """
    names = bot.agent_models.names if bot.agent_models else ()
    return bot.notices or ([f"Model: {', '.join(names)}"] if names else [])
