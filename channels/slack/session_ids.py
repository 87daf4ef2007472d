"""Session ids, event keys and place ids of Slack: a thread is a session."""

from channels.slack.settings import Direct
from core.identity import Location

#: The channel's name in sessions, inbox and logs.
NAME = "slack"

#: In place of the thread in the id of a session of all direct messages with a user.
_SINGLE = "dm"


def is_direct(channel: str) -> bool:
    """Return whether a channel is the direct messages of a user and the bot."""
    return channel.startswith("D")


def place_id(team: str, channel: str) -> str:
    return f"{NAME}:{team}:{channel}"


def location_of(team: str, channel: str) -> Location:
    return Location(team, channel, is_direct=is_direct(channel))


def event_key(team: str, channel: str, ts: str) -> str:
    return f"{place_id(team, channel)}:{ts}"


def session_id(team: str, channel: str, root_ts: str, direct: Direct = "thread") -> str:
    """Return the session of a message; the first message of a thread has the session of its replies."""
    return f"{place_id(team, channel)}:{_SINGLE if direct == 'single' and is_direct(channel) else root_ts}"


def thread_of(session: str) -> str:
    """Return the thread of a session; empty for all direct messages with a user."""
    return session.rpartition(":")[2].removesuffix(_SINGLE)
