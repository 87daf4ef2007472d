"""Parley's additions to the simulator's terminal."""

import asyncio
from typing import cast

import pytest

from bot.simulator.extension import ParleyExtension
from bot.simulator.process import BotProcess


class RestartableBot:
    """Bot process as the extension sees it.

    Attributes:
        is_restarted: the restart for the tour ends once it is set.
    """

    def __init__(self) -> None:
        self.is_tour, self.state, self.exit_reason = False, "running", ""
        self.is_restarted = asyncio.Event()

    def describe_models(self) -> list[str]:
        return ["Scripted tour: no model is asked." if self.is_tour else "Model: openai/own"]

    async def start_tour(self) -> None:
        await self.is_restarted.wait()
        self.is_tour = True

    async def end_tour(self) -> None:
        self.is_tour = False


@pytest.fixture
def bot() -> RestartableBot:
    return RestartableBot()


@pytest.fixture
def extension(bot: RestartableBot) -> ParleyExtension:
    extension = ParleyExtension("Parley")
    extension.bot = cast(BotProcess, bot)
    return extension


async def test_the_tour_starts_and_ends_with_a_command(extension: ParleyExtension, bot: RestartableBot) -> None:
    assert extension.list_notices() == ["Model: openai/own"]
    starting = asyncio.ensure_future(extension.commands["/tour"].run())
    await asyncio.sleep(0)
    assert not starting.done()
    bot.is_restarted.set()
    assert await starting == "The tour has begun. Write: Refund order 1042. (/tour end ends it)"
    assert extension.list_notices() == ["Scripted tour: no model is asked."]
    assert await extension.commands["/tour end"].run() == "The tour has ended.\nModel: openai/own"


async def test_a_command_of_the_tour_names_the_reason_of_an_exit(
    extension: ParleyExtension, bot: RestartableBot
) -> None:
    bot.state, bot.exit_reason = "ended", "AGENT=mine: there is no such folder"
    assert await extension.commands["/tour end"].run() == "The bot is not running. AGENT=mine: there is no such folder"
