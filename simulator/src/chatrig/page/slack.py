"""Slack's half of the simulator's web page."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.emoji import Emoji

from chatrig.client.forms import ClientForm
from chatrig.client.platform import ActionRefusedError
from chatrig.client.session import ChatSession
from chatrig.client.slack import STOP_BUTTON_ID, SlackPlatform
from chatrig.client.slack_inputs import list_buttons, list_menus
from chatrig.page.mrkdwn import render_blocks, render_content, render_mrkdwn
from chatrig.page.pane import Json, create_file_view, create_menu_view, format_local_time
from chatrig.slack import SlackMessage, SlackSimulator
from chatrig.slack.state.controls import BlockControl

#: Slack's emoji names that differ from the ones of Rich.
_EMOJI_NAMES = {"+1": "thumbs_up", "-1": "thumbs_down"}


class SlackPane:
    """`PlatformPane` for the local Slack: JSON for the browser, and users' actions."""

    def __init__(self, slack: SlackSimulator) -> None:
        self.platform = SlackPlatform(slack)
        self._slack = slack
        self._html_cache: dict[str, tuple[object, str]] = {}

    def create_message_views(self, session: ChatSession) -> list[Json]:
        place, user_id, names = session.place, session.user.id, self._names_by_id
        messages = [m for m in self._slack.messages(place.channel) if m.ephemeral_to in (None, user_id)]
        if place.thread is not None:
            return [
                self._create_message_view(m, user_id, names) for m in messages if place.thread in (m.ts, m.thread_ts)
            ]
        replies: dict[str, list[SlackMessage]] = {}
        for message in messages:
            if message.is_thread_reply and message.thread_ts is not None:
                replies.setdefault(message.thread_ts, []).append(message)
        return [self._create_root_view(m, replies.get(m.ts, []), user_id, names) for m in messages if m.is_in_channel]

    def render_form_text(self, session: ChatSession, form: ClientForm) -> str:
        view = next(view for view in self._slack.modals(session.user.id) if view.id == form.id)
        return render_blocks([b for b in view.content["blocks"] if b["type"] != "input"], self._names_by_id)

    def create_state_view(self, session: ChatSession) -> Json:
        place, slack = session.place, self._slack
        working = [
            session
            for session in slack.sessions
            if session.channel.id == place.channel and session.thread_ts == place.thread
        ]
        busy = any(session.status == "processing" for session in working)
        root = next((message for message in slack.messages(place.channel) if message.ts == place.thread), None)
        activity = (slack.get_loading_text(root) if root else "") or ("is working…" if busy else "")
        return {
            "typing": f"{self.platform.bot_name} {activity}" if activity else "",
            "title": slack.get_thread_title(root) if root else "",
            "commands": self._create_command_views() if place.thread is None else [],
            "suggested_prompts": self._create_prompt_views(session) if place.is_dm and place.thread is None else [],
        }

    async def toggle_reaction(self, session: ChatSession, message: str, emoji: str) -> None:
        name = emoji.strip(":")
        target = self._find_message(session, message)
        if session.user.id in target.reactions.get(name, ()):
            await self._slack.remove_reaction(session.user.id, target, name)
        else:
            await self._slack.add_reaction(session.user.id, target, name)

    async def use_menu_entry(self, session: ChatSession, message: str, entry: str) -> None:
        target, shortcut = self._find_message(session, message), self._slack.shortcuts.get(entry)
        if shortcut is None:
            raise ValueError(f"There is no shortcut {entry!r} in the menu.")
        if not await self._slack.use_shortcut(session.user.id, target, shortcut):
            raise ActionRefusedError(f"{self.platform.bot_name} did not respond.")

    def get_file(self, key: str) -> tuple[str, bytes]:
        file = self._slack.find_file(key)
        if file is None:
            raise ValueError("This file does not exist.")
        return file.name, file.data

    @property
    def _names_by_id(self) -> Mapping[str, str]:
        """Names of the users, the channels and the bots, by id."""
        slack = self._slack
        people = {user.id: user.name for user in slack.people.values()}
        channels = {channel.id: channel.name for channel in slack.channels.values()}
        return people | channels | {slack.bot_user_id: self.platform.bot_name, "USLACKBOT": "Slackbot"}

    def _create_command_views(self) -> list[Json]:
        return [
            {"name": c["command"].removeprefix("/"), "usage": c.get("usage_hint", ""), "description": c["description"]}
            for c in self._slack.commands
        ]

    def _create_prompt_views(self, session: ChatSession) -> Sequence[Json]:
        """Return the suggested prompts that the bot set for the user's DM, as JSON.

        Keys: `title` (the button's label) and `message` (the text to post).
        """
        channel = self._slack.open_dm(session.user.id)
        return [{"title": title, "message": message} for title, message in channel.prompts]

    def _find_message(self, session: ChatSession, ts: str) -> SlackMessage:
        match = next((message for message in self._slack.messages(session.place.channel) if message.ts == ts), None)
        if match is None:
            raise ValueError("This message was deleted.")
        return match

    def _create_root_view(
        self, message: SlackMessage, replies: Sequence[SlackMessage], user_id: str, names: Mapping[str, str]
    ) -> Json:
        """Return a message outside threads as JSON, with `replies` if it has any.

        Keys of `replies`: `count`, `authors` (up to four names, each with whether it is the bot) and `newest` (the
        newest reply as JSON).
        """
        root = self._create_message_view(message, user_id, names)
        if replies:
            newest = self._create_message_view(replies[-1], user_id, names)
            authors = dict.fromkeys((self._author_name(m, names), m.bot_id == self._slack.bot_id) for m in replies)
            root["replies"] = {"count": len(replies), "authors": list(authors)[:4], "newest": newest}
        return root

    def _author_name(self, message: SlackMessage, names: Mapping[str, str]) -> str:
        return message.username or names.get(message.user or "") or message.bot_id or ""

    def _create_message_view(self, message: SlackMessage, user_id: str, names: Mapping[str, str]) -> Json:
        version = message.version_for(user_id)
        session = self._slack.find_session(message)
        is_streaming = message.stream is not None and message.stream.is_live
        is_by_bot = message.bot_id == self._slack.bot_id
        can_stop = is_by_bot and is_streaming and session is not None and session.status == "processing"
        buttons: list[Json] = [{"id": STOP_BUTTON_ID, "label": "Stop", "style": "plain"}] if can_stop else []
        content = version.content
        return {
            "id": message.ts,
            "author": self._author_name(message, names),
            "bot": is_by_bot,
            "app": message.bot_id is not None or message.user == "USLACKBOT",
            "time": format_local_time(float(message.ts)),
            "html": self._render_html(message.ts, content, lambda: render_content(content, names)),
            "plan": content.plan,
            "tasks": [
                {"title": task.title, "status": task.status, "html": render_mrkdwn(task.details or task.output, names)}
                for task in version.tasks
            ],
            "streaming": is_streaming,
            "edited": message.edited,
            "versions": len(message.versions),
            "ephemeral": message.ephemeral_to is not None,
            "deleted": message.is_tombstone,
            "own": message.user == user_id and not message.is_tombstone,
            "source": version.text if message.user == user_id else "",
            "pings": user_id in version.pings or bool({"channel", "here", "everyone"} & version.pings),
            "files": [
                create_file_view(file.name, len(file.data), f"/files/slack/{file.id}", file.alt_text or file.title)
                for file in message.files
            ],
            "controls": [
                *buttons,
                *map(create_menu_view, list_menus(self._slack, message, user_id)),
                *(_create_button_view(id_, control) for id_, control in list_buttons(self._slack, message)),
            ],
            "reactions": [_create_reaction_view(name, users, user_id) for name, users in message.reactions.items()],
        }

    def _render_html(self, key: str, content: object, make: Any) -> str:
        """Return the HTML of a message from a cache; call `make` for a new content object.

        Args:
            key: the message's `ts`.
            content: content of the message, compared by identity.
            make: returns the HTML; it is called without arguments.
        """
        cached_content, html = self._html_cache.get(key, (None, ""))
        if cached_content is not content:
            html = make()
            self._html_cache[key] = content, html
        return html


def _create_reaction_view(name: str, users: Sequence[str], user_id: str) -> Json:
    emoji = Emoji.replace(f":{_EMOJI_NAMES.get(name, name)}:")
    return {"key": name, "emoji": emoji, "count": len(users), "mine": user_id in users}


def _create_button_view(id_: str, control: BlockControl) -> Json:
    is_thumb = control.element["type"] == "feedback_buttons"
    thumb = ("👍" if control.option is control.element.get("positive_button") else "👎") if is_thumb else ""
    return {
        "id": id_,
        "label": control.label,
        "accessibility_label": control.accessibility_label,
        "style": str(control.element.get("style") or "plain"),
        "emoji": thumb,
        "url": control.element.get("url"),
    }
