"""Slack adapter: slack-bolt in Socket Mode or HTTP mode, for all workspaces."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from aiohttp import web
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.error import BoltUnhandledRequestError
from slack_bolt.response import BoltResponse

from channels.access import AccessDecision
from channels.commands.services import PlatformServices
from channels.commands.sign_ins import delete_sign_ins
from channels.intake.backfill import Backfill
from channels.replies.buttons import LINK_PREFIX
from channels.settings import BackfillLimits
from channels.slack import manifest as events
from channels.slack.access import SlackIdentityResolver, is_user_group_id
from channels.slack.client.auth import TOKEN_CHECK_SECONDS, TokenMonitor, verify_tokens
from channels.slack.client.http_mode import HttpMode
from channels.slack.client.oauth import oauth_routes
from channels.slack.client.socket_mode import PING_INTERVAL_SECONDS, SocketMode
from channels.slack.conversations import SlackConversations
from channels.slack.events.authors import resolve_event_authors
from channels.slack.events.history import SlackHistory
from channels.slack.events.parser import parse_change, parse_message, workspace_of
from channels.slack.interactions.commands import CHOICE_BUTTON
from channels.slack.interactions.forms import ANSWER_MODAL, FORM_BUTTON
from channels.slack.interactions.handler import SlackIntakeHandler
from channels.slack.interactions.shortcuts import ASK, ASK_MODAL, RESET, WHY
from channels.slack.platform import SlackPlatform
from channels.slack.replies.assistant import suggest_prompts
from channels.slack.session_ids import PLATFORM
from channels.slack.settings import SlackSettings
from channels.turns.placing import TriggerPlacer
from core.errors import SettingsError
from core.inbox.watermarks import Watermarks
from core.observability.secret_redaction import format_error
from core.signin.target import Person

log = logging.getLogger(__name__)

#: Any id of a command or button.
_ANY = re.compile(".")

_LINK_BUTTON = re.compile(f"^{LINK_PREFIX}")

#: Seconds that connecting may take.
CONNECT_TIMEOUT_SECONDS = 30.0

#: Seconds that a stop waits for background calls.
SETTLE_TIMEOUT_SECONDS = 2.0


class SlackAdapter:
    """The Slack adapter (see `PlatformAdapter`)."""

    name = PLATFORM
    heartbeat_interval = max(PING_INTERVAL_SECONDS, TOKEN_CHECK_SECONDS)

    def __init__(
        self,
        platform: SlackPlatform,
        services: PlatformServices,
        watermarks: Watermarks,
        backfill_limits: BackfillLimits,
    ) -> None:
        settings = platform.settings
        self._platform = platform
        self._services = services
        self._settings = settings
        self._app_token = settings.app_token if settings.mode == "socket" else ""
        needs_groups = any(map(is_user_group_id, services.access_policy.list_ids(PLATFORM)))
        self._identities = SlackIdentityResolver(platform.directory, needs_groups=needs_groups)
        self._app = AsyncApp(
            name=PLATFORM,  # Bolt: without a name it reads the sources of its callers, for 0.1 s
            client=platform.client,
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
        self._history = SlackHistory(platform.api, platform.directory, self._parse)
        self._intake = SlackIntakeHandler(platform, services, self._identities)
        self._backfill = Backfill(
            PLATFORM,
            watermarks,
            backfill_limits,
            store=self._intake.accept,
            create_fetch=self._history.create_fetch,
            delays_new_messages=False,
        )
        self.place = TriggerPlacer(
            platform, SlackConversations(platform, self._identities), services.access_policy, services.schedules
        ).place
        self._register_listeners()
        self.routes = list[web.AbstractRouteDef]()
        if platform.tokens is not None:
            app = {"client_id": settings.client_id, "client_secret": settings.client_secret}
            self.routes += oauth_routes(platform.client, platform.tokens, **app)
        self._transport = self._make_transport(settings)
        #: None for several workspaces: Slack sends an event when it revokes one of their tokens.
        self._token_monitor = TokenMonitor(platform.client) if settings.bot_token else None

    def _make_transport(self, settings: SlackSettings) -> SocketMode | HttpMode:
        if settings.mode == "socket":
            count = settings.sockets
            open_gap = self._backfill.open_gap
            return SocketMode(self._app, settings.app_token, count=count, on_reconnect=open_gap)
        http = HttpMode(self._app, settings.signing_secret)
        self.routes += http.routes
        return http

    def _register_listeners(self) -> None:
        app = self._app
        intake = self._intake
        if self._platform.tokens is not None:
            app.use(self._skip_uninstalled)
        app.error(self._respond_to_error)
        app.event("message")(self._receive_message)
        app.event("app_mention")(self._receive_message)
        app.event(events.CONTEXT_CHANGED)(self._platform.agent_contexts.save)
        app.event(events.HOME_OPENED)(self._suggest_prompts)
        app.event(events.APP_UNINSTALLED)(self._remove_workspace)
        app.event(events.TOKENS_REVOKED)(self._remove_workspace)
        app.event(events.USER_CHANGED)(self._delete_sign_ins)
        app.event(events.SESSION_STOPPED)(intake.receive_stop)
        app.command(_ANY)(intake.receive_command)
        app.block_action(CHOICE_BUTTON)(intake.receive_choice)
        app.block_action(FORM_BUTTON)(intake.open_answer_form)
        app.block_action(_LINK_BUTTON)(_acknowledge)
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
        if body.get("type") == "event_callback" and not await self._platform.is_installed(workspace_of(body)):
            return BoltResponse(status=200)
        return await next_()

    async def _respond_to_error(self, error: Exception) -> BoltResponse:
        """Return HTTP 500, so that Slack delivers the event again; but acknowledge a payload without a listener."""
        if isinstance(error, BoltUnhandledRequestError):
            return BoltResponse(status=200)
        log.error("an event cannot be processed: %s", format_error(error))
        return BoltResponse(status=500)

    async def start(self) -> None:
        await verify_tokens(self._platform.client, self._app_token)
        if self._platform.tokens is not None:
            await self._platform.tokens.verify()
        await self._backfill.start(self._connect, self.last_event_at)
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

    def last_event_at(self) -> float:
        last_event_at = self._transport.last_event_at
        return last_event_at if self._token_monitor is None else min(last_event_at, self._token_monitor.valid_at)

    async def reconnect(self) -> None:
        await self._transport.reopen()

    async def _receive_message(self, body: Mapping[str, Any], event: Mapping[str, Any]) -> None:
        body = await resolve_event_authors(self._platform.directory, body)
        if incoming := self._parse(body):
            await self._backfill.receive(self._platform.agent_contexts.attach(incoming, event))
        elif change := parse_change(body, self._parse, self._settings.dm_sessions):
            await self._backfill.receive(change)

    async def _suggest_prompts(self, body: Mapping[str, Any], event: Mapping[str, Any]) -> None:
        if event.get("tab") != "messages" or not self._settings.prompts:
            return
        team = workspace_of(body)
        channel = str(event["channel"])
        identity = await self._identities.resolve_interaction(team, channel, str(event["user"]))
        if self._services.access_policy.check(*identity) is AccessDecision.ALLOWED:
            prompts = suggest_prompts(self._platform.api, team, channel, self._settings.prompts)
            self._services.background.start(prompts, name="prompts")

    async def _remove_workspace(self, body: Mapping[str, Any], event: Mapping[str, Any]) -> None:
        """Delete the stored token of a workspace that removed the app.

        A token that was stored after the event stays. If the app has the token of a single workspace, nothing is done:
        `TokenMonitor` checks that token.
        """
        tokens = self._platform.tokens
        is_removed = event["type"] == events.APP_UNINSTALLED or (event.get("tokens") or {}).get("bot")
        if tokens is not None and is_removed:
            await tokens.remove(workspace_of(body), float(body.get("event_time") or 0))

    async def _delete_sign_ins(self, body: Mapping[str, Any], event: Mapping[str, Any]) -> None:
        """Delete the connected accounts of a user whose account in the workspace is deactivated."""
        if event["user"].get("deleted"):
            leaver = Person(PLATFORM, workspace_of(body), str(event["user"]["id"]))
            self._services.background.start(delete_sign_ins(self._services.sign_ins, leaver), name="departure")


async def _acknowledge(ack: AsyncAck) -> None:
    await ack()


async def _authorize(enterprise_id: str | None, team_id: str | None) -> AuthorizeResult:
    """Return an authorization without a token: `SlackApi`, which makes all calls, looks the tokens up.

    Bolt's own authorization calls `auth.test`, and acknowledges an event for which that call fails.
    """
    return AuthorizeResult(enterprise_id=enterprise_id, team_id=team_id)
