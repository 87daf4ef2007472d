"""Discord's side of the page."""

from collections.abc import Mapping
from html import escape
from time import monotonic
from typing import Any

from sandbox.client.discord import DiscordPlatform
from sandbox.client.platform import shorten_text
from sandbox.client.session import ClientSession
from sandbox.discord import DiscordMessage, DiscordSandbox
from sandbox.discord.interactions.commands import MESSAGE, SLASH
from sandbox.discord.state.activity_log import DiscordCallRecord
from sandbox.discord.state.guild import JOIN, PIN, THREAD_STARTER
from sandbox.discord.state.mentions import replace_ids
from sandbox.page.markdown import link, of_discord
from sandbox.page.pane import Json, clock, commands_of, seen, shown_file

#: Seconds for which Discord shows that somebody types. Discord: "Trigger Typing Indicator".
TYPING = 10.0
_TYPING = "POST /channels/{channel}/typing"

#: How the styles of buttons are called here. Discord: "Button Styles".
_LOOKS = {1: "primary", 3: "success", 4: "danger", 5: "link"}

_SYSTEM = {JOIN: "has joined the server", PIN: "has pinned a message to this channel"}


class DiscordPane:
    def __init__(self, discord: DiscordSandbox) -> None:
        self.platform = DiscordPlatform(discord)
        self._discord = discord
        self._made: dict[str, tuple[object, str]] = {}

    def messages(self, session: ClientSession) -> list[Json]:
        place = session.place
        threads = self._discord.threads(place.channel)
        standing = self._discord.messages(place.channel)
        if place.thread is not None:
            inside = [m for thread in threads if thread.id == place.thread for m in self._discord.messages(thread)]
            standing = [*(m for m in standing if m.id == place.thread), *inside]
        elif any(c.id == place.channel and c.kind == "forum" for c in self._discord.channels.values()):
            standing = [first for post in threads for first in self._discord.messages(post)[:1]]
        found = [
            message
            for message in sorted(standing, key=lambda message: int(message.id))
            if message.type != THREAD_STARTER
            and (message.ephemeral_to is None or message.ephemeral_to.id == session.user.id)
        ]
        names, me = self._names, session.user.id
        return [self._message(message, me, names, in_thread=place.thread is not None) for message in found]

    def about(self, session: ClientSession) -> Json:
        return {
            "typing": f"{self.platform.bot_name} is typing…" if self._types(session) else "",
            "title": "",
            "commands": commands_of([_command(c) for c in self._discord.commands if c.get("type", SLASH) == SLASH]),
            "modal": None,
            "prompts": [],
        }

    async def react(self, session: ClientSession, message: str, emoji: str) -> None:
        found = self._found(session, message)
        if session.user.id in found.reactions.get(emoji, ()):
            await self._discord.remove_reaction(session.user.id, found, emoji)
        else:
            await self._discord.add_reaction(session.user.id, found, emoji)

    async def choose(self, session: ClientSession, message: str, entry: str) -> None:
        if not any(c["name"] == entry and c.get("type") == MESSAGE for c in self._discord.commands):
            raise ValueError(f"there is no {entry} in the menu")
        await self.platform.use_menu_entry(session.user, seen(session, message), entry, "")

    async def submit(self, session: ClientSession, modal: str, values: Mapping[str, str]) -> None:
        raise ValueError("it is not open any more")

    def close(self, session: ClientSession, modal: str) -> None:
        raise ValueError("it is not open any more")

    def file(self, key: str) -> tuple[str, bytes]:
        file = self._discord.find_file(key)
        if file is None:
            raise ValueError("there is no such file")
        return file.name, file.data

    @property
    def _names(self) -> Mapping[str, str]:
        discord = self._discord
        people = {user.id: user.name for user in discord.people.values()}
        channels = {channel.id: channel.name for channel in discord.channels.values()}
        bot = self.platform.bot_name
        return people | channels | {discord.bot_id: bot, discord.bot_role_id: bot}

    def _types(self, session: ClientSession) -> bool:
        """Whether the bot has told that it types there, a while ago, and has said nothing since."""
        room = session.place.thread or session.place.channel

        def is_told(call: DiscordCallRecord) -> bool:
            return call.route == _TYPING and call.path.split("/")[2] == room and call.status < 300

        last = next((call.received_at for call in reversed(self._discord.calls[-200:]) if is_told(call)), None)
        if last is None or monotonic() - last > TYPING:
            return False
        said = (version.at for m in self._discord.messages(room) for version in m.versions[:1] if m.author.is_bot)
        return max(said, default=0.0) < last

    def _found(self, session: ClientSession, id_: str) -> DiscordMessage:
        channel = session.place.channel
        inside = (m for thread in self._discord.threads(channel) for m in self._discord.messages(thread))
        found = next((m for m in (*self._discord.messages(channel), *inside) if m.id == id_), None)
        if found is None:
            raise ValueError("the message is gone")
        return found

    def _message(self, message: DiscordMessage, me: str, names: Mapping[str, str], *, in_thread: bool) -> Json:
        content = message.content
        author = names.get(message.author.id, message.author.name)
        return {
            "id": message.id,
            "author": author,
            "bot": message.author.id == self._discord.bot_id,
            "app": message.author.is_bot,
            "time": clock(message.posted_at.timestamp()),
            "html": "" if message.loading else self._html(message, names),
            "loading": f"{author} is thinking…" if message.loading else "",
            "system": _SYSTEM.get(message.type, ""),
            "tasks": [],
            "edited": message.edited,
            "versions": len(message.versions),
            "ephemeral": message.ephemeral_to is not None,
            "own": message.author.id == me and message.type not in _SYSTEM,
            "source": replace_ids(content.text, names) if message.author.id == me else "",
            "pings": me in message.pings or bool({"everyone", "here"} & message.pings),
            "to": self._quoted(message, names),
            "files": [
                shown_file(f.name, len(f.data), f.content_type or "", f"/files/discord/{f.id}", f.description or "")
                for f in content.attachments
            ],
            "buttons": [button for row in content.components for button in _buttons(row)],
            "reactions": [
                {"key": emoji, "emoji": emoji, "count": len(users), "mine": me in users}
                for emoji, users in message.reactions.items()
            ],
            "thread": None if in_thread else self._thread(message),
        }

    def _thread(self, message: DiscordMessage) -> Json | None:
        """The thread that was begun from it, or the post that it begins."""
        thread = message.thread or (message.channel if message.channel.id == message.id else None)
        if thread is None:
            return None
        said = [m for m in self._discord.messages(thread) if m.type != THREAD_STARTER and m.id != thread.id]
        return {"id": thread.id, "name": thread.name, "count": len(said)}

    def _quoted(self, message: DiscordMessage, names: Mapping[str, str]) -> Json | None:
        """What it replies to, or the command that it answers."""
        if message.origin is not None and message.origin.type == 2:
            user = message.origin.user
            return {"author": names.get(user.id, user.name), "text": "used a command", "id": ""}
        asked = message.reply_to
        if asked is None:
            return None
        text = (
            "Original message was deleted"
            if asked.deleted
            else shorten_text(asked.text, 90) or "Click to see attachment"
        )
        return {"author": names.get(asked.author.id, asked.author.name), "text": text, "id": asked.id}

    def _html(self, message: DiscordMessage, names: Mapping[str, str]) -> str:
        content = message.content
        known, html = self._made.get(message.id, (None, ""))
        if known is not content:
            parts = [of_discord(content.text, names)]
            if message.forwarded_message is not None:
                parts.append(f"<blockquote>{of_discord(message.forwarded_message.content.text, names)}</blockquote>")
            html = "".join([*parts, *(_embed(embed, names) for embed in content.embeds)])
            self._made[message.id] = content, html
        return html


