"""Detection of complete replies of the bot from visible events only."""

import asyncio
from dataclasses import dataclass
from time import monotonic

from chatrig.client.platform import ClientEvent, ClientEventKind, ClientMessage

#: Label of the only button that a placeholder can have.
STOP_LABEL = "Stop"
#: Length of the longest first text that may be a placeholder, such as "Thinking…".
MAX_PLACEHOLDER_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class QuietTime:
    """Waiting times for replies of the bot, in real seconds.

    Attributes:
        quiet_seconds: replies count as complete after this time without a change.
        max_quiet_seconds: upper limit of that time. Up to it, that time is at least twice the longest pause between
            two edits of a reply so far.
        stalled_reply_seconds: time without a change after which a wait for a reply in flight is given up.
        max_wait_seconds: limit of the whole wait.
    """

    quiet_seconds: float = 2.0
    max_quiet_seconds: float = 20.0
    stalled_reply_seconds: float = 60.0
    max_wait_seconds: float = 600.0


class ReplyTracker:
    """Tracker of the user's questions and of the bot's replies to them.

    A reply is in flight while a question has no message of the bot in its conversation, or only a placeholder there. A
    text is a placeholder if the platform reports it as one, or if an edit has replaced it before. Until the first such
    edit, each first text of at most `MAX_PLACEHOLDER_CHARACTERS` may be one. A message with a file, or with a menu or
    button that asks the user, is none. Any other reply is complete once it has not changed for some time.
    """

    def __init__(self, quiet_time: QuietTime) -> None:
        self._quiet_time = quiet_time
        self._open_questions: list[ClientMessage] = []
        self._bot_messages: list[ClientMessage] = []
        self._first_texts: dict[tuple[str, str], str] = {}
        self._placeholders: set[str] = set()
        self._pending_messages: set[tuple[str, str]] = set()
        self._updated_at: dict[tuple[str, str], float] = {}
        self._longest_pause = 0.0
        self._changed = asyncio.Event()

    def record_question(self, message: ClientMessage, *, expects_reply: bool) -> None:
        """Store a message of the user as a question, unless it has a reply already.

        Args:
            expects_reply: whether the bot will answer the message; if not, it is not stored.
        """
        if expects_reply and not any(_is_reply_to(reply, message) for reply in self._bot_messages):
            self._open_questions.append(message)
        self._changed.set()

    def record_event(self, event: ClientEvent) -> None:
        self._changed.set()
        message = event.message
        if not message.is_from_bot or event.kind is ClientEventKind.REACTED:
            return
        self._bot_messages.append(message)
        self._open_questions = [question for question in self._open_questions if not _is_reply_to(message, question)]
        key = (message.channel, message.id)
        if message.is_pending and event.kind is not ClientEventKind.DELETED:
            self._pending_messages.add(key)
        else:
            self._pending_messages.discard(key)
        if message.ephemeral_to is not None:
            return
        if event.kind is ClientEventKind.POSTED and _may_be_placeholder(message):
            self._first_texts[key] = message.plain_text
        elif first := self._first_texts.pop(key, None):
            self._placeholders.add(first)
        if event.kind is ClientEventKind.UPDATED and message.plain_text in self._placeholders:  # the reply starts again
            self._first_texts[key] = message.plain_text
        if event.kind is ClientEventKind.UPDATED and not message.is_pending:
            now = monotonic()
            self._longest_pause = max(self._longest_pause, now - self._updated_at.get(key, now))
            self._updated_at[key] = now

    @property
    def is_in_flight(self) -> bool:
        """True while a question has no reply, or only a placeholder text."""
        first_texts = self._first_texts.values()
        return bool(self._open_questions or self._pending_messages) or any(
            not self._placeholders or text in self._placeholders for text in first_texts
        )

    async def wait_until_complete(self) -> bool:
        """Wait until no reply is in flight and none has changed for the quiet time.

        Each recorded event restarts the quiet time, also a user's message or a reaction.

        Returns:
            True if all replies are complete; False if one is in flight or still changes after the limits of
            `QuietTime`.
        """
        try:
            async with asyncio.timeout(self._quiet_time.max_wait_seconds):
                while await self._wait_for_change(
                    self._quiet_time.stalled_reply_seconds if self.is_in_flight else self._quiet_seconds
                ):
                    pass
        except TimeoutError:
            return False
        return not self.is_in_flight

    @property
    def _quiet_seconds(self) -> float:
        """Seconds without a change after which the bot's replies count as complete."""
        return min(max(self._quiet_time.quiet_seconds, 2 * self._longest_pause), self._quiet_time.max_quiet_seconds)

    async def _wait_for_change(self, seconds: float) -> bool:
        """Wait for the next recorded event or question; return False after `seconds`."""
        self._changed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True


def _may_be_placeholder(message: ClientMessage) -> bool:
    """Return whether a text is short, without a file, a menu or a button except Stop.

    Other buttons and menus ask the user for a decision.
    """
    asks_user = bool(message.menus) or any(label != STOP_LABEL for label in message.buttons)
    return len(message.plain_text) <= MAX_PLACEHOLDER_CHARACTERS and not message.has_files and not asks_user


def _is_reply_to(message: ClientMessage, question: ClientMessage) -> bool:
    """Return whether a bot's message is newer than a question and in its conversation.

    An ephemeral message may be anywhere in the question's channel. Any other must be beside the question or in its
    thread.
    """
    if message.channel != question.channel or message.sent_at < question.sent_at:
        return False
    return message.ephemeral_to is not None or message.thread in (question.thread, question.thread or question.id)
