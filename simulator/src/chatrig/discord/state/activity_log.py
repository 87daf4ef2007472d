"""Log of REST calls, gateway events and downloads; it publishes visible changes."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from chatrig.discord.state.messages import GuildChange
from chatrig.subscriptions import ChangePublisher


@dataclass(eq=False, slots=True)
class DiscordCallRecord:
    """Record of one call of the REST API.

    Attributes:
        route: method and path as Discord documents them (`POST /channels/{channel}/messages`), or as requested for an
            unknown route.
        path: the path without `/api/v10` and query.
        body: the JSON body; of a multipart body, `payload_json`; of a form, its fields without `client_secret`.
        files: the names of the uploaded files.
        received_at: monotonic time in seconds.
        status: the HTTP status; 0 before the response, and for a lost response.
        code: Discord's error code; None for a call that succeeded, and for an error without a JSON body.
        rate_limited: whether a rate limit (or `DiscordFaults.rate_limit`) refused the call.
        response: the JSON response, also if it was lost.
        remaining: (remaining calls, limit) of the route's bucket; None without a limit.
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
    """Record of an event of one gateway session.

    Attributes:
        sequence: the number within the session.
        created_at: monotonic time in seconds.
        sent_at: monotonic time in seconds at which it was last queued for a connection, before the latency; None if it
            never was.
    """

    session_id: str
    name: str
    data: dict[str, Any]
    sequence: int
    created_at: float
    sent_at: float | None = None


class DiscordActivityLog(ChangePublisher[GuildChange]):
    """Log of REST calls, events and downloads, and publisher of visible changes.

    Attributes:
        calls: a record of each REST call, in order.
        events: a record of each event of each session, in order.
        downloads: the path of each file download.
    """

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
