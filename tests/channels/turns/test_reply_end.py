"""Endings of replies on both platforms: too long for chunks, failed, and retried."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from channels.i18n import messages as words
from chatrig.models import Fail, Pause, ReceivedRequest, Say, ScriptedResponse, Stall
from core.errors import ProviderTimeoutError, StoreError
from core.store.database import Database
from core.turns.store import TurnStore
from tests.channels.platforms import (
    Chat,
    list_texts,
    run_conversation,
    wait_for_answer,
    wait_for_texts,
)
from tests.channels.slack.conftest import short_ping_interval

__all__ = ["short_ping_interval"]

LONG = "\n\n".join(f"Paragraph {number}. " + "Lorem ipsum dolor sit amet. " * 40 for number in range(12)).strip()


async def wait_for_turns(chat: Chat, count: int = 1) -> list[Any]:
    rows: list[Any] = await chat.bot.wait_for_turns(count)
    return rows


async def wait_for_model_answer(chat: Chat) -> None:
    """Wait until the text of an answer is stored in its turn's row."""
    await chat.bot.database.wait_until(chat.bot.list_turns, lambda rows: any(row.text for row in rows))


def list_retries(chat: Chat) -> list[bool]:
    """Return, for each of the bot's messages, whether it has a Retry button."""
    return [words.RETRY in message.buttons for message in chat.list_replies()]


async def fail_turn(chat: Chat, text: str = "hi") -> None:
    await chat.say(text)
    await wait_for_texts(chat, lambda found: found and "⚠️" in found[-1])
    await chat.simulator.wait_for(lambda: list_retries(chat)[-1])


FAILURE = Fail(400, "no")


def create_failing_script(answer: ScriptedResponse = "It is 42.", failure: ScriptedResponse = FAILURE) -> Any:
    """Return a model script that fails at the first request, and then answers."""
    request_count = 0

    def script(_request: ReceivedRequest) -> ScriptedResponse:
        nonlocal request_count
        request_count += 1
        return failure if request_count == 1 else answer

    return script


# Long answers


async def test_a_growing_answer_has_a_limited_number_of_chunks(simulator: Any, tmp_path: Path) -> None:
    go_on = asyncio.Event()
    script = [Say(LONG, pieces=4), Pause(go_on), Say("\n\nThe end.")]
    async with run_conversation(simulator, tmp_path, script, max_chunks=2) as chat:
        await chat.say("long")
        await wait_for_texts(chat, lambda found: len(found) == 2 and words.CONTINUES_IN_FILE in found[-1])
        assert not chat.list_files()
        go_on.set()
        await wait_for_texts(chat, lambda found: words.FULL_ANSWER_IN_FILE in found[-1])
        await wait_for_turns(chat)
        assert len(chat.list_files()) == 1
        assert chat.list_files()[0][1].endswith(b"The end.")


@pytest.mark.parametrize("answer", ["#", "##\n\n#", "\n \n"])
async def test_an_invisible_answer_is_named_as_empty(simulator: Any, tmp_path: Path, answer: str) -> None:
    async with run_conversation(simulator, tmp_path, answer) as chat:
        await chat.say("anything?")
        assert (await wait_for_turns(chat))[0].state == "done"
        assert list_texts(chat) == [words.NO_ANSWER]


async def test_without_file_permission_the_answer_is_posted_in_chunks(simulator: Any, tmp_path: Path) -> None:
    async with run_conversation(simulator, tmp_path, LONG, max_chunks=2) as chat:
        for rights in ("scopes", "permissions"):
            permissions: set[str] = getattr(simulator, rights, set())
            permissions -= {"files:write", "attach_files"}
        await chat.say("long")
        (row,) = await wait_for_turns(chat)
        assert row.state == "done"
        assert not chat.list_files()
        assert "".join(" ".join(list_texts(chat)).split()) == "".join(LONG.split())


