"""The reply surface: its rules on a surface in memory, then both platforms against their local API."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.base import Button, File, FileRefusedError, Priority
from channels.discord.client.api import DiscordApi
from channels.discord.client.auth import log_in, make_client
from channels.discord.replies.reactions import make_queued_reactions as make_discord_reactions
from channels.discord.replies.surface import DiscordSurface
from channels.rate_limits.limiter import RateLimiter, Window
from channels.replies import surface as messages
from channels.replies.reactions import Address, QueuedReactions
from channels.replies.surface import EditOutcome, MessageSurface, PostedMessage, RecordFile
from channels.slack.client.api import SlackApi
from channels.slack.client.auth import make_web_client
from channels.slack.replies.reactions import make_queued_reactions as make_slack_reactions
from channels.slack.replies.surface import SlackSurface
from chatrig.discord import DiscordSimulator
from chatrig.slack import SlackSimulator
from core.errors import SurfaceError
from tests.channels.discord.conftest import PAUSES
from tests.channels.discord.conftest import create_settings as create_discord_settings
from tests.channels.platforms import DiscordChat, SlackChat
from tests.channels.slack.conftest import create_settings as create_slack_settings
from tests.fixtures.recorded_ids import RecordedIds, RecordedReply


async def _ignore_reaction(_address: Address) -> None:
    """Do nothing instead of adding or removing a reaction."""


PLENTY = RateLimiter(Window(calls=1000, seconds=1.0))


class MemorySurface(MessageSurface):
    """Reply surface with messages in memory, and with faults that a test sets.

    Attributes:
        messages: the texts, by message id.
        previous: the message before each message, by id.
        takes_files: False refuses all files.
        budget: the number of calls that streaming updates may still make.
    """

    def __init__(self) -> None:
        super().__init__(QueuedReactions(_ignore_reaction, _ignore_reaction), {})
        self.messages: dict[str, str] = {}
        self.previous: dict[str, str | None] = {}
        self.buttons: dict[str, Sequence[Button]] = {}
        self.files: dict[str, File] = {}
        self.takes_files = True
        self.calls = 0
        self.budget = 1000
        self.loses: str | None = None
        self.late: str | None = None
        self.edits = PLENTY
        self.edited = asyncio.Event()

    async def add_reaction(self, emoji: str) -> None:
        raise AssertionError(f"a surface reacts only for a tool: {emoji}")

    @property
    def _post_limiter(self) -> RateLimiter:
        return PLENTY

    @property
    def _edit_limiter(self) -> RateLimiter:
        return self.edits

    def _may(self, priority: Priority) -> bool:
        self.calls += 1
        self.budget -= 1
        return priority is not Priority.STREAM_UPDATE or self.budget >= 0

    async def _post(
        self, position: int, text: str, buttons: Sequence[Button], priority: Priority, previous: str | None
    ) -> PostedMessage | None:
        if not self._may(priority):
            return None
        new = f"m{self.calls}"
        self.messages[new], self.previous[new], self.buttons[new] = text, previous, buttons
        return PostedMessage(new)

    async def _edit(self, message_id: str, text: str, buttons: Sequence[Button], priority: Priority) -> EditOutcome:
        if not self._may(priority):
            return EditOutcome.DROPPED
        if message_id not in self.messages:
            return EditOutcome.GONE
        if text == self.loses:
            self.late = message_id
            return EditOutcome.NO_RESPONSE
        self.messages[message_id], self.buttons[message_id] = text, buttons
        self.edited.set()
        return EditOutcome.DONE

    async def _attach(self, files: Sequence[File], last: str, known: Mapping[str, str], record: RecordFile) -> None:
        if not self.takes_files:
            raise SurfaceError("no")
        for file in files:
            if (id_ := known.get(file.name)) is None:
                await record(file.name, id_ := f"f{len(self.files)}")
            self.calls += 1
            self.files[id_] = file

    async def _detach(self, file_id: str) -> None:
        self.files.pop(file_id, None)

    async def _delete(self, message_id: str) -> None:
        self.messages.pop(message_id, None)

    async def _find_own(self) -> dict[int, str]:
        return dict(enumerate(self.messages))


TEXTS = st.lists(st.sampled_from(["one", "two", "three"]), min_size=1, max_size=4)


@given(st.lists(st.tuples(TEXTS, st.integers(0, 3), st.booleans(), st.booleans()), max_size=6), TEXTS)
async def test_exactly_the_final_plan_is_shown_despite_drops_and_restarts(
    steps: list[tuple[list[str], int, bool, bool]], final: list[str]
) -> None:
    board, known = MemorySurface(), RecordedIds()
    for texts, budget, is_deleted, is_restarted in steps:
        board.budget = budget
        await known.show(board, texts, Priority.STREAM_UPDATE)
        if is_restarted:
            board._shown.clear()
        if is_deleted and known.ids:
            deleted_id = known.ids[-1]
            board.messages.pop(deleted_id, None)
            board._shown.pop(deleted_id, None)  # else the next text would reveal the deletion
    assert await known.show(board, final)
    assert [board.messages[message_id] for message_id in known.ids] == final
    assert len(board.messages) == len(final)


async def test_each_post_gets_the_previous_message_id() -> None:
    board, known = MemorySurface(), RecordedIds()
    await known.show(board, ["one"])
    await known.show(board, ["one", "two", "three"])
    assert [board.previous[message_id] for message_id in known.ids] == [None, *known.ids[:2]]


async def test_unchanged_chunks_cost_no_call() -> None:
    board, known = MemorySurface(), RecordedIds()
    await known.show(board, ["one", "two"])
    before = board.calls
    assert await known.show(board, ["one", "two"])
    assert board.calls == before


async def test_a_separate_notice_is_a_separate_message() -> None:
    board = MemorySurface()
    await board.post_message("hello")
    assert list(board.messages.values()) == ["hello"]
    assert await board.find_message_ids() == list(board.messages)


async def test_an_acquired_slot_is_used_once_or_released() -> None:
    board, known = MemorySurface(), RecordedIds()
    one = RateLimiter(Window(calls=1, seconds=60.0))
    board._slot = one
    assert board.use_slot(one)
    assert not board.use_slot(one)
    await one.acquire(Priority.FINAL)
    board._slot = one
    await known.show(board, ["one"])
    assert one.try_acquire(Priority.FINAL)


async def test_a_lost_edit_that_lands_after_the_final_edit_is_overwritten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(messages, "LATE_CALL_SECONDS", 0.5)
    board, known = MemorySurface(), RecordedIds()
    board.loses = "half"
    await known.show(board, ["..."], Priority.STREAM_UPDATE)
    assert not await known.show(board, ["half"], Priority.STREAM_UPDATE)
    showing = asyncio.create_task(known.show(board, ["all of it"]))
    await asyncio.wait_for(board.edited.wait(), 30)
    assert board.late is not None
    board.messages[board.late] = "half"
    assert await showing
    assert list(board.messages.values()) == ["all of it"]


async def test_a_chunk_grows_only_while_its_final_edit_is_reserved() -> None:
    edits = RateLimiter(Window(calls=5, seconds=60.0))
    boards = [MemorySurface() for _ in range(6)]
    with ExitStack() as lives:
        for board in boards:
            board.edits = edits
            lives.enter_context(board.track_reply())
        assert [board.try_open() for board in boards] == [True] * 4 + [False] * 2
        assert boards[0].try_open()
        await RecordedIds().show(boards[0], ["it is whole"])
        assert not boards[5].try_open()
        assert boards[0].try_open()  # the next edit of the shown reply
    assert MemorySurface().try_open()


RETRY, STOP = Button("retry:1", "Retry"), Button("stop:1", "Stop")
FILE = File("answer.md", b"all of it")


async def test_the_buttons_are_under_the_last_chunk_only() -> None:
    board, known = MemorySurface(), RecordedIds()
    await known.show(board, ["one", "two"], controls=[RETRY])
    assert [board.buttons[id_] for id_ in known.ids] == [(), (RETRY,)]
    await known.show(board, ["one", "two", "three"], controls=[STOP])
    assert [board.buttons[id_] for id_ in known.ids] == [(), (), (STOP,)]
    await known.show(board, ["one", "two", "three"])
    assert [board.buttons[id_] for id_ in known.ids] == [(), (), ()]


async def test_a_file_is_posted_once_and_deleted_with_its_plan() -> None:
    board, known = MemorySurface(), RecordedIds()
    await known.show(board, ["one", "two"], files=[FILE])
    before = board.calls
    await known.show(board, ["one", "two"], files=[FILE])
    assert (board.calls, list(board.files.values())) == (before, [FILE])

    other = MemorySurface()  # after a restart
    other.messages, other.files = board.messages, board.files
    known.ids = await other.find_message_ids(known.ids)
    await known.show(other, ["one", "two"], files=[FILE])
    assert list(other.files.values()) == [FILE]
    plot = File("plot.png", b"a curve")
    await known.show(other, ["one"], files=[FILE, plot])  # the file now follows the first chunk
    assert (list(other.files.values()), len(known.ids)) == ([FILE, plot], 3)
    assert known.ids[1:] == [f"file:{id_}:{file.name}" for id_, file in other.files.items()]
    await known.show(other, ["one", "two"], files=[plot])
    assert (list(other.files.values()), len(known.ids)) == ([plot], 3)
    await known.show(other, ["one"])
    assert (other.files, len(known.ids)) == ({}, 1)


async def test_a_refused_file_is_reported_after_the_rest_is_shown() -> None:
    board, known = MemorySurface(), RecordedIds()
    board.takes_files = False
    with pytest.raises(FileRefusedError):
        await known.show(board, ["one", "two"], files=[FILE])
    assert list(board.messages.values()) == ["one", "two"]


# Both platforms


class SurfaceReply(RecordedReply):
    """Reply to a question in #general, with the message ids that it has recorded.

    Attributes:
        calls: the platform's API methods: see `tests.channels.platforms.Chat`.
        create_surface: returns the surface of another process.
    """

    def __init__(
        self, simulator: Any, question: Any, calls: Mapping[str, str], create_surface: Callable[[], MessageSurface]
    ) -> None:
        super().__init__(create_surface())
        self.simulator = simulator
        self.calls = calls
        self.create_surface = create_surface
        self._question = question

    @property
    def messages(self) -> list[Any]:
        return [message for message in self.simulator.messages("general") if message is not self._question]

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.messages]

    async def delete(self, position: int) -> None:
        await self.create_surface().delete_messages([self.known[position]])

    def count_calls(self, kind: str) -> int:
        name = "method" if isinstance(self.simulator, SlackSimulator) else "route"
        return sum(getattr(call, name) == self.calls[kind] for call in self.simulator.calls)


@pytest.fixture
async def reply(simulator: Any) -> AsyncIterator[SurfaceReply]:
    question = await simulator.post_message("ada", "general", "question")
    if isinstance(simulator, SlackSimulator):
        slack_api = SlackApi(make_web_client(create_slack_settings(simulator)), pauses=PAUSES)
        address = {
            "team": simulator.team_id,
            "channel": question.channel.id,
            "thread_ts": question.ts,
            "ts": question.ts,
        }
        reactions = make_slack_reactions(slack_api)
        yield SurfaceReply(
            simulator, question, SlackChat.calls, lambda: SlackSurface(slack_api, reactions, address, "turn-1")
        )
        return
    client = make_client(create_discord_settings(simulator))
    api = DiscordApi(client, pauses=PAUSES)
    await log_in(client, create_discord_settings(simulator))
    place = {"channel": question.channel.id, "message": question.id, "speaker": "Ada"}
    yield SurfaceReply(
        simulator, question, DiscordChat.calls, lambda: DiscordSurface(api, make_discord_reactions(api), place)
    )
    await client.close()


async def test_a_placeholder_grows_into_the_answer(reply: SurfaceReply) -> None:
    assert await reply.show("…", priority=Priority.PROGRESS)
    assert await reply.show("It", priority=Priority.STREAM_UPDATE)
    assert await reply.show("It is 42.")
    (message,) = reply.messages
    assert [version.text for version in message.versions] == ["…", "It", "It is 42."]


async def test_messages_are_posted_and_deleted_as_planned(reply: SurfaceReply) -> None:
    await reply.show("one")
    await reply.show("one", "two", "three")
    assert reply.texts == ["one", "two", "three"]
    await reply.show("1", "two")
    assert reply.texts == ["1", "two"]
    assert reply.count_calls("edit") == 1


async def test_unchanged_messages_are_not_sent_again(reply: SurfaceReply) -> None:
    await reply.show("one", "two")
    before = len(reply.simulator.calls)
    assert await reply.show("one", "two", priority=Priority.STREAM_UPDATE)
    assert len(reply.simulator.calls) == before


async def test_a_deleted_message_is_posted_again(reply: SurfaceReply) -> None:
    await reply.show("one", "two")
    await reply.delete(0)
    await reply.show("one more", "two")
    assert sorted(reply.texts) == ["one more", "two"]
    assert len(set(reply.known)) == 2


async def test_a_leftover_message_may_be_deleted_already(reply: SurfaceReply) -> None:
    await reply.show("one", "two")
    await reply.delete(1)
    assert await reply.show("one")
    assert reply.texts == ["one"]


async def test_stream_updates_are_dropped_during_a_rate_limit(reply: SurfaceReply) -> None:
    await reply.show("…", priority=Priority.PROGRESS)
    is_discord = isinstance(reply.simulator, DiscordSimulator)
    options = {"has_via_header": False} if is_discord else {}  # discord.py does not try it again
    reply.simulator.faults.rate_limit(reply.calls["edit"], 1, **options)
    start = asyncio.get_running_loop().time()
    assert not await reply.show("a", priority=Priority.STREAM_UPDATE)
    assert not await reply.show("a b", priority=Priority.STREAM_UPDATE)
    assert reply.count_calls("edit") == 1
    assert await reply.show("a b c")
    assert asyncio.get_running_loop().time() - start >= 1
    assert reply.count_calls("edit") == 2
    assert reply.texts == ["a b c"]


async def test_a_stream_update_is_tried_once(reply: SurfaceReply) -> None:
    await reply.show("…", priority=Priority.PROGRESS)
    reply.simulator.faults.fail(reply.calls["edit"], 3, status=503)
    assert not await reply.show("a", priority=Priority.STREAM_UPDATE)
    assert reply.count_calls("edit") == 1


@pytest.mark.parametrize("status", [500, 503])
async def test_a_transient_failure_is_retried_and_shown_once(reply: SurfaceReply, status: int) -> None:
    await reply.show("…", priority=Priority.PROGRESS)
    for kind in ("edit", "post"):
        reply.simulator.faults.fail(reply.calls[kind], 2, status=status)
    assert await reply.show("one", "two")
    assert reply.texts == ["one", "two"]


async def test_an_edit_with_a_lost_response_is_retried(reply: SurfaceReply) -> None:
    await reply.show("…", priority=Priority.PROGRESS)
    reply.simulator.faults.lose_response(reply.calls["edit"], 2)
    assert await reply.show("done")
    assert reply.count_calls("edit") == 3


async def test_a_post_whose_response_was_lost_is_found_and_not_repeated(reply: SurfaceReply) -> None:
    reply.simulator.faults.lose_response(reply.calls["post"], 2)
    assert await reply.show("one", "two")
    assert reply.texts == ["one", "two"]
    assert reply.count_calls("post") == 2


async def test_a_lost_post_is_found_even_if_the_first_search_fails(reply: SurfaceReply) -> None:
    reply.simulator.faults.lose_response(reply.calls["post"])
    reply.simulator.faults.fail(reply.calls["find"], status=503)
    assert await reply.show("one")
    assert reply.texts == ["one"]
    assert reply.count_calls("post") == 1


async def test_an_unreachable_platform_is_given_up_after_some_attempts(reply: SurfaceReply) -> None:
    reply.simulator.faults.fail(reply.calls["post"], 50, status=503)
    with pytest.raises(SurfaceError, match=r"the platform cannot be reached \(HTTP 503\)$"):
        await reply.show("done")
    assert reply.count_calls("post") == len(PAUSES) + 1


async def test_a_reply_found_after_a_restart_is_edited_in_place(reply: SurfaceReply) -> None:
    await reply.show("half an ans", "left over")
    reply.surface = reply.create_surface()
    await reply.show("the answer")
    assert reply.texts == ["the answer"]
