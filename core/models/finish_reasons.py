"""Finish reasons of all vendors by their meaning, and the notes about answers that end early.

`docs/reference/model-servers.md` has the same table.
"""

import re
from collections.abc import Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.genai.types import FinishReason


class Ending(Enum):
    """Meaning of a finish reason.

    Attributes:
        COMPLETE: the answer is whole.
        CUT: a limit of the length ended the answer.
        REFUSED: safety rules ended the answer.
        REPEAT: the model or its server failed; the same request may succeed.
        CONTINUE: the vendor paused the answer; a request with the answer so far continues it.
        UNCLEAR: the answer may be whole or not.
    """

    COMPLETE = auto()
    CUT = auto()
    REFUSED = auto()
    REPEAT = auto()
    CONTINUE = auto()
    UNCLEAR = auto()


#: Finish reasons in lower case, with `_` for `-`: those of OpenAI and compatible servers, of Anthropic, and of Gemini.
FINISH_REASONS: Mapping[Ending, frozenset[str]] = {
    Ending.COMPLETE: frozenset(
        {"stop", "tool_calls", "tool_call", "function_call", "eos", "eos_token", "end", "eot", "endoftext"}
        | {"end_of_text", "end_of_turn", "stop_token", "complete", "completed", "done", "normal"}
        | {"end_turn", "stop_sequence", "tool_use"}
    ),
    Ending.CUT: frozenset(
        {"length", "model_length", "max_length", "max_output_tokens", "token_limit", "context_length_exceeded"}
        | {"max_tokens", "model_context_window_exceeded", "compaction"}
        | {"continuation"}
    ),
    Ending.REFUSED: frozenset(
        {"content_filter", "content_filtered", "sensitive", "guardrail_intervened", "error_toxic"}
        | {"refusal"}
        | {"safety", "recitation", "language", "blocklist", "prohibited_content", "spii", "model_armor", "escalation"}
        | {"image_safety", "image_prohibited_content", "image_recitation"}
    ),
    Ending.REPEAT: frozenset(
        {"error", "network_error", "insufficient_system_resource", "abort", "aborted", "cancelled", "timeout"}
        | {"malformed_model_output", "malformed_tool_use"}
        | {"malformed_function_call", "malformed_response", "unexpected_tool_call", "too_many_tool_calls"}
        | {"missing_thought_signature"}
    ),
    Ending.CONTINUE: frozenset({"pause_turn"}),
    Ending.UNCLEAR: frozenset(
        {"repetition", "time_limit", "unknown"} | {"finish_reason_unspecified", "other", "no_image", "image_other"}
    ),
}

_ENDINGS = {reason: ending for ending, reasons in FINISH_REASONS.items() for reason in reasons}

CUT_OFF_NOTE = "⚠️ The answer stops here: it reached the model's length limit."
BLOCKED_NOTE = "⚠️ The answer stops here: the model's safety filter blocked the rest."
BROKEN_OFF_NOTE = "⚠️ The answer stops here: the model broke it off."
UNCLEAR_NOTE = "⚠️ The answer stops here and may be incomplete."

_NOTES = {
    Ending.CUT: CUT_OFF_NOTE,
    Ending.REFUSED: BLOCKED_NOTE,
    Ending.REPEAT: BROKEN_OFF_NOTE,
    Ending.CONTINUE: UNCLEAR_NOTE,
    Ending.UNCLEAR: UNCLEAR_NOTE,
}

#: Notes in an answer in place of a file that a model or a tool returned.
FILE_TOO_LARGE_NOTE = "⚠️ A file is left out here: it has more than 20 MB."
EMPTY_FILE_NOTE = "⚠️ A file is left out here: it came without content."

#: CommonMark: the marker of a list item.
_MARKER = r"(?:[-*+]|\d{1,9}[.)])[ \t]+"
_ITEM = re.compile(rf"^[ \t]*{_MARKER}", re.MULTILINE)

#: Start of a line with nothing but markers of list items, at the end of a text.
_LINE_START = re.compile(rf"^[ \t]*(?:{_MARKER})*\Z", re.MULTILINE)

#: Start of a code fence, or its end if it has neither a list marker nor an info string.
_FENCE = re.compile(rf"^([ \t]*(?:{_MARKER})*)(`{{3,}}+(?!.*`)|~{{3,}})(.*)$", re.MULTILINE)

#: CommonMark: a deeper fence outside of a list is indented code.
_MAX_INDENT = 3


def get_ending(reason: str | None) -> Ending:
    """Return the meaning of a finish reason, in any case; without one, the answer is complete.

    An unknown reason is unclear: most new ones name a failure, but the text may be whole. So the text is shown at once
    and never generated again, with a note that is true in both cases.
    """
    return _ENDINGS.get(reason.lower().replace("-", "_"), Ending.UNCLEAR) if reason else Ending.COMPLETE


def to_finish_reason(reason: str) -> "FinishReason":
    """Return the finish reason of another vendor as Gemini's, which ADK stores."""
    from google.genai.types import FinishReason  # noqa: PLC0415 - the setup commands need no SDK

    match get_ending(reason):
        case Ending.COMPLETE:
            return FinishReason.STOP
        case Ending.CUT:
            return FinishReason.MAX_TOKENS
        case Ending.REFUSED:
            return FinishReason.SAFETY
    return FinishReason.OTHER


def add_ending_note(text: str, finish_reason: "FinishReason | None") -> str:
    """Return an answer with a note at its end unless it is complete; an open code fence or comment is closed first."""
    note = _NOTES.get(get_ending(finish_reason))
    return f"{close_blocks(text)}\n\n{note}" if note else text


def close_blocks(text: str) -> str:
    """Return a Markdown text, with its last code fence or HTML comment closed if it is open, so that more is shown."""
    if (closed := close_code_fence(text)) != text:
        return closed
    start = text.rfind("<!--")
    is_open = start > text.rfind("-->") and _LINE_START.search(text, 0, start)
    return f"{text}\n-->" if is_open and close_code_fence(text[:start]) == text[:start] else text


def close_code_fence(text: str) -> str:
    fence = indent = ""
    for match in _FENCE.finditer(text):
        before, marks, info = match.groups()
        if not fence:
            if len(before) <= _MAX_INDENT or _ITEM.search(text, 0, match.start(2)):
                fence = marks
                indent = " " * len(before)
        elif marks.startswith(fence) and not (before.strip() or info.strip()):
            fence = ""
    return f"{text}\n{indent}{fence}" if fence else text
