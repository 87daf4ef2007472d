"""Session ids, event keys and places of Slack: a thread is a session."""

from channels.slack.settings import Direct
from core.identity import Location

#: The channel's name in sessions, inbox and logs.
NAME = "slack"


#: What stands for the thread in the session of direct messages that are one conversation.
_SINGLE = "dm"


def is_direct(channel: str) -> bool:
    """Whether a channel is the direct messages between somebody and the bot."""
    return channel.startswith("D")


def place(team: str, channel: str) -> str:
    return f"{NAME}:{team}:{channel}"


def spot_of(team: str, channel: str) -> Location:
    return Location(team, channel, is_direct=is_direct(channel))


def event_key(team: str, channel: str, ts: str) -> str:
    return f"{place(team, channel)}:{ts}"


def session_id(team: str, channel: str, root_ts: str, direct: Direct = "thread") -> str:
    """A thread is a session; its first message has the same one as what is said under it."""
    return f"{place(team, channel)}:{_SINGLE if direct == 'single' and is_direct(channel) else root_ts}"


def root_of(session: str) -> str:
    """The thread of a session; empty for direct messages that are one conversation."""
    return session.rpartition(":")[2].removesuffix(_SINGLE)
