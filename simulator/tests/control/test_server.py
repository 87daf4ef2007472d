"""Control API: its routes with real bots, access checks and invalid requests."""

import inspect
from typing import Any

import aiohttp
import discord
import pytest
from discord import app_commands
from openai import AsyncOpenAI, BadRequestError
from slack_bolt.async_app import AsyncApp
from slack_sdk.errors import SlackApiError

from chatrig.control.models import ModelControl
from chatrig.control.platforms import DiscordControl, SlackControl
from tests.control.conftest import ControlClient
from tests.discord.conftest import Connect as ConnectDiscord
from tests.discord.conftest import RecordingClient, create_intents
from tests.slack.conftest import Connect as ConnectSlack
from tests.slack.conftest import create_client

BUTTON = {"type": "button", "action_id": "ok", "text": {"type": "plain_text", "text": "OK"}}


async def test_a_bolt_app_is_tested_by_http(control: ControlClient, connect_slack: ConnectSlack) -> None:
    app = AsyncApp(client=create_client(control.slack), signing_secret=control.slack.signing_secret)

    @app.event("app_mention")
    async def answer(event: dict[str, Any], say: Any) -> None:
        await say(text=f"You said: {event['text'].partition(' ')[2]}", thread_ts=event["ts"])

    @app.event("message")
    async def answer_dm(event: dict[str, Any], say: Any) -> None:
        if event["channel_type"] == "im":
            await say(text="OK?", blocks=[{"type": "actions", "elements": [BUTTON]}])

    @app.command("/time")
    async def tell_time(ack: Any, command: dict[str, Any]) -> None:
        await ack(f"It is nine in {command['text']}.")

    @app.action("ok")
    async def accept(ack: Any) -> None:
        await ack()

    await connect_slack(control.slack, app)
    assert await control.post("/slack/wait_until_connected") == {}
    question = await control.post("/slack/mention_bot", user="ada", channel="general", text="hi")
    assert (question["user"], question["is_from_bot"], question["text"]) == ("ada", False, "@bot hi")
    reply = await control.post("/slack/wait_for_reply", message=question["id"], until="You said: hi")
    assert (reply["is_from_bot"], reply["thread"], reply["is_loading"]) == (True, question["id"], False)
    assert await control.get("/slack/replies", message=question["id"]) == {"messages": [reply]}
    thread = await control.get("/slack/messages", channel="general", thread=question["id"])
    assert [message["text"] for message in thread["messages"]] == ["@bot hi", "You said: hi"]

    dm = await control.post("/slack/post_dm", user="grace", text="hello")
    offer = await control.post("/slack/wait_for_reply", message=dm["id"], quiet=0.1)
    assert offer["buttons"] == {"OK": "ok"}
    assert await control.get("/slack/messages", channel=dm["channel_id"]) == {"messages": [dm, offer]}
    clicked = await control.post("/slack/click_button", user="grace", message=offer["id"], button="OK")
    assert clicked == {"acknowledged": True}
    responses = await control.post("/slack/run_command", user="ada", channel="general", command="/time", text="Oslo")
    assert [(m["text"], m["ephemeral_to"]) for m in responses["messages"]] == [("It is nine in Oslo.", "ada")]


