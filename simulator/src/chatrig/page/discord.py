"""Discord's half of the simulator's web page."""

import re
from collections.abc import Mapping
from html import escape, unescape
from time import monotonic
from typing import Any

from chatrig.client.discord import DiscordPlatform
from chatrig.client.discord_inputs import list_menus
from chatrig.client.forms import ClientForm
from chatrig.client.platform import shorten_text
from chatrig.client.session import ChatSession
from chatrig.discord import DiscordMessage, DiscordSimulator
from chatrig.discord.interactions.commands import MESSAGE, SLASH
from chatrig.discord.state.activity_log import DiscordCallRecord
from chatrig.discord.state.mentions import replace_ids
from chatrig.discord.state.messages import JOIN, PIN, THREAD_STARTER, DiscordContent, iterate_components
from chatrig.page.markdown import render_discord, render_link
from chatrig.page.pane import Json, create_file_view, create_menu_view, find_message, format_local_time, sort_commands

#: Discord: duration of the typing indicator ("Trigger Typing Indicator").
TYPING_SECONDS = 10.0
_TYPING_ROUTE = "POST /channels/{channel}/typing"

#: CSS classes by button style. Discord: "Button Styles".
_BUTTON_STYLES = {1: "primary", 3: "success", 4: "danger", 5: "link"}

_BLOCK_END = re.compile(r"</(?:p|pre|li|h\d|blockquote)>|<br ?/?>")
_TAG = re.compile(r"<[^>]*>")

_SYSTEM_TEXTS = {JOIN: "joined the server", PIN: "pinned a message to this channel"}


