"""What happened in the sandbox, in the order it did: calls, events and changes, for whoever watches."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from sandbox import subscriptions as watch
from sandbox.discord.state.guild import GuildChange

Subscription = watch.Subscription[GuildChange]


@dataclass(eq=False, slots=True)
class DiscordCallRecord:
    """One call of the REST API.

    Attributes:
        route: method and path as Discord documents them (`POST /channels/{channel}/messages`); what is no route
            of the sandbox's is named as it came.
        path: as it came, without query.
        body: the JSON of it; of a multipart body, `payload_json`.
        files: the names of the files that came along.
        at: when it came, on the monotonic clock, in seconds.
        status: the HTTP status that was answered; 0 as long as none was, and for a reply that was lost.
        code: what Discord put into `code`; None for a call that succeeded.
        rate_limited: whether a rate limit (or `SlackFaults.rate_limit`) refused it.
        reply: the JSON that was answered, or would have been.
        budget: what was left, of how many, in its bucket.
    """

    route: str
    path: str
    body: Any
    files: Sequence[str]
    received_at: float
    status: int = 0
    code: int | None = None
    rate_limited: bool = False
    response: Any = None
    remaining: tuple[int, int] | None = None


@dataclass(eq=False, slots=True)
class DiscordEventRecord:
    """One event, as one session is told it.

    Attributes:
        sequence: counts within the session.
        at, sent_at: when it came about, and when it last went out to the client, on the monotonic clock, in seconds.
    """

    session_id: str
    name: str
    data: dict[str, Any]
    sequence: int
    created_at: float
    sent_at: float | None = None


class DiscordActivityLog(watch.ChangeFeed[GuildChange]):
    """Keeps what happened, and wakes whoever waits for something to happen."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[DiscordCallRecord] = []
        self.events: list[DiscordEventRecord] = []
        self.downloads: list[str] = []

    def record_call(self, route: str, path: str, body: Any, files: Sequence[str]) -> DiscordCallRecord:
        call = DiscordCallRecord(route, path, body, files, monotonic())
        self.calls.append(call)
        self.notify()
        return call

    def record_download(self, path: str) -> None:
        self.downloads.append(path)
        self.notify()

    def record_event(self, session_id: str, name: str, data: dict[str, Any], sequence: int) -> DiscordEventRecord:
        event = DiscordEventRecord(session_id, name, data, sequence, monotonic())
        self.events.append(event)
        self.notify()
        return event
