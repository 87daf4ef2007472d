"""Seeds: creation of the agent from settings at startup, and its errors."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from google.adk.agents import LlmAgent
from google.genai import errors

from bot import app, settings
from chatrig.models import ScriptedGemini
from chatrig.slack import SlackSimulator
from core.agents.factory import create_app
from core.errors import ModelNotFoundError, SettingsError
from core.models.adapter import ModelAdapter
from core.models.provider_registry import make_provider
from core.models.providers.gemini import GeminiProvider
from tests.fixtures.conversation import Conversation, Converse

KNOWN = "gemini-3.5-flash"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Delete all settings from the environment, and return the patch for new ones."""
    for name in settings.Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.chdir(tmp_path)
    return monkeypatch


@asynccontextmanager
async def run_gemini(environment: pytest.MonkeyPatch, *turns: str) -> AsyncIterator[ScriptedGemini]:
    """Run a local Gemini API, and set the settings that lead to it.

    Args:
        turns: the model's answers.
    """
    async with ScriptedGemini(turns, api_key="AIza-valid", models=[KNOWN]) as server:
        environment.setenv("GOOGLE_API_KEY", "AIza-valid")
        environment.setenv("GOOGLE_BASE_URL", server.base_url)
        yield server


@asynccontextmanager
async def start_conversation(converse: Converse) -> AsyncIterator[Conversation]:
    """Yield a conversation with the agent of the current settings."""
    chosen = settings.load_settings()
    provider, model = make_provider(chosen.model, chosen.endpoints)
    try:
        yield await converse(app=create_app(chosen.agent_config, model=ModelAdapter(model=model, provider=provider)))
    finally:
        await provider.aclose()


async def test_agent_initialization(environment: pytest.MonkeyPatch) -> None:
    """Agent Initialization."""
    async with run_gemini(environment, "Hello Ada!") as server, SlackSimulator() as slack:
        environment.setenv("SLACK_API_URL", slack.api_url)
        environment.setenv("SLACK_BOT_TOKEN", slack.bot_token)
        environment.setenv("SLACK_APP_TOKEN", slack.app_token)
        environment.setenv("MODEL", KNOWN)
        environment.setenv("TOOLS", "core.tools:current_time")
        stop = asyncio.Event()
        running = asyncio.create_task(app.run_bot(settings.load_settings(), stop))
        try:
            await slack.wait_until_connected(timeout=30)
            await slack.post_message("ada", "general", f"<@{slack.bot_user_id}> hello")
            await slack.wait_for(
                lambda: any("Hello Ada!" in message.text for message in slack.messages("general")), timeout=60
            )
        finally:
            stop.set()
            await asyncio.wait_for(running, 60)
    [request] = server.received
    assert (request.model, request.tools) == (KNOWN, ("current_time",))


async def test_successful_agent_initialization_with_gemini(environment: pytest.MonkeyPatch, converse: Converse) -> None:
    """Successful agent initialization with Gemini."""
    async with run_gemini(environment, "Hello!"), start_conversation(converse) as conversation:
        agent = conversation.runtime.app.root_agent
        assert isinstance(agent, LlmAgent)
        assert isinstance(agent.model, ModelAdapter)
        assert isinstance(agent.model.provider, GeminiProvider)
        assert await conversation.reply("Hi") == "Hello!"


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({}, ["GOOGLE_API_KEY"]),
        ({"MODEL": "openai/gpt-9"}, ["OPENAI_API_KEY"]),
        ({"SLACK_BOT_TOKEN": "xoxb-1"}, ["SLACK_APP_TOKEN", "GOOGLE_API_KEY"]),
        ({"SLACK_APP_TOKEN": "xapp-1"}, ["SLACK_BOT_TOKEN", "GOOGLE_API_KEY"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
async def test_missing_api_credentials(
    environment: pytest.MonkeyPatch, given: dict[str, str], missing: list[str]
) -> None:
    """Missing API credentials."""
    for name, value in given.items():
        environment.setenv(name, value)
    with pytest.raises(SettingsError) as raised:
        await app.run_bot(settings.load_settings(), asyncio.Event())
    assert [fault.split()[0] for fault in raised.value.faults] == missing
    assert all("https://" in fault for fault in raised.value.faults)


async def test_invalid_model_name(environment: pytest.MonkeyPatch, converse: Converse) -> None:
    """Invalid model name."""
    environment.setenv("MODEL", "gemini-nonesuch")
    async with run_gemini(environment), start_conversation(converse) as conversation:
        with pytest.raises(ModelNotFoundError, match="gemini-nonesuch") as raised:
            await conversation.reply("Hi")
    assert isinstance(raised.value.__cause__, errors.APIError)
