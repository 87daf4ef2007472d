"""Fixtures of the scenarios: the whole bot in this process, on both platforms and both databases."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bot import app
from bot.settings import Settings
from chatrig.models import ReceivedRequest, ScriptedOpenAI
from chatrig.slack import SlackSimulator
from core.concurrency import gc_tuning
from core.sessions.prompt_text import QUOTE_END
from core.store.database import Database
from tests.bot.conftest import empty_environment
from tests.channels.conftest import clean_discord_library
from tests.channels.platforms import run_simulator
from tests.conftest import get_database_url
from tests.fixtures import empty_databases
from tests.scenarios.chat import Chat, open_chat

__all__ = ["clean_discord_library", "empty_environment"]

#: Seconds in which a bot starts or stops.
LIMIT_SECONDS = 30

StartBot = Callable[..., AbstractAsyncContextManager[Chat]]


@pytest.fixture(autouse=True)
def _cheap_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the garbage collector of the tests; create the tables of SQLite by a copy."""
    monkeypatch.setattr(gc_tuning, "freeze_gc", lambda: None)
    monkeypatch.setattr(app, "prepare_database", _prepare_database)


async def _prepare_database(database: Database) -> None:
    if database.is_sqlite:
        await empty_databases.create_tables(database)


@pytest.fixture(
    params=[
        pytest.param(("slack", "sqlite"), id="slack-sqlite"),
        pytest.param(("slack", "postgres"), id="slack-postgres", marks=pytest.mark.long),
        pytest.param(("discord", "sqlite"), id="discord-sqlite", marks=pytest.mark.long),
        pytest.param(("discord", "postgres"), id="discord-postgres"),
    ]
)
def combination(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Return the platform and the database; `make test-long` runs the pairs with the mark, `make test` the others."""
    platform, database = request.param
    return platform, database


@pytest.fixture
async def simulator(combination: tuple[str, str]) -> AsyncIterator[Any]:
    async with run_simulator(combination[0]) as simulator:
        yield simulator


@pytest.fixture
def database_url(combination: tuple[str, str], request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return get_database_url(combination[1], request, tmp_path)


@pytest.fixture
def start(simulator: Any, database_url: str) -> StartBot:
    """Return a function that runs the bot with a scripted model and settings, and yields the users' chat.

    Two bots after each other are two processes with one database, and the users continue their chat.
    """
    chat = open_chat(simulator)

    @asynccontextmanager
    async def run(*script: Any, **settings: Any) -> AsyncIterator[Chat]:
        async with ScriptedOpenAI(script[0] if callable(script[0]) else list(script)) as model:
            stop = asyncio.Event()
            values = {**create_settings(simulator, model, database_url), **settings}
            running = asyncio.create_task(app.run_bot(Settings(**values), stop))
            try:
                await wait_until_connected(simulator, running)
                yield chat
            finally:
                stop.set()
                await asyncio.wait_for(running, LIMIT_SECONDS)

    return run


def create_settings(simulator: Any, model: ScriptedOpenAI, database_url: str) -> dict[str, Any]:
    """Return the settings of a bot on one platform; on Slack it edits its replies, as on Discord."""
    platform: dict[str, Any] = (
        {
            "slack_bot_token": simulator.bot_token,
            "slack_app_token": simulator.app_token,
            "slack_api_url": simulator.api_url,
            "slack_streaming": "edit",
        }
        if isinstance(simulator, SlackSimulator)
        else {"discord_bot_token": simulator.bot_token, "discord_api_url": simulator.api_url}
    )
    return {
        **platform,
        "model": "openai/scripted",
        "openai_api_key": "sk-test-key-of-the-simulator",
        "openai_base_url": model.base_url,
        "database_url": database_url,
        "port": 0,
        "shutdown_timeout_seconds": 1,
    }


async def wait_until_connected(simulator: Any, running: asyncio.Task[None]) -> None:
    connecting = asyncio.ensure_future(simulator.wait_until_connected(LIMIT_SECONDS))
    ended, _ = await asyncio.wait([connecting, running], return_when="FIRST_COMPLETED")
    connecting.cancel()
    for task in ended:
        task.result()


def echo(request: ReceivedRequest) -> str:
    """Return "heard " and the question of a model request, without context and author."""
    return f"heard {request.text.rpartition(QUOTE_END)[2].strip().partition(': ')[2]}"


def recall(request: ReceivedRequest) -> str:
    """Return the words after "remember" in all that the model reads: "knows red, blue" or "knows nothing"."""
    texts = " ".join(text for role, text in request.messages if role == "user")
    return f"knows {', '.join(re.findall('remember ([a-z]+)', texts)) or 'nothing'}"
