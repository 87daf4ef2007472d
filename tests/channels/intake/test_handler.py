import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa

from channels.access import AccessPolicy
from channels.base import File
from channels.commands.handlers import CommandResult
from channels.commands.services import PlatformServices
from channels.commands.syntax import CommandSyntax
from channels.i18n import messages as words
from channels.i18n.messages import ENGLISH
from channels.intake.handler import IntakeHandler, Retract
from channels.intake.incoming import IncomingChange, IncomingMessage
from channels.platform import Platform, Platforms
from channels.replies.buttons import ButtonAction, create_button
from channels.replies.reactions import Address, QueuedReactions
from channels.replies.surface import Surface
from channels.requests.request_message import RequestMessages
from channels.turns.update_after_edit import ReplyRerenderer
from core.concurrency.tasks import BackgroundTasks
from core.conversations.feedback import FeedbackStore
from core.conversations.service import ConversationService
from core.conversations.turn_report import TurnReports
from core.errors import StoreError, SurfaceError, UnreadableRowError
from core.inbox.entries import EntryStore, InboxEntry
from core.inbox.store import InboxStore
from core.inbox.triggered import TriggeredEntries
from core.messages.identity import Actor
from core.messages.inbox_message import Attachment, InboxMessage, ReplyWithoutMention
from core.privacy.vault import Cipher
from core.store.database import Database
from core.store.schema import feedback, inbox, sessions
from core.store.turn_states import EndState
from core.tools.human_request_service import HumanRequestService
from core.turns.turn import CancelReason, Turn
from core.turns.worker import Worker
from core.usage.prices import Prices
from core.usage.spending_ledger import SpendingStore
from core.usage.user_rate_limits import DenialNoticeStore
from tests.channels.wiring import BUDGET, MODELS, create_successor
from tests.fixtures import empty_databases as tables
from tests.fixtures.inbox_messages import inbound

ADA = Actor("test", "ada")

#: Syntax of a platform without slash commands and menus.
SYNTAX = CommandSyntax("", (), lambda _: ())


