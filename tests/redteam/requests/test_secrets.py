"""Attacks on secrets: people's secret answers and secret arguments, read by others."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from google.adk.events.event import Event
from google.adk.events.request_input import RequestInput
from google.adk.tools import load_memory, request_input
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import Workflow
from google.genai import types
from pydantic import BaseModel, SecretStr

from bot.cli import turn_view
from bot.monitoring.logs import RedactingFormatter, RedactingJsonFormatter
from channels.i18n import messages as words
from chatrig.models import CallTool
from core.conversations.turn_report import TurnReports
from core.privacy.deletion import DeletionRequest, DeletionService
from core.privacy.export import ExportFormat, stream_export
from core.store.schema import messages
from core.tools import search_history
from core.tools.tool import Tool, to_adk_tool
from core.usage.prices import Prices
from tests.channels.commands.why_requests import run_why_command
from tests.channels.platforms import PLATFORMS, SlackChat, list_texts, run_conversation, run_simulator, wait_for_texts
from tests.channels.wiring import find_tables_with

#: A secret that no pattern recognizes, under a name that no pattern recognizes; and one too short to be searched for.
SECRET, PIN = "hunter2-zq", "917"


class Login(BaseModel):
    key: SecretStr
    codes: list[SecretStr]


class Account(BaseModel):
    user: str
    phrase: SecretStr
    pin: SecretStr
    login: Login


ENTRIES = {
    "user": "grace-h",
    "phrase": SECRET,
    "pin": PIN,
    "login": json.dumps({"key": f"{SECRET}-key", "codes": [f"{SECRET}-code"]}),
}


async def answer_form(chat: Any, entries: dict[str, str], user: str = "ada") -> None:
    """Open the form of the newest question, enter the values in the order of its fields, and submit it."""
    values = {f"field-{i}": value for i, value in enumerate(entries.values())}
    simulator = chat.simulator
    await simulator.wait_for(lambda: any(words.ANSWER in message.buttons for message in chat.list_replies()))
    question = next(message for message in reversed(chat.list_replies()) if words.ANSWER in message.buttons)
    if isinstance(chat, SlackChat):
        await chat.press(words.ANSWER, user=user)
        await simulator.wait_for(lambda: simulator.modals(user))
        assert await simulator.submit_modal(simulator.modals(user)[0], **values)
    else:
        await simulator.click_button(user, question, question.buttons[words.ANSWER])
        modal = await simulator.wait_for(lambda: simulator.modals(user) and simulator.modals(user)[0])
        await simulator.submit_modal(modal, values)


async def run_export_command(chat: Any, user: str, form: str) -> str:
    """Run `/export` as a user, and return the private text or file."""
    if isinstance(chat, SlackChat):
        slack, dm = chat.simulator, chat.simulator.open_dm(user)
        responses = await slack.run_command(user, chat.channel.id, "/export", form)

        def list_exports() -> list[str]:
            files = [file.data.decode() for message in slack.messages(dm) for file in message.files]
            texts = [message.text for message in responses]
            return [text for text in [*files, *texts] if "onversation" in text and "slack:" in text]

        return str((await slack.wait_for(list_exports))[-1])
    answers = await chat.simulator.run_command(user, chat.place, "export", form=form)
    await chat.simulator.wait_for(lambda: answers and not answers[0].loading)
    (file,) = answers[0].content.attachments
    return str(file.data.decode())


async def export_as_operator(chat: Any, session: str, format_: ExportFormat) -> str:
    pieces = stream_export(chat.bot.database, session, format_, Prices())
    return "".join([piece async for piece in pieces])


async def list_outputs(chat: Any, *users: str) -> dict[str, str]:
    """Return all that people and operators can read of the conversation, by its name."""
    turns = await chat.bot.list_turns()
    outputs = dict[str, str]()
    for user in users:
        for form in ("md", "json"):
            outputs[f"/export {form} of {user}"] = await run_export_command(chat, user, form)
            count = len(chat.list_files())
            await chat.say(f"export {form}", user=user)
            await chat.simulator.wait_for(lambda count=count: len(chat.list_files()) > count)
            outputs[f"export {form} of {user}"] = chat.list_files()[-1][1].decode()
        for turn in turns:
            outputs[f"/why {turn.id} of {user}"] = await run_why_command(chat, user, turn.id)
    for turn in turns:
        report = await TurnReports(chat.bot.database, Prices()).get(turn.id)
        assert report is not None
        outputs[f"parley why {turn.id}"] = json.dumps(turn_view.to_json(report))
    for form_ in ("md", "json"):
        outputs[f"parley export {form_}"] = await export_as_operator(chat, turns[0].session, form_)
    outputs["messages"] = "\n".join(list_texts(chat))
    async with chat.bot.database.read() as connection:
        columns = [column for column in messages.c if column.name != "unmasked"]
        outputs["columns"] = str((await connection.execute(sa.select(*columns))).all())
    return outputs


def find_leaks(outputs: dict[str, str]) -> list[str]:
    """Return the names of outputs with a secret."""
    return [name for name, output in outputs.items() if SECRET in output or f'"{PIN}"' in output or f"={PIN}" in output]


@pytest.mark.parametrize("platform", PLATFORMS)
async def test_only_the_run_reads_a_secret_answer(platform: str, tmp_path: Path) -> None:
    received = list[Any]()

    def ask(node_input: Any) -> Any:
        yield RequestInput(message="Which account?", response_schema=Account, payload={"approvers": ["admins"]})

    def log_in(node_input: Any) -> Any:
        received.append(node_input)
        yield Event(output={"copied": node_input, "text": f"key={node_input['phrase']}", "pin": node_input["pin"]})

    def end(node_input: Any) -> Any:
        received.append(node_input)
        yield types.ModelContent("Logged in.")

    root = Workflow(name="shop", edges=[("START", ask, log_in, end)])
    async with run_simulator(platform) as simulator:
        admins = [str(getattr(simulator.people["grace"], "id", simulator.people["grace"]))]
        async with run_conversation(simulator, tmp_path, "unused", core={"root": root}, admins=admins) as chat:
            await chat.say("log in")
            await answer_form(chat, ENTRIES, user="grace")
            await wait_for_texts(chat, lambda found: found and found[-1] == "Logged in.")
            await chat.bot.wait_for_turns(2)
            assert received[0]["phrase"] == SECRET
            assert received[0]["login"] == {"key": f"{SECRET}-key", "codes": [f"{SECRET}-code"]}
            assert received[1]["copied"] == received[0]
            outputs = await list_outputs(chat, "ada")
            assert find_leaks(outputs) == []
            assert "grace-h" in outputs["/export json of ada"] or "[hidden]" in outputs["/export json of ada"]
            assert "grace-h" in outputs["parley export json"]


@pytest.mark.parametrize("platform", PLATFORMS)
async def test_the_deletion_of_a_person_deletes_their_secret_answers(platform: str, tmp_path: Path) -> None:
    def ask(node_input: Any) -> Any:
        yield RequestInput(message="Which account?", response_schema=Account, payload={"approvers": ["admins"]})

    def ask_again(node_input: Any) -> Any:
        yield RequestInput(message="Since when?", response_schema=str)

    root = Workflow(name="shop", edges=[("START", ask, ask_again)])
    async with run_simulator(platform) as simulator:
        grace = str(getattr(simulator.people["grace"], "id", simulator.people["grace"]))
        async with run_conversation(simulator, tmp_path, "unused", core={"root": root}, admins=[grace]) as chat:
            await chat.say("log in")
            await answer_form(chat, ENTRIES, user="grace")
            await chat.simulator.wait_for(lambda: any("Since when?" in text for text in list_texts(chat)))
            await chat.bot.wait_for_turns(2)
            assert "messages" in await find_tables_with(chat.bot, SECRET)  # for the run, which waits
            await DeletionService(chat.bot.database, Prices()).delete(DeletionRequest(user_id=grace))
            assert await find_tables_with(chat.bot, SECRET) == []


LOGIN_SCHEMA = {
    "type": "object",
    "properties": {"user": {"type": "string"}, "phrase": {"type": "string", "format": "password"}},
}


async def _log_in(arguments: dict[str, Any]) -> dict[str, Any]:
    CALLS.append(arguments)
    return {"session": f"of {arguments['phrase']}", "used": arguments["phrase"]}


CALLS = list[dict[str, Any]]()
LOG_IN = Tool("log_in", "Logs in.", _log_in, LOGIN_SCHEMA)


def ask_for_secret(schema: Any) -> CallTool:
    return CallTool("adk_request_input", {"message": "The phrase?", "response_schema": schema}, id="c1")


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()


@pytest.mark.parametrize("way", ["form", "message"])
@pytest.mark.parametrize("platform", PLATFORMS)
async def test_no_later_model_call_reads_a_secret_answer(platform: str, way: str, tmp_path: Path) -> None:
    script = (
        ask_for_secret({"type": "string", "format": "password"}),
        CallTool("log_in", {"user": "ada", "phrase": SECRET}, id="c2"),
        f"Logged in with {SECRET}.",
        CallTool("search_history", {"query": SECRET[-2:]}, id="c3"),
        "Hello, linus.",
    )
    tools = [request_input, to_adk_tool(LOG_IN), to_adk_tool(search_history), load_memory]
    async with (
        run_simulator(platform) as simulator,
        run_conversation(simulator, tmp_path, *script, core={"tools": tools}) as chat,
    ):
        await chat.say("log me in")
        if way == "form":
            await answer_form(chat, {"": SECRET})
        else:
            await chat.simulator.wait_for(lambda: any(words.ANSWER in reply.buttons for reply in chat.list_replies()))
            await chat.bot.wait_for_turns(1)
            await chat.say(SECRET)
        await wait_for_texts(chat, lambda found: found and found[-1] == f"Logged in with {SECRET}.")
        await chat.bot.wait_for_turns(2)
        assert [call["phrase"] for call in CALLS] == [SECRET]  # the run itself has it
        assert SECRET in str(chat.bot.model.requests[1])
        await chat.say("hello", user="linus")
        await wait_for_texts(chat, lambda found: found and found[-1] == "Hello, linus.")
        await chat.bot.wait_for_turns(3)
        assert SECRET not in str(chat.bot.model.requests[3]["messages"])
        found = chat.bot.model.requests[4]["messages"][-1]["content"]
        assert json.loads(found) == {"found": []}  # a search does not reveal which message has it
        outputs = await list_outputs(chat, "ada", "linus")
        del outputs["messages"]  # the model's own answer
        assert find_leaks(outputs) == []


LOGIN_CALL = {"user": "ada", "phrase": SECRET}


async def fail_to_log_in(arguments: dict[str, Any]) -> str:
    raise OSError(f"{arguments['phrase']} was refused, and so was {json.dumps(arguments)}")


@pytest.mark.parametrize("formatter", [RedactingFormatter(), RedactingJsonFormatter()])
@pytest.mark.parametrize("platform", PLATFORMS)
async def test_a_secret_argument_is_read_by_its_tool_alone(
    platform: str, formatter: logging.Formatter, tmp_path: Path
) -> None:
    lines = list[str]()

    class Recorder(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler = Recorder(logging.INFO)
    handler.setFormatter(formatter)
    script = CallTool("log_in", LOGIN_CALL), CallTool("fail", LOGIN_CALL), "It was refused.", "Hello, linus."
    failing = Tool("fail", "Fails.", fail_to_log_in, LOGIN_SCHEMA, progress="Logs in with {phrase}")
    logging.getLogger().addHandler(handler)
    try:
        async with (
            run_simulator(platform) as simulator,
            run_conversation(
                simulator, tmp_path, *script, core={"tools": [to_adk_tool(LOG_IN), to_adk_tool(failing)]}
            ) as chat,
        ):
            await chat.say("log me in")
            await wait_for_texts(chat, lambda found: found and found[-1] == "It was refused.")
            await chat.bot.wait_for_turns(1)
            assert CALLS == [LOGIN_CALL]
            await chat.say("hello", user="linus")
            await wait_for_texts(chat, lambda found: found and found[-1] == "Hello, linus.")
            await chat.bot.wait_for_turns(2)
            assert SECRET not in str(chat.bot.model.requests[3]["messages"])
            assert '"user"' in str(chat.bot.model.requests[3]["messages"])
            assert find_leaks(await list_outputs(chat, "ada", "linus")) == []
            assert any("tool fail failed" in line for line in lines)
            assert SECRET not in "".join(lines)
    finally:
        logging.getLogger().removeHandler(handler)


@pytest.mark.parametrize("platform", PLATFORMS)
async def test_an_approval_hides_a_secret_answer_and_the_call_gets_it(platform: str, tmp_path: Path) -> None:
    async def note(arguments: dict[str, Any]) -> str:
        CALLS.append(arguments)
        return "noted"

    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    tool = Tool("note", "Notes.", note, schema, require_confirmation=True)
    script = (
        ask_for_secret({"type": "object", "properties": {"phrase": {"type": "string", "writeOnly": True}}}),
        CallTool("note", {"text": f"it is {SECRET}"}, id="c2"),
        "Hello, linus.",
        "Noted.",
    )
    tools = [request_input, to_adk_tool(tool)]
    async with run_simulator(platform) as simulator:
        async with run_conversation(simulator, tmp_path, *script, core={"tools": tools}) as chat:
            await chat.say("note it")
            await answer_form(chat, {"phrase": SECRET})
            await chat.simulator.wait_for(lambda: any(words.APPROVE in reply.buttons for reply in chat.list_replies()))
            await chat.bot.wait_for_turns(2)
            assert SECRET not in "".join(list_texts(chat))
            assert not any(words.ALWAYS_ALLOW in reply.buttons for reply in chat.list_replies())
            await chat.say("hello", user="linus")  # while the run waits
            await wait_for_texts(chat, lambda found: found and found[-1] == "Hello, linus.")
            await chat.bot.wait_for_turns(3)
            assert SECRET not in str(chat.bot.model.requests[2]["messages"])
            former = chat
        async with run_conversation(simulator, tmp_path, "Noted.", core={"tools": tools}) as chat:  # after a restart
            if isinstance(former, SlackChat) and isinstance(chat, SlackChat):
                chat.root = former.root
            await chat.press(words.APPROVE)
            await wait_for_texts(chat, lambda found: found and found[-1] == "Noted.")
            await chat.bot.wait_for_turns(4)
            assert [{"text": f"it is {SECRET}"}] == CALLS
            assert SECRET in str(chat.bot.model.requests[0]["messages"])
            assert find_leaks(await list_outputs(chat, "ada", "linus")) == []


@pytest.mark.parametrize("platform", PLATFORMS)
async def test_an_approval_of_a_workflows_tool_hides_secret_arguments(platform: str, tmp_path: Path) -> None:
    def log_in(user: str, phrase: SecretStr) -> str:
        CALLS.append({"user": user, "phrase": phrase})
        return "Logged in."

    def enter(node_input: Any) -> dict[str, str]:
        return LOGIN_CALL

    tool = FunctionTool(log_in, require_confirmation=True)
    root = Workflow(name="shop", edges=[("START", enter, tool)])
    async with (
        run_simulator(platform) as simulator,
        run_conversation(simulator, tmp_path, "unused", core={"root": root}) as chat,
    ):
        await chat.say("log in")
        await chat.simulator.wait_for(lambda: any(words.APPROVE in reply.buttons for reply in chat.list_replies()))
        await chat.bot.wait_for_turns(1)
        assert f'"phrase": "[hidden: {len(SECRET)} characters]"' in list_texts(chat)[1]
        outputs = await list_outputs(chat, "ada")
        del outputs["columns"]  # the event with the node's output, which no other run reads
        assert find_leaks(outputs) == []
        await chat.press(words.APPROVE)
        await wait_for_texts(chat, lambda found: found and found[-1] == "Logged in.")
        assert len(CALLS) == 1
