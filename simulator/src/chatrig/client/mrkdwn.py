"""Conversion of Slack's mrkdwn, Markdown and blocks to CommonMark.

The terminal shows CommonMark. Slack: "Formatting text for app surfaces" (mrkdwn) and "Markdown block".
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chatrig.slack.state.markup import decode_entities, list_attachment_texts

#: Returns the name for the target of `<@U1>`, `<#C1|general>` or `<!here>`.
NameResolver = Callable[[str], str]

_CODE = re.compile(r"(```.*?(?:```|\Z)|`[^`\n]+`)", re.DOTALL)
_ANGLE = re.compile(r"<([@#!][^<>\n]*|(?:https?|mailto|tel|slack):[^<>\n]*)>")
_BOLD = re.compile(r"(?<![\w*\\])\*(?![\s*])([^*\n]*[^*\s])\*(?![\w*])")
_STRUCK = re.compile(r"(?<![\w~])~(?![\s~])([^~\n]*[^~\s])~(?![\w~])")
_MARKDOWN_ONLY = re.compile(r"\*\*|(?m:^#)|\[|~~")
_ENTITIES = (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&"))


def convert_mrkdwn(text: str, resolve_name: NameResolver) -> str:
    """Convert Slack's mrkdwn to CommonMark.

    Markdown that mrkdwn does not have, such as `**`, is escaped.

    Args:
        resolve_name: returns the name for the target of a mention without a label: `@U1`, `#C1` or `!here`.
    """
    return "".join(
        _convert_code(piece) if index % 2 else _convert_prose(piece, resolve_name)
        for index, piece in enumerate(_CODE.split(text))
    )


def convert_markdown(text: str, resolve_name: NameResolver) -> str:
    """Convert the text of a Slack `markdown` block to CommonMark.

    Mentions become names, and HTML is escaped. Slack decodes entities in code, too.

    Args:
        resolve_name: returns the name for the target of a mention without a label: `@U1`, `#C1` or `!here`.
    """
    return "".join(
        decode_entities(piece)
        if index % 2
        else _ANGLE.sub(lambda match: _convert_angle(match[1], resolve_name), piece).replace("<", r"\<")
        for index, piece in enumerate(_CODE.split(text))
    )


def convert_blocks(blocks: Sequence[Mapping[str, Any]], resolve_name: NameResolver) -> str:
    """Convert Block Kit blocks to CommonMark, without buttons.

    Blocks are separated by empty lines. A block of an unknown type becomes that type, such as `_(image)_`.

    Args:
        resolve_name: see `convert_mrkdwn`.
    """
    return "\n\n".join(filter(None, (_convert_block(block, resolve_name) for block in blocks)))


def convert_attachments(attachments: Sequence[Mapping[str, Any]], resolve_name: NameResolver) -> str:
    """Convert Slack's message attachments to CommonMark block quotes."""
    quotes = []
    for attachment in attachments:
        texts = [convert_mrkdwn(text, resolve_name) for text in list_attachment_texts(attachment)]
        shown = "\n\n".join(filter(None, [*texts, convert_blocks(attachment.get("blocks", ()), resolve_name)]))
        quotes.append("\n".join(f"> {line}".rstrip() for line in shown.split("\n")))
    return "\n\n".join(quotes)


def _convert_block(block: Mapping[str, Any], resolve_name: NameResolver) -> str:
    kind = str(block.get("type"))
    write = _BLOCKS.get(kind)
    return write(block, resolve_name) if write else f"_({kind})_"


def _convert_section(block: Mapping[str, Any], resolve_name: NameResolver) -> str:
    texts = [block["text"]] if "text" in block else []
    return "\n\n".join(_convert_text(text, resolve_name) for text in [*texts, *block.get("fields", [])])


def _convert_context(block: Mapping[str, Any], resolve_name: NameResolver) -> str:
    return " ".join(_convert_text(element, resolve_name) for element in block.get("elements", []) if "text" in element)


_BLOCKS: Mapping[str, Callable[[Mapping[str, Any], NameResolver], str]] = {
    "actions": lambda _block, _name: "",
    "context": _convert_context,
    "context_actions": lambda _block, _name: "",
    "divider": lambda _block, _name: "---",
    "header": lambda block, name: f"**{_convert_text(block['text'], name)}**",
    "markdown": lambda block, name: convert_markdown(block.get("text", ""), name),
    "rich_text": lambda block, name: _convert_prose(_plain_text(block), name),
    "section": _convert_section,
}


def _convert_text(text: Mapping[str, Any], resolve_name: NameResolver) -> str:
    if text.get("type") == "mrkdwn":
        return convert_mrkdwn(text["text"], resolve_name)
    return re.sub(r"([\\`*_\[<#~])", r"\\\1", str(text["text"]))


def _plain_text(element: Mapping[str, Any]) -> str:
    """Return the text of a rich text element without styles.

    Mentions become mrkdwn (`<@U1>`).
    """
    match element.get("type"):
        case "user":
            return f"<@{element['user_id']}>"
        case "channel":
            return f"<#{element['channel_id']}>"
        case "emoji":
            return f":{element['name']}:"
        case "link":
            return str(element.get("text") or element["url"])
        case "text":
            return str(element["text"])
    lines = element.get("type") in ("rich_text", "rich_text_list")
    return ("\n" if lines else "").join(_plain_text(part) for part in element.get("elements", []))


def _convert_prose(text: str, resolve_name: NameResolver) -> str:
    text = _MARKDOWN_ONLY.sub(lambda match: "".join(f"\\{letter}" for letter in match[0]), text)
    text = _BOLD.sub(r"**\1**", text)
    text = _STRUCK.sub(r"~~\1~~", text)
    pieces: list[str] = []
    end = 0
    for match in _ANGLE.finditer(text):
        pieces += _escape_text(text[end : match.start()]), _convert_angle(match[1], resolve_name)
        end = match.end()
    pieces.append(_escape_text(text[end:]))
    text = "".join(pieces)
    text = re.sub(r"(?m)^(\s*)[•◦▪] ", r"\1- ", text)
    return re.sub(r"(?<=\S)\n(?=\S)", "  \n", text)


def _escape_text(text: str) -> str:
    return text.replace("<", r"\<").replace("&lt;", r"\<").replace("&gt;", ">").replace("&amp;", r"\&")


def _convert_code(text: str) -> str:
    for entity, letter in _ENTITIES:
        text = text.replace(entity, letter)
    if not text.startswith("```"):
        return text
    inner = text.removeprefix("```").removesuffix("```")
    return f"\n```{inner if inner.startswith(chr(10)) else chr(10) + inner}\n```\n"


def _convert_angle(inner: str, resolve_name: NameResolver) -> str:
    target, _, label = inner.partition("|")
    if target.startswith("!date^"):
        return label
    if target[0] in "@#!":
        return f"**{resolve_name(target)}**" if not label else f"**{target[0] if target[0] != '!' else ''}{label}**"
    return f"[{label}]({target})" if label else target
