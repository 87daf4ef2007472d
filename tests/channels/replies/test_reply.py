import asyncio
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channels.base import (
    FIRST_TEXT,
    STATUS_RESERVE,
    Button,
    EditRefusedError,
    File,
    FileRefusedError,
    Plan,
    Priority,
    RecordMessageId,
)
from channels.i18n import messages as words
from channels.i18n.messages import PLACEHOLDER
from channels.markdown.dialect import MessageLimits
from channels.replies import reply as reply_module
from channels.replies.reply import Reply
from core.errors import SurfaceError, TurnLostError


class Board:
    """Reply surface whose calls a test can block."""

    limits = MessageLimits(chunk_size=100, measure=len)

    def __init__(self) -> None:
        self.messages: dict[str, str] = {}
        self.plans: list[Plan] = []
        self.log: list[str] = []
        self.in_flight = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.drop_ticks = 0
        self.has_no_room = False
        self.has_no_place_for: set[Priority] = set()
        self.asked: list[Priority] = []
        self.are_silent: list[bool] = []
        self.error: Exception | None = None
        self._changed = asyncio.Condition()

    @contextmanager
    def track_reply(self) -> Iterator[None]:
        yield

    def try_open(self) -> bool:
        return not self.has_no_room

    async def acquire_slot(
        self, priority: Priority, *, is_post: bool, is_last_edit: bool, outdated_since: float
    ) -> None:
        self.asked.append(priority)
        self.are_silent.append(outdated_since == FIRST_TEXT)
        async with self._changed:
            self._changed.notify_all()
        if priority in self.has_no_place_for:
            await asyncio.Event().wait()
        await asyncio.sleep(0)

    async def show(self, plan: Plan, known_ids: Sequence[str], record: RecordMessageId) -> bool:
        assert self.in_flight == 0, "two calls at once"
        self.in_flight += 1
        self.plans.append(plan)
        try:
            async with self._changed:
                self._changed.notify_all()
            await self.gate.wait()
            await asyncio.sleep(0)
            if self.error is not None:
                raise self.error
            if plan.priority is Priority.STREAM_UPDATE and self.drop_ticks:
                self.drop_ticks -= 1
                return False
            await self._apply(plan, known_ids, record)
            return True
        finally:
            self.in_flight -= 1
            async with self._changed:
                self._changed.notify_all()

    async def _apply(self, plan: Plan, known: Sequence[str], record: RecordMessageId) -> None:
        for position, chunk in enumerate(plan.chunks):
            id_ = known[position] if position < len(known) else f"m{len(self.log)}"
            self.messages[id_] = chunk.text
            if position >= len(known):
                self.log.append(f"post {id_}")
                await record(position, id_)
        for id_ in known[len(plan.chunks) :]:
            del self.messages[id_]

    async def find_message_ids(self, recorded_ids: Sequence[str] = (), *, is_contested: bool = False) -> list[str]:
        return list(self.messages)

    async def delete_messages(self, message_ids: Sequence[str]) -> None:
        for id_ in message_ids:
            del self.messages[id_]

    async def add_reaction(self, emoji: str) -> None:
        raise AssertionError(f"a reply does not react: {emoji}")

    async def post_message(self, text: str, file: File | None = None) -> None:
        raise AssertionError(f"a reply says nothing beside itself: {text}")

    def add_queued_reaction(self) -> None:
        self.log.append("waits")

    def assume_queued_reaction(self) -> None:
        self.log.append("waited")

    async def remove_queued_reaction(self) -> None:
        self.log.append("begun")

    async def keep(self, ids: Sequence[str]) -> None:
        await asyncio.sleep(0)
        self.log.append(f"keep {' '.join(ids)}")

    @property
    def shown(self) -> list[str]:
        return list(self.messages.values())

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(20), self._changed:
            await self._changed.wait_for(condition)


@pytest.fixture
async def board() -> Board:
    return Board()


def on(board: Board, **more: Any) -> Reply:
    return Reply(board, save_ids=board.keep, **more)


