"""Authorization, rate limits and faults of the local Discord's REST API."""

import asyncio
from collections.abc import AsyncIterator
from time import monotonic

import aiohttp
import discord
import pytest

from chatrig.discord import DiscordSimulator
from tests.discord.conftest import Connect, RecordingClient, call_route, patch_addresses

POST = "POST /channels/{channel}/messages"
PATCH = "PATCH /channels/{channel}/messages/{message}"
READ = "GET /channels/{channel}"


@pytest.fixture
async def slow_server() -> AsyncIterator[DiscordSimulator]:
    """Yield a local Discord that runs twice as fast: 5 s take 2.5 s."""
    async with DiscordSimulator(speed=2) as simulator:
        yield simulator


@pytest.fixture
async def bot(server: DiscordSimulator, connect: Connect) -> RecordingClient:
    return await connect(server)


async def test_the_client_waits_before_it_exceeds_a_window(slow_server: DiscordSimulator, connect: Connect) -> None:
    bot = await connect(slow_server)
    sent = await bot.get_simulator_channel(slow_server, "general").send("0")
    took = []
    for number in range(7):
        began = monotonic()
        await sent.edit(content=str(number))
        took.append(monotonic() - began)
    assert took[4] > max(0.3, *took[:4])
    assert not any(call.rate_limited for call in slow_server.calls)


async def test_the_headers_count_down_a_window_of_a_channel(slow_server: DiscordSimulator) -> None:
    headers = {"Authorization": f"Bot {slow_server.bot_token}"}
    async with aiohttp.ClientSession(headers=headers) as session:

        async def post(channel: str) -> aiohttp.ClientResponse:
            url = f"{slow_server.api_url}/channels/{slow_server.channels[channel].id}/messages"
            async with session.post(url, json={"content": "x"}) as response:
                await response.read()
                return response

        answers = [await post("general") for _ in range(6)]
        assert [a.headers["X-RateLimit-Remaining"] for a in answers] == ["4", "3", "2", "1", "0", "0"]
        assert len({a.headers["X-RateLimit-Bucket"] for a in answers}) == 1
        assert 0 < float(answers[0].headers["X-RateLimit-Reset-After"]) <= 2.5
        refused = answers[-1]
        assert refused.status == 429
        assert refused.content_type == refused.headers["Content-Type"] == "application/json"
        assert (refused.headers["X-RateLimit-Scope"], refused.headers["Via"]) == ("user", "1.1 google")
        body = slow_server.calls[-1].response
        assert (body["global"], 0 < body["retry_after"] <= 2.5) == (False, True)
        assert (await post("random")).status == 200
        await asyncio.sleep(body["retry_after"])
        assert (await post("general")).status == 200


async def test_the_global_limit_is_fifty_calls_a_second() -> None:
    async with DiscordSimulator(speed=0.1) as server, aiohttp.ClientSession() as session:  # ten seconds count as one
        headers = {"Authorization": f"Bot {server.bot_token}"}

        async def read() -> tuple[int, str | None]:
            async with session.get(f"{server.api_url}/users/@me", headers=headers) as response:
                return response.status, response.headers.get("X-RateLimit-Global")

        answers = await asyncio.gather(*(read() for _ in range(60)))
        assert (answers.count((200, None)), answers.count((429, "true"))) == (50, 10)
        assert server.calls[-1].response["global"]


@pytest.mark.parametrize("scope", ["user", "shared", "global"])
async def test_the_client_retries_a_429_with_a_via_header(
    server: DiscordSimulator, bot: RecordingClient, scope: str
) -> None:
    server.faults.rate_limit(POST, 0.1, scope=scope)  # type: ignore[arg-type]
    began = monotonic()
    await bot.get_simulator_channel(server, "general").send("hello")
    assert monotonic() - began >= 0.1
    refused, posted = server.calls[-2:]
    assert (refused.status, refused.rate_limited, posted.status) == (429, True, 200)
    assert refused.response["global"] == (scope == "global")


async def test_the_client_does_not_retry_a_429_of_cloudflare(server: DiscordSimulator, bot: RecordingClient) -> None:
    server.faults.rate_limit(POST, 0.1, has_via_header=False)
    with pytest.raises(discord.HTTPException) as refused:
        await bot.get_simulator_channel(server, "general").send("hello")
    assert refused.value.status == 429
    assert server.messages("general") == []


