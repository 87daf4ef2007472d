"""Parser that turns Discord messages into inbox messages."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import discord

from channels.discord.client.api import USER_MESSAGE_TYPES
from channels.discord.events.content import MessageContent, read_content
from channels.discord.events.thread_titles import parse_thread
from channels.discord.session_ids import (
    EPHEMERAL,
    PLATFORM,
    event_key,
    guild_id_of,
    place_id,
    session_id,
    snowflake_time,
    thread_id_of,
)
from channels.discord.settings import DiscordSettings
from channels.discord.text import addresses_others, remove_mentions
from channels.intake.incoming import IncomingMessage
from core.messages.inbox_message import InboxMessage


def is_from_person(message: discord.Message) -> bool:
    """Return whether a person wrote a message, and not a bot, a webhook or Discord."""
    return not message.author.bot and message.webhook_id is None and message.type in USER_MESSAGE_TYPES


def parse_message(message: discord.Message, bot: discord.abc.User, settings: DiscordSettings) -> IncomingMessage | None:
    """Return a person's message (see `is_from_person`) as an inbox message, if it is for the bot.

    A direct message is always for the bot. In a server, a message must mention the bot or reply to it. That is not
    needed in a thread, nor in a free channel unless the message `is_for_others`. An empty message in a server must
    mention the bot. The author's roles and the location are not set.
    """
    guild = guild_id_of(message)
    channel = message.channel
    is_for_bot = guild is None or is_mention(message, bot) or _is_reply_to(message, bot)
    is_free = not is_for_bot and _is_in_free_channel(message, bot, settings.free_channels)
    if not (is_for_bot or is_free) and not isinstance(channel, discord.Thread):
        return None
    content = read_content(message)
    if not (guild is None or is_mention(message, bot)) and content.is_empty:  # the message content intent is missing
        return None
    references = (*_parse_references(message, content), *parse_thread(channel, bot))
    address = {
        "channel": str(channel.id),
        "message": str(message.id),
        "speaker": message.author.display_name,
        "author": str(message.author.id),
        "locale": _get_guild_locale(message.guild),
    }
    if guild:
        address["guild"] = str(guild)
    inbound = InboxMessage(
        event_key=event_key(channel.id, message.id),
        session_id=session_id(guild, channel, message.author.id, settings.sessions),
        place=place_id(guild, channel),
        platform=PLATFORM,
        address=address,
        author=str(message.author.id),
        text=_format_text(content, message, bot),
        sent_at=snowflake_time(message.id),
        attachments=content.files,
        references=references,
        is_in_thread=isinstance(channel, discord.Thread),
        replied_id=next((str(to["message"]) for to in references if "message" in to), ""),
    )
    return IncomingMessage(
        inbound,
        is_for_bot or is_free,
        is_free_channel=is_free,
        addresses_others=addresses_others(message.content, message.author.id),
        command_prefix=settings.command_prefix,
    )


def is_mention(message: discord.Message, bot: discord.abc.User) -> bool:
    """Return whether a message mentions the bot, or the role that Discord made for it."""
    role = _get_bot_role(message)
    return bot in message.mentions or (role is not None and role in message.role_mentions)


def parse_text(message: discord.Message, bot: discord.abc.User) -> str:
    """Return a message's `MessageContent.markup` with names, without mentions of the bot."""
    return _format_text(read_content(message), message, bot)


def _format_text(content: MessageContent, message: discord.Message, bot: discord.abc.User) -> str:
    role = _get_bot_role(message)
    own_ids = [bot.id] if role is None else [bot.id, role.id]
    return replace(content, text=remove_mentions(content.text, *own_ids)).format_text()


def _parse_references(message: discord.Message, content: MessageContent) -> Iterator[dict[str, Any]]:
    """Yield the messages that a message replies to or forwards, for `InboxMessage.references`.

    A reply to a message in another channel is left out: not all readers of the reply may see that channel.
    """
    to = message.reference
    if to is not None and message.type is discord.MessageType.reply and to.channel_id == message.channel.id:
        yield {"channel": str(to.channel_id), "message": str(to.message_id)}
    for part in content.forwarded:
        files = [asdict(file) for file in part.files]
        yield {"text": part.format_text(), "at": part.sent_at, "files": files}


def _get_bot_role(message: discord.Message) -> discord.Role | None:
    """Return the role that Discord made for the bot in the server."""
    return message.guild.self_role if message.guild else None


def _is_reply_to(message: discord.Message, user: discord.abc.User) -> bool:
    """Return whether a message replies to a user, as far as Discord has sent the message replied to."""
    quoted = message.reference.resolved if message.reference else None
    return isinstance(quoted, discord.Message) and quoted.author == user


def _is_in_free_channel(message: discord.Message, bot: discord.abc.User, channels: frozenset[int]) -> bool:
    """Return whether a message is in a free channel and not addressed to other people."""
    channel = message.channel
    parent = channel.parent_id if isinstance(channel, discord.Thread) else None
    return (channel.id in channels or parent in channels) and not is_for_others(message, bot)


def is_for_others(message: discord.Message, bot: discord.abc.User) -> bool:
    """Return whether a message mentions a role or another user, or replies to a user.

    A mention of the bot's user, or a reply to it, does not count. A mention of the bot's own role does.
    """
    quoted = message.reference.resolved if message.reference else None
    is_reply = isinstance(quoted, discord.Message) and quoted.author != bot
    return is_reply or bool(message.role_mentions) or any(mention != bot for mention in message.mentions)


def _get_guild_locale(guild: discord.Guild | None) -> str:
    """Return the locale that a server has chosen, such as `ko`; empty for none.

    Discord: only a community server has chosen a locale.
    """
    return guild.preferred_locale.value if guild is not None and "COMMUNITY" in guild.features else ""


def move_to_thread(incoming: IncomingMessage) -> IncomingMessage | None:
    """Return a message with the session and address of a thread to start on it.

    The caller starts the thread. Discord: the thread has the id of the message.
    """
    inbound = incoming.inbound
    is_private = inbound.place.startswith((f"{PLATFORM}:dm:", f"{PLATFORM}:{EPHEMERAL}:"))
    if is_private or thread_id_of(inbound.session_id) is not None:
        return None
    message = inbound.address["message"]
    address = {**inbound.address, "channel": message, "root": inbound.address["channel"]}
    return replace(incoming, inbound=replace(inbound, session_id=f"{inbound.place}:{message}", address=address))
