"""Finish reasons of answers that break off, and the notes about them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.genai.types import FinishReason

#: Names of `FinishReason` for answers that safety rules ended.
BLOCKED_REASONS = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
    }
)

CUT_OFF_NOTE = "⚠️ The answer stops here: it reached the model's length limit."
BLOCKED_NOTE = "⚠️ The answer stops here: the model's safety filter blocked the rest."

#: Notes in an answer in place of a file that a model or a tool returned.
FILE_TOO_LARGE_NOTE = "⚠️ A file is left out here: it has more than 20 MB."
EMPTY_FILE_NOTE = "⚠️ A file is left out here: it came without content."

#: CommonMark: the marker of a list item.
_MARKER = r"(?:[-*+]|\d{1,9}[.)])[ \t]+"
_ITEM = re.compile(rf"^[ \t]*{_MARKER}", re.MULTILINE)

#: Start of a code fence, or its end if it has neither a list marker nor an info string.
_FENCE = re.compile(rf"^([ \t]*(?:{_MARKER})*)(`{{3,}}+(?!.*`)|~{{3,}})(.*)$", re.MULTILINE)

#: CommonMark: a deeper fence outside of a list is indented code.
_MAX_INDENT = 3


def add_ending_note(text: str, finish_reason: FinishReason | None) -> str:
    """Return the text of an answer, with a note at its end if it is cut off there.

    An open code fence is closed before the note.

    Args:
        finish_reason: the finish reason of the answer; only a length limit or a safety filter leads to a note.
    """
    if finish_reason == "MAX_TOKENS":
        return f"{close_code_fence(text)}\n\n{CUT_OFF_NOTE}"
    if finish_reason in BLOCKED_REASONS:
        return f"{close_code_fence(text)}\n\n{BLOCKED_NOTE}"
    return text


def close_code_fence(text: str) -> str:
    """Return a Markdown text, with its last code fence closed if it is open."""
    fence = indent = ""
    for match in _FENCE.finditer(text):
        before, marks, info = match.groups()
        if not fence:
            if len(before) <= _MAX_INDENT or _ITEM.search(text, 0, match.start(2)):
                fence, indent = marks, " " * len(before)
        elif marks.startswith(fence) and not (before.strip() or info.strip()):
            fence = ""
    return f"{text}\n{indent}{fence}" if fence else text