class DiscordPane:
    """`PlatformPane` for the local Discord: JSON for the browser, and users' actions."""

    def __init__(self, discord: DiscordSimulator) -> None:
        self.platform = DiscordPlatform(discord)
        self._discord = discord
        self._html_cache: dict[str, tuple[object, str]] = {}

    def create_message_views(self, session: ChatSession) -> list[Json]:
        place = session.place
        threads = self._discord.threads(place.channel)
        messages = self._discord.messages(place.channel)
        if place.thread is not None:
            inside = [m for thread in threads if thread.id == place.thread for m in self._discord.messages(thread)]
            messages = [*(m for m in messages if m.id == place.thread), *inside]
        elif any(c.id == place.channel and c.kind == "forum" for c in self._discord.channels.values()):
            messages = [first for post in threads for first in self._discord.messages(post)[:1]]
        visible_messages = [
            message
            for message in sorted(messages, key=lambda message: int(message.id))
            if message.type != THREAD_STARTER
            and (message.ephemeral_to is None or message.ephemeral_to.id == session.user.id)
        ]
        names, user_id = self._names_by_id, session.user.id
        return [
            self._create_message_view(message, user_id, names, in_thread=place.thread is not None)
            for message in visible_messages
        ]

    def render_form_text(self, session: ChatSession, form: ClientForm) -> str:
        del session
        return render_discord(form.text, self._names_by_id)

    def create_state_view(self, session: ChatSession) -> Json:
        return {
            "typing": f"{self.platform.bot_name} is typing…" if self._is_typing(session) else "",
            "title": "",
            "commands": sort_commands(
                [_create_command_view(c) for c in self._discord.commands if c.get("type", SLASH) == SLASH]
            ),
            "suggested_prompts": [],
        }

    async def toggle_reaction(self, session: ChatSession, message: str, emoji: str) -> None:
        target = self._find_message(session, message)
        if session.user.id in target.reactions.get(emoji, ()):
            await self._discord.remove_reaction(session.user.id, target, emoji)
        else:
            await self._discord.add_reaction(session.user.id, target, emoji)

    async def use_menu_entry(self, session: ChatSession, message: str, entry: str) -> None:
        if not any(c["name"] == entry and c.get("type") == MESSAGE for c in self._discord.commands):
            raise ValueError(f"There is no command {entry!r} in the menu.")
        await self.platform.use_menu_entry(session.user, find_message(session, message), entry, "")

    def get_file(self, key: str) -> tuple[str, bytes]:
        file = self._discord.find_file(key)
        if file is None:
            raise ValueError("This file does not exist.")
        return file.name, file.data

    @property
    def _names_by_id(self) -> Mapping[str, str]:
        """Names of the users, the channels, the bot and its role, by id."""
        discord = self._discord
        people = {user.id: user.name for user in discord.people.values()}
        channels = {channel.id: channel.name for channel in discord.channels.values()}
        bot = self.platform.bot_name
        return people | channels | {discord.bot_id: bot, discord.bot_role_id: bot}

    def _is_typing(self, session: ChatSession) -> bool:
        """Return whether the bot's typing indicator is visible in the open channel.

        The indicator lasts from the API call until the bot's next message, for at most `TYPING_SECONDS`.
        """
        channel = session.place.thread or session.place.channel

        def is_typing_call(call: DiscordCallRecord) -> bool:
            return call.route == _TYPING_ROUTE and call.path.split("/")[2] == channel and call.status < 300

        last = next((call.received_at for call in reversed(self._discord.calls[-200:]) if is_typing_call(call)), None)
        if last is None or monotonic() - last > TYPING_SECONDS:
            return False
        posted_times = (
            version.shown_at for m in self._discord.messages(channel) for version in m.versions[:1] if m.author.is_bot
        )
        return max(posted_times, default=0.0) < last

    def _find_message(self, session: ChatSession, id_: str) -> DiscordMessage:
        channel = session.place.channel
        inside = (m for thread in self._discord.threads(channel) for m in self._discord.messages(thread))
        match = next((m for m in (*self._discord.messages(channel), *inside) if m.id == id_), None)
        if match is None:
            raise ValueError("This message was deleted.")
        return match

    def _create_message_view(
        self, message: DiscordMessage, user_id: str, names: Mapping[str, str], *, in_thread: bool
    ) -> Json:
        content = message.content
        author = names.get(message.author.id, message.author.name)
        return {
            "id": message.id,
            "author": author,
            "bot": message.author.id == self._discord.bot_id,
            "app": message.author.is_bot,
            "time": format_local_time(message.posted_at.timestamp()),
            "html": "" if message.loading else self._render_html(message, names),
            "loading": f"{author} is thinking…" if message.loading else "",
            "system": _SYSTEM_TEXTS.get(message.type, ""),
            "tasks": [],
            "edited": message.edited,
            "versions": len(message.versions),
            "ephemeral": message.ephemeral_to is not None,
            "own": message.author.id == user_id and message.type not in _SYSTEM_TEXTS,
            "source": replace_ids(content.text, names) if message.author.id == user_id else "",
            "pings": user_id in message.pings or bool({"everyone", "here"} & message.pings),
            "reference": self._create_reference_view(message, names),
            "files": [
                create_file_view(file.name, len(file.data), f"/files/discord/{file.id}", file.description or "")
                for file in content.attachments
            ],
            "controls": [
                *map(create_menu_view, list_menus(self._discord, message)),
                *_create_button_views(content),
            ],
            "reactions": [
                {"key": emoji, "emoji": emoji, "count": len(users), "mine": user_id in users}
                for emoji, users in message.reactions.items()
            ],
            "thread": None if in_thread else self._create_thread_view(message),
        }

    def _create_thread_view(self, message: DiscordMessage) -> Json | None:
        """Return the thread or forum post that begins with a message as JSON.

        Keys: `id`, `name`, and `count` (number of replies). None if the message begins no thread.
        """
        thread = message.thread or (message.channel if message.channel.id == message.id else None)
        if thread is None:
            return None
        replies = [m for m in self._discord.messages(thread) if m.type != THREAD_STARTER and m.id != thread.id]
        return {"id": thread.id, "name": thread.name, "count": len(replies)}

    def _create_reference_view(self, message: DiscordMessage, names: Mapping[str, str]) -> Json | None:
        """Return the line above a message as JSON: `author`, `text` and message `id`.

        For a response to a slash command, it names the user of the command, and `id` is "". For a reply, it quotes the
        message to which this one replies. It is None for any other message.
        """
        if message.interaction_metadata is not None and message.interaction_metadata.type == 2:
            user = message.interaction_metadata.user
            return {"author": names.get(user.id, user.name), "text": "used a command", "id": ""}
        replied = message.reply_to
        if replied is None:
            return None
        text = (
            "Original message was deleted"
            if replied.deleted
            else shorten_text(_remove_markup(replied.content.text, names), 90) or "Click to see attachment"
        )
        return {"author": names.get(replied.author.id, replied.author.name), "text": text, "id": replied.id}

    def _render_html(self, message: DiscordMessage, names: Mapping[str, str]) -> str:
        content = message.content
        cached_content, html = self._html_cache.get(message.id, (None, ""))
        if cached_content is not content:
            parts = [render_discord(content.text, names)]
            if message.forwarded_message is not None:
                parts.append(
                    f"<blockquote>{render_discord(message.forwarded_message.content.text, names)}</blockquote>"
                )
            parts += [_render_component(part, names) for part in content.components]
            html = "".join([*parts, *(_render_embed(embed, names) for embed in content.embeds)])
            self._html_cache[message.id] = content, html
        return html


