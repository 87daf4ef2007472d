"""The slash commands.

Slack: docs.slack.dev/interactivity/implementing-slash-commands. There are none in threads, and none is told with one.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """One that people find in the list of all commands.

    Attributes:
        name: what it is to the bot.
        about: what it does, in a line.
        hint: what may be written behind it.
    """

    name: str
    about: str
    hint: str = ""


#: By what people write. Slack: a manifest with a command that Slack has itself, such as `/status`, is refused whole.
COMMANDS: Mapping[str, Command] = {
    "/reset": Command("reset", "Start over in a conversation of yours here"),
    "/stop": Command("stop", "Stop what I am answering you here"),
    "/help": Command("help", "What I can do"),
    "/agent-status": Command("status", "How long your conversation here is, and which model answers"),
    "/model": Command("model", "See or choose the model that answers", "[name]"),
    "/export": Command("export", "Your conversation here as a file, for you alone"),
}
