"""Slack's side of the page."""

from collections.abc import Mapping, Sequence
from mimetypes import guess_type
from typing import Any

from rich.emoji import Emoji

from sandbox.client.platform import ActionRefusedError
from sandbox.client.session import ClientSession
from sandbox.client.slack import STOP_BUTTON_ID, SlackPlatform
from sandbox.page.mrkdwn import of_blocks, of_content, of_mrkdwn
from sandbox.page.pane import Json, clock, shown_file
from sandbox.slack import ModalView, SlackMessage, SlackSandbox
from sandbox.slack.state.controls import find_controls

#: Emoji of Slack's that are called otherwise elsewhere.
_CALLED = {"+1": "thumbs_up", "-1": "thumbs_down"}


class SlackPane:
    def __init__(self, slack: SlackSandbox) -> None:
        self.platform = SlackPlatform(slack)
        self._slack = slack
        self._made: dict[str, tuple[object, str]] = {}

    def messages(self, session: ClientSession) -> list[Json]:
        place, me, names = session.place, session.user.id, self._names
        said = [m for m in self._slack.messages(place.channel) if m.ephemeral_to in (None, me)]
        if place.thread is not None:
            return [self._message(m, me, names) for m in said if place.thread in (m.ts, m.thread_ts)]
        replies: dict[str, list[SlackMessage]] = {}
        for message in said:
            if message.is_reply and message.thread_ts is not None:
                replies.setdefault(message.thread_ts, []).append(message)
        return [self._root(m, replies.get(m.ts, []), me, names) for m in said if not m.is_reply]

    def about(self, session: ClientSession) -> Json:
        place, slack = session.place, self._slack
        modals = slack.modals(session.user.id)
        working = [
            session
            for session in slack.sessions
            if session.channel.id == place.channel and session.thread_ts == place.thread
        ]
        busy = any(session.status == "processing" for session in working)
        return {
            "typing": f"{self.platform.bot_name} is working…" if busy else "",
            "title": next((session.title for session in working if session.title), ""),
            "commands": self._commands() if place.thread is None else [],
            "modal": self._modal(modals[-1]) if modals else None,
            "prompts": self._prompts(session) if place.is_dm and place.thread is None else [],
        }

    async def react(self, session: ClientSession, message: str, emoji: str) -> None:
        name = emoji.strip(":")
        found = self._found(session, message)
        if session.user.id in found.reactions.get(name, ()):
            await self._slack.remove_reaction(session.user.id, found, name)
        else:
            await self._slack.add_reaction(session.user.id, found, name)

    async def choose(self, session: ClientSession, message: str, entry: str) -> None:
        found, shortcut = self._found(session, message), self._slack.shortcuts.get(entry)
        if shortcut is None:
            raise ValueError(f"there is no {entry} in the menu")
        if not await self._slack.use_shortcut(session.user.id, found, shortcut):
            raise ActionRefusedError(f"{self.platform.bot_name} has not heard it.")

    async def submit(self, session: ClientSession, modal: str, values: Mapping[str, str]) -> None:
        view = self._open(session, modal)
        if not await self._slack.submit_modal(view, **values) and not view.errors:
            raise ActionRefusedError("We had some trouble connecting. Try again?")

    def close(self, session: ClientSession, modal: str) -> None:
        self._slack.close_modal(self._open(session, modal))

    def file(self, key: str) -> tuple[str, bytes]:
        file = self._slack.find_file(key)
        if file is None:
            raise ValueError("there is no such file")
        return file.name, file.data

    @property
    def _names(self) -> Mapping[str, str]:
        slack = self._slack
        people = {user.id: user.name for user in slack.people.values()}
        channels = {channel.id: channel.name for channel in slack.channels.values()}
        return people | channels | {slack.bot_user_id: self.platform.bot_name, "USLACKBOT": "Slackbot"}

    def _commands(self) -> list[Json]:
        return [
            {"name": c["command"].removeprefix("/"), "hint": c.get("usage_hint", ""), "about": c["description"]}
            for c in self._slack.commands
        ]

    def _prompts(self, session: ClientSession) -> Sequence[Json]:
        channel = self._slack.open_dm(session.user.id)
        return [{"title": title, "message": message} for title, message in channel.prompts]

    def _found(self, session: ClientSession, ts: str) -> SlackMessage:
        found = next((message for message in self._slack.messages(session.place.channel) if message.ts == ts), None)
        if found is None:
            raise ValueError("the message is gone")
        return found

    def _open(self, session: ClientSession, modal: str) -> ModalView:
        found = next((view for view in self._slack.modals(session.user.id) if view.id == modal), None)
        if found is None:
            raise ValueError("it is not open any more")
        return found

    def _root(self, message: SlackMessage, replies: Sequence[SlackMessage], me: str, names: Mapping[str, str]) -> Json:
        root = self._message(message, me, names)
        if replies:
            newest = self._message(replies[-1], me, names)
            people = dict.fromkeys(self._author(reply, names) for reply in replies)
            root["replies"] = {"count": len(replies), "people": list(people)[:4], "newest": newest}
        return root

    def _author(self, message: SlackMessage, names: Mapping[str, str]) -> str:
        return message.username or names.get(message.user or "") or message.bot_id or ""

    def _message(self, message: SlackMessage, me: str, names: Mapping[str, str]) -> Json:
        version = message.version_for(me)
        session = self._slack.find_session(message)
        streams = message.stream is not None and message.stream.is_live
        by_bot = message.bot_id == self._slack.bot_id
        stops = by_bot and streams and session is not None and session.status == "processing"
        buttons: list[Json] = [{"id": STOP_BUTTON_ID, "label": "Stop", "look": "plain"}] if stops else []
        content = version.content
        return {
            "id": message.ts,
            "author": self._author(message, names),
            "bot": by_bot,
            "app": message.bot_id is not None or message.user == "USLACKBOT",
            "time": clock(float(message.ts)),
            "html": self._html(message.ts, content, lambda: of_content(content, names)),
            "plan": content.plan,
            "tasks": [
                {"title": task.title, "status": task.status, "html": of_mrkdwn(task.details or task.output, names)}
                for task in version.tasks
            ],
            "streams": streams,
            "edited": message.edited,
            "versions": len(message.versions),
            "ephemeral": message.ephemeral_to is not None,
            "gone": message.is_tombstone,
            "own": message.user == me and not message.is_tombstone,
            "source": version.text if message.user == me else "",
            "pings": me in version.pings or bool({"channel", "here", "everyone"} & version.pings),
            "files": [
                shown_file(f.name, len(f.data), guess_type(f.name)[0] or "", f"/files/slack/{f.id}", f.title)
                for f in message.files
            ],
            "buttons": [*buttons, *_pressed(message)],
            "reactions": [_reaction(name, users, me) for name, users in message.reactions.items()],
        }

    def _html(self, key: str, content: object, make: Any) -> str:
        known, html = self._made.get(key, (None, ""))
        if known is not content:
            html = make()
            self._made[key] = content, html
        return html

    def _modal(self, view: ModalView) -> Json:
        names = self._names
        parts: list[Json] = []
        for block in view.content["blocks"]:
            if block["type"] != "input":
                parts.append({"html": of_blocks([block], names)})
                continue
            element = block["element"]
            parts.append(
                {
                    "name": element["action_id"],
                    "label": block["label"]["text"],
                    "kind": element["type"],
                    "many": bool(element.get("multiline")),
                    "value": element.get("initial_value", ""),
                    "hint": (element.get("placeholder") or {}).get("text", ""),
                    "optional": bool(block.get("optional")),
                    "options": [[o["value"], o["text"]["text"]] for o in element.get("options", ())],
                    "error": view.errors.get(block["block_id"], ""),
                }
            )
        words = {name: (view.content.get(name) or {}).get("text", "") for name in ("submit", "close")}
        return {"id": view.id, "title": view.title, "parts": parts, **words}


def _reaction(name: str, users: Sequence[str], me: str) -> Json:
    emoji = Emoji.replace(f":{_CALLED.get(name, name)}:")
    return {"key": name, "emoji": emoji, "count": len(users), "mine": me in users}


def _pressed(message: SlackMessage) -> list[Json]:
    """What can be pressed; the options of one select stand together."""
    buttons: list[Json] = []
    selects: dict[str, Json] = {}
    for control in find_controls(message.blocks or ()):
        kind = control.element["type"]
        if kind == "static_select":
            id_ = control.element["action_id"]
            if id_ not in selects:
                hint = (control.element.get("placeholder") or {}).get("text", "")
                selects[id_] = {"id": id_, "label": hint or "Choose", "look": "select", "options": []}
                buttons.append(selects[id_])
            selects[id_]["options"].append([control.id, control.label])
            continue
        is_thumb = kind == "feedback_buttons"
        look = str(control.element.get("style") or "plain")
        thumb = ("👍" if control.option is control.element.get("positive_button") else "👎") if is_thumb else ""
        buttons.append(
            {
                "id": control.id,
                "label": control.label,
                "said": control.accessibility_label,
                "look": look,
                "emoji": thumb,
            }
        )
    return buttons
