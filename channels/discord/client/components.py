"""Buttons as Discord has them: with a picture, and a label that is read out."""

from collections.abc import Sequence

import discord

from channels.base import Button

#: What is on a button besides its label, by what the button does.
EMOJI = {
    "stop": "⏹️",
    "retry": "🔁",
    "regenerate": "🔄",
    "revise": "✏️",
    "good": "👍",
    "bad": "👎",
    "approve": "✅",
    "deny": "⛔",
    "why": "❔",
}


def has_button(message: discord.Message, ending: str) -> bool:
    """Whether a message has a button whose id ends so."""
    rows = (row.children for row in message.components if isinstance(row, discord.ActionRow))
    return any((child.custom_id or "").endswith(ending) for row in rows for child in row)


def view_of(controls: Sequence[Button]) -> discord.ui.View | None:
    """The buttons as discord.py wants them. It is not to wait for them to be pressed: that is heard elsewhere."""
    if not controls:
        return None
    view = discord.ui.View(timeout=None)
    for control in controls:
        emoji = EMOJI.get(control.id.partition(":")[0])  # beside the label, which is what is read out
        view.add_item(discord.ui.Button(label=control.label, custom_id=control.id, emoji=emoji))
    view.stop()
    return view