async def test_shown_text_is_not_sent_again(board: Board) -> None:
    async with on(board) as reply:
        reply.feed("Well.")
        await board.until(lambda: board.shown == ["Well."] and not board.in_flight)
        shown = len(board.plans)
        reply.replace("Well.")
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(board.plans) == shown
        await reply.close("Well.")
    assert [plan.priority for plan in board.plans[shown:]] == [Priority.FINAL]


async def test_a_placeholder_is_posted_first_and_then_replaced(board: Board) -> None:
    async with on(board) as reply:
        await board.until(lambda: board.shown == [PLACEHOLDER])
        assert board.plans[0].priority is Priority.PROGRESS
        reply.feed("Hello")
        await board.until(lambda: board.shown == ["Hello"])
        await reply.close("Hello, you.")
    assert board.shown == ["Hello, you."]
    assert board.plans[-1].priority is Priority.FINAL
    assert board.log.count("begun") == 1


async def test_feed_does_not_wait_and_only_the_newest_text_is_shown(board: Board) -> None:
    board.gate.clear()
    async with on(board) as reply:
        await board.until(lambda: board.in_flight)
        for _ in range(50):
            reply.feed("x")
            await asyncio.sleep(0)
        assert len(board.plans) == 1
        board.gate.set()
        await board.until(lambda: board.shown == ["x" * 50])
        assert len(board.plans) == 2
        await reply.close("x" * 50)


async def test_the_first_text_waits_neither_for_a_pace_nor_in_the_queue(board: Board) -> None:
    async with on(board) as reply:
        await board.until(lambda: board.shown == [PLACEHOLDER])
        board.has_no_place_for = {Priority.STREAM_UPDATE}
        reply.show_status("_Searching…_")
        await board.until(lambda: board.asked[-1] is Priority.STREAM_UPDATE)
        assert not any(board.are_silent)
        board.has_no_place_for = set()
        reply.feed("**")
        reply.feed("The ")
        await board.until(lambda: board.shown == ["**The**"])
        assert board.are_silent[-1:] == [True]
        reply.feed("answer**")
        await board.until(lambda: board.shown == ["**The answer**"])
        assert board.are_silent[-1:] == [False]
        await reply.close("**The answer**")


async def test_a_dropped_tick_is_retried(board: Board) -> None:
    async with on(board) as reply:
        await board.until(lambda: board.shown)
        board.drop_ticks = 3
        reply.feed("text")
        await board.until(lambda: board.shown == ["text"])
        assert len(board.plans) == 5
        await reply.close("text")


async def test_a_call_that_waited_for_its_slot_shows_the_newest_text(board: Board) -> None:
    async with on(board) as reply:
        await board.until(lambda: board.shown)
        board.has_no_place_for = {Priority.STREAM_UPDATE}
        for _ in range(50):
            reply.feed("x")
            await asyncio.sleep(0)
        assert len(board.plans) == 1
        await reply.close("x" * 50 + "!")
    assert board.shown == ["x" * 50 + "!"]
    assert len(board.plans) == 2
    assert [priority for priority, _ in groupby(board.asked)] == [
        Priority.PROGRESS,
        Priority.STREAM_UPDATE,
        Priority.FINAL,
    ]


async def test_a_reply_closed_before_its_placeholder_is_posted_completely(board: Board) -> None:
    board.has_no_place_for = {Priority.PROGRESS}
    async with on(board) as reply:
        await asyncio.sleep(0)
        await reply.close("the answer")
    assert [[chunk.text for chunk in plan.chunks] for plan in board.plans] == [["the answer"]]


async def test_with_scarce_calls_a_chunk_is_posted_when_it_is_complete(board: Board) -> None:
    board.has_no_room = True
    text = "\n\n".join(f"{number} {'word ' * 12}".strip() for number in range(4))
    async with on(board) as reply:
        for start in range(0, len(text), 7):
            reply.feed(text[start : start + 7])
            await asyncio.sleep(0)
        await board.until(lambda: len(board.shown) == 3)
        assert all(not plan.is_growing and plan.priority is not Priority.STREAM_UPDATE for plan in board.plans)
        await reply.close(text)
    assert "\n\n".join(board.shown) == text


