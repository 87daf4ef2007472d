"""Discord, through discord.py."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Any

import discord

from channels import words
from channels.channel import Heard
from channels.commands import Asker
from channels.desk import Desk
from channels.discord.api import DiscordApi
from channels.discord.commands import reset_command
from channels.discord.gateway import PULSE, Connection, Gateway
from channels.discord.hearing import NAME, guild_of, hear, is_spoken, place, sent_at, session_id, threaded
from channels.discord.history import History
from channels.discord.login import DiscordSettings, hears_all, intents, log_in, make_client
from channels.discord.reactions import receipts
from channels.discord.surface import DiscordSurface
from channels.discord.text import headline
from channels.gaps import Bounds, Gaps
from channels.intake import Call, Intake
from core.errors import ParleyError, SettingsError, StoreError, SurfaceError
from core.inbound import Inbound
from core.leadership import Leadership
from core.places import Places
from core.secrets import traced
from core.shares import Uses

log = logging.getLogger(__name__)

#: Seconds that connecting may take.
CONNECT_TIMEOUT = 60.0

#: Seconds that beginning a thread may take; then the answer stands beside the question.
THREAD_TIMEOUT = 10.0

#: Characters in the name of a thread, so that it can be read in the list of them.
MOST_NAME = 80

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
        self._receipts = receipts(self._api)
        self._intake = Intake(desk, self._receipts, self._surface_of, self.locale)
        look = History(self._api, serves=self._serves, hear=self._call_in).look
        self._gaps = Gaps(NAME, places, bounds, take=self._take, look=look, heard_at=self.heard_at, holds=True)
        self._gateway = Gateway(self._connection, on_back=self._gaps.open)
        self._leadership = leadership
        self._leading: asyncio.Task[None] | None = None
        self._leads = False
        self._hearing: set[asyncio.Task[Any]] = set()
        self._stopping = asyncio.Event()

    async def start(self) -> None:
        standing = await log_in(self._client, self._settings)
        for line in (*standing.lacks, *standing.faults):
            log.warning("%s", line)
        changes = self._leadership.changes()
        self._leads = await anext(changes)
        if self._leads:
            try:
                await asyncio.wait_for(self._begin(), CONNECT_TIMEOUT)
            except TimeoutError as error:
                raise SettingsError(
                    f"DISCORD_API_URL: no connection to the gateway could be made within {CONNECT_TIMEOUT:g} s; "
                    "the log says why"
                ) from error
        else:
            log.info("another worker hears what is said")
        self._leading = asyncio.create_task(self._follow(changes), name="discord leadership")

    async def stop(self) -> None:
        self._stopping.set()
        if self._leading is not None:
            self._leading.cancel()
            await asyncio.wait([self._leading])
        if self._hearing:
            _, late = await asyncio.wait(self._hearing, timeout=SETTLE_TIMEOUT)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=SETTLE_TIMEOUT)
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
                        await asyncio.wait_for(self._begin(), CONNECT_TIMEOUT)
                except (StoreError, TimeoutError) as error:  # perhaps another one can
                    log.error("this worker cannot hear what is said: %s", traced(error))
                    self._leads = False
                    await self._end()
                    await self._leadership.give_up()

    async def _begin(self) -> None:
        await self._gateway.start()
        await self._gaps.start()

    async def _end(self) -> None:
        await self._gateway.stop()
        await self._gaps.stop()

    def tell(self) -> Uses:
        return self._api.pacer.tell()

    def share(self, others: Sequence[Uses]) -> None:
        self._api.pacer.share(others)

    def heard_at(self) -> float:
        return self._gateway.heard_at if self._leads else 0.0

    async def reconnect(self) -> None:
        await self._gateway.reconnect()

    async def aclose(self) -> None:
        """Give back the connections; from now on nothing can be shown."""
        await self._api.aclose()
        await self._client.close()

    def surface(self, address: Mapping[str, Any], *, turn_id: str = "") -> DiscordSurface:
        del turn_id  # a reply is found by whom its messages answer
        return DiscordSurface(self._api, self._receipts, address, ping_after=self._settings.ping_after)

    async def locale(self, inbound: Inbound) -> str:
        """That of the server, if it has chosen one: of a person's own, only interactions tell."""
        return str(inbound.address.get("locale", ""))

    async def read(self, inbound: Inbound) -> Heard:
        """The message in words; in a server, where several may speak, the speaker's name comes first."""
        is_direct = inbound.place.startswith(f"{NAME}:dm:")
        return Heard.of(inbound.text, str(inbound.address["speaker"]), inbound.attachments, alone=is_direct)

    async def _connection(
        self, on_connected: Callable[[], None], on_sign: Callable[[], None]
    ) -> tuple[Connection, str]:
        """A new client. What the app may hear is asked each time: it can be changed while the bot runs."""
        flags = (await self._client.application_info()).flags
        _shards, address, limit = await self._client.http.get_bot_gateway()
        if not limit["remaining"]:
            raise ParleyError(f"Discord lets this bot begin no session for {limit['reset_after'] // 60_000} minutes")
        connection = Connection(
            intents=intents(hears_all=hears_all(flags)),
            commands=[reset_command(self._take_reset_command)],
            on_heard=self._hear,
            on_pressed=self._take_press,
            on_connected=on_connected,
            on_sign=on_sign,
        )
        try:
            await connection.login(self._settings.bot_token)
        except BaseException:
            await connection.close()
            raise
        return connection, address

    async def _hear(self, message: discord.Message) -> None:
        """Take in a message. Discord says it once: so what the database does not take is kept when it does."""
        guild = guild_of(message)
        if self._stopping.is_set() or not self._serves(guild) or not is_spoken(message):
            return None
        with self._in_hearing():
            if guild is not None and isinstance(message.channel, discord.PartialMessageable):
                try:
                    message.channel = await self._api.channel(message.channel.id)  # of which nobody has told discord.py
                except SurfaceError as error:
                    log.error("it cannot be seen where a message was said: %s", error)
                    return self._gaps.open(sent_at(message.id))
            if (call := self._call_in(message)) is None:
                return None
            try:
                await self._gaps.hear(call)
            except StoreError as error:
                log.warning("a message cannot be kept yet: %s", error)

    def _call_in(self, message: discord.Message) -> Call | None:
        """The call in a message, if it is one."""
        me = self._client.user
        return hear(message, me, self._settings) if me is not None and is_spoken(message) else None

    async def _take(self, call: Call) -> None:
        """Take in a call, in a thread of its own if it is a question that is to have one.

        Raises:
            StoreError: it could not be kept.
        """
        if self._settings.auto_thread and call.is_called and call.command is None:
            call = await self._in_thread(call)
        await self._intake.take(call)

    async def _in_thread(self, call: Call) -> Call:
        """The call as it is answered in a thread that is begun from it; or as it is, where none can be begun."""
        if (moved := threaded(call)) is None:
            return call
        address = call.inbound.address
        name = headline(call.inbound.text, MOST_NAME) or str(address["speaker"])
        try:
            async with asyncio.timeout(THREAD_TIMEOUT):
                await self._api.begin_thread(int(address["channel"]), int(address["message"]), name)
        except (SurfaceError, TimeoutError) as error:
            log.warning("no thread can be begun, so the answer stands in the channel: %s", traced(error))
            return call
        return moved

    async def _take_reset_command(self, interaction: discord.Interaction) -> None:
        """Start over where the command was given."""
        with self._in_hearing():
            await self._api.acknowledge(interaction)
            try:
                await self._api.answer(interaction, await self._reset(interaction))
            except SurfaceError as error:
                log.error("the reset cannot be confirmed: %s", error)

    async def _take_press(self, interaction: discord.Interaction, button: str) -> None:
        """Do what the button asks for, and tell the one who pressed it, and nobody else, if there is a word to say."""
        if self._stopping.is_set():
            return
        with self._in_hearing():
            await self._api.acknowledge_press(interaction)
            locale = interaction.locale.value
            word = words.of(locale)(words.NOT_HERE)
            if self._serves(interaction.guild_id):
                word = await self._intake.press(button, author=str(interaction.user.id), locale=locale)
            if word:
                try:
                    await self._api.whisper(interaction, word)
                except SurfaceError as error:
                    log.error("who has pressed a button cannot be told: %s", error)

    async def _reset(self, interaction: discord.Interaction) -> str:
        """What there is to say about it."""
        guild, channel, locale = interaction.guild_id, interaction.channel, interaction.locale.value
        if channel is None or not self._serves(guild):
            return words.of(locale)(words.NOT_HERE)
        asker = Asker(
            session_id=session_id(guild, channel, interaction.user.id, self._settings.sessions),
            place=place(guild, channel),
            author=str(interaction.user.id),
            channel=NAME,
            address={"channel": str(channel.id), "message": str(interaction.id), "speaker": "", "author": ""},
            event_key=f"{NAME}:{channel.id}:command:{interaction.id}",
            locale=locale,
            sent_at=sent_at(interaction.id),
        )
        return (await self._intake.commands.run("reset", "", asker)).text

    def _serves(self, guild: int | None) -> bool:
        guilds = self._settings.guilds
        return guild is None or not guilds or guild in guilds

    def _surface_of(self, inbound: Inbound) -> DiscordSurface:
        return self.surface(inbound.address, turn_id=inbound.event_key)

    @contextmanager
    def _in_hearing(self) -> Iterator[None]:
        """What a stop waits for: discord.py keeps no account of the tasks that it hears in."""
        task = asyncio.current_task()
        assert task is not None, "discord.py runs each event in a task"
        self._hearing.add(task)
        try:
            yield
        finally:
            self._hearing.discard(task)
