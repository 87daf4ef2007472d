import asyncio
import gc
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channels.base import STATUS_RESERVE, Button, File, Priority
from channels.i18n import messages as words
from channels.i18n.messages import PLACEHOLDER
from channels.rate_limits.retries import RefusedError
from channels.replies import reply as reply_module
from channels.replies.reply import Reply
from core.errors import SurfaceError, TurnLostError
from tests.fixtures.memory_surface import MemorySurface


@pytest.fixture
async def surface() -> MemorySurface:
    return MemorySurface()


def create_reply(board: MemorySurface, **kwargs: Any) -> Reply:
    return Reply(board, save_ids=board.save_ids, **kwargs)


async def test_a_placeholder_is_posted_first_and_then_replaced(surface: MemorySurface) -> None:
    async with create_reply(surface) as reply:
        await surface.wait_for_condition(lambda: surface.texts == [PLACEHOLDER])
        assert surface.calls[0].priority is Priority.PROGRESS
        reply.feed("Hello")
        await surface.wait_for_condition(lambda: surface.texts == ["Hello"])
        await reply.close("Hello, you.")
    assert surface.texts == ["Hello, you."]
    assert surface.calls[-1].priority is Priority.FINAL


async def test_feed_does_not_wait_and_only_the_newest_text_is_shown(surface: MemorySurface) -> None:
    surface.gate.clear()
    async with create_reply(surface) as reply:
        await surface.wait_for_condition(lambda: surface.in_flight)
        for _ in range(50):
            reply.feed("x")
            await asyncio.sleep(0)
        assert len(surface.calls) == 1
        surface.gate.set()
        await surface.wait_for_condition(lambda: surface.texts == ["x" * 50])
        assert len(surface.calls) == 2
        await reply.close("x" * 50)


async def test_the_first_text_waits_neither_for_a_pace_nor_in_the_queue(surface: MemorySurface) -> None:
    async with create_reply(surface) as reply:
        await surface.wait_for_condition(lambda: surface.texts == [PLACEHOLDER])
        surface.limiter.blocked_priorities = {Priority.STREAM_UPDATE}
        reply.show_status("_Searching…_")
        await surface.wait_for_condition(lambda: surface.limiter.waits[-1] == (Priority.STREAM_UPDATE, False))
        assert not any(is_first for _, is_first in surface.limiter.waits)
        surface.limiter.blocked_priorities = set()
        reply.feed("**")
        reply.feed("The ")
        await surface.wait_for_condition(lambda: surface.texts == ["**The**"])
        assert surface.limiter.waits[-1] == (Priority.STREAM_UPDATE, True)
        reply.feed("answer**")
        await surface.wait_for_condition(lambda: surface.texts == ["**The answer**"])
        assert surface.limiter.waits[-1] == (Priority.STREAM_UPDATE, False)
        await reply.close("**The answer**")


async def test_a_dropped_tick_is_retried(surface: MemorySurface) -> None:
    async with create_reply(surface) as reply:
        await surface.wait_for_condition(lambda: surface.texts)
        surface.dropped = 3
        reply.feed("text")
        await surface.wait_for_condition(lambda: surface.texts == ["text"])
        assert len(surface.calls) == 5
        await reply.close("text")


async def test_a_call_that_waited_for_its_slot_shows_the_newest_text(surface: MemorySurface) -> None:
    async with create_reply(surface) as reply:
        await surface.wait_for_condition(lambda: surface.texts)
        surface.limiter.blocked_priorities = {Priority.STREAM_UPDATE}
        for _ in range(50):
            reply.feed("x")
            await asyncio.sleep(0)
        assert len(surface.calls) == 1
        await reply.close("x" * 50 + "!")
    assert surface.texts == ["x" * 50 + "!"]
    assert len(surface.calls) == 2
    assert [priority for priority, _ in groupby(priority for priority, _ in surface.limiter.waits)] == [
        Priority.PROGRESS,
        Priority.STREAM_UPDATE,
        Priority.FINAL,
    ]


async def test_a_reply_closed_before_its_placeholder_is_posted_completely(surface: MemorySurface) -> None:
    surface.limiter.blocked_priorities = {Priority.PROGRESS}
    async with create_reply(surface) as reply:
        await asyncio.sleep(0)
        await reply.close("the answer")
    assert [call.text for call in surface.calls] == ["the answer"]


async def test_with_scarce_calls_a_chunk_is_posted_when_it_is_complete(surface: MemorySurface) -> None:
    surface.limiter.is_full = True
    text = "\n\n".join(f"{number} {'word ' * 12}".strip() for number in range(4))
    async with create_reply(surface) as reply:
        for start in range(0, len(text), 7):
            reply.feed(text[start : start + 7])
            await asyncio.sleep(0)
        await surface.wait_for_condition(lambda: len(surface.texts) == 3)
        assert {call.priority for call in surface.calls} == {Priority.PROGRESS}
        await reply.close(text)
    assert "\n\n".join(surface.texts) == text


