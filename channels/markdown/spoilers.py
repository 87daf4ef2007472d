"""Spoilers of Discord: text between two `||`, which readers see only when they open it.

Discord: support.discord.com, "Spoiler Tags". A pair hides all text between the two marks.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping

#: Mark before and after a text that Discord hides.
SPOILER = "||"
ESCAPED_SPOILER = r"\|\|"

#: What Discord reads from the left: an escaped character, the ticks of code, or the start of a spoiler.
_TOKEN = re.compile(r"\\.|(?P<ticks>`++)|\|\|", re.DOTALL)

_TICKS = re.compile(r"`++")

#: A spoiler mark at the end of a growing text, without the text after it.
UNFINISHED_SPOILER = re.compile(r"(?:(?<![\\|])|(?<=\\\|))\|++\s*+\Z")


def break_spoilers(code: str) -> str:
    """Return code in a spoiler with a zero-width space in each `||`, which would end the spoiler."""
    return re.sub(r"\|(?=\|)", "|\u200b", code)


def hide_lines(text: str) -> str:
    """Return rendered text with a spoiler for each line of a spoiler.

    Discord parses each line of a quote, heading or list item alone.
    """
    if SPOILER not in text:
        return text
    parts = list[str]()
    written = 0
    at = 0
    starts = _list_ticks(text)
    while found := _TOKEN.search(text, at):
        at = found.end()
        if ticks := found["ticks"]:
            same = starts[len(ticks)]
            closing = bisect_left(same, at)
            at = same[closing] + len(ticks) if closing < len(same) else at
        elif found[0] == SPOILER:
            if (end := text.find(SPOILER, at + 1)) < 0:
                break
            lines = text[at:end].split("\n")
            if len(lines) > 1:
                hidden = (f"{SPOILER}{line}{SPOILER}" if line.strip() else line for line in lines)
                parts += text[written : found.start()], "\n".join(hidden)
                written = end + len(SPOILER)
            at = end + len(SPOILER)
    return "".join([*parts, text[written:]])


def _list_ticks(text: str) -> Mapping[int, list[int]]:
    """Return the start indices of the runs of backticks, by their lengths."""
    starts = defaultdict[int, list[int]](list)
    for found in _TICKS.finditer(text):
        starts[len(found[0])].append(found.start())
    return starts
