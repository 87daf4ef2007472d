import asyncio
from dataclasses import replace

import pytest

from chatrig.client.platform import ClientEvent, ClientEventKind, ClientMessage
from chatrig.terminal.replies import QuietTime, ReplyTracker

QUICK = QuietTime(quiet_seconds=0.05, max_quiet_seconds=0.2, stalled_reply_seconds=0.3, max_wait_seconds=5)


def create_message(key: str, text: str, *, bot: bool = False, thread: str | None = None) -> ClientMessage:
    author = "bot" if bot else "ada"
    return ClientMessage(key, "C1", author, bot, float(key), text, text, thread=thread)


def create_edit_event(placeholder: ClientMessage, text: str) -> ClientEvent:
    return ClientEvent(ClientEventKind.UPDATED, replace(placeholder, markdown=text, plain_text=text, revision=1))


class FastLoop(asyncio.SelectorEventLoop):
    """Event loop whose clock jumps to the next timer instead of waiting."""

    now = 1_000.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]  # asyncio's own list
        if not self._ready:  # type: ignore[attr-defined]
            due_times = (timer.when() for timer in scheduled if not timer.cancelled())
            self.now = max(self.now, min(due_times, default=self.now))
        super()._run_once()  # type: ignore[misc]


@pytest.fixture
def replies() -> ReplyTracker:
    return ReplyTracker(QUICK)


async def test_without_a_question_a_short_pause_is_enough(replies: ReplyTracker) -> None:
    assert await replies.wait_until_complete()


async def test_an_open_question_is_in_flight_until_the_limit(replies: ReplyTracker) -> None:
    replies.record_question(create_message("1", "hello"), expects_reply=True)
    assert replies.is_in_flight
    assert not await replies.wait_until_complete()


async def test_a_message_to_others_needs_no_answer(replies: ReplyTracker) -> None:
    replies.record_question(create_message("1", "hello"), expects_reply=False)
    assert not replies.is_in_flight


async def test_a_placeholder_is_in_flight_until_it_is_replaced(replies: ReplyTracker) -> None:
    replies.record_question(create_message("1", "hello"), expects_reply=True)
    placeholder = create_message("2", "Thinking", bot=True, thread="1")
    replies.record_event(ClientEvent(ClientEventKind.POSTED, placeholder))
    assert replies.is_in_flight
    replies.record_event(create_edit_event(placeholder, "Hello"))
    assert not replies.is_in_flight


async def test_a_long_first_text_is_no_placeholder(replies: ReplyTracker) -> None:
    replies.record_question(create_message("1", "help"), expects_reply=True)
    answer = create_message("2", "Mention me in a channel or send me a direct message.", bot=True, thread="1")
    replies.record_event(ClientEvent(ClientEventKind.POSTED, answer))
    assert await replies.wait_until_complete()


async def test_an_approval_is_no_placeholder_even_after_a_decision(replies: ReplyTracker) -> None:
    for first in (2, 4):
        replies.record_question(create_message(str(first - 1), "refund it"), expects_reply=True)
        approval = create_message(str(first), "Approve refund?", bot=True, thread=str(first - 1))
        approval = replace(approval, buttons={"Approve": "a", "Deny": "d"})
        replies.record_event(ClientEvent(ClientEventKind.POSTED, approval))
        assert not replies.is_in_flight
        replies.record_event(create_edit_event(approval, "Approved"))
    assert await replies.wait_until_complete()


async def test_a_file_after_a_streamed_reply_is_no_placeholder(replies: ReplyTracker) -> None:
    replies.record_question(create_message("1", "hello"), expects_reply=True)
    streamed = create_message("2", "", bot=True, thread="1")
    replies.record_event(ClientEvent(ClientEventKind.POSTED, replace(streamed, is_pending=True)))
    replies.record_event(create_edit_event(streamed, "Hello"))
    assert not replies.is_in_flight
    file = replace(create_message("3", "[file answer.md]", bot=True, thread="1"), has_files=True)
    replies.record_event(ClientEvent(ClientEventKind.POSTED, file))
    assert not replies.is_in_flight


