"""JSON of a model or a person that is meant to stop the process, or to make a conversation unusable."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from channels.i18n import messages as words
from chatrig.models import CallTool, ReceivedRequest, ScriptedResponse
from core.models.tool_calls import MALFORMED_CALL_PREFIX
from core.store.schema import human_requests
from core.tools.json_schema import MAX_SCHEMAS
from core.tools.question_form import MAX_FIELDS
from tests.channels.platforms import PLATFORMS, Chat, list_texts, run_conversation, run_simulator, wait_for_texts
from tests.channels.requests.test_questions import ASKING, create_input_request, list_requests, wait_for_button


@pytest.fixture(params=PLATFORMS)
async def simulator(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    async with run_simulator(request.param) as simulator:
        yield simulator


def create_bomb(width: int, fields: int) -> dict[str, Any]:
    """Return a schema whose combinations are `fields * width**4` schemas, if each is resolved for each use."""

    def refer(name: str) -> dict[str, Any]:
        return {"allOf": [{"$ref": f"#/{name}"} for _ in range(width)]}

    return {
        "a": refer("b"),
        "b": refer("c"),
        "c": refer("d"),
        "d": {"allOf": [{} for _ in range(3 * width)]},
        "properties": {f"f{i}": {"$ref": "#/a"} for i in range(fields)},
    }


async def expire_requests(chat: Chat) -> None:
    """Let all open requests of the bot expire, and show them as expired."""
    async with chat.bot.database.write() as connection:
        await connection.execute(sa.update(human_requests).values(expires_at=1.0))
    services = chat.bot.services
    watching = asyncio.create_task(services.human_requests.run_expiry(services.request_messages.update))
    try:
        await wait_for_texts(chat, lambda found: any(words.QUESTION_EXPIRED in text for text in found))
    finally:
        watching.cancel()
        await asyncio.wait([watching])


async def test_a_schema_of_many_combinations_stops_nobody(simulator: Any, tmp_path: Path) -> None:
    bomb = create_bomb(25, MAX_FIELDS)
    async with run_conversation(
        simulator, tmp_path, create_input_request("Which?", bomb), "Hello.", core=ASKING
    ) as chat:
        await chat.say("ask me")
        await wait_for_button(chat, words.ANSWER)
        await chat.say("hello", user="grace")
        await wait_for_texts(chat, lambda found: "Hello." in found)
    async with run_conversation(simulator, tmp_path, "And again.", core=ASKING) as chat:
        await chat.press(words.ANSWER, user="grace")
        await simulator.wait_for(lambda: words.AUTHOR_MUST_ANSWER in chat.list_private_messages("grace"))
        await expire_requests(chat)
        await chat.say("hello")
        await wait_for_texts(chat, lambda found: found[-1:] == ["And again."])


#: Schemas of questions, each of which its author answers by a message.
POISON: dict[str, Any] = {
    "a long minimum": {"type": "integer", "minimum": 10**400},
    "a long maximum": {"type": "integer", "maximum": -(10**400)},
    "a long length": {"type": "string", "maxLength": 10**400, "minLength": 10**400},
    "a long number as an option": {"enum": [10**4000, -(10**4000)]},
    "references in a circle": {"$ref": "#/a", "a": {"allOf": [{"$ref": "#/b"}]}, "b": {"anyOf": [{"$ref": "#/a"}]}},
    "a type that is a list of lists": {"type": [[["string"]]]},
    "too many options": {"enum": [0] * 15_000},
}


@pytest.mark.parametrize("name", POISON)
async def test_any_schema_of_a_model_is_asked_and_answered(simulator: Any, tmp_path: Path, name: str) -> None:
    script = create_input_request("Which?", POISON[name]), "Noted.", "Hello."
    async with run_conversation(simulator, tmp_path, *script, core=ASKING) as chat:
        await chat.say("ask me")
        await chat.simulator.wait_for(lambda: any("Which?" in text for text in list_texts(chat)))
        await chat.say("the first")
        await wait_for_texts(chat, lambda found: found[-1:] == ["Noted."])
        await chat.say("hello")
        await wait_for_texts(chat, lambda found: found[-1:] == ["Hello."])
        assert [row.decision for row in await list_requests(chat)] == ["answered"]


def nest(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


def ask(schema: str) -> str:
    return f'{{"message": "Which?", "response_schema": {schema}}}'


#: Arguments of a call, as JSON texts that `json.loads` accepts, or fails at with a `RecursionError`.
BAD_ARGUMENTS = {
    "900 levels": ask(nest(900)),
    "100,000 levels": ask(nest(100_000)),
    "101 levels": nest(101),
    "NaN": ask('{"minimum": NaN}'),
    "infinity": ask('{"minimum": 1e999}'),
    "too many values": ask(f'{{"enum": [{"0," * 50_000}0]}}'),
    "too many characters": json.dumps({"message": "Which?" * 200_000}),
}


@pytest.mark.parametrize(
    ("name", "vendor"),
    [*((name, "openai") for name in BAD_ARGUMENTS), ("101 levels", "gemini"), ("too many values", "gemini")],
)
async def test_a_model_learns_that_its_json_is_over_a_limit(
    simulator: Any, tmp_path: Path, name: str, vendor: str
) -> None:
    made = list[str]()

    def save(message: str = "", response_schema: Any = None, a: Any = None) -> str:
        made.append(message)
        return "saved"

    def answer(request: ReceivedRequest) -> ScriptedResponse:
        if not request.tool_results:
            is_text = vendor == "openai"
            arguments = {} if is_text else json.loads(BAD_ARGUMENTS[name])
            return CallTool("save", arguments, id="c1", raw=BAD_ARGUMENTS[name] if is_text else None)
        (result,) = request.tool_results
        assert result.name == f"{MALFORMED_CALL_PREFIX}save"
        return "I could not save it."

    core = {"tools": [FunctionTool(save)], "vendor": vendor}
    async with run_conversation(simulator, tmp_path, answer, core=core) as chat:
        await chat.say("save it")
        await wait_for_texts(chat, lambda found: found[-1:] == ["I could not save it."])
        assert made == []


class Transfer(BaseTool):
    """Tool that needs an approval, with a secret argument and a schema that a server chose."""

    def __init__(self, schema: dict[str, Any], calls: list[Any]) -> None:
        super().__init__(name="transfer", description="Transfer money.")
        self._schema = schema
        self._calls = calls

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(name="transfer", parameters_json_schema=self._schema)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation()
            return {"error": "not approved yet"}
        self._calls.append(args)
        return "transferred"


async def test_a_tool_whose_secrets_cannot_be_found_is_not_approved(simulator: Any, tmp_path: Path) -> None:
    calls = list[Any]()
    secret = {"properties": {"pin": {"format": "password"}}}
    bomb = {"type": "object", **secret, "allOf": [{} for _ in range(MAX_SCHEMAS)]}

    def answer(request: ReceivedRequest) -> ScriptedResponse:
        if not request.tool_results:
            return CallTool("transfer", {"to": "mallory", "pin": "4711-0815"}, id="c1")
        assert "was not called" in request.tool_results[0].content["error"]
        return "I could not transfer it."

    core = {"tools": [Transfer(bomb, calls)]}
    async with run_conversation(simulator, tmp_path, answer, core=core) as chat:
        await chat.say("transfer it")
        await wait_for_texts(chat, lambda found: found[-1:] == ["I could not transfer it."])
        assert (await list_requests(chat), calls) == ([], [])
        await chat.say("and now?")
        await wait_for_texts(chat, lambda found: len(found) == 2)
        assert "4711" not in str(list_texts(chat))
