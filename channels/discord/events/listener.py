"""Hears what is said, edited and deleted, and hands on what is for the bot."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

import discord

from channels.discord.access import Visits
from channels.discord.client.api import DiscordApi
from channels.discord.events.history import message_of
from channels.discord.events.parser import hear, is_named, is_spoken, is_to_others, text_of, threaded
from channels.discord.session_ids import event_key, guild_of, place_of, sent_at
from channels.discord.settings import DiscordSettings
from channels.discord.text import headline
from channels.intake.backfill import Gaps
from channels.intake.handler import MOMENT, Call, Intake
from channels.rate_limits.caller import RefusedError
from channels.ttl_cache import Remembered
from core.concurrency.retry import retried
from core.concurrency.tasks import Work
from core.conversations.service import Conversations
from core.errors import StoreError, SurfaceError
from core.secret_redaction import traced

log = logging.getLogger(__name__)

#: Seconds that beginning a thread may take; then the answer stands beside the question.
THREAD_TIMEOUT = 10.0

#: Seconds to wait before a change that the database did not take is noted again: Discord does not tell it again.
NOTE_PAUSES = (0.2, 1.0, 2.0, *(5.0,) * 17)

#: Seconds for which the author of the message that a thread was opened on is cached.
STARTER_SECONDS = 3_600.0

#: Characters in the name of a thread, so that it can be read in the list of them.
MOST_NAME = 80


class Ear:
    """Takes in what people say, whether Discord tells of it or it is found later.

    Args:
        api: logged in before anything is heard.
        serves: whether the bot answers in the server of that id.
        follows: whether the bot answers messages that do not mention it.
        gaps_of: what has the messages of a place taken in behind what was not heard there, if this process hears it.
    """

    def __init__(
        self,
        settings: DiscordSettings,
        api: DiscordApi,
        intake: Intake,
        conversations: Conversations,
        work: Work,
        *,
        visits: Visits,
        serves: Callable[[int | None], bool],
        follows: bool,
        gaps_of: Callable[[str], Gaps | None],
    ) -> None:
        self._settings = settings
        self._api = api
        self._intake = intake
        self._conversations = conversations
        self._work = work
        self._visits = visits
        self._serves = serves
        self._follows = follows
        self._threads_on_answers = Remembered[int, bool](STARTER_SECONDS)
        self._gaps_of = gaps_of
        self._hearing = dict[int, asyncio.Task[Any]]()  # by the id of the message
        self._queues = WeakValueDictionary[int, asyncio.Lock]()  # by the id of the channel

    async def heard(self, message: discord.Message) -> None:
        """Take in a message, behind those that were said before it in its channel. Discord says it once: so what the
        database does not take is kept when it does.
        """
        if self._work.is_ending or not is_spoken(message):
            return
        gaps = self._gaps_about(message)
        seeing = gaps.seeing(sent_at(message.id)) if gaps is not None else nullcontext()
        with self._work.under_way() as task, seeing:
            self._hearing[message.id] = task
            task.add_done_callback(lambda _: self._hearing.pop(message.id, None))
            async with self._queues.setdefault(message.channel.id, asyncio.Lock()):
                call = await self._seen(message)
            if call is not None:
                await self._hear(call)

    async def _seen(self, message: discord.Message) -> Call | None:
        """The call in a message, if it is one and can be seen: who wrote it may have to be asked, and where."""
        if not await self._is_placed(message):
            return None
        try:
            return await self.call_in(message)
        except SurfaceError as error:
            log.error("it cannot be seen who wrote a message: %s", error)
            self._look_again(message)
            return None

    async def _is_placed(self, message: discord.Message) -> bool:
        """See where a message was said, if nobody has told discord.py; whether that can be seen."""
        if guild_of(message) is not None and isinstance(message.channel, discord.PartialMessageable):
            try:
                message.channel = await self._api.channel(message.channel.id)
            except SurfaceError as error:
                log.error("it cannot be seen where a message was said: %s", error)
                self._look_again(message)
                return False
        return True

    def _look_again(self, message: discord.Message) -> None:
        """Have it looked what was said since a message, which could not be taken in."""
        if gaps := self._gaps_about(message):
            gaps.open(sent_at(message.id))

    def _gaps_about(self, message: discord.Message) -> Gaps | None:
        return self._gaps_of(place_of(guild_of(message), message.channel.id))

    async def _hear(self, call: Call) -> None:
        gaps = self._gaps_of(call.inbound.place)
        try:
            await (gaps.hear(call) if gaps is not None else self.take(call))
        except StoreError as error:
            log.warning("a message cannot be kept yet: %s", error)

    async def edited(self, message: discord.Message) -> None:
        """Take note that a message says something else now; one of a moment ago may call the bot by that. Discord
        updates one for other reasons too, and withholds its text where the bot may not read it any more.
        """
        at = message.edited_at
        if at is None or not is_spoken(message) or not (message.content or message.attachments):
            return
        key, text = event_key(message.channel.id, message.id), text_of(message, self._api.me)
        gaps, call = self._gaps_about(message), None
        if at.timestamp() - sent_at(message.id) <= MOMENT and is_named(message, self._api.me):
            with suppress(SurfaceError):  # who cannot be seen calls nobody by an edit
                call = await self.call_in(message) if await self._is_placed(message) else None

        async def note() -> None:
            if gaps is not None:
                await gaps.settled(key)
            if await self._intake.edited(key, text, calls=call is not None) and call is not None:
                await self._hear(replace(call, inbound=replace(call.inbound, sent_at=at.timestamp())))

        if gaps is not None:
            gaps.changed(key, text)
        if not await self._note(guild_of(message), note, about=[message.id]) and call is not None:
            self._look_again(message)

    async def deleted(self, guild: int | None, channel: int, messages: set[int]) -> None:
        """Take note that messages are gone."""
        gaps, keys = self._gaps_of(place_of(guild, channel)), [event_key(channel, id_) for id_ in sorted(messages)]

        async def note() -> None:
            for key in keys:
                if gaps is not None:
                    await gaps.settled(key)
                await self._intake.deleted(key)

        if gaps is not None:
            for key in keys:
                gaps.changed(key, None)
        await self._note(guild, note, about=messages)

    async def closed(self, guild: int, channel: int, thread: int | None) -> None:
        """Take note that a channel or thread is gone: nobody would read what is being answered there."""

        async def note() -> None:
            where = place_of(guild, channel)
            sessions = [where] if thread is None else [f"{where}:{thread}", f"{place_of(guild, thread)}:{thread}"]
            for session in sessions:
                await self._conversations.stop(session, author=None)

        await self._note(guild, note)

    async def _note(self, guild: int | None, note: Callable[[], Awaitable[None]], *, about: Iterable[int] = ()) -> bool:
        """Take note of a change, behind the messages that it is about: they may be being taken in as yet.

        Returns:
            Whether that could be done, if it was to be.
        """
        if self._work.is_ending or not self._serves(guild):
            return True
        with self._work.under_way():
            if hearing := [self._hearing[message] for message in about if message in self._hearing]:
                await asyncio.wait(hearing)
            try:
                await retried(note, what="a change of what was said", pauses=NOTE_PAUSES)
            except StoreError as error:
                log.error("a change of what was said is not noted: %s", traced(error))
                return False
            return True

    async def call_in(self, message: discord.Message) -> Call | None:
        """The call in a message, if it is one.

        Raises:
            SurfaceError: Discord does not tell the author's roles, or the message that a thread was opened on.
        """
        call = hear(message, self._api.me, self._settings) if is_spoken(message) else None
        if call is None:
            return None
        if not call.is_called and not is_to_others(message, self._api.me) and await self._is_on_answer(message.channel):
            call = replace(call, is_on_answer=True)
        return await self._visits.of_call(call, message)

    async def _is_on_answer(self, channel: Any) -> bool:
        """Return whether a channel is a thread that was opened on a message of the bot.

        Discord: such a thread has the id of the message.

        Raises:
            SurfaceError: Discord does not tell.
        """
        if not (self._follows and isinstance(channel, discord.Thread)) or channel.is_private():
            return False
        known, thread = self._threads_on_answers, channel.id
        if known.is_fresh(thread):
            return bool(known.get(thread))
        try:
            starter = await message_of(self._api, channel.parent_id, thread)
        except RefusedError:  # it was opened on no message, or on one that is gone
            return known.keep(thread, False)
        return known.keep(thread, starter.author == self._api.me)

    async def take(self, call: Call) -> None:
        """Take in a call, in a thread of its own if it is a question that is to have one.

        Raises:
            StoreError: it could not be kept.
        """
        if not await self._intake.admits(call):
            return
        if call.is_free and await self._conversations.is_muted(call.inbound.session_id):
            return
        has_thread = self._settings.auto_thread and call.is_called and call.command is None
        if has_thread and not await self._intake.limited(call.inbound):  # it would stand there without an answer
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
