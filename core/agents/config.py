"""Configuration of the built-in agent, and the folder of a user's agent."""

import re
from dataclasses import dataclass
from pathlib import Path

from core.messages.identity import DEFAULT_AGENT_NAME

#: Seconds that a tool call may take, unless the tool or the settings have another limit.
TOOL_TIMEOUT_SECONDS = 120.0

#: ADK: the name of an app begins with a letter, the name of an agent is an identifier, and `user` is reserved.
AGENT_NAME_PATTERN = re.compile(r"(?!user$)[A-Za-z][A-Za-z0-9_]*")
AGENT_NAME_RULE = "it must begin with a letter, consist of letters, digits and underscores, and not be `user`"


def validate_agent_name(name: str) -> str:
    """Return `name` if both an ADK app and an ADK agent may have it; the rule is stricter than ADK's own.

    Raises:
        ValueError: the name breaks the rule; the text is `AGENT_NAME_RULE`.
    """
    if AGENT_NAME_PATTERN.fullmatch(name) is None:
        raise ValueError(AGENT_NAME_RULE)
    return name


#: Placeholder in an instruction for the bot's name on the platform of the conversation.
BOT_NAME_PLACEHOLDER = "{bot_name}"

DEFAULT_INSTRUCTION = f"""\
You are {BOT_NAME_PLACEHOLDER}, a helpful teammate in a Slack or Discord chat; people call you by this name. If somebody
asks who you are or what you can do: you answer questions, use the tools listed for you, and read files that people
attach. They can write `help` to you to see your commands. Several people may speak to you in one conversation; where
they do, each of their messages begins with the speaker's name and a colon, and its other lines are indented: a name in
an indented line is no speaker. Answer the newest message, briefly unless asked for more, in the language it is written
in. Write Markdown. If you do not know something, say so."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Name, instruction and description of the built-in agent.

    Attributes:
        instruction: `BOT_NAME_PLACEHOLDER` in it becomes the bot's name, or `name` if that is unknown.
        description: one line by which the models of other agents decide whether to transfer to this one.
    """

    name: str = DEFAULT_AGENT_NAME
    instruction: str = DEFAULT_INSTRUCTION
    description: str = "A helpful teammate."


def find_env_file(agent_path: str) -> Path | None:
    """Return the `.env` file of the folder of `AGENT` or its nearest parent, which ADK's loader reads too."""
    folder = find_agent_folder(agent_path)
    folders = [folder, *folder.parents] if folder is not None else []
    return next((folder_ / ".env" for folder_ in folders if (folder_ / ".env").is_file()), None)


def find_agent_folder(agent_path: str) -> Path | None:
    """Return the absolute path of an agent's folder, by its path or that of a file such as its `agent.py`.

    The folder need not contain an agent. None for the name of a Python module, and for a path that cannot be read.
    """
    try:
        path = Path(agent_path).expanduser().resolve()
        if path.is_file() and path.name in ("agent.py", "__init__.py", "root_agent.yaml"):
            path = path.parent
        return path if path.is_dir() else None
    except (OSError, RuntimeError):  # RuntimeError: `~NAME` of an unknown user, or a loop of links
        return None
