"""Login to Discord, with a report on the bot's servers and intents."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp
import discord

from channels.discord.invite import invite_link
from channels.discord.settings import DiscordSettings
from core.errors import SettingsError
from core.observability.messages import format_count

#: Seconds that a login may take, including the retries of discord.py.
LOGIN_TIMEOUT_SECONDS = 40.0

#: Longest rate-limit wait, in seconds, that discord.py sleeps inside a call. For a longer one it raises `RateLimited`.
MAX_WAIT_SECONDS = 30.0

#: Most servers that the summary names.
_MAX_NAMED_GUILDS = 3

_PORTAL = "at https://discord.com/developers/applications, your app, under Bot"


@dataclass(frozen=True, slots=True)
class LoginReport:
    """Result of the bot's login, as text for operators.

    Attributes:
        warnings: a sentence if the message content intent is off, and one if the bot is in no server; each names the
            remedy.
        faults: a sentence for each server of the settings that the bot is not in, with an invite link.
    """

    summary: str
    warnings: tuple[str, ...]
    faults: tuple[str, ...]


def make_client(settings: DiscordSettings) -> discord.Client:
    """Return a new discord.py client for REST calls only, which is not logged in yet.

    Also set the API's URL, for all discord.py clients of the process.
    """
    discord.http.Route.BASE = settings.api_url  # discord.py has one base address for all clients
    return discord.Client(
        intents=discord.Intents.none(),
        allowed_mentions=discord.AllowedMentions.none(),
        max_ratelimit_timeout=MAX_WAIT_SECONDS,
    )


def has_message_content(flags: discord.ApplicationFlags) -> bool:
    return flags.gateway_message_content or flags.gateway_message_content_limited


def has_members(flags: discord.ApplicationFlags) -> bool:
    return flags.gateway_guild_members or flags.gateway_guild_members_limited


async def log_in(client: discord.Client, settings: DiscordSettings) -> LoginReport:
    """Log a client in, and report the bot's servers and intents; raise `SettingsError` if it fails."""
    try:
        async with asyncio.timeout(LOGIN_TIMEOUT_SECONDS):
            await client.login(settings.bot_token)
            guilds = {guild.id: guild.name async for guild in client.fetch_guilds(limit=None)}
    except discord.LoginFailure as error:
        raise SettingsError(f"DISCORD_BOT_TOKEN: Discord rejects it. Copy it {_PORTAL}, Reset Token.") from error
    except discord.HTTPException as error:
        reason = f"cannot answer right now (HTTP {error.status}); try again"
        raise SettingsError(f"DISCORD_API_URL: {settings.api_url} {reason}.") from error
    except (aiohttp.ClientError, discord.RateLimited, TimeoutError, OSError) as error:
        raise SettingsError(
            f"DISCORD_API_URL: {settings.api_url} cannot be reached ({type(error).__name__})."
        ) from error
    except (KeyError, TypeError, ValueError) as error:  # discord.py cannot parse the answer
        raise SettingsError(f"DISCORD_API_URL: there is no Discord API at {settings.api_url}.") from error
    return _make_report(client, settings, guilds)


async def verify_token(settings: DiscordSettings) -> LoginReport:
    """Log in with the bot's token to check it, and close the client: see `log_in`."""
    client = make_client(settings)
    try:
        return await log_in(client, settings)
    finally:
        await client.close()


def _make_report(client: discord.Client, settings: DiscordSettings, guilds: Mapping[int, str]) -> LoginReport:
    user = client.user
    assert user is not None, "the client is logged in"
    is_threading = settings.auto_thread
    warnings = []
    if not has_message_content(client.application_flags):
        free = " and in the channels of DISCORD_FREE_CHANNEL_IDS" if settings.free_channels else ""
        warnings.append(
            f"the message content intent is off: in threads{free} the bot sees only mentions. "
            f"Switch it on {_PORTAL}, Privileged Gateway Intents"
        )
    if not guilds:
        invite = invite_link(user.id, auto_thread=is_threading)
        warnings.append(f"the bot is in no server, so nobody can write to it. Invite it: {invite}")
    faults = [
        f"DISCORD_GUILD_IDS: the bot is not in the server {guild}. Invite it: "
        f"{invite_link(user.id, auto_thread=is_threading, guild=guild)}"
        for guild in sorted(settings.guilds - guilds.keys())
    ]
    names = sorted(guilds.values())
    others = f" and {format_count(len(names) - _MAX_NAMED_GUILDS, 'other')}" if len(names) > _MAX_NAMED_GUILDS else ""
    place = ", ".join(names[:_MAX_NAMED_GUILDS]) + others
    return LoginReport(f"{user.name} in {place or 'no server'}", tuple(warnings), tuple(faults))
