"""Names of the chat commands, and their form as slash commands.

The Slack manifest, Discord's command tree and all texts take the name of a slash command from `CommandSyntax`, so that
each has the prefix.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from channels.i18n.messages import MessageCatalog

CommandName = Literal[
    "reset",
    "stop",
    "help",
    "info",
    "why",
    "agent",
    "model",
    "export",
    "mute",
    "listen",
    "usage",
    "schedule",
    "connections",
]

#: The names of slash commands; `ask` sends a prompt. No name ends with another one: see `CommandSyntax.find_name`.
SlashCommandName = Literal[CommandName, "ask"]

#: The most characters of a prefix. Slack: a slash command has at most 32, its slash included. Discord: 32 without.
MAX_PREFIX_CHARACTERS = 32 - len("/") - max(map(len, get_args(SlashCommandName)))

#: Discord: docs.discord.com/developers/interactions/application-commands; discord.py 2.7 refuses the apostrophe.
#: Slack documents only lower case and no spaces.
_PREFIX = re.compile(r"[-\w]*")


def validate_command_prefix(prefix: str) -> str:
    """Return the prefix; raise `ValueError` if Slack or Discord would refuse it."""
    if len(prefix) > MAX_PREFIX_CHARACTERS or prefix != prefix.lower() or not _PREFIX.fullmatch(prefix):
        raise ValueError(
            f"it must have at most {MAX_PREFIX_CHARACTERS} characters: "
            "lowercase letters, digits, - and _, such as parley-"
        )
    return prefix


@dataclass(frozen=True, slots=True)
class CommandSyntax:
    """Slash commands and menu entries of a platform."""

    prefix: str
    names: Sequence[SlashCommandName]
    list_menu_entries: Callable[[MessageCatalog], Sequence[str]]

    def format_name(self, name: SlashCommandName) -> str:
        """Return the name of a slash command with the prefix, without the slash."""
        return f"{self.prefix}{name}"

    def format_slash_command(self, name: SlashCommandName) -> str:
        return f"/{self.format_name(name)}"

    def find_name(self, command: str) -> SlashCommandName:
        """Return the name of a slash command that the platform sent to the bot; `help` for an unknown command.

        The command may have a former prefix: Slack sends it until the app's manifest is updated, Discord until the new
        commands are registered.
        """
        return next((name for name in self.names if command.endswith(name)), "help")
