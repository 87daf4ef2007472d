"""Slack's markup: visible text, pinged users and `rich_text` blocks.

Slack: `<@U..>`, `<!channel>`, `<#C..>` and `<https://..|label>` are tokens; `&`, `<` and `>` in text are entities
(docs.slack.dev/messaging/formatting-message-text).
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from typing import Any

#: Names of users and channels by id.
Names = Mapping[str, str]

_TOKEN = re.compile(r"<([@#!]|[a-z][a-z0-9+.-]*:)([^<>|\s]*)(?:\|([^<>]*))?>", re.IGNORECASE)
_CODE = re.compile(r"(```.*?(?:```|\Z)|`[^`\n]*`)", re.DOTALL)
_ENTITY = re.compile(r"&(?:amp|lt|gt);")
_PLAIN_NAME = re.compile(r"(?<![\w@])@([\w.-]+)")
_EVERYONE = frozenset({"channel", "here", "everyone"})


@dataclass(frozen=True, slots=True)
class TaskCard:
    """Task card in a streamed message.

    Attributes:
        status: `pending`, `in_progress`, `complete` or `error`.
        details, output: texts in mrkdwn.
    """

    id: str
    title: str
    status: str
    details: str = ""
    output: str = ""


@dataclass(frozen=True, slots=True)
class SlackContent:
    """Content of a message as its author sent it.

    Attributes:
        text: mrkdwn, or Markdown if `is_markdown`.
        blocks: the Block Kit blocks; None without any.
        is_markdown: whether `text` came as `markdown_text`.
        link_names: whether a plain `@name` becomes a mention.
        tasks: the task cards of a stream.
        plan: the title above the task cards.
        attachments: the attachments below the text or blocks.
    """

    text: str = ""
    blocks: Sequence[Mapping[str, Any]] | None = None
    is_markdown: bool = False
    link_names: bool = False
    tasks: tuple[TaskCard, ...] = ()
    plan: str = ""
    attachments: tuple[Mapping[str, Any], ...] = ()


def render_text(content: SlackContent, names: Names) -> str:
    """Return the visible text of a message's content.

    It is the text of the blocks or, without any, `text`; then that of the attachments. Buttons and task cards have no
    text here.

    Args:
        names: names of users and channels by id, for mentions; a mention without a name shows its label or id.
    """
    if content.blocks:
        parts = [_render_block(block, names) for block in content.blocks]
    else:
        parts = [_render_markdown(content.text, names) if content.is_markdown else _render_mrkdwn(content.text, names)]
    for attachment in content.attachments:
        parts += [_render_mrkdwn(text, names) for text in list_attachment_texts(attachment)]
        parts += [_render_block(block, names) for block in attachment.get("blocks", ())]
    return "\n".join(part for part in parts if part)


def list_attachment_texts(attachment: Mapping[str, Any]) -> list[str]:
    """Return the texts of a message attachment in visible order, without its blocks."""
    fields = [field for field in attachment.get("fields", ()) if isinstance(field, Mapping)]
    texts = [
        *(attachment.get(name) for name in ("pretext", "author_name", "title", "text")),
        *(field.get(name) for field in fields for name in ("title", "value")),
        attachment.get("footer"),
    ]
    return [str(text) for text in texts if text]


def find_pings(content: SlackContent, names: Names) -> frozenset[str]:
    """Return the ids of the users and user groups that a message's content pings.

    If pinged, `channel`, `here` and `everyone` are in the set, too. The text counts in addition to the blocks, since
    notifications use it. Slack does not document whether mentions in attachments notify; in the simulator they do.

    Args:
        names: names of users and channels by id, for a plain `@name` if `content.link_names`.
    """
    pinged = set(_find_pings_in_text(content.text, markdown=content.is_markdown))
    if content.link_names:
        ids = {name: id_ for id_, name in names.items() if id_.startswith(("U", "W"))}
        for name in _PLAIN_NAME.findall(content.text):
            pinged.update({name} & _EVERYONE, {ids[name]} if name in ids else ())
    for attachment in content.attachments:
        for text in list_attachment_texts(attachment):
            pinged.update(_find_pings_in_text(text, markdown=False))
    for block in (*(content.blocks or ()), *(b for a in content.attachments for b in a.get("blocks", ()))):
        pinged.update(_find_pings_in_block(block))
    return frozenset(pinged)


def has_mention(text: str, user_id: str) -> bool:
    """Return whether a mrkdwn text mentions the user."""
    return user_id in _find_pings_in_text(text, markdown=False)


def to_rich_text(text: str) -> list[dict[str, Any]]:
    """Return a list with the `rich_text` block that Slack creates from a mrkdwn text.

    Mentions and links become elements; styles such as `*bold*` stay text. The list is empty for an empty text.
    """
    if not text:
        return []
    elements: list[dict[str, Any]] = []
    end = 0
    for token in _TOKEN.finditer(text):
        if token.start() > end:
            elements.append({"type": "text", "text": decode_entities(text[end : token.start()])})
        elements.append(_to_element(token))
        end = token.end()
    if end < len(text):
        elements.append({"type": "text", "text": decode_entities(text[end:])})
    section = {"type": "rich_text_section", "elements": elements}
    return [{"type": "rich_text", "block_id": create_block_id(text), "elements": [section]}]


def create_block_id(seed: str) -> str:
    """Return a short id for a block, always the same for the same seed."""
    return hashlib.sha256(seed.encode("utf-8", "surrogatepass")).hexdigest()[:5]


def _to_element(token: re.Match[str]) -> dict[str, Any]:
    sigil, target, label = token.groups()
    if sigil == "@":
        return {"type": "user", "user_id": target}
    if sigil == "#":
        return {"type": "channel", "channel_id": target}
    if sigil == "!":
        kind, _, group = target.partition("^")
        if kind == "subteam":
            return {"type": "usergroup", "usergroup_id": group}
        if kind in _EVERYONE:
            return {"type": "broadcast", "range": kind}
        return {"type": "text", "text": label or target}
    link: dict[str, Any] = {"type": "link", "url": decode_entities(sigil + target)}
    return link | ({"text": decode_entities(label)} if label else {})


def decode_entities(text: str) -> str:
    """Decode `&amp;`, `&lt;` and `&gt;` in a text."""
    return _ENTITY.sub(lambda entity: unescape(entity[0]), text)


def _render_mrkdwn(text: str, names: Names) -> str:
    parts, end = [], 0
    for token in _TOKEN.finditer(text):
        parts += [decode_entities(text[end : token.start()]), _render_token(token, names)]
        end = token.end()
    return "".join(parts) + decode_entities(text[end:])


def _render_token(token: re.Match[str], names: Names) -> str:
    sigil, target, label = token.groups()
    if sigil in "@#":
        return sigil + names.get(target, label or target)
    if sigil == "!":
        kind, _, group = target.partition("^")
        return "@" + kind if kind in _EVERYONE else label or "@" + (group or kind)
    return decode_entities(label or sigil + target)


def _render_markdown(text: str, names: Names) -> str:
    return "".join(decode_entities(part) if code else _render_mrkdwn(part, names) for code, part in _split_code(text))


def _split_code(text: str) -> Iterator[tuple[bool, str]]:
    """Split a Markdown text into code and other text.

    Yields:
        A pair for each part: a bool that is true for code, and the text. Slack finds no mentions in code.
    """
    for index, part in enumerate(_CODE.split(text)):
        yield index % 2 == 1, part


def _find_pings_in_text(text: str, *, markdown: bool) -> Iterator[str]:
    for code, part in _split_code(text) if markdown else [(False, text)]:
        for sigil, target, _ in [] if code else _TOKEN.findall(part):
            kind, _, group = target.partition("^")
            if sigil == "@" and target:
                yield target
            elif sigil == "!" and (kind.lower() in _EVERYONE or kind.lower() == "subteam"):
                yield group or kind.lower()


def _render_block(block: Mapping[str, Any], names: Names) -> str:
    """Return the visible text of a block or element and its children, without buttons."""
    match block:
        case {"type": "actions" | "context_actions"}:
            words = ""
        case {"type": "markdown", "text": str(text)}:
            words = _render_markdown(text, names)
        case {"type": "mrkdwn", "text": str(text)}:
            words = _render_mrkdwn(text, names)
        case {"type": "plain_text" | "text", "text": str(text)}:
            words = text
        case {"type": "user", "user_id": str(target)}:
            words = "@" + names.get(target, target)
        case {"type": "channel", "channel_id": str(target)}:
            words = "#" + names.get(target, target)
        case {"type": "broadcast", "range": str(target)} | {"type": "usergroup", "usergroup_id": str(target)}:
            words = "@" + target
        case {"type": "link", "url": str(url)}:
            words = str(block.get("text") or url)
        case {"type": "emoji", "name": str(name)}:
            words = f":{name}:"
        case _:
            running = block.get("type") in ("rich_text_section", "rich_text_preformatted", "rich_text_quote")
            parts = (_render_block(item, names) for item in _child_blocks(block))
            words = ("" if running else "\n").join(part for part in parts if part)
    return words


def _find_pings_in_block(block: Mapping[str, Any]) -> Iterator[str]:
    match block:
        case {"type": "markdown", "text": str(text)}:
            yield from _find_pings_in_text(text, markdown=True)
        case {"type": "mrkdwn", "text": str(text)}:
            yield from _find_pings_in_text(text, markdown=False)
        case {"type": "user", "user_id": str(target)} | {"type": "usergroup", "usergroup_id": str(target)}:
            yield target
        case {"type": "broadcast", "range": str(target)}:
            yield target
        case _:
            for item in _child_blocks(block):
                yield from _find_pings_in_block(item)


def _child_blocks(block: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON of the text objects and elements in a block, in visible order."""
    for key in ("title", "text", "fields", "elements", "accessory", "rows"):
        yield from _flatten(block.get(key))


def _flatten(value: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        yield value
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from _flatten(item)
