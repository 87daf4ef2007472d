"""Commands: each answers its author privately, or in place if it is a message."""

from pathlib import Path

import pytest

from channels.i18n import messages as words
from tests.scenarios.chat import (
    Chat,
    export,
    list_texts,
    run_command,
    wait_for_answers,
    wait_for_texts,
)
from tests.scenarios.conftest import StartBot, echo

OTHER = "openai/other"
MODEL = "openai/scripted"


async def ask(chat: Chat, text: str = "one") -> None:
    await chat.say(text)
    await wait_for_texts(chat, lambda texts: texts and texts[-1] == f"heard {text}")


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    """Return a file in which a token costs a tenth of a cent."""
    file = tmp_path / "prices.toml"
    file.write_text(f'"{MODEL}" = {{ input = 1000, output = 1000 }}')
    return file


async def test_each_command_answers_its_author_privately(start: StartBot, prices: Path) -> None:
    async with start(echo, models=(MODEL, OTHER), prices_file=prices) as chat:
        for name in ("info", "export", "stop", "reset"):
            assert await run_command(chat, name) == words.NOTHING_TO_RESET
        await ask(chat)
        usage = words.USAGE_SPENT.format(day="$0.0120", day_tokens=12, month="$0.0120", month_tokens=12)
        for name, argument, expected in (
            ("help", "", words.HELP_COMMANDS),
            ("info", "", words.STATUS_MODEL.format(model=MODEL)),
            ("model", "", words.CURRENT_MODEL.format(model=MODEL)),
            ("model", "nonsense", "nonsense"),
            ("model", OTHER, words.MODEL_CHANGED.format(model=OTHER)),
            ("info", "", words.STATUS_MODEL.format(model=OTHER)),
            ("agent", "", words.CURRENT_AGENT.format(agent="parley")),
            ("usage", "", f"{words.USAGE_YOURS}: {usage}"),
            ("why", "", "`openai/scripted`"),
            ("export", "", words.EXPORTED),
            ("stop", "", words.NOTHING_TO_STOP),
            ("reset", "", words.RESET_DONE),
        ):
            assert expected in await run_command(chat, name, argument), name
        assert list_texts(chat) == ["heard one"]
        assert not chat.list_private_messages("grace")


async def test_a_chosen_model_answers_the_next_message(start: StartBot) -> None:
    async with start(lambda request: request.model, models=(MODEL, OTHER)) as chat:
        await chat.say("one")
        await wait_for_answers(chat, "scripted")
        await run_command(chat, "model", OTHER)
        await chat.say("two")
        await wait_for_answers(chat, "scripted", "other")


async def test_an_export_has_the_conversation(start: StartBot) -> None:
    async with start(echo) as chat:
        await ask(chat)
        exported = await export(chat)
        assert all(text in exported for text in (words.EXPORTED, "one", "heard one"))


async def test_only_the_author_sees_why(start: StartBot) -> None:
    async with start(echo) as chat:
        await ask(chat)
        while words.WHY_RUNNING in (report := await run_command(chat, "why")):
            pass  # the answer is complete just before its turn ends
        assert "`openai/scripted`" in report
        turn = report.partition("`")[2].partition("`")[0]
        assert turn in await run_command(chat, "why", turn)
        for argument in ("", turn):
            assert await run_command(chat, "why", argument, user="grace") == words.WHY_NOT_ALLOWED


@pytest.mark.parametrize(("name", "hint"), [("why", words.WHY_PRIVATELY), ("usage", words.USAGE_PRIVATELY)])
async def test_a_private_command_as_a_message_names_the_slash_command(start: StartBot, name: str, hint: str) -> None:
    async with start(echo) as chat:
        await ask(chat)
        await chat.say(f"!{name}")
        await wait_for_answers(chat, "heard one", hint.format(command=f"/{name}"))


async def test_a_command_as_a_message_is_answered_in_place(start: StartBot) -> None:
    async with start(echo, models=(MODEL, OTHER)) as chat:
        await ask(chat)
        for name, expected in (
            ("help", words.HELP_COMMANDS),
            ("info", words.STATUS_MODEL.format(model=MODEL)),
            ("model", words.CURRENT_MODEL.format(model=MODEL)),
            ("reset", words.RESET_DONE),
        ):
            await chat.say(name)
            await wait_for_texts(chat, lambda texts: expected in texts[-1])  # noqa: B023 (it is waited for)
        assert not chat.list_private_messages()


async def test_an_export_as_a_message_is_a_file_in_place(start: StartBot) -> None:
    async with start(echo) as chat:
        await ask(chat)
        await chat.say("export")
        await chat.simulator.wait_for(chat.list_files)
        ((name, data),) = chat.list_files()
        assert name == "transcript.md"
        assert b"heard one" in data
