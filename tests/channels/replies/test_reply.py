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


class BlockableSurface:
    """Reply surface in memory whose calls a test can block."""

    limits = MessageLimits(chunk_size=100, measure=len)

    def __init__(self) -> None:
        self.messages: dict[str, str] = {}
        self.plans: list[Plan] = []
        self.log: list[str] = []
        self.in_flight = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.drop_ticks = 0
        self.is_full = False
        self.blocked_priorities: set[Priority] = set()
        self.priorities: list[Priority] = []
        self.are_silent: list[bool] = []
        self.error: Exception | None = None
        self._changed = asyncio.Condition()

    @contextmanager
    def track_reply(self) -> Iterator[None]:
        yield

    def try_open(self) -> bool:
        return not self.is_full

    async def acquire_slot(
        self, priority: Priority, *, is_post: bool, is_last_edit: bool, outdated_since: float
    ) -> None:
        self.priorities.append(priority)
        self.are_silent.append(outdated_since == FIRST_TEXT)
        async with self._changed:
            self._changed.notify_all()
        if priority in self.blocked_priorities:
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
        raise AssertionError(f"a reply posts no other message: {text}")

    def add_queued_reaction(self) -> None:
        self.log.append("queued reaction")

    def mark_queued_reaction_added(self) -> None:
        self.log.append("assumed reaction")

    async def remove_queued_reaction(self) -> None:
        self.log.append("reaction removed")

    async def save_ids(self, ids: Sequence[str]) -> None:
        await asyncio.sleep(0)
        self.log.append(f"save {' '.join(ids)}")

    @property
    def texts(self) -> list[str]:
        return list(self.messages.values())

    async def wait_for_condition(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(20), self._changed:
            await self._changed.wait_for(condition)


@pytest.fixture
async def surface() -> BlockableSurface:
    return BlockableSurface()


def create_reply(board: BlockableSurface, **kwargs: Any) -> Reply:
    return Reply(board, save_ids=board.save_ids, **kwargs)


async def test_shown_text_is_not_sent_again(surface: BlockableSurface) -> None:
    async with create_reply(surface) as reply:
        reply.feed("Well.")
        await surface.wait_for_condition(lambda: surface.texts == ["Well."] and not surface.in_flight)
        texts = len(surface.plans)
        reply.replace("Well.")
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(surface.plans) == texts
        await reply.close("Well.")
    assert [plan.priority for plan in surface.plans[texts:]] == [Priority.FINAL]


async def test_a_placeholder_is_posted_first_and_then_replaced(surface: BlockableSurface) -> None:
    async with create_reply(surface) as reply:
        await surface.wait_for_condition(lambda: surface.texts == [PLACEHOLDER])
        assert surface.plans[0].priority is Priority.PROGRESS
        reply.feed("Hello")
        await surface.wait_for_condition(lambda: surface.texts == ["Hello"])
        await reply.close("Hello, you.")
    assert surface.texts == ["Hello, you."]
    assert surface.plans[-1].priority is Priority.FINAL
    assert surface.log.count("reaction removed") == 1


async def test_feed_does_not_wait_and_only_the_newest_text_is_shown(surface: BlockableSurface) -> None:
    surface.gate.clear()
    async with create_reply(surface) as reply:
        await surface.wait_for_condition(lambda: surface.in_flight)
        for _ in range(50):
            reply.feed("x")
            await asyncio.sleep(0)
        assert len(surface.plans) == 1
        surface.gate.set()
        await surface.wait_for_condition(lambda: surface.texts == ["x" * 50])
        assert len(surface.plans) == 2
        await reply.close("x" * 50)


async def test_the_first_text_waits_neither_for_a_pace_nor_in_the_queue(surface: BlockableSurface) -> None:
    async with create_reply(surface) as reply:
        await surface.wait_for_condition(lambda: surface.texts == [PLACEHOLDER])
        surface.blocked_priorities = {Priority.STREAM_UPDATE}
        reply.show_status("_Searching…_")
        await surface.wait_for_condition(lambda: surface.priorities[-1] is Priority.STREAM_UPDATE)
        assert not any(surface.are_silent)
        surface.blocked_priorities = set()
        reply.feed("**")
        reply.feed("The ")
        await surface.wait_for_condition(lambda: surface.texts == ["**The**"])
        assert surface.are_silent[-1:] == [True]
        reply.feed("answer**")
        await surface.wait_for_condition(lambda: surface.texts == ["**The answer**"])
        assert surface.are_silent[-1:] == [False]
        await reply.close("**The answer**")


async def test_a_dropped_tick_is_retried(surface: BlockableSurface) -> None:
    async with create_reply(surface) as reply:
        await surface.wait_for_condition(lambda: surface.texts)
        surface.drop_ticks = 3
        reply.feed("text")
        await surface.wait_for_condition(lambda: surface.texts == ["text"])
        assert len(surface.plans) == 5
        await reply.close("text")


async def test_a_call_that_waited_for_its_slot_shows_the_newest_text(surface: BlockableSurface) -> None:
    async with create_reply(surface) as reply:
        await surface.wait_for_condition(lambda: surface.texts)
        surface.blocked_priorities = {Priority.STREAM_UPDATE}
        for _ in range(50):
            reply.feed("x")
            await asyncio.sleep(0)
        assert len(surface.plans) == 1
        await reply.close("x" * 50 + "!")
    assert surface.texts == ["x" * 50 + "!"]
    assert len(surface.plans) == 2
    assert [priority for priority, _ in groupby(surface.priorities)] == [
        Priority.PROGRESS,
        Priority.STREAM_UPDATE,
        Priority.FINAL,
    ]


async def test_a_reply_closed_before_its_placeholder_is_posted_completely(surface: BlockableSurface) -> None:
    surface.blocked_priorities = {Priority.PROGRESS}
    async with create_reply(surface) as reply:
        await asyncio.sleep(0)
        await reply.close("the answer")
    assert [[chunk.text for chunk in plan.chunks] for plan in surface.plans] == [["the answer"]]


async def test_with_scarce_calls_a_chunk_is_posted_when_it_is_complete(surface: BlockableSurface) -> None:
    surface.is_full = True
    text = "\n\n".join(f"{number} {'word ' * 12}".strip() for number in range(4))
    async with create_reply(surface) as reply:
        for start in range(0, len(text), 7):
            reply.feed(text[start : start + 7])
            await asyncio.sleep(0)
        await surface.wait_for_condition(lambda: len(surface.texts) == 3)
        assert all(not plan.is_growing and plan.priority is not Priority.STREAM_UPDATE for plan in surface.plans)
        await reply.close(text)
    assert "\n\n".join(surface.texts) == text


async def test_with_scarce_calls_a_reaction_stays_until_the_first_chunk(surface: BlockableSurface) -> None:
    surface.is_full = True
    async with asyncio.timeout(20), Reply(surface, save_ids=surface.save_ids) as reply:
        while not surface.log:  # noqa: ASYNC110 (the surface sends no event)
            await asyncio.sleep(0)
        reply.feed("so far, ")
        await asyncio.sleep(0.01)
        assert set(surface.log) == {"queued reaction"}
        await reply.close("so good")
    assert list(surface.messages.values()) == ["so good"]
    assert surface.log.index("reaction removed") > max(
        at for at, line in enumerate(surface.log) if line == "queued reaction"
    )


async def test_a_reply_without_budget_grows_as_soon_as_there_is_some(surface: BlockableSurface) -> None:
    surface.is_full = True
    async with create_reply(surface) as reply:
        reply.feed("not yet")
        await asyncio.sleep(0.01)
        assert surface.texts == []
        surface.is_full = False
        reply.feed(", but now")
        await surface.wait_for_condition(lambda: surface.texts == ["not yet, but now"])
        await reply.close("not yet, but now")


async def test_a_full_chunk_is_completed_before_others_grow(surface: BlockableSurface) -> None:
    async with create_reply(surface) as reply:
        await surface.wait_for_condition(lambda: surface.texts)
        surface.blocked_priorities = {Priority.STREAM_UPDATE}
        reply.feed("word " * 10)
        await asyncio.sleep(0.01)
        reply.feed("word " * 15)
        await surface.wait_for_condition(lambda: len(surface.plans) == 2)
        assert (surface.plans[1].priority, surface.plans[1].is_growing) == (Priority.PROGRESS, False)
        await reply.close("word " * 25)


async def test_releasing_a_reply_does_not_wait_for_a_slot(surface: BlockableSurface) -> None:
    surface.blocked_priorities = set(Priority)
    async with asyncio.timeout(20), create_reply(surface) as reply:
        reply.feed("text")
        await asyncio.sleep(0)
    assert surface.plans == []


async def test_a_silent_model_is_shown_with_its_duration(
    surface: BlockableSurface, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply_module, "SILENCE_SECONDS", 1.0)
    async with create_reply(surface) as reply:
        await surface.wait_for_condition(lambda: surface.texts == [f"{PLACEHOLDER} (1 s)"])
        reply.show_status("Using a tool")
        await surface.wait_for_condition(lambda: surface.texts == ["Using a tool"])
        await surface.wait_for_condition(lambda: surface.texts == ["Using a tool (1 s)"])
        reply.feed("So")
        await surface.wait_for_condition(lambda: surface.texts == ["So"])
        await reply.close("So.")


async def test_close_shows_the_complete_text_despite_dropped_ticks(surface: BlockableSurface) -> None:
    surface.drop_ticks = 1000
    async with create_reply(surface) as reply:
        for _ in range(10):
            reply.feed("word " * 10)
            await asyncio.sleep(0)
        await reply.close("word " * 100)
    assert len(surface.texts) > 3
    assert "".join(text + " " for text in surface.texts) == "word " * 100


async def test_extra_messages_are_deleted(surface: BlockableSurface) -> None:
    async with create_reply(surface) as reply:
        reply.feed("word " * 100)
        await surface.wait_for_condition(lambda: len(surface.texts) > 3)
        await reply.close("Short.")
    assert surface.texts == ["Short."]
    assert surface.log[-1] == "save m0"


async def test_each_id_is_stored_before_the_next_message_is_posted(surface: BlockableSurface) -> None:
    async with create_reply(surface) as reply:
        await reply.close("word " * 50)
    posts = [line.removeprefix("post ") for line in surface.log if line.startswith("post")]
    expected = [line for n, id_ in enumerate(posts) for line in (f"post {id_}", f"save {' '.join(posts[: n + 1])}")]
    assert [line for line in surface.log if line != "reaction removed"] == expected


async def test_existing_messages_are_edited(surface: BlockableSurface) -> None:
    surface.messages = {"a": "half an ans", "b": "left over"}
    async with create_reply(surface, known_ids=("a", "b")) as reply:
        await reply.close("The answer.")
    assert surface.messages == {"a": "The answer."}


async def test_a_status_is_shown_under_the_text_until_more_text_arrives(surface: BlockableSurface) -> None:
    async with create_reply(surface) as reply:
        reply.show_status("Using a tool")
        await surface.wait_for_condition(lambda: surface.texts == ["Using a tool"])
        reply.feed("So far")
        await surface.wait_for_condition(lambda: surface.texts == ["So far"])
        reply.show_status("Using another")
        await surface.wait_for_condition(lambda: surface.texts == ["So far\n\nUsing another"])
        await reply.close("So far, so good.")
    assert surface.texts == ["So far, so good."]


async def test_a_replaced_text_is_shown(surface: BlockableSurface) -> None:
    async with create_reply(surface) as reply:
        reply.feed("secret")
        await surface.wait_for_condition(lambda: surface.texts == ["secret"])
        reply.replace("redacted")
        await surface.wait_for_condition(lambda: surface.texts == ["redacted"])
        await reply.close(reply.text)


async def test_close_raises_the_error_of_the_surface(surface: BlockableSurface) -> None:
    surface.error = SurfaceError("chat.update: is_archived")
    async with create_reply(surface) as reply:
        await surface.wait_for_condition(lambda: surface.plans and not surface.in_flight)
        reply.feed("more")
        with pytest.raises(SurfaceError, match="is_archived"):
            await reply.close("all")
    assert len(surface.plans) == 1


@pytest.mark.parametrize("is_under_way", [False, True])
async def test_a_refused_chunk_loses_no_text(surface: BlockableSurface, is_under_way: bool) -> None:
    async with create_reply(surface) as reply:
        await surface.wait_for_condition(lambda: surface.messages and not surface.in_flight)
        surface.error = EditRefusedError("edit: 240000")
        surface.gate.clear()
        reply.feed("half of ")
        await surface.wait_for_condition(lambda: surface.in_flight)
        closing = asyncio.create_task(reply.close("half of it")) if is_under_way else None
        await asyncio.sleep(0)
        surface.gate.set()
        await surface.wait_for_condition(lambda: not surface.in_flight)
        surface.error = None
        await (closing or reply.close("half of it"))
    assert list(surface.messages.values()) == ["half of it"]
    assert [plan.chunks[0].text for plan in surface.plans] == ["…", "half of", "half of it"]


async def test_the_name_of_a_missing_file_fits_into_a_message(surface: BlockableSurface) -> None:
    """Check a name of a missing file in a reply that is too long for its chunks."""
    show = surface.show

    async def show_without_files(plan: Plan, known_ids: Sequence[str], record: RecordMessageId) -> bool:
        if missing := [file.name for file in plan.files if file.name != reply_module.FILE_NAME]:
            raise FileRefusedError("too large", missing)
        return await show(plan, known_ids, record)

    surface.show = show_without_files  # type: ignore[method-assign]
    async with create_reply(surface, max_messages=2) as reply:
        await reply.close("word " * 100, files=[File(f"{number}{'n' * 50}", b"x") for number in range(3)])
    assert len(surface.messages) == 2
    assert all(len(text) <= BlockableSurface.limits.chunk_size + STATUS_RESERVE for text in surface.messages.values())


async def test_a_reply_that_cannot_be_shown_removes_its_queued_reaction(surface: BlockableSurface) -> None:
    surface.error = SurfaceError("gone")
    async with create_reply(surface) as reply:
        with pytest.raises(SurfaceError):
            await reply.close("all")
    assert surface.log == ["reaction removed"]


async def test_an_unretrieved_surface_error_is_not_logged(surface: BlockableSurface) -> None:
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    surface.error = SurfaceError("gone")
    async with create_reply(surface):
        await surface.wait_for_condition(lambda: surface.plans and not surface.in_flight)
    gc.collect()
    await asyncio.sleep(0)
    assert unheard == []


async def test_releasing_a_reply_waits_for_the_call_in_flight_only(surface: BlockableSurface) -> None:
    surface.gate.clear()
    async with create_reply(surface) as reply:
        await surface.wait_for_condition(lambda: surface.in_flight)
        reply.feed("more")
        asyncio.get_running_loop().call_later(0.01, surface.gate.set)
    assert surface.texts == [PLACEHOLDER]
    assert len(surface.plans) == 1


async def test_a_hanging_call_in_flight_is_given_up(surface: BlockableSurface, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply_module, "ABANDON_TIMEOUT_SECONDS", 0.01)
    surface.gate.clear()
    async with create_reply(surface):
        await surface.wait_for_condition(lambda: surface.in_flight)
    assert surface.texts == []


async def test_a_second_close_replaces_the_first(surface: BlockableSurface) -> None:
    async with create_reply(surface) as reply:
        await surface.wait_for_condition(lambda: surface.texts)
        surface.gate.clear()
        first = asyncio.create_task(reply.close("the answer"))
        await surface.wait_for_condition(lambda: surface.in_flight)
        second = asyncio.create_task(reply.close("stopped", Priority.ERROR))
        await asyncio.sleep(0)
        surface.gate.set()
        await asyncio.gather(first, second)
    assert surface.texts == ["stopped"]


async def test_a_cancelled_close_continues_and_may_be_replaced(surface: BlockableSurface) -> None:
    async with create_reply(surface) as reply:
        await surface.wait_for_condition(lambda: surface.texts)
        surface.gate.clear()
        first = asyncio.create_task(reply.close("the answer"))
        await surface.wait_for_condition(lambda: surface.in_flight)
        first.cancel()
        await asyncio.wait([first])
        surface.gate.set()
        await reply.close("stopped")
    assert surface.texts == ["stopped"]


async def test_a_closed_reply_may_be_closed_again(surface: BlockableSurface) -> None:
    async with create_reply(surface) as reply:
        await reply.close("the answer")
        await reply.close("the answer", ending="deleted")
    assert surface.texts == ["the answer\n\ndeleted"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text("ab \n", max_size=60), max_size=12), st.integers(0, 3), st.text("ab \n`", max_size=300))
