"""Names of the roles and channels that a text mentions, where Discord does not send them with it."""

import asyncio
from collections.abc import Iterable

from channels.discord.client.api import DiscordApi
from channels.discord.text import named
from channels.lookup_cache import LookupCache

#: Seconds for which names are cached. The roles of a server are one answer: a new role has no name until it ends.
CHANNEL_SECONDS, ROLE_SECONDS = 3600.0, 300.0

#: Seconds that a reply waits for a name.
LOOKUP_TIMEOUT = 2.0

Id = tuple[str, int]


class Names:
    """Looks up the names in a text."""

    def __init__(self, api: DiscordApi) -> None:
        self._api = api
        self._channels = LookupCache[int, dict[Id, str]]("channel", CHANNEL_SECONDS, timeout=LOOKUP_TIMEOUT)
        self._roles = LookupCache[int, dict[Id, str]]("roles of a server", ROLE_SECONDS, timeout=LOOKUP_TIMEOUT)

    async def of(self, guild: int | None, texts: Iterable[str]) -> dict[Id, str]:
        """Return the names of the roles and channels that the texts mention, by sign (`@&` or `#`) and id, as far as
        they are known.
        """
        wanted = set[Id]().union(*map(named, texts))
        lookups = [self._channel(id_) for sign, id_ in wanted if sign == "#"]
        if guild is not None and any(sign == "@&" for sign, _ in wanted):
            lookups.append(self._roles_of(guild))
        found = await asyncio.gather(*lookups)
        return {id_: name for names in found for id_, name in names.items() if id_ in wanted}

    async def _channel(self, channel: int) -> dict[Id, str]:
        async def fetch() -> dict[Id, str]:
            return {("#", channel): str(await self._api.channel(channel))}

        return await self._channels.get_or_last(channel, fetch, {})

    async def _roles_of(self, guild: int) -> dict[Id, str]:
        async def fetch() -> dict[Id, str]:
            return {("@&", role.id): role.name for role in (await self._api.guild(guild)).roles}

        return await self._roles.get_or_last(guild, fetch, {})
