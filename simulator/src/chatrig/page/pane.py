"""One platform's half of the web page for one user, as JSON for the browser."""

from collections.abc import Mapping, Sequence
from mimetypes import guess_type
from pathlib import PurePath
from time import localtime, strftime
from typing import Any, Protocol

from chatrig.client.forms import ClientField, ClientForm
from chatrig.client.platform import ActionRefusedError, ClientMessage, ClientPlatform
from chatrig.client.session import ChatSession

Json = dict[str, Any]

#: Most messages of a channel or thread that the page shows; these are the newest ones.
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
    """One platform's half of the web page: JSON for the browser, and users' actions.

    Messages are given by id, and belong to the open channel, DM or thread of the session.
    """

    @property
    def platform(self) -> ClientPlatform: ...

    def create_message_views(self, session: ChatSession) -> list[Json]:
        """Return the messages that the user can see as JSON, oldest first.

        They are those of the session's open channel, DM or thread. A channel or DM comes without the replies in its
        threads, a thread with its root, a forum with the first message of each post. Each has at least `id`, `author`,
        `time`, `html`, `files`, `controls` (buttons and menus) and `reactions`.
        """
        ...

    def render_form_text(self, session: ChatSession, form: ClientForm) -> str:
        """Return the text above the fields of an open form as HTML."""
        ...

    def create_state_view(self, session: ChatSession) -> Json:
        """Return the parts of the open channel, DM or thread other than messages as JSON.

        Missing texts are "", missing lists empty. The keys:

        - `typing`: the text of the typing indicator.
        - `title`: the title of the conversation.
        - `commands`: the slash commands available there, with `name`, `usage` and `description`.
        - `suggested_prompts`: those of Slack, with `title` and `message`.
        """
        ...

    async def toggle_reaction(self, session: ChatSession, message: str, emoji: str) -> None:
        """Add the user's reaction to a message, or remove it if it exists already.

        Args:
            emoji: a `key` of the message's `reactions` in `create_message_views`.

        Raises:
            ValueError: the message is deleted, or not in the open channel.
        """
        ...

    async def use_menu_entry(self, session: ChatSession, message: str, entry: str) -> None:
        """Select an entry of the bot in a message's context menu.

        Args:
            entry: name of the Slack shortcut or the Discord message command.

        Raises:
            ValueError: the entry does not exist, or (Slack) the message is deleted.
            ActionRefusedError: the bot did not respond, or (Discord) the message is deleted.
        """
        ...

    def get_file(self, key: str) -> tuple[str, bytes]:
        """Return the name and the bytes of a file in a message.

        Args:
            key: the platform's id of the file.

        Raises:
            ValueError: the file does not exist.
        """
        ...


def create_pane_view(pane: PlatformPane, session: ChatSession) -> dict[str, Any]:
    """Return one platform's half of the page as JSON values by key.

    Returns:
        `slack/ID` or `discord/ID`: one of the newest `MAX_MESSAGES` messages of the open place.

        `slack` or `discord`: an object with the keys of `PlatformPane.create_state_view` and these keys:

        - `connected`: whether the bot is connected.
        - `bot`: the name of the bot.
        - `place`: the open channel, DM or thread: `channel` (the id), `thread` (the id; None outside threads), `name`,
          and `channel_name`; that of a DM is the bot's name.
        - `is_dm`: whether the open place is a DM.
        - `thread_support`: the `ThreadSupport` of the open place, as its value.
        - `places`: all places that the user can open. Each has `channel`, `thread`, `name`, `is_dm`, `is_forum`
          (whether it belongs to a forum) and `unread` (number of messages).
        - `message_ids`: the ids of the messages, oldest first.
        - `menu_entries`: names of the bot's entries in the context menu.
        - `modal`: the user's open form, with its `fields`; None without one.
    """
    platform, key = pane.platform, pane.platform.name.lower()
    messages = pane.create_message_views(session)[-MAX_MESSAGES:]
    place, channel = session.place, session.get_open_channel()
    view: dict[str, Any] = {f"{key}/{message['id']}": message for message in messages}
    places = session.list_places()
    form = platform.find_form(session.user)
    view[key] = {
        "connected": platform.is_connected,
        "bot": platform.bot_name,
        "place": {"channel": place.channel, "thread": place.thread, "name": place.name, "channel_name": channel.name},
        "is_dm": place.is_dm,
        "thread_support": place.thread_support.value,
        "places": [
            {
                "channel": place.channel,
                "thread": place.thread,
                "name": place.name,
                "is_dm": place.is_dm,
                "is_forum": place.thread_support.value == "all" and not place.is_dm,
                "unread": session.unread[place],
            }
            for place in places
        ],
        "message_ids": [message["id"] for message in messages],
        "menu_entries": list(platform.menu_entries),
        "modal": _create_form_view(form, pane.render_form_text(session, form)) if form else None,
        **pane.create_state_view(session),
    }
    return view


def find_message(session: ChatSession, message: str) -> ClientMessage:
    """Return a message of the open channel, DM or thread by its id.

    In a channel, the newest reply of each thread is found, too.

    Args:
        message: the id of the message.

    Raises:
        ActionRefusedError: there is no such message; the error's text says that it was deleted.
    """
    messages = list(session.platform.list_messages(session.place, session.user))
    messages += [message.newest_reply for message in messages if message.newest_reply is not None]
    match = next((candidate for candidate in messages if candidate.id == message), None)
    if match is None:
        raise ActionRefusedError("This message was deleted.")
    return match


def format_local_time(seconds: float) -> str:
    """Return the local time of day (`HH:MM`) of seconds since the epoch."""
    return strftime("%H:%M", localtime(seconds))


def create_file_view(name: str, size: int, url: str, description: str = "") -> Json:
    """Return a file of a message as JSON for the browser.

    Keys: `name`, `size`, `url`, `description`, and `kind`, which is `image`, `audio` or `download`.

    Args:
        size: in bytes.
        description: the alternative text of the file.
    """
    kind = find_displayable_type(name).partition("/")[0] or "download"
    return {"name": name, "size": size, "url": url, "description": description, "kind": kind}


def find_displayable_type(name: str) -> str:
    """Return a file's content type if the page displays or plays it, else "".

    Args:
        name: name of the file.
    """
    content_type = guess_type(name)[0] or ""
    return content_type if content_type in IMAGE_TYPES else AUDIO_TYPES.get(PurePath(name).suffix.lower(), "")


def create_menu_view(menu: ClientField) -> Json:
    return {"id": menu.id, "style": "menu"} | _create_field_view(menu)


def _create_form_view(form: ClientForm, html: str) -> Json:
    return {
        "id": form.id,
        "title": form.title,
        "html": html,
        "submit_label": form.submit_label,
        "close_label": form.close_label,
        "fields": [_create_field_view(field) for field in form.fields],
    }


def _create_field_view(field: ClientField) -> Json:
    return {
        "name": field.id,
        "label": field.label,
        "placeholder": field.hint,
        "description": field.description,
        "values": field.values,
        "options": [[option.value, option.label] for option in field.options],
        "multiple": field.takes_several,
        "multiline": field.is_multiline,
        "required": field.is_required,
        "error": field.error,
        "type": field.kind.value,
    }


def sort_commands(commands: Sequence[Mapping[str, str]]) -> list[Json]:
    """Return copies of slash commands as JSON, sorted by their key `name`."""
    return sorted(({**command} for command in commands), key=lambda command: str(command["name"]))