def test_close_shows_exactly_the_plan_of_the_last_text(pieces: list[str], dropped: int, last: str) -> None:
    async def main() -> None:
        board = BlockableSurface()
        board.drop_ticks = dropped
        async with create_reply(board) as reply:
            for piece in pieces:
                reply.feed(piece)
                await asyncio.sleep(0)
            await reply.close(last)
        surface = BlockableSurface()
        async with create_reply(surface) as reply:
            await reply.close(last)
        assert board.texts == surface.texts
        assert (
            board.log[-1].removeprefix("save ").split() == list(board.messages) or board.log[-1] == "reaction removed"
        )

    asyncio.run(main())


async def test_a_reply_stops_when_another_worker_owns_its_turn(surface: BlockableSurface) -> None:
    is_lost = False

    async def raise_if_lost() -> None:
        if is_lost:
            raise TurnLostError("it is another worker's")

    async with create_reply(surface, check_owned=raise_if_lost) as reply:
        reply.feed("mine")
        await surface.wait_for_condition(lambda: surface.texts == ["mine"])
        is_lost = True
        with pytest.raises(TurnLostError):
            await reply.close("late")
    assert surface.texts == ["mine"]


async def test_messages_posted_after_a_lost_lease_are_orphans(surface: BlockableSurface) -> None:
    async def raise_turn_lost(_ids: Sequence[str]) -> None:
        raise TurnLostError("it is another worker's")

    async with Reply(surface, save_ids=raise_turn_lost) as reply:
        with pytest.raises(TurnLostError):
            await reply.close("late")
    assert reply.orphaned_ids == list(surface.messages)


