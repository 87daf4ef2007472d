"""Discord adapter, built on discord.py."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from discord.http import Route

from channels.commands.services import PlatformServices
from channels.commands.sign_ins import delete_sign_ins
from channels.discord.access import DiscordIdentityResolver
from channels.discord.client.auth import has_members, has_message_content, log_in
from channels.discord.client.gateway import HEARTBEAT_SECONDS, Shard, make_intents
from channels.discord.client.shards import IDENTIFY_INTERVAL_SECONDS, ShardConnections, shard_for_place
from channels.discord.conversations import DiscordConversations
from channels.discord.dispatcher import Dispatcher
from channels.discord.events.history import DiscordHistory
from channels.discord.events.listener import MessageListener
from channels.discord.interactions.commands import make_command_syntax, make_commands
from channels.discord.interactions.handler import DiscordIntakeHandler
from channels.discord.platform import DiscordPlatform
from channels.discord.session_ids import PLATFORM
from channels.intake.backfill import Backfill
from channels.settings import BackfillLimits
from channels.turns.placing import TriggerPlacer
from core.concurrency.retry import retry_store
from core.concurrency.tasks import BackgroundTasks
from core.errors import ParleyError, SettingsError, SurfaceError
from core.inbox.watermarks import Watermarks
from core.observability.secret_redaction import format_error
from core.signin.target import Person
from core.store.workers.shard_assignment import ShardAssignment

log = logging.getLogger(__name__)

#: Seconds that connecting may take.
CONNECT_TIMEOUT_SECONDS = 60.0

#: Seconds that a stop waits for messages and interactions in progress.
SETTLE_TIMEOUT_SECONDS = 2.0


class DiscordAdapter:
    """The Discord adapter (see `PlatformAdapter`).

    Discord sends the events of a server to the connection of the server's shard. Each worker connects some of the
    shards.
    """

    name = PLATFORM
    heartbeat_interval = HEARTBEAT_SECONDS
    routes = ()

    def __init__(
        self,
        platform: DiscordPlatform,
        services: PlatformServices,
        watermarks: Watermarks,
        backfill_limits: BackfillLimits,
        assignment: ShardAssignment,
    ) -> None:
        self._platform = platform
        self._settings = platform.settings
        self._access_policy = services.access_policy
        self._work = BackgroundTasks()
        rules = self._access_policy.get_rules(PLATFORM)
        home_guilds = set(map(int, {*rules.list_ids("guild"), *rules.guilds}))
        needs_roles = bool(home_guilds or self._access_policy.list_ids(PLATFORM))
        identities = DiscordIdentityResolver(platform.api, home_guilds=home_guilds, needs_roles=needs_roles)
        self._identities = identities
        self._sign_ins = services.sign_ins
        self._intake = DiscordIntakeHandler(
            platform,
            services,
            self._work,
            syntax=make_command_syntax(self._settings.command_prefix),
            identities=identities,
        )
        self.place = TriggerPlacer(
            platform, DiscordConversations(platform, identities), services.access_policy, services.schedules
        ).place
        self._listener = MessageListener(
            platform.settings,
            platform.api,
            self._intake,
            services.conversations,
            self._work,
            identities=identities,
            is_served=self._is_served,
            follows_threads=services.reply_without_mention != "never",
            get_backfill=self._get_backfill,
        )
        history = DiscordHistory(platform.api, is_served=self._is_served, parse=self._listener.parse_incoming)
        self._create_fetch = history.create_fetch
        self._watermarks = watermarks
        self._backfill_limits = backfill_limits
        self._assignment = assignment
        self._shards = self._make_shards(1, 1)
        self._assignment_task: asyncio.Task[None] | None = None
        self._assigned_shards = frozenset[int]()
        self._disconnected_since = 0.0  # seconds since the epoch

    async def start(self) -> None:
        report = await log_in(self._platform.client, self._settings)
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
        count = self._shards.count
        self._assigned_shards = shards
        if count > 1 and shards:
            log.info("this worker connects the shards %s of %d", ", ".join(map(str, sorted(shards))), count)
        else:
            log.info("this worker connects to the gateway" if shards else "another worker connects to the gateway")
        return await self._shards.connect(shards, CONNECT_TIMEOUT_SECONDS)

    def _make_shards(self, count: int, max_concurrency: int) -> ShardConnections:
        """Return new `ShardConnections`, which are not connected yet."""

        def backfill(shard: int) -> Backfill:
            return Backfill(
                PLATFORM,
                self._watermarks,
                self._backfill_limits,
                store=self._intake.accept,
                create_fetch=self._create_fetch,
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
        """
        received_at = self._shards.last_event_at
        if received_at or not (self._assigned_shards or self._assignment.has_free_shard):
            self._disconnected_since = 0.0
        return received_at or self._disconnected_since

    async def reconnect(self) -> None:
        await self._shards.reconnect()

    async def _get_shard_limits(self) -> tuple[int, int]:
        """Return the number of shards, and the number of sessions that may start at once.

        The number of shards is that of the settings, else that of the connected workers, else the one that Discord
        recommends.
        """

        async def ask() -> tuple[int, int]:
            gateway = await self._platform.client.http.request(Route("GET", "/gateway/bot"))
            return gateway["shards"], gateway["session_start_limit"]["max_concurrency"]

        recommended, max_concurrency = await self._platform.api.fetch("gateway", ask, "gateway")
        count = await retry_store(self._assignment.get_shard_count, operation="the number of shards")
        return self._settings.shards or count or recommended, max_concurrency

    async def _make_client(
        self, shard: Shard, on_connected: Callable[[], None], on_event: Callable[[], None]
    ) -> tuple[Dispatcher, str]:
        """Return a new logged-in gateway client for a shard, and the gateway's URL; the caller connects it."""
        flags = (await self._platform.client.application_info()).flags
        _shards, address, limit = await self._platform.client.http.get_bot_gateway()
        if limit["remaining"] < shard.count:  # all shards may be about to start one
            raise ParleyError(f"Discord allows this bot no new session for {limit['reset_after'] // 60_000} min")
        connection = Dispatcher(
            shard=shard,
            intents=make_intents(message_content=has_message_content(flags), members=has_members(flags)),
            commands=make_commands(self._intake, self._settings.command_prefix),
            syntax=self._intake.commands.syntax,
            listener=self._listener,
            on_button=self._intake.handle_press,
            on_form=self._intake.handle_form,
            on_member_remove=self._handle_departure,
            on_connected=on_connected,
            on_event=on_event,
            trace=self._platform.api.trace,
        )
        try:
            await connection.login(self._settings.bot_token)
        except BaseException:
            await connection.close()
            raise
        return connection, address

    async def _handle_departure(self, user: int) -> None:
        """Delete the connected accounts of a user who left a server, unless the bot is in another server of theirs."""
        leaver = Person(PLATFORM, "", str(user))
        with self._work.track_current():
            if await self._sign_ins.list(leaver) and not await self._identities.is_member_anywhere(user):
                await delete_sign_ins(self._sign_ins, leaver)

    def _get_backfill(self, place: str) -> Backfill | None:
        return self._shards.get_backfill(place)

    def _is_served(self, guild: int | None) -> bool:
        return guild is None or self._access_policy.get_rules(PLATFORM).is_workspace_allowed(str(guild))
