"""Text of Discord messages: content, stickers, polls, embeds, forwarded messages."""

from collections.abc import Mapping
from typing import Any

import discord

from channels.discord.text import find_mentions, replace_tokens
from core.identity import clean_name
from core.inbox_message import format_file_name

MentionNames = Mapping[tuple[str, int], str]

#: Placeholders for content that is not text.
STICKER, POLL, VOICE = "[sticker: {}]", "[poll: {}]", "[voice message]"


def get_mention_names(message: discord.Message) -> dict[tuple[str, int], str]:
    """Return the names of the users, roles and channels that a message mentions.

    Returns:
        The names that Discord sent with the message, by sign (`@`, `@&` or `#`) and id.
    """
    names = {("@", user.id): user.display_name for user in message.mentions}
    names |= {("@&", role.id): role.name for role in message.role_mentions}
    names |= {("#", channel.id): channel.name for channel in message.channel_mentions}
    return names


def get_message_text(
    message: discord.Message | discord.MessageSnapshot, names: MentionNames, content: str | None = None
) -> str:
    """Return a message's content, stickers, poll and voice note as text.

    Embeds and files are left out. The text is empty if there is nothing else.

    Args:
        names: the names of mentioned users, roles and channels: see `get_mention_names`. A mention without a name
            becomes its id.
        content: a text to use in place of the message's content; None for the content.
    """
    text = replace_tokens(message.content if content is None else content, names)
    parts = [text, *(STICKER.format(clean_name(sticker.name)) for sticker in message.stickers)]
    poll: discord.Poll | None = getattr(message, "poll", None)
    if poll is not None:
        answers = " / ".join(answer.text or str(answer.emoji or "") for answer in poll.answers)
        parts.append(POLL.format(f"{poll.question} - {answers}"))
    if message.flags.voice:
        parts.append(VOICE)
    return "\n".join(filter(None, parts))


def get_context_text(message: discord.Message | discord.MessageSnapshot, names: MentionNames) -> str:
    """Return a context message as text, with its embeds and the names of its files.

    Embeds of a message with text are left out, since they are link previews; those of apps' messages are not.

    Args:
        names: the names of mentioned users, roles and channels: see `get_mention_names`. A mention without a name
            becomes its id.
    """
    files = ", ".join(format_file_name(file.filename) for file in message.attachments)
    is_plain = bool(message.content) and not _is_by_app(message)  # its embeds are link previews
    embeds = [] if is_plain else [_get_embed_text(embed) for embed in message.embeds]
    return "\n".join(filter(None, [get_message_text(message, names), *embeds, f"[files: {files}]" if files else ""]))


def get_forwarded_messages(message: discord.Message) -> list[dict[str, Any]]:
    """Return the text and the time of each message that a message forwards.

    Discord does not send their authors.

    Returns:
        Mappings with `text` and `at` (seconds since the epoch).
    """
    return [
        {
            "text": get_context_text(snapshot, _get_cached_names(message.guild, snapshot.content)),
            "at": snapshot.created_at.timestamp(),
        }
        for snapshot in message.message_snapshots
    ]


def _get_cached_names(guild: discord.Guild | None, text: str) -> dict[tuple[str, int], str]:
    """Return the names of the roles and channels that a text mentions.

    Args:
        guild: the server, in whose discord.py cache the names are looked up; None for direct messages.

    Returns:
        The known names by sign (`@&` or `#`) and id.
    """
    names = dict[tuple[str, int], str]()
    if guild is None:
        return names
    for sign, id_ in find_mentions(text):
        if found := guild.get_role(id_) if sign == "@&" else guild.get_channel_or_thread(id_):
            names[sign, id_] = found.name
    return names


def is_empty(message: discord.Message) -> bool:
    """Return whether a message has no text, files or forwarded messages.

    Text includes stickers, polls and voice notes, but no embeds: see `get_message_text`.

    Discord: without the message content intent, messages come without content, files and polls. Exceptions are direct
    messages, messages that mention the bot, and its own. Stickers, voice notes and forwarded messages always come.
    """
    return not (get_message_text(message, {}) or message.attachments or message.message_snapshots)


def _is_by_app(message: discord.Message | discord.MessageSnapshot) -> bool:
    return isinstance(message, discord.Message) and message.author.bot


def _get_embed_text(embed: discord.Embed) -> str:
    fields = (f"{field.name}: {field.value}" for field in embed.fields)
    return "\n".join(filter(None, [embed.title, embed.description, *fields]))
