"""The sandbox itself: one HTTP server on loopback, and the hands of the people in the workspace."""

from collections.abc import Callable, Iterable, Mapping
from secrets import token_hex
from time import monotonic
from types import TracebackType
from typing import Any, TypeVar

from aiohttp import web

from sandbox.rate_limit import RateLimitUsage
from sandbox.slack.api.assistant import AssistantMethods
from sandbox.slack.api.base import SCOPES, WebApi
from sandbox.slack.api.directory import DirectoryMethods
from sandbox.slack.api.faults import SlackFaults
from sandbox.slack.api.files import FileMethods
from sandbox.slack.api.limits import MAX_PAGE_SIZE, UNLISTED_MAX_PAGE_SIZE, SlackRateLimits
from sandbox.slack.api.messages import MessageMethods
from sandbox.slack.api.oauth import OAuthMethods
from sandbox.slack.api.requests import Arguments
from sandbox.slack.api.streams import StreamMethods
from sandbox.slack.api.views import ViewMethods
from sandbox.slack.events.dispatcher import EVENT_SCOPES, SlackEventDispatcher
from sandbox.slack.events.http_mode import EnvelopeSender, RequestUrlClient
from sandbox.slack.events.socket_mode import SocketModeServer
from sandbox.slack.interactions.commands import SlashCommands
from sandbox.slack.interactions.delivery import SlackInteractions
from sandbox.slack.manifest_check import check_manifest
from sandbox.slack.router import SlackRouter
from sandbox.slack.state.activity_log import EnvelopeRecord, SlackActivityLog, Subscription
from sandbox.slack.state.payloads import SlackPayloads
from sandbox.slack.state.workspace import (
    SlackConversation,
    SlackMessage,
    UserGroup,
    Workspace,
    WorkspaceChange,
    WorkspaceUser,
    create_id,
)
from sandbox.slack.user_actions import SlackUserActions

T = TypeVar("T")

_DEFAULT_USERS = {"ada": "Ada Lovelace", "grace": "Grace Hopper", "linus": "Linus Pauling"}
_DEFAULT_CHANNELS = ("general", "random")


