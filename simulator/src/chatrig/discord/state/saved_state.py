"""State of a Discord server as JSON, with which a later simulator continues.

It has the users, channels, threads, DMs, and messages in their newest version. Deleted and ephemeral messages, polls,
forwards, roles, nicknames, webhooks and commands are left out.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from chatrig.discord.state.guild import Guild
from chatrig.discord.state.messages import (
    DiscordAttachment,
    DiscordContent,
    DiscordMessage,
    DiscordUser,
    GuildChannel,
)

Json = dict[str, Any]

_CHANNEL_FIELDS = (
    "id",
    "name",
    "kind",
    "foreign_guild_id",
    "owner_id",
    "tags",
    "applied_tags",
    "category_id",
    "topic",
    "is_nsfw",
    "is_announcement",
    "slow_mode_seconds",
    "is_private",
    "archived",
    "locked",
    "auto_archive_minutes",
)
_CONTENT_FIELDS = ("text", "embeds", "components", "allowed_mentions", "stickers")
_MESSAGE_FIELDS = ("id", "type", "flags", "nonce", "webhook_id", "reactions")
_MESSAGE_TIMES = ("posted_at", "edited_at", "pinned_at")


def save_guild(guild: Guild) -> Json:
    """Return the state of a server as JSON: see `load_guild`."""
    shown = (
        message
        for channel in guild.channels.values()
        for message in guild.list_messages(channel)
        if not message.deleted and message.ephemeral_to is None and message.forwarded_message is None
    )
    return {
        "id": guild.id,
        "bot_id": guild.bot.id,
        "bot_role_id": guild.bot_role_id,
        "users": [asdict(user) for user in guild.users.values()],
        "channels": [_save_channel(channel) for channel in guild.channels.values()],
        "messages": [_save_message(message) for message in sorted(shown, key=lambda message: int(message.id))],
    }


def load_guild(guild: Guild, state: Mapping[str, Any]) -> None:
    """Replace the data of a new server by the result of `save_guild`, without events."""
    guild.id = state["id"]
    guild.bot_role_id = state["bot_role_id"]
    guild.users = {user["id"]: DiscordUser(**user) for user in state["users"]}
    guild.bot = guild.users[state["bot_id"]]
    guild.owner = next((user for user in guild.users.values() if not user.is_bot), None)
    for saved in state["channels"]:
        channel = GuildChannel(**{name: saved[name] for name in _CHANNEL_FIELDS if name in saved})
        channel.members = set(saved["members"]) if "members" in saved else None
        channel.parent = guild.channels[saved["parent"]] if "parent" in saved else None
        channel.dm_user = guild.users[saved["dm_user"]] if "dm_user" in saved else None
        channel.created_at = datetime.fromisoformat(saved["created_at"])
        channel.thread_members = {
            user: datetime.fromisoformat(joined_at) for user, joined_at in saved["thread_members"].items()
        }
        guild.register(channel)
    known: dict[str, DiscordMessage] = {}
    for saved in state["messages"]:
        attachments = [
            DiscordAttachment(**{**file, "data": b64decode(file["data"])}) for file in saved.get("attachments", ())
        ]
        content = DiscordContent(**saved["content"], attachments=attachments)
        details = {name: saved[name] for name in _MESSAGE_FIELDS if name in saved}
        details |= {name: datetime.fromisoformat(saved[name]) for name in _MESSAGE_TIMES if name in saved}
        details |= {"reply_to": known.get(saved.get("reply_to", "")), "thread": guild.channels.get(saved.get("thread"))}
        channel = guild.channels[saved["channel"]]
        known[saved["id"]] = guild.add_message(channel, DiscordUser(**saved["author"]), content, **details)


def _save_channel(channel: GuildChannel) -> Json:
    joined = {user: joined_at.isoformat() for user, joined_at in channel.thread_members.items()}
    saved = _drop_defaults({name: getattr(channel, name) for name in _CHANNEL_FIELDS})
    saved |= {"created_at": channel.created_at.isoformat(), "thread_members": joined}
    if channel.members is not None:
        saved["members"] = sorted(channel.members)
    if channel.parent is not None:
        saved["parent"] = channel.parent.id
    if channel.dm_user is not None:
        saved["dm_user"] = channel.dm_user.id
    return saved


def _save_message(message: DiscordMessage) -> Json:
    content = {name: getattr(message.content, name) for name in _CONTENT_FIELDS}
    saved = {name: getattr(message, name) for name in _MESSAGE_FIELDS}
    saved |= {name: at.isoformat() for name in _MESSAGE_TIMES if (at := getattr(message, name))}
    files = [asdict(file) | {"data": b64encode(file.data).decode()} for file in message.content.attachments]
    saved["attachments"] = files
    saved["reply_to"] = message.reply_to and message.reply_to.id
    saved["thread"] = message.thread and message.thread.id
    required = {"channel": message.channel.id, "author": asdict(message.author), "content": _drop_defaults(content)}
    return _drop_defaults(saved) | required


def _drop_defaults(fields: Json) -> Json:
    """Return the fields without those that are None, False or empty, as by default."""
    return {name: value for name, value in fields.items() if value}