async def test_a_discord_bot_is_tested_by_http(control: ControlClient, connect_discord: ConnectDiscord) -> None:
    class Bot(RecordingClient):
        async def on_message(self, message: discord.Message) -> None:
            if self.user is None or message.author == self.user:
                return
            view = discord.ui.View()
            view.add_item(discord.ui.Button(label="OK", custom_id="ok"))
            await message.reply(f"You said: {message.clean_content.partition(' ')[2]}", view=view)

        async def on_interaction(self, interaction: discord.Interaction[Any]) -> None:
            if interaction.type is discord.InteractionType.component:
                await interaction.response.send_message("Thanks.", ephemeral=True)

    bot = Bot(create_intents("message_content"))

    @bot.tree.command(name="greet", description="Greet somebody")
    @app_commands.describe(user="the name")
    async def greet(interaction: discord.Interaction[Any], user: str) -> None:
        await interaction.response.send_message(f"Hello, {user}.")

    await connect_discord(control.discord, bot=bot)
    assert await control.post("/discord/wait_until_connected") == {}
    question = await control.post("/discord/mention_bot", user="ada", channel="general", text="hi")
    reply = await control.post("/discord/wait_for_reply", message=question["id"], until="You said: hi")
    assert (reply["is_from_bot"], reply["reply_to"], reply["buttons"]) == (True, question["id"], {"OK": "ok"})
    assert await control.get("/discord/replies", message=question["id"]) == {"messages": [reply]}
    clicked = await control.post("/discord/click_button", user="ada", message=reply["id"], button="OK")
    assert [(m["text"], m["ephemeral_to"]) for m in clicked["messages"]] == [("Thanks.", "ada")]
    responses = await control.post(
        "/discord/run_command", user="ada", channel="general", command="/greet", options={"user": "Ada"}
    )
    assert [message["text"] for message in responses["messages"]] == ["Hello, Ada."]
    dm = await control.post("/discord/post_dm", user="grace", text="hello there")
    answer = await control.post("/discord/wait_for_reply", message=dm["id"], until="You said: there")
    assert await control.get("/discord/messages", channel=dm["channel_id"]) == {"messages": [dm, answer]}


@pytest.mark.parametrize("platform", ["slack", "discord"])
async def test_users_edit_delete_and_react(control: ControlClient, platform: str) -> None:
    message = await control.post(f"/{platform}/post_message", user="ada", channel="random", text="one")
    about = {"user": "ada", "message": message["id"]}
    edited = await control.post(f"/{platform}/edit_message", **about, text="two")
    assert (edited["text"], edited["is_edited"]) == ("two", True)
    emoji = "wave" if platform == "slack" else "👋"
    assert (await control.post(f"/{platform}/add_reaction", **about, emoji=emoji))["reactions"] == {emoji: ["ada"]}
    assert (await control.post(f"/{platform}/delete_message", **about))["is_deleted"]
    assert await control.get(f"/{platform}/messages", channel="random") == {"messages": []}
    assert "deleted" in await control.get_error(f"/{platform}/edit_message", **about, text="three")


async def test_a_missing_reply_is_reported_with_what_people_saw(control: ControlClient) -> None:
    question = await control.post("/slack/mention_bot", user="ada", channel="general", text="hello?")
    status, result = await control.request(
        "POST", "/slack/wait_for_reply", json={"message": question["id"], "timeout": 0.1}
    )
    assert status == 408
    assert "hello?" in result["error"]


async def test_calls_to_slack_fail_as_requested(control: ControlClient) -> None:
    client = create_client(control.slack, retry_handlers=[])
    channel = control.slack.channels["general"].id
    call = {"call": "chat.postMessage"}
    await control.post("/slack/rate_limit", **call, retry_after=2)
    await control.post("/slack/fail", **call, error="fatal_error")
    await control.post("/slack/fail", **call, status=503)
    answers = []
    for _ in range(3):
        with pytest.raises(SlackApiError) as refused:
            await client.chat_postMessage(channel=channel, text="hi")
        answers.append((refused.value.response.status_code, refused.value.response.headers.get("Retry-After")))
    assert answers == [(429, "2"), (200, None), (503, None)]
    await control.post("/slack/delay", **call, seconds=0.01)
    await client.chat_postMessage(channel=channel, text="late")
    await control.post("/slack/lose_response", **call)
    with pytest.raises(aiohttp.ClientError):
        await client.chat_postMessage(channel=channel, text="lost")
    await control.post("/slack/fail", **call)
    await control.post("/slack/clear_faults")
    await client.chat_postMessage(channel=channel, text="fine")
    texts = [message["text"] for message in (await control.get("/slack/messages", channel="general"))["messages"]]
    assert texts == ["late", "lost", "fine"]


