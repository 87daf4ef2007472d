"""Questions to users as buttons, menus and forms, through both platforms' clients."""

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from google.adk.events.event import Event
from google.adk.events.request_input import RequestInput
from google.adk.tools import LongRunningFunctionTool, request_input
from google.adk.tools.get_user_choice_tool import get_user_choice_tool
from google.adk.workflow import JoinNode, Workflow

from channels.i18n import messages as words
from chatrig.models import CallTool
from core.store.schema import human_requests
from tests.channels.platforms import Chat, list_texts, run_conversation, run_simulator, wait_for_texts


def ask_manager(about: str) -> None:
    """Ask the manager, who answers later."""


ASKING: dict[str, Any] = {"tools": [get_user_choice_tool, request_input, LongRunningFunctionTool(ask_manager)]}


def create_choice(*options: str) -> CallTool:
    return CallTool("get_user_choice", {"options": list(options)}, id="c1")


def create_input_request(message: str, schema: Any = None) -> CallTool:
    arguments = {"message": message} if schema is None else {"message": message, "response_schema": schema}
    return CallTool("adk_request_input", arguments, id="c1")


async def list_requests(chat: Chat) -> list[Any]:
    async with chat.bot.database.read() as connection:
        found = await connection.execute(sa.select(human_requests).order_by(human_requests.c.requested_at))
        return list(found.all())


async def wait_for_button(chat: Chat, label: str) -> Any:
    """Wait until a message has this button, and return the newest such message."""
    await chat.simulator.wait_for(lambda: any(label in message.buttons for message in chat.list_replies()))
    return next(message for message in reversed(chat.list_replies()) if label in message.buttons)


async def test_a_bad_schema_is_answered_as_text(simulator: Any, tmp_path: Path) -> None:
    bad = {"$ref": "#/nowhere"}
    async with run_conversation(
        simulator, tmp_path, create_input_request("Which size?", bad), "Noted.", core=ASKING
    ) as chat:
        await chat.say("a shirt")
        question = await wait_for_button(chat, words.ANSWER)
        assert words.FORM_PROBLEM.strip("_") in question.text
        await chat.say("XL")
        await wait_for_texts(chat, lambda found: found[-1] == "Noted.")


FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name"},
        "count": {"type": "integer", "minimum": 1, "default": 2},
        "size": {"enum": ["S", "M"]},
        "note": {"type": "string"},
    },
    "required": ["name", "count", "size"],
}


async def test_a_form_shows_errors_and_is_submitted_on_slack(tmp_path: Path) -> None:
    async with (
        run_simulator("slack") as slack,
        run_conversation(slack, tmp_path, create_input_request("Please order.", FORM), "Ordered.", core=ASKING) as chat,
    ):
        await chat.say("a shirt")
        await wait_for_button(chat, words.ANSWER)
        await chat.press(words.ANSWER, user="grace")
        await slack.wait_for(lambda: chat.list_private_messages("grace") == [words.AUTHOR_MUST_ANSWER])
        await chat.press(words.ANSWER)
        await slack.wait_for(lambda: slack.modals("ada"))
        (modal,) = slack.modals("ada")
        entered = {"field-0": "Ada", "field-1": "0", "field-2": "option:1"}
        assert not await slack.submit_modal(modal, **entered)
        assert modal.errors == {"field-1": words.ENTRY_TOO_SMALL.format(limit=1)}
        assert await slack.submit_modal(modal, **{**entered, "field-1": "3"})
        await wait_for_texts(chat, lambda found: found[-1] == "Ordered.")
        (row,) = await list_requests(chat)
        assert row.answer == {"name": "Ada", "count": 3, "size": "M"}
        assert [message.event_key for message in await chat.bot.list_inbox_messages()][1] == f"decision:{row.id}"


