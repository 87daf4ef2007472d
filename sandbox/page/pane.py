"""One platform's half of the page for one user, as JSON for the browser."""

from collections.abc import Mapping, Sequence
from time import localtime, strftime
from typing import Any, Protocol

from sandbox.client.platform import ActionRefusedError, ClientMessage, ClientPlatform
from sandbox.client.session import ClientSession

Json = dict[str, Any]

#: The page shows this many messages of a place, the newest ones.
MAX_MESSAGES = 150

#: Content types that the page displays as images.
IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")


class PlatformPane(Protocol):
    """Differences of a platform in the view and in the actions.

    Messages are given by id, and belong to the open place of the session.
    """

    @property
    def platform(self) -> ClientPlatform: ...

    def create_message_views(self, session: ClientSession) -> list[Json]:
        """Return the messages of the open place that the user can see as JSON, oldest first."""
        ...

    def create_state_view(self, session: ClientSession) -> Json:
        """Return the other parts of the open place as JSON.

        Keys: `typing` (text of the typing indicator), `title` (of the conversation), `commands`, `modal` (the open one
        or None) and `prompts` (Slack's suggested prompts).
        """
        ...

    async def toggle_reaction(self, session: ClientSession, message: str, emoji: str) -> None:
        """Add the user's reaction to a message, or remove it if it exists.

        Args:
            emoji: a `key` in the view's reactions.

        Raises:
            ValueError: the message is deleted.
        """
        ...

    async def use_menu_entry(self, session: ClientSession, message: str, entry: str) -> None:
        """Select an entry in a message's menu.

        Raises:
            ValueError: the message is deleted, or the entry does not exist.
            ActionRefusedError: the bot did not respond.
        """
        ...

    async def submit_modal(self, session: ClientSession, modal: str, values: Mapping[str, str]) -> None:
        """Submit a modal.

        Args:
            modal: the id of the modal.
            values: the values of the inputs by their names in the view.

        Raises:
            ValueError: the modal is closed, or the values do not fit it.
            ActionRefusedError: the bot did not respond, or did not accept the values.
        """
        ...

    def close_modal(self, session: ClientSession, modal: str) -> None:
        """Close a modal without submitting it.

        Raises:
            ValueError: it is closed already.
        """
        ...

    def get_file(self, key: str) -> tuple[str, bytes]:
        """Return the name and the content of a message's file.

        Raises:
            ValueError: the file does not exist.
        """
        ...


def create_pane_view(pane: PlatformPane, session: ClientSession) -> dict[str, Any]:
    """Return the JSON parts of a platform's view by key.

    Each of the newest `MAX_MESSAGES` messages has a key such as `slack/ID`. The platform's name in lower case has all
    other parts.
    """
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
    """Return a message of the open place, or the newest reply in a thread there.

    Raises:
        ActionRefusedError: the message is deleted.
    """
    messages = list(session.platform.list_messages(session.place, session.user))
    messages += [one.newest_reply for one in messages if one.newest_reply is not None]
    match = next((one for one in messages if one.id == message), None)
    if match is None:
        raise ActionRefusedError("This message was deleted.")
    return match


def format_time(seconds: float) -> str:
    """Return the local time of day of an epoch time."""
    return strftime("%H:%M", localtime(seconds))


def create_file_view(name: str, size: int, kind: str, url: str, about: str = "") -> Json:
    """Return a file as JSON.

    Args:
        size: in bytes.
        kind: the content type.
        about: the description.
    """
    return {"name": name, "size": size, "url": url, "about": about, "picture": kind in IMAGE_TYPES}


def sort_commands(commands: Sequence[Mapping[str, str]]) -> list[Json]:
    """Return copies of the command views, sorted by name."""
    return sorted(({**command} for command in commands), key=lambda command: str(command["name"]))
