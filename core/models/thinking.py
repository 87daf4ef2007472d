"""Thinking that a model marks in its text, such as `<think>...</think>`.

Servers without a parser for a model's thinking send it as text. A mark opens thinking only at the start of a model's
step; anywhere else it is text, so that an answer about marks stays whole. If the server's prompt has opened the
thinking, the text has only the closing mark, which counts once and outside of code.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from enum import Enum

import regex  # type: ignore[import-untyped]  # it comes without types
from google.genai.types import FinishReason

from core.models.finish_reasons import close_code_fence
from core.models.provider import Done, Media, ProviderEvent, Text, Thought, ToolCall

_TAGS = "think|thinking|thought|reasoning|seed:think"

#: Start of thinking, with the white space before it. Mistral writes `[THINK]`, Kimi `◁think▷`.
#: gpt-oss: https://cookbook.openai.com/articles/openai-harmony
_OPENING = regex.compile(
    rf"""\s*(?:
        <(?:{_TAGS})> | \[THINK\] | ◁think▷
      | (?:<\|start\|>assistant[^<]{{0,100}})? <\|channel\|> (?P<channel>[a-z]+) (?P<recipient>[^<]{{0,100}})
        (?:<\|constrain\|>[^<]{{0,100}})? <\|message\|>
    )""",
    regex.VERBOSE | regex.IGNORECASE,
)

_CLOSING = regex.compile(
    rf"""
        </(?:{_TAGS})> | \[/THINK\] | ◁/think▷
      | (?:<\|end\|>)? (?:<\|start\|>assistant)? <\|channel\|>final[^<]{{0,100}}<\|message\|>
    """,
    regex.VERBOSE | regex.IGNORECASE,
)

_CHANNEL_END = regex.compile(r"<\|(?:end|return|call)\|>|(?=<\|(?:start|channel)\|>)")

_BLANK_LINE = regex.compile(r"\n[ \t]*\n")

_TICKS = regex.compile(r"\\.|(?P<ticks>`+)", regex.DOTALL)

#: After so many closing marks in code, the text is about marks. It limits the time that one answer takes.
_MAX_MARKS_IN_CODE = 20

#: The most characters after a closing mark that may still end a code span around it.
_MAX_SPAN_CHARACTERS = 1_000


@dataclass(frozen=True, slots=True)
class Reclassified:
    """All text and thoughts of the answer so far are of one kind: `Text` or `Thought`."""

    kind: type[Text] | type[Thought]


class _State(Enum):
    """Position in a step: before its first text, in marked thinking, in text with or without a closing mark to come."""

    START = "start"
    MARKED = "marked"
    WATCHED = "watched"
    PLAIN = "plain"


class ThinkingReader:
    """Reader of the events of one model step, which turns marked thinking into `Thought`s.

    Args:
        starts_open: whether the step begins in thinking that only a closing mark ends. Without that mark, all is text
            at the end of the step, unless the length limit ended it.
    """

    def __init__(self, *, starts_open: bool = False) -> None:
        self._state = _State.START
        self._kind: type[Text] | type[Thought] = Thought if starts_open else Text
        self._is_open = starts_open
        self._end_mark = _CLOSING
        self._has_thinking = False
        self._buffer = ""  # the start of it may be part of a mark
        self._watched: list[str] = []
        self._marks_in_code = 0

    def read(self, event: ProviderEvent) -> Iterator[ProviderEvent | Reclassified]:
        """Yield the events in place of one of the provider; text that may be part of a mark comes with a later one."""
        if isinstance(event, Text) and event.signature is None:
            self._buffer += event.text
            yield from self._read_buffer(is_final=False)
            return
        if isinstance(event, Thought) and self._state is _State.START and not self._has_thinking:
            self._kind = Text  # the server separates thoughts from text
            self._is_open = False
        if isinstance(event, Text | Media | ToolCall | Done):
            yield from self._read_buffer(is_final=True)
        if isinstance(event, Done) and self._is_open and event.finish_reason is not FinishReason.MAX_TOKENS:
            yield Reclassified(Text)
        yield event

    def _read_buffer(self, *, is_final: bool) -> Iterator[Text | Thought | Reclassified]:
        is_waiting = False
        while self._buffer and not is_waiting:
            match self._state:
                case _State.START:
                    is_waiting = self._find_opening(is_final=is_final)
                case _State.MARKED:
                    found = self._end_mark.search(self._buffer, partial=not is_final)
                    yield from self._take(found.start() if found else len(self._buffer))
                    is_waiting = bool(found and found.partial)
                    if found and not found.partial:
                        self._buffer = self._buffer[found.end() - found.start() :]
                        self._state = _State.START
                case _State.WATCHED:
                    is_waiting = yield from self._find_closing(is_final=is_final)
                case _State.PLAIN:
                    yield from self._take(len(self._buffer))

    def _find_opening(self, *, is_final: bool) -> bool:
        """Read an opening mark at the start of the buffer; return whether more text decides about it."""
        found = _OPENING.match(self._buffer, partial=not is_final)
        if found is None:
            self._state = _State.PLAIN if self._has_thinking else _State.WATCHED
            if self._has_thinking:
                self._kind = Text
                self._buffer = self._buffer.lstrip()
            return False
        if found.partial:
            return True
        channel = (found["channel"] or "").lower()
        is_text = channel == "final" or (channel == "commentary" and not found["recipient"].strip())
        self._kind = Text if is_text else Thought
        self._end_mark = _CHANNEL_END if channel else _CLOSING
        self._buffer = self._buffer[found.end() :]
        self._has_thinking = True
        self._is_open = False
        self._state = _State.MARKED
        return False

    def _find_closing(self, *, is_final: bool) -> Generator[Text | Thought | Reclassified, None, bool]:
        """Yield the text up to a closing mark; return whether more text decides about the mark."""
        found = _CLOSING.search(self._buffer, partial=not is_final)
        if found is None or found.partial:
            yield from self._take(found.start() if found else len(self._buffer))
            return found is not None
        before = "".join(self._watched) + self._buffer[: found.start()]
        is_in_code = _is_in_code(before, self._buffer[found.end() :], is_final=is_final)
        if is_in_code is None:
            yield from self._take(found.start())
            return True
        if is_in_code:
            yield from self._take(found.end())
            self._marks_in_code += 1
            if self._marks_in_code == _MAX_MARKS_IN_CODE:
                self._state = _State.PLAIN
            return False
        if self._kind is Text:
            yield Reclassified(Thought)
        self._kind = Thought
        yield from self._take(found.start())
        self._buffer = self._buffer[found.end() - found.start() :]
        self._has_thinking = True
        self._is_open = False
        self._state = _State.START
        return False

    def _take(self, size: int) -> Iterator[Text | Thought]:
        taken = self._buffer[:size]
        self._buffer = self._buffer[size:]
        if self._state is _State.WATCHED:
            self._watched.append(taken)
        if taken:
            yield self._kind(taken)


def _is_in_code(before: str, after: str, *, is_final: bool) -> bool | None:
    """Return whether a mark is in a code block or a code span; None if more text decides."""
    if close_code_fence(before) != before:
        return True
    paragraph = _BLANK_LINE.split(before)[-1]
    rest, *others = _BLANK_LINE.split(after, 1)
    is_undecided = False
    at = 0
    text = f"{paragraph} {rest}"
    while found := _TICKS.search(paragraph, at):
        at = found.end()
        ticks = found["ticks"]
        if not ticks:
            continue
        closing = regex.search(rf"(?<!`){ticks}(?!`)", text, pos=at)
        if closing is None:
            is_undecided = not (is_final or others or len(rest) > _MAX_SPAN_CHARACTERS)
        elif closing.start() > len(paragraph):
            return True
        else:
            at = closing.end()
    return None if is_undecided else False
