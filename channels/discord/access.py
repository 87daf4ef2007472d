"""Access to the bot on Discord: the author, roles and place of an event, and the ids in the access lists.

Discord: an event in a server has its author's roles. Messages that are fetched later do not, and direct messages belong
to no server: their roles are fetched from the servers that the settings name.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

import aiohttp
import discord

from channels.discord.client.api import DiscordApi
from channels.discord.client.auth import log_in, make_client
from channels.discord.session_ids import NAME, guild_of
from channels.discord.settings import DiscordSettings
from channels.intake.handler import IncomingMessage
from channels.lookup_cache import LookupCache
from channels.rate_limits.caller import RefusedError
from core.errors import SettingsError
from core.identity import Actor, Location

#: Seconds for which the roles of a member and the category of a channel are cached.
CACHE_SECONDS = 300.0

#: Discord's codes for a user who is not in a server, and for a server that the bot is not in.
_NOT_THERE = {"10007", "10013", "10004", "50001"}


class Visits:
    """Resolves the author and the place of an event.

    Args:
        homes: the ids of the servers whose members and roles count in direct messages.
        looks: whether access or approvals depend on roles and places; if not, they are not looked up.
    """

    def __init__(self, api: DiscordApi, *, homes: Collection[int], looks: bool) -> None:
        self._api = api
        self._homes = sorted(homes) if looks else []
        self._looks = looks
        self._roles = LookupCache[tuple[int, int], tuple[str, ...] | None]("roles", CACHE_SECONDS)
        self._channels = LookupCache[int, Any]("channel", CACHE_SECONDS)

    async def of_call(self, call: IncomingMessage, message: discord.Message) -> IncomingMessage:
        """Return a message with its author and place.

        Raises:
            SurfaceError: they are not known.
        """
        visitor = await self._visitor(guild_of(message), message.author)
        spot = await self._spot(guild_of(message), message.channel)
        return replace(call, inbound=replace(call.inbound, visitor=visitor, spot=spot))

    async def of_interaction(self, interaction: discord.Interaction) -> tuple[Actor, Location]:
        """Return the author and the place of an interaction.

        Raises:
            SurfaceError: they are not known.
        """
        guild = interaction.guild_id
        return await self._visitor(guild, interaction.user), await self._spot(guild, interaction.channel)

    async def _visitor(self, guild: int | None, user: discord.abc.User) -> Actor:
        if guild is not None:
            roles = _roles(user) if isinstance(user, discord.Member) else await self._roles_in(guild, user.id)
            return Actor(NAME, str(user.id), roles=roles or (), workspaces=(str(guild),))
        found = [(home, await self._roles_in(home, user.id)) for home in self._homes]
        there = {home: roles for home, roles in found if roles is not None}
        every = {role for roles in there.values() for role in roles}
        return Actor(NAME, str(user.id), roles=tuple(sorted(every)), workspaces=tuple(map(str, there)))

    async def _spot(self, guild: int | None, channel: Any) -> Location:
        if guild is None:
            return Location("", str(channel.id) if channel else "", is_direct=True)
        parents = [channel.parent_id] if isinstance(channel, discord.Thread) else []
        category = await self._category(channel)
        above = tuple(str(id_) for id_ in (*parents, category) if id_)
        return Location(str(guild), str(channel.id) if channel else "", above)

    async def _category(self, channel: Any) -> int | None:
        """Return the category of a channel, or of the channel of a thread."""
        place = channel.parent if isinstance(channel, discord.Thread) else channel
        if place is None and isinstance(channel, discord.Thread) and self._looks:
            place = await self._channels.get(channel.parent_id, lambda: self._api.channel(channel.parent_id))
        return getattr(place, "category_id", None)

    async def _roles_in(self, guild: int, user: int) -> tuple[str, ...] | None:
        """Return the ids of a user's roles in a server; None if they are not a member."""
        return await self._roles.get((guild, user), lambda: self._fetch(guild, user)) if self._looks else None

    async def _fetch(self, guild: int, user: int) -> tuple[str, ...] | None:
        try:
            member = await self._api.member(guild, user)
        except RefusedError as refusal:
            if refusal.code not in _NOT_THERE:
                raise
            return None
        return tuple(map(str, member["roles"]))


def _roles(member: discord.Member) -> tuple[str, ...]:
    return tuple(str(role.id) for role in member.roles)


async def find_unknown_ids(settings: DiscordSettings, rules: Iterable[str]) -> list[str]:
    """Return a line for each rule (`kind:id`) with an id that the bot cannot find in Discord.

    Raises:
        SettingsError: Discord cannot be reached.
    """
    named = [rule.partition(":") for rule in rules]
    if not named:
        return []
    client = make_client(settings)
    try:
        await log_in(client, settings)
        guilds = [guild async for guild in client.fetch_guilds(limit=None)]
        roles = set[int]()
        if any(kind == "role" for kind, _, _ in named):
            roles = {role.id for guild in guilds for role in await guild.fetch_roles()}
        lines = list[str]()
        for kind, _, id_ in named:
            match kind:
                case "guild":
                    is_known = int(id_) in {guild.id for guild in guilds}
                case "role":
                    is_known = int(id_) in roles
                case "user":
                    is_known = await _is_there(client.fetch_user, id_)
                case _:
                    is_known = id_ == "dm" or await _is_there(client.fetch_channel, id_)
            if not is_known:
                lines.append(f"the bot finds no {kind}:{id_} in Discord: copy the id anew, or remove it")
        return lines
    except (discord.HTTPException, aiohttp.ClientError, TimeoutError, OSError) as error:
        said = f"cannot be asked ({type(error).__name__}); try again"
        raise SettingsError(f"DISCORD_API_URL: {settings.api_url} {said}.") from error
    finally:
        await client.close()


async def _is_there(fetch: Callable[[int], Awaitable[Any]], id_: str) -> bool:
    try:
        await fetch(int(id_))
    except (discord.NotFound, discord.Forbidden):
        return False
    return True
