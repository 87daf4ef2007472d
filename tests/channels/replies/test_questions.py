"""Tests of questions as buttons, menus and forms, through the real clients of both platforms."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from google.adk.tools import LongRunningFunctionTool, request_input
from google.adk.tools.get_user_choice_tool import get_user_choice_tool

from channels.i18n import messages as words
from core.store.schema import human_requests
from sandbox.models import CallTool
from tests.channels.platforms import PLATFORMS, Talk, run_conversation, run_sandbox, texts, wait_for_texts


@pytest.fixture(params=PLATFORMS)
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    async with run_sandbox(request.param) as made:
        yield made


def ask_manager(about: str) -> None:
    """Asks the manager."""


ASKING: dict[str, Any] = {"tools": [get_user_choice_tool, request_input, LongRunningFunctionTool(ask_manager)]}


def choose(*options: str) -> CallTool:
    return CallTool("get_user_choice", {"options": list(options)}, id="c1")


def ask(message: str, schema: Any = None) -> CallTool:
    arguments = {"message": message} if schema is None else {"message": message, "response_schema": schema}
    return CallTool("adk_request_input", arguments, id="c1")


async def rows(talk: Talk) -> list[Any]:
    async with talk.bot.database.read() as connection:
        found = await connection.execute(sa.select(human_requests).order_by(human_requests.c.requested_at))
        return list(found.all())


async def wait_for_button(talk: Talk, label: str) -> Any:
    """Wait for a message with this button, and return it."""
    await talk.sandbox.wait_for(lambda: any(label in message.buttons for message in talk.replies()))
    return next(message for message in reversed(talk.replies()) if label in message.buttons)


async def test_a_button_of_the_asker_answers_once(sandbox: Any, tmp_path: Path) -> None:
    async with run_conversation(sandbox, tmp_path, choose("S", "M"), "M it is.", core=ASKING) as talk:
        await talk.say("a shirt")
        question = await wait_for_button(talk, "M")
        assert list(question.buttons) == ["S", "M"]
        assert words.CHOOSE_ONE in question.text
        await talk.press("M", user="grace")
        await talk.sandbox.wait_for(lambda: talk.private_messages("grace") == [words.NOT_ALLOWED_TO_ANSWER])
        await talk.press("M")
        await wait_for_texts(talk, lambda found: found[-1] == "M it is.")
        await talk.sandbox.wait_for(lambda: not talk.replies()[1].buttons)
        assert "✅" in texts(talk)[1]
        (row,) = await rows(talk)
        assert (row.kind, row.decision, row.answer) == ("question", "answered", "M")
        assert "'result': 'M'" in str(talk.bot.model.requests[-1]).replace('"', "'").replace("\\", "")


async def test_a_message_of_the_asker_answers(sandbox: Any, tmp_path: Path) -> None:
    async with run_conversation(sandbox, tmp_path, ask("Which size?"), "Noted.", core=ASKING) as talk:
        await talk.say("a shirt")
        question = await wait_for_button(talk, words.ANSWER)
        assert "Which size?" in question.text
        await talk.say("rather large")
        await wait_for_texts(talk, lambda found: found[-1] == "Noted.")
        await talk.sandbox.wait_for(lambda: not talk.replies()[1].buttons)
        (row,) = await rows(talk)
        assert (row.decision, row.answer, row.answer_run is not None) == ("answered", None, True)


async def test_an_expired_question_says_so_and_the_next_message_is_no_answer(sandbox: Any, tmp_path: Path) -> None:
    async with run_conversation(sandbox, tmp_path, choose("S", "M"), "Hello.", core=ASKING) as talk:
        await talk.say("a shirt")
        await wait_for_button(talk, "M")
        await talk.bot.wait_for_turns(1)
        async with talk.bot.database.write() as connection:
            await connection.execute(sa.update(human_requests).values(expires_at=1.0))
        services = talk.bot.services
        watching = asyncio.create_task(services.human_requests.run_expiry(services.update_request_message))
        try:
            await wait_for_texts(talk, lambda found: words.QUESTION_EXPIRED in found[-1])
        finally:
            watching.cancel()
            await asyncio.wait([watching])
        await talk.say("hello")
        await wait_for_texts(talk, lambda found: found[-1] == "Hello.")
        assert [row.decision for row in await rows(talk)] == ["expired"]


async def test_a_stop_closes_a_question(sandbox: Any, tmp_path: Path) -> None:
    async with run_conversation(sandbox, tmp_path, choose("S", "M"), "Hello.", core=ASKING) as talk:
        await talk.say("a shirt")
        await wait_for_button(talk, "M")
        await talk.bot.wait_for_turns(1)
        await talk.say("stop")
        await wait_for_texts(talk, lambda found: any(words.QUESTION_VOID in text for text in found))
        assert await rows(talk) == []
        await talk.say("hello")
        await wait_for_texts(talk, lambda found: found[-1] == "Hello.")


async def test_a_bad_schema_is_answered_as_text(sandbox: Any, tmp_path: Path) -> None:
    bad = {"$ref": "#/nowhere"}
    async with run_conversation(sandbox, tmp_path, ask("Which size?", bad), "Noted.", core=ASKING) as talk:
        await talk.say("a shirt")
        question = await wait_for_button(talk, words.ANSWER)
        assert words.FORM_PROBLEM.strip("_") in question.text
        await talk.say("XL")
        await wait_for_texts(talk, lambda found: found[-1] == "Noted.")


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
        run_sandbox("slack") as slack,
        run_conversation(slack, tmp_path, ask("Please order.", FORM), "Ordered.", core=ASKING) as talk,
    ):
        await talk.say("a shirt")
        await wait_for_button(talk, words.ANSWER)
        await talk.press(words.ANSWER, user="grace")
        await slack.wait_for(lambda: talk.private_messages("grace") == [words.NOT_ALLOWED_TO_ANSWER])
        await talk.press(words.ANSWER)
        await slack.wait_for(lambda: slack.modals("ada"))
        (modal,) = slack.modals("ada")
        entered = {"field-0": "Ada", "field-1": "0", "field-2": "option:1"}
        assert not await slack.submit_modal(modal, **entered)
        assert modal.errors == {"field-1": words.ENTRY_TOO_SMALL.format(limit=1)}
        assert await slack.submit_modal(modal, **{**entered, "field-1": "3"})
        await wait_for_texts(talk, lambda found: found[-1] == "Ordered.")
        (row,) = await rows(talk)
        assert row.answer == {"name": "Ada", "count": 3, "size": "M"}
        assert [one.event_key for one in await talk.bot.inbox_rows()][1] == f"decision:{row.id}"
