"""Bytes that a tool returns: files, of which the model is told, and which go to the user."""

from collections.abc import Mapping
from mimetypes import guess_extension
from typing import Any

from google.adk.tools.tool_context import ToolContext

from core.models import media


async def kept(result: Any, tool: str, context: ToolContext) -> Any:
    """A tool's result with its bytes saved as artifacts, and their names in the places."""
    match result:
        case bytes() | bytearray():
            return await _saved(bytes(result), tool, context)
        case Mapping() if any(isinstance(value, bytes | bytearray) for value in result.values()):
            return {key: await kept(value, _name(key, tool), context) for key, value in result.items()}
        case list() | tuple() if any(isinstance(value, bytes | bytearray) for value in result):
            return [await kept(value, f"{tool}_{number}", context) for number, value in enumerate(result, 1)]
        case _:
            return result


def _name(key: object, tool: str) -> str:
    return str(key) if isinstance(key, str) and "." in key else f"{tool}_{key}"


async def _saved(data: bytes, name: str, context: ToolContext) -> dict[str, Any]:
    kind = media.kind_in(data, media.kind_of(name, None) if "." in name else None) or "application/octet-stream"
    named = name if "." in name else f"{name}{guess_extension(kind) or '.bin'}"
    await context.save_artifact(named, media.part(kind, data))
    return {"file": named, "kind": kind, "size": len(data), "note": "The user gets this file with your answer."}
