"""Fixtures for pytest: local platforms, scripted models and bots, for tests with and without `async`.

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


@pytest.fixture
def slack_simulator(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Yield a local Slack, whose methods block."""
    with blocking(SlackSimulator()) as simulator:
        yield _add_part(request, simulator)


@pytest.fixture
def discord_simulator(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Yield a local Discord, whose methods block."""
    with blocking(DiscordSimulator()) as simulator:
        yield _add_part(request, simulator)


@pytest.fixture
def scripted_openai(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Yield a model server with OpenAI's API: `add_responses` fills its script."""
    with blocking(ScriptedOpenAI()) as server:
        yield _add_part(request, server)


@pytest.fixture
def scripted_anthropic(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Yield a model server with Anthropic's API: `add_responses` fills its script."""
    with blocking(ScriptedAnthropic()) as server:
        yield _add_part(request, server)


@pytest.fixture
def scripted_gemini(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Yield a model server with Gemini's API: `add_responses` fills its script."""
    with blocking(ScriptedGemini()) as server:
        yield _add_part(request, server)


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
async def async_slack_simulator(request: pytest.FixtureRequest) -> AsyncIterator[SlackSimulator]:
    """Yield a local Slack in the event loop of the test."""
    async with SlackSimulator() as simulator:
        yield _add_part(request, simulator)


@async_fixture
async def async_discord_simulator(request: pytest.FixtureRequest) -> AsyncIterator[DiscordSimulator]:
    """Yield a local Discord in the event loop of the test."""
    async with DiscordSimulator() as simulator:
        yield _add_part(request, simulator)


@async_fixture
async def async_scripted_openai(request: pytest.FixtureRequest) -> AsyncIterator[ScriptedOpenAI]:
    """Yield a model server with OpenAI's API in the event loop of the test."""
    async with ScriptedOpenAI() as server:
        yield _add_part(request, server)


@async_fixture
async def async_scripted_anthropic(request: pytest.FixtureRequest) -> AsyncIterator[ScriptedAnthropic]:
    """Yield a model server with Anthropic's API in the event loop of the test."""
    async with ScriptedAnthropic() as server:
        yield _add_part(request, server)


@async_fixture
async def async_scripted_gemini(request: pytest.FixtureRequest) -> AsyncIterator[ScriptedGemini]:
    """Yield a model server with Gemini's API in the event loop of the test."""
    async with ScriptedGemini() as server:
        yield _add_part(request, server)


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
