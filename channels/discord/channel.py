"""Discord, through discord.py."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from discord.http import Route

from channels.calls import RefusedError
from channels.channel import Around, Heard, Priority, Surface
from channels.desk import Desk
from channels.discord.answers import ORIGINAL, Answers, Token
from channels.discord.api import MESSAGES, DiscordApi
from channels.discord.around import Surroundings
from channels.discord.aside import Aside
from channels.discord.commands import commands_of
from channels.discord.downloads import Downloads
from channels.discord.ear import Ear
from channels.discord.gateway import PULSE, Connection, Shard
from channels.discord.hearing import ASIDE, NAME
from channels.discord.history import History
from channels.discord.interactions import Interactions
from channels.discord.login import DiscordSettings, hears_all, intents, log_in, make_client
from channels.discord.reactions import receipts, send_away
from channels.discord.shards import Shards
from channels.discord.surface import DiscordSurface
from channels.discord.visits import Visits
from channels.discord.work import Work
from channels.downloads import Check, Fetched
from channels.gaps import Bounds, Gaps
from channels.intake import Intake
from core.background import Background
from core.errors import ParleyError, SettingsError, StoreError, SurfaceError
from core.inbound import Attachment, Inbound
from core.leadership import Leadership
from core.places import Places
from core.secrets import traced
from core.shares import Uses

log = logging.getLogger(__name__)

#: Seconds that connecting may take.
CONNECT_TIMEOUT = 60.0

#: Seconds that a stop waits for what is being heard, and for confirmations and receipts.
SETTLE_TIMEOUT = 2.0


class DiscordChannel:
    """The Discord adapter. To be made inside a running event loop, and closed when no reply is shown any more.

    What is shown goes through a client of its own, which outlives any connection to the gateway.

    Discord tells each connection all that happens. So of several workers one hears: it keeps what is said for all.
    """

    name = NAME
    pulse = PULSE

    def __init__(
        self, settings: DiscordSettings, desk: Desk, places: Places, bounds: Bounds, leadership: Leadership
    ) -> None:
        self._settings = settings
        self._client = make_client(settings)
        self._api = DiscordApi(self._client, silent=settings.silent)
        self._downloads = Downloads(self._api, settings.api_url)
        self._surroundings = Surroundings(self._api)
        self._receipts = receipts(self._api)
        self._door = desk.door
        self._intake = Intake(desk, self._receipts, self._surface_of, self.locale, self._send_away)
        self._work = Work()
        homes = {int(id_) for id_ in {*self._door.rules(NAME).ids("guild"), *self._door.rules(NAME).served}}
        visits = Visits(self._api, homes=homes, looks=bool(homes or self._door.names(NAME)))
        self._ear = Ear(
            settings, self._api, self._intake, desk.conversations, self._work, visits=visits, serves=self._serves
        )
        self._interactions = Interactions(
            settings,
            Answers(self._api),
            self._intake,
            desk.conversations,
            self._work,
            visits=visits,
            take=self._ear.take,
        )
        look = History(self._api, serves=self._serves, hear=self._ear.call_in).look
        self._gaps = Gaps(NAME, places, bounds, take=self._ear.take, look=look, heard_at=self.heard_at, holds=True)
        self._ear.gaps = self._gaps
        self._shards = Shards(self._count, self._connection, on_back=self._gaps.open)
        self._leadership = leadership
        self._leading: asyncio.Task[None] | None = None
        self._leads = False

    async def start(self) -> None:
        standing = await log_in(self._client, self._settings)
        for line in (*standing.lacks, *standing.faults):
            log.warning("%s", line)
        changes = self._leadership.changes()
        self._leads = await anext(changes)
        if self._leads:
            try:
                await self._begin()
            except (SurfaceError, TimeoutError) as error:
                log.warning("Discord's gateway: %s", traced(error))
                raise SettingsError(
                    f"DISCORD_API_URL: no connection to the gateway could be made within {CONNECT_TIMEOUT:g} s; "
                    "the log says why"
                ) from error
        else:
            log.info("another worker hears what is said")
        self._leading = asyncio.create_task(self._follow(changes), name="discord leadership")

    async def stop(self) -> None:
        self._work.is_ending = True
        if self._leading is not None:
            self._leading.cancel()
            await asyncio.wait([self._leading])
        await self._work.end(SETTLE_TIMEOUT)
        await self._end()
        await self._leadership.give_up()
        await self._intake.settle(SETTLE_TIMEOUT)

    async def _follow(self, changes: AsyncGenerator[bool, None]) -> None:
        """Hear while this worker leads, and not while it does not."""
        async with aclosing(changes):
            async for leads in changes:
                log.info("this worker hears what is said" if leads else "another worker hears what is said")
                if not leads:
                    await self._end()
                self._leads = leads
                try:
                    if leads:
                        await self._begin()
                except (StoreError, SurfaceError, TimeoutError) as error:  # perhaps another one can
                    log.error("this worker cannot hear what is said: %s", traced(error))
                    self._leads = False
                    await self._end()
                    await self._leadership.give_up()

    async def _begin(self) -> None:
        await self._shards.start(CONNECT_TIMEOUT)
        await self._gaps.start()

    async def _end(self) -> None:
        await self._shards.stop()
        await self._gaps.stop()

    def tell(self) -> Uses:
        return self._api.pacer.tell()

    def share(self, others: Sequence[Uses]) -> None:
        self._api.pacer.share(others)

    def heard_at(self) -> float:
        return self._shards.heard_at if self._leads else 0.0

    async def reconnect(self) -> None:
        await self._shards.reconnect()

    async def aclose(self) -> None:
        """Give back the connections; from now on nothing can be shown."""
        await self._api.aclose()
        await self._client.close()

    def surface(self, address: Mapping[str, Any], *, turn_id: str = "") -> Surface:
        del turn_id  # a reply is found by whom its messages answer
        if "token" in address:
            return Aside(Token(self._api, self._client, address), self._receipts, address)
        return DiscordSurface(self._api, self._receipts, address, ping_after=self._settings.ping_after)

    def apart(self, address: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        return {**address, "apart": name}

    def below(self, address: Mapping[str, Any], message_id: str) -> Mapping[str, Any]:
        if "token" in address:
            return {**address, "apart": message_id}
        own = {key: value for key, value in address.items() if key != "root"}
        return {**own, "message": message_id, "shown": True}

    async def locale(self, inbound: Inbound) -> str:
        """That of the server, if it has chosen one: of a person's own, only interactions tell."""
        return str(inbound.address.get("locale", ""))

    async def read(self, inbound: Inbound) -> Heard:
        is_alone = inbound.place.startswith((f"{NAME}:dm:", f"{NAME}:{ASIDE}:"))
        return Heard.of(inbound.text, str(inbound.address["speaker"]), inbound.attachments, alone=is_alone)

    async def fetch(self, inbound: Inbound, file: Attachment, check: Check) -> Fetched:
        return await self._downloads.fetch(file, check)

    async def around(self, messages: Sequence[Inbound], behind: Background | None) -> Around:
        return await self._surroundings.look(messages, behind)

    async def _count(self) -> tuple[int, int]:
        """How many shards there are to be, and how many sessions may be begun at once."""

        async def ask() -> tuple[int, int]:
            told = await self._client.http.request(Route("GET", "/gateway/bot"))
            return told["shards"], told["session_start_limit"]["max_concurrency"]

        told = await self._api.call("gateway", ask, self._api.budget(("gateway",), MESSAGES))
        assert told is not None, "only a tick may be dropped"
        recommended, at_once = told
        return self._settings.shards or recommended, at_once

    async def _connection(
        self, shard: Shard, on_connected: Callable[[], None], on_sign: Callable[[], None]
    ) -> tuple[Connection, str]:
        """A new client. What the app may hear is asked each time: it can be changed while the bot runs."""
        flags = (await self._client.application_info()).flags
        _shards, address, limit = await self._client.http.get_bot_gateway()
        if limit["remaining"] < shard.of:  # all of them may be about to begin one
            raise ParleyError(f"Discord lets this bot begin no session for {limit['reset_after'] // 60_000} minutes")
        connection = Connection(
            shard=shard,
            intents=intents(hears_all=hears_all(flags)),
            commands=commands_of(self._interactions),
            ear=self._ear,
            on_pressed=self._interactions.pressed,
            on_connected=on_connected,
            on_sign=on_sign,
        )
        try:
            await connection.login(self._settings.bot_token)
        except BaseException:
            await connection.close()
            raise
        return connection, address

    def _serves(self, guild: int | None) -> bool:
        return guild is None or self._door.rules(NAME).is_open(str(guild))

    async def _send_away(self, inbound: Inbound, text: str) -> None:
        """Tell somebody alone that his message is not answered; where that cannot be, by a sign on it."""
        if "token" in inbound.address:
            await Token(self._api, self._client, inbound.address).edit(
                ORIGINAL, text, (), priority=Priority.PROGRESS, is_admitted=False
            )
            return
        try:
            await self._api.tell(int(inbound.author), text)
        except RefusedError as refusal:
            log.info("somebody cannot be told that he is not answered: %s", refusal)
            await send_away(self._api, inbound.address)

    def _surface_of(self, inbound: Inbound) -> Surface:
        return self.surface(inbound.address, turn_id=inbound.event_key)
