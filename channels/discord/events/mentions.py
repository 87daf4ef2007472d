"""Lookup of the names of roles and channels that fetched messages mention."""

import asyncio
from collections.abc import Iterable

from channels.discord.client.api import DiscordApi
from channels.discord.text import find_mentions
from core.concurrency.lookup_cache import LookupCache

#: Seconds for which names are cached. A new role has no name until the roles of its server are fetched again.
CHANNEL_SECONDS, ROLE_SECONDS = 3600.0, 300.0

#: Seconds that a turn waits for a name.
LOOKUP_TIMEOUT_SECONDS = 2.0

MentionKey = tuple[str, int]


class DiscordMentionResolver:
    """Looks up the names of mentioned roles and channels, with a cache."""

    def __init__(self, api: DiscordApi) -> None:
        self._api = api
        self._channels = LookupCache[int, dict[MentionKey, str]](
            "channel", CHANNEL_SECONDS, timeout=LOOKUP_TIMEOUT_SECONDS
        )
        self._roles = LookupCache[int, dict[MentionKey, str]](
            "roles of a server", ROLE_SECONDS, timeout=LOOKUP_TIMEOUT_SECONDS
        )

    async def resolve_names(self, guild: int | None, texts: Iterable[str]) -> dict[MentionKey, str]:
        """Return the names of the roles and channels that texts mention, by sign (`@&` or `#`) and id.

        A name that cannot be fetched within `LOOKUP_TIMEOUT_SECONDS` is left out, unless an older answer is cached.
        """
        keys = set[MentionKey]().union(*map(find_mentions, texts))
        lookups = [self._get_channel_name(id_) for sign, id_ in keys if sign == "#"]
        if guild is not None and any(sign == "@&" for sign, _ in keys):
            lookups.append(self._get_role_names(guild))
        found = await asyncio.gather(*lookups)
        return {id_: name for names in found for id_, name in names.items() if id_ in keys}

    async def _get_channel_name(self, channel: int) -> dict[MentionKey, str]:
        async def fetch() -> dict[MentionKey, str]:
            return {("#", channel): str(await self._api.fetch_channel(channel))}

        return await self._channels.get_or_last(channel, fetch, {})

    async def _get_role_names(self, guild: int) -> dict[MentionKey, str]:
        async def fetch() -> dict[MentionKey, str]:
            return {("@&", role.id): role.name for role in (await self._api.fetch_guild(guild)).roles}

        return await self._roles.get_or_last(guild, fetch, {})