def _command(command: Mapping[str, Any]) -> dict[str, str]:
    options = " ".join(f"{option['name']}:" for option in command.get("options", ()))
    return {"name": command["name"], "hint": options, "about": command.get("description") or ""}


def _buttons(row: Mapping[str, Any]) -> list[Json]:
    buttons: list[Json] = []
    for part in row.get("components", ()):
        if part.get("type") == 2:
            emoji = (part.get("emoji") or {}).get("name") or ""
            look = _LOOKS.get(part.get("style", 2), "plain")
            label, id_ = part.get("label") or "", part.get("custom_id") or ""
            button = {"id": id_, "label": label, "emoji": emoji, "look": look}
            buttons.append(button | {"off": bool(part.get("disabled")), "url": part.get("url")})
        elif part.get("type") == 3:
            options = [[option["value"], option["label"]] for option in part.get("options", ())]
            about = {"label": part.get("placeholder") or "Make a selection", "off": True}
            buttons.append({"id": part["custom_id"], "look": "select", "options": options, **about})
    return buttons


def _embed(embed: Mapping[str, Any], names: Mapping[str, str]) -> str:
    title, url = str(embed.get("title") or ""), str(embed.get("url") or "")
    parts = [f"<strong>{link(url, title) if url else escape(title)}</strong>"] if title else []
    parts += [of_discord(str(embed["description"]), names)] if embed.get("description") else []
    for field in embed.get("fields") or ():
        name, value = escape(str(field["name"])), of_discord(str(field["value"]), names)
        parts.append(f"<div><strong>{name}</strong>{value}</div>")
    if footer := (embed.get("footer") or {}).get("text"):
        parts.append(f'<p class="subtext">{escape(str(footer))}</p>')
    return f'<div class="embed">{"".join(parts)}</div>'