async def test_calls_to_discord_fail_as_requested(control: ControlClient) -> None:
    call = {"call": "POST /channels/{channel}/messages"}
    url = f"{control.discord.api_url}/channels/{control.discord.channels['general'].id}/messages"
    await control.post("/discord/rate_limit", **call, retry_after=0.5)
    await control.post("/discord/fail", **call, status=403, code=50013)
    await control.post("/discord/delay", **call, seconds=0.01)
    await control.post("/discord/lose_response", **call)
    headers = {"Authorization": f"Bot {control.discord.bot_token}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        answers = []
        for _ in range(3):
            async with session.post(url, json={"content": "hi"}) as response:
                answers.append((response.status, (await response.json()).get("code")))
        assert answers == [(429, 0), (403, 50013), (200, None)]
        with pytest.raises(aiohttp.ClientError):
            await session.post(url, json={"content": "hi"})


async def test_slack_events_are_delivered_again(control: ControlClient, connect_slack: ConnectSlack) -> None:
    app = AsyncApp(client=create_client(control.slack), signing_secret=control.slack.signing_secret)

    @app.event("app_mention")
    async def answer(say: Any) -> None:
        await say("hello")

    await connect_slack(control.slack, app)
    question = await control.post("/slack/mention_bot", user="ada", channel="general", text="hi")
    await control.post("/slack/wait_for_reply", message=question["id"], until="hello")
    await control.post("/slack/redeliver", message=question["id"])
    await control.slack.wait_for(lambda: len(control.slack.messages("general")) == 3)


@pytest.mark.parametrize("action", ["drop_sockets", "freeze_sockets"])
async def test_sockets_are_cut_and_frozen(
    control: ControlClient, connect_slack: ConnectSlack, connect_discord: ConnectDiscord, action: str
) -> None:
    app = AsyncApp(client=create_client(control.slack), signing_secret=control.slack.signing_secret)
    await connect_slack(control.slack, app)
    await connect_discord(control.discord)
    for platform, simulator in (("slack", control.slack), ("discord", control.discord)):
        assert simulator.connection_count == 1
        await control.post(f"/{platform}/{action}")
        assert simulator.connection_count == 0


async def test_a_model_plays_a_script_of_json_steps(control: ControlClient) -> None:
    await control.post(
        "/models/openai/add_responses",
        responses=[[{"type": "Think", "text": "Hm."}, {"type": "CallTool", "name": "add", "arguments": {"a": 1}}], "2"],
    )
    async with AsyncOpenAI(api_key="k", base_url=control.openai.base_url, max_retries=0) as client:
        first = await client.responses.create(model="m", input="What is 1 + 1?")
        second = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "So?"}])
    assert [item.type for item in first.output] == ["reasoning", "function_call"]
    assert second.choices[0].message.content == "2"
    received = (await control.post("/models/openai/wait_for_requests", count=2))["requests"]
    assert received == (await control.get("/models/openai/requests"))["requests"]
    assert [(request["text"], request["tool_results"]) for request in received] == [("What is 1 + 1?", []), ("So?", [])]
    assert "headers" not in received[0]
    status, result = await control.request("POST", "/models/gemini/wait_for_requests", json={"timeout": 0})
    assert (status, result["error"]) == (408, "not in time")


async def test_a_reset_leaves_only_users_channels_and_connections(
    control: ControlClient, connect_slack: ConnectSlack
) -> None:
    app = AsyncApp(client=create_client(control.slack), signing_secret=control.slack.signing_secret)
    await connect_slack(control.slack, app)
    for platform, call in (("slack", "chat.postMessage"), ("discord", "POST /channels/{channel}/messages")):
        await control.post(f"/{platform}/post_message", user="ada", channel="general", text="one")
        await control.post(f"/{platform}/fail", call=call)
    await control.post("/models/openai/add_responses", responses=["one"])
    await control.post("/reset")
    for platform in ("slack", "discord"):
        assert await control.get(f"/{platform}/messages", channel="general") == {"messages": []}
    assert control.slack.rate_limit_usage() == []
    assert not control.slack.faults.has_pending("fail")
    assert not control.discord.faults.has_pending("fail")
    async with AsyncOpenAI(api_key="k", base_url=control.openai.base_url, max_retries=0) as client:
        with pytest.raises(BadRequestError, match="no turn"):
            await client.responses.create(model="m", input="Hi")
    assert control.slack.connection_count == 1
    await create_client(control.slack).auth_test()


