import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa

from channels.access import AccessPolicy
from channels.base import File, Surface
from channels.commands.handlers import CommandContext, CommandSyntax
from channels.i18n import messages as words
from channels.i18n.messages import ENGLISH
from channels.intake.handler import IncomingMessage, MessageHandler
from channels.replies.buttons import ButtonAction, create_button
from channels.replies.reactions import Address, QueuedReactions
from channels.services import ChannelServices
from core.conversations.feedback import FeedbackStore
from core.conversations.service import ConversationService
from core.conversations.turn_report import TurnReports
from core.errors import DamagedSessionError, StoreError, SurfaceError
from core.identity import Actor
from core.inbox.interactions import InteractionQueue
from core.inbox.store import InboxStore
from core.inbox_message import Attachment, InboxMessage, ReplyWithoutMention
from core.store.database import Database
from core.store.schema import feedback, inbox, sessions
from core.store.turn_states import EndState
from core.tools.human_request_service import HumanRequestService
from core.tools.human_requests import HumanRequest
from core.turns.turn import CancelReason, Turn
from core.turns.worker import Worker
from core.usage.prices import Prices
from core.usage.spending import SpendingStore
from core.usage.user_rate_limits import DenialNotices
from tests.channels.wiring import BUDGET, MODELS, create_successor
from tests.fixtures import empty_databases as tables
from tests.fixtures.inbox_messages import inbound

ADA = Actor("test", "ada")

#: Syntax of a platform without slash commands and menus.
WAYS = CommandSyntax({}, "", lambda _: ())


