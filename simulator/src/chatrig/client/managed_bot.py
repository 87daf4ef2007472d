"""Interface between the user interfaces and the process of the bot."""

from typing import Literal, Protocol

BotState = Literal["starting", "running", "ended"]


class ManagedBot(Protocol):
    """Process of the bot that is connected to the local platforms.

    After an unexpected exit, only `restart` starts it again.

    Attributes:
        state: "starting" until the bot is connected, then "running"; "ended" after an unexpected exit.
        exit_reason: a sentence about the bot's last exit; "" once a new process starts.
        log_tail: the last lines of the bot's log at an unexpected exit; "" once a new process starts.
    """

    state: BotState
    exit_reason: str
    log_tail: str

    async def kill(self) -> None:
        """Kill the bot's process without a shutdown, if it runs; it restarts by itself.

        Neither its exit nor the restart is awaited.
        """

    async def restart(self) -> None:
        """Stop the bot's process gracefully and start it again in the background.

        Return once the old process has exited. If it must be killed after a time limit, the restart has a delay.
        """

    async def wait_for_change(self) -> None:
        """Wait until `state` is set again, perhaps to the value that it has."""
