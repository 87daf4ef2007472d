"""What all platforms' talk has in common, as people see it."""

import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Protocol, TypeVar

from sandbox.client.platform import (
    ActionRefusedError,
    ClientEvent,
    ClientEventKind,
    ClientLocation,
    ClientMessage,
    shorten_text,
)
from sandbox.subscriptions import Subscription

_EVENT_KINDS = {
    "posted": ClientEventKind.POSTED,
    "ephemeral": ClientEventKind.POSTED,
    "streamed": ClientEventKind.UPDATED,
    "updated": ClientEventKind.UPDATED,
    "deleted": ClientEventKind.DELETED,
    "reaction_added": ClientEventKind.REACTED,
    "reaction_removed": ClientEventKind.REACTED,
}


class MessageUpdate(Protocol):
    """Something that people would see happen, as the sandboxes tell it."""

    @property
    def kind(self) -> str: ...


C = TypeVar("C", bound=MessageUpdate)


class ObservedSandbox(Protocol):
    async def wait_until_connected(self, timeout: float = 10) -> None:  # noqa: ASYNC109 (the sandboxes' own)
        """Raises TimeoutError."""


async def wait_until_connected(sandbox: ObservedSandbox, seconds: float) -> bool:
    """Wait until a bot is connected; False if none is."""
    try:
        await sandbox.wait_until_connected(seconds)
    except TimeoutError:
        return False
    return True


async def client_events(
    changes: Subscription[C], message: Callable[[C], ClientMessage | None]
) -> AsyncGenerator[ClientEvent, None]:
    """The changes of a sandbox, with the message of each; those of which people see nothing (None) are left out."""
    async with aclosing(changes):
        async for change in changes:
            if (changed := message(change)) is not None:
                yield ClientEvent(_EVENT_KINDS[change.kind], changed)


@contextmanager
def report_refusals() -> Iterator[None]:
    """What the sandboxes refuse is told to the person."""
    try:
        yield
    except ValueError as error:
        raise ActionRefusedError(str(error)) from error


class MarkdownCache:
    """The Markdown of each message, made once for each content that it has."""

    def __init__(self) -> None:
        self._entries: dict[object, tuple[object, str]] = {}

    def get_or_render(self, message: object, content: object, render: Callable[[], str]) -> str:
        """The text of the message (its key) with this content; `make` makes it."""
        known, text = self._entries.get(message, (None, ""))
        if known is not content:
            text = render()
            self._entries[message] = content, text
        return text


def append_extras(text: str, files: Iterable[str], buttons: Iterable[str]) -> str:
    """The plain text of a message, with the files that it holds and what is on its buttons below it."""
    named = [f"[file {name}]" for name in files]
    return "\n".join(filter(None, [text, *named, _format_buttons(buttons)]))


def create_thread_name(message: ClientMessage) -> str:
    """Return the name of a thread that begins with the message: its first words, without its buttons."""
    name = "" if message.is_pending else shorten_text(message.plain_text.removesuffix(_format_buttons(message.buttons)))
    return name if name.strip("…") else "New thread"


def _format_buttons(buttons: Iterable[str]) -> str:
    return " ".join(f"[ {label} ]" for label in buttons)


def filter_by_place(place: ClientLocation, messages: Iterable[ClientMessage]) -> list[ClientMessage]:
    """Those messages of the place's channel that one sees in the place."""
    if place.thread is None:
        return [message for message in messages if message.thread is None]
    return [message for message in messages if place.thread in (message.id, message.thread)]


def encode_mentions(text: str, names: Mapping[str, str]) -> str:
    """What a platform's input line makes of it: names (by their ids) with an at sign become mentions."""
    for key, name in names.items():
        text = re.sub(rf"(?i)(?<![\w@])@{re.escape(name)}(?!\w)", f"<@{key}>", text)
    return text