async def test_with_scarce_calls_a_reaction_stays_until_the_first_chunk(board: Board) -> None:
    board.has_no_room = True
    async with asyncio.timeout(20), Reply(board, save_ids=board.keep) as reply:
        while not board.log:  # noqa: ASYNC110 (it says so without a word)
            await asyncio.sleep(0)
        reply.feed("so far, ")
        await asyncio.sleep(0.01)
        assert set(board.log) == {"waits"}
        await reply.close("so good")
    assert list(board.messages.values()) == ["so good"]
    assert board.log.index("begun") > max(at for at, line in enumerate(board.log) if line == "waits")


async def test_a_reply_without_budget_grows_as_soon_as_there_is_some(board: Board) -> None:
    board.has_no_room = True
    async with on(board) as reply:
        reply.feed("not yet")
        await asyncio.sleep(0.01)
        assert board.shown == []
        board.has_no_room = False
        reply.feed(", but now")
        await board.until(lambda: board.shown == ["not yet, but now"])
        await reply.close("not yet, but now")


async def test_a_full_chunk_is_completed_before_others_grow(board: Board) -> None:
    async with on(board) as reply:
        await board.until(lambda: board.shown)
        board.has_no_place_for = {Priority.STREAM_UPDATE}
        reply.feed("word " * 10)
        await asyncio.sleep(0.01)
        reply.feed("word " * 15)
        await board.until(lambda: len(board.plans) == 2)
        assert (board.plans[1].priority, board.plans[1].is_growing) == (Priority.PROGRESS, False)
        await reply.close("word " * 25)


async def test_releasing_a_reply_does_not_wait_for_a_slot(board: Board) -> None:
    board.has_no_place_for = set(Priority)
    async with asyncio.timeout(20), on(board) as reply:
        reply.feed("text")
        await asyncio.sleep(0)
    assert board.plans == []


async def test_a_silent_model_is_shown_with_its_duration(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply_module, "SILENCE_SECONDS", 1.0)
    async with on(board) as reply:
        await board.until(lambda: board.shown == [f"{PLACEHOLDER} (1 s)"])
        reply.show_status("Using a tool")
        await board.until(lambda: board.shown == ["Using a tool"])
        await board.until(lambda: board.shown == ["Using a tool (1 s)"])
        reply.feed("So")
        await board.until(lambda: board.shown == ["So"])
        await reply.close("So.")


async def test_close_shows_the_complete_text_despite_dropped_ticks(board: Board) -> None:
    board.drop_ticks = 1000
    async with on(board) as reply:
        for _ in range(10):
            reply.feed("word " * 10)
            await asyncio.sleep(0)
        await reply.close("word " * 100)
    assert len(board.shown) > 3
    assert "".join(text + " " for text in board.shown) == "word " * 100


async def test_extra_messages_are_deleted(board: Board) -> None:
    async with on(board) as reply:
        reply.feed("word " * 100)
        await board.until(lambda: len(board.shown) > 3)
        await reply.close("Short.")
    assert board.shown == ["Short."]
    assert board.log[-1] == "keep m0"


async def test_each_id_is_stored_before_the_next_message_is_posted(board: Board) -> None:
    async with on(board) as reply:
        await reply.close("word " * 50)
    posts = [line.removeprefix("post ") for line in board.log if line.startswith("post")]
    expected = [line for n, id_ in enumerate(posts) for line in (f"post {id_}", f"keep {' '.join(posts[: n + 1])}")]
    assert [line for line in board.log if line != "begun"] == expected


async def test_existing_messages_are_edited(board: Board) -> None:
    board.messages = {"a": "half an ans", "b": "left over"}
    async with on(board, known_ids=("a", "b")) as reply:
        await reply.close("The answer.")
    assert board.messages == {"a": "The answer."}


async def test_a_status_is_shown_under_the_text_until_more_text_arrives(board: Board) -> None:
    async with on(board) as reply:
        reply.show_status("Using a tool")
        await board.until(lambda: board.shown == ["Using a tool"])
        reply.feed("So far")
        await board.until(lambda: board.shown == ["So far"])
        reply.show_status("Using another")
        await board.until(lambda: board.shown == ["So far\n\nUsing another"])
        await reply.close("So far, so good.")
    assert board.shown == ["So far, so good."]


