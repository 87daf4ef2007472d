"""Faults of users' agents: `check` and the start name them, and so does a failed turn."""

import re
from pathlib import Path

from channels.i18n import messages as words
from chatrig.models import ReceivedRequest, Say, ScriptedOpenAI, ScriptedResponse
from core.errors import ParleyError
from tests.acceptance.conftest import MakeProgram, StartBot
from tests.acceptance.platforms import Platform

AGENT = """
from google.adk.agents import LlmAgent
from pydantic import BaseModel


class City(BaseModel):
    name: str


def fail(callback_context):
    if "own fault" in str(callback_context.user_content):
        raise LookupError("no city\\nfor the key sk-very-secret-key-1234")


guide = LlmAgent(name="guide", instruction="You are the guide in {city}.")
clerk = LlmAgent(
    name="clerk", instruction="You are the clerk.", output_schema=City, output_key="found", before_agent_callback=fail
)
root_agent = ROOT
"""


def write_agent(folder: Path, root: str) -> str:
    """Write an agent's folder, and return its path."""
    folder.mkdir()
    (folder / "agent.py").write_text(AGENT.replace("ROOT", root))
    return str(folder)


async def test_check_names_the_unknown_variable_of_an_instruction(program: MakeProgram, tmp_path: Path) -> None:
    async with ScriptedOpenAI(["ok"] * 2) as model:
        settings = {"MODEL": "openai/m", "OPENAI_BASE_URL": model.base_url}
        code, output = await program({**settings, "AGENT": write_agent(tmp_path / "one", "guide")}).run_command("check")
    (fault,) = [line for line in output.splitlines() if line.startswith("FAIL")]
    assert code == 1
    assert fault.startswith("FAIL the instruction of the agent guide has {city}: nothing sets it")
    assert "write {city?}" in fault


MODELS = """
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.genai import types


class Keyless(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        raise ValueError("set api_key, not sk-very-secret-key-1234")
        yield


class Working(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        yield LlmResponse(content=types.ModelContent("ok"))


root_agent = LlmAgent(name="root", model="gpt-4o", sub_agents=[
    LlmAgent(name="heir"),
    LlmAgent(name="other", model="claude-sonnet-4"),
    LlmAgent(name="keyless", model=Keyless(model="theirs")),
    LlmAgent(name="working", model=Working(model="own")),
])
"""


async def test_check_fails_at_a_bare_vendor_name_and_a_model_without_key(program: MakeProgram, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "agent.py").write_text(MODELS)
    code, output = await program({"AGENT": str(tmp_path / "models")}).run_command("check")
    assert code == 1
    assert [line for line in output.splitlines() if line.startswith("FAIL")] == [
        "FAIL the agent root: the model gpt-4o is called by ADK, not by Parley: write openai/gpt-4o",
        "FAIL the agent other: the model claude-sonnet-4 is called by ADK, not by Parley: write "
        "anthropic/claude-sonnet-4",
        "FAIL the agent keyless: the model theirs cannot answer: ValueError: set api_key, not [redacted]",
    ]
    assert "ok   model: own answers" in output


OSLO = '{"name": "Oslo"}'


def script(request: ReceivedRequest) -> ScriptedResponse:
    if "good" in request.text:
        return Say(f"Here it is:\n\n```json\n{OSLO}\n```\n\nAnything else?", pieces=5)
    return Say("I know no city, says Ada.", pieces=3)


async def test_text_around_structured_output_is_not_shown_on_any_platform(start: StartBot, tmp_path: Path) -> None:
    bot = await start(AGENT=write_agent(tmp_path / "one", "clerk"))
    bot.answer = script

    async def scenario(platform: Platform) -> None:
        await bot.ask(platform, platform.start_conversation(), "a good one", OSLO)

    await bot.run_on_all_platforms(scenario)


async def test_a_failed_turn_names_its_cause_in_the_log_and_to_operators(start: StartBot, tmp_path: Path) -> None:
    bot = await start(AGENT=write_agent(tmp_path / "one", "clerk"))
    bot.answer = script
    sentence = words.ENGLISH.format_error(ParleyError.public)

    async def ask(platform: Platform, question: str, shown: str) -> None:
        conversation = platform.start_conversation()
        await conversation.say(question)
        await platform.wait_for(
            lambda: any(shown in reply.text and sentence in reply.text for reply in conversation.replies())
        )

    async def scenario(platform: Platform) -> None:
        await ask(platform, "a bad one", "I know no city")
        await ask(platform, "own fault", "")

    await bot.run_on_all_platforms(scenario)
    await bot.program.stop()
    log = bot.program.log
    assert "OutputSchemaError: the answer of the agent clerk does not fit its output_schema City" in log
    assert "says Ada" not in log
    assert "\n  LookupError: no city\n  for the key [redacted]\n" in log
    assert "sk-very" not in log
    _, output = await bot.program.run_command("status")
    assert "an answer does not fit its agent's output_schema" in output
    failed = re.search(r"turn (\w+) failed: OutputSchemaError", log)
    assert failed is not None
    _, output = await bot.program.run_command(f"why {failed[1]}")
    assert "of the agent clerk" in output
    assert "remedy" in output
    assert "the default" not in output  # the agent names its model
