"""Tool results for the model: as JSON, without secrets, cut to a readable size; bytes become files."""

from base64 import b64encode
from collections.abc import Mapping
from math import isfinite
from mimetypes import guess_extension
from typing import Any

from google.adk.tools.tool_context import ToolContext
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from core.models import media
from core.models.messages import clean_text
from core.secret_redaction import redact_secrets

#: The most of a result's texts that the model is told, in characters, all together: about what a whole history may
#: hold, and less than what would stop the event loop.
MAX_RESULT_CHARACTERS = 100_000

#: The most values in a result, and how deep one may stand in another.
_MAX_VALUES = 10_000
_MAX_DEPTH = 32

#: Of more bytes than these the model is told how many they are.
_MAX_INLINE_BYTES = 1_000

_MAX_INTEGER_BITS = 4096  # Python: no longer numbers are turned into text

_CUT_NOTE = "… (cut: there is more)"


def to_model_result(result: Any) -> Any:
    """A result as JSON has it. Media and other things that ADK has a type for stay as they are."""
    return _ResultConverter().convert(result)


class _ResultConverter:
    """One result on its way: what room it has still."""

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
                return self.convert(_to_json(result) if depth <= _MAX_DEPTH else _CUT_NOTE, depth + 1)

    def _convert_mapping(self, result: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        said = dict[str, Any]()
        for key, value in result.items():
            if self._is_full:
                said["…"] = _CUT_NOTE
                break
            said[str(self.convert(key))] = self.convert(value, depth + 1)
        return said

    def _convert_items(self, result: Any, depth: int) -> list[Any]:
        said = list[Any]()
        for item in result:
            if self._is_full:
                said.append(_CUT_NOTE)
                break
            said.append(self.convert(item, depth + 1))
        return said

    def _cut_text(self, text: str) -> str:
        room = max(self._characters, 0)
        self._characters -= len(text)
        said = redact_secrets(clean_text(text[: room + 1]))
        return said if len(text) <= room else f"{said[:room]}… (cut: it has {len(text)} characters)"

    @property
    def _is_full(self) -> bool:
        return self._characters <= 0 or self._values <= 0


def _to_json(value: Any) -> Any:
    """What has no form of its own in JSON, in one that has."""
    if isinstance(value, bytes | bytearray | memoryview):
        return b64encode(value).decode() if len(value) <= _MAX_INLINE_BYTES else f"({len(value)} bytes)"
    try:
        return to_jsonable_python(value, fallback=str, inf_nan_mode="null", bytes_mode="base64")
    except (ValueError, RecursionError):  # it holds itself
        return f"({type(value).__name__})"


async def save_files(result: Any, tool: str, context: ToolContext) -> Any:
    """A tool's result with its bytes saved as artifacts, and their names in the places."""
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
    kind = (
        media.detect_mime_type(data, media.guess_mime_type(name, None) if "." in name else None)
        or "application/octet-stream"
    )
    named = name if "." in name else f"{name}{guess_extension(kind) or '.bin'}"
    await context.save_artifact(named, media.make_part(kind, data))
    return {"file": named, "kind": kind, "size": len(data), "note": "The user gets this file with your answer."}