class SlackSandbox(SlackUserActions):
    """A Slack workspace with one app installed in it, for as long as it is entered.

    Wherever a user or a channel is asked for, its id or name will do as well (`"ada"`, `"general"`). What people
    write is given in Slack's own way: a mention is `<@U..>`, and `&`, `<`, `>` are entities.

    Attributes:
        api_url: the client's `base_url`; known once the sandbox is entered.
        people: by name; the workspace starts with a few, and what is added is here at once.
        channels: by name; it starts with `general` and `random`, everybody and the bot in both.
        commands: the app's slash commands, as its manifest has them.
        shortcuts: what the app has in the menu of a message: what each is known by, by its name.
        scopes: what the bot may do; take one away and see `missing_scope`, or the events stay away.
        subscriptions: the events that the app has asked for.
        calls: each call of the Web API, as it came.
        envelopes: each sending of an envelope, redeliveries included; with another workspace `beside` it, of both.
        socket_mode: whether the app has it; if not, it is told at its request URL, once that is verified.
        signing_secret: what requests to the app's request URL are signed with.
        faults: what is to go wrong.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        speed: float = 1.0,
        rate_limits: bool = True,
        is_unlisted: bool = False,
        name: str = "Sandbox",
        primary: "SlackSandbox | None" = None,
    ) -> None:
        """Build the workspace.

        Args:
            port: where to listen; 0 for any that is free.
            speed: how many times faster than Slack's the rate limit windows and time limits run; at 20, an
                acknowledgement is due after 150 ms.
            rate_limits: whether to refuse what comes too often.
            is_unlisted: whether the app is distributed commercially and is not in Slack's Marketplace, so that it may
                ask for what was said but once a minute.
            beside: another workspace of the same Slack, which this one has the app in common with: its sockets, its
                request URL and the address of its API. That one is to be entered first.
        """
        self._port = port
        self._primary = primary
        self._secondaries: list[SlackSandbox] = []
        self._activity_log = SlackActivityLog()
        app_id = create_id("A") if primary is None else primary.app_id
        self._workspace = Workspace(self._on_change, name=name, app_id=app_id)
        self.faults = SlackFaults()
        self.scopes = set(SCOPES)
        self.subscriptions = set(EVENT_SCOPES)
        self.socket_mode = True
        self._installed_actions = None
        self.shortcuts = {}
        self.commands: list[Mapping[str, Any]] = []
        self.bot_token = f"xoxb-{token_hex(12)}"
        self.app_token: str = f"xapp-1-{app_id}-{token_hex(12)}" if primary is None else primary.app_token
        self.signing_secret: str = token_hex(16) if primary is None else primary.signing_secret
        self.api_url = ""
        self.calls = self._activity_log.calls
        self.envelopes = (primary or self)._activity_log.envelopes
        self.people = {}
        self.channels = {}
        self._other_bots = {}

        verification = token_hex(12)
        payloads = self._payloads = SlackPayloads(self._workspace)
        if primary is None:
            self.oauth = OAuthMethods(self._activity_log)
            self._sockets = SocketModeServer(self._activity_log, self.faults, app_id=app_id, speed=speed)
            self.request_url = RequestUrlClient(
                self._activity_log, self.faults, signing_secret=self.signing_secret, token=verification, speed=speed
            )
            self._sender = EnvelopeSender(self._sockets, self.request_url)
        else:
            self.oauth, self._sockets, self.request_url = primary.oauth, primary._sockets, primary.request_url
            self._sender = primary._sender
        self._events = SlackEventDispatcher(
            self._workspace,
            payloads,
            lambda payload: self._sender.deliver("events_api", payload),
            scopes=self.scopes,
            subscriptions=self.subscriptions,
            token=verification,
        )
        api = self._api = WebApi(
            self._workspace, payloads, self.scopes, bot_token=self.bot_token, app_token=self.app_token
        )
        self._views = ViewMethods(api, speed=speed)
        self._assistant = AssistantMethods(api, self.subscriptions)
        self._commands = SlashCommands(self._workspace, self._sender, self._views, token=verification, speed=speed)
        self._interactions = SlackInteractions(
            self._workspace, payloads, self._sender, self._commands, self._views, token=verification, speed=speed
        )
        MessageMethods(api)
        StreamMethods(api, speed=speed)
        DirectoryMethods(api, max_page_size=UNLISTED_MAX_PAGE_SIZE if is_unlisted else MAX_PAGE_SIZE)
        self._files = FileMethods(api, self._activity_log, self.faults)
        api.register("apps.connections.open", self._open_connection, token_kinds=("app",))
        limits = self._limits = SlackRateLimits(speed, is_unlisted=is_unlisted) if rate_limits else None
        self._router = SlackRouter(self._activity_log, self.faults, limits, api, self._commands)
        self._runner = self._build_runner()
        for person, real_name in _DEFAULT_USERS.items():
            self.add_user(person, real_name)
        for place in _DEFAULT_CHANNELS:
            self.add_channel(place)

    async def __aenter__(self) -> "SlackSandbox":
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self._port = self._runner.addresses[0][1]
        self._files.base_url = f"http://127.0.0.1:{self._port}/"
        self._payloads.files_base_url = f"{self._files.base_url}files-pri/{self.team_id}-"
        self._commands_url = f"{self._files.base_url}commands/"
        self.api_url = f"{self._files.base_url}api/"
        if self._primary is None:
            self._sockets.start()
            await self.request_url.start()
        else:
            self._primary._secondaries.append(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._activity_log.close()
        if self._primary is None:
            await self.request_url.stop()
            await self._sockets.stop()
        else:
            self._primary._secondaries.remove(self)
        await self._runner.cleanup()

    def _build_runner(self) -> web.AppRunner:
        app = web.Application(client_max_size=8 * 2**20)
        app.router.add_post("/api/oauth.v2.access", self.oauth.handle_access)
        app.router.add_route("*", "/api/{method}", self._route_call)
        app.router.add_post("/commands/{key:.+}", self._router.handle_response)
        app.router.add_post("/upload/v1/{key}", self._files.handle_upload)
        app.router.add_get("/files-pri/{team}-{file}/{path:.*}", self._files.handle_download)
        app.router.add_get("/link", self._sockets.handle_websocket)
        return web.AppRunner(app, shutdown_timeout=1)

    # The workspace

    @property
    def team_id(self) -> str:
        return self._workspace.team_id

    @property
    def app_id(self) -> str:
        return self._workspace.app_id

    @property
    def bot_id(self) -> str:
        return self._workspace.bot_id

    @property
    def bot_user_id(self) -> str:
        return self._workspace.bot.id

    def install(self, manifest: Mapping[str, Any]) -> None:
        """Give the app what its manifest asks for, and nothing else: scopes, events, commands and shortcuts.

        Raises:
            ValueError: Slack would refuse the manifest.
        """
        check_manifest(manifest)
        self.scopes.clear()
        self.scopes.update(manifest["oauth_config"]["scopes"]["bot"])
        self.subscriptions.clear()
        self.subscriptions.update(manifest["settings"]["event_subscriptions"]["bot_events"])
        self.socket_mode = manifest["settings"]["socket_mode_enabled"]
        features = manifest["features"]
        self.shortcuts = {shortcut["name"]: shortcut["callback_id"] for shortcut in features.get("shortcuts", ())}
        self.commands = list(features.get("slash_commands", ()))
        commands = {command["command"] for command in self.commands}
        self._installed_actions = commands.union(self.shortcuts.values())

    def authorize(self, url: str, user: WorkspaceUser | str = "ada") -> str:
        """Allow the app what it asks for at `url`, Slack's page; the query with which the browser is sent back.

        Raises:
            ValueError: Slack would not know the app.
        """
        return self.oauth.grant_access(url, self._workspace, self._find_user(user).id, lambda: self.bot_token)

    def uninstall(self) -> None:
        """Take the app out of the workspace: its token is worth nothing any more, and it is told."""
        revoked, self.bot_token = self.bot_token, f"xoxb-{token_hex(12)}"
        self._api.replace_bot_token(revoked, self.bot_token)
        self._events.dispatch_uninstalled()

    def join_enterprise(self, enterprise_id: str) -> None:
        """Be a workspace of an organisation (Enterprise Grid), for all of which the app is installed."""
        self._workspace.enterprise_id = enterprise_id

    def add_user(
        self, name: str, real_name: str | None = None, *, locale: str = "en-US", team_id: str = ""
    ) -> WorkspaceUser:
        """Add a person, perhaps of another workspace, who joins `general`."""
        user = self._workspace.add_user(name, real_name or name.title(), locale=locale, team_id=team_id)
        self.people[name] = user
        if "general" in self.channels:
            self.channels["general"].members.add(user.id)
        return user

    def add_channel(
        self, name: str, *, private: bool = False, members: Iterable[WorkspaceUser | str] | None = None
    ) -> SlackConversation:
        """Add a channel; everybody is in it if `members` are not given. The bot always is."""
        users = self.people.values() if members is None else map(self._find_user, members)
        ids = {self.bot_user_id, *(user.id for user in users)}
        channel = self._workspace.add_channel(name, private=private, members=ids)
        self.channels[name] = channel
        return channel

    def add_user_group(self, handle: str, members: Iterable[WorkspaceUser | str]) -> UserGroup:
        """Add a group of people who are mentioned together."""
        return self._workspace.add_user_group(handle, (self._find_user(user).id for user in members))

    def open_dm(self, user: WorkspaceUser | str) -> SlackConversation:
        """The direct messages between a person and the bot."""
        return self._workspace.open_dm(self._find_user(user))

    def messages(
        self, channel: SlackConversation | str, *, thread_ts: str | None = None, deleted: bool = False
    ) -> list[SlackMessage]:
        """What stands in a channel, oldest first: replies and ephemeral messages included.

        Args:
            channel: where.
            thread_ts: only this thread's root and replies.
            deleted: what was deleted, too.
        """
        return [
            message
            for message in self._workspace.messages(self._find_channel(channel))
            if (deleted or not message.deleted) and (thread_ts is None or thread_ts in (message.ts, message.thread_ts))
        ]

    # What Slack does

    async def redeliver(self, sent: EnvelopeRecord | SlackMessage) -> None:
        """Send the same envelope again, or all those that told of the posting of a message.

        Raises:
            ValueError: nothing was sent of it yet.
        """
        told = [sent] if isinstance(sent, EnvelopeRecord) else [e for e in self.envelopes if _is_about(e, sent)]
        if not told:
            raise ValueError("nothing was sent that could be sent again")
        for envelope in {envelope.id: envelope for envelope in told}.values():
            self._sender.redeliver(envelope)

    async def end_streams(self) -> None:
        """End every stream as it ends when its time is over: without a word to the app."""
        for message in self._workspace.all_messages():
            if message.stream is not None and message.stream.is_live:
                message.stream.ends_at = monotonic()

    async def drop_sockets(self) -> None:
        """Cut every connection without a word."""
        self._sockets.drop_sockets()

    async def freeze_sockets(self) -> None:
        """Let every connection go dead: it stays open, and nothing comes, not even pongs; events get lost in it."""
        self._sockets.freeze_sockets()

    async def discard_pending(self) -> None:
        """Deliver nothing of what was told and is not acknowledged: its retries, of six minutes, are over."""
        self._sender.discard_pending()

    async def refresh_sockets(self, reason: str = "refresh_requested") -> None:
        """Ask every client to connect anew, and close its socket some seconds later."""
        await self._sockets.refresh_sockets(reason)

    @property
    def connection_count(self) -> int:
        """How many sockets are there to be sent events by; one, if there is a request URL."""
        return self._sender.connection_count

    # Watching

    def changes(self) -> Subscription:
        """All that people see happen from now on; any number of subscribers get all of it."""
        return self._activity_log.subscribe()

    async def wait_for_change(self) -> None:
        """Wait until something happens, be it a call."""
        await self._activity_log.wait_for_change()

    def rate_limit_usage(self) -> list[RateLimitUsage]:
        """What is left of the rate limits that calls have counted in."""
        return self._limits.list_usage() if self._limits else []

    async def wait_for(self, predicate: Callable[[], T], *, timeout: float = 20) -> T:  # noqa: ASYNC109 (the message)
        """Return what `predicate` gives as soon as it is truthy.

        Raises:
            TimeoutError: it was not within `timeout` seconds; tells what the sandbox has seen.
        """
        return await self._activity_log.wait_until(predicate, timeout, self._describe_state)

    async def wait_until_connected(self, timeout: float = 10) -> None:  # noqa: ASYNC109 (as `wait_for`)
        """Return as soon as a client is connected.

        Raises:
            TimeoutError: none was within `timeout` seconds.
        """
        await self.wait_for(lambda: self.connection_count, timeout=timeout)

    def _describe_state(self) -> str:
        calls = [f"{c.method} {c.status} {c.error or ''}".rstrip() for c in self.calls[-10:]]
        unacknowledged = sum(e.acknowledged_at is None for e in self.envelopes)
        said = [f"{m.channel.name}/{m.ts}: {m.text[:80]!r}" for m in self._workspace.latest_messages(10)]
        return "\n  ".join(
            [
                f"{self.connection_count} sockets, {len(self.envelopes)} envelopes ({unacknowledged} unacknowledged)",
                f"{len(self.calls)} calls, the last: {calls}",
                "messages:",
                *said,
            ]
        )

    # Inside

    def _on_change(self, change: WorkspaceChange) -> None:
        self._activity_log.publish(change)
        self._events.dispatch(change)

    async def _route_call(self, request: web.Request) -> web.StreamResponse:
        """Answer a call in the workspace that its token is of."""
        token = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        of = next((guest for guest in self._secondaries if guest._api.is_bot_token(token)), self)
        return await of._router.handle_call(request)

    def _open_connection(self, arguments: Arguments) -> dict[str, Any]:
        return {"url": f"ws://127.0.0.1:{self._port}/link?ticket={self._sockets.create_ticket()}&app_id={self.app_id}"}


def _is_about(envelope: EnvelopeRecord, message: SlackMessage) -> bool:
    event = envelope.payload.get("event", {})
    return (event.get("channel"), event.get("ts")) == (message.channel.id, message.ts)
