"""One platform's half of the page for one user, as JSON for the browser."""

from collections.abc import Mapping, Sequence
from mimetypes import guess_type
from pathlib import PurePath
from time import localtime, strftime
from typing import Any, Protocol

from sandbox.client.forms import ClientField, ClientForm
from sandbox.client.platform import ActionRefusedError, ClientMessage, ClientPlatform
from sandbox.client.session import ClientSession

Json = dict[str, Any]

#: The page shows this many messages of a place, the newest ones.
MAX_MESSAGES = 150

#: Content types that the page displays as images.
IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")

#: Content types that the page plays, by the suffix of the file's name: `mimetypes` knows not all of them everywhere.
AUDIO_TYPES = {
    ".aac": "audio/aac",
    ".flac": "audio/flac",
    ".m4a": "audio/mp4",
    ".mp3": "audio/mpeg",
    ".ogg": "audio/ogg",
    ".opus": "audio/ogg",
    ".wav": "audio/wav",
}


class PlatformPane(Protocol):
    """Part of the page for one platform: its view and its actions.

    Messages are given by id, and belong to the open place of the session.
    """

    @property
    def platform(self) -> ClientPlatform: ...

    def create_message_views(self, session: ClientSession) -> list[Json]:
        """Return the messages of the open place that the user can see as JSON, oldest first."""
        ...

    def render_form_text(self, session: ClientSession, form: ClientForm) -> str:
        """Return the text above the fields of a form as HTML."""
        ...

    def create_state_view(self, session: ClientSession) -> Json:
        """Return the other parts of the open place as JSON.

        Keys: `typing` (text of the typing indicator), `title` (of the conversation), `commands`, and `prompts` (Slack's
        suggested prompts).
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
    form = platform.find_form(session.user)
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
        "modal": _create_form_view(form, pane.render_form_text(session, form)) if form else None,
        **pane.create_state_view(session),
    }
    return view


def find_message(session: ClientSession, message: str) -> ClientMessage:
    """Return a message of the open place, or the newest reply in one of its threads.

    Raises:
        ActionRefusedError: the message is deleted.
    """
    messages = list(session.platform.list_messages(session.place, session.user))
    messages += [one.newest_reply for one in messages if one.newest_reply is not None]
    match = next((one for one in messages if one.id == message), None)
    if match is None:
        raise ActionRefusedError("This message was deleted.")
    return match


def format_local_time(seconds: float) -> str:
    """Return the local time of day of an epoch time."""
    return strftime("%H:%M", localtime(seconds))


def create_file_view(name: str, size: int, url: str, about: str = "") -> Json:
    """Return a file as JSON; `show` says how the page shows it.

    Args:
        size: in bytes.
        about: the description.
    """
    kind = get_shown_type(name).partition("/")[0]
    return {"name": name, "size": size, "url": url, "about": about, "show": kind or "download"}


def get_shown_type(name: str) -> str:
    """Return the content type of a file that the page displays or plays; empty for a download."""
    kind = guess_type(name)[0] or ""
    return kind if kind in IMAGE_TYPES else AUDIO_TYPES.get(PurePath(name).suffix.lower(), "")


def create_menu_view(menu: ClientField) -> Json:
    return {"id": menu.id, "look": "menu"} | _create_field_view(menu)


def _create_form_view(form: ClientForm, html: str) -> Json:
    about = {"id": form.id, "title": form.title, "html": html, "submit": form.submit_label, "close": form.close_label}
    return about | {"fields": [_create_field_view(field) for field in form.fields]}


def _create_field_view(field: ClientField) -> Json:
    return {
        "name": field.id,
        "label": field.label,
        "hint": field.hint,
        "about": field.description,
        "values": field.values,
        "options": [[option.value, option.label] for option in field.options],
        "several": field.takes_several,
        "multiline": field.is_multiline,
        "required": field.is_required,
        "error": field.error,
        "kind": field.kind.value,
    }


def sort_commands(commands: Sequence[Mapping[str, str]]) -> list[Json]:
    """Return copies of the command views, sorted by name."""
    return sorted(({**command} for command in commands), key=lambda command: str(command["name"]))
