"""Local Slack: a workspace behind an HTTP server on this machine."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from secrets import token_hex
from time import monotonic
from types import TracebackType
from typing import Any

from aiohttp import web

from chatrig.observable import ObservableSimulator
from chatrig.slack.api.assistant import AssistantMethods
from chatrig.slack.api.base import SCOPES, WebApi
from chatrig.slack.api.directory import DirectoryMethods
from chatrig.slack.api.faults import SlackFaults
from chatrig.slack.api.files import FileMethods
from chatrig.slack.api.limits import MAX_PAGE_SIZE, UNLISTED_MAX_PAGE_SIZE, SlackRateLimits
from chatrig.slack.api.messages import MessageMethods
from chatrig.slack.api.pins import PinMethods
from chatrig.slack.api.reactions import ReactionMethods
from chatrig.slack.api.requests import Arguments
from chatrig.slack.api.scheduled_messages import ScheduledMessageMethods
from chatrig.slack.api.streams import StreamMethods
from chatrig.slack.api.views import ViewMethods
from chatrig.slack.bolt_app import connect_bolt
from chatrig.slack.events.dispatcher import DEFAULT_EVENTS, EVENTS, SlackEventDispatcher
from chatrig.slack.events.http_mode import EnvelopeSender, RequestUrlClient
from chatrig.slack.events.socket_mode import SocketModeServer
from chatrig.slack.interactions.commands import SlashCommands
from chatrig.slack.interactions.delivery import SlackInteractions
from chatrig.slack.manifest_check import check_manifest, get_bot_scopes
from chatrig.slack.oauth import OAuthMethods
from chatrig.slack.openid import OpenIDMethods
from chatrig.slack.router import SlackRouter
from chatrig.slack.state.activity_log import EnvelopeRecord, SlackActivityLog
from chatrig.slack.state.messages import SlackConversation, SlackMessage
from chatrig.slack.state.payloads import SlackPayloads
from chatrig.slack.state.saved_state import load_workspace, save_workspace
from chatrig.slack.state.workspace import (
    SLACKBOT,
    UserGroup,
    Workspace,
    WorkspaceChange,
    WorkspaceUser,
    create_id,
)
from chatrig.slack.user_actions import SlackUserActions

_DEFAULT_USERS = {"ada": "Ada Lovelace", "grace": "Grace Hopper", "linus": "Linus Pauling"}
_DEFAULT_CHANNELS = ("general", "random")


class SlackSimulator(SlackUserActions, ObservableSimulator[WorkspaceChange, SlackMessage]):
    """Local Slack workspace with one installed app, as an async context manager.

    Methods accept users and channels as objects, names or ids (`"ada"`, `"general"`). Texts of people are in Slack's
    format: a mention is `<@U..>`, and `&`, `<`, `>` are entities.

    Attributes:
        api_url: the `base_url` for the client; set when the context is entered.
        people: users by name; `ada`, `grace` and `linus` exist from the start.
        channels: channels by name; `general` and `random` exist from the start and have all users and the bot.
        commands: the slash commands in the manifest of the app.
        shortcuts: callback ids of the app's message shortcuts, by name.
        scopes: the bot's scopes. A call that needs another one fails with `missing_scope`; such an event is not sent.
        metadata_subscriptions: pairs (app id or `*` for any, event type) of `message_metadata_*` events.
        subscriptions: the events to which the app subscribes.
        calls: records of the bot's HTTP requests, in order: API calls, posts to response URLs and file transfers.
        envelopes: all deliveries of envelopes, redeliveries included; a `primary` shares the list with its workspaces.
        socket_mode: whether the manifest enables Socket Mode. The simulator does not read it: envelopes go to
            WebSockets until `request_url.verify` succeeds, then to the request URL.
        signing_secret: the key that signs requests to the request URL.
        oauth: the app's `client_id`, `client_secret` and `redirect_urls`.
        faults: faults that tests inject.
    """

    _activity_log: SlackActivityLog

    def __init__(
        self,
        *,
        port: int = 0,
        speed: float = 1.0,
        rate_limits: bool = True,
        is_unlisted: bool = False,
        name: str = "Simulator",
        bot_name: str = "bot",
        primary: "SlackSimulator | None" = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """Create a workspace; the server starts when the context is entered.

        Args:
            port: the port of the server; 0 for any free one.
            speed: factor by which rate-limit windows and timeouts are shorter than Slack's; at 20, an acknowledgement
                is due after 150 ms.
            rate_limits: whether rate limits apply.
            is_unlisted: whether the app is sold outside Slack's Marketplace and may read messages once a minute only.
            name: the name of the workspace.
            bot_name: the displayed name of the bot; people mention it in lower case, with `_` for spaces.
            primary: a workspace whose app is installed here, too. Both share its sockets, request URL and API address.
                Enter it first.
            state: the result of an earlier workspace's `save_state`, with which this one begins.
        """
        self._port = port
        self._primary = primary
        self._secondaries: list[SlackSimulator] = []
        self._activity_log = SlackActivityLog()
        app_id = create_id("A") if primary is None else primary.app_id
        self._workspace = Workspace(self._on_change, name=name, app_id=app_id, bot_name=bot_name)
        self.faults = SlackFaults()
        self.scopes = set(SCOPES)
        self.subscriptions = set(DEFAULT_EVENTS)
        self.metadata_subscriptions: set[tuple[str, str]] = set()
        self.socket_mode = True
        self._installed_actions = None
        self.shortcuts = {}
        self.commands: list[Mapping[str, Any]] = []
        self.bot_token: str = f"xoxb-{token_hex(12)}" if state is None else state["bot_token"]
        self.app_token: str = f"xapp-1-{app_id}-{token_hex(12)}" if primary is None else primary.app_token
        self.signing_secret: str = token_hex(16) if primary is None else primary.signing_secret
        self.api_url = ""
        self.calls = self._activity_log.calls
        self.envelopes = (primary or self)._activity_log.envelopes
        self.allowed_unknown_calls = set()
        self.people, self.channels = {}, {}

        verification = token_hex(12)
        payloads = self._payloads = SlackPayloads(self._workspace)
        if primary is None:
            self.oauth = OAuthMethods(self._activity_log)
            self._openid = OpenIDMethods(self.oauth, speed)
            self._sockets = SocketModeServer(self._activity_log, self.faults, app_id=app_id, speed=speed)
            self.request_url = RequestUrlClient(
                self._activity_log, self.faults, signing_secret=self.signing_secret, token=verification, speed=speed
            )
            self._sender = EnvelopeSender(self._sockets, self.request_url)
        else:
            self.oauth, self._openid = primary.oauth, primary._openid
            self._sockets, self.request_url, self._sender = primary._sockets, primary.request_url, primary._sender
        self._events = SlackEventDispatcher(
            self._workspace,
            payloads,
            lambda payload: self._sender.deliver("events_api", payload),
            scopes=self.scopes,
            subscriptions=self.subscriptions,
            metadata_subscriptions=self.metadata_subscriptions,
            token=verification,
        )
        api = self._api = WebApi(
            self._workspace, payloads, self.scopes, bot_token=self.bot_token, app_token=self.app_token
        )
        self._views = ViewMethods(api, speed=speed)
        self._assistant = AssistantMethods(api, self.subscriptions, speed=speed)
        self._commands = SlashCommands(self._workspace, self._sender, self._views, token=verification, speed=speed)
        self._interactions = SlackInteractions(
            self._workspace, payloads, self._sender, self._commands, self._views, token=verification, speed=speed
        )
        for methods in (MessageMethods, ReactionMethods, PinMethods):
            methods(api)
        self._scheduled = ScheduledMessageMethods(api, speed=speed)
        StreamMethods(api, self._assistant, speed=speed)
        DirectoryMethods(api, max_page_size=UNLISTED_MAX_PAGE_SIZE if is_unlisted else MAX_PAGE_SIZE)
        self._files = FileMethods(api, self._activity_log, self.faults)
        api.register("apps.connections.open", self._open_connection, token_kinds=("app",))
        limits = self._limits = SlackRateLimits(speed, is_unlisted=is_unlisted) if rate_limits else None
        self._router = SlackRouter(self._activity_log, self.faults, limits, api, self._commands)
        self._runner = self._build_runner()
        self._add_people_and_channels(state)

    async def __aenter__(self) -> "SlackSimulator":
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
        self._scheduled.stop()
        if self._primary is None:
            await self.request_url.stop()
            await self._sockets.stop()
        else:
            self._primary._secondaries.remove(self)
        await self._runner.cleanup()

    def _add_people_and_channels(self, state: Mapping[str, Any] | None) -> None:
        if state is None:
            for person, real_name in _DEFAULT_USERS.items():
                self.add_user(person, real_name)
            for place in _DEFAULT_CHANNELS:
                self.add_channel(place)
            return
        load_workspace(self._workspace, state)
        for message in self._workspace.all_messages():
            self._events.record_message(message)
        people = (user for user in self._workspace.users.values() if not user.is_bot and user.id != SLACKBOT)
        self.people.update({user.name: user for user in people})
        self.channels.update({place.name: place for place in self._workspace.channels.values() if not place.is_dm})

    def _build_runner(self) -> web.AppRunner:
        app = web.Application(client_max_size=8 * 2**20)
        app.router.add_post("/api/oauth.v2.access", self.oauth.handle_access)
        app.router.add_route("*", "/api/{method}", self._route_call)
        app.router.add_post("/commands/{key:.+}", self._router.handle_response)
        app.router.add_post("/upload/v1/{key}", self._files.handle_upload)
        app.router.add_get("/files-pri/{team}-{file}/{path:.*}", self._files.handle_download)
        self._openid.add_routes(app.router, self._api, self.people)
        app.router.add_get("/link", self._sockets.handle_websocket)
        return web.AppRunner(app, shutdown_timeout=1)

    # The workspace

    @property
    def methods(self) -> frozenset[str]:
        """Names of the methods that the local Web API has."""
        return frozenset({"oauth.v2.access", *self._api.methods})

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

    @property
    def bot_name(self) -> str:
        """The name with which people mention the bot, without `@`."""
        return self._workspace.bot.name

    def install(self, manifest: Mapping[str, Any]) -> frozenset[str]:
        """Replace the app's configuration by that of a manifest.

        It consists of scopes, redirect URLs, events, metadata subscriptions, Socket Mode, home tab, slash commands and
        shortcuts.
        The tokens and connections stay. The part of a missing section is empty or off.

        Returns:
            The events in the manifest that the simulator never sends.

        Raises:
            ValueError: Slack would reject the manifest; nothing is replaced.
            KeyError: as for `check_manifest`.
        """
        check_manifest(manifest)
        self.scopes.clear()
        self.scopes.update(get_bot_scopes(manifest))
        self.oauth.redirect_urls.clear()
        self.oauth.redirect_urls.update(manifest.get("oauth_config", {}).get("redirect_urls", ()))
        self.subscriptions.clear()
        settings, features = manifest.get("settings", {}), manifest.get("features", {})
        events = settings.get("event_subscriptions", {})
        self.subscriptions.update(events.get("bot_events", ()))
        self.metadata_subscriptions.clear()
        self.metadata_subscriptions.update(
            (wanted["app_id"], wanted["event_type"]) for wanted in events.get("metadata_subscriptions", ())
        )
        self.socket_mode = settings.get("socket_mode_enabled", False)
        self._views.is_home_enabled = features.get("app_home", {}).get("home_tab_enabled", False)
        self.shortcuts = {shortcut["name"]: shortcut["callback_id"] for shortcut in features.get("shortcuts", ())}
        self.commands = list(features.get("slash_commands", ()))
        commands = {command["command"] for command in self.commands}
        self._installed_actions = commands.union(self.shortcuts.values())
        return frozenset(self.subscriptions - EVENTS)

    def authorize(self, url: str, user: WorkspaceUser | str = "ada") -> str:
        """Approve the OAuth request at `url` as a user.

        Args:
            url: the address with the parameters `client_id`, `scope`, `redirect_uri` and `state`.

        Returns:
            The query of the redirect, with `code` and `state`.

        Raises:
            ValueError: the client id or the user is unknown.
            KeyError: the URL has no `scope`.
        """
        return self.oauth.grant_access(url, self._workspace, self._find_user(user).id, lambda: self.bot_token)

    @property
    def authorize_url(self) -> str:
        """The address of Sign in with Slack, without its query."""
        return f"{self._files.base_url}openid/connect/authorize"

    def uninstall(self) -> None:
        """Uninstall the app, which revokes its bot token.

        The events `tokens_revoked` and `app_uninstalled` are sent, if the app subscribes to them. `bot_token` is then a
        new token, accepted at once, as after a reinstallation.
        """
        revoked, self.bot_token = self.bot_token, f"xoxb-{token_hex(12)}"
        self._api.replace_bot_token(revoked, self.bot_token)
        self._events.dispatch_uninstalled()

    def join_enterprise(self, enterprise_id: str) -> None:
        """Make the workspace part of an Enterprise Grid organisation.

        The bot's app is then installed in the whole organisation. Events and `auth.test` then have the organisation's
        id, and `is_enterprise_install` is true. Interactions, slash commands and `oauth.v2.access` stay as before.
        Tokens stay valid.
        """
        self._workspace.enterprise_id = enterprise_id

    def add_user(
        self,
        name: str,
        real_name: str | None = None,
        *,
        locale: str = "en-US",
        team_id: str = "",
        time_zone: str = "Etc/UTC",
    ) -> WorkspaceUser:
        """Add a user, who joins the channel `general` without a message or an event.

        Args:
            real_name: the full name; None for the name as a title.
            team_id: the id of the user's workspace, if it is another one (Slack Connect); "" otherwise.
            time_zone: the IANA name of the user's time zone. An unknown name is sent as it is, with an offset of 0.

        Raises:
            ValueError: the name exists.
        """
        user = self._workspace.add_user(
            name, real_name or name.title(), locale=locale, team_id=team_id, time_zone=time_zone
        )
        self.people[name] = user
        if "general" in self.channels:
            self.channels["general"].members.add(user.id)
        return user

    def add_channel(
        self, name: str, *, private: bool = False, members: Iterable[WorkspaceUser | str] | None = None
    ) -> SlackConversation:
        """Add a channel with the bot and some users, without an event.

        Args:
            members: the users; None for all users.

        Raises:
            ValueError: the name exists, or a member does not.
        """
        users = self.people.values() if members is None else map(self._find_user, members)
        ids = {self.bot_user_id, *(user.id for user in users)}
        channel = self._workspace.add_channel(name, private=private, members=ids)
        self.channels[name] = channel
        return channel

    def add_user_group(self, handle: str, members: Iterable[WorkspaceUser | str]) -> UserGroup:
        """Add a user group of some users, without an event.

        Args:
            handle: the name of the group in mentions, without `@`; it is not checked for duplicates.

        Raises:
            ValueError: a member does not exist.
        """
        return self._workspace.add_user_group(handle, (self._find_user(user).id for user in members))

    def add_emoji(self, name: str) -> None:
        """Add a custom emoji to the workspace.

        Args:
            name: the name without colons.
        """
        self._workspace.custom_emoji[name] = f"https://emoji.slack-edge.com/{self.team_id}/{name}/0123456789abcdef.png"

    def open_dm(self, user: WorkspaceUser | str) -> SlackConversation:
        """Return the DM of a user and the bot; create it if it does not exist."""
        return self._workspace.open_dm(self._find_user(user))

    @property
    def unknown_calls(self) -> list[str]:
        called = {call.method for call in self.calls if call.error == "unknown_method"}
        return sorted(called - self.allowed_unknown_calls)

    @property
    def env(self) -> dict[str, str]:
        return {
            "SLACK_BOT_TOKEN": self.bot_token,
            "SLACK_APP_TOKEN": self.app_token,
            "SLACK_SIGNING_SECRET": self.signing_secret,
            "SLACK_API_URL": self.api_url,
        }

    def list_replies(self, question: SlackMessage) -> list[SlackMessage]:
        thread = question.thread_ts or question.ts
        return [
            message
            for message in self.messages(question.channel)
            if message.bot_id == self.bot_id
            and message.ts > question.ts
            and (message.thread_ts == thread or (message.thread_ts is None and not question.is_thread_reply))
        ]

    def messages(
        self, channel: SlackConversation | str, *, thread_ts: str | None = None, deleted: bool = False
    ) -> list[SlackMessage]:
        """Return the messages of a channel, oldest first.

        Thread replies and ephemeral messages are included.

        Args:
            thread_ts: return only the root and the replies of this thread; None for all messages.
            deleted: include deleted messages.
        """
        return [
            message
            for message in self._workspace.messages(self._find_channel(channel))
            if (deleted or not message.deleted) and (thread_ts is None or thread_ts in (message.ts, message.thread_ts))
        ]

    def run_bolt(self, app: Any) -> AbstractAsyncContextManager[None]:
        """Connect an `App` or `AsyncApp` of Bolt for Python by Socket Mode, until the returned context is left.

        Its client has the token `bot_token` and the `base_url` `api_url`.
        """
        return connect_bolt(app, self.app_token)

    def save_state(self) -> dict[str, Any]:
        """Return the workspace and its bot token as JSON, for the parameter `state` of a later simulator.

        The module `chatrig.slack.state.saved_state` lists the parts that are left out.
        """
        return {"bot_token": self.bot_token, **save_workspace(self._workspace)}

    # Actions of Slack

    async def redeliver(self, sent: EnvelopeRecord | SlackMessage) -> None:
        """Send an envelope to the app again, or those about the post of a message.

        These have its `message` and `app_mention` events, not edits and reactions. Acknowledgements are not awaited.

        Raises:
            ValueError: no envelope is about the message.
        """
        envelopes = [sent] if isinstance(sent, EnvelopeRecord) else [e for e in self.envelopes if _is_about(e, sent)]
        if not envelopes:
            raise ValueError("there is no envelope to send again")
        for envelope in {envelope.id: envelope for envelope in envelopes}.values():
            self._sender.redeliver(envelope)

    async def end_streams(self) -> None:
        """End all live streams of messages as if their lifetimes were over.

        The app receives no event.
        """
        for message in self._workspace.all_messages():
            if message.stream is not None and message.stream.is_live:
                message.stream.ends_at = monotonic()

    async def drop_sockets(self) -> None:
        """Abort every Socket Mode connection without a close frame.

        Unacknowledged events are sent again on the next connection.
        """
        self._sockets.drop_sockets()

    async def freeze_sockets(self) -> None:
        """Freeze every Socket Mode connection: it stays open without any frames.

        Events on a frozen connection do not arrive, and are retried; commands and interactions are lost. When the next
        client connects, the frozen connections are aborted.
        """
        self._sockets.freeze_sockets()

    async def discard_pending(self) -> None:
        """Discard all queued and unacknowledged envelopes, as after the last retry."""
        self._sender.discard_pending()

    async def reset(self) -> None:
        """Remove messages, modals, faults, calls and unacknowledged envelopes, for another test with the same bot.

        The app receives no event. Users, channels, connections and tokens stay.
        """
        await self.discard_pending()
        self.faults.clear()
        self._workspace.clear_messages()
        self._views.open_views.modals.clear()
        self.calls.clear()
        self.envelopes.clear()
        if self._limits:
            self._limits.clear()
        self._activity_log.notify()

    async def refresh_sockets(self, reason: str = "refresh_requested") -> None:
        """Send `disconnect` to every client, and close its WebSocket in the background.

        The WebSocket is closed after `CLOSE_DELAY_SECONDS / speed`, and receives no more envelopes until then.

        Args:
            reason: Slack's reason in the message.
        """
        await self._sockets.refresh_sockets(reason)

    # Watching

    @property
    def connection_count(self) -> int:
        """Number of Socket Mode connections on which the app receives envelopes.

        With a verified request URL it is always 1.
        """
        return self._sender.connection_count

    def describe(self) -> str:
        calls = [f"{c.method} {c.status} {c.error or ''}".rstrip() for c in self.calls[-10:]]
        unacknowledged = sum(e.acknowledged_at is None for e in self.envelopes)
        messages = [f"{m.channel.name}/{m.ts}: {m.text[:80]!r}" for m in self._workspace.latest_messages(10)]
        return "\n  ".join(
            [
                f"{self.connection_count} sockets, {len(self.envelopes)} envelopes ({unacknowledged} unacknowledged)",
                f"{len(self.calls)} calls, the last: {calls}",
                "messages:",
                *messages,
            ]
        )

    # Internals

    def _on_change(self, change: WorkspaceChange) -> None:
        self._activity_log.publish(change)
        self._events.dispatch(change)

    async def _route_call(self, request: web.Request) -> web.StreamResponse:
        """Respond to an API call in the workspace to which its token belongs.

        It is this workspace, or one that has this as its `primary`. A call with an unknown token gets this workspace's
        error.
        """
        token = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        workspace = next((guest for guest in self._secondaries if guest._api.is_bot_token(token)), self)
        return await workspace._router.handle_call(request)

    def _open_connection(self, arguments: Arguments) -> dict[str, Any]:
        return {"url": f"ws://127.0.0.1:{self._port}/link?ticket={self._sockets.create_ticket()}&app_id={self.app_id}"}


def _is_about(envelope: EnvelopeRecord, message: SlackMessage) -> bool:
    """Return whether an envelope has an event with a message's channel and timestamp."""
    event = envelope.payload.get("event", {})
    return (event.get("channel"), event.get("ts")) == (message.channel.id, message.ts)