async def test_an_incomplete_upload_is_repeated(
    simulator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_conversation(simulator, tmp_path, LONG, max_chunks=2) as chat:
        with monkeypatch.context() as death:
            death.setattr(TurnStore, "end", create_crash(chat))
            await chat.say("long")
            await wait_for_texts(chat, lambda found: any(words.FULL_ANSWER_IN_FILE in text for text in found))
            await chat.bot.worker.stop(5)
        (turn,) = await chat.bot.list_turns()
        chunks = [
            *turn.chunks[:2],
            "file:F0NOTHING00:answer.md" if simulator.api_url.endswith("/api/") else turn.chunks[2],
        ]
        for message in [m for m in simulator.messages("general") if getattr(m, "files", ())]:
            message.deleted = True
        await chat.bot.restart_worker(chunks=chunks)
    async with run_conversation(simulator, tmp_path, "never said", max_chunks=2) as chat:
        await wait_for_turns(chat)
        assert chat.list_files() == [("answer.md", LONG.encode())]


def create_crash(chat: Chat) -> Any:
    """Return a function that stops the worker and fails, as the death of the process."""

    async def crash(*_: Any, **__: Any) -> None:
        chat.bot.worker._stopping.set()
        raise StoreError("the process died here")

    return crash


async def raise_store_error(*_: Any, **__: Any) -> None:
    raise StoreError("out of reach")


async def test_a_failure_after_a_long_text_is_shown_below_its_beginning(simulator: Any, tmp_path: Path) -> None:
    script = create_failing_script(failure=[Say(LONG, pieces=10), Pause(0.2), Stall()])
    async with run_conversation(simulator, tmp_path, script, max_chunks=3, time_limit=1.5) as chat:
        await fail_turn(chat)
        (row,) = await wait_for_turns(chat)
        texts = list_texts(chat)
        assert len(texts) == 3
        assert (
            texts[-1] == f"{words.FULL_ANSWER_IN_FILE}\n\n{words.ENGLISH.format_error_with_id(words.TOO_LONG, row.id)}"
        )
        assert list_retries(chat) == [False, False, True]
        assert len(chat.list_files()) == 1

        await chat.press(words.RETRY)
        await wait_for_answer(chat, "It is 42.")
        await wait_for_turns(chat, 2)
        assert list_retries(chat) == [False]
        assert chat.list_files() == []


# Retries


async def test_a_silent_model_ends_in_one_sentence_below_its_text(simulator: Any, tmp_path: Path) -> None:
    async with run_conversation(simulator, tmp_path, create_failing_script(failure=[Say("Once"), Stall()])) as chat:
        chat.bot.answerer._runtime.app.root_agent.model.idle_seconds = 2.0
        await fail_turn(chat)
        (row,) = await wait_for_turns(chat)
        apology = words.ENGLISH.format_error_with_id(ProviderTimeoutError.public, row.id)
        assert list_texts(chat) == [f"Once\n\n{apology}"]
        assert list_retries(chat) == [True]


async def test_a_slow_platform_does_not_delay_the_model(simulator: Any, tmp_path: Path) -> None:
    async with run_conversation(simulator, tmp_path, [Say("one two three four", pieces=8, pace=0.02)]) as chat:
        simulator.faults.delay(chat.calls["post"], 3.0)
        await chat.say("hi")
        await wait_for_model_answer(chat)
        assert chat.list_replies() == [], "the platform has not taken the first call, and the model has said all"
        await wait_for_answer(chat, "one two three four")


async def test_a_database_error_is_reported_to_the_user_who_pressed(
    simulator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_conversation(simulator, tmp_path, create_failing_script()) as chat:
        await fail_turn(chat)
        request_rerun = chat.bot.inbox.request_rerun
        monkeypatch.setattr(chat.bot.inbox, "request_rerun", raise_store_error)
        await chat.press(words.RETRY)
        await chat.simulator.wait_for(
            lambda: chat.list_private_messages() == [words.ENGLISH.format_error(StoreError.public)]
        )
        monkeypatch.setattr(chat.bot.inbox, "request_rerun", request_rerun)
        await chat.press(words.RETRY)
        await wait_for_answer(chat, "It is 42.")


async def test_an_apology_from_before_a_crash_is_retried_in_place(
    simulator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_conversation(simulator, tmp_path, create_failing_script(failure=[Say("Once"), Pause(60)])) as chat:
        await chat.say("hi")
        await wait_for_texts(chat, lambda found: found == ["Once"])
        await chat.bot.restart_worker(chunks=[], attempt=3)
        await wait_for_texts(chat, lambda found: words.TOO_MANY_ATTEMPTS in found[-1])
        await wait_for_turns(chat)
        await chat.press(words.RETRY)
        await wait_for_answer(chat, "It is 42.")
        assert list_retries(chat) == [False]


async def test_transient_read_errors_leave_the_answer_correct(
    simulator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_of, reads = Database.read, list[str]()

    @asynccontextmanager
    async def fail_at_first(self: Database) -> AsyncIterator[AsyncConnection]:
        """Fail at every second database read of a turn, beginning with the first."""
        task = asyncio.current_task()
        if task is not None and "turn" in task.get_name():
            reads.append(task.get_name())
            if len(reads) % 2:
                raise StoreError("out of reach")
        async with read_of(self) as connection:
            yield connection

    async with run_conversation(simulator, tmp_path, "One.", "Two.") as chat:
        await chat.say("one?")
        await wait_for_answer(chat, "One.")
        monkeypatch.setattr(Database, "read", fail_at_first)
        await chat.say("two?", files={"a.txt": b"two"})
        await wait_for_answer(chat, "One.", "Two.")
        assert len(reads) >= 4