class IntakeRecorder:
    """Message handler with the real core, without workers, that records its effects.

    Effects are reactions, texts, files, re-rendered replies and private texts.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.reactions: set[Any] = set()
        self.said: list[str] = []
        self.files: list[File] = []
        self.renderings: list[tuple[str, str]] = []
        self.private_texts: list[tuple[str, str]] = []
        self.access = AccessPolicy()
        self.locale = ""
        self.error: SurfaceError | None = None
        self.answers = asyncio.Event()
        self.answers.set()

    async def start(self, folder: Path) -> "IntakeRecorder":
        await tables.create_tables(self.database)
        self.turns = await create_successor(self.database)
        worker = self.worker = Worker(self.turns)
        self.inbox = InboxStore(self.database, self.turns, worker)
        self.conversations = ConversationService(self.database, self.turns, worker, budget=BUDGET)
        self.queued_reactions = QueuedReactions(self._add_reaction, self._remove_reaction)
        self.create_intake()
        return self

    def create_intake(self, follow: ReplyWithoutMention = "author") -> None:
        background = BackgroundTasks()
        human_requests = HumanRequestService(self.database, self.turns, self.worker)
        services = PlatformServices(
            self.inbox,
            self.conversations,
            FeedbackStore(self.database),
            cast(ReplyRerenderer, RecordingRerenderer(self.renderings)),
            human_requests,
            RequestMessages(Platforms(), human_requests, background),
            EntryStore(self.database, self.turns._lease),
            TriggeredEntries(self.database, self.turns, self.worker, self.turns._lease),
            TurnReports(self.database, Prices()),
            DenialNoticeStore(self.database),
            SpendingStore(self.database, Prices()),
            background,
            self.access,
            follow,
        )
        self.intake = RecordingIntake(self, services)

    async def _add_reaction(self, address: Address) -> None:
        self.reactions.add(address["number"])

    async def _remove_reaction(self, address: Address) -> None:
        self.reactions.discard(address["number"])

    async def post_message(self, text: str, file: File | None = None) -> None:
        await self.answers.wait()
        if self.error is not None:
            raise self.error
        self.said.append(text)
        self.files += [file] if file else []

    async def receive(self, text: str = "hello", *, is_mention: bool = True, **fields: Any) -> InboxMessage:
        message = inbound(text, **fields)
        await self.deliver(message, is_mention=is_mention)
        return message

    async def deliver(self, message: InboxMessage, *, is_mention: bool = True) -> None:
        await self.intake.accept(IncomingMessage(message, is_mention))
        await self.intake.drain(1)

    async def edit(self, event_key: str, text: str | None) -> None:
        """Edit a message, or delete it if `text` is None."""
        entry = inbound("", author="")
        await self.intake.accept(IncomingChange(entry, event_key, text))
        await self.intake.drain(1)

    async def press(self, action: ButtonAction, turn: Turn, author: str = "ada") -> str:
        response = await self.intake.presses.handle(
            create_button(action, turn.id, ENGLISH).id, actor=Actor("test", author), locale=""
        )
        await self.intake.drain(1)
        return response

    async def claim_turn(self) -> Turn:
        (turn,) = await self.turns.claim(1)
        return turn

    async def end_turn(self, turn: Turn, state: EndState = "done") -> Turn:
        if state == "done":
            await self.turns.save_answer(turn, "Well.", {})
        await self.turns.end(turn, state)
        return turn

    async def list_queued(self) -> list[str]:
        """Return the texts of the inbox messages that wait for a turn, oldest first."""
        query = sa.select(inbox.c.message).where(inbox.c.turn.is_(None), inbox.c.outcome.is_(None))
        async with self.database.read() as connection:
            found = (await connection.execute(query.order_by(inbox.c.id))).scalars().all()
        return [InboxMessage.from_json(message).text for message in found]

    async def count_rows(self, table: sa.Table) -> int:
        async with self.database.read() as connection:
            return int((await connection.execute(sa.select(sa.func.count()).select_from(table))).scalar_one())


class RecordingRerenderer:
    """Records the updated replies in place of a `ReplyRerenderer`."""

    def __init__(self, renderings: list[tuple[str, str]]) -> None:
        self._renderings = renderings

    def rerender(self, turn_id: str, *, ending: str = "") -> None:
        self._renderings.append((turn_id, ending))


class RecordingPlatform:
    """Platform whose surfaces are the recorder."""

    name = "test"

    def __init__(self, recorder: IntakeRecorder) -> None:
        self._recorder = recorder

    def create_surface(self, _address: Address, *, turn_id: str = "") -> Surface:
        return cast(Surface, self._recorder)

    async def get_locale(self, _message: InboxMessage) -> str:
        return self._recorder.locale


class RecordingIntake(IntakeHandler):
    """Intake of a platform without interactions."""

    must_refuse = False

    def __init__(self, recorder: IntakeRecorder, services: PlatformServices) -> None:
        platform = cast(Platform, RecordingPlatform(recorder))
        super().__init__(platform, services, recorder.queued_reactions, syntax=SYNTAX, cipher=Cipher("secret"))
        self._recorder = recorder

    async def deny_privately(self, message: InboxMessage, text: str) -> None:
        self._recorder.private_texts.append((message.author, text))

    async def answer(self, entry: InboxEntry, result: CommandResult) -> None:
        raise AssertionError(f"no interaction is answered: {entry}")

    async def post_prompt(self, entry: InboxEntry) -> tuple[InboxMessage, Retract] | None:
        raise AssertionError(f"no prompt is posted: {entry}")


@pytest.fixture
async def recorder(tmp_path: Path) -> AsyncIterator[IntakeRecorder]:
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}")
    yield await IntakeRecorder(database).start(tmp_path)
    await database.aclose()


async def test_a_mention_is_accepted_and_a_queued_one_gets_a_reaction(recorder: IntakeRecorder) -> None:
    await recorder.receive("one")
    assert (await recorder.list_queued(), recorder.reactions) == (["one"], set())
    second = await recorder.receive("two")
    assert (await recorder.list_queued(), recorder.reactions) == (["one", "two"], {second.address["number"]})


@pytest.mark.parametrize(
    ("follow", "expected"),
    [
        ("never", ["first", "@bot and mine?"]),
        ("author", ["first", "and then?", "@bot and mine?", "well?"]),
        ("everyone", ["first", "and then?", "lunch?", "yes", "@bot and mine?", "well?"]),
    ],
)
async def test_messages_without_a_mention_follow_the_setting(
    recorder: IntakeRecorder, follow: ReplyWithoutMention, expected: list[str]
) -> None:
    recorder.create_intake(follow)
    await recorder.receive("talk of others", is_mention=False)
    await recorder.receive("first")
    await recorder.receive("and then?", is_mention=False)
    lunch = await recorder.receive("lunch?", is_mention=False, author="grace")
    await recorder.deliver(lunch, is_mention=False)
    await recorder.receive("yes", is_mention=False)  # a reply to Grace
    await recorder.receive("@bot and mine?")
    await recorder.receive("well?", is_mention=False)
    assert await recorder.list_queued() == expected


async def test_a_muted_session_answers_mentions_only_until_it_is_unmuted(
    recorder: IntakeRecorder,
) -> None:
    recorder.create_intake("everyone")
    await recorder.receive("first")
    await recorder.receive("mute")
    await recorder.receive("talk", is_mention=False)
    await recorder.receive("called")
    await recorder.receive("listen")
    await recorder.receive("more talk", is_mention=False)
    assert await recorder.list_queued() == ["first", "called", "more talk"]
    assert recorder.said == [words.MUTED, words.UNMUTED]


async def test_a_reset_removes_reactions_of_dropped_messages(recorder: IntakeRecorder) -> None:
    await recorder.receive("one")
    await recorder.receive("two")
    reset = await recorder.receive("/reset")
    assert (recorder.reactions, recorder.said, await recorder.list_queued()) == (set(), [words.RESET_DONE], [])
    await recorder.deliver(reset)
    assert recorder.said == [words.RESET_DONE]


@pytest.mark.parametrize("text", ["reset", "info", "help"])
async def test_a_duplicate_command_runs_once_also_without_a_session(recorder: IntakeRecorder, text: str) -> None:
    message = await recorder.receive(text)
    await recorder.deliver(message)
    assert len(recorder.said) == 1
    assert (await recorder.list_queued(), await recorder.count_rows(sessions)) == ([], 0)
    assert (recorder.said == [words.NOTHING_TO_RESET]) == (text != "help")


async def test_a_command_word_in_a_sentence_or_with_a_file_is_a_question(recorder: IntakeRecorder) -> None:
    await recorder.receive("hello")
    await recorder.receive("reset", is_mention=False)
    await recorder.receive("info", attachments=(Attachment("a.txt", None, 1, {}),))
    assert (await recorder.list_queued(), recorder.said) == (["hello", "reset", "info"], [])


async def test_a_command_is_answered_in_the_language_of_its_user(recorder: IntakeRecorder) -> None:
    recorder.locale = "ko-KR"
    await recorder.receive("hello")
    await recorder.receive("!help")
    assert recorder.said[0].startswith(words.messages_for("ko")(words.HELP_COMMANDS))
    assert f"- `reset`: {words.messages_for('ko')(words.RESET_HELP)}" in recorder.said[0]


async def test_a_stop_ends_the_turn_of_its_author_and_updates_its_reply(recorder: IntakeRecorder) -> None:
    await recorder.receive("hello")
    turn = await recorder.claim_turn()
    queued = await recorder.receive("and this")
    assert recorder.reactions == {queued.address["number"]}
    await recorder.receive("stop", author="grace")
    assert recorder.said == [words.NOTHING_TO_STOP]
    await recorder.receive("Stop.")
    assert (recorder.said, recorder.reactions) == ([words.NOTHING_TO_STOP], set())
    assert await recorder.turns.list_owned() == {turn.id: "stop"}
    assert await recorder.list_queued() == []


async def test_status_describes_the_session_and_export_sends_a_file(recorder: IntakeRecorder) -> None:
    await recorder.receive("hello")
    await recorder.claim_turn()
    await recorder.receive("info")
    lines = recorder.said[0].splitlines()
    status_lines = ENGLISH(words.STATUS_AGENT, agent="parley"), ENGLISH(words.STATUS_MODEL, model=MODELS[0])
    assert lines[:2] == [f"- {line}" for line in status_lines]
    assert f"- {words.STATUS_ANSWERING}" in lines
    await recorder.receive("export")
    assert (recorder.said[-1], [file.name for file in recorder.files]) == (words.EXPORTED, ["transcript.md"])


async def test_the_model_command_shows_sets_and_rejects_models(recorder: IntakeRecorder) -> None:
    await recorder.receive("hello")
    for text in ("model", f"model {MODELS[1]}", "model", "model nothing/else"):
        await recorder.receive(text)
    assert recorder.said[0].startswith(ENGLISH(words.CURRENT_MODEL, model=MODELS[0]))
    assert recorder.said[1] == ENGLISH(words.MODEL_CHANGED, model=MODELS[1])
    assert recorder.said[2].startswith(ENGLISH(words.CURRENT_MODEL, model=MODELS[1]))
    assert "`nothing/else`" in recorder.said[3]
    assert all(f"`{model}`" in recorder.said[3] for model in MODELS)


async def test_a_model_can_be_chosen_before_the_first_question(recorder: IntakeRecorder) -> None:
    await recorder.receive(f"model {MODELS[1]}")
    await recorder.receive("hello")
    assert recorder.said == [ENGLISH(words.MODEL_CHANGED, model=MODELS[1])]
    assert (await recorder.claim_turn()).model == MODELS[1]


async def test_a_command_without_a_session_finds_nothing_to_reset(recorder: IntakeRecorder) -> None:
    nowhere = InboxEntry("command", inbound("", session=""), {})
    assert (await recorder.intake.commands.run("reset", "", nowhere)).text == words.NOTHING_TO_RESET


async def test_a_failed_command_answer_is_logged(recorder: IntakeRecorder, caplog: pytest.LogCaptureFixture) -> None:
    recorder.error = SurfaceError("forbidden")
    await recorder.receive("reset")
    assert "answer to reset failed: SurfaceError: forbidden" in caplog.text


async def test_a_failed_insert_is_reported_to_the_adapter(
    recorder: IntakeRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in ("accept", "edit_message", "delete_message"):
        monkeypatch.setattr(recorder.inbox, step, raise_store_error)
    monkeypatch.setattr(EntryStore, "append", raise_store_error)
    for taking in (
        recorder.receive(),
        recorder.receive("help"),
        recorder.edit("key", "text"),
        recorder.edit("key", None),
    ):
        with pytest.raises(StoreError):
            await taking


async def test_a_permanently_failing_command_gets_one_apology(
    recorder: IntakeRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def raise_unreadable(*_: Any, **__: Any) -> Any:
        raise UnreadableRowError("a row cannot be read")

    await recorder.receive("hello")
    monkeypatch.setattr(recorder.conversations, "get_status", raise_unreadable)
    message = await recorder.receive("info")
    await recorder.deliver(message)
    assert recorder.said == [ENGLISH.format_error(UnreadableRowError.public)]


async def test_a_command_that_cannot_be_stored_runs_when_it_is_redelivered(
    recorder: IntakeRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    await recorder.receive("hello")
    monkeypatch.setattr(EntryStore, "append", raise_store_error)
    message = inbound("mute")
    with pytest.raises(StoreError):
        await recorder.deliver(message)
    monkeypatch.undo()
    for _ in range(2):
        await recorder.deliver(message)
    assert recorder.said == [words.MUTED]


@pytest.mark.parametrize(("command", "fails"), [("mute", "set_muted"), ("info", "get_status")])
async def test_a_stored_command_that_fails_is_answered_by_one_error(
    recorder: IntakeRecorder, monkeypatch: pytest.MonkeyPatch, command: str, fails: str
) -> None:
    await recorder.receive("hello")
    monkeypatch.setattr(recorder.conversations, fails, raise_store_error)
    message = await recorder.receive(command)
    await recorder.deliver(message)
    assert recorder.said == [ENGLISH.format_error(StoreError.public)]


@pytest.mark.parametrize("is_late", [True, False])
async def test_the_last_choice_wins_although_an_earlier_one_arrives_later(
    recorder: IntakeRecorder, *, is_late: bool
) -> None:
    """Check that a late, older command does not replace a newer one.

    Slack redelivers an unacknowledged command late.
    """
    await recorder.receive("hello")
    late = inbound("mute")
    await recorder.receive("listen")
    await recorder.intake.accept(IncomingMessage(late, True, is_late=is_late))
    assert not await recorder.conversations.is_muted("place:1")
    await recorder.intake.accept(IncomingMessage(inbound("mute"), True, is_late=True))
    assert await recorder.conversations.is_muted("place:1")


async def test_a_stop_received_by_two_workers_runs_once(recorder: IntakeRecorder) -> None:
    await recorder.receive("hello")
    stop = inbound("stop")
    for _ in range(2):
        await recorder.deliver(stop)
    assert (recorder.said, await recorder.list_queued()) == ([words.STOPPING], [])


async def test_a_redelivered_reset_keeps_newer_messages(recorder: IntakeRecorder) -> None:
    await recorder.receive("hello")
    await recorder.end_turn(await recorder.claim_turn())
    reset = inbound("reset")
    await recorder.receive("which colour?")
    turn = await recorder.claim_turn()
    for _ in range(2):
        await recorder.deliver(reset)
    assert await recorder.turns.list_owned() == {turn.id: None}
    assert recorder.said == [words.RESET_SUPERSEDED]


async def test_a_late_stop_ends_only_earlier_messages(recorder: IntakeRecorder) -> None:
    await recorder.receive("hello")
    turn = await recorder.claim_turn()
    late = inbound("stop")
    await recorder.receive("said since")
    await recorder.intake.accept(IncomingMessage(late, True, is_late=True))
    assert await recorder.turns.list_owned() == {turn.id: CancelReason.STOP}
    assert await recorder.list_queued() == ["said since"]
    await recorder.end_turn(turn, "cancelled")
    since = await recorder.claim_turn()
    too_late = inbound("stop", sent_at=late.sent_at)
    await recorder.intake.accept(IncomingMessage(too_late, True, is_late=True))
    assert await recorder.turns.list_owned() == {since.id: None}


async def test_a_command_is_recorded_only_after_its_input_is_resolved(
    recorder: IntakeRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RecordingPlatform, "get_locale", raise_store_error)
    message = inbound("help")
    with pytest.raises(StoreError):
        await recorder.deliver(message)
    monkeypatch.undo()
    await recorder.deliver(message)
    assert len(recorder.said) == 1


async def test_draining_is_limited_in_time(recorder: IntakeRecorder) -> None:
    recorder.answers.clear()
    async with asyncio.timeout(30):
        await recorder.intake.accept(IncomingMessage(inbound("reset"), True))
        await recorder.intake.drain(0.01)
    recorder.answers.set()
    await recorder.intake.drain(1)
    assert recorder.said == []  # the late task is given up


async def test_a_failed_turn_is_retried_for_its_author(recorder: IntakeRecorder) -> None:
    await recorder.receive()
    turn = await recorder.end_turn(await recorder.claim_turn(), "failed")
    assert await recorder.press("retry", turn, "grace") == words.RETRY_NOT_ALLOWED
    assert await recorder.press("retry", turn) == ""
    reclaimed = await recorder.claim_turn()
    assert (reclaimed.kind, reclaimed.origin, recorder.reactions) == ("retry", turn.id, set())
    await recorder.end_turn(reclaimed)
    assert await recorder.press("retry", turn) == words.RETRY_EXPIRED


async def test_a_queued_retry_gets_a_reaction(recorder: IntakeRecorder) -> None:
    message = await recorder.receive()
    turn = await recorder.end_turn(await recorder.claim_turn(), "failed")
    await recorder.receive("another")
    assert await recorder.press("retry", turn) == ""
    assert recorder.reactions == {message.address["number"]}


async def test_the_last_answer_is_regenerated_for_its_author(recorder: IntakeRecorder) -> None:
    await recorder.receive()
    turn = await recorder.end_turn(await recorder.claim_turn())
    assert await recorder.press("regenerate", turn, "grace") == words.RETRY_NOT_ALLOWED
    assert await recorder.press("regenerate", turn) == ""
    reclaimed = await recorder.end_turn(await recorder.claim_turn())
    assert reclaimed.kind == "regenerate"
    await recorder.receive("more")
    assert await recorder.press("regenerate", reclaimed) == words.NEWER_MESSAGES


async def test_only_the_author_stops_a_running_turn(recorder: IntakeRecorder) -> None:
    await recorder.receive()
    turn = await recorder.claim_turn()
    assert await recorder.press("stop", turn, "grace") == words.STOP_NOT_ALLOWED
    assert await recorder.press("stop", turn) == ""
    assert await recorder.turns.list_owned() == {turn.id: "stop"}
    await recorder.end_turn(turn, "cancelled")
    assert await recorder.press("stop", turn) == words.ALREADY_ENDED


async def test_any_reader_gives_feedback_while_the_turn_is_stored(recorder: IntakeRecorder) -> None:
    await recorder.receive()
    turn = await recorder.end_turn(await recorder.claim_turn())
    assert await recorder.press("good", turn) == words.FEEDBACK_THANKS
    assert await recorder.press("bad", turn, "grace") == words.FEEDBACK_THANKS
    assert await recorder.press("bad", turn) == words.FEEDBACK_THANKS
    assert await recorder.count_rows(feedback) == 2
    await recorder.receive("reset")
    assert await recorder.press("good", turn) == words.ANSWER_NOT_STORED


async def test_a_press_is_answered_in_the_language_of_the_user(recorder: IntakeRecorder) -> None:
    korean = words.messages_for("ko")
    assert await recorder.intake.presses.handle("strange", actor=ADA, locale="ko") == korean(words.UNKNOWN_BUTTON)
    assert await recorder.intake.presses.handle("retry:t1", actor=ADA, locale="ko") == korean(words.RETRY_EXPIRED)


async def test_an_edit_updates_queued_messages_and_rerenders_answers(recorder: IntakeRecorder) -> None:
    message = await recorder.receive("What is tow and two?")
    await recorder.edit("unknown", "text")
    await recorder.edit(message.event_key, "What is two and two?")
    assert await recorder.list_queued() == ["What is two and two?"]
    turn = await recorder.claim_turn()
    for text in ("What is two and three?", "What is two and three?"):  # the second edit changes nothing
        await recorder.edit(message.event_key, text)
    assert recorder.renderings == [(turn.id, "")]
    await recorder.end_turn(turn)
    assert await recorder.press("revise", turn) == ""
    assert [part.text for part in (await recorder.claim_turn()).messages] == ["What is two and three?"]


async def test_a_deletion_drops_queued_stops_running_and_marks_answered_messages(recorder: IntakeRecorder) -> None:
    await recorder.edit("unknown", None)
    queued = await recorder.receive("one")
    await recorder.edit(queued.event_key, None)
    assert await recorder.list_queued() == []
    running = await recorder.receive("two")
    turn = await recorder.claim_turn()
    await recorder.edit(running.event_key, None)
    assert await recorder.turns.list_owned() == {turn.id: "message_deleted"}
    await recorder.end_turn(turn, "cancelled")
    answered = await recorder.receive("three")
    other = await recorder.end_turn(await recorder.claim_turn())
    await recorder.edit(answered.event_key, None)
    await recorder.intake.drain(1)
    assert recorder.renderings == [(turn.id, words.STOPPED_BY_DELETION), (other.id, words.STOPPED_BY_DELETION)]


async def raise_store_error(*_: Any, **__: Any) -> Any:
    raise StoreError("out of reach")
