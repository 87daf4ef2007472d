import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from channels.i18n import messages as words
from channels.rate_limits import retries as calls
from channels.turns import error_messages
from chatrig.models import Fail, Pause, Say
from chatrig.slack import SlackSimulator
from core.agents.runtime import AgentRuntime
from core.errors import StoreError
from core.messages.inbox_message import InboxMessage
from core.store.schema import turns, workers
from core.store.workers.lease import Lease
from core.turns import worker
from core.turns.store import TurnStore
from core.turns.turn import CancelReason, Turn
from tests.channels.slack.conftest import WiredSlackBot, run_bot
from tests.channels.wiring import wait_until
from tests.fixtures.inbox_messages import inbound

SECRET = "the text of a foreign exception, sk-very-secret-key-1234"


@pytest.fixture
async def slack() -> AsyncIterator[SlackSimulator]:
    async with SlackSimulator() as simulator:
        yield simulator


async def ask(bot: WiredSlackBot, text: str = "hello") -> Any:
    return await bot.slack.post_message("ada", bot.slack.open_dm("ada"), text)


@asynccontextmanager
async def run_half_answer(
    slack: SlackSimulator, folder: Path, text: str, *later_texts: str
) -> AsyncIterator[tuple[WiredSlackBot, Any]]:
    """Ask a question, and yield bot and question once half of the answer is visible.

    Args:
        text: the visible half, after which the model pauses.
        later_texts: the model's next answers.
    """
    async with run_bot(slack, folder, [Say(text), Pause(60)], *later_texts) as bot:
        question = await ask(bot)
        await bot.wait_for_texts(question, lambda texts: text in texts)
        yield bot, question


async def get_outcome(bot: WiredSlackBot) -> Any:
    (row,) = await bot.wait_for_turns(1)
    (message,) = await bot.list_inbox_messages()
    assert message.turn == row.id
    return row


@pytest.mark.parametrize(
    ("failure", "sentence"),
    [
        (Fail(401, SECRET), "API key doesn't work"),
        (Fail(404, SECRET), "doesn't exist"),
        (Fail(400, SECRET), "refused this request"),
    ],
)
async def test_a_model_error_ends_in_one_sentence_with_the_turn_id(
    slack: SlackSimulator, tmp_path: Path, caplog: pytest.LogCaptureFixture, failure: Fail, sentence: str
) -> None:
    caplog.set_level(logging.INFO)
    async with run_bot(slack, tmp_path, failure) as bot:
        question = await ask(bot)
        row = await get_outcome(bot)
        (apology,) = bot.list_texts(question)[1:]
        assert sentence in apology
        assert row.id in apology
        logged = "".join(r.getMessage() for r in caplog.records if r.name.startswith(("channels", "core")))
        assert f"turn {row.id} failed" in logged
        assert row.state == "failed"
        everything = apology + logged + str(row) + str(await bot.list_inbox_messages())
        assert SECRET not in everything
        assert "sk-" not in everything


