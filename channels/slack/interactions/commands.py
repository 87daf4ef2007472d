"""Slash commands, and the choice of the session to which a command applies.

Slack: docs.slack.dev/interactivity/implementing-slash-commands. Slash commands do not work in threads, so that none
belongs to a session: the user may have to choose one of their sessions in the channel.
"""

import re
from collections.abc import Mapping, Sequence

from channels.base import Button
from channels.commands.handlers import COMMAND_DESCRIPTIONS, EXPORT_FORMATS
from channels.commands.syntax import CommandName
from channels.i18n import messages as words
from channels.slack.text import make_title
from core.conversations.service import RecentSession

#: Commands by slash command, without the prefix of the settings. `mute` and `listen` have none: Slack's slash commands
#: do not work in threads, and Slack refuses a manifest with one of its own, such as `/mute`.
SLASH_COMMANDS: Mapping[str, CommandName] = {
    f"/{name}": name for name in COMMAND_DESCRIPTIONS if name not in ("mute", "listen")
}

#: The request to choose, for a command that may apply to several sessions. Other commands apply to the latest session.
_CHOICE_TEXTS: Mapping[CommandName, str] = {"reset": words.CHOOSE_RESET, "export": words.CHOOSE_EXPORT}

#: The most sessions to choose from.
MAX_CHOICES = 5

#: Prefix of the id of a button that chooses a session for a command; the command and the session id follow.
CHOICE_PREFIX = "pick:"
CHOICE_BUTTON = re.compile(f"^{CHOICE_PREFIX}")


def choice_text(name: CommandName, argument: str, found: Sequence[RecentSession]) -> str:
    """Return the untranslated sentence that asks to choose a session; empty if there is no need."""
    is_known = name != "export" or argument.lower() in ("", *EXPORT_FORMATS)
    return _CHOICE_TEXTS.get(name, "") if len(found) > 1 and is_known else ""


def choice_buttons(name: CommandName, argument: str, found: Sequence[RecentSession]) -> list[Button]:
    """Return a button per session; a press runs the command for that session: see `parse_choice`."""
    command = f"{name} {argument.lower()}" if name == "export" else name
    return [
        Button(f"{CHOICE_PREFIX}{command.rstrip()}:{session.session_id}", make_title(session.first.text) or "…")
        for session in found
    ]


def parse_choice(button: str, place: str) -> tuple[CommandName, str, str] | None:
    """Return the command, its argument and the session id of a button of `choice_buttons`.

    None if the id is invalid, or the session is of another channel than the one in which the button was pressed.
    """
    command, _, session = button.removeprefix(CHOICE_PREFIX).partition(":")
    command_name, _, argument = command.partition(" ")
    name = next((name for name in SLASH_COMMANDS.values() if name == command_name), None)
    return (name, argument, session) if name is not None and session.startswith(f"{place}:") else None
