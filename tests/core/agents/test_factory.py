"""Agents that `create_app` builds from settings."""

import pytest

from core.agents.config import AgentConfig
from core.agents.factory import create_app
from core.errors import SettingsError
from core.messages.identity import DEFAULT_AGENT_NAME
from tests.fixtures.conversation import Converse, ScriptedProvider, adapter


async def get_system_text(converse: Converse, instruction: str) -> str:
    """Return the system message that the model receives with this instruction setting."""
    provider = ScriptedProvider("ok")
    app = create_app(AgentConfig(instruction=instruction), model=adapter(provider))
    await (await converse(app=app)).reply("Hi")
    system = provider.requests[0].messages[0]
    assert system.role == "system"
    return system.text


@pytest.mark.parametrize("name", ["", "user", "_x", "7", "x-y", "x y", "\N{LATIN SMALL LETTER E WITH ACUTE}", "x\n"])
def test_a_name_that_adk_refuses_is_a_settings_error(name: str) -> None:
    with pytest.raises(SettingsError, match=r"^AGENT_NAME="):
        create_app(AgentConfig(name=name), model=adapter(ScriptedProvider()))


@pytest.mark.parametrize("name", ["x", "Users", "user_2", "root"])
def test_any_other_name_is_accepted(name: str) -> None:
    assert create_app(AgentConfig(name=name), model=adapter(ScriptedProvider())).name == name


def test_the_default_agent_is_called_parley() -> None:
    assert AgentConfig().name == DEFAULT_AGENT_NAME == "parley"


@pytest.mark.parametrize(("bot_name", "expected"), [("Robby", "Robby"), ("", "parley")])
async def test_the_instruction_has_the_name_of_the_bot(converse: Converse, bot_name: str, expected: str) -> None:
    provider = ScriptedProvider("ok")
    app = create_app(AgentConfig(), model=adapter(provider))
    conversation = await converse(app=app)
    await conversation.events("Who are you?", bot_name=bot_name)
    assert f"You are {expected}, " in provider.requests[0].messages[0].text


@pytest.mark.parametrize(
    "instruction",
    ["Sign as {name}.", 'Answer as {"json": 1}.', "{artifact.file}", "{user:mood?}", "{{x}} {"],
)
async def test_braces_in_the_instruction_stay(converse: Converse, instruction: str) -> None:
    assert instruction in await get_system_text(converse, instruction)
