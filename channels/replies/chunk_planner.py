"""Plans a reply: cuts its text, as it grows, into the messages that a platform accepts."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from channels.base import FINAL_PRIORITIES, Chunk, Plan, Priority
from channels.i18n.messages import PLACEHOLDER
from channels.markdown.blocks import Place
from channels.markdown.dialect import Limits
from channels.markdown.page import Page

#: How often, while a message fills, it is worth a look whether it is full.
_CHECKS_PER_CHUNK = 16


class Planner:
    """The chunks of one reply.

    The spans of the chunks partition the text. A chunk that has another one behind it stays as it is while text is
    fed, or when it is replaced by a longer one that begins with it. What a cut goes through (code, a table, emphasis)
    is closed before it and opened again behind it. Where the cuts fall is a matter of the text alone, and not of the
    pieces in which it came.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._reset()

    def _reset(self) -> None:
        self._deltas: list[str] = []  # all of the text
        self._read_count = 0  # how many of them are in the chunks
        self._unread_length = 0  # how many characters are not
        self._full_chunks: list[Chunk] = []
        self._page = Page(self._limits, Place())

    @property
    def text(self) -> str:
        return "".join(self._deltas)

    @property
    def is_due(self) -> bool:
        """Whether so much was fed since it was last planned that it is worth a look whether a message is full."""
        return self._unread_length >= self._limits.chunk_size // _CHECKS_PER_CHUNK

    @property
    def full_count(self) -> int:
        """How many messages are full, so that another one has to follow."""
        self._read_all()
        return len(self._full_chunks)

    def feed(self, delta: str) -> None:
        for start in range(0, len(delta), self._limits.chunk_size):  # in bounded pieces, whatever comes at once
            self._deltas.append(delta[start : start + self._limits.chunk_size])
        self._unread_length += len(delta)

    def replace(self, text: str) -> None:
        before = self.text
        if not text.startswith(before):
            before = ""
            self._reset()
        self.feed(text[len(before) :])

    def plan(self, priority: Priority, *, empty_text: str = PLACEHOLDER) -> Plan:
        """The messages that should stand now; none as long as there is nothing to read.

        As the last word, the text is shown as it is. Until then its end is made presentable: what is open in it is
        closed for the moment, and what cannot be shown in part waits.

        Args:
            nothing: what stands as the last word where nothing of the text is to be seen.
        """
        self._read_all()
        chunks, page = [*self._full_chunks], self._page
        is_final = priority in FINAL_PRIORITIES
        if is_final:
            page = _cut_full_chunks(page.fork(), chunks, self._limits, is_final=True)
        if page.source.strip():
            start = chunks[-1].end if chunks else 0
            end = start + page.unseen + len(page.source)
            written = page.written(is_final=is_final)
            if is_final and chunks and not written.text:
                chunks[-1] = replace(chunks[-1], end=end)
            elif is_final:
                chunks.append(Chunk(start, end, written.text or empty_text))
            else:
                chunks.append(Chunk(start, end, written.text or PLACEHOLDER, written.settled))
        return Plan(chunks, priority, is_growing=not is_final)

    async def catch_up(self) -> None:
        """Read what is new, and let others go on as long as that is much."""
        while self._unread_length > self._limits.chunk_size:
            self._read_part()
            await asyncio.sleep(0)

    def _read_all(self) -> None:
        while self._unread_length:
            self._read_part()

    def _read_part(self) -> None:
        """Cut the messages off that what is new has filled, or a part of it that is about as long as a message."""
        until, size = self._read_count, 0
        while until < len(self._deltas) and size < self._limits.chunk_size:
            size += len(self._deltas[until])
            until += 1
        self._page.feed("".join(self._deltas[self._read_count : until]))
        self._page = _cut_full_chunks(self._page, self._full_chunks, self._limits)
        self._read_count, self._unread_length = until, self._unread_length - size


def _cut_full_chunks(page: Page, chunks: list[Chunk], limits: Limits, *, is_final: bool = False) -> Page:
    """Add the messages that are full to `chunks`, each with what is before it that cannot be seen; the page that is
    left.
    """
    while cut := page.cut(is_final=is_final):
        start, size = chunks[-1].end if chunks else 0, page.unseen + cut.at
        if cut.text:
            chunks.append(Chunk(start, start + size, cut.text))
        page = Page(limits, cut.place, page.source[cut.at :], 0 if cut.text else size)
    return page


def append_line(chunks: Sequence[Chunk], line: str) -> list[Chunk]:
    """The chunks with `line` below the last of them."""
    *front, last = chunks
    return [*front, replace(last, text=f"{last.text}\n\n{line}")]