def _remove_markup(text: str, names: Mapping[str, str]) -> str:
    """Return Discord's Markdown as text without marks, with names in place of ids."""
    return unescape(_TAG.sub("", _BLOCK_END.sub(" ", render_discord(text, names))))


def _create_command_view(command: Mapping[str, Any]) -> dict[str, str]:
    options = " ".join(f"{option['name']}:" for option in command.get("options", ()))
    return {"name": command["name"], "usage": options, "description": command.get("description") or ""}


def _create_button_views(content: DiscordContent) -> list[Json]:
    """Return the buttons of a message as JSON for the browser.

    Keys: `id` (the custom id), `label`, `emoji` (its name or character), `style` (a CSS class: `primary`, `success`,
    `danger`, `link` or `plain`), `disabled`, and `url` (None for none). Missing texts are "".
    """
    buttons: list[Json] = []
    for part in iterate_components(content.components):
        if part.get("type") == 2:
            emoji = (part.get("emoji") or {}).get("name") or ""
            style = _BUTTON_STYLES.get(part.get("style", 2), "plain")
            label, id_ = part.get("label") or "", part.get("custom_id") or ""
            button = {"id": id_, "label": label, "emoji": emoji, "style": style}
            buttons.append(button | {"disabled": bool(part.get("disabled")), "url": part.get("url")})
    return buttons


def _render_component(component: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Return the texts and separators of a message component as HTML.

    The page shows files, buttons and menus elsewhere in the message. Media of other hosts are links: the page loads
    nothing from them.
    """
    media = [component, *component.get("items", ()), component.get("accessory") or {}]
    links = [(item["media"]["url"], item.get("description")) for item in media if "media" in item]
    match component["type"]:
        case 10:
            return render_discord(component["content"], names)
        case 14:
            return "<hr>" if component.get("divider", True) else ""
    inner = [_render_component(part, names) for part in component.get("components", ())]
    inner += [f"<p>{render_link(url, text or url)}</p>" for url, text in links if url.startswith("http")]
    return f'<div class="embed">{"".join(inner)}</div>' if component["type"] == 17 else "".join(inner)


def _render_embed(embed: Mapping[str, Any], names: Mapping[str, str]) -> str:
    title, url = str(embed.get("title") or ""), str(embed.get("url") or "")
    parts = [f"<strong>{render_link(url, title) if url else escape(title)}</strong>"] if title else []
    parts += [render_discord(str(embed["description"]), names)] if embed.get("description") else []
    for field in embed.get("fields") or ():
        name, value = escape(str(field["name"])), render_discord(str(field["value"]), names)
        parts.append(f"<div><strong>{name}</strong>{value}</div>")
    if footer := (embed.get("footer") or {}).get("text"):
        parts.append(f'<p class="subtext">{escape(str(footer))}</p>')
    return f'<div class="embed">{"".join(parts)}</div>'
