"""Session ids, event keys and place ids on Slack.

A thread is a session. A place is a channel with its threads, or the direct messages with a user.
"""

from channels.slack.settings import DmSessions
from core.identity import Location

#: The channel's name in sessions, inbox and logs.
PLATFORM = "slack"

#: Takes the place of the thread in the session id if all direct messages with a user are one session.
_SINGLE = "dm"


def is_direct(channel: str) -> bool:
    """Return whether a channel id is the id of direct messages with the bot."""
    return channel.startswith("D")


def place_id(team: str, channel: str) -> str:
    """Return the place id `slack:TEAM:CHANNEL` of a channel: ADK's `user_id`."""
    return f"{PLATFORM}:{team}:{channel}"


def location_of(team: str, channel: str) -> Location:
    return Location(team, channel, is_direct=is_direct(channel))


def event_key(team: str, channel: str, ts: str) -> str:
    """Return the event key of a message: the same for each delivery of the message.

    The inbox stores only one message per key.

    Args:
        team: the id of the workspace.
        channel: the id of the channel.
        ts: the `ts` of the message.
    """
    return f"{place_id(team, channel)}:{ts}"


def session_id(team: str, channel: str, root_ts: str, dm_sessions: DmSessions = "thread") -> str:
    """Return the session id of a message in a thread, or of a thread's first message.

    Args:
        team: the id of the workspace.
        channel: the id of the channel.
        root_ts: the `ts` of the thread's first message; of a message outside threads, its own `ts`.
        dm_sessions: `single` if all direct messages with a user are one session.
    """
    return f"{place_id(team, channel)}:{_SINGLE if dm_sessions == 'single' and is_direct(channel) else root_ts}"


def thread_ts_of(session: str) -> str:
    """Return the `ts` of the thread that is a session; empty for a session of all DMs."""
    return session.rpartition(":")[2].removesuffix(_SINGLE)
