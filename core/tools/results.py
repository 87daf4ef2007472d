"""Tool results for the model: JSON as the tool returned it, cut to size; bytes as files.

Only known secrets of this process and keys in a vendor's format are redacted: a model needs cursors and links whole.
"""

import asyncio
from base64 import b64encode
from collections.abc import Mapping
from math import isfinite
from typing import Any

from google.adk.tools.tool_context import ToolContext
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from core.messages.identity import to_one_line
from core.models import media
from core.models.messages import clean_text
from core.observability.secret_redaction import redact_vendor_keys

#: Limit of all texts of a result: about the size of a whole history, and too small to block the event loop.
MAX_RESULT_CHARACTERS = 100_000

#: Limits of a result: values in total, and depth of nesting.
_MAX_VALUES = 10_000
_MAX_DEPTH = 32

#: Longer bytes in a result are replaced by their length.
_MAX_INLINE_BYTES = 1_000

_MAX_INTEGER_BITS = 4096  # Python converts no longer integers to text

_CUT_NOTE = "… (cut: there is more)"


def to_model_result(result: Any) -> Any:
    """Return a tool's result as JSON values without keys (see `redact_vendor_keys`), cut to a limited size.

    The limits are 100,000 characters, 10,000 values and 32 levels of nesting. ADK's and other pydantic objects, such as
    files, stay unchanged. Bytes become base64, and over 1,000 of them their number. A note replaces each part that is
    cut.
    """
    return _ResultConverter().convert(result)


class _ResultConverter:
    """Converter of one tool result to JSON, with limits of its characters and values."""

    def __init__(self) -> None:
        self._characters = MAX_RESULT_CHARACTERS
        self._values = _MAX_VALUES

    def convert(self, result: Any, depth: int = 0) -> Any:
        self._values -= 1
        match result:
            case int() if result.bit_length() > _MAX_INTEGER_BITS:
                return f"(a number of {result.bit_length()} bits)"
            case None | bool() | int() | BaseModel():
                return result
            case float():
                return result if isfinite(result) else None
            case str():
                return self._cut_text(result)
            case Mapping() | list() | tuple() | set() | frozenset() if depth <= _MAX_DEPTH:
                return (
                    self._convert_mapping(result, depth)
                    if isinstance(result, Mapping)
                    else self._convert_items(result, depth)
                )
            case _:
                return self.convert(convert_object(result) if depth <= _MAX_DEPTH else _CUT_NOTE, depth + 1)

    def _convert_mapping(self, result: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        converted = dict[str, Any]()
        for key, value in result.items():
            if self._is_full:
                converted["…"] = _CUT_NOTE
                break
            converted[str(self.convert(key))] = self.convert(value, depth + 1)
        return converted

    def _convert_items(self, result: Any, depth: int) -> list[Any]:
        converted = list[Any]()
        for item in result:
            if self._is_full:
                converted.append(_CUT_NOTE)
                break
            converted.append(self.convert(item, depth + 1))
        return converted

    def _cut_text(self, text: str) -> str:
        limit = max(self._characters, 0)
        self._characters -= len(text)
        redacted = redact_vendor_keys(clean_text(text[: limit + 1]))
        return redacted if len(text) <= limit else f"{redacted[:limit]}… (cut: it has {len(text)} characters)"

    @property
    def _is_full(self) -> bool:
        return self._characters <= 0 or self._values <= 0


def convert_object(value: Any) -> Any:
    """Return an object of any type as JSON; long bytes and a value that contains itself are only described."""
    if isinstance(value, bytes | bytearray | memoryview):
        return b64encode(value).decode() if len(value) <= _MAX_INLINE_BYTES else f"({len(value)} bytes)"
    try:
        return to_jsonable_python(value, fallback=str, inf_nan_mode="null", bytes_mode="base64")
    except (ValueError, RecursionError):  # the value contains itself
        return f"({type(value).__name__})"


async def save_files(result: Any, tool: str, context: ToolContext) -> Any:
    """Save the bytes in a tool's result as artifacts of the session.

    A dict with `file`, `kind`, `size` and `note` takes the place of bytes that are the whole result, or an item of a
    mapping or list. The names of the files are made from the name of the tool; a key with a suffix, such as `a.csv`, is
    the name of its file. A mapping or list without bytes among its own items is not searched further.
    """
    match result:
        case bytes() | bytearray():
            return await _save_file(bytes(result), tool, context)
        case Mapping() if any(isinstance(value, bytes | bytearray) for value in result.values()):
            return {key: await save_files(value, _get_file_name(key, tool), context) for key, value in result.items()}
        case list() | tuple() if any(isinstance(value, bytes | bytearray) for value in result):
            return [await save_files(value, f"{tool}_{number}", context) for number, value in enumerate(result, 1)]
        case _:
            return result


def _get_file_name(key: object, tool: str) -> str:
    return str(key) if isinstance(key, str) and "." in key else f"{tool}_{key}"


async def _save_file(data: bytes, name: str, context: ToolContext) -> dict[str, Any]:
    declared = (media.guess_mime_type(name, None) if "." in name else None) or media.UNKNOWN_TYPE
    kind = await asyncio.to_thread(media.identify_file, data, declared)
    clean = to_one_line(name)
    named = media.fit_file_name(clean, kind) if "." in clean else f"{clean}{media.guess_suffix(kind)}"
    await context.save_artifact(named, media.make_part(kind, data))
    return {"file": named, "kind": kind, "size": len(data), "note": "The user gets this file with your answer."}
