"""Code that was run for a model, and what came of it, as a part of a text."""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.genai import types

_TICKS = re.compile("`{3,}")


def written(part: "types.Part") -> str:
    """What a part says: its text, the code that was run for its model, or what came of that."""
    if part.executable_code is not None:
        return fenced(part.executable_code.code or "", "python")
    if part.code_execution_result is not None:
        return fenced(part.code_execution_result.output or "")
    return part.text or ""


def fenced(code: str, language: str = "") -> str:
    """Code, or what looks like it, as a part of a text."""
    fence = "`" * (max(map(len, _TICKS.findall(code)), default=2) + 1)
    return f"\n{fence}{language}\n{code.rstrip()}\n{fence}\n"
