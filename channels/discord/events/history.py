"""History: fetches the messages that were sent while the bot was disconnected.

Discord: the history of a channel does not include its threads. One call lists the active threads of a server. Another
call lists the latest message id of each channel: only channels with new messages are then fetched.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, TypeVar

import discord

from channels.base import Priority
from channels.discord.client.api import DiscordApi
from channels.discord.session_ids import EPHEMERAL, thread_id_of, time_snowflake
from channels.intake.incoming import IncomingMessage
from channels.rate_limits.retries import RefusedError
from core.concurrency.lookup_cache import LookupCache
from core.inbox.watermarks import ActivePlace

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Messages that are fetched of one channel or thread, the newest ones. Discord returns 100 a call.
MAX_MESSAGES = 500

#: Discord's codes for a channel or server that is deleted, or that the bot may not read.
_HIDDEN_CODES = {"10003", "10004", "50001", "50013"}


@dataclass(frozen=True, slots=True)
class _GuildActivity:
    """Latest messages and active threads of a server.

    Attributes:
        latest_ids: the id of the latest message by channel id; 0 for an empty channel.
        threads: the threads that are not archived.
    """

    guild: discord.Guild
    latest_ids: Mapping[int, int]
    threads: Sequence[discord.Thread]


class DiscordHistory:
    """Fetches past messages of channels and threads for the backfill.

    Args:
        is_served: returns whether the bot answers in the server with an id. It is not called for direct messages,
            which are always fetched.
    """

    def __init__(
        self,
        api: DiscordApi,
        *,
        is_served: Callable[[int | None], bool],
        parse: Callable[[discord.Message], Awaitable[IncomingMessage | None]],
    ) -> None:
        self._api = api
        self._is_served = is_served
        self._parse = parse

    def create_fetch(self, since: float) -> Callable[[ActivePlace], Awaitable[list[IncomingMessage]]]:
        """Return a function that fetches the messages for the bot in a place since a time.

        The function fetches the newest `MAX_MESSAGES` of each channel or thread; they are oldest first within it. It
        skips channels that the bot may not read, servers in which the bot does not answer, and ephemeral replies. It
        raises `SurfaceError` if Discord cannot be reached or refuses the token. Use it for one pass over the places: it
        reads the active threads and latest message ids of each server only once.
        """
        return partial(self._fetch_messages_of, after=time_snowflake(since), servers=LookupCache("servers", inf))

    async def _fetch_messages_of(
        self, place: ActivePlace, *, after: int, servers: LookupCache[int, _GuildActivity | None]
    ) -> list[IncomingMessage]:
        """Fetch the messages for the bot in a place (a channel with its threads, or DMs)."""
        _, kind, channel = place.id.split(":")
        if kind == EPHEMERAL:  # Discord keeps no history of interactions for the bot
            return []
        if kind == "dm":
            channels = [self._api.get_partial_channel(int(channel))]
        elif self._is_served(guild := int(kind)):
            if (server := await servers.get(guild, partial(self._fetch_activity, guild))) is None:
                return []
            channels = await self._find_active_channels(server, int(channel), place, after)
        else:
            return []
        messages = [message for channel in channels for message in await self._fetch_messages(channel, after)]
        return [incoming for message in messages if (incoming := await self._parse(message)) is not None]

    async def _fetch_activity(self, id_: int) -> _GuildActivity | None:
        guild = await _unless_hidden(self._api.fetch_guild(id_, priority=Priority.BACKFILL))
        if guild is None:
            return None
        latest_ids = await self._api.fetch_latest_message_ids(id_)
        return _GuildActivity(guild, latest_ids, await self._api.fetch_active_threads(guild))

    async def _find_active_channels(
        self, server: _GuildActivity, channel_id: int, place: ActivePlace, after: int
    ) -> list[Any]:
        """Return a channel, its active threads, and its archived threads in `place`.

        The channel is left out if it has no new messages. The threads may have none. Channels and threads that are
        deleted or not readable are left out.
        """
        threads = [thread for thread in server.threads if thread.parent_id == channel_id]
        followed = {thread for session in place.sessions if (thread := thread_id_of(session)) is not None}
        archived = followed - {channel_id, *(thread.id for thread in threads)}
        unread = [id_ for id_ in (channel_id, *sorted(archived)) if server.latest_ids.get(id_, after + 1) > after]
        channels = [await _unless_hidden(self._api.fetch_channel(id_, server.guild)) for id_ in unread]
        return [*(channel for channel in channels if isinstance(channel, discord.abc.Messageable)), *threads]

    async def _fetch_messages(self, channel: Any, after: int) -> list[discord.Message]:
        """Fetch the newest `MAX_MESSAGES` of a channel or thread after a message id, oldest first."""
        latest: int | None = getattr(channel, "last_message_id", None)
        if latest is not None and latest <= after:
            return []
        fetch = self._api.fetch_messages(channel, after=after, limit=MAX_MESSAGES, priority=Priority.BACKFILL)
        return (await _unless_hidden(fetch) or [])[::-1]


async def _unless_hidden(call: Awaitable[T]) -> T | None:
    """Await a call; if the channel or server is deleted or not readable, log it and return None."""
    try:
        return await call
    except RefusedError as refusal:
        if refusal.code not in _HIDDEN_CODES:
            raise
        log.info("the history of a place is not readable: %s", refusal)
        return None
