"""Files in a history: those that a model takes go to it, the newest first; of the others it is told."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from core.models.media import size
from core.models.provider import NOTHING, Media, Message, Part, Takes, Text, ToolResult


def fitted(messages: Sequence[Message], takes: Takes) -> list[Message]:
    """The messages with such files alone as the model takes, and no more of them than it takes at once.

    A conversation may have been with another model before, and files that came one by one may be too much together.
    """
    room = _Room(takes)
    return [_fitted(message, room) for message in reversed(messages)][::-1]


def without_files(messages: Sequence[Message]) -> list[Message]:
    """The messages with words in the place of files."""
    return fitted(messages, NOTHING)


def shortened(messages: Sequence[Message]) -> list[Message] | None:
    """The messages from about the middle on, behind the system's, beginning with what a person said; None if there is
    only one such that they could begin with.
    """
    head = [message for message in messages[:1] if message.role == "system"]
    talk = messages[len(head) :]
    starts = [nth for nth, message in enumerate(talk) if message.role == "user" and nth]
    later = [nth for nth in starts if nth >= len(talk) // 2]
    start = later[0] if later else starts[-1] if starts else None
    return None if start is None else [*head, *talk[start:]]


class _Room:
    """What a request has room for yet."""

    def __init__(self, takes: Takes) -> None:
        self._takes = takes
        self._left = takes.total

    def takes(self, media: Media) -> bool:
        if media.data is None or media.mime_type.startswith("text/"):
            return True
        if not self._takes.has(media.mime_type, len(media.data)) or len(media.data) > self._left:
            return False
        self._left -= len(media.data)
        return True


def _fitted(message: Message, room: _Room) -> Message:
    if not any(_files_of(part) for part in message.parts):
        return message
    return replace(message, parts=tuple(_part(part, room) for part in reversed(message.parts))[::-1])


def _part(part: Part, room: _Room) -> Part:
    if isinstance(part, Media) and not room.takes(part):
        return Text(_told(part))
    if isinstance(part, ToolResult) and part.media:
        kept = [media for media in part.media if room.takes(media)]
        if lost := [_told(media) for media in part.media if media not in kept]:
            return replace(part, media=tuple(kept), result={**part.result, "left_out": lost})
    return part


def _files_of(part: Part) -> Iterable[Media]:
    if isinstance(part, ToolResult):
        return part.media
    return (part,) if isinstance(part, Media) else ()


def _told(media: Media) -> str:
    return f"[a file that is not shown to you: {media.mime_type}, {size(len(media.data or b''))}]"
