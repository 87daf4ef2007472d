"""Discord adapter, built on discord.py."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from discord.http import Route

from channels.base import FetchedFile, FileCheck, MessageText, Surface, SurroundingMessages
from channels.discord.access import DiscordIdentityResolver
from channels.discord.client.api import DiscordApi
from channels.discord.client.auth import has_message_content, log_in, make_client
from channels.discord.client.components import MAX_MENU_OPTIONS
from channels.discord.client.gateway import HEARTBEAT_SECONDS, Shard, make_intents
from channels.discord.client.shards import IDENTIFY_INTERVAL_SECONDS, ShardConnections, shard_for_place
from channels.discord.dispatcher import Dispatcher
from channels.discord.events.downloads import DiscordDownloads
from channels.discord.events.history import DiscordHistory
from channels.discord.events.listener import MessageListener
from channels.discord.events.thread_context import DiscordContextFetcher
from channels.discord.events.thread_titles import get_title_as_text
from channels.discord.interactions.commands import make_command_syntax, make_commands
from channels.discord.interactions.ephemeral import EphemeralSurface
from channels.discord.interactions.handler import DiscordIntakeHandler
from channels.discord.interactions.responses import InteractionResponder
from channels.discord.replies.reactions import make_queued_reactions
from channels.discord.replies.surface import DiscordSurface
from channels.discord.session_ids import EPHEMERAL, PLATFORM
from channels.discord.settings import DiscordSettings
from channels.intake.backfill import Backfill
from channels.services import ChannelServices
from channels.settings import BackfillLimits
from core.concurrency.retry import retry_store
from core.concurrency.tasks import BackgroundTasks
from core.conversations.history_state import HistoryState
from core.errors import ParleyError, SettingsError, SurfaceError
from core.inbox.watermarks import Watermarks
from core.inbox_message import Attachment, InboxMessage
from core.privacy.vault import Cipher
from core.secret_redaction import format_error
from core.workers.shard_assignment import ShardAssignment

log = logging.getLogger(__name__)

#: Seconds that connecting may take.
CONNECT_TIMEOUT_SECONDS = 60.0

#: Seconds that a stop waits for messages and interactions in progress.
SETTLE_TIMEOUT_SECONDS = 2.0


class DiscordChannel:
    """The Discord adapter (see `Channel`); create it inside a running event loop.

    Replies use a REST client that stays open after `stop`; the caller calls `aclose` after the last reply. Discord
    sends the events of a server to the connection of the server's shard. Each worker connects some of the shards.

    Args:
        services: the services that the adapter calls for messages and interactions.
        watermarks: the store of the watermarks and places, for the backfill.
        assignment: divides the shards among the workers.
    """

    name = PLATFORM
    max_menu_options = MAX_MENU_OPTIONS
    heartbeat_interval = HEARTBEAT_SECONDS

    def __init__(
        self,
        settings: DiscordSettings,
        services: ChannelServices,
        watermarks: Watermarks,
        backfill_limits: BackfillLimits,
        assignment: ShardAssignment,
    ) -> None:
        self._settings = settings
        self._client = make_client(settings)
        self._cipher = Cipher(settings.bot_token)
        self._api = DiscordApi(self._client, silent=settings.silent)
        self.limiters = self._api.limiters
        self._downloads = DiscordDownloads(self._api, settings.api_url)
        self._context_fetcher = DiscordContextFetcher(self._api)
        self._queued_reactions = make_queued_reactions(self._api)
        self._access_policy = services.access_policy
        self._work = BackgroundTasks()
        rules = self._access_policy.get_rules(PLATFORM)
        home_guilds = set(map(int, {*rules.list_ids("guild"), *rules.guilds}))
        needs_roles = bool(home_guilds or self._access_policy.list_ids(PLATFORM))
        identities = DiscordIdentityResolver(self._api, home_guilds=home_guilds, needs_roles=needs_roles)
        self._intake = DiscordIntakeHandler(
            settings,
            self._api,
            services,
            self._work,
            channel=self,
            queued_reactions=self._queued_reactions,
            syntax=make_command_syntax(settings.command_prefix),
            cipher=self._cipher,
            identities=identities,
            get_surface=self._get_message_surface,
            get_responder=self._get_responder,
        )
        self._listener = MessageListener(
            settings,
            self._api,
            self._intake,
            services.conversations,
            self._work,
            identities=identities,
            is_served=self._is_served,
            follows_threads=services.reply_without_mention != "never",
            get_backfill=self._get_backfill,
        )
        history = DiscordHistory(self._api, is_served=self._is_served, parse=self._listener.parse_incoming)
        self._create_fetch = history.create_fetch
        self._watermarks = watermarks
        self._backfill_limits = backfill_limits
        self._assignment = assignment
        self._shards = self._make_shards(1, 1)
        self._assignment_task: asyncio.Task[None] | None = None
        self._assigned_shards = frozenset[int]()
        self._disconnected_since = 0.0  # seconds since the epoch

    async def start(self) -> None:
        report = await log_in(self._client, self._settings)
        for line in (*report.warnings, *report.faults):
            log.warning("%s", line)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                self._shards = self._make_shards(*await self._get_shard_limits())
            changes = self._assignment.watch(self._shards.count)
            failed = await self._connect_shards(await anext(changes))
            for error in failed.values():
                raise error
        except (SurfaceError, TimeoutError) as error:
            log.warning("Discord's gateway: %s", format_error(error))
            raise SettingsError(
                f"DISCORD_API_URL: no connection to the gateway could be made within {CONNECT_TIMEOUT_SECONDS:g} s; "
                "the log says why"
            ) from error
        self._assignment_task = asyncio.create_task(self._follow_assignment(changes), name="discord shards")
        self._intake.start()

    async def stop(self) -> None:
        self._work.is_stopping = True
        if self._assignment_task is not None:
            self._assignment_task.cancel()
            await asyncio.wait([self._assignment_task], timeout=SETTLE_TIMEOUT_SECONDS)  # the database may hang
        await self._intake.stop(SETTLE_TIMEOUT_SECONDS)
        await self._work.drain(SETTLE_TIMEOUT_SECONDS)
        await self._shards.stop()
        await self._assignment.release()
        await self._intake.drain(SETTLE_TIMEOUT_SECONDS)

    async def _follow_assignment(self, changes: AsyncGenerator[frozenset[int], None]) -> None:
        """Connect the shards that are assigned to this worker, at each change.

        Other shards are disconnected. A shard that cannot be connected is logged, and reported so that another worker
        connects it.

        Args:
            changes: yields the ids of all shards of this worker whenever they change.
        """
        async with aclosing(changes):
            async for shards in changes:
                if shards and not self.last_event_at():
                    self._disconnected_since = time.time()
                failed = await self._connect_shards(shards)
                for error in failed.values():
                    log.error("this worker cannot connect a shard: %s", format_error(error))
                if failed:  # another worker may succeed
                    await self._assignment.release_failed_shards(failed.keys(), self._shards.count)

    async def _connect_shards(self, shards: frozenset[int]) -> dict[int, Exception]:
        count, self._assigned_shards = self._shards.count, shards
        if count > 1 and shards:
            log.info("this worker connects the shards %s of %d", ", ".join(map(str, sorted(shards))), count)
        else:
            log.info("this worker connects to the gateway" if shards else "another worker connects to the gateway")
        return await self._shards.connect(shards, CONNECT_TIMEOUT_SECONDS)

    def _make_shards(self, count: int, max_concurrency: int) -> ShardConnections:
        """Return new `ShardConnections`, which are not connected yet.

        Args:
            count: the number of all shards.
            max_concurrency: the number of sessions that may start at once: see `ShardConnections`.
        """

        def backfill(shard: int, get_last_event_at: Callable[[], float]) -> Backfill:
            return Backfill(
                PLATFORM,
                self._watermarks,
                self._backfill_limits,
                store=self._intake.accept,
                create_fetch=self._create_fetch,
                last_event_at=get_last_event_at,
                delays_new_messages=True,
                watermark_name=self._assignment.row_name(shard, count),
                has_place=lambda place: shard_for_place(place, count) == shard,
            )

        async def acquire_slot(shard: int) -> None:  # Discord: sessions of a group start one after another
            await self._assignment.acquire_identify_slot(shard % max_concurrency, count, IDENTIFY_INTERVAL_SECONDS)

        return ShardConnections(count, max_concurrency, self._make_client, backfill, acquire_slot)

    def last_event_at(self) -> float:
        """Return the time of the oldest last event or heartbeat of connected shards.

        Events before that time may be missing: a new session after a gap sets the time of its shard to now. While no
        shard is connected, it is the time since which the worker has had shards and no connection. It is 0 if other
        workers have all shards.

        Returns:
            Seconds since the epoch.
        """
        received_at = self._shards.last_event_at
        if received_at or not (self._assigned_shards or self._assignment.has_free_shard):
            self._disconnected_since = 0.0
        return received_at or self._disconnected_since

    async def reconnect(self) -> None:
        await self._shards.reconnect()

    async def aclose(self) -> None:
        """Close the REST client; call it after the last reply."""
        await self._api.aclose()
        await self._client.close()

    def create_surface(self, address: Mapping[str, Any], *, turn_id: str = "") -> Surface:
        del turn_id  # a reply is found by the message that it replies to
        if "token" in address:
            return EphemeralSurface(self._get_responder(address), self._queued_reactions, address)
        return self._get_message_surface(address)

    def _get_message_surface(self, address: Mapping[str, Any]) -> DiscordSurface:
        return DiscordSurface(self._api, self._queued_reactions, address, ping_after=self._settings.ping_after)

    def _get_responder(self, address: Mapping[str, Any]) -> InteractionResponder:
        return InteractionResponder(
            self._api, self._client, {**address, "token": self._cipher.decrypt(str(address["token"]))}
        )

    def side_message_address(self, address: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        return {**address, "side_name": name}

    def reply_address(self, address: Mapping[str, Any], message_id: str) -> Mapping[str, Any]:
        if "token" in address:
            return {**address, "side_name": message_id}
        reply_address = {key: value for key, value in address.items() if key != "root"}
        return {**reply_address, "message": message_id, "is_bot_message": True}

    async def get_locale(self, inbound: InboxMessage) -> str:
        """Return the locale of the server, or of an interaction's author; else empty.

        Discord: only a community server has a locale. A message has no locale of its author.
        """
        return str(inbound.address.get("locale", ""))

    async def read_message(self, inbound: InboxMessage) -> MessageText:
        is_private = inbound.place.startswith((f"{PLATFORM}:dm:", f"{PLATFORM}:{EPHEMERAL}:"))
        return MessageText.from_message(
            inbound.text or get_title_as_text(inbound),
            str(inbound.address["speaker"]),
            inbound.attachments,
            is_one_to_one=is_private,
            is_forward=bool(inbound.forwarded),
            bot_name=self._api.bot_user.display_name,
            locale=await self.get_locale(inbound),
        )

    async def fetch_file(self, inbound: InboxMessage, file: Attachment, check: FileCheck) -> FetchedFile:
        return await self._downloads.fetch(file, check)

    async def fetch_context(
        self, messages: Sequence[InboxMessage], history: HistoryState | None
    ) -> SurroundingMessages:
        return await self._context_fetcher.fetch(messages, history)

    async def _get_shard_limits(self) -> tuple[int, int]:
        """Return the number of shards, and the number of sessions that may start at once.

        The number of shards is that of the settings, else that of the connected workers, else the one that Discord
        recommends.

        Raises:
            SurfaceError: Discord cannot be reached.
            StoreError: the database cannot be read, after all retries.
        """

        async def ask() -> tuple[int, int]:
            gateway = await self._client.http.request(Route("GET", "/gateway/bot"))
            return gateway["shards"], gateway["session_start_limit"]["max_concurrency"]

        recommended, max_concurrency = await self._api.fetch("gateway", ask, "gateway")
        count = await retry_store(self._assignment.get_shard_count, operation="the number of shards")
        return self._settings.shards or count or recommended, max_concurrency

    async def _make_client(
        self, shard: Shard, on_connected: Callable[[], None], on_event: Callable[[], None]
    ) -> tuple[Dispatcher, str]:
        """Return a new logged-in gateway client for a shard, and the gateway's URL.

        The caller connects the client to the gateway.

        Args:
            on_connected, on_event: callbacks of the client: see `GatewayClient`.

        Raises:
            ParleyError: Discord allows this bot no new session for now.
        """
        flags = (await self._client.application_info()).flags
        _shards, address, limit = await self._client.http.get_bot_gateway()
        if limit["remaining"] < shard.count:  # all shards may be about to start one
            raise ParleyError(f"Discord allows this bot no new session for {limit['reset_after'] // 60_000} min")
        connection = Dispatcher(
            shard=shard,
            intents=make_intents(message_content=has_message_content(flags)),
            commands=make_commands(self._intake, self._settings.command_prefix),
            syntax=self._intake.commands.syntax,
            listener=self._listener,
            on_button=self._intake.handle_press,
            on_form=self._intake.handle_form,
            on_connected=on_connected,
            on_event=on_event,
            trace=self._api.trace,
        )
        try:
            await connection.login(self._settings.bot_token)
        except BaseException:
            await connection.close()
            raise
        return connection, address

    def _get_backfill(self, place: str) -> Backfill | None:
        return self._shards.get_backfill(place)

    def _is_served(self, guild: int | None) -> bool:
        return guild is None or self._access_policy.get_rules(PLATFORM).is_workspace_allowed(str(guild))
