"""Questions to users at and over the platforms' limits, and with bad schemas."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
from google.adk.events.request_input import RequestInput
from google.adk.workflow import Workflow
from google.genai import types

from channels.i18n import messages as words
from core.errors import QuestionSchemaError
from tests.channels.platforms import list_texts, run_conversation, run_simulator, wait_for_texts
from tests.channels.requests.test_questions import (
    ASKING,
    create_choice,
    create_input_request,
    list_requests,
    wait_for_button,
)


def create_workflow_settings(schemas: Mapping[str, Any], **request: Any) -> dict[str, Any]:
    """Return settings of a bot whose workflow asks a question, and repeats the answer.

    Args:
        schemas: the schema of the answer, by the word in the user's message.
        request: more arguments of `RequestInput`.
    """

    def question(node_input: Any) -> Any:
        name = node_input.parts[0].text.rpartition(": ")[2]
        yield RequestInput(message="What shall I order?", response_schema=schemas[name], **request)

    def order(node_input: Any) -> types.Content:
        return types.ModelContent(f"Ordered: {json.dumps(node_input)}")

    return {"root": Workflow(name="shop", edges=[("START", question, order)])}


UNREADABLE = words.FORM_PROBLEM.strip("_")
NO_FORM = words.FORM_AS_JSON.strip("_")

#: Bad schemas, each with a note in the question, an invalid answer, and a valid one.
BAD_SCHEMAS: dict[str, tuple[Any, str, str, str]] = {
    "no reference": ({"$ref": "#/nowhere"}, UNREADABLE, "", "one"),
    "endless reference": ({"$ref": "#"}, UNREADABLE, "", "one"),
    "enum": ({"enum": "S, M"}, UNREADABLE, "", "one"),
    "type": ({"type": "widget"}, UNREADABLE, "", "one"),
    "2,000 options": ({"enum": [f"Option {i}" for i in range(2000)]}, UNREADABLE, "", "one"),
    "properties": ({"type": "object", "properties": ["name"]}, NO_FORM, "one", '{"name": "Ada"}'),
    "60 fields": (
        {"type": "object", "properties": {f"f{i}": {"type": "string"} for i in range(60)}},
        NO_FORM,
        "one",
        json.dumps({f"f{i}": "one" for i in range(60)}),
    ),
    "a name that ADK cannot read": (
        {"type": "object", "properties": {"_id": {"type": "string"}, "size": {"type": "integer"}}, "required": ["_id"]},
        "",
        "one",
        '{"_id": "Ada", "size": 3}',
    ),
}


async def test_a_workflow_with_a_bad_schema_gets_an_answer_by_message(simulator: Any, tmp_path: Path) -> None:
    schemas = {name: schema for name, (schema, *_) in BAD_SCHEMAS.items()}
    async with run_conversation(simulator, tmp_path, "unused", core=create_workflow_settings(schemas)) as chat:
        for name, (_, note, wrong, right) in BAD_SCHEMAS.items():
            await chat.say(f"ask: {name}")
            assert note in (await wait_for_button(chat, words.ANSWER)).text
            if wrong:
                await chat.say(wrong)
                await wait_for_texts(chat, lambda found: words.ANSWER_REFUSED.strip("_")[:20] in found[-1])
            await chat.say(right)
            await wait_for_texts(chat, lambda found: found[-1].startswith("Ordered"))
            answer = f"Ordered: {right if right.startswith('{') else json.dumps(right)}"
            await chat.bot.database.wait_until(chat.bot.list_turns, lambda found, text=answer: found[-1].text == text)
            await chat.simulator.wait_for(
                lambda: not any(words.ANSWER in reply.buttons for reply in chat.list_replies())
            )
        assert {row.decision for row in await list_requests(chat)} == {"answered"}


#: Schemas that ADK 2.13 refuses when a workflow asks.
REFUSED_SCHEMAS: dict[str, Any] = {
    "list of types": {"type": ["string", "null"]},
    "list of types in a field": {"type": "object", "properties": {"a": {"type": ["string", "null"]}}},
    "schema object": types.Schema(type=types.Type.STRING),
    "number": 5,
}


@pytest.mark.parametrize("name", list(REFUSED_SCHEMAS))
async def test_a_schema_that_adk_refuses_is_a_clear_error(
    simulator: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    async with run_conversation(simulator, tmp_path, "unused", core=create_workflow_settings(REFUSED_SCHEMAS)) as chat:
        await chat.say(f"ask: {name}")
        await wait_for_texts(chat, lambda found: found and QuestionSchemaError.public in found[-1])
        await chat.bot.wait_for_turns(1)
        assert "give a Python type, or a JSON Schema" in caplog.text


#: Schemas of optional answers, with the answer to an empty form.
OPTIONAL_SCHEMAS: dict[str, tuple[Any, Any]] = {
    "type": (int | None, None),
    "nullable": ({"type": "string", "nullable": True}, None),
    "fields": (
        {
            "type": "object",
            "properties": {
                "a": {"type": "string", "nullable": True},
                "b": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "c": {"enum": ["S", "M", None]},
                "d": {"anyOf": [{"enum": ["S", "M"]}, {"type": "null"}]},
            },
            "required": ["a", "b", "c", "d"],
        },
        dict.fromkeys("abcd"),
    ),
}


@pytest.mark.parametrize("name", list(OPTIONAL_SCHEMAS))
async def test_an_optional_answer_may_stay_empty(tmp_path: Path, name: str) -> None:
    schemas = {name: schema for name, (schema, _) in OPTIONAL_SCHEMAS.items()}
    async with (
        run_simulator("slack") as slack,
        run_conversation(slack, tmp_path, "unused", core=create_workflow_settings(schemas)) as chat,
    ):
        await chat.say(f"ask: {name}")
        await wait_for_button(chat, words.ANSWER)
        await chat.press(words.ANSWER)
        (modal,) = await slack.wait_for(lambda: slack.modals("ada"))
        assert await slack.submit_modal(modal)
        answer = f"Ordered: {json.dumps(OPTIONAL_SCHEMAS[name][1])}"
        await chat.bot.database.wait_until(chat.bot.list_turns, lambda found: found[-1].text == answer)


async def test_an_optional_choice_has_an_empty_option(simulator: Any, tmp_path: Path) -> None:
    schemas = {"size": Literal["S", "M"] | None, "gift": bool | None}
    async with run_conversation(simulator, tmp_path, "unused", core=create_workflow_settings(schemas)) as chat:
        for name in schemas:
            await chat.say(f"ask: {name}")
            await wait_for_button(chat, words.EMPTY_OPTION)
            await chat.press(words.EMPTY_OPTION)
            await chat.bot.database.wait_until(chat.bot.list_turns, lambda found: found[-1].text == "Ordered: null")
            await chat.simulator.wait_for(
                lambda: not any(words.EMPTY_OPTION in reply.buttons for reply in chat.list_replies())
            )


FIELDS = {f"f{i}": {"type": "integer" if i == 38 else "string", "title": f"Field {i}"} for i in range(40)}
FORM = {"type": "object", "properties": FIELDS, "required": list(FIELDS)}

#: A user's entries in the form, and the resulting answer.
ENTRIES = {f"field-{i}": str(i) for i in range(40)}
ANSWER = {f"f{i}": i if i == 38 else str(i) for i in range(40)}


async def test_a_form_of_40_fields_is_one_modal_on_slack(tmp_path: Path) -> None:
    async with (
        run_simulator("slack") as slack,
        run_conversation(slack, tmp_path, create_input_request("Please order.", FORM), "Ordered.", core=ASKING) as chat,
    ):
        await chat.say("shirts")
        await wait_for_button(chat, words.ANSWER)
        await chat.press(words.ANSWER)
        (modal,) = await slack.wait_for(lambda: slack.modals("ada"))
        assert not await slack.submit_modal(modal, **{**ENTRIES, "field-38": "many"})
        assert modal.errors == {"field-38": words.ENTRY_NOT_INTEGER}
        assert await slack.submit_modal(modal, **ENTRIES)
        await wait_for_texts(chat, lambda found: found[-1] == "Ordered.")
        assert [row.answer for row in await list_requests(chat)] == [ANSWER]


async def test_a_form_of_40_fields_is_eight_modals_on_discord(tmp_path: Path) -> None:
    async with (
        run_simulator("discord") as discord,
        run_conversation(
            discord, tmp_path, create_input_request("Please order.", FORM), "Ordered.", core=ASKING
        ) as chat,
    ):

        async def submit_page(message: Any, label: str, **entries: str) -> Any:
            """Open a page of the form by a button, submit it, and wait for a private message.

            Args:
                message: the message with the button `label`.
                entries: values by field; others are from `ENTRIES`.

            Returns:
                The ephemeral message; None if there is none.
            """
            before = chat.list_private_messages()
            await discord.click_button("ada", message, message.buttons[label])
            (modal,) = await discord.wait_for(lambda: discord.modals("ada"))
            await discord.submit_modal(modal, {id_: entries.get(id_, ENTRIES[id_]) for id_ in modal.inputs})
            await discord.wait_for(lambda: chat.list_private_messages() != before)
            return next((m for m in discord.messages("general") if m.ephemeral_to), None)

        await chat.say("shirts")
        message, label = await wait_for_button(chat, words.ANSWER), words.ANSWER
        for done in range(1, 8):
            message = await submit_page(message, label)
            assert message.text == words.FORM_CONTINUES.format(done=done, count=8)
            assert len(chat.list_private_messages()) == 1
            label = words.CONTINUE_FORM
        message = await submit_page(message, label, **{"field-38": "many"})
        assert f"Field 38: {words.ENTRY_NOT_INTEGER}" in message.text
        assert await submit_page(message, words.CORRECT_ANSWER) is None
        await wait_for_texts(chat, lambda found: found[-1] == "Ordered.")
        assert [row.answer for row in await list_requests(chat)] == [ANSWER]


async def test_a_form_continues_after_its_private_message_is_dismissed(tmp_path: Path) -> None:
    async with (
        run_simulator("discord") as discord,
        run_conversation(
            discord, tmp_path, create_input_request("Please order.", FORM), "Ordered.", core=ASKING
        ) as chat,
    ):

        def find_private() -> Any:
            return next((m for m in discord.messages("general") if m.ephemeral_to), None)

        await chat.say("shirts")
        question = await wait_for_button(chat, words.ANSWER)
        await discord.click_button("ada", question, question.buttons[words.ANSWER])
        (modal,) = await discord.wait_for(lambda: discord.modals("ada"))
        await discord.submit_modal(modal, {id_: ENTRIES[id_] for id_ in modal.inputs})
        message = await discord.wait_for(find_private)
        await discord.click_button("ada", message, message.buttons[words.CONTINUE_FORM])
        (modal,) = await discord.wait_for(lambda: discord.modals("ada"))
        await discord.delete_messages([message])
        await discord.submit_modal(modal, {id_: ENTRIES[id_] for id_ in modal.inputs})
        message = await discord.wait_for(find_private)
        assert message.text == words.FORM_CONTINUES.format(done=2, count=8)


async def test_long_options_are_numbered_buttons(simulator: Any, tmp_path: Path) -> None:
    options = [f"{'A long offer'.ljust(80, '.')} {i}" for i in range(3)]
    async with run_conversation(simulator, tmp_path, create_choice(*options), "Done.", core=ASKING) as chat:
        await chat.say("an offer")
        await chat.simulator.wait_for(lambda: any("2. A long" in text for text in list_texts(chat)))
        question = chat.list_replies()[-1]
        labels = list(question.buttons)
        assert [label[:10] for label in labels] == ["1. A long ", "2. A long ", "3. A long "]
        await chat.press(labels[1])
        await wait_for_texts(chat, lambda found: found[-1] == "Done.")
        assert [row.answer for row in await list_requests(chat)] == [options[1]]


async def test_menus_beyond_the_size_of_a_modal_take_text_on_slack(tmp_path: Path) -> None:
    options = [f"{'Option'.ljust(60)}{i}" for i in range(100)]
    fields = {f"f{i}": {"enum": options} for i in range(39)}
    schema = {"type": "object", "properties": {**fields, "f39": {"enum": options, "default": options[2]}}}
    async with (
        run_simulator("slack") as slack,
        run_conversation(
            slack, tmp_path, create_input_request("Please order.", schema), "Ordered.", core=ASKING
        ) as chat,
    ):
        await chat.say("shirts")
        await wait_for_button(chat, words.ANSWER)
        await chat.press(words.ANSWER)
        (modal,) = await slack.wait_for(lambda: slack.modals("ada"))
        assert not await slack.submit_modal(modal, **{"field-0": "option:1", "field-38": "none"})
        assert modal.errors == {"field-38": words.ENTRY_NOT_OPTION}
        assert await slack.submit_modal(modal, **{"field-0": "option:1", "field-38": options[3]})
        await wait_for_texts(chat, lambda found: found[-1] == "Ordered.")
        assert [row.answer for row in await list_requests(chat)] == [
            {"f0": options[1], "f38": options[3], "f39": options[2]}
        ]


async def test_only_the_people_in_the_payload_answer(simulator: Any, tmp_path: Path) -> None:
    grace = str(simulator.people["grace"].id)
    asking = create_workflow_settings({"size": {"enum": ["S", "M"]}}, payload={"approvers": [grace]})
    async with run_conversation(simulator, tmp_path, "unused", core=asking) as chat:
        await chat.say("ask: size")
        question = await wait_for_button(chat, "M")
        assert words.AUTHOR_ANSWERS[:10] not in question.text
        await chat.press("M")
        await chat.simulator.wait_for(lambda: chat.list_private_messages("ada") == [words.DECIDERS_MUST_ANSWER])
        await chat.say("ask: size")  # a message of the author is no answer
        await chat.simulator.wait_for(lambda: sum("M" in reply.buttons for reply in chat.list_replies()) == 2)
        await chat.press("S", user="grace")
        await wait_for_texts(chat, lambda found: found[-1] == 'Ordered: "S"')
        await chat.answer(question, "M", user="grace")
        await wait_for_texts(chat, lambda found: found[-1] == 'Ordered: "M"')
        assert [(row.decision, row.decided_by) for row in await list_requests(chat)] == [("answered", grace)] * 2
