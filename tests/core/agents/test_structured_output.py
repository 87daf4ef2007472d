"""Structured output among other text: what is cut, and what stays."""

import json
from typing import Any

import pytest
from google.adk.agents import LlmAgent, SequentialAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.models import LlmResponse
from google.adk.tools.agent_tool import AgentTool
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from core.agents.structured_output import find_json
from core.errors import OutputSchemaError
from core.models.provider import Done, ToolCall
from tests.fixtures.conversation import Converse, ScriptedProvider, adapter, apply_text_events


class City(BaseModel):
    name: str
    districts: list["City"] = []


OSLO = '{"name": "Oslo"}'
BERGEN = '{"name": "Bergen"}'
FENCED = f"```json\n{OSLO}\n```"

#: Answers, each with the JSON that is left of it; None if the answer stays.
ANSWERS: dict[str, tuple[str, str | None]] = {
    "sentence before": (f"Here is the city:\n\n{OSLO}", OSLO),
    "sentence after": (f"{OSLO}\nAnything else?", OSLO),
    "thinking in the text": (f"<think>I need {{name}} [1], a name.</think>{OSLO}", OSLO),
    "fence after a sentence": (f"Sure!\n{FENCED}", OSLO),
    "fence before a sentence": (f"{FENCED}\nDone.", OSLO),
    "long fence": (f"````\n{OSLO}\n````", OSLO),
    "draft and answer": (f"{BERGEN}, no: {OSLO}", OSLO),
    "two fences": (f"```json\n{BERGEN}\n```\nBetter:\n{FENCED}", OSLO),
    "other JSON before": (f'The schema is {{"type": "object"}}. {OSLO}', OSLO),
    "other JSON after": (f"{OSLO} [1] [2, 3]", OSLO),
    "JSON in a text": ('x {"name": "a {\\"b\\"} ]"} {curly}', '{"name": "a {\\"b\\"} ]"}'),
    "brackets in prose": (f"A [note] with {{braces}} and :{{ ... {OSLO}", OSLO),
    "only JSON": (f"\n{OSLO}\n", None),
    "only a fence": (FENCED, None),
    "no JSON": ("I know no city.", None),
    "JSON that does not fit": ('Here: {"size": 3}', None),
    "part of damaged JSON": (f'Here: {{"districts": [{OSLO}], "name": }}', None),
    "part of unfinished JSON": (f'Here: {{"districts": [{OSLO}', None),
    "part of larger JSON": (f"Here: [{OSLO}]", None),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_the_json_that_fits_the_schema_is_left_of_an_answer(name: str) -> None:
    text, wanted = ANSWERS[name]
    assert find_json(text, City) == wanted


@pytest.mark.parametrize(
    "schema",
    [
        list[City],
        list[dict[str, str]],
        types.Schema(type=types.Type.ARRAY, items=types.Schema(type=types.Type.OBJECT)),
        {"type": "array", "items": {"type": "object", "required": ["name"]}},
    ],
    ids=["models", "dicts", "types.Schema", "JSON Schema"],
)
def test_each_kind_of_schema_selects_the_json(schema: Any) -> None:
    assert find_json(f"See [1] and {OSLO}: [{OSLO}] [2]", schema) == f"[{OSLO}]"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(value=st.dictionaries(st.text(), json_values), indent=st.sampled_from([None, 2]), fence=st.booleans())
def test_any_object_is_found_between_sentences(value: Any, indent: int | None, fence: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    around = f"```json\n{text}\n```" if fence else text
    assert find_json(f"Here it is: {around}\nThat is all.", dict[str, Any]) == text


@given(text=st.text(alphabet='{}[]":,\\ \n`a1'))
def test_any_text_gives_json_or_nothing(text: str) -> None:
    found = find_json(text, dict[str, Any])
    assert found is None or isinstance(json.loads(found), dict)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_agents_below_others_may_write_around_structured_output(converse: Converse) -> None:
    asked = ScriptedProvider(f"Sure: {OSLO}", f"Sure: {OSLO}")
    clerk = LlmAgent(name="clerk", model=adapter(asked), output_schema=City, output_key="city")
    reader = ScriptedProvider([ToolCall("c1", "expert", {"request": "A city?"}), Done()], "Oslo it is.")
    expert = AgentTool(LlmAgent(name="expert", model=adapter(asked), output_schema=City))
    guide = LlmAgent(name="guide", model=adapter(reader), instruction="In {city}.", tools=[expert])
    root = SequentialAgent(name="both", sub_agents=[clerk, guide])
    assert await (await converse(root=root)).reply("Where?") == f"{OSLO}\n\nOslo it is."
    [result] = reader.requests[1].messages[-1].parts
    assert "Oslo" in str(result)
    assert "error" not in str(result)


async def test_an_answer_without_json_names_the_agent_and_the_schema(converse: Converse) -> None:
    provider = ScriptedProvider("I know no city.")
    clerk = LlmAgent(name="clerk", model=adapter(provider), output_schema=City, output_key="city")
    events = await (await converse(root=clerk)).events("Where?")
    assert apply_text_events(events) == "I know no city."
    assert isinstance(events[-1].error, OutputSchemaError)
    for word in ("clerk", "City", "Invalid JSON"):
        assert word in str(events[-1].error)
    assert "know" not in str(events[-1].error)


async def test_an_agents_own_callback_may_repair_structured_output(converse: Converse) -> None:
    def repair(callback_context: CallbackContext, llm_response: LlmResponse) -> LlmResponse | None:
        return None if llm_response.partial else LlmResponse(content=types.ModelContent(OSLO))

    provider = ScriptedProvider("I know no city.")
    clerk = LlmAgent(
        name="clerk", model=adapter(provider), output_schema=City, output_key="city", after_model_callback=repair
    )
    assert await (await converse(root=clerk)).reply("Where?") == OSLO