async def test_the_table_lists_every_route(control: ControlClient) -> None:
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {control.server.token}"}) as session:
        table = await (await session.get(control.server.url)).text()
    lines = [line.split() for line in table.splitlines() if line.startswith(("GET ", "POST "))]
    actions = [SlackControl, DiscordControl, ModelControl, ModelControl, ModelControl]
    names = [name for kind in actions for name, _ in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"]
    assert sorted(path.rpartition("/")[2] for _, path, *_ in lines) == sorted([*names, "env", "reset"])
    assert all(len(line) > 3 for line in lines)
    assert "user, channel, text, [thread]" in table


async def test_the_variables_are_those_of_all_servers(control: ControlClient) -> None:
    variables = await control.get("/env")
    assert variables["SLACK_BOT_TOKEN"] == control.slack.bot_token
    assert variables["DISCORD_TOKEN"] == control.discord.bot_token
    assert variables["OPENAI_BASE_URL"] == control.openai.base_url
    assert {"ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL"} < variables.keys()


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Host": "chat.example"}, 403),
        ({"Host": "127.0.0.1"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Bearer ÿ"}, 401),
    ],
)
async def test_others_are_refused(control: ControlClient, headers: dict[str, str], expected: int) -> None:
    for path in ("/", "/env", "/unknown"):
        status, result = await control.request("GET", path, headers=headers)
        assert status == expected
        assert control.server.token not in result["error"]
    status, _ = await control.request("POST", "/reset", headers=headers, json={})
    assert status == expected


async def test_its_own_origin_and_localhost_are_accepted(control: ControlClient) -> None:
    port = control.server.url.rpartition(":")[2]
    for headers in ({"Host": f"localhost:{port}"}, {"Origin": control.server.url}):
        assert (await control.request("GET", "/env", headers=headers))[0] == 200


@pytest.mark.parametrize("body", [b"{", b"[]", b'"text"', b"null", b"\xff", b'{"times": NaN}', b"[" * 100_000])
async def test_a_body_that_is_no_json_object_is_refused(control: ControlClient, body: bytes) -> None:
    status, result = await control.request("POST", "/slack/mention_bot", data=body)
    assert status == 400
    assert result["error"] in ("the body is not JSON", "the body must be a JSON object")


@pytest.mark.parametrize(
    ("path", "fields", "error"),
    [
        ("/slack/mention_bot", {"user": "eve", "channel": "general", "text": "hi"}, "there is no user eve"),
        ("/discord/mention_bot", {"user": "ada", "channel": "nowhere", "text": "hi"}, "there is no channel nowhere"),
        ("/slack/mention_bot", {"user": "ada", "channel": "general"}, "the field 'text' is missing"),
        ("/slack/mention_bot", {"user": 1, "channel": "general", "text": ""}, "the field 'user' must be a text"),
        ("/slack/post_dm", {"user": "ada", "text": "hi", "x": 1}, "there is no field 'x'; the fields are user, text"),
        ("/reset", {"x": 1}, "there is no field 'x'; there are none"),
        ("/slack/delete_message", {"user": "ada", "message": "1.2"}, "there is no message 1.2"),
        ("/slack/wait_for_reply", {"message": "1.2", "quiet": True}, "the field 'quiet' must be a number"),
        ("/slack/wait_for_reply", {"message": "1.2", "quiet": 10**400}, "the field 'quiet' must be a number"),
        ("/slack/fail", {"call": "chat.nothing"}, "there is no method chat.nothing"),
        ("/discord/fail", {"call": "GET /nothing"}, "there is no route GET /nothing"),
        ("/slack/fail", {"call": "auth.test", "status": 200}, "the field 'status' must be from 400 to 599"),
        ("/slack/fail", {"call": "auth.test", "times": 0}, "the field 'times' must be from 1 to 1000"),
        ("/slack/delay", {"call": "auth.test", "seconds": -1}, "the number of seconds must not be negative"),
    ],
)
async def test_an_invalid_request_is_refused_with_one_sentence(
    control: ControlClient, path: str, fields: dict[str, Any], error: str
) -> None:
    assert await control.get_error(path, **fields) == error


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/nothing", (404, "there is no route /nothing; GET / lists the routes")),
        ("POST", "/discord/redeliver", (404, "there is no route /discord/redeliver; GET / lists the routes")),
        ("GET", "/reset", (405, "/reset takes POST")),
        ("PUT", "/slack/messages", (405, "/slack/messages takes GET")),
    ],
)
async def test_an_unknown_route_is_refused(
    control: ControlClient, method: str, path: str, expected: tuple[int, str]
) -> None:
    status, result = await control.request(method, path)
    assert (status, result["error"]) == expected
