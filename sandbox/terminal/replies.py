"""When replies are complete, as far as one can tell from the outside."""

import asyncio
from dataclasses import dataclass
from time import monotonic

from sandbox.client.platform import ClientEvent, ClientEventKind, ClientMessage


@dataclass(frozen=True, slots=True)
class QuietTime:
    """How long one waits, in seconds.

    Attributes:
        quiet: how long a reply that has grown must have stood still.
        longest_quiet: the same for a slow one: twice its longest pause so far, but no more than this.
        patience: how long one waits for an answer to begin, or for a placeholder to be replaced.
        limit: how long one waits at all, though something still happens.
    """

    quiet_seconds: float = 2.0
    max_quiet_seconds: float = 20.0
    answer_seconds: float = 60.0
    limit_seconds: float = 600.0


class ReplyTracker:
    """What was asked, and what the bot has said to it so far.

    A reply is in flight as long as a question has seen nothing of the bot in its conversation, or the bot's
    message there still shows its placeholder. A placeholder is known by the platform's word for it, or by its
    own words: they have been replaced before. As long as none has ever been, each first text may be one, but not
    one that comes with a file. After that a reply is complete when it has stood still.
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
        """Something was said; `addressed`: so that the bot will answer."""
        if expects_reply and not any(_is_reply_to(said, message) for said in self._bot_messages):
            self._open_questions.append(message)
        self._changed.set()

    def record_event(self, event: ClientEvent) -> None:
        self._changed.set()
        message = event.message
        if not message.is_from_bot or event.kind is ClientEventKind.REACTED:
            return
        self._bot_messages.append(message)
        self._open_questions = [asked for asked in self._open_questions if not _is_reply_to(message, asked)]
        key = (message.channel, message.id)
        if message.is_pending and event.kind is not ClientEventKind.DELETED:
            self._pending_messages.add(key)
        else:
            self._pending_messages.discard(key)
        if message.ephemeral_to is not None:
            return
        if event.kind is ClientEventKind.POSTED and not message.has_files:
            self._first_texts[key] = message.plain_text
        elif first := self._first_texts.pop(key, None):
            self._placeholders.add(first)
        if event.kind is ClientEventKind.UPDATED and message.plain_text in self._placeholders:  # a reply begins anew
            self._first_texts[key] = message.plain_text
        if event.kind is ClientEventKind.UPDATED and not message.is_pending:
            now = monotonic()
            self._longest_pause = max(self._longest_pause, now - self._updated_at.get(key, now))
            self._updated_at[key] = now

    @property
    def is_in_flight(self) -> bool:
        """Whether an answer is sure to be missing or incomplete."""
        first_texts = self._first_texts.values()
        return bool(self._open_questions or self._pending_messages) or any(
            not self._placeholders or text in self._placeholders for text in first_texts
        )

    async def wait_until_complete(self) -> bool:
        """Wait until the replies are complete.

        Returns:
            False if they are not, and patience has come to its end.
        """
        try:
            async with asyncio.timeout(self._quiet_time.limit_seconds):
                while await self._wait_for_change(
                    self._quiet_time.answer_seconds if self.is_in_flight else self._quiet_seconds
                ):
                    pass
        except TimeoutError:
            return False
        return not self.is_in_flight

    @property
    def _quiet_seconds(self) -> float:
        return min(max(self._quiet_time.quiet_seconds, 2 * self._longest_pause), self._quiet_time.max_quiet_seconds)

    async def _wait_for_change(self, seconds: float) -> bool:
        self._changed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True


def _is_reply_to(message: ClientMessage, question: ClientMessage) -> bool:
    """Whether the bot's `message` came after a question, in its conversation."""
    if message.channel != question.channel or message.sent_at < question.sent_at:
        return False
    return message.ephemeral_to is not None or message.thread in (question.thread, question.thread or question.id)