async def test_with_scarce_calls_a_reaction_stays_until_the_first_chunk(surface: MemorySurface) -> None:
    surface.limiter.is_full = True
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


async def test_a_reply_without_budget_grows_as_soon_as_there_is_some(surface: MemorySurface) -> None:
    surface.limiter.is_full = True
    async with create_reply(surface) as reply:
        reply.feed("not yet")
        await asyncio.sleep(0.01)
        assert surface.texts == []
        surface.limiter.is_full = False
        reply.feed(", but now")
        await surface.wait_for_condition(lambda: surface.texts == ["not yet, but now"])
        await reply.close("not yet, but now")


async def test_a_full_chunk_is_completed_before_others_grow(surface: MemorySurface) -> None:
    async with create_reply(surface) as reply:
        await surface.wait_for_condition(lambda: surface.texts)
        surface.limiter.blocked_priorities = {Priority.STREAM_UPDATE}
        reply.feed("word " * 10)
        await asyncio.sleep(0.01)
        reply.feed("word " * 15)
        await surface.wait_for_condition(lambda: len(surface.calls) == 2)
        assert surface.calls[1].priority is Priority.PROGRESS
        await reply.close("word " * 25)


async def test_releasing_a_reply_does_not_wait_for_a_slot(surface: MemorySurface) -> None:
    surface.limiter.blocked_priorities = set(Priority)
    async with asyncio.timeout(20), create_reply(surface) as reply:
        reply.feed("text")
        await asyncio.sleep(0)
    assert surface.calls == []


async def test_a_silent_model_is_shown_with_its_duration(
    surface: MemorySurface, monkeypatch: pytest.MonkeyPatch
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


async def test_each_id_is_stored_before_the_next_message_is_posted(surface: MemorySurface) -> None:
    async with create_reply(surface) as reply:
        await reply.close("word " * 50)
    posts = [line.removeprefix("post ") for line in surface.log if line.startswith("post")]
    expected = [line for n, id_ in enumerate(posts) for line in (f"post {id_}", f"save {' '.join(posts[: n + 1])}")]
    assert [line for line in surface.log if line != "reaction removed"] == expected


async def test_a_status_is_shown_under_the_text_until_more_text_arrives(surface: MemorySurface) -> None:
    async with create_reply(surface) as reply:
        reply.show_status("Using a tool")
        await surface.wait_for_condition(lambda: surface.texts == ["Using a tool"])
        reply.feed("So far")
        await surface.wait_for_condition(lambda: surface.texts == ["So far"])
        reply.show_status("Using another")
        await surface.wait_for_condition(lambda: surface.texts == ["So far\n\nUsing another"])
        await reply.close("So far, so good.")
    assert surface.texts == ["So far, so good."]


async def test_close_raises_the_error_of_the_surface(surface: MemorySurface) -> None:
    surface.error = SurfaceError("chat.update: is_archived")
    async with create_reply(surface) as reply:
        await surface.wait_for_condition(lambda: surface.calls and not surface.in_flight)
        reply.feed("more")
        with pytest.raises(SurfaceError, match="is_archived"):
            await reply.close("all")
    assert len(surface.calls) == 1


@pytest.mark.parametrize("is_under_way", [False, True])
async def test_a_refused_chunk_loses_no_text(surface: MemorySurface, is_under_way: bool) -> None:
    async with create_reply(surface) as reply:
        await surface.wait_for_condition(lambda: surface.messages and not surface.in_flight)
        surface.error = RefusedError("edit", "240000")
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
    assert [call.text for call in surface.calls] == ["…", "half of", "half of it"]


async def test_a_refused_edit_of_a_full_message_does_not_end_the_reply(surface: MemorySurface) -> None:
    async with create_reply(surface) as reply:
        await surface.wait_for_condition(lambda: surface.messages and not surface.in_flight)
        surface.error = RefusedError("edit", "240000")
        reply.feed("word " * 40)  # the first message is full
        await surface.wait_for_condition(lambda: len(surface.calls) == 2 and not surface.in_flight)
        surface.error = None
        await reply.close("word " * 40)
    assert "".join(f"{text} " for text in surface.texts) == "word " * 40


async def test_the_name_of_a_missing_file_fits_into_a_message(surface: MemorySurface) -> None:
    """Check a name of a missing file in a reply that is too long for its chunks."""
    files = [File(f"{number}{'n' * 50}", b"x") for number in range(3)]
    surface.refused_files = {file.name for file in files}
    async with create_reply(surface, max_messages=2) as reply:
        await reply.close("word " * 100, files=files)
    assert len(surface.messages) == 2
    assert all(len(text) <= MemorySurface.limits.chunk_size + STATUS_RESERVE for text in surface.messages.values())


async def test_a_reply_that_cannot_be_shown_removes_its_queued_reaction(surface: MemorySurface) -> None:
    surface.error = SurfaceError("gone")
    async with create_reply(surface) as reply:
        with pytest.raises(SurfaceError):
            await reply.close("all")
    assert surface.log == ["reaction removed"]


async def test_an_unretrieved_surface_error_is_not_logged(surface: MemorySurface) -> None:
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    surface.error = SurfaceError("gone")
    async with create_reply(surface):
        await surface.wait_for_condition(lambda: surface.calls and not surface.in_flight)
    gc.collect()
    await asyncio.sleep(0)
    assert unheard == []


async def test_releasing_a_reply_waits_for_the_call_in_flight_only(surface: MemorySurface) -> None:
    surface.gate.clear()
    async with create_reply(surface) as reply:
        await surface.wait_for_condition(lambda: surface.in_flight)
        reply.feed("more")
        asyncio.get_running_loop().call_later(0.01, surface.gate.set)
    assert surface.texts == [PLACEHOLDER]
    assert len(surface.calls) == 1


async def test_a_hanging_call_in_flight_is_given_up(surface: MemorySurface, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply_module, "ABANDON_TIMEOUT_SECONDS", 0.01)
    surface.gate.clear()
    async with create_reply(surface):
        await surface.wait_for_condition(lambda: surface.in_flight)
    assert surface.texts == []


async def test_a_second_close_replaces_the_first(surface: MemorySurface) -> None:
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


async def test_a_cancelled_close_continues_and_may_be_replaced(surface: MemorySurface) -> None:
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


async def test_a_closed_reply_may_be_closed_again(surface: MemorySurface) -> None:
    async with create_reply(surface) as reply:
        await reply.close("the answer")
        await reply.close("the answer", ending="deleted")
    assert surface.texts == ["the answer\n\ndeleted"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text("ab \n", max_size=60), max_size=12), st.integers(0, 3), st.text("ab \n`", max_size=300))
