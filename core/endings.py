"""How an answer ends that the model did not bring to its end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.genai.types import FinishReason

#: The model's safety rules ended the answer: names of `FinishReason`.
BLOCKED = frozenset(
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

CUT_OFF = "⚠️ My answer breaks off here: it has reached the model's length limit."
WITHHELD = "⚠️ My answer breaks off here: the model's safety rules withheld the rest."

#: CommonMark: what opens a code fence, and without the info string closes one.
_FENCE = re.compile(r"^ {0,3}(`{3,}(?!.*`)|~{3,})(.*)$", re.MULTILINE)


def ended(text: str, finish: FinishReason | None) -> str:
    """`text` as people read it: with a sentence behind it, if the model broke off there for a known reason."""
    if finish == "MAX_TOKENS":
        return f"{closed(text)}\n\n{CUT_OFF}"
    if finish in BLOCKED:
        return f"{closed(text)}\n\n{WITHHELD}"
    return text


def closed(text: str) -> str:
    """`text` with the code fence closed that may still be open at its end."""
    fence = ""
    for marks, info in _FENCE.findall(text):
        if not fence:
            fence = marks
        elif marks.startswith(fence) and not info.strip():
            fence = ""
    return f"{text}\n{fence}" if fence else text