async def test_an_unexpected_error_ends_in_an_apology_without_its_text(
    slack: SlackSimulator, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_bot(slack, tmp_path, "never said") as bot:

        async def raise_value_error(message: Any) -> Any:
            raise ValueError(SECRET)

        monkeypatch.setattr(bot.platform, "read_message", raise_value_error)
        question = await ask(bot)
        row = await get_outcome(bot)
        assert bot.list_texts(question)[1:] == [words.ENGLISH.format_error_with_id("Something went wrong.", row.id)]
        assert row.error == "ValueError"
        assert "ValueError" in caplog.text
        assert SECRET not in caplog.text


async def test_a_late_older_message_is_answered_by_the_next_turn(slack: SlackSimulator, tmp_path: Path) -> None:
    two = [Say("Once"), Pause(0.5), Say(" upon a time.")]
    async with run_bot(slack, tmp_path, two, "That was one.") as bot:
        question = await ask(bot, "two")
        await bot.wait_for_texts(question, lambda texts: "Once" in texts[-1])
        (row,) = await bot.list_inbox_messages()
        newer = InboxMessage.from_json(row.message)
        await bot.inbox.accept(replace(newer, event_key="older", text="one", sent_at=newer.sent_at - 0.1))
        await bot.wait_for_texts(question, lambda texts: texts == ["two", "Once upon a time.", "That was one."])
        assert [turn.state for turn in await bot.wait_for_turns(2)] == ["done", "done"]
        prompts = [message["content"] for message in bot.model.requests[-1]["messages"]]
        assert prompts[-3:] == ["two", "Once upon a time.", "one"]


async def test_a_shutdown_during_the_search_for_a_reply_releases_the_turn(
    slack: SlackSimulator, tmp_path: Path
) -> None:
    async with run_half_answer(slack, tmp_path, "Once") as (bot, _):
        slack.faults.fail("conversations.replies", 100)
        looks = len(slack.calls)
        await bot.restart_worker()
        await wait_until(lambda: any(call.method == "conversations.replies" for call in slack.calls[looks:]))
        await bot.worker.stop(0.0)
        (row,) = await bot.list_turns()
        assert (row.state, row.owner, row.attempt) == ("queued", None, 2), "only the first process counts"
        slack.faults.clear()


async def test_a_shutdown_with_an_unreachable_platform_releases_the_turn_silently(
    slack: SlackSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(error_messages, "NOTICE_TIMEOUT_SECONDS", 0.1)
    async with run_half_answer(slack, tmp_path, "Once") as (bot, _):
        slack.faults.fail("chat.update", 100)
        await bot.worker.stop(0.0)
        (row,) = await bot.list_turns()
        assert (row.state, row.owner, row.attempt) == ("queued", None, 1)
        slack.faults.clear()


async def test_a_transient_database_error_is_retried(
    slack: SlackSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_bot(slack, tmp_path, "the answer") as bot:
        write, calls = bot.turns._database.write, count()

        @asynccontextmanager
        async def write_every_other_time() -> AsyncIterator[AsyncConnection]:
            async with write() as connection:
                if next(calls) % 2:
                    raise StoreError("out of reach")
                yield connection

        monkeypatch.setattr(bot.turns._database, "write", write_every_other_time)
        question = await ask(bot)
        assert (await get_outcome(bot)).state == "done"
        assert bot.list_texts(question)[1:] == ["the answer"]


async def test_a_turn_with_a_lost_lease_is_claimed_again(
    slack: SlackSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = TurnStore.end

    async def raise_store_error(*_: Any, **__: Any) -> None:
        raise StoreError("out of reach")

    async with run_bot(slack, tmp_path, "the answer", "another") as bot:
        monkeypatch.setattr(TurnStore, "end", raise_store_error)
        question = await ask(bot)
        await bot.wait_for_texts(question, lambda texts: texts == ["hello", "the answer"])
        await asyncio.wait([run.task for run in bot.worker._running.values()])
        monkeypatch.setattr(TurnStore, "end", end)
        await slack.post_message("ada", question.channel, "again", thread_ts=question.ts)
        await bot.wait_for_texts(question, lambda texts: texts == ["hello", "the answer", "again", "another"])


@pytest.mark.parametrize("hears", [False, True], ids=["unheard", "and hears of it"])
async def test_a_message_posted_after_a_lost_lease_is_deleted(
    slack: SlackSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hears: bool
) -> None:
    monkeypatch.setattr(worker, "CANCEL_CHECK_SECONDS", 0.02 if hears else 60.0)
    save_ids = TurnStore.save_message_ids

    async with run_bot(slack, tmp_path, "the answer") as bot:

        async def update_turns(**values: Any) -> None:
            async with bot.database.write() as connection:
                await connection.execute(sa.update(turns).values(**values))

        async def lose_turn(self: TurnStore, turn: Turn, chunks: Sequence[str]) -> None:
            await update_turns(owner="another worker", claim_number=2, attempt=2)
            await save_ids(self, turn, chunks)

        async with bot.database.write() as connection:  # another worker that is alive
            await connection.execute(
                sa.insert(workers).values(id="another worker", lease_expires_at=float("inf"), rate_limit_usage={})
            )
        monkeypatch.setattr(TurnStore, "save_message_ids", lose_turn)
        question = await ask(bot)
        await wait_until(lambda: not bot.worker.running_count)
        await bot.services.background.drain(10)  # the deletion
        assert bot.list_texts(question) == ["hello"]


async def test_a_reply_of_a_lost_turn_stops_within_a_second(
    slack: SlackSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "CANCEL_CHECK_SECONDS", 60.0)
    async with run_bot(slack, tmp_path, "the answer") as bot:
        monkeypatch.setattr(bot.platform.api._caller, "_pauses", (60.0,))
        slack.faults.fail("chat.postMessage")
        question = await ask(bot)
        await slack.wait_for(lambda: any(call.method == "conversations.replies" for call in slack.calls))
        monkeypatch.setattr(Lease, "may_have_ended", True)
        async with bot.database.write() as connection:
            await connection.execute(sa.update(turns).values(owner="another worker", claim_number=2, attempt=2))
        await wait_until(lambda: not bot.worker.running_count)
        assert calls.CHECK_SECONDS < 1
        assert bot.list_texts(question) == ["hello"]
        (row,) = await bot.list_turns()
        assert (row.owner, row.state) == ("another worker", "running")


@pytest.mark.parametrize("is_recorded", [True, False], ids=["recorded", "posted, but not recorded"])
@pytest.mark.parametrize("is_answered", [True, False], ids=["answered", "not answered"])
async def test_a_turn_of_a_dead_process_resumes_in_its_message(
    slack: SlackSimulator, tmp_path: Path, is_answered: bool, is_recorded: bool
) -> None:
    async with run_half_answer(slack, tmp_path, "Half an ans", "The model says it anew.") as (bot, question):
        changed: dict[str, Any] = {} if is_recorded else {"chunks": []}
        if is_answered:
            changed |= {"state": "answered", "text": "Half an answer is none."}
        await bot.restart_worker(**changed)
        row = await get_outcome(bot)
        last = "Half an answer is none." if is_answered else "The model says it anew."
        assert bot.list_texts(question)[1:] == [last]
        assert (row.state, row.attempt) == ("done", 2)
        if not is_answered:
            questions = [
                message["content"] for message in bot.model.requests[-1]["messages"] if message["role"] == "user"
            ]
            assert len(questions) == 1


async def test_an_answer_that_cannot_be_rendered_is_posted_as_a_file(slack: SlackSimulator, tmp_path: Path) -> None:
    async with run_half_answer(slack, tmp_path, "Half an ans") as (bot, question):
        await bot.restart_worker(state="answered", text="Half an answer is none.", attempt=3)
        row = await get_outcome(bot)
        assert bot.list_texts(question)[1] == words.ENGLISH.format_error_with_id(words.TOO_MANY_ATTEMPTS, row.id)
        assert (row.state, row.attempt) == ("failed", 4)
        (file,) = [file for message in slack.messages(question.channel) for file in message.files]
        assert (file.name, file.data) == ("answer.md", b"Half an answer is none.")


async def raise_unreadable(*_: Any, **__: Any) -> Any:
    error = StoreError("a row cannot be read")
    error.retryable = False
    raise error


async def test_an_answer_with_unreadable_files_is_shown_with_one_notice(
    slack: SlackSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_half_answer(slack, tmp_path, "Half an ans") as (bot, question):
        monkeypatch.setattr(AgentRuntime, "list_generated_files", raise_unreadable)
        await bot.restart_worker(state="answered", text="It is drawn.")
        row = await get_outcome(bot)
        apology = words.ENGLISH.format_error_with_id(StoreError.public, row.id)
        assert bot.list_texts(question)[1:] == [f"It is drawn.\n\n{apology}"]
        assert (row.state, row.attempt) == ("failed", 2)


async def test_a_turn_with_unreadable_messages_is_given_up(
    slack: SlackSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker, "BACKOFF_SECONDS", 0.01)
    async with run_half_answer(slack, tmp_path, "Half an ans") as (bot, _):
        monkeypatch.setattr(TurnStore, "save_message_ids", raise_unreadable)
        await bot.restart_worker(state="answered", text="It is drawn.", chunks=[])
        row = await get_outcome(bot)
        assert (row.state, row.claim_number, row.attempt) == ("failed", 4, 2)
        assert f"turn {row.id}: the reply cannot be shown" in caplog.text


async def test_a_shutdown_releases_a_turn_after_a_database_error(
    slack: SlackSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = asyncio.Event()

    async def fail_and_signal(*_: Any) -> None:
        failed.set()
        raise StoreError("it was away for longer than is waited for")

    async with run_bot(slack, tmp_path, [Say("Once"), Pause(60)]) as bot:
        with monkeypatch.context() as outage:
            outage.setattr(TurnStore, "save_message_ids", fail_and_signal)
            await ask(bot)
            await asyncio.wait_for(failed.wait(), 30)
        await bot.worker.stop(0.1)
        (row,) = await bot.list_turns()
        assert (row.state, row.owner, row.attempt) == ("queued", None, 1)


async def test_a_stop_through_another_worker_ends_the_answer_with_a_notice(
    slack: SlackSimulator, tmp_path: Path
) -> None:
    async with run_half_answer(slack, tmp_path, "Once", "And now?") as (bot, question):
        (message,) = await bot.list_inbox_messages()
        async with bot.database.write() as connection:
            await bot.turns.request_cancel(connection, message.session, CancelReason.STOP)
        row = await get_outcome(bot)
        assert (row.state, row.error) == ("cancelled", CancelReason.STOP)
        assert bot.list_texts(question)[1:] == [f"Once\n\n{words.STOPPED}"]
        await slack.post_message("ada", question.channel, "go on", thread_ts=question.ts)
        await bot.wait_for_texts(question, lambda texts: texts[-1] == "And now?")


async def test_a_turn_of_a_channel_that_is_no_longer_configured_is_ended(slack: SlackSimulator, tmp_path: Path) -> None:
    async with run_bot(slack, tmp_path, "never said", connect=False) as bot:
        await bot.worker.stop(1)
        await bot.inbox.accept(replace(inbound(), platform="gone"))
        (turn,) = await bot.turns.claim(1)
        await bot.answerer.answer(turn)
        assert (await get_outcome(bot)).error == "SurfaceError: the platform gone is not set up"