async def test_a_replaced_text_is_shown(board: Board) -> None:
    async with on(board) as reply:
        reply.feed("secret")
        await board.until(lambda: board.shown == ["secret"])
        reply.replace("redacted")
        await board.until(lambda: board.shown == ["redacted"])
        await reply.close(reply.text)


async def test_close_raises_the_error_of_the_surface(board: Board) -> None:
    board.error = SurfaceError("chat.update: is_archived")
    async with on(board) as reply:
        await board.until(lambda: board.plans and not board.in_flight)
        reply.feed("more")
        with pytest.raises(SurfaceError, match="is_archived"):
            await reply.close("all")
    assert len(board.plans) == 1


@pytest.mark.parametrize("is_under_way", [False, True])
async def test_a_refused_chunk_loses_no_text(board: Board, is_under_way: bool) -> None:
    async with on(board) as reply:
        await board.until(lambda: board.messages and not board.in_flight)
        board.error = EditRefusedError("edit: 240000")
        board.gate.clear()
        reply.feed("half of ")
        await board.until(lambda: board.in_flight)
        closing = asyncio.create_task(reply.close("half of it")) if is_under_way else None
        await asyncio.sleep(0)
        board.gate.set()
        await board.until(lambda: not board.in_flight)
        board.error = None
        await (closing or reply.close("half of it"))
    assert list(board.messages.values()) == ["half of it"]
    assert [plan.chunks[0].text for plan in board.plans] == ["…", "half of", "half of it"]


async def test_the_name_of_a_missing_file_fits_into_a_message(board: Board) -> None:
    """Check a file name from the model with a text too long for chunks."""
    show = board.show

    async def without_files(plan: Plan, known_ids: Sequence[str], record: RecordMessageId) -> bool:
        if lost := [file.name for file in plan.files if file.name != reply_module.FILE_NAME]:
            raise FileRefusedError("too large", lost)
        return await show(plan, known_ids, record)

    board.show = without_files  # type: ignore[method-assign]
    async with on(board, max_messages=2) as reply:
        await reply.close("word " * 100, files=[File(f"{number}{'n' * 50}", b"x") for number in range(3)])
    assert len(board.messages) == 2
    assert all(len(text) <= Board.limits.chunk_size + STATUS_RESERVE for text in board.messages.values())


async def test_a_reply_that_cannot_be_shown_removes_its_queued_reaction(board: Board) -> None:
    board.error = SurfaceError("gone")
    async with on(board) as reply:
        with pytest.raises(SurfaceError):
            await reply.close("all")
    assert board.log == ["begun"]


async def test_an_unretrieved_surface_error_is_not_logged(board: Board) -> None:
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    board.error = SurfaceError("gone")
    async with on(board):
        await board.until(lambda: board.plans and not board.in_flight)
    gc.collect()
    await asyncio.sleep(0)
    assert unheard == []


async def test_releasing_a_reply_waits_for_the_call_in_flight_only(board: Board) -> None:
    board.gate.clear()
    async with on(board) as reply:
        await board.until(lambda: board.in_flight)
        reply.feed("more")
        asyncio.get_running_loop().call_later(0.01, board.gate.set)
    assert board.shown == [PLACEHOLDER]
    assert len(board.plans) == 1


async def test_a_hanging_call_in_flight_is_given_up(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply_module, "ABANDON_TIMEOUT", 0.01)
    board.gate.clear()
    async with on(board):
        await board.until(lambda: board.in_flight)
    assert board.shown == []


async def test_a_second_close_replaces_the_first(board: Board) -> None:
    async with on(board) as reply:
        await board.until(lambda: board.shown)
        board.gate.clear()
        first = asyncio.create_task(reply.close("the answer"))
        await board.until(lambda: board.in_flight)
        second = asyncio.create_task(reply.close("stopped", Priority.ERROR))
        await asyncio.sleep(0)
        board.gate.set()
        await asyncio.gather(first, second)
    assert board.shown == ["stopped"]