async def test_a_command_answer_after_a_stream_is_no_placeholder(replies: ReplyTracker) -> None:
    replies.record_question(create_message("1", "hello"), expects_reply=True)
    streamed = create_message("2", "…", bot=True, thread="1")
    replies.record_event(ClientEvent(ClientEventKind.POSTED, replace(streamed, is_pending=True)))
    replies.record_event(create_edit_event(replace(streamed, is_pending=True), "… Hel"))
    replies.record_event(create_edit_event(streamed, "Hello"))
    replies.record_question(create_message("3", "reset", thread="1"), expects_reply=True)
    replies.record_event(ClientEvent(ClientEventKind.POSTED, create_message("4", "Started over", bot=True, thread="1")))
    assert not replies.is_in_flight
    assert await replies.wait_until_complete()


async def test_an_answer_before_its_question_is_recorded_counts(replies: ReplyTracker) -> None:
    placeholder = create_message("2", "Thinking", bot=True, thread="1")
    replies.record_event(ClientEvent(ClientEventKind.POSTED, placeholder))
    replies.record_event(create_edit_event(placeholder, "Hello"))
    replies.record_question(create_message("1", "hello"), expects_reply=True)
    assert not replies.is_in_flight


async def test_an_older_answer_does_not_count(replies: ReplyTracker) -> None:
    placeholder = create_message("2", "Thinking", bot=True, thread="1")
    replies.record_event(ClientEvent(ClientEventKind.POSTED, placeholder))
    replies.record_event(create_edit_event(placeholder, "Hello"))
    replies.record_question(create_message("3", "and now?", thread="1"), expects_reply=True)
    assert replies.is_in_flight


async def test_an_answer_in_another_conversation_does_not_count(replies: ReplyTracker) -> None:
    replies.record_question(create_message("1", "hello", thread="0"), expects_reply=True)
    placeholder = create_message("2", "Thinking", bot=True, thread="1")
    replies.record_event(ClientEvent(ClientEventKind.POSTED, placeholder))
    replies.record_event(create_edit_event(placeholder, "Hello"))
    assert replies.is_in_flight


async def test_a_placeholders_text_is_known_after_its_replacement(replies: ReplyTracker) -> None:
    first = create_message("2", "Thinking", bot=True, thread="1")
    replies.record_event(ClientEvent(ClientEventKind.POSTED, first))
    replies.record_event(create_edit_event(first, "Hello"))
    replies.record_event(
        ClientEvent(ClientEventKind.POSTED, create_message("3", "the rest of the answer", bot=True, thread="1"))
    )
    assert not replies.is_in_flight
    replies.record_event(ClientEvent(ClientEventKind.POSTED, create_message("4", "Thinking", bot=True, thread="1")))
    assert replies.is_in_flight


async def test_an_ephemeral_answer_is_complete(replies: ReplyTracker) -> None:
    replies.record_question(create_message("1", "hello"), expects_reply=True)
    refusal = replace(create_message("2", "not here", bot=True), ephemeral_to="U1")
    replies.record_event(ClientEvent(ClientEventKind.POSTED, refusal))
    assert not replies.is_in_flight


async def test_a_pending_message_is_in_flight_until_edited_or_deleted(replies: ReplyTracker) -> None:
    thinking = replace(create_message("2", "bot is thinking…", bot=True), is_pending=True, ephemeral_to="U1")
    other = replace(thinking, id="3", ephemeral_to=None)
    replies.record_event(ClientEvent(ClientEventKind.POSTED, thinking))
    replies.record_event(ClientEvent(ClientEventKind.POSTED, other))
    assert replies.is_in_flight
    replies.record_event(create_edit_event(replace(thinking, is_pending=False), "done"))
    assert replies.is_in_flight
    replies.record_event(ClientEvent(ClientEventKind.DELETED, other))
    assert not replies.is_in_flight


def test_a_slow_reply_is_waited_for() -> None:
    async def main() -> None:
        replies = ReplyTracker(QUICK)
        replies.record_question(create_message("1", "hello"), expects_reply=True)
        reply = create_message("2", "Thinking", bot=True, thread="1")
        replies.record_event(ClientEvent(ClientEventKind.POSTED, reply))

        async def edit_reply() -> None:
            for words in range(1, 6):
                await asyncio.sleep(0.04)
                replies.record_event(create_edit_event(reply, "word " * words))

        async with asyncio.TaskGroup() as group:
            growing = group.create_task(edit_reply())
            assert await replies.wait_until_complete()
            assert growing.done()

    with asyncio.Runner(loop_factory=FastLoop) as runner:
        runner.run(main())
