"""What an agent is made of, as far as settings tell it."""

import re
from dataclasses import dataclass

#: How long a call may take, in seconds, unless it is told otherwise.
TOOL_SECONDS = 120.0

#: ADK re-sends what was stored under another name as somebody else's words, so a name is for life.
DEFAULT_NAME = "lango_agent"

#: ADK: an app's name begins with a letter, an agent's is an identifier, and `user` is the user's.
NAME = re.compile(r"(?!user$)[A-Za-z][A-Za-z0-9_]*")
NAME_RULE = "it must begin with a letter, consist of letters, digits and underscores, and not be `user`"

DEFAULT_INSTRUCTION = """\
You are a helpful teammate in a chat. Several people may speak to you in one conversation; where they do, each of
their messages begins with the speaker's name and a colon. Answer the newest message, briefly unless asked for more,
in the language it is written in. Write Markdown. If you do not know something, say so."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """What an agent is made of besides its model and its tools."""

    name: str = DEFAULT_NAME
    instruction: str = DEFAULT_INSTRUCTION
    description: str = "A helpful teammate."
