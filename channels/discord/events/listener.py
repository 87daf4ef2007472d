"""Listener for messages, edits and deletions from the gateway."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import discord

from channels.discord.access import DiscordIdentityResolver
from channels.discord.client.api import DiscordApi
from channels.discord.events.content import read_content
from channels.discord.events.parser import is_for_others, is_from_person, is_mention, parse_message, parse_text
from channels.discord.session_ids import (
    PLATFORM,
    channel_place_id,
    event_key,
    guild_id_of,
    place_id,
    session_id,
    snowflake_time,
)
from channels.discord.settings import DiscordSettings
from channels.intake.backfill import Backfill
from channels.intake.handler import IntakeHandler
from channels.intake.incoming import EDIT_MENTION_WINDOW_SECONDS, Incoming, IncomingChange, IncomingMessage
from channels.rate_limits.retries import RefusedError
from core.concurrency.lookup_cache import LookupCache
from core.concurrency.retry import retry_store
from core.concurrency.tasks import BackgroundTasks
from core.conversations.service import ConversationService
from core.errors import StoreError, SurfaceError
from core.messages.inbox_message import InboxMessage
from core.observability.secret_redaction import format_error

log = logging.getLogger(__name__)

#: Seconds in which the author of a message, and those of earlier messages in its channel, must be looked up. After
#: that, the backfill fetches the message; it begins with messages that are older than this: see `OVERLAP_SECONDS`.
RESOLVE_TIMEOUT_SECONDS = 30.0

#: Seconds for which the author of the first message of a thread is cached.
STARTER_CACHE_SECONDS = 3_600.0


class MessageListener:
    """Stores messages for the bot, edits and deletions that the gateway delivers.

    Args:
        api: a client that is logged in before any event arrives.
        is_served: returns whether the bot answers in the server with an id; the id is None for direct messages.
        follows_threads: whether the bot answers messages without a mention in threads on its answers.
        get_backfill: returns the backfill for a place id; None if another process receives the place's events.
    """

    def __init__(
        self,
        settings: DiscordSettings,
        api: DiscordApi,
        intake: IntakeHandler,
        conversations: ConversationService,
        work: BackgroundTasks,
        *,
        identities: DiscordIdentityResolver,
        is_served: Callable[[int | None], bool],
        follows_threads: bool,
        get_backfill: Callable[[str], Backfill | None],
    ) -> None:
        self._settings = settings
        self._api = api
        self._intake = intake
        self._conversations = conversations
        self._work = work
        self._identities = identities
        self._is_served = is_served
        self._follows_threads = follows_threads
        self._answer_threads = LookupCache[int, bool]("thread", STARTER_CACHE_SECONDS)
        self._get_backfill = get_backfill
        self._locks = WeakValueDictionary[int, asyncio.Lock]()  # by channel, to keep the order of its events

    async def receive_message(self, message: discord.Message) -> None:
        """Store a new message if it is for the bot, after earlier messages of its channel.

        Messages of bots and webhooks are ignored. If the author's roles cannot be fetched within
        `RESOLVE_TIMEOUT_SECONDS`, the backfill is started, which fetches the message again: Discord delivers it only
        once. If the database fails, the failure is logged, and the backfill retries to store the message.
        """
        if self._work.is_stopping or not is_from_person(message):
            return
        with self._work.track_current():
            try:
                async with asyncio.timeout(RESOLVE_TIMEOUT_SECONDS), self._get_lock(message.channel.id):
                    incoming = await self._fetch_incoming(message)
            except (SurfaceError, TimeoutError) as error:
                log.error("the author of a message could not be resolved: %s", format_error(error))
                self._start_backfill(message)
                return
            if incoming is not None:
                await self._store_incoming(incoming)  # pending before the lock is free, so that an edit finds it

    async def _fetch_incoming(self, message: discord.Message) -> IncomingMessage | None:
        """Return a message for the inbox; its channel is fetched if Discord sent only the channel's id."""
        if guild_id_of(message) is not None and isinstance(message.channel, discord.PartialMessageable):
            message.channel = channel = await self._api.fetch_channel(message.channel.id)
            if isinstance(channel, discord.Thread) and message.guild is not None:
                channel.guild = message.guild  # the gateway's cache has the forum of a post with its tags
        return await self.parse_incoming(message)

    def _start_backfill(self, message: discord.Message) -> None:
        if backfill := self._get_backfill(channel_place_id(guild_id_of(message), message.channel.id)):
            backfill.open_gap(snowflake_time(message.id))

    async def _store_incoming(self, incoming: Incoming) -> None:
        backfill = self._get_backfill(incoming.inbound.place)
        try:
            await (backfill.receive(incoming) if backfill is not None else self._intake.accept(incoming))
        except StoreError as error:
            log.warning("a message or a change of one is not stored yet: %s", error)

    def _get_lock(self, channel: int) -> asyncio.Lock:
        return self._locks.setdefault(channel, asyncio.Lock())

    async def receive_edit(self, message: discord.Message) -> None:
        """Store the new text of an edited message.

        If an edit adds a mention of the bot within `EDIT_MENTION_WINDOW_SECONDS` after the message was sent, the
        message is stored as a new one. Discord also sends edit events for messages that nobody edited, and without the
        text if the bot may not read it. Such events are ignored.
        """
        at = message.edited_at
        if at is None or not is_from_person(message) or read_content(message).is_empty:
            return
        mention: IncomingMessage | None = None
        async with self._get_lock(message.channel.id):
            if at.timestamp() - snowflake_time(message.id) <= EDIT_MENTION_WINDOW_SECONDS and is_mention(
                message, self._api.bot_user
            ):
                with suppress(SurfaceError):  # an edit without an author adds no mention
                    mention = await self._fetch_incoming(message)
        if mention is not None:
            mention = replace(mention, inbound=replace(mention.inbound, sent_at=at.timestamp()))
        guild = guild_id_of(message)
        channel = message.channel
        session = session_id(guild, channel, message.author.id, self._settings.sessions)
        key = event_key(channel.id, message.id)
        text = parse_text(message, self._api.bot_user)
        inbound = _make_entry(f"{key}:{at.timestamp()}", place_id(guild, channel), session, at.timestamp())
        await self._store_change(guild, IncomingChange(inbound, key, text, mention))

    async def receive_deletion(self, guild: int | None, channel: int, messages: Collection[int]) -> None:
        """Delete the stored texts of messages that were deleted on Discord."""
        async with self._get_lock(channel):  # a deleted message may be in progress
            pass
        place = channel_place_id(guild, channel)
        for id_ in sorted(messages):
            key = event_key(channel, id_)
            inbound = _make_entry(f"{key}:deletion", place, place, time.time())
            await self._store_change(guild, IncomingChange(inbound, key, None))

    async def stop_channel_sessions(self, guild: int, channel: int, thread: int | None) -> None:
        """Cancel the turns, and drop waiting messages, in a deleted channel or thread.

        Of a deleted channel, only the session that all people in it share is stopped, not those of its threads or of
        single authors.
        """
        if not self._is_served(guild):
            return
        place = channel_place_id(guild, channel)
        sessions = [place] if thread is None else [f"{place}:{thread}", f"{channel_place_id(guild, thread)}:{thread}"]
        for session in sessions:
            stop = partial(self._conversations.stop_session, session, author=None)
            try:
                await retry_store(stop, operation="the stop of a deleted channel")
            except StoreError as error:
                log.error("the session of a deleted channel is not stopped: %s", format_error(error))

    async def _store_change(self, guild: int | None, change: IncomingChange) -> None:
        if not self._work.is_stopping and self._is_served(guild):
            with self._work.track_current():
                await self._store_incoming(change)

    async def parse_incoming(self, message: discord.Message) -> IncomingMessage | None:
        """Return a message for the inbox, with its author's roles and its location.

        Raises:
            SurfaceError: the author's roles, the channel, or the message on which the thread was started cannot be
                fetched.
        """
        incoming = parse_message(message, self._api.bot_user, self._settings) if is_from_person(message) else None
        if incoming is None:
            return None
        if (
            not incoming.is_mention
            and not is_for_others(message, self._api.bot_user)
            and await self._is_answer_thread(message.channel)
        ):
            incoming = replace(incoming, is_in_answer_thread=True)
        return await self._identities.resolve_message(incoming, message)

    async def _is_answer_thread(self, channel: Any) -> bool:
        """Return whether a channel is a public thread that was started on a bot's message.

        False if the bot only answers mentions. Discord: the thread has the id of the message.
        """
        if not (self._follows_threads and isinstance(channel, discord.Thread)) or channel.is_private():
            return False

        async def fetch() -> bool:
            try:
                starter = await self._api.fetch_message(channel.parent_id, channel.id)
            except RefusedError:  # it has no first message, or that one is deleted
                return False
            return starter.author == self._api.bot_user

        return await self._answer_threads.get(channel.id, fetch)


def _make_entry(key: str, place: str, session: str, at: float) -> InboxMessage:
    return InboxMessage(key, session, place, PLATFORM, {}, author="", text="", sent_at=at)
