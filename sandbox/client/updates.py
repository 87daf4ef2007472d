"""What all platforms' talk has in common, as people see it."""

import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Protocol, TypeVar

from sandbox.client.platform import (
    ActionRefusedError,
    ClientEvent,
    ClientLocation,
    HappeningKind,
    ShownMessage,
    opening,
)
from sandbox.subscriptions import Subscription

_KINDS = {
    "posted": HappeningKind.POSTED,
    "ephemeral": HappeningKind.POSTED,
    "streamed": HappeningKind.UPDATED,
    "updated": HappeningKind.UPDATED,
    "deleted": HappeningKind.DELETED,
    "reaction_added": HappeningKind.REACTED,
    "reaction_removed": HappeningKind.REACTED,
}


class MessageUpdate(Protocol):
    """Something that people would see happen, as the sandboxes tell it."""

    @property
    def kind(self) -> str: ...


C = TypeVar("C", bound=MessageUpdate)


class ObservedSandbox(Protocol):
    async def wait_until_connected(self, timeout: float = 10) -> None:  # noqa: ASYNC109 (the sandboxes' own)
        """Raises TimeoutError."""


async def connects_within(sandbox: ObservedSandbox, seconds: float) -> bool:
    """Wait until a bot is connected; False if none is."""
    try:
        await sandbox.wait_until_connected(seconds)
    except TimeoutError:
        return False
    return True


async def happenings(
    changes: Subscription[C], message: Callable[[C], ShownMessage | None]
) -> AsyncGenerator[ClientEvent, None]:
    """The changes of a sandbox, with the message of each; those of which people see nothing (None) are left out."""
    async with aclosing(changes):
        async for change in changes:
            if (changed := message(change)) is not None:
                yield ClientEvent(_KINDS[change.kind], changed)


@contextmanager
def refusals() -> Iterator[None]:
    """What the sandboxes refuse is told to the person."""
    try:
        yield
    except ValueError as error:
        raise ActionRefusedError(str(error)) from error


class MarkdownCache:
    """The Markdown of each message, made once for each content that it has."""

    def __init__(self) -> None:
        self._made: dict[object, tuple[object, str]] = {}

    def of(self, message: object, content: object, make: Callable[[], str]) -> str:
        """The text of the message (its key) with this content; `make` makes it."""
        known, text = self._made.get(message, (None, ""))
        if known is not content:
            text = make()
            self._made[message] = content, text
        return text


def with_extras(text: str, files: Iterable[str], buttons: Iterable[str]) -> str:
    """The plain text of a message, with the files that it holds and what is on its buttons below it."""
    named = [f"[file {name}]" for name in files]
    return "\n".join(filter(None, [text, *named, _button_line(buttons)]))


def thread_name(message: ShownMessage) -> str:
    """Return the name of a thread that begins with the message: its first words, without its buttons."""
    name = "" if message.pending else opening(message.plain.removesuffix(_button_line(message.buttons)))
    return name if name.strip("…") else "New thread"


def _button_line(buttons: Iterable[str]) -> str:
    return " ".join(f"[ {label} ]" for label in buttons)


def standing_in(place: ClientLocation, messages: Iterable[ShownMessage]) -> list[ShownMessage]:
    """Those messages of the place's channel that one sees in the place."""
    if place.thread is None:
        return [message for message in messages if message.thread is None]
    return [message for message in messages if place.thread in (message.id, message.thread)]


def mentioning(text: str, names: Mapping[str, str]) -> str:
    """What a platform's input line makes of it: names (by their ids) with an at sign become mentions."""
    for key, name in names.items():
        text = re.sub(rf"(?i)(?<![\w@])@{re.escape(name)}(?!\w)", f"<@{key}>", text)
    return text
