"""Content of Discord messages: the one reader of text, files and forwarded messages.

Prompts, context messages, quotes, forwards and the test for an empty message use it, so that they agree.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import discord

from channels.discord.session_ids import snowflake_time
from channels.discord.text import find_mentions, replace_tokens
from core.messages.identity import clean_name
from core.messages.inbox_message import Attachment, storable_text

MentionNames = Mapping[tuple[str, int], str]

#: Placeholders for content that is not text.
STICKER, POLL, VOICE = "[sticker: {}]", "[poll: {}]", "[voice message]"
PICTURE, LINK = "[picture: {}]", "[link: {}, {}]"
UNREADABLE = "[a message that cannot be read here]"


@dataclass(frozen=True, slots=True)
class MessageContent:
    """Content that people see in a message, or in the copy of a message that a forward shows.

    Attributes:
        extras: the texts beside it, in Discord's markup: components, embeds, stickers, the poll and a voice note.
        names: the names of mentioned users, roles and channels, as far as Discord sent them, by sign and id.
        files: the files; without those of `forwarded`.
        forwarded: the forwarded messages. Discord nests no forwards: the forward of a forward has the first message.
    """

    text: str
    extras: tuple[str, ...]
    names: MentionNames
    files: tuple[Attachment, ...]
    sent_at: float
    forwarded: "tuple[MessageContent, ...]" = ()

    @property
    def parts(self) -> "tuple[MessageContent, ...]":
        """This content and the forwarded ones."""
        return (self, *self.forwarded)

    @property
    def is_empty(self) -> bool:
        """True without any text or file.

        Discord: without the message content intent, messages come without content, embeds, components, files and polls.
        Exceptions are direct messages, messages that mention the bot, and its own. Stickers, voice notes and forwarded
        messages always come.
        """
        return not (self.markup or self.files or self.forwarded)

    @property
    def markup(self) -> str:
        """All texts in Discord's markup, without those of `forwarded`."""
        return "\n".join(filter(None, (self.text, *self.extras)))

    @property
    def all_files(self) -> tuple[Attachment, ...]:
        """The files, with those of `forwarded`."""
        return tuple(file for part in self.parts for file in part.files)

    def format_text(self, names: MentionNames | None = None) -> str:
        """Return `markup` with names in place of ids; a mention without a name becomes its id."""
        return storable_text(replace_tokens(self.markup, {**(names or {}), **self.names}))

    def format_all(self, names: MentionNames | None = None) -> str:
        """Return the text with that of the forwarded messages: see `format_text`."""
        return "\n".join(filter(None, (part.format_text(names) for part in self.parts)))


def read_content(message: discord.Message) -> MessageContent:
    return MessageContent(
        message.content,
        tuple(_list_extras(message)),
        _get_mention_names(message),
        _parse_files(message.attachments, message),
        snowflake_time(message.id),
        tuple(_read_snapshot(snapshot, message) for snapshot in message.message_snapshots),
    )


def _read_snapshot(snapshot: discord.MessageSnapshot, message: discord.Message) -> MessageContent:
    """Return the content of a forwarded message; Discord renews the URLs of its files in `message`."""
    extras = tuple(_list_extras(snapshot))
    if not (snapshot.content or extras or snapshot.attachments):
        extras = (UNREADABLE,)
    return MessageContent(
        snapshot.content,
        extras,
        _get_cached_names(message.guild, "\n".join((snapshot.content, *extras))),
        _parse_files(snapshot.attachments, message),
        snapshot.created_at.timestamp(),
    )


def _list_extras(message: discord.Message | discord.MessageSnapshot) -> Iterator[str]:
    yield from _list_component_texts(message.components, {file.id for file in message.attachments})
    yield from map(_get_embed_text, _list_app_embeds(message))
    yield from (STICKER.format(clean_name(sticker.name)) for sticker in message.stickers)
    poll: discord.Poll | None = getattr(message, "poll", None)
    if poll is not None:
        answers = " / ".join(answer.text or str(answer.emoji or "") for answer in poll.answers)
        yield POLL.format(f"{poll.question} - {answers}")
    if message.flags.voice:
        yield VOICE


def _list_app_embeds(message: discord.Message | discord.MessageSnapshot) -> list[discord.Embed]:
    """Return the embeds that an app wrote; previews of links are left out.

    Discord: embeds of apps have the type `rich` and no provider. A preview may have that type as well, so the embeds
    of a person's text are all left out. A forward does not tell the author.
    """
    if isinstance(message, discord.Message) and message.content and not message.author.bot:
        return []
    return [embed for embed in message.embeds if embed.type == "rich" and not embed.provider]


def _get_embed_text(embed: discord.Embed) -> str:
    fields = (f"{field.name}: {field.value}" for field in embed.fields)
    picture = _name_picture(embed.image.url, None) if embed.image.url else ""
    lines = (embed.author.name, embed.title, embed.url, embed.description, *fields, picture, embed.footer.text)
    return "\n".join(filter(None, lines))


def _list_component_texts(components: Sequence[Any], file_ids: set[int]) -> Iterator[str]:
    """Yield the texts of components, in order; those of buttons and menus that only act are left out."""
    for component in components:
        match component:
            case discord.TextDisplay(content=text):
                yield text
            case discord.Button(url=str(url)):
                yield LINK.format(component.label or component.emoji or "", url)
            case discord.MediaGalleryComponent(items=items):
                yield from (_get_media_text(item.media, item.description, file_ids) for item in items)
            case discord.ThumbnailComponent(media=media, description=description):
                yield _get_media_text(media, description, file_ids)
            case discord.SectionComponent(children=children, accessory=accessory):
                yield from _list_component_texts([*children, accessory], file_ids)
            case discord.Container(children=children) | discord.ActionRow(children=children):
                yield from _list_component_texts(children, file_ids)


def _get_media_text(media: discord.UnfurledMediaItem, description: str | None, file_ids: set[int]) -> str:
    is_file = media.attachment_id in file_ids
    return "" if is_file and not description else _name_picture(media.url, description)


def _name_picture(url: str, description: str | None) -> str:
    return PICTURE.format(description or clean_name(urlsplit(url).path.rpartition("/")[2]))


def _parse_files(files: Sequence[discord.Attachment], message: discord.Message) -> tuple[Attachment, ...]:
    return tuple(
        Attachment(
            name=storable_text(file.filename),
            mime_type=file.content_type,
            size=file.size,
            source={"url": file.url, "id": str(file.id), "channel": message.channel.id, "message": message.id},
        )
        for file in files
    )


def _get_mention_names(message: discord.Message) -> dict[tuple[str, int], str]:
    names = {("@", user.id): user.display_name for user in message.mentions}
    names |= {("@&", role.id): role.name for role in message.role_mentions}
    names |= {("#", channel.id): channel.name for channel in message.channel_mentions}
    return names


def _get_cached_names(guild: discord.Guild | None, text: str) -> dict[tuple[str, int], str]:
    """Return the names of the roles and channels that a text mentions, as far as discord.py's cache has them."""
    names = dict[tuple[str, int], str]()
    if guild is None:
        return names
    for sign, id_ in find_mentions(text):
        if found := guild.get_role(id_) if sign == "@&" else guild.get_channel_or_thread(id_):
            names[sign, id_] = found.name
    return names
