"""Answers that a schema refuses, or that a validator fails at, through both platforms' clients."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from channels.i18n import messages as words
from tests.channels.platforms import Chat, SlackChat, run_conversation, wait_for_texts
from tests.channels.requests.test_question_limits import create_workflow_settings
from tests.channels.requests.test_questions import ASKING, create_input_request, list_requests, wait_for_button


async def submit(chat: Chat, **entries: str) -> str:
    """Submit the form of the question, and return the error that the person sees; empty if it is accepted."""
    simulator = chat.simulator
    if isinstance(chat, SlackChat):
        if not simulator.modals("ada"):
            await chat.press(words.ANSWER)
            await simulator.wait_for(lambda: simulator.modals("ada"))
        (modal,) = simulator.modals("ada")
        is_accepted = await simulator.submit_modal(modal, **entries)
        assert is_accepted or modal.errors
        return "" if is_accepted else "\n".join(modal.errors.values())
    question = await wait_for_button(chat, words.ANSWER)
    await simulator.click_button("ada", question, question.buttons[words.ANSWER])
    modal = await simulator.wait_for(lambda: simulator.modals("ada") and simulator.modals("ada")[0])
    before = chat.list_private_messages()
    await simulator.submit_modal(modal, entries)
    await simulator.wait_for(
        lambda: (
            chat.list_private_messages() != before or not any(words.ANSWER in m.buttons for m in chat.list_replies())
        )
    )
    private = chat.list_private_messages()
    return "" if private == before else private[-1]


@asynccontextmanager
async def ask(simulator: Any, folder: Path, schema: Any) -> AsyncIterator[Chat]:
    """Run a bot whose model asks a question with this schema."""
    async with run_conversation(
        simulator, folder, create_input_request("Please order.", schema), "Ordered.", core=ASKING
    ) as chat:
        await chat.say("a shirt")
        await wait_for_button(chat, words.ANSWER)
        yield chat


def create_object(field: Any, **keywords: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": {"title": "A", **field}}, "required": ["a"], **keywords}


PAIR = {"properties": {"a": {"title": "A", "type": "string"}, "b": {"title": "Card", "type": "string"}}}
SENTENCE = {"type": "string", "pattern": "^(a|aa)+$"}

#: Schemas, each with entries that are refused, the sentence on the reason, entries that are accepted, and the answer.
REFUSED: dict[str, tuple[Any, dict[str, str], str, dict[str, str], Any]] = {
    "a thousands separator": (
        create_object({"type": "number"}),
        {"field-0": "1,000"},
        words.ENTRY_NOT_NUMBER,
        {"field-0": "1000"},
        {"a": 1000},
    ),
    "two separators": (
        create_object({"type": "number"}),
        {"field-0": "1.000,5"},
        words.ENTRY_NOT_NUMBER,
        {"field-0": "1000.5"},
        {"a": 1000.5},
    ),
    "401 digits": (
        create_object({"type": "integer", "multipleOf": 0.5}),
        {"field-0": "1" * 401},
        words.ENTRY_NOT_INTEGER,
        {"field-0": "7"},
        {"a": 7},
    ),
    "two minimums": (
        create_object({"allOf": [{"type": "integer", "minimum": 1}, {"minimum": 5}]}),
        {"field-0": "3"},
        words.ENTRY_TOO_SMALL.format(limit=5),
        {"field-0": "5"},
        {"a": 5},
    ),
    "fields of two parts": (
        {"allOf": [create_object({"type": "string"}), {"properties": {"b": {"type": "integer"}}, "required": ["b"]}]},
        {"field-0": "x", "field-1": "many"},
        words.ENTRY_NOT_INTEGER,
        {"field-0": "x", "field-1": "2"},
        {"a": "x", "b": 2},
    ),
    "a pattern": (
        create_object({"type": "string", "pattern": "^[A-Z]+$"}),
        {"field-0": "ab"},
        words.ENTRY_NOT_MATCHING.format(limit="`^[A-Z]+$`"),
        {"field-0": "AB"},
        {"a": "AB"},
    ),
    "one of two": (
        {**PAIR, "minProperties": 1},
        {},
        words.ENTRY_TOO_FEW_PARTS.format(limit=1),
        {"field-1": "x"},
        {"b": "x"},
    ),
    "both or none": (
        {**PAIR, "dependentRequired": {"a": ["b"]}},
        {"field-0": "x"},
        words.ENTRY_MISSING_PARTS.format(limit="`Card`"),
        {"field-0": "x", "field-1": "y"},
        {"a": "x", "b": "y"},
    ),
    "if and then": (
        {**PAIR, "if": {"required": ["a"]}, "then": {"required": ["b"]}},
        {"field-0": "x"},
        words.ENTRY_MISSING_PARTS.format(limit="`Card`"),
        {"field-0": "x", "field-1": "y"},
        {"a": "x", "b": "y"},
    ),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_form_says_why_an_entry_is_refused(simulator: Any, tmp_path: Path, name: str) -> None:
    schema, wrong, sentence, right, answer = REFUSED[name]
    async with ask(simulator, tmp_path, schema) as chat:
        assert sentence in await submit(chat, **wrong)
        assert not await submit(chat, **right)
        await wait_for_texts(chat, lambda found: found[-1] == "Ordered.")
        assert [row.answer for row in await list_requests(chat)] == [answer]


#: Schemas with entries that are accepted, and the answer.
ACCEPTED: dict[str, tuple[Any, dict[str, str], Any]] = {
    "a blank optional field with a default": (
        {"properties": {"a": {"type": "integer", "default": 3}, "b": {"type": "string"}}},
        {"field-0": "  ", "field-1": "x"},
        {"a": 3, "b": "x"},
    ),
    "a blank optional field": (
        {"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}},
        {"field-0": "  ", "field-1": "x"},
        {"b": "x"},
    ),
    "a pattern that hangs": (create_object(SENTENCE), {"field-0": "a" * 60 + "!"}, {"a": "a" * 60 + "!"}),
    "many patterns that hang": (
        create_object({"type": "array", "items": SENTENCE}),
        {"field-0": "\n".join(["a" * 60 + "!"] * 40)},
        {"a": ["a" * 60 + "!"] * 40},
    ),
    "a multiple that floats miss": (
        create_object({"type": "number", "multipleOf": 0.01}),
        {"field-0": "19.99"},
        {"a": 19.99},
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
async def test_a_form_accepts_an_entry(simulator: Any, tmp_path: Path, name: str) -> None:
    schema, entries, answer = ACCEPTED[name]
    async with ask(simulator, tmp_path, schema) as chat:
        assert not await submit(chat, **entries)
        await wait_for_texts(chat, lambda found: found[-1] == "Ordered.")
        assert [row.answer for row in await list_requests(chat)] == [answer]


#: Schemas at which a validator fails.
UNREADABLE: dict[str, Any] = {
    "draft": {"$schema": "https://example.com/draft", "type": "string"},
    "minimum": {"type": "integer", "minimum": "5"},
    "pattern": {"type": "string", "pattern": "("},
    "divisor": {"type": "number", "multipleOf": 0},
    "reference": {"type": "string", "not": {"$ref": "https://example.com/schema"}},
    "endless": {"type": "string", "not": {"$ref": "#"}},
    "length": {"properties": {"a": {"type": "string", "maxLength": "3"}}},
}


async def test_a_schema_that_cannot_be_checked_is_answered_by_a_text(simulator: Any, tmp_path: Path) -> None:
    async with run_conversation(simulator, tmp_path, "unused", core=create_workflow_settings(UNREADABLE)) as chat:
        for name in UNREADABLE:
            await chat.say(f"ask: {name}")
            question = await wait_for_button(chat, words.ANSWER)
            assert words.FORM_PROBLEM.strip("_") in question.text
            await chat.say("one")
            await wait_for_texts(chat, lambda found: found[-1] == f"Ordered: {json.dumps('one')}")
            await chat.simulator.wait_for(
                lambda: not any(words.ANSWER in reply.buttons for reply in chat.list_replies())
            )
