"""What an event costs when it is sent to a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.sessions.record import as_json, parts_of

if TYPE_CHECKING:
    from google.adk.events.event import Event
    from google.genai import types

_IMAGE_TOKENS = 1_000  # between Gemini's 258 a tile and Anthropic's 1,600 for the largest


def measured(event: Event) -> tuple[str, int]:
    """What an event costs when it is sent: its words, to be counted, and the tokens of all else."""
    words: list[str] = []
    tokens = 4  # the frame of a message
    for part in parts_of(event):
        if part.text:
            words.append(part.text)
        if call := part.function_call:
            words.append(f"{call.name} {as_json(call.args or {})}")
        if response := part.function_response:
            words.append(f"{response.name} {as_json(response.response or {})}")
            tokens += sum(_media_tokens(item.inline_data) for item in response.parts or ())
        if part.file_data:
            tokens += _IMAGE_TOKENS
        tokens += _media_tokens(part.inline_data)
    if compaction := event.actions.compaction:
        words += [part.text for part in compaction.compacted_content.parts or () if part.text]
    return "\n".join(words), tokens


def _media_tokens(media: types.Blob | types.FunctionResponseBlob | None) -> int:
    if media is None or not media.data:
        return 0
    if (media.mime_type or "").startswith("text/"):
        return len(media.data) // 4
    if (media.mime_type or "").startswith("image/"):
        return _IMAGE_TOKENS
    return _IMAGE_TOKENS + len(media.data) // 500  # Gemini: a second of sound is 32 tokens, of MP3 16 kB
