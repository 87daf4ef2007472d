"""What a message of Discord's says, wherever in it that stands."""

from collections.abc import Mapping
from typing import Any

import discord

from channels.discord.text import named, to_words

Names = Mapping[tuple[str, int], str]

#: What is not text, and what it goes by.
STICKER, POLL, VOICE = "[sticker: {}]", "[poll: {}]", "[voice message]"


def names_in(message: discord.Message) -> dict[tuple[str, int], str]:
    """Who is named in it, as far as Discord has told."""
    names = {("@", user.id): user.display_name for user in message.mentions}
    names |= {("@&", role.id): role.name for role in message.role_mentions}
    names |= {("#", channel.id): channel.name for channel in message.channel_mentions}
    return names


def said(message: discord.Message | discord.MessageSnapshot, names: Names, content: str | None = None) -> str:
    """The words of a message, and by name what is no text; not its files.

    Args:
        content: what is taken for its text.
    """
    text = to_words(message.content if content is None else content, names)
    parts = [text, *(STICKER.format(sticker.name) for sticker in message.stickers)]
    poll: discord.Poll | None = getattr(message, "poll", None)
    if poll is not None:
        answers = " / ".join(answer.text or str(answer.emoji or "") for answer in poll.answers)
        parts.append(POLL.format(f"{poll.question} - {answers}"))
    if message.flags.voice:
        parts.append(VOICE)
    return "\n".join(filter(None, parts))


def shown(message: discord.Message | discord.MessageSnapshot, names: Names) -> str:
    """The same of a message that is not answered: with what is embedded in it, and its files by name."""
    files = ", ".join(file.filename for file in message.attachments)
    is_plain = bool(message.content) and not _is_of_app(message)  # what is embedded are previews of its links
    embeds = [] if is_plain else [_of_embed(embed) for embed in message.embeds]
    return "\n".join(filter(None, [said(message, names), *embeds, f"[files: {files}]" if files else ""]))


def passed_on(message: discord.Message) -> list[dict[str, Any]]:
    """The messages that it forwards, in words. Discord tells not whose they are, nor whom they name."""
    return [
        {"text": shown(snapshot, _known(message.guild, snapshot.content)), "at": snapshot.created_at.timestamp()}
        for snapshot in message.message_snapshots
    ]


def _known(guild: discord.Guild | None, text: str) -> dict[tuple[str, int], str]:
    """The roles and channels that a text has, as far as discord.py has them."""
    names = dict[tuple[str, int], str]()
    if guild is None:
        return names
    for sign, id_ in named(text):
        if found := guild.get_role(id_) if sign == "@&" else guild.get_channel_or_thread(id_):
            names[sign, id_] = found.name
    return names


def says_nothing(message: discord.Message) -> bool:
    """Whether nothing of it is to be seen; so it is where the text is withheld for want of the intent."""
    return not (said(message, {}) or message.attachments or message.message_snapshots)


def _is_of_app(message: discord.Message | discord.MessageSnapshot) -> bool:
    return isinstance(message, discord.Message) and message.author.bot


def _of_embed(embed: discord.Embed) -> str:
    fields = (f"{field.name}: {field.value}" for field in embed.fields)
    return "\n".join(filter(None, [embed.title, embed.description, *fields]))
