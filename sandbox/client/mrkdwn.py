"""Slack's own markup as Markdown, for the screen.

Slack: "Formatting text for app surfaces" (mrkdwn) and "Markdown block".
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

#: Turns what stands between the angle brackets of `<@U1>`, `<#C1|general>` or `<!here>` into a name.
Name = Callable[[str], str]

_CODE = re.compile(r"(```.*?(?:```|\Z)|`[^`\n]+`)", re.DOTALL)
_ANGLE = re.compile(r"<([@#!][^<>\n]*|(?:https?|mailto|tel|slack):[^<>\n]*)>")
_BOLD = re.compile(r"(?<![\w*\\])\*(?![\s*])([^*\n]*[^*\s])\*(?![\w*])")
_STRUCK = re.compile(r"(?<![\w~])~(?![\s~])([^~\n]*[^~\s])~(?![\w~])")
_MARKDOWN_ONLY = re.compile(r"\*\*|(?m:^#)|\[|~~")
_ENTITIES = (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&"))


def from_mrkdwn(text: str, name: Name) -> str:
    """What Slack makes of `text`; Markdown that mrkdwn does not know stays as it was typed."""
    return "".join(_code(piece) if index % 2 else _prose(piece, name) for index, piece in enumerate(_CODE.split(text)))


def from_markdown(text: str, name: Name) -> str:
    """Markdown as Slack shows it: with names for mentions, and HTML as the letters that it is."""
    return "".join(
        piece if index % 2 else _ANGLE.sub(lambda match: _angle(match[1], name), piece).replace("<", r"\<")
        for index, piece in enumerate(_CODE.split(text))
    )


def from_blocks(blocks: Sequence[Mapping[str, Any]], name: Name) -> str:
    """The blocks one below the other; a kind that is not known here shows its name. Buttons are no text."""
    return "\n\n".join(filter(None, (_block(block, name) for block in blocks)))


def _block(block: Mapping[str, Any], name: Name) -> str:
    kind = str(block.get("type"))
    write = _BLOCKS.get(kind)
    return write(block, name) if write else f"_({kind})_"


def _section(block: Mapping[str, Any], name: Name) -> str:
    texts = [block["text"]] if "text" in block else []
    return "\n\n".join(_text(text, name) for text in [*texts, *block.get("fields", [])])


def _context(block: Mapping[str, Any], name: Name) -> str:
    return " ".join(_text(element, name) for element in block.get("elements", []) if "text" in element)


_BLOCKS: Mapping[str, Callable[[Mapping[str, Any], Name], str]] = {
    "actions": lambda _block, _name: "",
    "context": _context,
    "context_actions": lambda _block, _name: "",
    "divider": lambda _block, _name: "---",
    "header": lambda block, name: f"**{_text(block['text'], name)}**",
    "markdown": lambda block, name: from_markdown(block.get("text", ""), name),
    "rich_text": lambda block, name: _prose(_plain(block), name),
    "section": _section,
}


def _text(text: Mapping[str, Any], name: Name) -> str:
    if text.get("type") == "mrkdwn":
        return from_mrkdwn(text["text"], name)
    return re.sub(r"([\\`*_\[<#~])", r"\\\1", str(text["text"]))


def _plain(element: Mapping[str, Any]) -> str:
    """The letters of a rich text, without its styles."""
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
    return ("\n" if lines else "").join(_plain(part) for part in element.get("elements", []))


def _prose(text: str, name: Name) -> str:
    text = _MARKDOWN_ONLY.sub(lambda match: "".join(f"\\{letter}" for letter in match[0]), text)
    text = _BOLD.sub(r"**\1**", text)
    text = _STRUCK.sub(r"~~\1~~", text)
    pieces: list[str] = []
    end = 0
    for match in _ANGLE.finditer(text):
        pieces += _escaped(text[end : match.start()]), _angle(match[1], name)
        end = match.end()
    pieces.append(_escaped(text[end:]))
    text = "".join(pieces)
    text = re.sub(r"(?m)^(\s*)[•◦▪] ", r"\1- ", text)
    return re.sub(r"(?<=\S)\n(?=\S)", "  \n", text)


def _escaped(text: str) -> str:
    return text.replace("<", r"\<").replace("&lt;", r"\<").replace("&gt;", ">").replace("&amp;", r"\&")


def _code(text: str) -> str:
    for entity, letter in _ENTITIES:
        text = text.replace(entity, letter)
    if not text.startswith("```"):
        return text
    inner = text.removeprefix("```").removesuffix("```")
    return f"\n```{inner if inner.startswith(chr(10)) else chr(10) + inner}\n```\n"


def _angle(inner: str, name: Name) -> str:
    target, _, label = inner.partition("|")
    if target[0] in "@#!":
        return f"**{name(target)}**" if not label else f"**{target[0] if target[0] != '!' else ''}{label}**"
    return f"[{label}]({target})" if label else target
