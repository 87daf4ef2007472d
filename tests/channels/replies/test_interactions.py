"""Presses, edits, deletions and commands, through the real clients of both platforms."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from channels.answerer import Answerer
from channels.i18n import messages as words
from channels.replies import rerender as standing
from channels.settings import EXTRA_BUTTONS
from core.agents.runtime import AgentRuntime
from core.errors import ProviderRequestError
from core.identity import Actor
from core.store.schema import feedback
from core.turns.turn import CancelReason
from core.turns.worker import Worker
from sandbox.models import Fail, Pause, Say
from sandbox.slack import SlackSandbox
from tests.channels.platforms import (
    SlackTalk,
    Talk,
    run_conversation,
    texts,
    wait_for_answer,
    wait_for_texts,
)


def list_buttons(talk: Talk) -> list[list[str]]:
    """Return the buttons under each of the bot's messages."""
    return [list(message.buttons) for message in talk.replies()]


def get_answer_buttons(talk: Talk, first: str = words.REGENERATE) -> list[str]:
    """Return the buttons under a finished answer: Discord has the ratings in the menu of the message."""
    return [first, words.GOOD_ANSWER, words.BAD_ANSWER] if isinstance(talk, SlackTalk) else [first]


async def wait_for_buttons(talk: Talk, *wanted: list[str]) -> None:
    try:
        await talk.sandbox.wait_for(lambda: list_buttons(talk) == list(wanted))
    except TimeoutError as error:
        raise TimeoutError(f"{error}\n{list_buttons(talk)}") from None


def count_reply_calls(talk: Talk) -> int:
    """Return the number of API calls that show replies."""
    names = [getattr(call, "method", None) or call.route for call in talk.sandbox.calls]
    return sum(names.count(talk.calls[name]) for name in ("post", "edit"))


# Growing replies


async def test_only_the_author_can_stop_a_growing_reply(sandbox: Any, tmp_path: Path) -> None:
    async with run_conversation(sandbox, tmp_path, [Say("Once"), Pause(60)]) as talk:
        await talk.say("hi")
        await wait_for_texts(talk, lambda found: found == ["Once"])
        await wait_for_buttons(talk, [words.STOP])
        await talk.press(words.STOP, user="grace")
        await talk.sandbox.wait_for(lambda: talk.private_messages("grace") == [words.STOP_NOT_ALLOWED])
        await talk.press(words.STOP)
        await wait_for_answer(talk, f"Once\n\n{words.STOPPED}")
        await wait_for_buttons(talk, [words.REGENERATE])
        assert [row.state for row in await talk.bot.wait_for_turns(1)] == ["cancelled"]
        assert not talk.private_messages("ada")


async def test_a_late_stop_is_reported_to_its_user(sandbox: Any, tmp_path: Path) -> None:
    async with run_conversation(sandbox, tmp_path, [Say("Once"), Pause(60)]) as talk:
        await talk.say("hi")
        await wait_for_buttons(talk, [words.STOP])
        (turn,) = await talk.bot.turn_rows()
        before = talk.replies()[0].buttons[words.STOP]
        await talk.press(words.STOP)
        await talk.bot.wait_for_turns(1)
        assert before == f"stop:{turn.id}"
        word = await talk.bot.channel._intake.presses.handle(
            before, visitor=Actor(talk.bot.channel.name, talk.sandbox.people["ada"].id), locale="ko"
        )
        assert word == words.messages_for("ko")(words.ALREADY_ENDED)


async def test_a_reply_can_be_stopped_before_the_first_text(sandbox: Any, tmp_path: Path) -> None:
    async with run_conversation(sandbox, tmp_path, [Pause(60)]) as talk:
        await talk.say("hi")
        await wait_for_buttons(talk, [words.STOP])
        assert texts(talk) == [words.PLACEHOLDER]
        await talk.press(words.STOP)
        await wait_for_answer(talk, words.STOPPED)


async def test_the_stop_button_is_under_the_last_chunk_until_the_end(sandbox: Any, tmp_path: Path) -> None:
    go_on, end = asyncio.Event(), asyncio.Event()
    long = "A sentence of some words. " * 160
    async with run_conversation(sandbox, tmp_path, [Say("Once."), Pause(go_on), Say(long), Pause(end)]) as talk:
        await talk.say("hi")
        await wait_for_buttons(talk, [words.STOP])
        go_on.set()
        await talk.sandbox.wait_for(lambda: len(talk.replies()) > 1 and list_buttons(talk)[-1])
        assert list_buttons(talk) == [*([] for _ in talk.replies()[1:]), [words.STOP]]
        end.set()
        await talk.bot.wait_for_turns(1)
        assert list_buttons(talk) == [*([] for _ in talk.replies()[1:]), get_answer_buttons(talk)]


