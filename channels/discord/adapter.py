"""Discord, through discord.py."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from discord.http import Route

from channels.base import FetchedFile, FileCheck, MessageText, Surface, SurroundingMessages
from channels.discord.access import Visits
from channels.discord.client.api import MESSAGES, DiscordApi
from channels.discord.client.auth import hears_all, log_in, make_client
from channels.discord.client.gateway import PULSE, Shard, intents
from channels.discord.client.shards import IDENTIFY_SECONDS, Shards, shard_of
from channels.discord.dispatcher import Dispatcher
from channels.discord.events.downloads import Downloads
from channels.discord.events.history import History
from channels.discord.events.listener import Ear
from channels.discord.events.parser import threaded
from channels.discord.events.thread_context import Surroundings
from channels.discord.interactions.commands import WAYS, commands_of
from channels.discord.interactions.ephemeral import Aside
from channels.discord.interactions.handler import DiscordInteractionHandler
from channels.discord.interactions.responses import Token
from channels.discord.replies.reactions import receipts, send_away
from channels.discord.replies.surface import DiscordSurface
from channels.discord.session_ids import ASIDE, NAME
from channels.discord.settings import DiscordSettings
from channels.discord.text import headline
from channels.intake.backfill import Backfill
from channels.intake.handler import IncomingMessage, MessageHandler
from channels.rate_limits.caller import RefusedError
from channels.services import ChannelServices
from channels.settings import BackfillLimits
from core.concurrency.retry import retried
from core.concurrency.tasks import Work
from core.conversations.history_state import HistoryState
from core.errors import ParleyError, SettingsError, SurfaceError
from core.inbox.watermarks import Watermarks
from core.inbox_message import Attachment, InboxMessage
from core.privacy.vault import Seal
from core.secret_redaction import traced
from core.workers.shard_assignment import ShardAssignment

log = logging.getLogger(__name__)

#: Seconds that connecting may take.
CONNECT_TIMEOUT = 60.0

#: Seconds that beginning a thread may take; then the reply is in the channel.
THREAD_TIMEOUT = 10.0

#: Characters in the name of a thread, so that it can be read in the list of them.
MAX_THREAD_NAME = 80

#: Seconds that a stop waits for what is being heard, and for confirmations and receipts.
SETTLE_TIMEOUT = 2.0


class DiscordChannel:
    """The Discord adapter. To be made inside a running event loop, and closed when no reply is shown any more.

    What is shown goes through a client of its own, which outlives any connection to the gateway.

    Discord tells each connection all that happens in the servers of its shard. So of several workers each hears some of
    the shards, or one hears the only one: it keeps what is said for all.
    """

    name = NAME
    heartbeat_interval = PULSE

    def __init__(
        self,
        settings: DiscordSettings,
        desk: ChannelServices,
        places: Watermarks,
        bounds: BackfillLimits,
        assignment: ShardAssignment,
    ) -> None:
        self._settings = settings
        self._client = make_client(settings)
        self._seal = Seal(settings.bot_token)
        self._api = DiscordApi(self._client, silent=settings.silent)
        self.limiters = self._api.limiters
        self._downloads = Downloads(self._api, settings.api_url)
        self._surroundings = Surroundings(self._api)
        self._receipts = receipts(self._api)
        self._door = desk.access_policy
        self._intake = MessageHandler(
            desk,
            self._receipts,
            self._surface_of,
            self.get_locale,
            self._send_away,
            syntax=WAYS,
            choose_address=self._in_thread,
        )
        self._work = Work()
        homes = {
            int(id_) for id_ in {*self._door.get_rules(NAME).list_ids("guild"), *self._door.get_rules(NAME).guilds}
        }
        visits = Visits(self._api, homes=homes, looks=bool(homes or self._door.list_ids(NAME)))
        self._ear = Ear(
            settings,
            self._api,
            self._intake,
            desk.conversations,
            self._work,
            visits=visits,
            serves=self._serves,
            follows=desk.follow != "never",
            backfill_of=self._backfill_of,
        )
        self._interactions = DiscordInteractionHandler(
            settings,
            self._api,
            desk,
            self._intake,
            self._work,
            seal=self._seal,
            visits=visits,
            surface=self._standing,
            token=self._token,
        )
        self._look = History(self._api, serves=self._serves, hear=self._ear.call_in).look
        self._places = places
        self._bounds = bounds
        self._assignment = assignment
        self._shards = self._divided(1, 1)
        self._leading: asyncio.Task[None] | None = None
        self._led = frozenset[int]()
        self._deaf_since = 0.0  # when this worker began to be meant to hear, and nobody does (seconds since the epoch)

    async def start(self) -> None:
        standing = await log_in(self._client, self._settings)
        for line in (*standing.lacks, *standing.faults):
            log.warning("%s", line)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                self._shards = self._divided(*await self._count())
            changes = self._assignment.watch(self._shards.count)
            failed = await self._lead(await anext(changes))
            for error in failed.values():
                raise error
        except (SurfaceError, TimeoutError) as error:
            log.warning("Discord's gateway: %s", traced(error))
            raise SettingsError(
                f"DISCORD_API_URL: no connection to the gateway could be made within {CONNECT_TIMEOUT:g} s; "
                "the log says why"
            ) from error
        self._leading = asyncio.create_task(self._follow(changes), name="discord shards")
        self._interactions.start()

    async def stop(self) -> None:
        self._work.is_ending = True
        if self._leading is not None:
            self._leading.cancel()
            await asyncio.wait([self._leading], timeout=SETTLE_TIMEOUT)  # it may be at a database that hangs
        await self._interactions.stop(SETTLE_TIMEOUT)
        await self._work.end(SETTLE_TIMEOUT)
        await self._shards.stop()
        await self._assignment.release()
        await self._intake.drain(SETTLE_TIMEOUT)

    async def _follow(self, changes: AsyncGenerator[frozenset[int], None]) -> None:
        """Hear what this worker leads, and nothing else."""
        async with aclosing(changes):
            async for led in changes:
                if led and not self.last_event_at():
                    self._deaf_since = time.time()
                failed = await self._lead(led)
                for error in failed.values():
                    log.error("this worker cannot hear what is said: %s", traced(error))
                if failed:  # perhaps another one can
                    await self._assignment.report_failure(failed.keys(), self._shards.count)

    async def _lead(self, shards: frozenset[int]) -> dict[int, Exception]:
        count, self._led = self._shards.count, shards
        if count > 1 and shards:
            log.info("this worker hears the shards %s of %d", ", ".join(map(str, sorted(shards))), count)
        else:
            log.info("this worker hears what is said" if shards else "another worker hears what is said")
        return await self._shards.lead(shards, CONNECT_TIMEOUT)

    def _divided(self, count: int, at_once: int) -> Shards:
        """The shards, of which none is heard yet."""

        def backfill(shard: int, heard_at: Callable[[], float]) -> Backfill:
            return Backfill(
                NAME,
                self._places,
                self._bounds,
                store_message=self._intake.accept,
                fetch_since=self._look,
                last_event_at=heard_at,
                delays_new_messages=True,
                watermark_name=self._assignment.row_name(shard, count),
                has_place=lambda place: shard_of(place, count) == shard,
            )

        async def acquire_slot(shard: int) -> None:  # Discord: one session after the other in each group
            await self._assignment.acquire_slot(shard % at_once, count, IDENTIFY_SECONDS)

        return Shards(count, at_once, self._connection, backfill, acquire_slot)

    def last_event_at(self) -> float:
        """Until what it hears has come, it is deaf from when on it was to hear, unless another worker does so."""
        heard_at = self._shards.heard_at
        if heard_at or not (self._led or self._assignment.has_free_shard):
            self._deaf_since = 0.0
        return heard_at or self._deaf_since

    async def reconnect(self) -> None:
        await self._shards.reconnect()

    async def aclose(self) -> None:
        """Give back the connections; from now on nothing can be shown."""
        await self._api.aclose()
        await self._client.close()

    def create_surface(self, address: Mapping[str, Any], *, turn_id: str = "") -> Surface:
        del turn_id  # a reply is found by whom its messages answer
        if "token" in address:
            return Aside(self._token(address), self._receipts, address)
        return self._standing(address)

    def _standing(self, address: Mapping[str, Any]) -> DiscordSurface:
        return DiscordSurface(self._api, self._receipts, address, ping_after=self._settings.ping_after)

    def _token(self, address: Mapping[str, Any]) -> Token:
        """What an interaction allows: see `Token`."""
        return Token(self._api, self._client, {**address, "token": self._seal.open(str(address["token"]))})

    def side_message_address(self, address: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        return {**address, "apart": name}

    def reply_address(self, address: Mapping[str, Any], message_id: str) -> Mapping[str, Any]:
        if "token" in address:
            return {**address, "apart": message_id}
        own = {key: value for key, value in address.items() if key != "root"}
        return {**own, "message": message_id, "shown": True}

    async def get_locale(self, inbound: InboxMessage) -> str:
        """That of the server, if it has chosen one: of a person's own, only interactions tell."""
        return str(inbound.address.get("locale", ""))

    async def read_message(self, inbound: InboxMessage) -> MessageText:
        is_alone = inbound.place.startswith((f"{NAME}:dm:", f"{NAME}:{ASIDE}:"))
        return MessageText.from_message(
            inbound.text,
            str(inbound.address["speaker"]),
            inbound.attachments,
            is_one_to_one=is_alone,
            bot_name=self._api.me.display_name,
        )

    async def fetch_file(self, inbound: InboxMessage, file: Attachment, check: FileCheck) -> FetchedFile:
        return await self._downloads.fetch(file, check)

    async def fetch_context(
        self, messages: Sequence[InboxMessage], history: HistoryState | None
    ) -> SurroundingMessages:
        return await self._surroundings.look(messages, history)

    async def _count(self) -> tuple[int, int]:
        """How many shards there are to be, and how many sessions may be begun at once. Workers that hear by now have
        been told how many, and Discord may recommend more since.
        """

        async def ask() -> tuple[int, int]:
            told = await self._client.http.request(Route("GET", "/gateway/bot"))
            return told["shards"], told["session_start_limit"]["max_concurrency"]

        told = await self._api.call("gateway", ask, self._api.budget(("gateway",), MESSAGES))
        assert told is not None, "only a tick may be dropped"
        recommended, at_once = told
        divided = await retried(self._assignment.get_shard_count, what="how many shards there are")
        return self._settings.shards or divided or recommended, at_once

    async def _connection(
        self, shard: Shard, on_connected: Callable[[], None], on_sign: Callable[[], None]
    ) -> tuple[Dispatcher, str]:
        """A new client. What the app may hear is asked each time: it can be changed while the bot runs."""
        flags = (await self._client.application_info()).flags
        _shards, address, limit = await self._client.http.get_bot_gateway()
        if limit["remaining"] < shard.of:  # all of them may be about to begin one
            raise ParleyError(f"Discord lets this bot begin no session for {limit['reset_after'] // 60_000} minutes")
        connection = Dispatcher(
            shard=shard,
            intents=intents(hears_all=hears_all(flags)),
            commands=commands_of(self._interactions),
            ear=self._ear,
            on_pressed=self._interactions.pressed,
            on_connected=on_connected,
            on_sign=on_sign,
            trace=self._api.trace,
        )
        try:
            await connection.login(self._settings.bot_token)
        except BaseException:
            await connection.close()
            raise
        return connection, address

    def _backfill_of(self, place: str) -> Backfill | None:
        return self._shards.backfill_of(place)

    async def _in_thread(self, call: IncomingMessage) -> IncomingMessage:
        """Begin a thread for the reply to a message, if there is to be one and the author has not asked too much."""
        moved = threaded(call) if self._settings.auto_thread and call.is_mention else None
        if moved is None or await self._intake.get_rate_limit(call.inbound):
            return call
        address = call.inbound.address
        name = headline(call.inbound.text, MAX_THREAD_NAME) or str(address["speaker"])
        try:
            async with asyncio.timeout(THREAD_TIMEOUT):
                await self._api.begin_thread(int(address["channel"]), int(address["message"]), name)
        except (SurfaceError, TimeoutError) as error:
            log.warning("no thread can be begun, so the reply is in the channel: %s", traced(error))
            return call
        return moved

    def _serves(self, guild: int | None) -> bool:
        return guild is None or self._door.get_rules(NAME).is_workspace_allowed(str(guild))

    async def _send_away(self, inbound: InboxMessage, text: str) -> None:
        """Tell somebody alone that his message is not answered; where that cannot be, by a sign on it."""
        try:
            await self._api.tell(int(inbound.author), text)
        except RefusedError as refusal:
            log.info("somebody cannot be told that he is not answered: %s", refusal)
            await send_away(self._api, inbound.address)

    def _surface_of(self, inbound: InboxMessage) -> Surface:
        return self.create_surface(inbound.address, turn_id=inbound.event_key)
