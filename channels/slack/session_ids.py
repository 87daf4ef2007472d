"""Session ids, event keys and place ids on Slack: a thread is a session."""

from channels.slack.settings import Direct
from core.identity import Location

#: The channel's name in sessions, inbox and logs.
NAME = "slack"

#: In place of the thread in the id of a session of all direct messages with a user.
_SINGLE = "dm"


def is_direct(channel: str) -> bool:
    """Return whether a channel is the direct messages of a user with the bot."""
    return channel.startswith("D")


def place_id(team: str, channel: str) -> str:
    """Return the id of a channel with its threads: ADK's `user_id` of their sessions."""
    return f"{NAME}:{team}:{channel}"


def location_of(team: str, channel: str) -> Location:
    return Location(team, channel, is_direct=is_direct(channel))


def event_key(team: str, channel: str, ts: str) -> str:
    """Return the key by which a message is stored once, however often it is delivered."""
    return f"{place_id(team, channel)}:{ts}"


def session_id(team: str, channel: str, root_ts: str, direct: Direct = "thread") -> str:
    """Return the session id of a message.

    Args:
        root_ts: the `ts` of the thread's first message, which is in the same session.
        direct: `single`: all direct messages with a user are one session.
    """
    return f"{place_id(team, channel)}:{_SINGLE if direct == 'single' and is_direct(channel) else root_ts}"


def thread_of(session: str) -> str:
    """Return the `ts` of a session's thread; empty if direct messages are one session."""
    return session.rpartition(":")[2].removesuffix(_SINGLE)
