"""Identity of users on Discord: roles, location, and the ids in access rules.

Discord: an event in a server has its author's roles. Messages that are fetched later have none, and direct messages
belong to no server. The roles of their authors are fetched from the servers that the settings name.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

import aiohttp
import discord

from channels.discord.client.api import DiscordApi
from channels.discord.client.auth import log_in, make_client
from channels.discord.session_ids import PLATFORM, guild_id_of
from channels.discord.settings import DiscordSettings
from channels.intake.incoming import IncomingMessage
from channels.rate_limits.retries import RefusedError
from core.concurrency.lookup_cache import LookupCache
from core.errors import SettingsError
from core.messages.identity import Actor, Location

#: Seconds for which the roles of a member and the category of a channel are cached.
CACHE_SECONDS = 300.0

#: Discord's codes for a user who is not in a server, and for a server that the bot is not in.
_NOT_FOUND_CODES = {"10007", "10013", "10004", "50001"}


class DiscordIdentityResolver:
    """Looks up the roles and the location of a message's or interaction's author.

    Each method raises `SurfaceError` if the roles or the channel cannot be fetched.

    Args:
        home_guilds: the ids of the servers whose members and roles count in direct messages.
        needs_roles: whether access rules or approvals name any ids; if not, no roles and no categories are fetched.
    """

    def __init__(self, api: DiscordApi, *, home_guilds: Collection[int], needs_roles: bool) -> None:
        self._api = api
        self._home_guilds = sorted(home_guilds) if needs_roles else []
        self._needs_roles = needs_roles
        self._roles = LookupCache[tuple[int, int], tuple[str, ...] | None]("roles", CACHE_SECONDS)
        self._channels = LookupCache[int, Any]("channel", CACHE_SECONDS)

    async def resolve_message(self, incoming: IncomingMessage, message: discord.Message) -> IncomingMessage:
        """Return a copy of a parsed message with its author's roles and its location set."""
        actor = await self._resolve_actor(guild_id_of(message), message.author)
        location = await self.resolve_location(guild_id_of(message), message.channel)
        return replace(incoming, inbound=replace(incoming.inbound, actor=actor, location=location))

    async def resolve_interaction(self, interaction: discord.Interaction) -> tuple[Actor, Location]:
        """Return an interaction's author, with their roles, and its location."""
        guild = interaction.guild_id
        actor = await self._resolve_actor(guild, interaction.user)
        return actor, await self.resolve_location(guild, interaction.channel)

    async def _resolve_actor(self, guild: int | None, user: discord.abc.Snowflake) -> Actor:
        if guild is not None:
            roles = _role_ids(user) if isinstance(user, discord.Member) else await self._get_roles(guild, user.id)
            return Actor(PLATFORM, str(user.id), roles=roles or (), workspaces=(str(guild),))
        found = [(home, await self._get_roles(home, user.id)) for home in self._home_guilds]
        memberships = {home: roles for home, roles in found if roles is not None}
        role_ids = {role for roles in memberships.values() for role in roles}
        return Actor(PLATFORM, str(user.id), roles=tuple(sorted(role_ids)), workspaces=tuple(map(str, memberships)))

    async def resolve_member(self, guild: int | None, user: int) -> Actor | None:
        """Return a user with their present roles; None if they are not in the server any more.

        In direct messages (without a server), the roles are those in the home servers.
        """
        if guild is None:
            return await self._resolve_actor(None, discord.Object(user))
        roles = await self._fetch_roles(guild, user)
        return None if roles is None else Actor(PLATFORM, str(user), roles=roles, workspaces=(str(guild),))

    async def is_member_anywhere(self, user: int) -> bool:
        """Return whether a user is in a server of the bot."""
        for guild in await self._api.fetch_guild_ids():
            if await self._fetch_roles(guild, user) is not None:
                return True
        return False

    async def resolve_location(self, guild: int | None, channel: Any) -> Location:
        if guild is None:
            return Location("", str(channel.id) if channel else "", is_direct=True)
        thread_parent = channel.parent_id if isinstance(channel, discord.Thread) else None
        category = await self._find_category(channel)
        parents = tuple(str(id_) for id_ in (thread_parent, category) if id_)
        return Location(str(guild), str(channel.id) if channel else "", parents)

    async def _find_category(self, channel: Any) -> int | None:
        """Return the category id of a channel, or of a thread's channel, which may have to be fetched."""
        source = channel.parent if isinstance(channel, discord.Thread) else channel
        if source is None and isinstance(channel, discord.Thread) and self._needs_roles:
            source = await self._channels.get(channel.parent_id, lambda: self._api.fetch_channel(channel.parent_id))
        return getattr(source, "category_id", None)

    async def _get_roles(self, guild: int, user: int) -> tuple[str, ...] | None:
        """Return the ids of a user's roles in a server; None also if no setting needs roles."""
        if not self._needs_roles:
            return None
        return await self._roles.get((guild, user), lambda: self._fetch_roles(guild, user))

    async def _fetch_roles(self, guild: int, user: int) -> tuple[str, ...] | None:
        try:
            member = await self._api.fetch_member(guild, user)
        except RefusedError as refusal:
            if refusal.code not in _NOT_FOUND_CODES:
                raise
            return None
        return tuple(map(str, member["roles"]))


def _role_ids(member: discord.Member) -> tuple[str, ...]:
    return tuple(str(role.id) for role in member.roles)


async def find_unknown_ids(settings: DiscordSettings, rules: Iterable[str]) -> list[str]:
    """Look up the ids of access rules (`kind:id`) on Discord; return a line for each unknown id.

    A line is a sentence for operators that names the remedy.

    Raises:
        SettingsError: Discord refuses the token, or cannot be reached.
    """
    parsed = [rule.partition(":") for rule in rules]
    if not parsed:
        return []
    client = make_client(settings)
    try:
        await log_in(client, settings)
        roles = set[str]()
        if any(kind == "role" for kind, _, _ in parsed):
            async for guild in client.fetch_guilds(limit=None):
                roles |= {str(role.id) for role in await guild.fetch_roles()}
        fetch: dict[str, Callable[[int], Awaitable[Any]]] = {"guild": client.fetch_guild, "user": client.fetch_user}
        return [
            f"the bot finds no {kind}:{id_} in Discord: copy the id anew, or remove it"
            for kind, _, id_ in parsed
            if not (
                id_ in roles
                if kind == "role"
                else id_ == "dm" or await _exists(fetch.get(kind, client.fetch_channel), id_)
            )
        ]
    except (discord.HTTPException, aiohttp.ClientError, TimeoutError, OSError) as error:
        reason = f"cannot be reached ({type(error).__name__}); try again"
        raise SettingsError(f"DISCORD_API_URL: {settings.api_url} {reason}.") from error
    finally:
        await client.close()


async def _exists(fetch: Callable[[int], Awaitable[Any]], id_: str) -> bool:
    try:
        await fetch(int(id_))
    except (discord.NotFound, discord.Forbidden):
        return False
    return True
