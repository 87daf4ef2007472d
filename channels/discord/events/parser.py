"""What of all that Discord tells is meant for the bot."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import discord

from channels.discord.client.api import SPOKEN
from channels.discord.events.content import names_in, passed_on, said, says_nothing
from channels.discord.session_ids import ASIDE, NAME, event_key, guild_of, place, sent_at, session_id, thread_of
from channels.discord.settings import DiscordSettings
from channels.discord.text import without_mention
from channels.intake.handler import IncomingMessage
from core.inbox_message import Attachment, InboxMessage, storable_text


def is_spoken(message: discord.Message) -> bool:
    """Whether a person wrote it."""
    return not message.author.bot and message.webhook_id is None and message.type in SPOKEN


def hear(message: discord.Message, bot: discord.abc.User, settings: DiscordSettings) -> IncomingMessage | None:
    """The call in a message that a person wrote, if it is one."""
    guild, channel = guild_of(message), message.channel
    is_called = guild is None or is_named(message, bot) or _is_reply_to(message, bot)
    is_free = not is_called and _is_free(message, bot, settings.free_channels)
    if not (is_called or is_free) and not isinstance(channel, discord.Thread):
        return None
    if not (guild is None or is_named(message, bot)) and says_nothing(message):  # withheld for want of the intent
        return None
    inbound = InboxMessage(
        event_key=event_key(channel.id, message.id),
        session_id=session_id(guild, channel, message.author.id, settings.sessions),
        place=place(guild, channel),
        channel=NAME,
        address={
            "channel": str(channel.id),
            "message": str(message.id),
            "speaker": message.author.display_name,
            "author": str(message.author.id),
            "locale": _locale(message.guild),
            **({"guild": str(guild)} if guild else {}),
        },
        author=str(message.author.id),
        text=text_of(message, bot),
        sent_at=sent_at(message.id),
        attachments=attachments_of(message),
        brings=tuple(_brings(message)),
    )
    return IncomingMessage(inbound, is_called or is_free, is_free_channel=is_free)


def is_named(message: discord.Message, bot: discord.abc.User) -> bool:
    """Whether it mentions the bot. Discord: a bot's own role goes by its name."""
    role = _self_role(message)
    return bot in message.mentions or (role is not None and role in message.role_mentions)


def text_of(message: discord.Message, bot: discord.abc.User) -> str:
    """What was said, names in place of ids, without the mention of the bot."""
    role = _self_role(message)
    own = [bot.id] if role is None else [bot.id, role.id]
    return storable_text(said(message, names_in(message), without_mention(message.content, *own)))


def _brings(message: discord.Message) -> Iterator[dict[str, Any]]:
    """Where the message is that it replies to, and what it passes on."""
    to = message.reference
    if to is not None and to.message_id is not None and message.type is discord.MessageType.reply:
        yield {"channel": str(to.channel_id), "message": str(to.message_id)}
    yield from passed_on(message)


def _self_role(message: discord.Message) -> discord.Role | None:
    """Discord: the bot's own role goes by its name."""
    return message.guild.self_role if message.guild else None


def _is_reply_to(message: discord.Message, user: discord.abc.User) -> bool:
    """Whether it replies to what `user` has said; who replies may leave the mention out."""
    quoted = message.reference.resolved if message.reference else None
    return isinstance(quoted, discord.Message) and quoted.author == user


def _is_free(message: discord.Message, bot: discord.abc.User, channels: frozenset[int]) -> bool:
    """Whether it was said where nobody has to be mentioned, and to nobody else."""
    channel = message.channel
    parent = channel.parent_id if isinstance(channel, discord.Thread) else None
    return (channel.id in channels or parent in channels) and not is_to_others(message, bot)


def is_to_others(message: discord.Message, bot: discord.abc.User) -> bool:
    """Return whether a message mentions somebody, or replies to a message of somebody, other than the bot."""
    quoted = message.reference.resolved if message.reference else None
    is_reply = isinstance(quoted, discord.Message) and quoted.author != bot
    return is_reply or bool(message.role_mentions) or any(one != bot for one in message.mentions)


def attachments_of(message: discord.Message) -> tuple[Attachment, ...]:
    return tuple(_attachment(file, message) for file in message.attachments)


def _locale(guild: discord.Guild | None) -> str:
    """The language of a server. Discord: one that is no community has not chosen any, and is said to speak English."""
    return guild.preferred_locale.value if guild is not None and "COMMUNITY" in guild.features else ""


def threaded(call: IncomingMessage) -> IncomingMessage | None:
    """The call as the first one of a thread that is begun from its message; none where there can be no such thread.

    Discord: such a thread has the id of the message.
    """
    inbound = call.inbound
    is_private = inbound.place.startswith((f"{NAME}:dm:", f"{NAME}:{ASIDE}:"))
    if is_private or thread_of(inbound.session_id) is not None:
        return None
    message = inbound.address["message"]
    address = {**inbound.address, "channel": message, "root": inbound.address["channel"]}
    return replace(call, inbound=replace(inbound, session_id=f"{inbound.place}:{message}", address=address))


def _attachment(file: discord.Attachment, message: discord.Message) -> Attachment:
    return Attachment(
        name=storable_text(file.filename),
        mime_type=file.content_type,
        size=file.size,
        source={"url": file.url, "id": str(file.id), "channel": message.channel.id, "message": message.id},
    )
