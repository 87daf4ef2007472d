"""Interactions while the SQLite file is locked: acknowledged now, run afterwards."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from channels.i18n import messages as words
from channels.slack.interactions.shortcuts import WHY
from chatrig.slack import SlackSimulator
from tests.channels.platforms import run_conversation, run_simulator, wait_for_answer
from tests.channels.wiring import MODELS

#: Acknowledgement timeout of the simulator in seconds. Slack and Discord wait for 3.
ACK_TIMEOUT_SECONDS = 2.0

Interaction = Callable[[Any], Awaitable[Any]]


@pytest.fixture(autouse=True)
def ack_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("slack.interactions.commands", "slack.interactions.delivery", "discord.interactions.delivery"):
        monkeypatch.setattr(f"chatrig.{module}.ACK_TIMEOUT_SECONDS", ACK_TIMEOUT_SECONDS)


@asynccontextmanager
async def lock_database(folder: Path) -> AsyncIterator[None]:
    """Lock the bot's SQLite database against all other connections inside the context."""
    file = folder / "parley.db"
    with closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as database:
        # in a thread: a transaction of the bot needs this loop to end
        await asyncio.to_thread(database.execute, "BEGIN EXCLUSIVE")
        yield


def create_command(name: str, **options: str) -> Interaction:
    async def run_command(chat: Any) -> None:
        slash = f"/{name}" if isinstance(chat.simulator, SlackSimulator) else name
        responses = await chat.simulator.run_command("ada", "general", slash, **options)
        assert not [
            response.text
            for response in responses
            if "operation_timeout" in response.text or "did not respond" in response.text
        ]

    return run_command


def create_press(label: str) -> Interaction:
    return lambda chat: chat.press(label)


async def use_why_menu(chat: Any) -> None:
    if isinstance(chat.simulator, SlackSimulator):
        assert await chat.simulator.use_shortcut("ada", chat.list_replies()[0], WHY)
    else:
        await chat.simulator.run_message_command("ada", chat.list_replies()[0], words.WHY_THIS)


async def rate_answer(chat: Any) -> None:
    await chat.rate(words.GOOD_ANSWER)


@dataclass(frozen=True)
class Case:
    """Concurrent interactions, with the private messages and replies that they cause."""

    interactions: Sequence[Interaction]
    private: Sequence[str] = ()
    replies: Sequence[str] = ("one",)


MADE_OF = "How this answer was made"
READS = [create_command("help"), create_command("usage"), create_command("model"), create_command("info"), use_why_menu]
READ = [words.HELP_COMMANDS, words.USAGE_TITLE, MODELS[1], words.STATUS_IDLE, MADE_OF]
RESET = Case([create_command("reset"), create_command("help")], [words.RESET_DONE, words.HELP_COMMANDS])
REGENERATE = Case([create_press(words.REGENERATE), create_command("help")], [words.HELP_COMMANDS], ["two"])
ASK = Case(
    [create_command("ask", question="why?"), create_command("help")], [words.HELP_COMMANDS], ["one", "> why?", "two"]
)

CASES = {
    "slack-reads": Case(READS, READ),
    "slack-reset": RESET,
    "slack-regenerate": REGENERATE,
    "discord-reads": Case([*READS, rate_answer], [*READ, words.FEEDBACK_THANKS]),
    "discord-reset": RESET,
    "discord-regenerate": REGENERATE,
    "discord-ask": ASK,
}


@pytest.mark.parametrize("name", CASES)
async def test_an_interaction_during_a_lock_is_acknowledged_and_then_processed(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    async with (
        run_simulator(name.partition("-")[0]) as simulator,
        run_conversation(simulator, tmp_path, "one", "two") as chat,
    ):
        await chat.say("hello")
        await wait_for_answer(chat, "one")
        await chat.bot.wait_for_turns(1)
        async with lock_database(tmp_path):
            await asyncio.gather(*(interact(chat) for interact in case.interactions))
        await wait_for_answer(chat, *case.replies)
        await simulator.wait_for(lambda: len(list(filter(None, chat.list_private_messages()))) == len(case.private))
        private_messages = chat.list_private_messages()
        for text in case.private:
            private_messages.remove(next(whisper for whisper in private_messages if text in whisper))
        assert private_messages == []
