"""Discord's own notation: out of what people write, and inert in what the model writes."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from channels.markdown.graphemes import boundaries

_TOKEN = re.compile(r"<(?P<kind>@!?|@&|#)(?P<id>\d+)>")

#: What stands for an emoji of a server, a command, a place that every server has, and a time (in seconds since the
#: epoch).
_EMOJI = re.compile(r"<a?(:\w+:)\d+>")
_COMMAND = re.compile(r"<(/[^:<>\n]+):\d+>")
_PLACE = re.compile(r"<id:([\w-]+)>")
_TIME = re.compile(r"<t:(?P<at>-?\d{1,12})(?::[A-Za-z])?>")

#: What calls somebody or names a place, and `@everyone` and `@here`.
_CALLS = re.compile(r"<(?=@|#|/)|@(?=everyone|here)")
_ZERO_WIDTH_SPACE = "\u200b"


def without_mention(text: str, *ids: int) -> str:
    """`text` without the mentions of these users or roles."""
    targets = "|".join(str(one) for one in ids)
    return re.sub(rf"\s*<@[!&]?(?:{targets})>\s*", " ", text).strip()


def named(text: str) -> set[tuple[str, int]]:
    """The roles and channels that `text` has, by sign and id."""
    return {(token["kind"], int(token["id"])) for token in _TOKEN.finditer(text) if token["kind"] in ("@&", "#")}


def to_words(text: str, names: Mapping[tuple[str, int], str]) -> str:
    """What a person reads where Discord writes tokens.

    Args:
        names: by sign (`@`, `@&` or `#`) and id.
    """

    def words(token: re.Match[str]) -> str:
        kind = token["kind"].rstrip("!")
        name = names.get((kind, int(token["id"])))
        return f"{kind[0]}{name or token['id']}"

    text = _COMMAND.sub(r"\1", _EMOJI.sub(r"\1", _TOKEN.sub(words, text)))
    return _TIME.sub(_time, _PLACE.sub(r"#\1", text))


def _time(token: re.Match[str]) -> str:
    """Discord: it shows each reader that of his own place."""
    try:
        return datetime.fromtimestamp(int(token["at"]), UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return token[0]


def inert(text: str) -> str:
    """`text` with nothing in it that would call anyone: Discord parses no token that has a space in it."""
    return _CALLS.sub(lambda sign: sign[0] + _ZERO_WIDTH_SPACE, text)


def headline(text: str, most: int) -> str:
    """The beginning of `text` in one line of so many characters."""
    line = " ".join(text.split())
    if len(line) <= most:
        return line
    end = max(at for at in boundaries(line, 0, most) if at < most)
    return f"{line[:end].rstrip()}…"


def quoted(text: str) -> str:
    """`text` as a quotation."""
    return "\n".join(f"> {line}" for line in text.splitlines())
