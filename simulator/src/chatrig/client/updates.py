"""Functions of both the Slack and Discord clients: events, mentions, thread names."""

import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any, Protocol, TypeVar

from chatrig.client.forms import ClientField, format_menu
from chatrig.client.platform import (
    ActionRefusedError,
    ClientEvent,
    ClientEventKind,
    ClientLocation,
    ClientMessage,
    shorten_text,
)
from chatrig.observable import ObservableSimulator
from chatrig.subscriptions import Subscription

_EVENT_KINDS = {
    "posted": ClientEventKind.POSTED,
    "ephemeral": ClientEventKind.POSTED,
    "streamed": ClientEventKind.UPDATED,
    "updated": ClientEventKind.UPDATED,
    "deleted": ClientEventKind.DELETED,
    "reaction_added": ClientEventKind.REACTED,
    "reaction_removed": ClientEventKind.REACTED,
    "pinned": ClientEventKind.UPDATED,
    "unpinned": ClientEventKind.UPDATED,
}


class MessageUpdate(Protocol):
    """Visible change of a message, as the simulators publish it.

    Attributes:
        kind: type of the change, such as `posted` or `deleted`.
    """

    @property
    def kind(self) -> str: ...


C = TypeVar("C", bound=MessageUpdate)


async def wait_until_connected(simulator: ObservableSimulator[Any, Any], seconds: float) -> bool:
    """Wait until the bot is connected; return False if it is not within `seconds`."""
    try:
        await simulator.wait_until_connected(seconds)
    except TimeoutError:
        return False
    return True


async def convert_changes(
    changes: Subscription[C], message: Callable[[C], ClientMessage | None]
) -> AsyncGenerator[ClientEvent, None]:
    """Yield the changes of a simulator's messages as client events.

    The end of the generator closes the subscription.

    Args:
        message: returns the changed message for the client; None skips the change.
    """
    async with aclosing(changes):
        async for change in changes:
            if (changed := message(change)) is not None:
                yield ClientEvent(_EVENT_KINDS[change.kind], changed)


@contextmanager
def raise_refusals() -> Iterator[None]:
    """Turn a `ValueError` of the block into `ActionRefusedError` with the same text."""
    try:
        yield
    except ValueError as error:
        raise ActionRefusedError(str(error)) from error


class MarkdownCache:
    """Cache of the rendered text of messages.

    A message is rendered again when its content is another object.
    """

    def __init__(self) -> None:
        self._entries: dict[object, tuple[object, str]] = {}

    def get_or_render(self, message: object, content: object, render: Callable[[], str]) -> str:
        """Return the rendered text of a message from the cache, or render and store it.

        Args:
            message: hashable key of the message, such as its id.
            content: the content, compared by identity.
            render: called for a new content.
        """
        cached_content, text = self._entries.get(message, (None, ""))
        if cached_content is not content:
            text = render()
            self._entries[message] = content, text
        return text


def append_extras(
    text: str,
    files: Iterable[str],
    buttons: Iterable[str],
    menus: Iterable[ClientField] = (),
    links: Iterable[str] = (),
) -> str:
    """Return a text with a line per file, menu and link, and a line with all button labels.

    An empty text and missing buttons have no line; without any part the result is "".

    Args:
        files: names of the files.
        buttons: labels of the buttons.
        menus: menus, shown as `format_menu` returns them.
        links: the lines of link buttons: see `format_links`.
    """
    named = [f"[file {name}]" for name in files]
    extras = [*named, *map(format_menu, menus), *links, _format_buttons(buttons)]
    return "\n".join(filter(None, [text, *extras]))


def format_links(links: Mapping[str, str]) -> list[str]:
    """Return link buttons as lines, such as `Open: https://example.com`."""
    return [f"{label}: {url}" for label, url in links.items()]


def create_thread_name(message: ClientMessage) -> str:
    """Return a thread's name: its first message's plain text in at most 40 characters.

    Files and menus are part of it: a message with only a file gives `[file a.csv]`. Buttons are left out. The name is
    "New thread" if nothing stays, or if the message `is_pending` (its text is incomplete).
    """
    name = "" if message.is_pending else shorten_text(message.plain_text.removesuffix(_format_buttons(message.buttons)))
    return name if name.strip("…") else "New thread"


def _format_buttons(buttons: Iterable[str]) -> str:
    return " ".join(f"[ {label} ]" for label in buttons)


def filter_by_place(place: ClientLocation, messages: Iterable[ClientMessage]) -> list[ClientMessage]:
    """Return the messages of a channel without its threads, or those of a thread.

    A thread's first message is one of its messages; a broadcast reply is one of the channel's, too.
    """
    if place.thread is None:
        return [message for message in messages if message.thread is None or message.is_broadcast]
    return [message for message in messages if place.thread in (message.id, message.thread)]


def encode_mentions(text: str, names: Mapping[str, str]) -> str:
    """Replace each `@name` in a text by `<@id>`; case does not matter.

    Unknown names stay.

    Args:
        names: names by id.
    """
    for key, name in names.items():
        text = re.sub(rf"(?i)(?<![\w@])@{re.escape(name)}(?!\w)", f"<@{key}>", text)
    return text
