"""Session ids, event keys and place ids on Slack.

A thread is a session. A place is a channel with its threads, or the direct messages with a user.
"""

from channels.slack.settings import DmSessions
from core.messages.identity import Location

#: The platform's name in sessions, inbox and logs.
PLATFORM = "slack"

#: Takes the place of the thread in the session id if all direct messages with a user are one session.
_SINGLE = "dm"


def is_direct(channel: str) -> bool:
    return channel.startswith("D")


def place_id(team: str, channel: str) -> str:
    """Return the place id `slack:TEAM:CHANNEL` of a channel: ADK's `user_id`."""
    return f"{PLATFORM}:{team}:{channel}"


def location_of(team: str, channel: str) -> Location:
    return Location(team, channel, is_direct=is_direct(channel))


def event_key(team: str, channel: str, ts: str) -> str:
    """Return the key by which the inbox stores a message once: the same for each delivery."""
    return f"{place_id(team, channel)}:{ts}"


def session_id(team: str, channel: str, root_ts: str, dm_sessions: DmSessions = "thread") -> str:
    """Return the session id of a message; `root_ts` is the `ts` of its thread's first message, or its own."""
    return f"{place_id(team, channel)}:{_SINGLE if dm_sessions == 'single' and is_direct(channel) else root_ts}"


def thread_ts_of(session: str) -> str:
    """Return the `ts` of the thread that is a session; empty for a session of all DMs."""
    return session.rpartition(":")[2].removesuffix(_SINGLE)