async def test_a_cancelled_close_continues_and_may_be_replaced(board: Board) -> None:
    async with on(board) as reply:
        await board.until(lambda: board.shown)
        board.gate.clear()
        first = asyncio.create_task(reply.close("the answer"))
        await board.until(lambda: board.in_flight)
        first.cancel()
        await asyncio.wait([first])
        board.gate.set()
        await reply.close("stopped")
    assert board.shown == ["stopped"]


async def test_a_closed_reply_may_be_closed_again(board: Board) -> None:
    async with on(board) as reply:
        await reply.close("the answer")
        await reply.close("the answer", ending="deleted")
    assert board.shown == ["the answer\n\ndeleted"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text("ab \n", max_size=60), max_size=12), st.integers(0, 3), st.text("ab \n`", max_size=300))
def test_close_shows_exactly_the_plan_of_the_last_text(pieces: list[str], dropped: int, last: str) -> None:
    async def main() -> None:
        board = Board()
        board.drop_ticks = dropped
        async with on(board) as reply:
            for piece in pieces:
                reply.feed(piece)
                await asyncio.sleep(0)
            await reply.close(last)
        whole = Board()
        async with on(whole) as reply:
            await reply.close(last)
        assert board.shown == whole.shown
        assert board.log[-1].removeprefix("keep ").split() == list(board.messages) or board.log[-1] == "begun"

    asyncio.run(main())


async def test_a_reply_stops_when_another_worker_owns_its_turn(board: Board) -> None:
    is_lost = False

    async def hold() -> None:
        if is_lost:
            raise TurnLostError("it is another worker's")

    async with on(board, check_owned=hold) as reply:
        reply.feed("mine")
        await board.until(lambda: board.shown == ["mine"])
        is_lost = True
        with pytest.raises(TurnLostError):
            await reply.close("late")
    assert board.shown == ["mine"]


async def test_messages_posted_after_a_lost_lease_are_orphans(board: Board) -> None:
    async def keep(_ids: Sequence[str]) -> None:
        raise TurnLostError("it is another worker's")

    async with Reply(board, save_ids=keep) as reply:
        with pytest.raises(TurnLostError):
            await reply.close("late")
    assert reply.orphaned_ids == list(board.messages)


async def test_a_released_reply_has_no_call_in_flight(board: Board) -> None:
    async with on(board) as reply:
        await board.until(lambda: board.in_flight)
        await reply.abandon()
        assert not board.in_flight
        assert board.log[-1] == "begun"


async def test_growing_and_ended_replies_have_their_own_buttons(board: Board) -> None:
    stop, more, again = (Button(f"{name}:1", name) for name in ("stop", "revise", "regenerate"))
    async with on(board, buttons=[stop]) as reply:
        await board.until(lambda: board.shown == [PLACEHOLDER])
        reply.feed("Hello")
        await board.until(lambda: board.shown == ["Hello"])
        reply.update_buttons([more, stop])
        await board.until(lambda: board.plans[-1].buttons == [more, stop])
        await reply.close("Hello, you.", buttons=[again])
        reply.update_buttons([stop])
    assert [plan.buttons for plan in board.plans] == [[stop], [stop], [more, stop], [again]]


async def test_a_chunk_that_is_posted_complete_has_no_button(board: Board) -> None:
    stop = Button("stop:1", "Stop")
    board.has_no_room = True
    async with on(board, buttons=[stop]) as reply:
        reply.feed("word " * 30)
        await board.until(lambda: board.shown)
        assert [plan.buttons for plan in board.plans] == [()]
        await reply.close("word " * 30)


async def test_notices_of_a_reply_are_in_its_language(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply_module, "SILENCE_SECONDS", 0.01)
    korean = words.messages_for("ko")
    async with on(board, max_messages=1, say=korean) as reply:
        await board.until(lambda: board.shown and "초" in board.shown[0])
        await reply.close("word " * 40)
    assert board.shown[0].endswith(korean(words.FULL_ANSWER_IN_FILE))
