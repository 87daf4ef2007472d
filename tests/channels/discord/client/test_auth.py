from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from channels.discord.client import auth as login
from channels.discord.client.auth import Standing, verify
from channels.discord.settings import DiscordSettings
from core.errors import SettingsError
from sandbox.discord import DiscordSandbox
from tests.channels.discord.conftest import echo, running, settings_of

ME = "GET /users/@me"
GUILDS = "GET /users/@me/guilds"
TOKEN = "MTIzNDU2Nzg5MDEyMzQ1Njc4.Gabcde.abcdefghijklmnopqrstuvwxyzabc"


async def test_a_sound_token_is_told_who_it_belongs_to(server: DiscordSandbox) -> None:
    assert await verify(settings_of(server)) == Standing("parley in Sandbox", (), ())


async def test_a_wrong_token_is_told_with_where_to_get_the_right_one(server: DiscordSandbox) -> None:
    with pytest.raises(SettingsError, match="DISCORD_BOT_TOKEN: Discord does not take it") as raised:
        await verify(settings_of(server, bot_token=TOKEN))
    assert "Copy it at https://discord.com/developers/applications" in str(raised.value)
    assert TOKEN not in str(raised.value)


async def test_a_start_with_a_wrong_token_ends_with_that_line(server: DiscordSandbox, tmp_path: Path) -> None:
    bot_token, server.bot_token = server.bot_token, TOKEN
    async with running(server, tmp_path, echo, connect=False) as bot:
        with pytest.raises(SettingsError, match="DISCORD_BOT_TOKEN: Discord does not take it"):
            await bot.channel.start()
    server.bot_token = bot_token
    assert server.sessions == []


async def test_an_address_where_nothing_is_is_told() -> None:
    with pytest.raises(SettingsError, match=r"DISCORD_API_URL: http://127\.0\.0\.1:9/api/v10 cannot be reached"):
        await verify(DiscordSettings(TOKEN, "http://127.0.0.1:9/api/v10"))


async def test_an_address_where_no_discord_is_is_told(server: DiscordSandbox) -> None:
    with pytest.raises(SettingsError, match=r"DISCORD_API_URL: .* cannot answer right now \(HTTP 404\)"):
        await verify(settings_of(server, api_url=server.api_url.removesuffix("/api/v10")))


async def test_a_page_that_is_no_discord_is_told() -> None:
    async def page(_request: web.Request) -> web.Response:
        return web.Response(text="<html>Welcome!</html>", content_type="text/html")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", page)
    async with TestServer(app) as somewhere:
        with pytest.raises(
            SettingsError, match=r"DISCORD_API_URL: no Discord answers at http://127\.0\.0\.1:\d+/api\.$"
        ):
            await verify(DiscordSettings(TOKEN, str(somewhere.make_url("/api"))))


@pytest.mark.parametrize("route", [ME, GUILDS])
async def test_a_bad_moment_of_discord_is_not_held_against_the_token(server: DiscordSandbox, route: str) -> None:
    server.faults.fail(route, status=503)
    with pytest.raises(SettingsError, match=r"DISCORD_API_URL: .* cannot answer right now \(HTTP 503\); try again"):
        await verify(settings_of(server))


async def test_a_login_without_an_end_is_given_up(server: DiscordSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "LOGIN_TIMEOUT", 0.2)
    server.faults.delay(ME, 1)
    with pytest.raises(SettingsError, match=r"DISCORD_API_URL: .* cannot be reached \(TimeoutError\)"):
        await verify(settings_of(server))


async def test_what_the_bot_can_do_without_is_told(server: DiscordSandbox) -> None:
    server.privileged_intents.remove("message_content")
    (line,) = (await verify(settings_of(server))).lacks
    assert line.startswith("the message content intent is off: in threads I hear only what mentions me. Switch it on")


async def test_a_server_that_the_bot_is_not_in_is_named_with_an_invitation(
    server: DiscordSandbox, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    guilds = frozenset({int(server.guild_id), 7})
    (line,) = (await verify(settings_of(server, guilds=guilds))).faults
    assert line.startswith("DISCORD_GUILD_IDS: the bot is not in the server 7. Invite it: https://discord.com/oauth2/")
    assert line.endswith("&guild_id=7")
    async with running(server, tmp_path, echo, guilds=guilds) as bot:
        assert line in caplog.text
        await bot.says(await bot.collect_events("ada", "general", "hello"), "heard: Ada Lovelace: hello")
