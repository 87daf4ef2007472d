"""Questions that look like approvals or decisions, and records that show another answer than the one given."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.adk.events.request_input import RequestInput
from google.adk.workflow import Workflow
from google.genai import types

from channels.i18n import messages as words
from chatrig.slack import SlackSimulator
from core.messages.identity import INVISIBLE_CHARACTERS
from core.models.tool_calls import MAX_JSON_LEVELS
from tests.channels.platforms import PLATFORMS, Chat, list_texts, run_conversation, run_simulator, wait_for_texts
from tests.channels.requests.test_questions import ASKING, create_input_request, list_requests, wait_for_button


@pytest.fixture(params=PLATFORMS)
async def simulator(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    async with run_simulator(request.param) as simulator:
        yield simulator


#: A text that shows an approval and a decision, and leaves a code block open.
IMITATION = "**Approve `refund`?**\n\n✅ Approved by grace, 2026-11-28 01:00 (UTC).\n\n```json"

#: More texts that would reach the lines after them, or look like these.
IMITATIONS = (
    IMITATION,
    "~~~~\ncode",
    "- a\n  ```\n  code",
    "||a spoiler\n\n`a tick\n\n**bold\n\n<!-- a comment\n\n<details>",
    ">>> a quote to the end\n\n_The author can answer until 2030-01-01 00:00 (UTC)._",
    "a\r✅ Approved by grace.\x0b✅ Approved by grace.\u2028✅ Approved by grace.\x85✅ Approved by grace.",
    "\n\n\n    ✅ Approved by grace.",
    "x" * 1990 + "\n```\n✅ Approved by grace.",
)


def list_own_lines(text: str) -> list[str]:
    """Return the lines of a message that are in no block quote, without blank ones."""
    return [line for line in text.split("\n") if line.strip() and not line.startswith(">")]


@pytest.mark.parametrize("text", IMITATIONS)
async def test_a_question_cannot_look_like_an_approval_or_a_decision(simulator: Any, tmp_path: Path, text: str) -> None:
    options = {
        "oneOf": [{"const": 1, "title": "✅ Approved by grace, 2026-11-28 01:00 (UTC)."}, {"const": 2, "title": "Deny"}]
    }
    async with run_conversation(simulator, tmp_path, create_input_request(text, options), "Done.", core=ASKING) as chat:
        await chat.say("refund, please")
        await wait_for_button(chat, "Deny")
        heading, rule = list_own_lines("\n".join(list_texts(chat)[1:]))
        assert heading == f"❓ {words.QUESTION_HEADING}"
        assert rule.startswith(words.AUTHOR_ANSWERS.split("{until}")[0])
        await chat.press("✅ Approved by grace, 2026-11-28 01:00 (UTC).")
        await wait_for_texts(chat, lambda found: found[-1:] == ["Done."])
        await chat.simulator.wait_for(lambda: not any("Deny" in reply.buttons for reply in chat.list_replies()))
        answered = "\n".join(list_texts(chat)[1:-1])
        heading, decision = list_own_lines(answered)
        assert decision.startswith("✅ Answered by ")
        assert answered.endswith("\n> **✅ Approved by grace, 2026-11-28 01:00 UTC.**")


async def test_a_long_list_of_options_is_quoted_too(simulator: Any, tmp_path: Path) -> None:
    options = {"enum": [f"✅ Approved by grace, 2026-11-28 01:00 (UTC). {'.' * 70} {i}" for i in range(3)]}
    async with run_conversation(simulator, tmp_path, create_input_request("Which?", options), core=ASKING) as chat:
        await chat.say("refund, please")
        texts = await wait_for_texts(chat, lambda found: any("2. ✅" in text for text in found))
        assert len(list_own_lines(texts[-1])) == 2


async def test_labels_have_no_characters_that_turn_or_hide_text(simulator: Any, tmp_path: Path) -> None:
    label = "\u202eyned\u202c\u200b \ufeffnow\u2066"
    properties = {"a": {"title": label, "description": label, "enum": [label, "b"]}, label: {"type": "boolean"}}
    script = (
        create_input_request("Which?", {"enum": [label, "other"]}),
        "Done.",
        create_input_request(label, {"type": "object", "properties": properties}),
    )
    async with run_conversation(simulator, tmp_path, *script, core=ASKING) as chat:
        await chat.say("ask me")
        assert "other" in (await wait_for_button(chat, "yned now")).buttons
        await chat.press("yned now")
        await wait_for_texts(chat, lambda found: found[-1:] == ["Done."])
        await chat.say("ask me again")
        await wait_for_button(chat, words.ANSWER)
        await chat.press(words.ANSWER)
        (modal,) = await simulator.wait_for(lambda: simulator.modals("ada"))
        shown = json.dumps(get_modal(modal), ensure_ascii=False)
        assert "yned now" in shown
        assert not INVISIBLE_CHARACTERS.search(shown)


def get_modal(modal: Any) -> Any:
    """Return the components or blocks of a modal, as the bot sent them."""
    return modal.components if hasattr(modal, "components") else modal.content


@pytest.mark.parametrize("pressed", range(3))
async def test_the_record_shows_the_option_that_was_pressed(simulator: Any, tmp_path: Path, pressed: int) -> None:
    values = [1, True, 1.0]
    labels = ["Delete everything", "Keep everything", "Ask later"]
    schema = {"oneOf": [{"const": value, "title": label} for value, label in zip(values, labels, strict=True)]}
    async with run_conversation(
        simulator, tmp_path, create_input_request("Sure?", schema), "Done.", core=ASKING
    ) as chat:
        await chat.say("tidy up")
        await wait_for_button(chat, labels[pressed])
        await chat.press(labels[pressed])
        await wait_for_texts(chat, lambda found: found[-1:] == ["Done."])
        await chat.simulator.wait_for(lambda: not any(labels[0] in reply.buttons for reply in chat.list_replies()))
        (answered,) = [text for text in list_texts(chat) if "Answered by" in text]
        assert [label for label in labels if label in answered] == [labels[pressed]]
        (row,) = await list_requests(chat)
        assert json.dumps(row.answer) == json.dumps(values[pressed])


#: Entries of a field for JSON, with the reason why each is refused.
BAD_JSON = {
    "[" * 1400 + "]" * 1400: words.ENTRY_TOO_NESTED.format(limit=MAX_JSON_LEVELS),
    "[" * 101 + "]" * 101: words.ENTRY_TOO_NESTED.format(limit=MAX_JSON_LEVELS),
    "[NaN]": words.ENTRY_NOT_JSON_NUMBER,
    '{"a": -Infinity}': words.ENTRY_NOT_JSON_NUMBER,
    "[1e999]": words.ENTRY_NOT_JSON_NUMBER,
    "[": words.ENTRY_NOT_JSON,
}


async def submit_json(chat: Chat, entry: str) -> str:
    """Enter a text as the only field of the form, and return the error."""
    if isinstance(chat.simulator, SlackSimulator):
        if not chat.simulator.modals("ada"):
            await chat.press(words.ANSWER)
        (modal,) = await chat.simulator.wait_for(lambda: chat.simulator.modals("ada"))
        assert not await chat.simulator.submit_modal(modal, **{"field-0": entry})
        return str(modal.errors["field-0"])
    await chat.press(words.ANSWER)
    (modal,) = await chat.simulator.wait_for(lambda: chat.simulator.modals("ada"))
    before = chat.list_private_messages("ada")
    await chat.simulator.submit_modal(modal, {"field-0": entry})
    await chat.simulator.wait_for(lambda: chat.list_private_messages("ada") != before)
    return chat.list_private_messages("ada")[-1]


@pytest.mark.parametrize("entry", BAD_JSON, ids=lambda entry: entry[:10])
async def test_json_over_a_limit_is_refused_with_the_reason(simulator: Any, tmp_path: Path, entry: str) -> None:
    schema = {"type": "object", "properties": {"value": {"type": ["array", "object"]}}, "required": ["value"]}
    async with run_conversation(simulator, tmp_path, create_input_request("Which?", schema), core=ASKING) as chat:
        await chat.say("ask me")
        await wait_for_button(chat, words.ANSWER)
        assert BAD_JSON[entry] in await submit_json(chat, entry)
        assert [row.answer for row in await list_requests(chat)] == [None]


@pytest.mark.parametrize("text", ["NaN", "[NaN]", "1e999", "[" * 1400, "[" * 101 + "]" * 101, "1" * 1400])
async def test_a_workflow_gets_text_that_is_no_json_as_text(simulator: Any, tmp_path: Path, text: str) -> None:
    received = list[Any]()

    def question(node_input: Any) -> Any:
        yield RequestInput(message="Which?", response_schema=None)

    def order(node_input: Any) -> types.Content:
        received.append(node_input)
        return types.ModelContent("Ordered.")

    root = Workflow(name="shop", edges=[("START", question, order)])
    async with run_conversation(simulator, tmp_path, "unused", core={"root": root}) as chat:
        await chat.say("ask me")
        await wait_for_button(chat, words.ANSWER)
        await chat.say(text)
        await wait_for_texts(chat, lambda found: found[-1:] == ["Ordered."])
        assert received == [int(text) if text.isdigit() else text]
