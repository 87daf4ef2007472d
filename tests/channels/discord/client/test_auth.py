from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from channels.discord.client import auth as login
from channels.discord.client.auth import LoginReport, verify_token
from channels.discord.settings import DiscordSettings
from chatrig.discord import DiscordSimulator
from core.errors import SettingsError
from tests.channels.discord.conftest import create_settings, run_bot
from tests.channels.wiring import echo

ME = "GET /users/@me"
GUILDS = "GET /users/@me/guilds"
TOKEN = "MTIzNDU2Nzg5MDEyMzQ1Njc4.Gabcde.abcdefghijklmnopqrstuvwxyzabc"


async def test_a_valid_token_names_its_bot(server: DiscordSimulator) -> None:
    assert await verify_token(create_settings(server)) == LoginReport(f"{server.bot_name} in Simulator", (), ())


async def test_a_wrong_token_says_where_to_get_the_right_one(server: DiscordSimulator) -> None:
    with pytest.raises(SettingsError, match="DISCORD_BOT_TOKEN: Discord rejects it") as raised:
        await verify_token(create_settings(server, bot_token=TOKEN))
    assert "Copy it at https://discord.com/developers/applications" in str(raised.value)
    assert TOKEN not in str(raised.value)


async def test_a_start_with_a_wrong_token_ends_with_that_line(server: DiscordSimulator, tmp_path: Path) -> None:
    bot_token, server.bot_token = server.bot_token, TOKEN
    async with run_bot(server, tmp_path, echo, connect=False) as bot:
        with pytest.raises(SettingsError, match="DISCORD_BOT_TOKEN: Discord rejects it"):
            await bot.adapter.start()
    server.bot_token = bot_token
    assert server.sessions == []


async def test_an_unreachable_address_is_reported() -> None:
    with pytest.raises(SettingsError, match=r"DISCORD_API_URL: http://127\.0\.0\.1:9/api/v10 cannot be reached"):
        await verify_token(DiscordSettings(TOKEN, "http://127.0.0.1:9/api/v10"))


async def test_an_address_of_another_server_is_reported(server: DiscordSimulator) -> None:
    with pytest.raises(SettingsError, match=r"DISCORD_API_URL: .* cannot answer right now \(HTTP 404\)"):
        await verify_token(create_settings(server, api_url=server.api_url.removesuffix("/api/v10")))


async def test_a_page_that_is_not_discord_is_reported() -> None:
    async def show_page(_request: web.Request) -> web.Response:
        return web.Response(text="<html>Welcome!</html>", content_type="text/html")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", show_page)
    async with TestServer(app) as somewhere:
        with pytest.raises(
            SettingsError, match=r"DISCORD_API_URL: there is no Discord API at http://127\.0\.0\.1:\d+/api\.$"
        ):
            await verify_token(DiscordSettings(TOKEN, str(somewhere.make_url("/api"))))


@pytest.mark.parametrize("route", [ME, GUILDS])
async def test_an_outage_of_discord_is_not_a_wrong_token(server: DiscordSimulator, route: str) -> None:
    server.faults.fail(route, status=503)
    with pytest.raises(SettingsError, match=r"DISCORD_API_URL: .* cannot answer right now \(HTTP 503\); try again"):
        await verify_token(create_settings(server))


async def test_a_login_has_a_timeout(server: DiscordSimulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "LOGIN_TIMEOUT_SECONDS", 0.2)
    server.faults.delay(ME, 1)
    with pytest.raises(SettingsError, match=r"DISCORD_API_URL: .* cannot be reached \(TimeoutError\)"):
        await verify_token(create_settings(server))


async def test_missing_intents_and_servers_are_warnings(server: DiscordSimulator) -> None:
    server.privileged_intents.remove("message_content")
    (line,) = (await verify_token(create_settings(server))).warnings
    assert line.startswith("the message content intent is off: in threads the bot sees only mentions. Switch it on")


async def test_a_missing_server_is_reported_with_its_invite_link(
    server: DiscordSimulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    guilds = frozenset({int(server.guild_id), 7})
    (line,) = (await verify_token(create_settings(server, guilds=guilds))).faults
    assert line.startswith("DISCORD_GUILD_IDS: the bot is not in the server 7. Invite it: https://discord.com/oauth2/")
    assert line.endswith("&guild_id=7")
    async with run_bot(server, tmp_path, echo, guilds=guilds) as bot:
        assert line in caplog.text
        await bot.wait_for_replies(await bot.mention_bot("ada", "general", "hello"), "heard: Ada Lovelace: hello")
