"""Conversion of Discord's Markdown to CommonMark with tables.

The terminal shows CommonMark. Discord: support.discord.com, "Markdown Text 101", and docs.discord.com/developers/
reference, "Message Formatting".
"""

import re
from collections.abc import Mapping
from datetime import datetime

_CODE = re.compile(r"(```.*?(?:```|\Z)|``[^\n]+?``|`[^`\n]+`)", re.DOTALL)
#: Discord's own markup in angle brackets, or a plain angle bracket.
_ANGLE = re.compile(r"<(?:(@[!&]?|#)(\d+)|a?(:\w+:)\d+|(/[^:<>\n]+):\d+|t:(-?\d{1,11})(?::\w)?|(https?://[^\s<>]+))>|<")
_UNDERLINED = re.compile(r"(?<![\w\\])__(?=\S)(.+?\S|\S)__(?!\w)", re.DOTALL)
_LANGUAGE = re.compile(r"[\w+#.-]*\n")
#: CommonMark that Discord does not have: tables, images, rules, small headings, `>` without a space.
_COMMONMARK_ONLY = re.compile(
    r"(?m)\||!(?=\[)|^[ \t]*(?:[-=](?=[-= \t]*$)|[*_](?=[*_ \t]{2,}$)|#(?=#{3,})|>(?! |>> ))",
)


def convert_discord(text: str, names: Mapping[str, str]) -> str:
    """Convert Discord's Markdown to CommonMark, with names in place of mentioned ids.

    A timestamp becomes its date and time in the local time zone.

    Args:
        names: names of users, channels and roles by id; an id without a name stays.
    """
    pieces = _CODE.split(text)
    return "".join(
        _convert_code(piece) if index % 2 else _convert_prose(piece, names) for index, piece in enumerate(pieces)
    )


def _convert_code(text: str) -> str:
    if not text.startswith("```"):
        return text
    inner = text.removeprefix("```").removesuffix("```")
    if not _LANGUAGE.match(inner):
        inner = f"\n{inner}"
    return f"\n```{inner.removesuffix(chr(10))}\n```\n"


def _convert_prose(text: str, names: Mapping[str, str]) -> str:
    text = _COMMONMARK_ONLY.sub(lambda found: f"{found[0][:-1]}\\{found[0][-1]}", text)
    text = _ANGLE.sub(lambda found: _convert_angle(found, names), text)
    text = _UNDERLINED.sub(r"*\1*", text)
    text = re.sub(r"(?m)^-# (.+)$", r"*\1*", text)
    # Discord: `>` quotes its own line, `>>>` all following lines.
    text = re.sub(r"(?m)^(> .*\n)(?!>|\n|\Z)", r"\1\n", text)
    text = re.sub(r"(?ms)^>>> (.*)", lambda found: re.sub("(?m)^", "> ", found[1]), text)
    return re.sub(r"(?<=\S)\n(?=\S)", "  \n", text)


def _convert_angle(found: re.Match[str], names: Mapping[str, str]) -> str:
    sign, key, emoji, command, seconds, address = found.groups()
    if sign is not None:
        return f"**{'#' if sign == '#' else '@'}{names.get(key, key)}**"
    if seconds is not None:
        return datetime.fromtimestamp(int(seconds)).astimezone().strftime("%Y-%m-%d %H:%M")
    if command is not None:
        return f"**{command}**"
    return emoji or address or r"\<"
