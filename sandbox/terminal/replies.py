"""When replies are complete, as far as one can tell from the outside."""

import asyncio
from dataclasses import dataclass
from time import monotonic

from sandbox.client.platform import ClientEvent, HappeningKind, ShownMessage


@dataclass(frozen=True, slots=True)
class QuietTime:
    """How long one waits, in seconds.

    Attributes:
        quiet: how long a reply that has grown must have stood still.
        longest_quiet: the same for a slow one: twice its longest pause so far, but no more than this.
        patience: how long one waits for an answer to begin, or for a placeholder to be replaced.
        limit: how long one waits at all, though something still happens.
    """

    quiet: float = 2.0
    longest_quiet: float = 20.0
    patience: float = 60.0
    limit: float = 600.0


class ReplyTracker:
    """What was asked, and what the bot has said to it so far.

    A reply is in flight as long as a question has seen nothing of the bot in its conversation, or the bot's
    message there still shows its placeholder. A placeholder is known by the platform's word for it, or by its
    own words: they have been replaced before. As long as none has ever been, each first text may be one, but not
    one that comes with a file. After that a reply is complete when it has stood still.
    """

    def __init__(self, pace: QuietTime) -> None:
        self._pace = pace
        self._unanswered: list[ShownMessage] = []
        self._said: list[ShownMessage] = []
        self._first_texts: dict[tuple[str, str], str] = {}
        self._placeholders: set[str] = set()
        self._pending: set[tuple[str, str]] = set()
        self._updated_at: dict[tuple[str, str], float] = {}
        self._longest_pause = 0.0
        self._changed = asyncio.Event()

    def ask(self, message: ShownMessage, *, addressed: bool) -> None:
        """Something was said; `addressed`: so that the bot will answer."""
        if addressed and not any(_answers(said, message) for said in self._said):
            self._unanswered.append(message)
        self._changed.set()

    def note(self, happening: ClientEvent) -> None:
        self._changed.set()
        message = happening.message
        if not message.by_bot or happening.kind is HappeningKind.REACTED:
            return
        self._said.append(message)
        self._unanswered = [asked for asked in self._unanswered if not _answers(message, asked)]
        key = (message.channel, message.id)
        if message.pending and happening.kind is not HappeningKind.DELETED:
            self._pending.add(key)
        else:
            self._pending.discard(key)
        if message.only_for is not None:
            return
        if happening.kind is HappeningKind.POSTED and not message.has_files:
            self._first_texts[key] = message.plain
        elif first := self._first_texts.pop(key, None):
            self._placeholders.add(first)
        if happening.kind is HappeningKind.UPDATED and message.plain in self._placeholders:  # a reply begins anew
            self._first_texts[key] = message.plain
        if happening.kind is HappeningKind.UPDATED and not message.pending:
            now = monotonic()
            self._longest_pause = max(self._longest_pause, now - self._updated_at.get(key, now))
            self._updated_at[key] = now

    @property
    def in_flight(self) -> bool:
        """Whether an answer is sure to be missing or incomplete."""
        first_texts = self._first_texts.values()
        return bool(self._unanswered or self._pending) or any(
            not self._placeholders or text in self._placeholders for text in first_texts
        )

    async def settled(self) -> bool:
        """Wait until the replies are complete.

        Returns:
            False if they are not, and patience has come to its end.
        """
        try:
            async with asyncio.timeout(self._pace.limit):
                while await self._changes_within(self._pace.patience if self.in_flight else self._quiet):
                    pass
        except TimeoutError:
            return False
        return not self.in_flight

    @property
    def _quiet(self) -> float:
        return min(max(self._pace.quiet, 2 * self._longest_pause), self._pace.longest_quiet)

    async def _changes_within(self, seconds: float) -> bool:
        self._changed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True


def _answers(message: ShownMessage, asked: ShownMessage) -> bool:
    """Whether the bot's `message` came after a question, in its conversation."""
    if message.channel != asked.channel or message.sent_at < asked.sent_at:
        return False
    return message.only_for is not None or message.thread in (asked.thread, asked.thread or asked.id)