async def test_a_released_reply_keeps_its_stop_button(sandbox: Any, tmp_path: Path) -> None:
    async with run_conversation(sandbox, tmp_path, [Say("Once"), Pause(60)]) as talk:
        await talk.say("hi")
        await wait_for_texts(talk, lambda found: found == ["Once"])
        await talk.bot.worker.stop(0.1)
        await wait_for_answer(talk, f"Once\n\n{words.RESTARTING}")
        assert list_buttons(talk) == [[words.STOP]]
        await talk.press(words.STOP)
    async with run_conversation(sandbox, tmp_path, "never said") as talk:
        await wait_for_texts(talk, lambda found: words.STOPPED in found[-1])
        await wait_for_buttons(talk, [words.REGENERATE])


async def test_buttons_need_no_calls_of_their_own(sandbox: Any, tmp_path: Path) -> None:
    go_on = asyncio.Event()
    async with run_conversation(sandbox, tmp_path, [Pause(go_on), Say("It is 42.")]) as talk:
        await talk.say("hi")
        await wait_for_buttons(talk, [words.STOP])
        assert count_reply_calls(talk) == 1
        go_on.set()
        await wait_for_buttons(talk, get_answer_buttons(talk))
        await talk.bot.wait_for_turns(1)
        assert count_reply_calls(talk) <= 3


# Buttons under an answer


async def test_an_answer_is_regenerated_in_place(sandbox: Any, tmp_path: Path) -> None:
    async with run_conversation(sandbox, tmp_path, "It is 41.", "It is 42.") as talk:
        await talk.say("what is it?")
        await wait_for_answer(talk, "It is 41.")
        await wait_for_buttons(talk, get_answer_buttons(talk))
        await talk.bot.wait_for_turns(1)
        await talk.press(words.REGENERATE)
        await wait_for_answer(talk, "It is 42.")
        first, second = await talk.bot.wait_for_turns(2)
        assert (second.kind, second.origin) == ("regenerate", first.id)
        said = [one["role"] for one in talk.bot.model.requests[-1]["messages"]]
        assert said.count("user") == 1
        assert "assistant" not in said
        await wait_for_buttons(talk, get_answer_buttons(talk))
        assert talk.replies()[0].buttons[words.REGENERATE] == f"regenerate:{second.id}"


async def test_any_reader_may_give_feedback(sandbox: Any, tmp_path: Path) -> None:
    async with run_conversation(sandbox, tmp_path, "It is 42.") as talk:
        await talk.say("what is it?")
        await wait_for_buttons(talk, get_answer_buttons(talk))
        for user, label in (("ada", words.GOOD_ANSWER), ("grace", words.BAD_ANSWER), ("ada", words.BAD_ANSWER)):
            await talk.rate(label, user=user)
        thanks = {"ada": [words.FEEDBACK_THANKS] * 2, "grace": [words.FEEDBACK_THANKS]}
        await talk.sandbox.wait_for(lambda: {user: talk.private_messages(user) for user in thanks} == thanks)
        async with talk.bot.database.read() as connection:
            kept = (await connection.execute(sa.select(feedback.c.rating))).scalars().all()
        assert kept == ["bad", "bad"]


async def test_disabled_buttons_are_not_shown(sandbox: Any, tmp_path: Path) -> None:
    async with run_conversation(sandbox, tmp_path, "It is 42.", Fail(400, "")) as talk:
        talk.bot.answerer._settings = replace(talk.bot.answerer._settings, extras=EXTRA_BUTTONS - EXTRA_BUTTONS)
        await talk.say("what is it?")
        await talk.bot.wait_for_turns(1)
        assert list_buttons(talk) == [[]]
        await talk.say("and now?")
        await wait_for_buttons(talk, [], [words.RETRY])


# Edits and deletions


async def test_an_edit_during_an_answer_offers_a_new_answer(sandbox: Any, tmp_path: Path) -> None:
    async with run_conversation(sandbox, tmp_path, [Say("Two and tow"), Pause(60)], "Four.") as talk:
        await talk.say("two and tow?")
        await wait_for_texts(talk, lambda found: found == ["Two and tow"])
        (row,) = await talk.bot.inbox_rows()
        await talk.bot.channel._intake.handle_edit(row.event_key, "two and two?")
        await wait_for_buttons(talk, [words.ANSWER_EDITED, words.STOP])
        await talk.press(words.ANSWER_EDITED)
        await wait_for_answer(talk, "Four.")
        await wait_for_buttons(talk, get_answer_buttons(talk))
        await talk.bot.wait_for_turns(2)
        asked = [one["content"] for one in talk.bot.model.requests[-1]["messages"] if one["role"] == "user"]
        assert len(asked) == 1
        assert "two and two?" in asked[0]


