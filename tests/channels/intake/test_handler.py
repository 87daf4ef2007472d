"""Commands and presses on the real core, without workers: failures, late deliveries, and what a session lacks."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa

from channels.base import File
from channels.commands.handlers import CommandResult
from channels.commands.services import PlatformServices
from channels.commands.syntax import CommandSyntax
from channels.i18n import messages as words
from channels.i18n.messages import ENGLISH
from channels.intake.handler import IntakeHandler, Retract
from channels.intake.incoming import IncomingMessage
from channels.platform import Platform
from channels.replies.buttons import create_button
from channels.replies.reactions import Address, QueuedReactions
from channels.replies.surface import Surface
from core.errors import ParleyError, StoreError, SurfaceError, UnreadableRowError
from core.inbox.entries import EntryStore, InboxEntry
from core.messages.identity import Actor
from core.messages.inbox_message import Attachment, InboxMessage
from core.privacy.vault import Cipher
from core.store.schema import inbox, sessions
from core.store.turn_states import EndState
from core.turns.turn import CancelReason, Turn
from tests.channels.wiring import MODELS, CoreParts, run_core
from tests.fixtures.inbox_messages import inbound

ADA = Actor("test", "ada")

#: Syntax of a platform without slash commands and menus.
SYNTAX = CommandSyntax("", (), lambda _: ())


class RecordingPlatform:
    """Platform that records what it is told to post.

    Attributes:
        error: raised by each post.
        answers: posts wait for it.
    """

    name = "test"

    def __init__(self) -> None:
        self.said: list[str] = []
        self.error: SurfaceError | None = None
        self.answers = asyncio.Event()
        self.answers.set()

    def create_surface(self, _address: Address, *, turn_id: str = "") -> Surface:
        return cast(Surface, self)

    async def get_locale(self, _message: InboxMessage) -> str:
        return ""

    async def post_message(self, text: str, _file: File | None = None) -> None:
        await self.answers.wait()
        if self.error is not None:
            raise self.error
        self.said.append(text)


class RecordingIntake(IntakeHandler):
    """Intake of a platform without interactions."""

    must_refuse = False

    def __init__(self, platform: RecordingPlatform, services: PlatformServices) -> None:
        reactions = QueuedReactions(ignore_reaction, ignore_reaction)
        super().__init__(cast(Platform, platform), services, reactions, syntax=SYNTAX, cipher=Cipher("secret"))

    async def deny_privately(self, message: InboxMessage, text: str) -> None:
        raise AssertionError(f"nobody is denied: {text}")

    async def answer(self, entry: InboxEntry, result: CommandResult) -> None:
        raise AssertionError(f"no interaction is answered: {entry}")

    async def post_prompt(self, entry: InboxEntry) -> tuple[InboxMessage, Retract] | None:
        raise AssertionError(f"no prompt is posted: {entry}")


async def ignore_reaction(_address: Address) -> None:
    """Do nothing instead of adding or removing a reaction."""


class IntakeRecorder:
    """Intake with the real core; a test claims the turns."""

    def __init__(self, core: CoreParts) -> None:
        self.database = core.database
        self.turns = core.turns
        self.conversations = core.services.conversations
        self.platform: RecordingPlatform = core.platform
        self.intake = RecordingIntake(core.platform, core.services)

    @property
    def said(self) -> list[str]:
        return self.platform.said

    async def receive(self, text: str = "hello", *, is_mention: bool = True, **fields: Any) -> InboxMessage:
        message = inbound(text, **fields)
        await self.deliver(message, is_mention=is_mention)
        return message

    async def deliver(self, message: InboxMessage, *, is_mention: bool = True) -> None:
        await self.intake.accept(IncomingMessage(message, is_mention))
        await self.intake.drain(1)

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

    async def count_sessions(self) -> int:
        async with self.database.read() as connection:
            return int((await connection.execute(sa.select(sa.func.count()).select_from(sessions))).scalar_one())


@pytest.fixture
async def recorder(tmp_path: Path) -> AsyncIterator[IntakeRecorder]:
    platform = cast(Platform, RecordingPlatform())
    async with run_core(tmp_path, lambda _: platform, "unused", time_limit=1, max_chunks=1) as core:
        yield IntakeRecorder(core)


@pytest.mark.parametrize("text", ["reset", "info", "help"])
async def test_a_duplicate_command_runs_once_also_without_a_session(recorder: IntakeRecorder, text: str) -> None:
    message = await recorder.receive(text)
    await recorder.deliver(message)
    assert len(recorder.said) == 1
    assert (await recorder.list_queued(), await recorder.count_sessions()) == ([], 0)
    assert (recorder.said == [words.NOTHING_TO_RESET]) == (text != "help")


async def test_a_command_word_in_a_sentence_or_with_a_file_is_a_question(recorder: IntakeRecorder) -> None:
    await recorder.receive("hello")
    await recorder.receive("reset", is_mention=False)
    await recorder.receive("info", attachments=(Attachment("a.txt", None, 1, {}),))
    assert (await recorder.list_queued(), recorder.said) == (["hello", "reset", "info"], [])


async def test_a_model_can_be_chosen_before_the_first_question(recorder: IntakeRecorder) -> None:
    await recorder.receive(f"model {MODELS[1]}")
    await recorder.receive("hello")
    assert recorder.said == [ENGLISH(words.MODEL_CHANGED, model=MODELS[1])]
    assert (await recorder.claim_turn()).model == MODELS[1]


async def test_a_session_without_an_answer_has_a_status_and_an_export(recorder: IntakeRecorder) -> None:
    await recorder.receive("hello")
    await recorder.receive("info")
    assert ENGLISH(words.STATUS_AGENT, agent="parley") in recorder.said[0]
    assert words.STATUS_SINCE.partition("{")[0] not in recorder.said[0]
    await recorder.receive("export")
    assert recorder.said[1] == words.EXPORTED


async def test_a_failed_command_answer_is_logged(recorder: IntakeRecorder, caplog: pytest.LogCaptureFixture) -> None:
    recorder.platform.error = SurfaceError("forbidden")
    await recorder.receive("reset")
    assert "answer to reset failed: SurfaceError: forbidden" in caplog.text


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


@pytest.mark.parametrize(
    ("command", "fails", "error"),
    [
        ("mute", "set_muted", StoreError("out of reach")),
        ("info", "get_status", StoreError("out of reach")),
        ("info", "get_status", UnreadableRowError("a row cannot be read")),
    ],
)
async def test_a_stored_command_that_fails_is_answered_by_one_error(
    recorder: IntakeRecorder, monkeypatch: pytest.MonkeyPatch, command: str, fails: str, error: ParleyError
) -> None:
    async def fail(*_: Any, **__: Any) -> Any:
        raise error

    await recorder.receive("hello")
    monkeypatch.setattr(recorder.conversations, fails, fail)
    message = await recorder.receive(command)
    await recorder.deliver(message)
    assert recorder.said == [ENGLISH.format_error(error.public)]


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
    recorder.platform.answers.clear()
    async with asyncio.timeout(30):
        await recorder.intake.accept(IncomingMessage(inbound("reset"), True))
        await recorder.intake.drain(0.01)
    recorder.platform.answers.set()
    await recorder.intake.drain(1)
    assert recorder.said == []  # the late task is given up


async def test_a_turn_before_a_reset_cannot_be_rated(recorder: IntakeRecorder) -> None:
    await recorder.receive()
    turn = await recorder.end_turn(await recorder.claim_turn())
    await recorder.receive("reset")
    button = create_button("good", turn.id, ENGLISH)
    assert (await recorder.intake.presses.handle(button.id, actor=ADA, locale="")).text == words.ANSWER_NOT_STORED


async def test_a_press_is_answered_in_the_language_of_the_user(recorder: IntakeRecorder) -> None:
    korean = words.messages_for("ko")
    assert (await recorder.intake.presses.handle("strange", actor=ADA, locale="ko")).text == korean(
        words.UNKNOWN_BUTTON
    )
    assert (await recorder.intake.presses.handle("retry:t1", actor=ADA, locale="ko")).text == korean(
        words.RETRY_EXPIRED
    )


async def raise_store_error(*_: Any, **__: Any) -> Any:
    raise StoreError("out of reach")
