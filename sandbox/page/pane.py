"""One platform on the page, as one person sees it: as JSON, for the browser to lay out."""

from collections.abc import Mapping, Sequence
from time import localtime, strftime
from typing import Any, Protocol

from sandbox.client.platform import ActionRefusedError, ClientMessage, ClientPlatform
from sandbox.client.session import ClientSession

Json = dict[str, Any]

#: Messages of a place that are on the page, the newest ones.
MAX_MESSAGES = 150

#: The types of files that the page shows as pictures.
IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")


class PlatformPane(Protocol):
    """What there is of a platform beside what every seat has."""

    @property
    def platform(self) -> ClientPlatform: ...

    def create_message_views(self, session: ClientSession) -> list[Json]:
        """What stands where the session is, oldest first; each has its `id`."""
        ...

    def create_state_view(self, session: ClientSession) -> Json:
        """What else is seen there: `typing`, `commands`, `modal`, `prompts`."""
        ...

    async def toggle_reaction(self, session: ClientSession, message: str, emoji: str) -> None:
        """Add the person's reaction to a message, or take it back.

        Raises:
            ValueError: it is gone.
        """
        ...

    async def use_menu_entry(self, session: ClientSession, message: str, entry: str) -> None:
        """Choose an entry of a message's menu.

        Raises:
            ValueError: it is gone, or there is no such entry.
            RefusedError: nobody has heard.
        """
        ...

    async def submit_modal(self, session: ClientSession, modal: str, values: Mapping[str, str]) -> None:
        """Send a modal.

        Raises:
            ValueError: it is not open, or asks for something else.
            RefusedError: the bot has not taken it.
        """
        ...

    def close_modal(self, session: ClientSession, modal: str) -> None:
        """Put a modal away."""
        ...

    def get_file(self, key: str) -> tuple[str, bytes]:
        """A file's name and bytes.

        Raises:
            ValueError: there is none.
        """
        ...


def create_pane_view(pane: PlatformPane, session: ClientSession) -> dict[str, Any]:
    """The pane by keys: the platform's name in small letters for all around the messages, and one for each message."""
    platform, key = pane.platform, pane.platform.name.lower()
    messages = pane.create_message_views(session)[-MAX_MESSAGES:]
    place, home = session.place, session.get_home_place()
    view: dict[str, Any] = {f"{key}/{message['id']}": message for message in messages}
    places = session.list_places()
    view[key] = {
        "connected": platform.is_connected,
        "bot": platform.bot_name,
        "place": {"channel": place.channel, "thread": place.thread, "name": place.name, "home": home.name},
        "direct": place.is_dm,
        "threads": place.thread_support.value,
        "places": [
            {
                "channel": one.channel,
                "thread": one.thread,
                "name": one.name,
                "direct": one.is_dm,
                "posts": one.thread_support.value == "all" and not one.is_dm,
                "unread": session.unread[one],
            }
            for one in places
        ],
        "order": [message["id"] for message in messages],
        "menu": list(platform.menu_entries),
        **pane.create_state_view(session),
    }
    return view


def find_message(session: ClientSession, message: str) -> ClientMessage:
    """The message of that id, among those that the person sees.

    Raises:
        RefusedError: it is gone.
    """
    messages = list(session.platform.list_messages(session.place, session.user))
    messages += [one.newest_reply for one in messages if one.newest_reply is not None]
    found = next((one for one in messages if one.id == message), None)
    if found is None:
        raise ActionRefusedError("This message was deleted.")
    return found


def format_time(seconds: float) -> str:
    return strftime("%H:%M", localtime(seconds))


def create_file_view(name: str, size: int, kind: str, url: str, about: str = "") -> Json:
    return {"name": name, "size": size, "url": url, "about": about, "picture": kind in IMAGE_TYPES}


def sort_commands(commands: Sequence[Mapping[str, str]]) -> list[Json]:
    return sorted(({**command} for command in commands), key=lambda command: str(command["name"]))
