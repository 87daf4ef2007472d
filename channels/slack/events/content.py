"""Content of Slack messages: their text, files and forwarded messages, the same on every path.

Slack: people's messages have their text in `text`, and again in a `rich_text` block. Apps may use `blocks` or
`attachments` alone; beside blocks, `text` is only shown in notifications (docs.slack.dev/reference/methods/
chat.postMessage). A forwarded message is an attachment, and so is a linked message once Slack has unfurled the link.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from channels.slack.text import escape, mentioned_ids
from core.messages.identity import BOT_PREFIX, clean_name
from core.messages.inbox_message import Attachment, format_file_names, storable_text

#: The user that posts Slack's own messages. Slack: `users.info` calls it no bot (slackapi/bolt-js #794).
SLACKBOT = "USLACKBOT"

#: Part of the URL of each Slack message, by which links to messages are found.
PERMALINK = "/archives/"

#: The fields by which a file is downloaded.
_SOURCE = ("id", "url_private_download", "file_access")

#: Fields of attachments for previews of links in the text. Slack: a table that a person pastes is an attachment without
#: them (vercel/chat #803).
_PREVIEW_FIELDS = ("from_url", "original_url", "app_unfurl_url")

#: Slack: the fallback of an attachment that has none.
_NO_FALLBACK = "[no preview available]"

#: Slack's tokens in text for the elements of a rich text block.
_TOKENS: Mapping[str, str] = {
    "user": "<@{user_id}>",
    "channel": "<#{channel_id}>",
    "usergroup": "<!subteam^{usergroup_id}>",
    "broadcast": "<!{range}>",
    "emoji": ":{name}:",
}

#: Blocks that only accompany the text of a message.
_ACCOMPANYING = {"actions", "context_actions", "divider", "image"}

#: Fields of blocks and their elements with what people see, in the order of the screen.
_VISIBLE_FIELDS = (
    *("author_name", "title", "rich_text_title", "label", "subtitle", "caption", "text", "body", "subtext"),
    *("description", "provider_name", "fields", "elements", "child_blocks", "tasks", "details", "output", "sources"),
    *("accessory", "element", "placeholder", "initial_value", "hint", "actions"),
)

#: Separators of the parts of a block; a line break for others.
_SEPARATORS: Mapping[Any, str] = {
    **dict.fromkeys(("rich_text_section", "rich_text_preformatted", "rich_text_quote"), ""),
    "context": " ",
}

#: Elements whose options are all shown; a menu shows them after a click.
_LISTS = {"checkboxes", "radio_buttons"}

#: Letters and digits; `_` may be a mark of italic text.
_WORD = re.compile(r"[^\W_]+")

#: Characters of a word that may be divided.
_MIN_DIVIDED_CHARACTERS = 4

_TOKEN_OF_USER = re.compile(r"<@[^<>]*>")


@dataclass(frozen=True, slots=True)
class MessageContent:
    """Content of a message of Slack, or of a message that another one forwards or links to.

    Attributes:
        author: the id of the user, or `BOT_PREFIX` and the id of the bot; empty if Slack did not send it.
        name: the display name of a bot, or of the author of a forwarded message; empty for others.
        text: the text that people see, in Slack's markup, without forwarded messages.
        ts: the id of the message; empty if Slack did not send it.
    """

    author: str
    name: str
    text: str
    files: tuple[Attachment, ...] = ()
    forwarded: "tuple[MessageContent, ...]" = ()
    mentioned: frozenset[str] = frozenset()
    ts: str = ""

    @property
    def is_bot(self) -> bool:
        return self.author.startswith(BOT_PREFIX)

    @property
    def quotable_text(self) -> str:
        """The text with that of forwarded messages, each on a line of its own as `[forwarded] NAME: TEXT`."""
        passed = (f"[forwarded] {clean_name(part.name)}: {part.quotable_text}" for part in self.forwarded)
        return "\n".join(filter(None, [self.text, *passed]))

    @property
    def all_files(self) -> tuple[Attachment, ...]:
        """The files with those of forwarded messages."""
        return (*self.files, *(file for part in self.forwarded for file in part.all_files))

    def to_reference(self) -> dict[str, Any]:
        """Return this forwarded message for `InboxMessage.references`, as JSON."""
        reference = {"author": self.author, "name": self.name, "text": self.quotable_text, "ts": self.ts}
        files = [asdict(file) for file in self.all_files]
        return {**reference, "files": files} if files else reference

    @classmethod
    def from_reference(cls, part: Mapping[str, Any]) -> "MessageContent":
        files = tuple(Attachment(**file) for file in part.get("files", ()))
        return cls(part["author"], part["name"], part["text"], files, ts=part["ts"])


def read_message(message: Mapping[str, Any]) -> MessageContent:
    """Return the content of a message object of Slack: of an event, of the history, or of an interaction.

    Its author is resolved: see `resolve_authors`. If blocks say more than `text`, `text` is left out: people do not see
    it. It stays if it mentions a user whom the blocks do not mention, and has other words too, so that a request in it
    reaches the bot. Previews of links are no content, except in a message of a bot or without a text.
    """
    bot = bot_id_of(message)
    user = str(message.get("user") or "")
    attachments = message.get("attachments") or ()
    is_by_person = not (bot or message.get("app_id") or message.get("bot_profile"))
    text = _combine(str(message.get("text") or ""), message.get("blocks") or ())
    attached = [
        _attachment_text(part)
        for part in attachments
        if not _is_forwarded(part) and (bot or not text or not any(map(part.get, _PREVIEW_FIELDS)))
    ]
    text = "\n".join(filter(None, [text, *attached]))
    return MessageContent(
        author=f"{BOT_PREFIX}{bot}" if bot else user,
        name=_bot_name(message, bot) if bot else "",
        text=text,
        files=tuple(map(parse_file, message.get("files") or ())),
        forwarded=tuple(_read_forwarded(part, has_files=is_by_person) for part in attachments if _is_forwarded(part)),
        mentioned=frozenset(mentioned_ids(f"{message.get('text') or ''}\n{text}")),
        ts=str(message.get("ts") or ""),
    )


def bot_id_of(message: Mapping[str, Any]) -> str:
    """Return the id of the bot that wrote a message (see `resolve_authors`); empty for a person."""
    return str(message.get("bot_id") or (SLACKBOT if message.get("user") == SLACKBOT else ""))


def parse_file(file: Mapping[str, Any]) -> Attachment:
    """Return an `Attachment` for a file object in a message of Slack.

    Slack: in a channel that is shared with another organisation, an event has only the id of a file and `file_access:
    check_file_info`. The name is then the id, the type None and the size 0.
    """
    return Attachment(
        name=storable_text(file.get("name") or file.get("id") or "a file"),
        mime_type=file.get("mimetype"),
        size=file.get("size") or 0,
        source={key: file[key] for key in _SOURCE if key in file},
    )


def _bot_name(message: Mapping[str, Any], bot_id: str) -> str:
    if bot_id == SLACKBOT:
        return "Slackbot"
    return str(message.get("username") or (message.get("bot_profile") or {}).get("name") or bot_id)


def _is_forwarded(attachment: Mapping[str, Any]) -> bool:
    return bool(attachment.get("is_share") or attachment.get("is_msg_unfurl"))


def _read_forwarded(part: Mapping[str, Any], *, has_files: bool) -> MessageContent:
    """Return the content of a forwarded or linked message.

    The files of a linked message are only named: not all readers of the link may see them. So are those in an app's
    post, in which the app chose the attachments.
    """
    blocks = [
        block
        for message_block in part.get("message_blocks") or ()
        for block in (message_block.get("message") or {}).get("blocks") or ()
    ]
    name = str(part.get("author_name") or part.get("author_subname") or "")
    content = replace(read_message({**part, "blocks": blocks}), author=str(part.get("author_id") or ""), name=name)
    return content if has_files and part.get("is_share") else _name_files(content)


def _name_files(content: MessageContent) -> MessageContent:
    text = "\n".join(filter(None, [content.text, format_file_names(content.files)]))
    return replace(content, text=text, files=(), forwarded=tuple(map(_name_files, content.forwarded)))


def _combine(text: str, blocks: Sequence[Any]) -> str:
    """Return the text of blocks, or the `text` beside them if they say no more."""
    lines = [(block.get("type") in _ACCOMPANYING, line) for block in blocks if (line := _block_text(block).strip())]
    content = "\n".join(line for is_accompanying, line in lines if not is_accompanying)
    if text and not _says_more(content, text):
        return "\n".join([text, *(line for is_accompanying, line in lines if is_accompanying)])
    everything = "\n".join(line for _, line in lines)
    called = {id_ for id_ in mentioned_ids(text) - mentioned_ids(content) if id_[0] in "UW"}
    asks_more = called and _says_more(_TOKEN_OF_USER.sub("", text), everything)
    return f"{text}\n{everything}" if asks_more else everything


def _says_more(text: str, other: str) -> bool:
    """Return whether a text has a word that another one has not.

    A longer word may be several words of the other text: Slack's marks of bold and italic text divide it.
    """
    known = _WORD.findall(other.casefold())
    words = set(known)
    run = "".join(known)
    return any(
        word not in words and not (word in run and (len(word) >= _MIN_DIVIDED_CHARACTERS or not word.isascii()))
        for word in _WORD.findall(text.casefold())
    )


def _attachment_text(attachment: Mapping[str, Any]) -> str:
    get = {name: value for name, value in attachment.items() if isinstance(value, str)}.get
    title = get("title", "")
    link = get("title_link", "")
    lines = [
        get("pretext", ""),
        get("author_name", ""),
        f"{title} ({link})" if title and link else title or link,
        _combine(get("text", ""), attachment.get("blocks") or ()),
        *(f"{field.get('title', '')}: {field.get('value', '')}" for field in attachment.get("fields") or ()),
        _block_text({"type": "actions", "elements": attachment.get("actions") or ()}),
        get("footer", ""),
    ]
    text = "\n".join(filter(None, lines)) or get("fallback", "").replace(_NO_FALLBACK, "")
    return f"{text}\n[image]".lstrip() if attachment.get("image_url") else text


def _block_text(part: Any) -> str:
    if (text := _rich_text_token(part)) is not None:
        return text
    match part:
        case str():
            text = escape(part)
        case {"type": "mrkdwn", "text": str(markup)}:
            text = markup
        case {"type": "image"}:
            names = [_block_text(part.get("title") or ""), escape(str(part.get("alt_text") or ""))]
            text = f"[image: {', '.join(dict.fromkeys(filter(None, names)))}]"
        case {"type": "button", "url": str(url)}:
            text = f"<{_escape_url(url)}|{_block_text(part.get('text') or url)}>"
        case {"rows": [*rows]}:
            lines = [" | ".join(_block_text(cell).replace("\n", " ") for cell in row) for row in rows]
            text = "\n".join(filter(None, [_block_text(part.get("caption") or ""), *lines]))
        case {"text": str(plain)}:
            text = escape(plain)
        case {"type": "raw_number", "value": value}:
            text = str(value)
        case Mapping():
            separator = _SEPARATORS.get(part.get("type"), "\n")
            text = separator.join(filter(None, map(_block_text, _visible_parts(part))))
        case _:
            text = ""
    return text


def _visible_parts(part: Mapping[str, Any]) -> Iterator[Any]:
    names = (*_VISIBLE_FIELDS, "options") if part.get("type") in _LISTS else _VISIBLE_FIELDS
    for inner in map(part.get, names):
        if isinstance(inner, Sequence) and not isinstance(inner, str):
            yield from inner
        elif inner:
            yield inner


def _rich_text_token(part: Any) -> str | None:
    """Return the token in text (such as `<@U1>`) for an element of a rich text block."""
    match part:
        case {"type": str(kind)} if kind in _TOKENS:
            return _TOKENS[kind].format_map(defaultdict(str, part))
        case {"type": "link", "url": str(url)}:
            return f"<{_escape_url(url)}|{escape(str(part.get('text') or url))}>"
        case {"type": "date"}:
            return escape(str(part.get("fallback") or ""))
    return None


def _escape_url(url: str) -> str:
    """Return a URL as it is in a token of Slack, which `|` would end."""
    return escape(url).replace("|", "%7C")
