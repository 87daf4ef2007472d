"""Clicks, edits, deletions and commands, through the clients of both platforms."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from channels.i18n import messages as words
from channels.intake.incoming import IncomingChange
from channels.settings import EXTRA_BUTTONS
from channels.turns import update_after_edit
from channels.turns.update_after_edit import ReplyRerenderer
from chatrig.models import Fail, Pause, Say
from chatrig.slack import SlackSimulator
from core.agents.runtime import AgentRuntime
from core.errors import ProviderRequestError
from core.turns.turn import CancelReason
from core.turns.worker import Worker
from tests.channels.platforms import (
    Chat,
    SlackChat,
    list_texts,
    run_conversation,
    wait_for_answer,
    wait_for_texts,
)
from tests.fixtures.inbox_messages import inbound


def list_buttons(chat: Chat) -> list[list[str]]:
    """Return the button labels of each of the bot's messages."""
    return [list(message.buttons) for message in chat.list_replies()]


def get_answer_buttons(chat: Chat, first: str = words.REGENERATE) -> list[str]:
    """Return the labels of the buttons under a finished answer.

    Discord has the ratings in the message's menu instead.

    Args:
        first: the label of the first button.
    """
    return [first, words.GOOD_ANSWER, words.BAD_ANSWER] if isinstance(chat, SlackChat) else [first]


async def wait_for_buttons(chat: Chat, *wanted: list[str]) -> None:
    try:
        await chat.simulator.wait_for(lambda: list_buttons(chat) == list(wanted))
    except TimeoutError as error:
        raise TimeoutError(f"{error}\n{list_buttons(chat)}") from None


def count_reply_calls(chat: Chat) -> int:
    """Return the number of API calls that post or edit replies."""
    names = [getattr(call, "method", None) or call.route for call in chat.simulator.calls]
    return sum(names.count(chat.calls[name]) for name in ("post", "edit"))


# Growing replies


async def test_the_stop_button_is_under_the_last_chunk_until_the_end(simulator: Any, tmp_path: Path) -> None:
    go_on, end = asyncio.Event(), asyncio.Event()
    long = "A sentence of some words. " * 160
    async with run_conversation(simulator, tmp_path, [Say("Once."), Pause(go_on), Say(long), Pause(end)]) as chat:
        await chat.say("hi")
        await wait_for_buttons(chat, [words.STOP])
        go_on.set()
        await chat.simulator.wait_for(lambda: len(chat.list_replies()) > 1 and list_buttons(chat)[-1])
        assert list_buttons(chat) == [*([] for _ in chat.list_replies()[1:]), [words.STOP]]
        end.set()
        await chat.bot.wait_for_turns(1)
        assert list_buttons(chat) == [*([] for _ in chat.list_replies()[1:]), get_answer_buttons(chat)]


async def test_buttons_need_no_calls_of_their_own(simulator: Any, tmp_path: Path) -> None:
    go_on = asyncio.Event()
    async with run_conversation(simulator, tmp_path, [Pause(go_on), Say("It is 42.")]) as chat:
        await chat.say("hi")
        await wait_for_buttons(chat, [words.STOP])
        assert count_reply_calls(chat) == 1
        go_on.set()
        await wait_for_buttons(chat, get_answer_buttons(chat))
        await chat.bot.wait_for_turns(1)
        assert count_reply_calls(chat) <= 3


# Buttons under an answer


async def test_disabled_buttons_are_not_shown(simulator: Any, tmp_path: Path) -> None:
    async with run_conversation(simulator, tmp_path, "It is 42.", Fail(400, "")) as chat:
        chat.bot.answerer._settings = replace(chat.bot.answerer._settings, extra_buttons=EXTRA_BUTTONS - EXTRA_BUTTONS)
        await chat.say("what is it?")
        await chat.bot.wait_for_turns(1)
        assert list_buttons(chat) == [[]]
        await chat.say("and now?")
        await wait_for_buttons(chat, [], [words.RETRY])


# Edits and deletions


async def change_message(chat: Any, row: Any, text: str | None) -> None:
    """Edit the message of an inbox row, or delete it if `text` is None, as if its event came now."""
    entry = inbound("", author=row.author, session=row.session)
    await chat.bot.adapter._intake.accept(IncomingChange(entry, row.event_key, text))