async def test_a_form_has_pages_and_is_corrected_on_discord(tmp_path: Path) -> None:
    pages = {f"f{i}": {"type": "integer" if i == 1 else "string", "title": f"Field {i}"} for i in range(7)}
    schema = {"type": "object", "properties": {**pages, "size": {"enum": ["S", "M"]}}, "required": ["f1", "size"]}
    async with (
        run_simulator("discord") as discord,
        run_conversation(
            discord, tmp_path, create_input_request("Please order.", schema), "Ordered.", core=ASKING
        ) as chat,
    ):

        async def open_form(message: Any, label: str, user: str = "ada") -> Any:
            await discord.click_button(user, message, message.buttons[label])
            return await discord.wait_for(lambda: discord.modals(user) and discord.modals(user)[0])

        def find_private_message(label: str) -> Any:
            messages = reversed(discord.messages(discord.channels["general"]))
            return next((m for m in messages if m.ephemeral_to and label in m.buttons), None)

        await chat.say("a shirt")
        question = await wait_for_button(chat, words.ANSWER)
        await discord.click_button("grace", question, question.buttons[words.ANSWER])
        await discord.wait_for(lambda: chat.list_private_messages("grace") == [words.AUTHOR_MUST_ANSWER])
        await discord.submit_modal(await open_form(question, words.ANSWER), {"field-0": "Ada", "field-1": "many"})
        correction = await discord.wait_for(lambda: find_private_message(words.CORRECT_ANSWER))
        assert f"Field 1: {words.ENTRY_NOT_INTEGER}" in correction.text
        modal = await open_form(correction, words.CORRECT_ANSWER)
        assert "Ada" in str(modal.components)
        await discord.submit_modal(modal, {"field-1": "3"})
        more = await discord.wait_for(lambda: find_private_message(words.CONTINUE_FORM))
        assert more.text == words.FORM_CONTINUES.format(done=1, count=2)
        await discord.submit_modal(await open_form(more, words.CONTINUE_FORM), {"field-7": ["option:1"]})
        await wait_for_texts(chat, lambda found: found[-1] == "Ordered.")
        (row,) = await list_requests(chat)
        assert (row.answer, row.drafts) == ({"f0": "Ada", "f1": 3, "size": "M"}, {})


async def test_many_options_are_pages_of_a_menu(simulator: Any, tmp_path: Path) -> None:
    options = [f"Option {number}" for number in range(200)]
    async with run_conversation(simulator, tmp_path, create_choice(*options), "Done.", core=ASKING) as chat:
        await chat.say("a shirt")
        await wait_for_button(chat, words.MORE_OPTIONS)
        size = chat.bot.platform.max_menu_options
        await chat.press(words.MORE_OPTIONS)
        question = await wait_for_button(chat, words.PREVIOUS_OPTIONS)
        (row,) = await list_requests(chat)
        option = f"option:{size + 1}:{row.id}"
        if hasattr(simulator, "select_values"):
            await simulator.select_values("ada", question, f"menu:{row.id}", [option])
        else:
            assert await simulator.set_input("ada", question, f"menu:{row.id}", option)
        await wait_for_texts(chat, lambda found: found[-1] == "Done.")
        assert [row.answer for row in await list_requests(chat)] == [f"Option {size + 1}"]


async def test_questions_of_parallel_agents_are_answered_one_by_one(simulator: Any, tmp_path: Path) -> None:
    async def size(node_input: Any) -> Any:
        yield RequestInput(message="Which size?", response_schema={"enum": ["S", "M"]})

    async def count(node_input: Any) -> Any:
        yield RequestInput(message="How many?", response_schema=int)

    async def order(node_input: Any) -> Any:
        yield Event.model_validate({"message": "One moment."})
        yield f"Ordered {node_input}."

    join = JoinNode(name="join")
    edges: Any = [("START", (size, count), join, order)]
    root = Workflow(name="shop", edges=edges)
    async with run_conversation(simulator, tmp_path, "unused", core={"root": root}) as chat:
        await chat.say("a shirt")
        await wait_for_button(chat, "M")
        await wait_for_button(chat, words.ANSWER)
        await chat.press("M")
        await chat.simulator.wait_for(lambda: not any("M" in message.buttons for message in chat.list_replies()))
        await chat.say("many")
        await wait_for_texts(chat, lambda found: any(words.ENTRY_NOT_INTEGER in text for text in found))
        await chat.say("2")
        await wait_for_texts(chat, lambda found: any(words.ANSWER_NOTED.strip("_") in text for text in found))
        await wait_for_texts(chat, lambda found: any("'M'" in text and "2" in text for text in found))
        assert any(text.startswith("One moment.\n\nOrdered") for text in list_texts(chat))
        assert [(row.decision, row.answer) for row in await list_requests(chat)] == [("answered", "M"), ("answered", 2)]