class Place:
    """Intake with the real core and without workers, and its visible effects."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.signs: set[Any] = set()
        self.said: list[str] = []
        self.files: list[File] = []
        self.shown: list[tuple[str, str]] = []
        self.whispered: list[tuple[str, str]] = []
        self.door = AccessPolicy()
        self.locale = ""
        self.error: SurfaceError | None = None
        self.answers = asyncio.Event()
        self.answers.set()

    async def begin(self, folder: Path) -> "Place":
        await tables.create_tables(self.database)
        self.turns = await create_successor(self.database)
        worker = self.worker = Worker(self.turns, self._answer)
        self.inbox = InboxStore(self.database, self.turns, worker)
        self.conversations = ConversationService(self.database, self.turns, worker, budget=BUDGET)
        self.receipts = QueuedReactions(self._add, self._remove)
        self.open()
        return self

    def open(self, follow: ReplyWithoutMention = "author") -> None:
        desk = ChannelServices(
            self.inbox,
            self.conversations,
            FeedbackStore(self.database),
            self._reshow,
            HumanRequestService(self.database, self.turns, self.worker),
            self._reask,
            InteractionQueue(self.database, self.turns._lease),
            TurnReports(self.database, Prices()),
            DenialNotices(self.database),
            SpendingStore(self.database, Prices()),
            self.door,
            follow,
        )
        self.intake = MessageHandler(
            desk, self.receipts, lambda _: cast(Surface, self), self._locale, self._whisper, syntax=WAYS
        )

    async def _whisper(self, message: InboxMessage, text: str) -> None:
        self.whispered.append((message.author, text))

    async def _answer(self, turn: Turn) -> None:
        raise AssertionError(f"nobody is at work: {turn}")

    async def _add(self, address: Address) -> None:
        self.signs.add(address["number"])

    async def _remove(self, address: Address) -> None:
        self.signs.discard(address["number"])

    async def _locale(self, _message: InboxMessage) -> str:
        return self.locale

    async def _reshow(self, turn_id: str, *, ending: str = "") -> None:
        self.shown.append((turn_id, ending))

    async def _reask(self, request: HumanRequest, *, is_void: bool = False, page: int = 0) -> None:
        self.shown.append((request.id, words.APPROVAL_VOID if is_void else request.verdict or ""))

    async def post_message(self, text: str, file: File | None = None) -> None:
        await self.answers.wait()
        if self.error is not None:
            raise self.error
        self.said.append(text)
        self.files += [file] if file else []

    async def hear(self, text: str = "hello", *, is_called: bool = True, **about: Any) -> InboxMessage:
        message = inbound(text, **about)
        await self.hear_again(message, is_called=is_called)
        return message

    async def hear_again(self, message: InboxMessage, *, is_called: bool = True) -> None:
        await self.intake.accept(IncomingMessage(message, is_called))
        await self.intake.drain(1)

    async def press(self, wish: ButtonAction, turn: Turn, author: str = "ada") -> str:
        said = await self.intake.presses.handle(
            create_button(wish, turn.id, ENGLISH).id, visitor=Actor("test", author), locale=""
        )
        await self.intake.drain(1)
        return said

    async def begun(self) -> Turn:
        (turn,) = await self.turns.claim(1)
        return turn

    async def ended(self, turn: Turn, state: EndState = "done") -> Turn:
        if state == "done":
            await self.turns.save_answer(turn, "Well.", {})
        await self.turns.end(turn, state)
        return turn

    async def waiting(self) -> list[str]:
        """Return the texts of the queued messages."""
        query = sa.select(inbox.c.message).where(inbox.c.turn.is_(None), inbox.c.outcome.is_(None))
        async with self.database.read() as connection:
            found = (await connection.execute(query.order_by(inbox.c.id))).scalars().all()
        return [InboxMessage.from_json(said).text for said in found]

    async def count(self, table: sa.Table) -> int:
        async with self.database.read() as connection:
            return int((await connection.execute(sa.select(sa.func.count()).select_from(table))).scalar_one())


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}")
    yield await Place(database).begin(tmp_path)
    await database.aclose()


async def test_a_mention_is_accepted_and_a_queued_one_gets_a_reaction(place: Place) -> None:
    await place.hear("one")
    assert (await place.waiting(), place.signs) == (["one"], set())
    second = await place.hear("two")
    assert (await place.waiting(), place.signs) == (["one", "two"], {second.address["number"]})


@pytest.mark.parametrize(
    ("follow", "heard"),
    [
        ("never", ["first", "@bot and mine?"]),
        ("author", ["first", "and then?", "@bot and mine?", "well?"]),
        ("everyone", ["first", "and then?", "lunch?", "yes", "@bot and mine?", "well?"]),
    ],
)
async def test_messages_without_a_mention_follow_the_setting(
    place: Place, follow: ReplyWithoutMention, heard: list[str]
) -> None:
    place.open(follow)
    await place.hear("talk of others", is_called=False)
    await place.hear("first")
    await place.hear("and then?", is_called=False)
    lunch = await place.hear("lunch?", is_called=False, author="grace")
    await place.hear_again(lunch, is_called=False)
    await place.hear("yes", is_called=False)  # to Grace
    await place.hear("@bot and mine?")
    await place.hear("well?", is_called=False)
    assert await place.waiting() == heard


async def test_a_muted_session_answers_mentions_only_until_it_is_unmuted(
    place: Place,
) -> None:
    place.open("everyone")
    await place.hear("first")
    await place.hear("mute")
    await place.hear("talk", is_called=False)
    await place.hear("called")
    await place.hear("listen")
    await place.hear("more talk", is_called=False)
    assert await place.waiting() == ["first", "called", "more talk"]
    assert place.said == [words.MUTED, words.UNMUTED]


async def test_a_reset_removes_reactions_of_dropped_messages(place: Place) -> None:
    await place.hear("one")
    await place.hear("two")
    reset = await place.hear("/reset")
    assert (place.signs, place.said, await place.waiting()) == (set(), [words.RESET_DONE], [])
    await place.hear_again(reset)
    assert place.said == [words.RESET_DONE]


@pytest.mark.parametrize("text", ["reset", "info", "help"])
async def test_a_duplicate_command_runs_once_also_without_a_session(place: Place, text: str) -> None:
    message = await place.hear(text)
    await place.hear_again(message)
    assert len(place.said) == 1
    assert (await place.waiting(), await place.count(sessions)) == ([], 0)
    assert (place.said == [words.NOTHING_TO_RESET]) == (text != "help")


async def test_a_command_word_in_a_sentence_or_with_a_file_is_a_question(place: Place) -> None:
    await place.hear("hello")
    await place.hear("reset", is_called=False)
    await place.hear("info", attachments=(Attachment("a.txt", None, 1, {}),))
    assert (await place.waiting(), place.said) == (["hello", "reset", "info"], [])


async def test_a_command_is_answered_in_the_language_of_its_user(place: Place) -> None:
    place.locale = "ko-KR"
    await place.hear("hello")
    await place.hear("!help")
    assert place.said[0].startswith(words.messages_for("ko")(words.HELP_COMMANDS))
    assert f"- `reset`: {words.messages_for('ko')(words.RESET_HELP)}" in place.said[0]


async def test_a_stop_ends_the_turn_of_its_author_and_updates_its_reply(place: Place) -> None:
    await place.hear("hello")
    turn = await place.begun()
    waits = await place.hear("and this")
    assert place.signs == {waits.address["number"]}
    await place.hear("stop", author="grace")
    assert place.said == [words.NOTHING_TO_STOP]
    await place.hear("Stop.")
    assert (place.said, place.signs) == ([words.NOTHING_TO_STOP], set())
    assert await place.turns.list_owned() == {turn.id: "stop"}
    assert await place.waiting() == []


async def test_status_describes_the_session_and_export_sends_a_file(place: Place) -> None:
    await place.hear("hello")
    await place.begun()
    await place.hear("info")
    lines = place.said[0].splitlines()
    told = ENGLISH(words.STATUS_AGENT, agent="parley"), ENGLISH(words.STATUS_MODEL, model=MODELS[0])
    assert lines[:2] == [f"- {line}" for line in told]
    assert f"- {words.STATUS_ANSWERING}" in lines
    await place.hear("export")
    assert (place.said[-1], [file.name for file in place.files]) == (words.EXPORTED, ["transcript.md"])


async def test_the_model_command_shows_sets_and_rejects_models(place: Place) -> None:
    await place.hear("hello")
    for text in ("model", f"model {MODELS[1]}", "model", "model nothing/else"):
        await place.hear(text)
    assert place.said[0].startswith(ENGLISH(words.CURRENT_MODEL, model=MODELS[0]))
    assert place.said[1] == ENGLISH(words.MODEL_CHANGED, model=MODELS[1])
    assert place.said[2].startswith(ENGLISH(words.CURRENT_MODEL, model=MODELS[1]))
    assert "`nothing/else`" in place.said[3]
    assert all(f"`{model}`" in place.said[3] for model in MODELS)


async def test_a_model_can_be_chosen_before_the_first_question(place: Place) -> None:
    await place.hear(f"model {MODELS[1]}")
    await place.hear("hello")
    assert place.said == [ENGLISH(words.MODEL_CHANGED, model=MODELS[1])]
    assert (await place.begun()).model == MODELS[1]


async def test_a_command_without_a_session_finds_nothing_to_reset(place: Place) -> None:
    nowhere = CommandContext(None, "place", "ada", "test", {}, "key")
    assert (await place.intake.commands.run("reset", "", nowhere)).text == words.NOTHING_TO_RESET


async def test_a_failed_command_answer_is_logged(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.error = SurfaceError("forbidden")
    await place.hear("reset")
    assert "answer to reset cannot be shown: SurfaceError: forbidden" in caplog.text


async def test_an_unexpected_task_error_is_logged_without_content(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    said = "somebody's words"

    async def errand() -> None:
        raise KeyError(said)

    place.intake.run_in_background(errand(), name="press")
    await place.intake.drain(5)
    assert "press failed: KeyError" in caplog.text
    assert said not in caplog.text


async def test_a_failed_insert_is_reported_to_the_adapter(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in ("accept", "record_command", "edit_message", "delete_message"):
        monkeypatch.setattr(place.inbox, step, away)
    for taking in (
        place.hear(),
        place.hear("help"),
        place.intake.handle_edit("key", "text"),
        place.intake.handle_deletion("key"),
    ):
        with pytest.raises(StoreError):
            await taking


async def test_a_permanently_failing_command_gets_one_apology(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unreadable(*_: Any, **__: Any) -> Any:
        raise DamagedSessionError("a row cannot be read")

    await place.hear("hello")
    monkeypatch.setattr(place.conversations, "get_status", unreadable)
    message = await place.hear("info")
    await place.hear_again(message)
    assert place.said == [ENGLISH.format_error(DamagedSessionError.public)]


@pytest.mark.parametrize("fails", ["set_muted", "record_command", "get_status"])
async def test_a_command_that_cannot_be_stored_runs_when_it_is_redelivered(
    place: Place, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    await place.hear("hello")
    monkeypatch.setattr(place.inbox if fails == "record_command" else place.conversations, fails, away)
    message = inbound("info" if fails == "get_status" else "mute")
    with pytest.raises(StoreError):
        await place.hear_again(message)
    monkeypatch.undo()
    for _ in range(2):
        await place.hear_again(message)
    assert len(place.said) == 1


@pytest.mark.parametrize("is_late", [True, False])
async def test_the_last_choice_wins_although_an_earlier_one_arrives_later(place: Place, *, is_late: bool) -> None:
    """Check the order of choices: Slack redelivers an unacknowledged command late."""
    await place.hear("hello")
    late = inbound("mute")
    await place.hear("listen")
    await place.intake.accept(IncomingMessage(late, True, is_late=is_late))
    assert not await place.conversations.is_muted("place:1")
    await place.intake.accept(IncomingMessage(inbound("mute"), True, is_late=True))
    assert await place.conversations.is_muted("place:1")


async def test_a_stop_received_by_two_workers_runs_once(place: Place) -> None:
    await place.hear("hello")
    stop = inbound("stop")
    for _ in range(2):
        await place.hear_again(stop)
    assert (place.said, await place.waiting()) == ([words.STOPPING], [])


async def test_a_redelivered_reset_keeps_newer_messages(place: Place) -> None:
    await place.hear("hello")
    await place.ended(await place.begun())
    reset = inbound("reset")
    await place.hear("which colour?")
    turn = await place.begun()
    for _ in range(2):
        await place.hear_again(reset)
    assert await place.turns.list_owned() == {turn.id: None}
    assert place.said == [words.RESET_SUPERSEDED]


async def test_a_late_stop_ends_only_earlier_messages(place: Place) -> None:
    await place.hear("hello")
    turn = await place.begun()
    late = inbound("stop")
    await place.hear("said since")
    await place.intake.accept(IncomingMessage(late, True, is_late=True))
    assert await place.turns.list_owned() == {turn.id: CancelReason.STOP}
    assert await place.waiting() == ["said since"]
    await place.ended(turn, "cancelled")
    since = await place.begun()
    too_late = inbound("stop", sent_at=late.sent_at)
    await place.intake.accept(IncomingMessage(too_late, True, is_late=True))
    assert await place.turns.list_owned() == {since.id: None}


async def test_a_command_is_recorded_only_after_its_input_is_resolved(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place.intake, "_get_locale", away)
    message = inbound("help")
    with pytest.raises(StoreError):
        await place.hear_again(message)
    monkeypatch.undo()
    await place.hear_again(message)
    assert len(place.said) == 1


async def test_draining_is_limited_in_time(place: Place) -> None:
    place.answers.clear()
    async with asyncio.timeout(30):
        await place.intake.accept(IncomingMessage(inbound("reset"), True))
        await place.intake.drain(0.01)
    place.answers.set()
    await place.intake.drain(1)
    assert place.said == []  # the late task is given up


async def test_a_failed_turn_is_retried_for_its_author(place: Place) -> None:
    await place.hear()
    turn = await place.ended(await place.begun(), "failed")
    assert await place.press("retry", turn, "grace") == words.RETRY_NOT_ALLOWED
    assert await place.press("retry", turn) == ""
    again = await place.begun()
    assert (again.kind, again.origin, place.signs) == ("retry", turn.id, set())
    await place.ended(again)
    assert await place.press("retry", turn) == words.RETRY_EXPIRED


async def test_a_queued_retry_gets_a_reaction(place: Place) -> None:
    message = await place.hear()
    turn = await place.ended(await place.begun(), "failed")
    await place.hear("another")
    assert await place.press("retry", turn) == ""
    assert place.signs == {message.address["number"]}


async def test_the_last_answer_is_regenerated_for_its_author(place: Place) -> None:
    await place.hear()
    turn = await place.ended(await place.begun())
    assert await place.press("regenerate", turn, "grace") == words.RETRY_NOT_ALLOWED
    assert await place.press("regenerate", turn) == ""
    again = await place.ended(await place.begun())
    assert again.kind == "regenerate"
    await place.hear("more")
    assert await place.press("regenerate", again) == words.NEWER_MESSAGES


async def test_only_the_author_stops_a_running_turn(place: Place) -> None:
    await place.hear()
    turn = await place.begun()
    assert await place.press("stop", turn, "grace") == words.STOP_NOT_ALLOWED
    assert await place.press("stop", turn) == ""
    assert await place.turns.list_owned() == {turn.id: "stop"}
    await place.ended(turn, "cancelled")
    assert await place.press("stop", turn) == words.ALREADY_ENDED


async def test_any_reader_gives_feedback_while_the_turn_is_stored(place: Place) -> None:
    await place.hear()
    turn = await place.ended(await place.begun())
    assert await place.press("good", turn) == words.FEEDBACK_THANKS
    assert await place.press("bad", turn, "grace") == words.FEEDBACK_THANKS
    assert await place.press("bad", turn) == words.FEEDBACK_THANKS
    assert await place.count(feedback) == 2
    await place.hear("reset")
    assert await place.press("good", turn) == words.ANSWER_NOT_STORED


async def test_a_press_is_answered_in_the_language_of_the_user(place: Place) -> None:
    korean = words.messages_for("ko")
    assert await place.intake.presses.handle("strange", visitor=ADA, locale="ko") == korean(words.UNKNOWN_BUTTON)
    assert await place.intake.presses.handle("retry:t1", visitor=ADA, locale="ko") == korean(words.RETRY_EXPIRED)


async def test_an_edit_updates_queued_messages_and_rerenders_answers(place: Place) -> None:
    message = await place.hear("What is tow and two?")
    await place.intake.handle_edit("unknown", "text")
    await place.intake.handle_edit(message.event_key, "What is two and two?")
    assert await place.waiting() == ["What is two and two?"]
    turn = await place.begun()
    for text in ("What is two and three?", "What is two and three?"):  # the second time, nothing has changed
        await place.intake.handle_edit(message.event_key, text)
        await place.intake.drain(1)
    assert place.shown == [(turn.id, "")]
    await place.ended(turn)
    assert await place.press("revise", turn) == ""
    assert [said.text for said in (await place.begun()).messages] == ["What is two and three?"]


async def test_a_deletion_drops_queued_stops_running_and_marks_answered_messages(place: Place) -> None:
    await place.intake.handle_deletion("unknown")
    waits = await place.hear("one")
    await place.intake.handle_deletion(waits.event_key)
    assert await place.waiting() == []
    runs = await place.hear("two")
    turn = await place.begun()
    await place.intake.handle_deletion(runs.event_key)
    assert await place.turns.list_owned() == {turn.id: "message_deleted"}
    await place.ended(turn, "cancelled")
    answered = await place.hear("three")
    other = await place.ended(await place.begun())
    await place.intake.handle_deletion(answered.event_key)
    await place.intake.drain(1)
    assert place.shown == [(turn.id, words.STOPPED_BY_DELETION), (other.id, words.STOPPED_BY_DELETION)]


async def away(*_: Any, **__: Any) -> Any:
    raise StoreError("out of reach")
