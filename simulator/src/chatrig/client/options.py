"""Parser for the options that a user types after a Discord slash command."""

import re
from collections.abc import Callable, Mapping
from typing import Any

OptionValue = str | float | bool


def parse_options(command: Mapping[str, Any], text: str) -> dict[str, OptionValue]:
    """Parse a typed `name:value name:value` to option values by name.

    Text before any name of an option is for the first option. An unknown name is part of the value before it.
    The last value of a name counts.

    Args:
        command: the command's definition in Discord's JSON.

    Returns:
        The values of the typed options only; empty for an empty text.

    Raises:
        ValueError: a value does not fit its option, or the command has no options.
    """
    types = {option["name"]: option["type"] for option in command.get("options", ())}
    names = "|".join(map(re.escape, types))
    first, *rest = re.split(rf"(?:^|(?<=\s))({names}):", text) if types else [text]
    texts = dict(zip(rest[::2], rest[1::2], strict=True))
    if first.strip():
        if not types:
            raise ValueError(f"/{command['name']} takes no options")
        texts = {next(iter(types)): first} | texts
    return {name: _parse_value(name, types[name], typed.strip()) for name, typed in texts.items()}


# Discord: docs.discord.com/developers/interactions/application-commands, "Application Command Option Type".
_PARSERS: Mapping[int, tuple[str, Callable[[str], OptionValue]]] = {
    4: ("a whole number", int),
    5: ("true or false", lambda typed: {"true": True, "false": False}[typed.casefold()]),
    10: ("a number", float),
}


def _parse_value(name: str, type_: int, text: str) -> OptionValue:
    expected, parse = _PARSERS.get(type_, ("text", str))
    try:
        return parse(text)
    except (ValueError, KeyError):
        raise ValueError(f"{name} must be {expected}") from None
