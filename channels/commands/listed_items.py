"""Lists in the results of commands: numbered lines, and buttons or menus for the actions on each."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from channels.base import Button
from channels.replies.tool_status import shorten_plain

#: The most items whose actions are buttons; the actions of more are menus.
MAX_ITEMS_WITH_BUTTONS = 4

#: The most options of a menu. Discord: 25.
MAX_OPTIONS = 25

#: The most characters of the list. Discord: a message has at most 2,000.
MAX_LIST_CHARACTERS = 1900

#: The most characters of a title.
_MAX_TITLE = 60


@dataclass(frozen=True, slots=True)
class ListedItem:
    """One item of a list, with a button for each action on it."""

    title: str
    line: str
    buttons: Sequence[Button]


def shorten_title(title: str) -> str:
    """Return a title on one line, without markup, cut to the length of an option."""
    return shorten_plain(title, _MAX_TITLE)


def render_items(items: Sequence[ListedItem], heading: str) -> tuple[str, list[Button]]:
    """Return a numbered list, and its buttons; of more than `MAX_ITEMS_WITH_BUTTONS`, a menu for each action.

    A list of more than `MAX_LIST_CHARACTERS` ends with `…`; the menus have its other items too.
    """
    lines = [heading, "", *(f"{n}. {item.line}" for n, item in enumerate(items, 1))]
    while len("\n".join(lines)) > MAX_LIST_CHARACTERS:
        lines[-2:] = ["…"]
    text = "\n".join(lines)
    numbered = [(n, item, button) for n, item in enumerate(items, 1) for button in item.buttons]
    if len(items) <= MAX_ITEMS_WITH_BUTTONS:
        return text, [Button(button.id, f"{button.label} {n}") for n, _, button in numbered]
    menus = defaultdict[str, list[Button]](list)
    for n, item, button in numbered:
        menus[button.label].append(Button(button.id, f"{n}. {item.title}"))
    return text, [
        Button(f"menu:{options[0].id.partition(':')[0]}", label, options=tuple(options[:MAX_OPTIONS]))
        for label, options in menus.items()
    ]
