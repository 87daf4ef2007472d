"""Chunk planner: splits a growing text into messages that a platform accepts."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace

from channels.base import FINAL_PRIORITIES, Chunk, Plan, Priority
from channels.i18n.messages import PLACEHOLDER
from channels.markdown.blocks import BlockContext
from channels.markdown.chunk_reader import ChunkReader
from channels.markdown.dialect import MessageLimits
from channels.markdown.spoilers import SPOILER

#: Number of checks for a full chunk in the time in which the text of one chunk arrives.
_CHECKS_PER_CHUNK = 16

#: Placeholder for an unpaired spoiler mark, of the same length: two noncharacters, which occur in no text.
_UNPAIRED = "\ufdd0\ufdd1"


class ChunkPlanner:
    """Splits the growing Markdown text of one reply into chunks (platform messages).

    The chunks cover the text without gaps or overlaps. A chunk before the last one never changes while text is added.
    Code, tables and emphasis are closed at the end of a chunk and reopened in the next. The splits depend only on the
    text, not on the pieces in which it comes.
    """

    def __init__(self, limits: MessageLimits) -> None:
        self._limits = limits
        self._reset()

    def _reset(self) -> None:
        self._deltas: list[str] = []  # all of the text
        self._read_count = 0  # how many of them are in the chunks
        self._unread_length = 0  # how many characters are not
        self._full_chunks: list[Chunk] = []
        self._page = ChunkReader(self._limits, BlockContext())

    @property
    def text(self) -> str:
        """The whole text so far, in the agent's Markdown."""
        return "".join(self._deltas)

    @property
    def has_text(self) -> bool:
        return bool(self._deltas)

    @property
    def is_due(self) -> bool:
        """True if so much text is unparsed that a chunk may have become full."""
        return self._unread_length >= self._limits.chunk_size // _CHECKS_PER_CHUNK

    def feed(self, delta: str) -> None:
        for start in range(0, len(delta), self._limits.chunk_size):  # so that `catch_up` can yield within a long delta
            self._deltas.append(delta[start : start + self._limits.chunk_size])
        self._unread_length += len(delta)

    def replace(self, text: str) -> None:
        """Replace the whole text; a text that only continues the old one is appended."""
        before = self.text
        if not text.startswith(before):
            before = ""
            self._reset()
        self.feed(text[len(before) :])

    def plan(self, priority: Priority, *, empty_text: str = PLACEHOLDER) -> Plan:
        """Return a plan with the chunks of the text so far; a blank text has none.

        A priority of `FINAL_PRIORITIES` means that the text is complete. Of an incomplete text, open markup at the end
        is closed, and markup that cannot be shown in part is left out. A complete text that renders to nothing visible
        is shown as `empty_text`.
        """
        self._read_all()
        chunks = [*self._full_chunks]
        page = self._page
        is_final = priority in FINAL_PRIORITIES
        if is_final:
            page = _cut_full_chunks(
                ChunkReader(self._limits, page.context, page.source, page.hidden_size),
                chunks,
                self._limits,
                is_final=True,
            )
        open_marks = page.context.marks
        if page.source.strip():
            start = chunks[-1].end if chunks else 0
            end = start + page.hidden_size + len(page.source)
            writer = page.render(is_final=is_final)
            open_marks = writer.marks
            if is_final and chunks and not writer.text:
                chunks[-1] = replace(chunks[-1], end=end)
            elif is_final:
                chunks.append(Chunk(start, end, writer.text or empty_text))
            else:
                chunks.append(Chunk(start, end, writer.text or PLACEHOLDER, writer.settled_size))
        if is_final and SPOILER in open_marks and (text := _replace_unpaired(self.text, self._limits)):
            planner = ChunkPlanner(self._limits)
            planner.feed(text)
            chunks = [_restore_unpaired(chunk) for chunk in planner.plan(priority, empty_text=empty_text).chunks]
        return Plan(chunks, priority, is_growing=not is_final)

    async def catch_up(self) -> None:
        """Parse new text, all but at most one chunk's size, and yield to the event loop after about each chunk."""
        while self._unread_length > self._limits.chunk_size:
            self._read_part()
            await asyncio.sleep(0)

    def _read_all(self) -> None:
        while self._unread_length:
            self._read_part()

    def _read_part(self) -> None:
        until = self._read_count
        size = 0
        while until < len(self._deltas) and size < self._limits.chunk_size:
            size += len(self._deltas[until])
            until += 1
        self._page.feed("".join(self._deltas[self._read_count : until]))
        self._page = _cut_full_chunks(self._page, self._full_chunks, self._limits)
        self._read_count = until
        self._unread_length = self._unread_length - size


def _cut_full_chunks(
    page: ChunkReader, chunks: list[Chunk], limits: MessageLimits, *, is_final: bool = False
) -> ChunkReader:
    """Append each full chunk of a reader's text to `chunks`; return a reader of the text after them.

    The start of a chunk includes invisible text before it.
    """
    while cut := page.find_break(is_final=is_final):
        start = chunks[-1].end if chunks else 0
        size = page.hidden_size + cut.position
        if cut.text:
            chunks.append(Chunk(start, start + size, cut.text))
        page = ChunkReader(limits, cut.context, page.source[cut.position :], 0 if cut.text else size)
    return page


def _replace_unpaired(text: str, limits: MessageLimits) -> str:
    """Return a complete text with `_UNPAIRED` for the mark that opens its last spoiler; empty without such a mark."""
    reader = ChunkReader(replace(limits, chunk_size=sys.maxsize), BlockContext(), text)
    reader.find_break(is_final=True)
    at = reader.render(is_final=True).spoiler_start
    return "" if at is None else text[:at] + _UNPAIRED + text[at + len(_UNPAIRED) :]


def _restore_unpaired(chunk: Chunk) -> Chunk:
    """Return a chunk with its spoiler mark in place of `_UNPAIRED`.

    It is escaped before other marks: Discord would pair it with one in code.
    """
    before, placeholder, after = chunk.text.partition(_UNPAIRED)
    mark = SPOILER if SPOILER not in after else "\\|\\|"
    return replace(chunk, text=f"{before}{mark}{after}") if placeholder else chunk


def append_line(chunks: Sequence[Chunk], line: str) -> list[Chunk]:
    *front, last = chunks
    return [*front, replace(last, text=f"{last.text}\n\n{line}")]
