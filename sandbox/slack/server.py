"""The sandbox itself: one HTTP server on loopback, and the hands of the people in the workspace."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TypeVar

from sandbox.slack.faults import Faults
from sandbox.slack.journal import Call, Envelope, Subscription
from sandbox.slack.workspace import Channel, Message, User

T = TypeVar("T")


class SlackSandbox(AbstractAsyncContextManager["SlackSandbox"]):
    """A Slack workspace with one app installed in it.

    Wherever a user or a channel is asked for, its id or name will do (`"ada"`, `"general"`).

    Attributes:
        api_url: the client's `base_url`; known once the sandbox has been entered.
        people: by name; the workspace starts with a few.
        channels: by name; it starts with `general` and `random`, the bot in both.
        scopes: what the bot may do; take one away and see `missing_scope`.
    """

    api_url: str
    bot_token: str
    app_token: str
    team_id: str
    bot_user_id: str
    bot_id: str
    app_id: str
    people: dict[str, User]
    channels: dict[str, Channel]
    scopes: set[str]
    faults: Faults
    calls: list[Call]
    envelopes: list[Envelope]

    def __init__(self, *, port: int = 0, speed: float = 1.0, rate_limits: bool = True) -> None: ...

    async def __aenter__(self) -> "SlackSandbox": ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def add_user(self, name: str, real_name: str | None = None) -> User: ...
    def add_channel(
        self, name: str, *, private: bool = False, members: Iterable[User | str] | None = None
    ) -> Channel: ...
    def open_dm(self, user: User | str) -> Channel: ...

    async def say(
        self,
        user: User | str,
        channel: Channel | str,
        text: str,
        *,
        thread_ts: str | None = None,
        files: Sequence[str] = (),
    ) -> Message: ...
    async def edit(self, user: User | str, message: Message, text: str) -> None: ...
    async def delete(self, user: User | str, message: Message) -> None: ...
    async def bot_says(
        self, name: str, channel: Channel | str, text: str, *, thread_ts: str | None = None
    ) -> Message: ...
    async def command(
        self, user: User | str, channel: Channel | str, command: str, text: str = ""
    ) -> list[Message]: ...
    async def open_home(self, user: User | str, tab: str = "messages") -> None: ...
    async def redeliver(self, what: Envelope | Message) -> None: ...

    def messages(
        self, channel: Channel | str, *, thread_ts: str | None = None, deleted: bool = False
    ) -> list[Message]: ...
    def changes(self) -> Subscription: ...
    async def wait_for(self, predicate: Callable[[], T], *, timeout: float = 10) -> T: ...

    async def drop_sockets(self) -> None: ...
    async def refresh_sockets(self, reason: str = "refresh_requested") -> None: ...
    @property
    def connected(self) -> int: ...
    async def wait_connected(self, timeout: float = 10) -> None: ...