async def test_an_edit_after_an_answer_offers_a_new_answer(sandbox: Any, tmp_path: Path) -> None:
    async with run_conversation(sandbox, tmp_path, "Tow?", "Four.") as talk:
        await talk.say("two and tow?")
        await talk.bot.wait_for_turns(1)
        (row,) = await talk.bot.inbox_rows()
        said = row.message["text"]
        for text, wanted in (
            ("two and two?", get_answer_buttons(talk, words.ANSWER_EDITED)),
            (said, get_answer_buttons(talk)),
        ):
            await talk.bot.channel._intake.handle_edit(row.event_key, text)
            await wait_for_buttons(talk, wanted)
        await talk.bot.channel._intake.handle_edit(row.event_key, "two and two?")
        await wait_for_buttons(talk, get_answer_buttons(talk, words.ANSWER_EDITED))
        assert texts(talk) == ["Tow?"]
        await talk.press(words.ANSWER_EDITED)
        await wait_for_answer(talk, "Four.")


async def test_an_edit_during_a_turn_of_another_worker_is_shown_at_its_end(
    sandbox: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = asyncio.Event()
    async with run_conversation(sandbox, tmp_path, [Say("Tow"), Pause(go_on), Say("?")]) as talk:
        await talk.say("two and tow?")
        await wait_for_texts(talk, lambda found: found == ["Tow"])
        monkeypatch.setattr(Answerer, "_update_growing_buttons", lambda *_: False)  # as if another worker ran it
        (row,) = await talk.bot.inbox_rows()
        await talk.bot.channel._intake.handle_edit(row.event_key, "two and two?")
        go_on.set()
        await wait_for_buttons(talk, get_answer_buttons(talk, words.ANSWER_EDITED))


async def test_an_edit_survives_a_change_of_the_worker(sandbox: Any, tmp_path: Path) -> None:
    async with run_conversation(sandbox, tmp_path, [Say("Tow"), Pause(60)], [Say("Tow"), Pause(0.2), Say("?")]) as talk:
        await talk.say("two and tow?")
        await wait_for_texts(talk, lambda found: found == ["Tow"])
        (row,) = await talk.bot.inbox_rows()
        await talk.bot.channel._intake.handle_edit(row.event_key, "two and two?")
        await wait_for_buttons(talk, [words.ANSWER_EDITED, words.STOP])
        await talk.bot.restart_worker()
        await wait_for_buttons(talk, get_answer_buttons(talk, words.ANSWER_EDITED))


async def test_a_deleted_question_ends_its_answer_with_a_notice(sandbox: Any, tmp_path: Path) -> None:
    async with run_conversation(sandbox, tmp_path, [Say("Once"), Pause(60)], "It is 42.") as talk:
        await talk.say("one")
        await wait_for_texts(talk, lambda found: found == ["Once"])
        (row,) = await talk.bot.inbox_rows()
        await talk.bot.channel._intake.handle_deletion(row.event_key)
        await wait_for_answer(talk, f"Once\n\n{words.STOPPED_BY_DELETION}")
        assert list_buttons(talk) == [[]]
        await talk.say("two")
        await talk.bot.wait_for_turns(2)
        (_, row) = await talk.bot.inbox_rows()
        await talk.bot.channel._intake.handle_deletion(row.event_key)
        await wait_for_answer(talk, f"Once\n\n{words.STOPPED_BY_DELETION}", f"It is 42.\n\n{words.STOPPED_BY_DELETION}")
        assert list_buttons(talk) == [[], []]


async def test_a_deletion_during_a_turn_of_another_worker_is_shown_at_its_end(
    sandbox: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = asyncio.Event()
    async with run_conversation(sandbox, tmp_path, [Say("Tow"), Pause(go_on), Say("?")]) as talk:
        await talk.say("two and tow?")
        await wait_for_texts(talk, lambda found: found == ["Tow"])
        monkeypatch.setattr(Answerer, "_update_growing_buttons", lambda *_: False)  # as if another worker ran it
        monkeypatch.setattr(Worker, "cancel", lambda *_: None)  # which does not know the deletion yet
        (row,) = await talk.bot.inbox_rows()
        await talk.bot.channel._intake.handle_deletion(row.event_key)
        go_on.set()
        await wait_for_answer(talk, f"Tow?\n\n{words.STOPPED_BY_DELETION}")
        assert list_buttons(talk) == [[]]


async def test_a_deletion_survives_a_change_of_the_worker(sandbox: Any, tmp_path: Path) -> None:
    async with run_conversation(sandbox, tmp_path, "It is 42.") as talk:
        await talk.say("one")
        await talk.bot.wait_for_turns(1)
        await talk.bot.restart_worker(state="answered", cancel_reason=CancelReason.MESSAGE_DELETED, finished_at=None)
        await wait_for_answer(talk, f"It is 42.\n\n{words.STOPPED_BY_DELETION}")
        (row,) = await talk.bot.wait_for_turns(1)
        assert (row.state, list_buttons(talk)) == ("cancelled", [[]])


async def test_a_rerendered_answer_does_not_replace_a_newer_one(
    sandbox: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, load = asyncio.Event(), asyncio.Event(), standing.load_files

    async def load_slowly(runtime: AgentRuntime, session_id: str, run_id: str) -> Any:
        if not begun.is_set():
            begun.set()
            await go_on.wait()
        return await load(runtime, session_id, run_id)

    async with run_conversation(sandbox, tmp_path, "Five.", "Four.") as talk:
        await talk.say("two and tow?")
        await talk.bot.wait_for_turns(1)
        monkeypatch.setattr(standing, "load_files", load_slowly)
        (row,) = await talk.bot.inbox_rows()
        await talk.bot.channel._intake.handle_edit(row.event_key, "two and two?")
        await begun.wait()
        await talk.press(words.REGENERATE)
        await talk.bot.wait_for_turns(2)
        go_on.set()
        await talk.bot.channel._intake.drain(5)
        assert texts(talk) == ["Four."]
        assert list_buttons(talk) == [get_answer_buttons(talk)]


async def test_a_deleted_reply_is_not_rerendered(sandbox: Any, tmp_path: Path) -> None:
    async with run_conversation(sandbox, tmp_path, "It is 42.", "last") as talk:
        await talk.say("one")
        await talk.bot.wait_for_turns(1)
        (row,) = await talk.bot.inbox_rows()
        async with talk.bot.database.write() as connection:
            await connection.execute(sa.text("UPDATE turns SET chunks = '[\"1\"]'"))  # the message is deleted
        before = count_reply_calls(talk)
        await talk.bot.channel._intake.handle_edit(row.event_key, "edited")
        await talk.bot.channel._intake.drain(2)
        assert count_reply_calls(talk) == before


# Languages


async def test_messages_of_the_bot_are_in_the_language_of_the_user(sandbox: Any, tmp_path: Path) -> None:
    korean = words.messages_for("ko")
    if isinstance(sandbox, SlackSandbox):
        sandbox.add_user("minsu", "Minsu", locale="ko-KR")
    else:
        sandbox.add_user("minsu")
        sandbox.locale = "ko"  # Discord sends the locale of the server with messages
    async with run_conversation(sandbox, tmp_path, Fail(400, "no"), [Say("Well"), Pause(60)], grace=0.1) as talk:
        await talk.say("one", user="minsu")
        await wait_for_buttons(talk, [korean(words.RETRY)])
        assert texts(talk)[0].startswith(korean.format_error(ProviderRequestError.public))
        await talk.say("two", user="minsu")
        await wait_for_buttons(talk, [korean(words.RETRY)], [korean(words.STOP)])
        await talk.say("info", user="minsu")
        await wait_for_texts(talk, lambda found: any(korean(words.STATUS_ANSWERING) in text for text in found))


# Commands


async def test_a_command_is_answered_in_place_and_a_stop_in_its_reply(sandbox: Any, tmp_path: Path) -> None:
    async with run_conversation(sandbox, tmp_path, [Say("Once"), Pause(60)]) as talk:
        await talk.say("hi")
        await wait_for_texts(talk, lambda found: found == ["Once"])
        await talk.say("info")
        await wait_for_texts(talk, lambda found: len(found) == 2 and words.STATUS_ANSWERING in found[1])
        await talk.say("stop")
        await wait_for_texts(talk, lambda found: found[0] == f"Once\n\n{words.STOPPED}")
        await talk.say("export")
        await talk.sandbox.wait_for(talk.files)
        ((name, data),) = talk.files()
        assert name == "transcript.md"
        assert "hi" in data.decode()
        assert len(await talk.bot.wait_for_turns(1)) == 1