async def test_an_edit_during_a_turn_of_another_worker_is_shown_at_its_end(
    simulator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = asyncio.Event()
    async with run_conversation(simulator, tmp_path, [Say("Tow"), Pause(go_on), Say("?")]) as chat:
        await chat.say("two and tow?")
        await wait_for_texts(chat, lambda found: found == ["Tow"])
        monkeypatch.setattr(ReplyRerenderer, "_update_growing_buttons", lambda *_: False)  # as if another worker ran it
        (row,) = await chat.bot.list_inbox_messages()
        await change_message(chat, row, "two and two?")
        go_on.set()
        await wait_for_buttons(chat, get_answer_buttons(chat, words.ANSWER_EDITED))


async def test_a_deletion_during_a_turn_of_another_worker_is_shown_at_its_end(
    simulator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = asyncio.Event()
    async with run_conversation(simulator, tmp_path, [Say("Tow"), Pause(go_on), Say("?")]) as chat:
        await chat.say("two and tow?")
        await wait_for_texts(chat, lambda found: found == ["Tow"])
        monkeypatch.setattr(ReplyRerenderer, "_update_growing_buttons", lambda *_: False)  # as if another worker ran it
        monkeypatch.setattr(Worker, "cancel", lambda *_: None)  # which does not know the deletion yet
        (row,) = await chat.bot.list_inbox_messages()
        await change_message(chat, row, None)
        go_on.set()
        await wait_for_answer(chat, f"Tow?\n\n{words.STOPPED_BY_DELETION}")
        assert list_buttons(chat) == [[]]


async def test_a_deletion_survives_a_change_of_the_worker(simulator: Any, tmp_path: Path) -> None:
    async with run_conversation(simulator, tmp_path, "It is 42.") as chat:
        await chat.say("one")
        await chat.bot.wait_for_turns(1)
        await chat.bot.restart_worker(state="answered", cancel_reason=CancelReason.MESSAGE_DELETED, finished_at=None)
        await wait_for_answer(chat, f"It is 42.\n\n{words.STOPPED_BY_DELETION}")
        (row,) = await chat.bot.wait_for_turns(1)
        assert (row.state, list_buttons(chat)) == ("cancelled", [[]])


async def test_a_rerendered_answer_does_not_replace_a_newer_one(
    simulator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, go_on, load = asyncio.Event(), asyncio.Event(), update_after_edit.load_files

    async def load_slowly(runtime: AgentRuntime, session_id: str, run_id: str) -> Any:
        if not started.is_set():
            started.set()
            await go_on.wait()
        return await load(runtime, session_id, run_id)

    async with run_conversation(simulator, tmp_path, "Five.", "Four.") as chat:
        await chat.say("two and tow?")
        await chat.bot.wait_for_turns(1)
        monkeypatch.setattr(update_after_edit, "load_files", load_slowly)
        (row,) = await chat.bot.list_inbox_messages()
        await change_message(chat, row, "two and two?")
        await started.wait()
        await chat.press(words.REGENERATE)
        await chat.bot.wait_for_turns(2)
        go_on.set()
        await chat.bot.adapter._intake.drain(5)
        assert list_texts(chat) == ["Four."]
        assert list_buttons(chat) == [get_answer_buttons(chat)]


# Languages


async def test_messages_of_the_bot_are_in_the_language_of_the_user(simulator: Any, tmp_path: Path) -> None:
    korean = words.messages_for("ko")
    if isinstance(simulator, SlackSimulator):
        simulator.add_user("minsu", "Minsu", locale="ko-KR")
    else:
        simulator.add_user("minsu")
        simulator.locale = "ko"  # Discord sends the locale of the server with messages
    async with run_conversation(
        simulator, tmp_path, Fail(400, "no"), [Say("Well"), Pause(60)], stop_timeout=0.1
    ) as chat:
        await chat.say("one", user="minsu")
        await wait_for_buttons(chat, [korean(words.RETRY)])
        assert list_texts(chat)[0].startswith(korean.format_error(ProviderRequestError.public))
        await chat.say("two", user="minsu")
        await wait_for_buttons(chat, [korean(words.RETRY)], [korean(words.STOP)])
        await chat.say("info", user="minsu")
        await wait_for_texts(chat, lambda found: any(korean(words.STATUS_ANSWERING) in text for text in found))


# Commands
