"""Whether Discord knows whom the lists of the door name."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import aiohttp
import discord

from channels.discord.client.auth import log_in, make_client
from channels.discord.settings import DiscordSettings
from core.errors import SettingsError


async def unknown(settings: DiscordSettings, rules: Iterable[str]) -> list[str]:
    """A line for each of the rules (`kind:id`) that names what the bot cannot find in Discord.

    Raises:
        SettingsError: Discord cannot be asked.
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