async def test_a_released_reply_has_no_call_in_flight(surface: BlockableSurface) -> None:
    async with create_reply(surface) as reply:
        await surface.wait_for_condition(lambda: surface.in_flight)
        await reply.abandon()
        assert not surface.in_flight
        assert surface.log[-1] == "reaction removed"


async def test_growing_and_ended_replies_have_their_own_buttons(surface: BlockableSurface) -> None:
    stop, revise, regenerate = (Button(f"{name}:1", name) for name in ("stop", "revise", "regenerate"))
    async with create_reply(surface, buttons=[stop]) as reply:
        await surface.wait_for_condition(lambda: surface.texts == [PLACEHOLDER])
        reply.feed("Hello")
        await surface.wait_for_condition(lambda: surface.texts == ["Hello"])
        reply.update_buttons([revise, stop])
        await surface.wait_for_condition(lambda: surface.plans[-1].buttons == [revise, stop])
        await reply.close("Hello, you.", buttons=[regenerate])
        reply.update_buttons([stop])
    assert [plan.buttons for plan in surface.plans] == [[stop], [stop], [revise, stop], [regenerate]]


async def test_a_chunk_that_is_posted_complete_has_no_button(surface: BlockableSurface) -> None:
    stop = Button("stop:1", "Stop")
    surface.is_full = True
    async with create_reply(surface, buttons=[stop]) as reply:
        reply.feed("word " * 30)
        await surface.wait_for_condition(lambda: surface.texts)
        assert [plan.buttons for plan in surface.plans] == [()]
        await reply.close("word " * 30)


async def test_notices_of_a_reply_are_in_its_language(
    surface: BlockableSurface, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply_module, "SILENCE_SECONDS", 0.01)
    korean = words.messages_for("ko")
    async with create_reply(surface, max_messages=1, say=korean) as reply:
        await surface.wait_for_condition(lambda: surface.texts and "초" in surface.texts[0])
        await reply.close("word " * 40)
    assert surface.texts[0].endswith(korean(words.FULL_ANSWER_IN_FILE))
