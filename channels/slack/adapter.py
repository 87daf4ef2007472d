"""Slack, through slack-bolt: in Socket Mode or by HTTP, in one workspace or in several."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from aiohttp import web
from slack_bolt.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.response import BoltResponse

from channels.access import AccessDecision
from channels.base import FetchedFile, FileCheck, MessageText, SurroundingMessages
from channels.intake.backfill import Backfill
from channels.intake.handler import IncomingMessage, MessageHandler
from channels.services import ChannelServices
from channels.settings import BackfillLimits
from channels.slack import manifest as events
from channels.slack.access import SlackIdentityResolver, is_group
from channels.slack.client.api import SlackApi
from channels.slack.client.auth import PROOF_INTERVAL, Proof, client, connections, verify
from channels.slack.client.http_mode import HttpMode
from channels.slack.client.oauth import Installing
from channels.slack.client.socket_mode import PING_INTERVAL, SocketMode
from channels.slack.client.workspaces import Workspaces
from channels.slack.directory import WorkspaceDirectory
from channels.slack.events.downloads import SlackDownloads
from channels.slack.events.history import SlackHistory
from channels.slack.events.parser import Change, called_by_edit, changed, hear, team_of
from channels.slack.events.thread_context import SlackContextFetcher
from channels.slack.interactions.handler import SlackInteractionHandler
from channels.slack.interactions.responses import PrivateResponses, ResponseTarget
from channels.slack.interactions.shortcuts import WAYS
from channels.slack.replies.assistant import AssistantThreads, suggest_prompts
from channels.slack.replies.reactions import receipts
from channels.slack.replies.streaming import Streams, StreamSurface
from channels.slack.replies.surface import SlackSurface
from channels.slack.session_ids import NAME
from channels.slack.settings import SlackSettings
from channels.slack.text import to_words
from core.conversations.history_state import HistoryState
from core.errors import SettingsError
from core.inbox.watermarks import Watermarks
from core.inbox_message import Attachment, InboxMessage
from core.privacy.vault import Seal, Vault
from core.secret_redaction import traced

log = logging.getLogger(__name__)

#: Seconds that connecting may take.
CONNECT_TIMEOUT = 30.0

#: Seconds that a stop waits for confirmations and receipts.
SETTLE_TIMEOUT = 2.0


class SlackChannel:
    """The Slack adapter. To be made inside a running event loop.

    Args:
        vault: keeps the tokens, where there may be several workspaces.

    Attributes:
        routes: what of the process's HTTP server is Slack's.
    """

    name = NAME
    heartbeat_interval = max(PING_INTERVAL, PROOF_INTERVAL)

    def __init__(
        self,
        settings: SlackSettings,
        desk: ChannelServices,
        places: Watermarks,
        bounds: BackfillLimits,
        vault: Vault | None = None,
    ) -> None:
        self._desk = desk
        self._app_token = settings.app_token if settings.mode == "socket" else ""
        self._client = client(settings)
        self._connections = self._client.session = connections()
        self._workspaces = Workspaces(vault) if vault is not None else None
        self._api = SlackApi(self._client, workspaces=self._workspaces)
        self.limiters = self._api.limiters
        self._directory = WorkspaceDirectory(self._api)
        needs_groups = any(map(is_group, desk.access_policy.list_ids(NAME)))
        self._identities = SlackIdentityResolver(self._directory, needs_groups=needs_groups)
        self._downloads = SlackDownloads(self._api)
        hears_all = desk.follow != "never"
        self._context = SlackContextFetcher(self._api, self._directory, hears_all=hears_all)
        self._receipts = receipts(self._api)
        self._settings = settings
        self._assistant = AssistantThreads(self._api)
        self._streams = None if settings.streaming == "edit" else Streams(settings.streaming)
        self._intake = MessageHandler(
            desk, self._receipts, self._surface_of, self.get_locale, self._deny_privately, syntax=WAYS
        )
        self._app = AsyncApp(
            name=NAME,  # Bolt: without one it looks at its callers' sources, for a tenth of a second
            client=self._client,
            authorize=None if settings.bot_token else _nobody,
            request_verification_enabled=False,  # it is done before anything is read
            before_authorize=self._dispatch,
            attaching_conversation_kwargs_enabled=False,
        )
        self._hear = partial(hear, direct=settings.direct, hears_bots=settings.answers_bots)
        self._history = SlackHistory(self._api, self._directory, self._hear)
        look, heard_at = self._history.look, self.last_event_at
        self._backfill = Backfill(
            NAME,
            places,
            bounds,
            store_message=self._take,
            fetch_since=look,
            last_event_at=heard_at,
            delays_new_messages=False,
        )
        self._seal = Seal(settings.bot_token or settings.client_secret)
        self._private = PrivateResponses(self._api, self.create_surface)
        self._interactions = SlackInteractionHandler(
            desk,
            self._intake,
            self._identities,
            self._directory,
            self._private,
            seal=self._seal,
            direct=settings.direct,
            surface=self._surface_of,
            is_installed=self._is_installed,
        )
        self.routes = list[web.AbstractRouteDef]()
        if vault is not None and self._workspaces is not None:
            keys = {"client_id": settings.client_id, "client_secret": settings.client_secret}
            self.routes += Installing(self._client, self._workspaces, vault, **keys).routes
        self._transport = self._make_transport(settings)
        #: None for several workspaces: Slack sends an event for a revoked token of theirs.
        self._proof = Proof(self._client) if settings.bot_token else None

    def _make_transport(self, settings: SlackSettings) -> SocketMode | HttpMode:
        if settings.mode == "socket":
            count, open_gap = settings.sockets, self._backfill.open_gap
            return SocketMode(self._app, settings.app_token, count=count, on_reconnect=open_gap)
        http = HttpMode(self._app, settings.signing_secret)
        self.routes += http.routes
        return http

    async def start(self) -> None:
        await verify(self._client, self._app_token)
        if self._workspaces is not None:
            await self._workspaces.verify()
        await self._backfill.start(self._connect)
        self._interactions.start()

    async def _connect(self) -> None:
        if self._proof is not None:
            self._proof.begin()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await self._transport.open()
        except TimeoutError as error:
            await self._disconnect()
            raise SettingsError(
                f"SLACK_API_URL: no socket could be opened within {CONNECT_TIMEOUT:g} s; "
                "can this machine reach wss:// addresses?"
            ) from error

    async def _disconnect(self) -> None:
        if self._proof is not None:
            await self._proof.end()
        await self._transport.close()

    async def stop(self) -> None:
        await self._interactions.stop(SETTLE_TIMEOUT)
        await self._disconnect()
        await self._intake.drain(SETTLE_TIMEOUT)
        await self._backfill.stop()

    async def aclose(self) -> None:
        """Let Slack know of the end of what was shown last; to be called when nothing is shown any more."""
        await self._assistant.settle(SETTLE_TIMEOUT)
        await self._connections.close()

    def last_event_at(self) -> float:
        heard_at = self._transport.heard_at
        return heard_at if self._proof is None else min(heard_at, self._proof.at)

    async def reconnect(self) -> None:
        await self._transport.reopen()

    def create_surface(self, address: Mapping[str, Any], *, turn_id: str = "") -> SlackSurface:
        if self._streams is None:
            return SlackSurface(self._api, self._receipts, address, turn_id, assistant=self._assistant)
        return StreamSurface(self._api, self._receipts, address, turn_id, self._streams, assistant=self._assistant)

    def side_message_address(self, address: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        del name  # its mark tells it from all others
        return address

    def reply_address(self, address: Mapping[str, Any], message_id: str) -> Mapping[str, Any]:
        del message_id
        return address

    async def get_locale(self, inbound: InboxMessage) -> str:
        return "" if inbound.is_bot else await self._directory.locale(str(inbound.address["team"]), inbound.author)

    async def read_message(self, inbound: InboxMessage) -> MessageText:
        """The message in words; in a channel, where several may speak, the speaker's name comes first."""
        team = str(inbound.address["team"])
        await self._api.at(team).token()  # where the app was uninstalled, no model is asked
        bot = str(inbound.address.get("bot", ""))
        users = [user for user in (bot, "" if inbound.is_bot else inbound.author) if user]
        names = await self._directory.names(team, users, [inbound.text])
        names.setdefault(inbound.author, str(inbound.address.get("name", "")))
        is_direct = str(inbound.address["channel"]).startswith("D")
        name, bot_name = names[inbound.author], names.get(bot, "")
        return MessageText.from_message(
            to_words(inbound.text, names),
            name,
            inbound.attachments,
            is_one_to_one=is_direct,
            bot_name="" if bot_name == bot else bot_name,  # its name cannot be looked up
        )

    async def fetch_file(self, inbound: InboxMessage, file: Attachment, check: FileCheck) -> FetchedFile:
        return await self._downloads.fetch(str(inbound.address["team"]), file, check)

    async def fetch_context(
        self, messages: Sequence[InboxMessage], history: HistoryState | None
    ) -> SurroundingMessages:
        return await self._context.fetch(messages, history)

    async def _dispatch(
        self,
        body: dict[str, Any],
        next: Callable[[], Awaitable[BoltResponse]],  # noqa: A002 - Bolt's name
    ) -> BoltResponse:
        """Hear every event before Bolt acknowledges it, so that what is acknowledged is kept.

        What fails here is not acknowledged, and Slack delivers it again. Bolt, which would come afterwards, is
        asked about its own address alone: it would acknowledge an event for which its own `auth.test` fails.
        """
        if body.get("type") == "url_verification":
            return await next()
        if await self._interactions.handle(body):  # Slack: it waits for 3 seconds, and does not deliver it again
            return BoltResponse(status=200)
        try:
            if body.get("type") == "event_callback" and await self._is_installed(team_of(body)):
                await self._take_event(body)
        except Exception as error:
            log.error("an event could not be taken: %s", traced(error))
            return BoltResponse(status=500)
        return BoltResponse(status=200)

    async def _is_installed(self, team: str) -> bool:
        """Whether a workspace is one of those in which the app is installed.

        Raises:
            StoreError: the database does not say.
        """
        if self._workspaces is None or await self._workspaces.has(team):
            return True
        log.warning("the app is not installed in workspace %s: what is said there is left", team)
        return False

    async def _take_event(self, body: Mapping[str, Any]) -> None:
        event = body.get("event") or {}
        match event.get("type"):
            case "app_mention" | "message":
                if call := self._hear(body):
                    await self._backfill.receive(call)
                elif change := changed(body):
                    await self._take_change(change, called_by_edit(body, self._hear))
            case events.OPENED if event.get("tab") == "messages" and self._settings.prompts:
                ids = team_of(body), str(event["channel"]), str(event["user"])
                identity = await self._identities.resolve_interaction(*ids)
                if self._desk.access_policy.check(*identity) is not AccessDecision.ALLOWED:
                    return
                prompts = suggest_prompts(self._api, team_of(body), event["channel"], self._settings.prompts)
                self._intake.run_in_background(prompts, name="prompts")
            case events.UNINSTALLED:
                await self._remove_workspace(body)
            case events.REVOKED if (event.get("tokens") or {}).get("bot"):
                await self._remove_workspace(body)

    async def _remove_workspace(self, body: Mapping[str, Any]) -> None:
        """Stop serving a workspace. Of a single workspace, `TokenMonitor` notices that the token is revoked."""
        if self._workspaces is not None:
            await self._workspaces.remove(team_of(body), float(body.get("event_time") or 0))

    async def _take_change(self, change: Change, call: IncomingMessage | None) -> None:
        await self._backfill.apply_edit(change.event_key, change.text)
        if change.text is None:
            await self._intake.handle_deletion(change.event_key)
        elif (
            await self._intake.handle_edit(change.event_key, change.text, is_mention=call is not None)
            and call is not None
        ):
            await self._backfill.receive(call)

    async def _take(self, call: IncomingMessage) -> None:
        if not await self._is_loop(call.inbound):
            await self._intake.accept(await self._identities.resolve_message(call))

    async def _deny_privately(self, inbound: InboxMessage, text: str) -> None:
        """Tell the author of a message, and nobody else, why it is not answered."""
        team, channel, user, thread, ts = (
            str(inbound.address[name]) for name in ("team", "channel", "user", "thread_ts", "ts")
        )
        # Slack: an ephemeral message in a thread is shown only if the thread exists
        target = ResponseTarget(team, channel, user, "" if thread == ts else thread, "", inbound.event_key)
        await self._private.send_ephemeral(target, text)

    async def _is_loop(self, inbound: InboxMessage) -> bool:
        """Whether only bots have spoken for so long that this one is left alone."""
        if not inbound.is_bot:
            return False
        most = self._settings.bot_loop_limit
        return await self._desk.conversations.count_newest_bot_messages(inbound.session_id, most) >= most

    def _surface_of(self, inbound: InboxMessage) -> SlackSurface:
        return self.create_surface(inbound.address, turn_id=inbound.event_key)


async def _nobody(*_: object, **__: object) -> AuthorizeResult:
    """Bolt's own look for a token, which it does not come to: see `_dispatch`."""
    return AuthorizeResult(enterprise_id=None, team_id=None)
