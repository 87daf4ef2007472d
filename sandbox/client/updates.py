"""Helpers that the clients of both platforms share."""

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
    """A visible change, as the sandboxes publish it."""

    @property
    def kind(self) -> str: ...


C = TypeVar("C", bound=MessageUpdate)


class ObservedSandbox(Protocol):
    """A sandbox that reports the bot's connection."""

    async def wait_until_connected(self, timeout: float = 10) -> None:  # noqa: ASYNC109 (the sandboxes' own)
        """Wait until the bot is connected.

        Raises:
            TimeoutError: the bot did not connect in time.
        """


async def wait_until_connected(sandbox: ObservedSandbox, seconds: float) -> bool:
    """Wait until the bot is connected; False after a timeout."""
    try:
        await sandbox.wait_until_connected(seconds)
    except TimeoutError:
        return False
    return True


async def client_events(
    changes: Subscription[C], message: Callable[[C], ClientMessage | None]
) -> AsyncGenerator[ClientEvent, None]:
    """Yield a sandbox's changes as events; changes without a message (None) are skipped."""
    async with aclosing(changes):
        async for change in changes:
            if (changed := message(change)) is not None:
                yield ClientEvent(_EVENT_KINDS[change.kind], changed)


@contextmanager
def report_refusals() -> Iterator[None]:
    """Report a sandbox's `ValueError` to the user as `ActionRefusedError`."""
    try:
        yield
    except ValueError as error:
        raise ActionRefusedError(str(error)) from error


class MarkdownCache:
    """Rendered text of each message, until its content changes."""

    def __init__(self) -> None:
        self._entries: dict[object, tuple[object, str]] = {}

    def get_or_render(self, message: object, content: object, render: Callable[[], str]) -> str:
        """Return the rendered content of a message; `message` is its key."""
        cached_content, text = self._entries.get(message, (None, ""))
        if cached_content is not content:
            text = render()
            self._entries[message] = content, text
        return text


def append_extras(text: str, files: Iterable[str], buttons: Iterable[str]) -> str:
    """Append file names and button labels to the plain text of a message."""
    named = [f"[file {name}]" for name in files]
    return "\n".join(filter(None, [text, *named, _format_buttons(buttons)]))


def create_thread_name(message: ClientMessage) -> str:
    """Return the name of a thread: the first words of its first message, without buttons."""
    name = "" if message.is_pending else shorten_text(message.plain_text.removesuffix(_format_buttons(message.buttons)))
    return name if name.strip("…") else "New thread"


def _format_buttons(buttons: Iterable[str]) -> str:
    return " ".join(f"[ {label} ]" for label in buttons)


def filter_by_place(place: ClientLocation, messages: Iterable[ClientMessage]) -> list[ClientMessage]:
    """Return the messages that are visible in a place."""
    if place.thread is None:
        return [message for message in messages if message.thread is None]
    return [message for message in messages if place.thread in (message.id, message.thread)]


def encode_mentions(text: str, names: Mapping[str, str]) -> str:
    """Replace `@name` by mentions, as a platform's message box does; `names` is by id."""
    for key, name in names.items():
        text = re.sub(rf"(?i)(?<![\w@])@{re.escape(name)}(?!\w)", f"<@{key}>", text)
    return text
