"""Listens for messages, edits and deletions on Discord, and passes on what is for the bot."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

import discord

from channels.discord.access import Visits
from channels.discord.client.api import DiscordApi
from channels.discord.events.history import message_of
from channels.discord.events.parser import hear, is_named, is_spoken, is_to_others, text_of
from channels.discord.session_ids import event_key, guild_of, place_of, sent_at
from channels.discord.settings import DiscordSettings
from channels.intake.backfill import Backfill
from channels.intake.handler import EDIT_MENTION_WINDOW_SECONDS, IncomingMessage, MessageHandler
from channels.lookup_cache import LookupCache
from channels.rate_limits.caller import RefusedError
from core.concurrency.retry import retried
from core.concurrency.tasks import Work
from core.conversations.service import ConversationService
from core.errors import StoreError, SurfaceError
from core.secret_redaction import traced

log = logging.getLogger(__name__)

#: Seconds that it may take to look up the author and the place of a message, behind those before it in its channel.
#: Then the message is fetched again. A fetch goes back further than that: see `OVERLAP_SECONDS`.
EXAMINE_TIMEOUT = 30.0

#: Seconds for which the author of the message that a thread was opened on is cached.
STARTER_SECONDS = 3_600.0


class Ear:
    """Listens for messages.

    Args:
        api: logged in before anything is received.
        serves: whether the bot answers in the server of that id.
        follows: whether the bot answers messages that do not mention it.
        backfill_of: the backfill of a place, if this process receives its messages.
    """

    def __init__(
        self,
        settings: DiscordSettings,
        api: DiscordApi,
        intake: MessageHandler,
        conversations: ConversationService,
        work: Work,
        *,
        visits: Visits,
        serves: Callable[[int | None], bool],
        follows: bool,
        backfill_of: Callable[[str], Backfill | None],
    ) -> None:
        self._settings = settings
        self._api = api
        self._intake = intake
        self._conversations = conversations
        self._work = work
        self._visits = visits
        self._serves = serves
        self._follows = follows
        self._threads_on_answers = LookupCache[int, bool]("thread", STARTER_SECONDS)
        self._backfill_of = backfill_of
        self._locks = WeakValueDictionary[int, asyncio.Lock]()  # by channel: events are examined in their order

    async def heard(self, message: discord.Message) -> None:
        """Have a message stored, behind those before it in its channel. Discord sends it once, so what fails is done
        again or fetched.
        """
        if self._work.is_ending or not is_spoken(message):
            return
        with self._work.under_way():
            try:
                async with asyncio.timeout(EXAMINE_TIMEOUT), self._lock(message.channel.id):
                    call = await self._examine(message)
            except (SurfaceError, TimeoutError) as error:
                log.error("the author or the place of a message is not known: %s", traced(error))
                self._fetch_again(message)
                return
            if call is not None:
                await self._receive(call)  # first it is pending, so that an edit that waits for the lock finds it

    async def _examine(self, message: discord.Message) -> IncomingMessage | None:
        """Return a message that may be for the bot, with its author and place.

        Raises:
            SurfaceError: Discord does not tell them.
        """
        if guild_of(message) is not None and isinstance(message.channel, discord.PartialMessageable):
            message.channel = await self._api.channel(message.channel.id)
        return await self.call_in(message)

    def _fetch_again(self, message: discord.Message) -> None:
        if backfill := self._backfill_of(place_of(guild_of(message), message.channel.id)):
            backfill.open_gap(sent_at(message.id))

    async def _receive(self, call: IncomingMessage) -> None:
        backfill = self._backfill_of(call.inbound.place)
        try:
            await (backfill.receive(call) if backfill is not None else self._intake.accept(call))
        except StoreError as error:
            log.warning("a message is not stored yet: %s", error)

    def _lock(self, channel: int) -> asyncio.Lock:
        return self._locks.setdefault(channel, asyncio.Lock())

    async def edited(self, message: discord.Message) -> None:
        """Store an edit; one soon after the message may mention the bot. Discord updates a message for other reasons
        too, and withholds its text where the bot may not read it any more.
        """
        at = message.edited_at
        if at is None or not is_spoken(message) or not (message.content or message.attachments):
            return
        key, text = event_key(message.channel.id, message.id), text_of(message, self._api.me)
        call: IncomingMessage | None = None
        async with self._lock(message.channel.id):
            if at.timestamp() - sent_at(message.id) <= EDIT_MENTION_WINDOW_SECONDS and is_named(message, self._api.me):
                with suppress(SurfaceError):  # without its author and place, the edit calls nobody
                    call = await self._examine(message)

        async def store() -> None:
            if await self._intake.handle_edit(key, text, is_mention=call is not None) and call is not None:
                await self._receive(replace(call, inbound=replace(call.inbound, sent_at=at.timestamp())))

        if not await self._change(guild_of(message), message.channel.id, {key: text}, store) and call is not None:
            self._fetch_again(message)

    async def deleted(self, guild: int | None, channel: int, messages: Collection[int]) -> None:
        """Store that messages were deleted."""
        keys = [event_key(channel, id_) for id_ in sorted(messages)]
        async with self._lock(channel):  # they may be just examined
            pass

        async def store() -> None:
            for key in keys:
                await self._intake.handle_deletion(key)

        await self._change(guild, channel, dict.fromkeys(keys), store)

    async def closed(self, guild: int, channel: int, thread: int | None) -> None:
        """Stop what runs in a channel or thread that was deleted."""

        async def stop() -> None:
            where = place_of(guild, channel)
            sessions = [where] if thread is None else [f"{where}:{thread}", f"{place_of(guild, thread)}:{thread}"]
            for session in sessions:
                await self._conversations.stop_session(session, author=None)

        await self._change(guild, channel, {}, stop)

    async def _change(
        self,
        guild: int | None,
        channel: int,
        edits: Mapping[str, str | None],
        store: Callable[[], Awaitable[None]],
    ) -> bool:
        """Store a change, and apply it to messages that are not stored yet.

        Args:
            edits: the new texts by event key; None: deleted.

        Returns:
            Whether it is stored, if it had to be.
        """
        if self._work.is_ending or not self._serves(guild):
            return True
        with self._work.under_way():
            if backfill := self._backfill_of(place_of(guild, channel)):
                for key, text in edits.items():
                    await backfill.apply_edit(key, text)
            try:
                await retried(store, what="an edit or a deletion")
            except StoreError as error:
                log.error("an edit or a deletion is not stored: %s", traced(error))
                return False
            return True

    async def call_in(self, message: discord.Message) -> IncomingMessage | None:
        """The call in a message, if it is one.

        Raises:
            SurfaceError: Discord does not tell the author's roles, or the message that a thread was opened on.
        """
        call = hear(message, self._api.me, self._settings) if is_spoken(message) else None
        if call is None:
            return None
        if (
            not call.is_mention
            and not is_to_others(message, self._api.me)
            and await self._is_on_answer(message.channel)
        ):
            call = replace(call, is_in_answer_thread=True)
        return await self._visits.of_call(call, message)

    async def _is_on_answer(self, channel: Any) -> bool:
        """Return whether a channel is a thread that was opened on a message of the bot.

        Discord: such a thread has the id of the message.

        Raises:
            SurfaceError: Discord does not tell.
        """
        if not (self._follows and isinstance(channel, discord.Thread)) or channel.is_private():
            return False

        async def fetch() -> bool:
            try:
                starter = await message_of(self._api, channel.parent_id, channel.id)
            except RefusedError:  # it was opened on no message, or on one that is gone
                return False
            return starter.author == self._api.me

        return await self._threads_on_answers.get(channel.id, fetch)
