"""Spoilers of Discord: text between two `||`, which readers see only when they open it.

Discord: support.discord.com, "Spoiler Tags". A pair hides all text between the two marks.
"""

import re

#: Mark before and after a text that Discord hides.
SPOILER = "||"
ESCAPED_SPOILER = r"\|\|"

#: A spoiler, or what Discord reads before a spoiler that begins further right.
_SPOILER = re.compile(r"\\.|(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)|\|\|(?P<hidden>.+?)\|\|", re.DOTALL)

#: A spoiler mark at the end of a growing text, without the text after it.
UNFINISHED_SPOILER = re.compile(r"(?<!\\)\|++\s*+\Z")


def break_spoilers(code: str) -> str:
    """Return code in a spoiler with a zero-width space in each `||`, which would end the spoiler."""
    return re.sub(r"\|(?=\|)", "|\u200b", code)


def hide_lines(text: str) -> str:
    """Return rendered text with a spoiler for each line of a spoiler.

    Discord parses each line of a quote, heading or list item alone.
    """

    def hide(found: re.Match[str]) -> str:
        if not found["hidden"] or "\n" not in found["hidden"]:
            return found[0]
        lines = found["hidden"].split("\n")
        return "\n".join(f"{SPOILER}{line}{SPOILER}" if line.strip() else line for line in lines)

    return _SPOILER.sub(hide, text) if SPOILER in text else text
