"""Fixtures for pytest: local platforms, models, an OAuth provider and bots, for tests with and without `async`.

A failed test shows what people and the bot saw. A test whose bot called a method or route that the simulator does not
have fails, unless the name is in `allowed_unknown_calls` of the simulator.
"""

from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import pytest

from chatrig.discord import DiscordSimulator
from chatrig.models import ScriptedAnthropic, ScriptedGemini, ScriptedOpenAI
from chatrig.oauth import OAuthServer
from chatrig.slack import SlackSimulator
from chatrig.testing.blocking import blocking
from chatrig.testing.blocking import start_bot as start_blocking_bot
from chatrig.testing.process import Bot

try:
    from pytest_asyncio import fixture as async_fixture
except ImportError:  # without it, tests cannot be `async`
    async_fixture = pytest.fixture  # type: ignore[assignment]

#: Simulators, servers and bots of a test.
_PARTS = pytest.StashKey[list[Any]]()


def _add_part(request: pytest.FixtureRequest, part: Any) -> Any:
    request.node.stash.setdefault(_PARTS, []).append(part)
    return part


def _list_parts(request: pytest.FixtureRequest) -> tuple[list[Any], dict[str, str]]:
    """Return the simulators of a test, and the variables of its model servers."""
    parts = request.node.stash.get(_PARTS, [])
    platforms = [part for part in parts if hasattr(part, "connection_count")]
    others = [part for part in parts if part not in platforms and hasattr(part, "env")]
    return platforms, {name: value for part in others for name, value in part.env.items()}


def _create_fixture(create: Callable[[], Any], documentation: str) -> Any:
    """Return a fixture that enters a simulator or a model server, whose methods then block."""

    def enter(request: pytest.FixtureRequest) -> Iterator[Any]:
        with blocking(create()) as part:
            yield _add_part(request, part)

    enter.__doc__ = f"{documentation}, whose methods block."
    return pytest.fixture(enter)


def _create_async_fixture(create: Callable[[], Any], documentation: str) -> Any:
    """Return a fixture that enters a simulator or a model server in the event loop of the test."""

    async def enter(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
        async with create() as part:
            yield _add_part(request, part)

    enter.__doc__ = f"{documentation} in the event loop of the test."
    return async_fixture(enter)


_SLACK, _DISCORD = (SlackSimulator, "Yield a local Slack"), (DiscordSimulator, "Yield a local Discord")
_OPENAI = ScriptedOpenAI, "Yield a model server with OpenAI's API"
_ANTHROPIC = ScriptedAnthropic, "Yield a model server with Anthropic's API"
_GEMINI = ScriptedGemini, "Yield a model server with Gemini's API"
_OAUTH = OAuthServer, "Yield an OAuth provider"

slack_simulator, async_slack_simulator = _create_fixture(*_SLACK), _create_async_fixture(*_SLACK)
discord_simulator, async_discord_simulator = _create_fixture(*_DISCORD), _create_async_fixture(*_DISCORD)
scripted_openai, async_scripted_openai = _create_fixture(*_OPENAI), _create_async_fixture(*_OPENAI)
scripted_anthropic, async_scripted_anthropic = _create_fixture(*_ANTHROPIC), _create_async_fixture(*_ANTHROPIC)
scripted_gemini, async_scripted_gemini = _create_fixture(*_GEMINI), _create_async_fixture(*_GEMINI)
oauth_server, async_oauth_server = _create_fixture(*_OAUTH), _create_async_fixture(*_OAUTH)


@pytest.fixture
def start_bot(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Yield a function that starts a bot: `start_bot("python", "bot.py", OPENAI_MODEL="m")`.

    The bot gets the addresses and tokens of the test's simulators and model servers, and the given variables. It is
    connected when the function returns, and stopped at the end of the test.
    """
    with ExitStack() as stack:

        def start(*command: str, cwd: Path | str | None = None, **variables: str) -> Any:
            platforms, env = _list_parts(request)
            bot = start_blocking_bot(*command, platforms=platforms, env={**env, **variables}, cwd=cwd)
            return _add_part(request, stack.enter_context(bot))

        yield start


@async_fixture
async def async_start_bot(request: pytest.FixtureRequest) -> AsyncIterator[Callable[..., Any]]:
    """Yield a coroutine function that starts a bot: see `start_bot`."""
    async with AsyncExitStack() as stack:

        async def start(*command: str, cwd: Path | str | None = None, **variables: str) -> Bot:
            platforms, env = _list_parts(request)
            bot = Bot(*command, platforms=platforms, env={**env, **variables}, cwd=cwd)
            started: Bot = _add_part(request, await stack.enter_async_context(bot))
            return started

        yield start


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    yield
    for part in item.stash.get(_PARTS, []):
        if unknown := getattr(part, "unknown_calls", None):
            pytest.fail(f"the bot called what the simulator does not have: {', '.join(unknown)}", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        parts = [part for part in item.stash.get(_PARTS, []) if hasattr(part, "describe")]
        report.sections += [("chatrig", part.describe()) for part in parts]
    return report
