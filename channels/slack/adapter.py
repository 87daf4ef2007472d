"""Slack adapter: slack-bolt in Socket Mode or HTTP mode, for all workspaces."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from aiohttp import web
from slack_bolt.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.error import BoltUnhandledRequestError
from slack_bolt.response import BoltResponse

from channels.access import AccessDecision
from channels.base import FetchedFile, FileCheck, MessageText, SurroundingMessages
from channels.intake.backfill import Backfill
from channels.services import ChannelServices
from channels.settings import BackfillLimits
from channels.slack import manifest as events
from channels.slack.access import SlackIdentityResolver, is_user_group_id
from channels.slack.client.api import SlackApi
from channels.slack.client.auth import TOKEN_CHECK_SECONDS, TokenMonitor, make_session, make_web_client, verify_tokens
from channels.slack.client.blocks import MAX_MENU_OPTIONS
from channels.slack.client.http_mode import HttpMode
from channels.slack.client.oauth import oauth_routes
from channels.slack.client.socket_mode import PING_INTERVAL_SECONDS, SocketMode
from channels.slack.client.workspaces import WorkspaceTokenStore
from channels.slack.directory import WorkspaceDirectory
from channels.slack.events.agent_context import AgentContextStore
from channels.slack.events.authors import resolve_event_authors
from channels.slack.events.downloads import SlackDownloads
from channels.slack.events.history import SlackHistory
from channels.slack.events.parser import parse_change, parse_message, workspace_of
from channels.slack.events.thread_context import SlackContextFetcher
from channels.slack.interactions.commands import CHOICE_BUTTON
from channels.slack.interactions.forms import ANSWER_MODAL, FORM_BUTTON
from channels.slack.interactions.handler import SlackIntakeHandler
from channels.slack.interactions.responses import PrivateResponder
from channels.slack.interactions.shortcuts import ASK, ASK_MODAL, RESET, WHY
from channels.slack.replies.assistant import AssistantThreads, suggest_prompts
from channels.slack.replies.reactions import make_queued_reactions
from channels.slack.replies.streaming import StreamPolicy, StreamSurface
from channels.slack.replies.surface import SlackSurface
from channels.slack.session_ids import PLATFORM
from channels.slack.settings import SlackSettings
from channels.slack.text import to_plain_text
from core.conversations.history_state import HistoryState
from core.errors import SettingsError
from core.inbox.watermarks import Watermarks
from core.inbox_message import Attachment, InboxMessage
from core.privacy.vault import Cipher, Vault
from core.secret_redaction import format_error

log = logging.getLogger(__name__)

#: Any id of a command or button.
_ANY = re.compile(".")

#: Seconds that connecting may take.
CONNECT_TIMEOUT_SECONDS = 30.0

#: Seconds that a stop waits for background calls.
SETTLE_TIMEOUT_SECONDS = 2.0


class SlackChannel:
    """The Slack adapter (see `Channel`); create it inside a running event loop.

    Args:
        services: the services that the adapter calls for messages and interactions.
        watermarks: the store of the watermarks and places, for the backfill.
        vault: stores the tokens of several workspaces; None for one workspace.

    Attributes:
        routes: the routes of HTTP mode and OAuth, for the HTTP server of the process; empty if neither is used.
    """

    name = PLATFORM
    max_menu_options = MAX_MENU_OPTIONS
    heartbeat_interval = max(PING_INTERVAL_SECONDS, TOKEN_CHECK_SECONDS)

    def __init__(
        self,
        settings: SlackSettings,
        services: ChannelServices,
        watermarks: Watermarks,
        backfill_limits: BackfillLimits,
        vault: Vault | None = None,
    ) -> None:
        self._services = services
        self._app_token = settings.app_token if settings.mode == "socket" else ""
        self._client = make_web_client(settings)
        self._connections = self._client.session = make_session()
        self._tokens = WorkspaceTokenStore(vault) if vault is not None else None
        self._api = SlackApi(self._client, tokens=self._tokens)
        self.limiters = self._api.limiters
        self._directory = WorkspaceDirectory(self._api)
        needs_groups = any(map(is_user_group_id, services.access_policy.list_ids(PLATFORM)))
        self._identities = SlackIdentityResolver(self._directory, needs_groups=needs_groups)
        self._downloads = SlackDownloads(self._api)
        tracks_unaddressed = services.reply_without_mention != "never"
        self._context = SlackContextFetcher(self._api, self._directory, tracks_unaddressed=tracks_unaddressed)
        self._queued_reactions = make_queued_reactions(self._api)
        self._settings = settings
        self._assistant = AssistantThreads(self._api)
        self._stream_policy = None if settings.streaming == "edit" else StreamPolicy(settings.streaming)
        self._app = AsyncApp(
            name=PLATFORM,  # Bolt: without a name it reads the sources of its callers, for 0.1 s
            client=self._client,
            authorize=_authorize,
            process_before_response=True,  # an event is acknowledged once it is stored
            raise_error_for_unhandled_request=True,  # see _respond_to_error
            request_verification_enabled=False,  # HttpMode verifies the raw bytes
            ignoring_self_events_enabled=False,  # the parser decides
            attaching_conversation_kwargs_enabled=False,
        )
        self._parse = partial(
            parse_message,
            dm_sessions=settings.dm_sessions,
            answers_bots=settings.answers_bots,
            command_prefix=settings.command_prefix,
        )
        self._history = SlackHistory(self._api, self._directory, self._parse)
        self._cipher = Cipher(settings.bot_token or settings.client_secret)
        self._agent_contexts = AgentContextStore(self._cipher)
        self._responder = PrivateResponder(self._api, self.create_surface)
        self._intake = SlackIntakeHandler(
            settings,
            services,
            self._identities,
            self._directory,
            self._responder,
            channel=self,
            queued_reactions=self._queued_reactions,
            cipher=self._cipher,
            surface=self._surface_of,
            is_installed=self._is_installed,
        )
        self._backfill = Backfill(
            PLATFORM,
            watermarks,
            backfill_limits,
            store=self._intake.accept,
            create_fetch=self._history.create_fetch,
            last_event_at=self.last_event_at,
            delays_new_messages=False,
        )
        self._register_listeners()
        self.routes = list[web.AbstractRouteDef]()
        if vault is not None and self._tokens is not None:
            app = {"client_id": settings.client_id, "client_secret": settings.client_secret}
            self.routes += oauth_routes(self._client, self._tokens, vault, **app)
        self._transport = self._make_transport(settings)
        #: None for several workspaces: Slack sends an event when it revokes one of their tokens.
        self._token_monitor = TokenMonitor(self._client) if settings.bot_token else None

    def _make_transport(self, settings: SlackSettings) -> SocketMode | HttpMode:
        if settings.mode == "socket":
            count, open_gap = settings.sockets, self._backfill.open_gap
            return SocketMode(self._app, settings.app_token, count=count, on_reconnect=open_gap)
        http = HttpMode(self._app, settings.signing_secret)
        self.routes += http.routes
        return http

    def _register_listeners(self) -> None:
        app, intake = self._app, self._intake
        if self._tokens is not None:
            app.use(self._skip_uninstalled)
        app.error(self._respond_to_error)
        app.event("message")(self._receive_message)
        app.event("app_mention")(self._receive_message)
        app.event(events.CONTEXT_CHANGED)(self._agent_contexts.save)
        app.event(events.HOME_OPENED)(self._suggest_prompts)
        app.event(events.APP_UNINSTALLED)(self._remove_workspace)
        app.event(events.TOKENS_REVOKED)(self._remove_workspace)
        app.event(events.SESSION_STOPPED)(intake.receive_stop)
        app.command(_ANY)(intake.receive_command)
        app.block_action(CHOICE_BUTTON)(intake.receive_choice)
        app.block_action(FORM_BUTTON)(intake.open_answer_form)
        app.block_action(_ANY)(intake.receive_press)
        app.message_shortcut(ASK)(intake.open_prompt_form)
        app.message_shortcut(RESET)(intake.receive_reset)
        app.message_shortcut(WHY)(intake.receive_why)
        app.view(ASK_MODAL)(intake.receive_prompt)
        app.view(ANSWER_MODAL)(intake.receive_answer)

    async def _skip_uninstalled(
        self, body: Mapping[str, Any], next_: Callable[[], Awaitable[BoltResponse | None]]
    ) -> BoltResponse | None:
        """Acknowledge an event of a workspace that removed the app, as Bolt middleware.

        An interaction passes: its acknowledgement cannot wait for the database, and its handler checks this as well.
        """
        if body.get("type") == "event_callback" and not await self._is_installed(workspace_of(body)):
            return BoltResponse(status=200)
        return await next_()

    async def _respond_to_error(self, error: Exception) -> BoltResponse:
        """Return HTTP 500, so that Slack delivers the event again; but acknowledge a payload without a listener."""
        if isinstance(error, BoltUnhandledRequestError):
            return BoltResponse(status=200)
        log.error("an event cannot be processed: %s", format_error(error))
        return BoltResponse(status=500)

    async def start(self) -> None:
        await verify_tokens(self._client, self._app_token)
        if self._tokens is not None:
            await self._tokens.verify()
        await self._backfill.start(self._connect)
        self._intake.start()

    async def _connect(self) -> None:
        if self._token_monitor is not None:
            self._token_monitor.start()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                await self._transport.open()
        except TimeoutError as error:
            await self._disconnect()
            raise SettingsError(
                f"SLACK_API_URL: no socket could be opened within {CONNECT_TIMEOUT_SECONDS:g} s; "
                "can this machine reach wss:// addresses?"
            ) from error

    async def _disconnect(self) -> None:
        if self._token_monitor is not None:
            await self._token_monitor.stop()
        await self._transport.close()

    async def stop(self) -> None:
        await self._intake.stop(SETTLE_TIMEOUT_SECONDS)
        await self._disconnect()
        await self._intake.drain(SETTLE_TIMEOUT_SECONDS)
        await self._backfill.stop()

    async def aclose(self) -> None:
        """Wait for the calls that set thread statuses, and close the HTTP connections.

        Call it after the last reply. The wait takes at most `SETTLE_TIMEOUT_SECONDS`.
        """
        await self._assistant.drain(SETTLE_TIMEOUT_SECONDS)
        await self._connections.close()

    def last_event_at(self) -> float:
        last_event_at = self._transport.last_event_at
        return last_event_at if self._token_monitor is None else min(last_event_at, self._token_monitor.valid_at)

    async def reconnect(self) -> None:
        await self._transport.reopen()

    def create_surface(self, address: Mapping[str, Any], *, turn_id: str = "") -> SlackSurface:
        if self._stream_policy is None:
            return SlackSurface(self._api, self._queued_reactions, address, turn_id, assistant=self._assistant)
        return StreamSurface(
            self._api, self._queued_reactions, address, turn_id, self._stream_policy, assistant=self._assistant
        )

    def side_message_address(self, address: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        del name  # the metadata of its message identifies it
        return address

    def reply_address(self, address: Mapping[str, Any], message_id: str) -> Mapping[str, Any]:
        del message_id
        return address

    async def get_locale(self, inbound: InboxMessage) -> str:
        return "" if inbound.is_bot else await self._directory.get_locale(str(inbound.address["team"]), inbound.author)

    async def read_message(self, inbound: InboxMessage) -> MessageText:
        """Return the text of a stored message for the prompt, with names in place of ids.

        Raises:
            SurfaceError: the app was uninstalled from the workspace, or the database cannot be read.
        """
        team = str(inbound.address["team"])
        await self._api.for_team(team).token()  # fails before a model call if the app was uninstalled
        bot = str(inbound.address.get("bot", ""))
        users = [user for user in (bot, "" if inbound.is_bot else inbound.author) if user]
        names = await self._directory.get_names(team, users, [inbound.text])
        names.setdefault(inbound.author, str(inbound.address.get("name", "")))
        is_direct = str(inbound.address["channel"]).startswith("D")
        name, bot_name = names[inbound.author], names.get(bot, "")
        text = MessageText.from_message(
            to_plain_text(inbound.text, names),
            name,
            inbound.attachments,
            is_one_to_one=is_direct,
            is_forward=bool(inbound.forwarded),
            bot_name="" if bot_name == bot else bot_name,  # an id: the name cannot be looked up
            time_zone="" if inbound.is_bot else await self._directory.get_time_zone(team, inbound.author),
            locale=await self.get_locale(inbound),
        )
        return replace(text, agent_context=self._agent_contexts.read(inbound))

    async def fetch_file(self, inbound: InboxMessage, file: Attachment, check: FileCheck) -> FetchedFile:
        return await self._downloads.fetch(str(inbound.address["team"]), file, check)

    async def fetch_context(
        self, messages: Sequence[InboxMessage], history: HistoryState | None
    ) -> SurroundingMessages:
        return await self._context.fetch(messages, history)

    async def _is_installed(self, team: str) -> bool:
        """Return whether the app is installed in a workspace; if not, log a warning.

        True if the app has the token of a single workspace.

        Raises:
            StoreError: the database cannot be read.
        """
        if self._tokens is None or await self._tokens.is_installed(team):
            return True
        log.warning("the app is not installed in workspace %s: its events are ignored", team)
        return False

    async def _receive_message(self, body: Mapping[str, Any], event: Mapping[str, Any]) -> None:
        body = await resolve_event_authors(self._directory, body)
        if incoming := self._parse(body):
            await self._backfill.receive(self._agent_contexts.attach(incoming, event))
        elif change := parse_change(body, self._parse, self._settings.dm_sessions):
            await self._backfill.receive(change)

    async def _suggest_prompts(self, body: Mapping[str, Any], event: Mapping[str, Any]) -> None:
        if event.get("tab") != "messages" or not self._settings.prompts:
            return
        team, channel = workspace_of(body), str(event["channel"])
        identity = await self._identities.resolve_interaction(team, channel, str(event["user"]))
        if self._services.access_policy.check(*identity) is AccessDecision.ALLOWED:
            prompts = suggest_prompts(self._api, team, channel, self._settings.prompts)
            self._services.background.start(prompts, name="prompts")

    async def _remove_workspace(self, body: Mapping[str, Any], event: Mapping[str, Any]) -> None:
        """Delete the stored token of a workspace that removed the app.

        A token that was stored after the event stays. If the app has the token of a single workspace, nothing is done:
        `TokenMonitor` checks that token.
        """
        is_removed = event["type"] == events.APP_UNINSTALLED or (event.get("tokens") or {}).get("bot")
        if self._tokens is not None and is_removed:
            await self._tokens.remove(workspace_of(body), float(body.get("event_time") or 0))

    def _surface_of(self, inbound: InboxMessage) -> SlackSurface:
        return self.create_surface(inbound.address, turn_id=inbound.event_key)


async def _authorize(enterprise_id: str | None, team_id: str | None) -> AuthorizeResult:
    """Return an authorization without a token: `SlackApi`, which makes all calls, looks the tokens up.

    Bolt's own authorization calls `auth.test`, and acknowledges an event for which that call fails.
    """
    return AuthorizeResult(enterprise_id=enterprise_id, team_id=team_id)
