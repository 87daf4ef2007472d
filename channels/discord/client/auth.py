"""Logging in: who the bot is, where it is, and what it may hear."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp
import discord

from channels.discord.invite import link
from channels.discord.settings import DiscordSettings
from core.errors import SettingsError

#: Seconds that logging in may take, with all that discord.py tries again by itself.
LOGIN_TIMEOUT = 40.0

#: Seconds from which on a wait that Discord asks for is told to us instead of being slept out inside a call.
LONG_WAIT = 30.0

#: How many servers are told by name.
_NAMED = 3

_WHERE = "at https://discord.com/developers/applications, your app, under Bot"


@dataclass(frozen=True, slots=True)
class Standing:
    """How the bot stands in Discord.

    Attributes:
        who: the bot's name, and where it is.
        lacks: for each thing that it can do without, a line on what it then cannot do and how to change that.
        faults: a line for each server that is to be served and that it is not in.
    """

    who: str
    lacks: tuple[str, ...]
    faults: tuple[str, ...]


def make_client(settings: DiscordSettings) -> discord.Client:
    """A client that has not logged in and that never connects to the gateway."""
    discord.http.Route.BASE = settings.api_url  # of all clients: discord.py has no other place for it
    return discord.Client(
        intents=discord.Intents.none(), allowed_mentions=discord.AllowedMentions.none(), max_ratelimit_timeout=LONG_WAIT
    )


def hears_all(flags: discord.ApplicationFlags) -> bool:
    """Whether the app may read what neither mentions it nor is written to it alone."""
    return flags.gateway_message_content or flags.gateway_message_content_limited


async def log_in(client: discord.Client, settings: DiscordSettings) -> Standing:
    """Log `client` in.

    Raises:
        SettingsError: Discord does not take the token, or cannot be reached.
    """
    try:
        async with asyncio.timeout(LOGIN_TIMEOUT):
            await client.login(settings.bot_token)
            guilds = {guild.id: guild.name async for guild in client.fetch_guilds(limit=None)}
    except discord.LoginFailure as error:
        raise SettingsError(f"DISCORD_BOT_TOKEN: Discord does not take it. Copy it {_WHERE}, Reset Token.") from error
    except discord.HTTPException as error:
        said = f"cannot answer right now (HTTP {error.status}); try again"
        raise SettingsError(f"DISCORD_API_URL: {settings.api_url} {said}.") from error
    except (aiohttp.ClientError, discord.RateLimited, TimeoutError, OSError) as error:
        raise SettingsError(
            f"DISCORD_API_URL: {settings.api_url} cannot be reached ({type(error).__name__})."
        ) from error
    except (KeyError, TypeError, ValueError) as error:  # what was answered is nothing that discord.py knows
        raise SettingsError(f"DISCORD_API_URL: no Discord answers at {settings.api_url}.") from error
    return _standing(client, settings, guilds)


async def verify(settings: DiscordSettings) -> Standing:
    """Try the token for real.

    Raises:
        SettingsError: Discord does not take it, or cannot be reached.
    """
    client = make_client(settings)
    try:
        return await log_in(client, settings)
    finally:
        await client.close()


def _standing(client: discord.Client, settings: DiscordSettings, guilds: Mapping[int, str]) -> Standing:
    user = client.user
    assert user is not None, "the client is logged in"
    is_threading = settings.auto_thread
    lacks = []
    if not hears_all(client.application_flags):
        free = " and in the channels of DISCORD_FREE_CHANNEL_IDS" if settings.free_channels else ""
        lacks.append(
            f"the message content intent is off: in threads{free} I hear only what mentions me. "
            f"Switch it on {_WHERE}, Privileged Gateway Intents"
        )
    if not guilds:
        invite = link(user.id, auto_thread=is_threading)
        lacks.append(f"I am in no server, and nobody can write to me. Invite me: {invite}")
    faults = [
        f"DISCORD_GUILD_IDS: the bot is not in the server {guild}. Invite it: "
        f"{link(user.id, auto_thread=is_threading, guild=guild)}"
        for guild in sorted(settings.guilds - guilds.keys())
    ]
    names = sorted(guilds.values())
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    where = ", ".join(names[:_NAMED]) + more
    return Standing(f"{user.name} in {where or 'no server'}", tuple(lacks), tuple(faults))
