"""What roles and channels are called that stand in what was said, where Discord does not tell it with that."""

import asyncio
import logging
from collections.abc import Iterable

from channels.discord.client.api import DiscordApi
from channels.discord.text import named
from channels.ttl_cache import Remembered
from core.errors import SurfaceError
from core.secret_redaction import traced

log = logging.getLogger(__name__)

#: Seconds for which a name is taken to be the same.
FRESH = 3600.0

#: Seconds that an answer waits for one.
PATIENCE = 2.0

Id = tuple[str, int]


class Names:
    """Asks Discord for names, and remembers them for a while."""

    def __init__(self, api: DiscordApi) -> None:
        self._api = api
        self._known = Remembered[Id, str](FRESH)

    async def of(self, guild: int | None, texts: Iterable[str]) -> dict[Id, str]:
        """The names of the roles and channels that the texts have, by sign (`@&` or `#`) and id, as far as they can be
        looked up.
        """
        wanted = set[Id]().union(*map(named, texts))
        missing = {id_ for id_ in wanted if not self._known.is_fresh(id_)}
        asked = [self._channel(id_) for sign, id_ in missing if sign == "#"]
        if guild is not None and any(sign == "@&" for sign, _ in missing):
            asked.append(self._roles(guild))
        if asked:
            try:
                async with asyncio.timeout(PATIENCE):
                    await asyncio.gather(*asked)
            except TimeoutError:
                log.info("names are not known: Discord is slow")
        return {id_: name for id_ in wanted if (name := self._known.get(id_)) is not None}

    async def _channel(self, channel: int) -> None:
        try:
            found = await self._api.channel(channel)
        except SurfaceError as error:
            log.info("a channel cannot be looked up: %s", traced(error))
        else:
            self._known.keep(("#", channel), str(found))

    async def _roles(self, guild: int) -> None:
        try:
            found = await self._api.guild(guild)
        except SurfaceError as error:
            log.info("the roles of a server cannot be looked up: %s", traced(error))
        else:
            for role in found.roles:
                self._known.keep(("@&", role.id), role.name)
