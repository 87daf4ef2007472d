"""Channel history of Discord, for the backfill of missed messages.

Discord: a channel's history has nothing of its threads. A server lists its active threads, and the last message id of
each channel and thread: one call shows which of them have new messages.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, TypeVar

import discord

from channels.base import Priority
from channels.discord.client.api import MESSAGES, DiscordApi
from channels.discord.session_ids import ASIDE, snowflake, thread_of
from channels.intake.handler import IncomingMessage
from channels.lookup_cache import LookupCache
from channels.rate_limits.caller import RefusedError
from core.inbox.watermarks import ActivePlace

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Discord: the most messages that one call tells; and the most calls for one channel or thread.
PAGE = 100
MOST_PAGES = 5

#: Discord's codes for a place or a server that is gone, or that the bot may not see or read any more.
_NOT_TO_BE_SEEN = {"10003", "10004", "50001", "50013"}


@dataclass(frozen=True, slots=True)
class _Server:
    """A server.

    Attributes:
        latest: the ids of the latest messages of its channels, by their ids.
        threads: those that are active.
    """

    guild: discord.Guild
    latest: Mapping[int, int]
    threads: Sequence[discord.Thread]


class History:
    """Reads what Discord has kept.

    Args:
        serves: whether the bot answers in the server of that id.
        hear: the call in a message, if it is one.
    """

    def __init__(
        self,
        api: DiscordApi,
        *,
        serves: Callable[[int | None], bool],
        hear: Callable[[discord.Message], Awaitable[IncomingMessage | None]],
    ) -> None:
        self._api = api
        self._serves = serves
        self._hear = hear

    def look(self, since: float) -> Callable[[ActivePlace], Awaitable[list[IncomingMessage]]]:
        """Begin a look: what was said in a place since then (seconds since the epoch). What may not be seen is left.

        Raises:
            SurfaceError: Discord is out of reach, or does not take the token.
        """
        return partial(self._calls, after=snowflake(since), servers=LookupCache("servers", inf))

    async def _calls(
        self, place: ActivePlace, *, after: int, servers: LookupCache[int, _Server | None]
    ) -> list[IncomingMessage]:
        """Return the messages for the bot that were sent in a place after the message of that id.

        Args:
            servers: by id; None if the bot is not in it.
        """
        _, where, channel = place.id.split(":")
        if where == ASIDE:  # Discord tells nothing of it but once
            return []
        if where == "dm":
            rooms = [self._api.direct(int(channel))]
        elif self._serves(guild := int(where)):
            if (server := await servers.get(guild, partial(self._server, guild))) is None:
                return []
            rooms = await self._rooms(server, int(channel), place, after)
        else:
            return []
        messages = [message for room in rooms for message in await self._said(room, after)]
        return [call for message in messages if (call := await self._hear(message)) is not None]

    async def _server(self, id_: int) -> _Server | None:
        guild = await _unless_hidden(self._api.guild(id_))
        return None if guild is None else _Server(guild, await self._api.latest(id_), await self._api.threads(guild))

    async def _rooms(self, server: _Server, channel_id: int, place: ActivePlace, after: int) -> list[Any]:
        """The channel, as far as one can speak there and anybody has since the message of that id, its active threads,
        and those that the bot follows.
        """
        threads = [thread for thread in server.threads if thread.parent_id == channel_id]
        followed = {thread for session in place.sessions if (thread := thread_of(session)) is not None}
        asleep = followed - {channel_id, *(thread.id for thread in threads)}
        unread = [id_ for id_ in (channel_id, *sorted(asleep)) if server.latest.get(id_, after + 1) > after]
        rooms = [await _unless_hidden(self._api.channel(id_, server.guild)) for id_ in unread]
        return [*(room for room in rooms if isinstance(room, discord.abc.Messageable)), *threads]

    async def _said(self, room: Any, after: int) -> list[discord.Message]:
        """What was said in a channel or thread after the message of that id, oldest first."""
        latest: int | None = getattr(room, "last_message_id", None)
        if latest is not None and latest <= after:
            return []
        said, before = list[discord.Message](), None
        for _ in range(MOST_PAGES):
            look = messages_in(self._api, room, after=after, before=before, limit=PAGE, priority=Priority.BACKFILL)
            page = await _unless_hidden(look) or []
            said += page
            if len(page) < PAGE:
                break
            before = page[-1].id
        return said[::-1]


async def _unless_hidden(call: Awaitable[T]) -> T | None:
    """The answer, or nothing if it is that this is not for the bot to see."""
    try:
        return await call
    except RefusedError as refusal:
        if refusal.code not in _NOT_TO_BE_SEEN:
            raise
        log.info("a place cannot be looked into: %s", refusal)
        return None


async def messages_in(
    api: DiscordApi, room: Any, *, after: int, before: int | None, limit: int, priority: Priority = Priority.PROGRESS
) -> list[discord.Message]:
    """The newest messages of a channel or thread between two ids, newest first."""
    start, end = discord.Object(after), None if before is None else discord.Object(before)

    async def send() -> list[discord.Message]:
        return [message async for message in room.history(limit=limit, after=start, before=end, oldest_first=False)]

    return await api.call("history", send, api.budget(("history", room.id), MESSAGES), priority=priority) or []


async def message_of(api: DiscordApi, channel: int, message: int) -> discord.Message:
    """A message.

    Raises:
        SurfaceError: it cannot be had.
    """
    room = api.direct(channel)

    async def send() -> discord.Message:
        return await room.fetch_message(message)

    found = await api.call("message", send, api.budget(("message", channel), MESSAGES))
    assert found is not None, "only a tick may be dropped"
    return found