async def test_faults_apply_in_order_and_without_effect(server: DiscordSimulator, bot: RecordingClient) -> None:
    channel = bot.get_simulator_channel(server, "general")
    server.faults.fail(POST, status=503)
    server.faults.fail(POST, status=403, code=50013)
    with pytest.raises(discord.DiscordServerError):
        await channel.send("one")
    with pytest.raises(discord.Forbidden) as refused:
        await channel.send("two")
    assert refused.value.code == 50013
    await channel.send("three")
    assert [message.text for message in server.messages("general")] == ["three"]
    with pytest.raises(ValueError, match="no route POST /nowhere"):
        server.faults.fail("POST /nowhere")


async def test_the_client_retries_a_502(server: DiscordSimulator, bot: RecordingClient) -> None:
    server.faults.fail(PATCH, status=502)
    sent = await bot.get_simulator_channel(server, "general").send("one")
    await sent.edit(content="two")
    assert server.messages("general")[0].text == "two"
    assert [call.status for call in server.calls if call.route == PATCH] == [502, 200]


async def test_a_delay_applies_to_one_call_and_can_be_cleared(server: DiscordSimulator, bot: RecordingClient) -> None:
    channel = bot.get_simulator_channel(server, "general")
    server.faults.delay(POST, 0.2)
    began = monotonic()
    await channel.send("late")
    assert monotonic() - began >= 0.2
    server.faults.fail(POST)
    server.faults.clear()
    await channel.send("fine")


async def test_a_wrong_token_is_401_except_for_interactions(
    server: DiscordSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch_addresses(server, monkeypatch)
    client = discord.Client(intents=discord.Intents.none())
    with pytest.raises(discord.LoginFailure):
        await client.login("wrong")
    await client.close()
    assert (server.calls[-1].status, server.calls[-1].code) == (401, 0)
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{server.api_url}/channels/1") as response:
            assert response.status == 401
        async with session.post(f"{server.api_url}/interactions/1/none/callback", json={"type": 4}) as response:
            assert (response.status, (await response.json())["code"]) == (404, 10062)


async def test_invalid_json_and_unknown_routes_are_refused(server: DiscordSimulator) -> None:
    async with aiohttp.ClientSession(headers={"Authorization": f"Bot {server.bot_token}"}) as session:
        url = f"{server.api_url}/channels/{server.channels['general'].id}/messages"
        async with session.post(url, data="{") as response:
            assert (response.status, (await response.json())["code"]) == (400, 50109)
        async with session.post(url, data="[]") as response:
            assert (response.status, (await response.json())["code"]) == (400, 50109)
        async with session.get(f"{server.api_url}/nowhere") as response:
            assert (response.status, (await response.json())["code"]) == (404, 0)
    assert server.calls[-1].route == "GET /nowhere"


@pytest.mark.parametrize(
    "path",
    [
        "/guilds/{guild}/preview",
        "/guilds/{guild}/messages/search",
        "/guilds/templates/channels",
        "/channels/{channel}/threads/search",
        "/guilds/{guild}/roles/member-counts",
        "/lobbies/1",
    ],
)
async def test_a_route_that_is_not_modelled_is_unknown(server: DiscordSimulator, path: str) -> None:
    address = path.format(guild=server.guild_id, channel=server.channels["general"].id)
    assert await call_route(server, "GET", address) == (404, {"message": "404: Not Found", "code": 0})


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/channels/abc", "channel_id"),
        ("/channels/{channel}/messages/undefined", "message_id"),
        ("/users/None", "user_id"),
        ("/guilds/<guild>/channels", "guild_id"),
    ],
)
async def test_an_id_that_is_no_number_is_an_invalid_form(server: DiscordSimulator, path: str, field: str) -> None:
    status, reply = await call_route(server, "GET", path.format(channel=server.channels["general"].id))
    assert (status, reply["code"], list(reply["errors"])) == (400, 50035, [field])


async def test_an_injected_429_names_its_bucket(server: DiscordSimulator) -> None:
    server.faults.rate_limit(READ, 1.5)
    server.faults.rate_limit(READ, 1.5, scope="global")
    headers = {"Authorization": f"Bot {server.bot_token}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        for is_in_bucket in (True, False):
            async with session.get(f"{server.api_url}/channels/{server.channels['general'].id}") as response:
                assert ("X-RateLimit-Bucket" in response.headers) == is_in_bucket
                assert response.headers["Retry-After"] == "2"
