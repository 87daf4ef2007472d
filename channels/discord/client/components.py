"""Buttons and menus as Discord components."""

from collections.abc import Sequence

import discord

from channels.base import Button

#: Emoji beside the label of a button, by the action of the button.
BUTTON_EMOJI = {
    "stop": "⏹️",
    "retry": "🔁",
    "regenerate": "🔄",
    "revise": "✏️",
    "good": "👍",
    "bad": "👎",
    "approve": "✅",
    "deny": "⛔",
    "attach": "🔁",
    "form": "📝",
    "connect": "🔗",
}


#: Discord: most options of a menu, and most characters of an option's label.
MAX_MENU_OPTIONS, MAX_OPTION_LABEL = 25, 100


def has_button(message: discord.Message, ending: str) -> bool:
    """Return whether a message has a button or menu whose id ends with `ending`."""
    rows = (row.children for row in message.components if isinstance(row, discord.ActionRow))
    return any((child.custom_id or "").endswith(ending) for row in rows for child in row)


def make_view(controls: Sequence[Button]) -> discord.ui.View | None:
    """Return buttons and menus as a discord.py view.

    A button has the emoji of its action (`BUTTON_EMOJI`); its style is ignored. The view is stopped (`View.stop`): the
    dispatcher, and not the view, receives the presses.
    """
    if not controls:
        return None
    view = discord.ui.View(timeout=None)
    for control in controls:
        if control.options:
            options = [
                discord.SelectOption(label=option.label[:MAX_OPTION_LABEL], value=option.id)
                for option in control.options
            ]
            view.add_item(discord.ui.Select(custom_id=control.id, placeholder=control.label, options=options))
            continue
        if control.url:  # Discord: it has no id, and a press of it is no interaction
            view.add_item(discord.ui.Button(label=control.label, url=control.url))
            continue
        emoji = BUTTON_EMOJI.get(control.id.partition(":")[0])  # screen readers read the label
        view.add_item(discord.ui.Button(label=control.label, custom_id=control.id, emoji=emoji))
    view.stop()
    return view