def test_close_shows_exactly_the_plan_of_the_last_text(pieces: list[str], dropped: int, last: str) -> None:
    async def main() -> None:
        board = MemorySurface()
        board.dropped = dropped
        async with create_reply(board) as reply:
            for piece in pieces:
                reply.feed(piece)
                await asyncio.sleep(0)
            await reply.close(last)
        surface = MemorySurface()
        async with create_reply(surface) as reply:
            await reply.close(last)
        assert board.texts == surface.texts
        assert (
            board.log[-1].removeprefix("save ").split() == list(board.messages) or board.log[-1] == "reaction removed"
        )

    asyncio.run(main())


async def test_a_reply_stops_when_another_worker_owns_its_turn(surface: MemorySurface) -> None:
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


async def test_growing_and_ended_replies_have_their_own_buttons(surface: MemorySurface) -> None:
    stop, revise, regenerate = (Button(f"{name}:1", name) for name in ("stop", "revise", "regenerate"))
    async with create_reply(surface, buttons=[stop]) as reply:
        await surface.wait_for_condition(lambda: surface.texts == [PLACEHOLDER])
        reply.feed("Hello")
        await surface.wait_for_condition(lambda: surface.texts == ["Hello"])
        reply.update_buttons([revise, stop])
        await surface.wait_for_condition(lambda: surface.calls[-1].buttons == (revise, stop))
        await reply.close("Hello, you.", buttons=[regenerate])
        reply.update_buttons([stop])
    assert [call.buttons for call in surface.calls] == [(stop,), (stop,), (revise, stop), (regenerate,)]


async def test_a_chunk_that_is_posted_complete_has_no_button(surface: MemorySurface) -> None:
    stop = Button("stop:1", "Stop")
    surface.limiter.is_full = True
    async with create_reply(surface, buttons=[stop]) as reply:
        reply.feed("word " * 30)
        await surface.wait_for_condition(lambda: surface.texts)
        assert {call.buttons for call in surface.calls} == {()}
        await reply.close("word " * 30)


async def test_notices_of_a_reply_are_in_its_language(surface: MemorySurface, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply_module, "SILENCE_SECONDS", 0.01)
    korean = words.messages_for("ko")
    async with create_reply(surface, max_messages=1, say=korean) as reply:
        await surface.wait_for_condition(lambda: surface.texts and "초" in surface.texts[0])
        await reply.close("word " * 40)
    assert surface.texts[0].endswith(korean(words.FULL_ANSWER_IN_FILE))
