import asyncio
from dataclasses import replace

import pytest

from sandbox.client.platform import ClientEvent, HappeningKind, ShownMessage
from sandbox.terminal.replies import QuietTime, ReplyTracker
from tests.fixtures.clock import FastLoop

QUICK = QuietTime(quiet=0.05, longest_quiet=0.2, patience=0.3, limit=5)


def message(key: str, text: str, *, bot: bool = False, thread: str | None = None) -> ShownMessage:
    author = "parley" if bot else "ada"
    return ShownMessage(key, "C1", author, bot, float(key), text, text, thread=thread)


def grown(placeholder: ShownMessage, text: str) -> ClientEvent:
    return ClientEvent(HappeningKind.UPDATED, replace(placeholder, text=text, plain=text, revision=1))


@pytest.fixture
def replies() -> ReplyTracker:
    return ReplyTracker(QUICK)


async def test_with_nothing_asked_it_is_settled_after_a_quiet_moment(replies: ReplyTracker) -> None:
    assert await replies.settled()


async def test_a_question_without_an_answer_is_in_flight_until_patience_ends(replies: ReplyTracker) -> None:
    replies.ask(message("1", "hello"), addressed=True)
    assert replies.in_flight
    assert not await replies.settled()


async def test_what_was_not_said_to_the_bot_needs_no_answer(replies: ReplyTracker) -> None:
    replies.ask(message("1", "hello"), addressed=False)
    assert not replies.in_flight


async def test_a_placeholder_is_in_flight_until_it_is_replaced(replies: ReplyTracker) -> None:
    replies.ask(message("1", "hello"), addressed=True)
    placeholder = message("2", "Thinking", bot=True, thread="1")
    replies.note(ClientEvent(HappeningKind.POSTED, placeholder))
    assert replies.in_flight
    replies.note(grown(placeholder, "Hello"))
    assert not replies.in_flight


async def test_a_file_behind_a_reply_that_was_streamed_is_no_placeholder(replies: ReplyTracker) -> None:
    replies.ask(message("1", "hello"), addressed=True)
    streamed = message("2", "", bot=True, thread="1")
    replies.note(ClientEvent(HappeningKind.POSTED, replace(streamed, pending=True)))
    replies.note(grown(streamed, "Hello"))
    assert not replies.in_flight
    file = replace(message("3", "[file answer.md]", bot=True, thread="1"), has_files=True)
    replies.note(ClientEvent(HappeningKind.POSTED, file))
    assert not replies.in_flight


async def test_the_answer_to_a_command_is_no_placeholder_after_a_reply_that_was_streamed(replies: ReplyTracker) -> None:
    replies.ask(message("1", "hello"), addressed=True)
    streamed = message("2", "…", bot=True, thread="1")
    replies.note(ClientEvent(HappeningKind.POSTED, replace(streamed, pending=True)))
    replies.note(grown(replace(streamed, pending=True), "… Hel"))
    replies.note(grown(streamed, "Hello"))
    replies.ask(message("3", "reset", thread="1"), addressed=True)
    replies.note(ClientEvent(HappeningKind.POSTED, message("4", "Started over", bot=True, thread="1")))
    assert not replies.in_flight
    assert await replies.settled()


async def test_an_answer_that_came_before_the_question_was_noted_counts(replies: ReplyTracker) -> None:
    placeholder = message("2", "Thinking", bot=True, thread="1")
    replies.note(ClientEvent(HappeningKind.POSTED, placeholder))
    replies.note(grown(placeholder, "Hello"))
    replies.ask(message("1", "hello"), addressed=True)
    assert not replies.in_flight


async def test_an_older_answer_does_not_count(replies: ReplyTracker) -> None:
    placeholder = message("2", "Thinking", bot=True, thread="1")
    replies.note(ClientEvent(HappeningKind.POSTED, placeholder))
    replies.note(grown(placeholder, "Hello"))
    replies.ask(message("3", "and now?", thread="1"), addressed=True)
    assert replies.in_flight


async def test_an_answer_elsewhere_does_not_count(replies: ReplyTracker) -> None:
    replies.ask(message("1", "hello", thread="0"), addressed=True)
    placeholder = message("2", "Thinking", bot=True, thread="1")
    replies.note(ClientEvent(HappeningKind.POSTED, placeholder))
    replies.note(grown(placeholder, "Hello"))
    assert replies.in_flight


async def test_the_words_of_a_placeholder_are_known_once_they_were_replaced(replies: ReplyTracker) -> None:
    first = message("2", "Thinking", bot=True, thread="1")
    replies.note(ClientEvent(HappeningKind.POSTED, first))
    replies.note(grown(first, "Hello"))
    replies.note(ClientEvent(HappeningKind.POSTED, message("3", "the rest of the answer", bot=True, thread="1")))
    assert not replies.in_flight
    replies.note(ClientEvent(HappeningKind.POSTED, message("4", "Thinking", bot=True, thread="1")))
    assert replies.in_flight


async def test_an_ephemeral_answer_is_complete(replies: ReplyTracker) -> None:
    replies.ask(message("1", "hello"), addressed=True)
    refusal = replace(message("2", "not here", bot=True), only_for="U1")
    replies.note(ClientEvent(HappeningKind.POSTED, refusal))
    assert not replies.in_flight


async def test_what_the_platform_calls_pending_is_in_flight_until_it_comes_or_goes(replies: ReplyTracker) -> None:
    thinking = replace(message("2", "parley is thinking…", bot=True), pending=True, only_for="U1")
    other = replace(thinking, id="3", only_for=None)
    replies.note(ClientEvent(HappeningKind.POSTED, thinking))
    replies.note(ClientEvent(HappeningKind.POSTED, other))
    assert replies.in_flight
    replies.note(grown(replace(thinking, pending=False), "done"))
    assert replies.in_flight
    replies.note(ClientEvent(HappeningKind.DELETED, other))
    assert not replies.in_flight


def test_a_reply_that_grows_slowly_is_waited_for() -> None:
    async def main() -> None:
        replies = ReplyTracker(QUICK)
        replies.ask(message("1", "hello"), addressed=True)
        reply = message("2", "Thinking", bot=True, thread="1")
        replies.note(ClientEvent(HappeningKind.POSTED, reply))

        async def grow() -> None:
            for words in range(1, 6):
                await asyncio.sleep(0.04)
                replies.note(grown(reply, "word " * words))

        async with asyncio.TaskGroup() as group:
            growing = group.create_task(grow())
            assert await replies.settled()
            assert growing.done()

    with asyncio.Runner(loop_factory=FastLoop) as runner:
        runner.run(main())
