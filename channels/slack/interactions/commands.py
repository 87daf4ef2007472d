"""Slash commands, and the choice of a conversation for a command.

Slack: docs.slack.dev/interactivity/implementing-slash-commands. There are none in threads, and Slack does not tell the
thread: the user may have to choose one of their conversations.
"""

from collections.abc import Mapping, Sequence

from channels.base import Button
from channels.commands.handlers import EXPORT_FORMATS, CommandName
from channels.i18n import messages as words
from channels.slack.text import make_title
from core.conversations.service import RecentSession

#: Commands by their name in Slack, in the order of `channels.commands.handlers.COMMANDS`. Slack refuses a manifest with
#: a command of its own, such as `/mute`. Its slash commands do not work in threads, so `mute` and `listen` have none.
COMMANDS: Mapping[str, CommandName] = {
    "/reset": "reset",
    "/stop": "stop",
    "/info": "info",
    "/why": "why",
    "/agent": "agent",
    "/model": "model",
    "/export": "export",
    "/usage": "usage",
    "/help": "help",
}

#: The question if several conversations may be meant. Other commands are about the latest one.
_QUESTIONS: Mapping[CommandName, str] = {"reset": words.CHOOSE_RESET, "export": words.CHOOSE_EXPORT}

#: Conversations to choose from.
MAX_CHOICES = 5

#: Prefix of the id of a button that chooses a conversation; the command and the session follow.
CHOICE_PREFIX = "pick:"


def choice_question(name: CommandName, argument: str, found: Sequence[RecentSession]) -> str:
    """Return the untranslated request to choose a conversation; "" for none.

    Only `reset` and a valid `export` let the user choose, if there are several conversations.

    Args:
        found: the user's recent conversations in the channel.
    """
    is_known = name != "export" or argument.lower() in ("", *EXPORT_FORMATS)
    return _QUESTIONS.get(name, "") if len(found) > 1 and is_known else ""


def choice_buttons(name: CommandName, argument: str, found: Sequence[RecentSession]) -> list[Button]:
    """Return a button per conversation that runs the command in it.

    See `parse_choice`.
    """
    command = f"{name} {argument.lower()}" if name == "export" else name
    return [
        Button(f"{CHOICE_PREFIX}{command.rstrip()}:{one.session_id}", make_title(one.first.text) or "…")
        for one in found
    ]


def parse_choice(button: str, place: str) -> tuple[CommandName, str, str] | None:
    """Parse the id of a button of `choice_buttons`.

    Args:
        place: the id of the channel (`place_id`) in which it was pressed.

    Returns:
        The command, its argument and the session id; None if the session is of another channel.
    """
    command, _, session = button.removeprefix(CHOICE_PREFIX).partition(":")
    command_name, _, argument = command.partition(" ")
    name = next((name for name in COMMANDS.values() if name == command_name), None)
    return (name, argument, session) if name is not None and session.startswith(f"{place}:") else None
