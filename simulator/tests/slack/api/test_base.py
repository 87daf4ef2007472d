"""Tokens and scopes of the local Slack's Web API, through slack_sdk."""

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from chatrig.slack import SlackSimulator
from tests.slack.conftest import catch_error


async def test_auth_test_returns_the_bot_and_its_scopes(slack: SlackSimulator, client: AsyncWebClient) -> None:
    reply = await client.auth_test()
    assert (reply["user_id"], reply["bot_id"], reply["team_id"]) == (
        slack.bot_user_id,
        slack.bot_id,
        slack.team_id,
    )
    assert "chat:write" in reply.headers["x-oauth-scopes"].split(",")


@pytest.mark.parametrize(("token", "error"), [("xoxb-wrong", "invalid_auth"), ("", "not_authed")])
async def test_a_wrong_or_missing_token_is_rejected(slack: SlackSimulator, token: str, error: str) -> None:
    assert (await catch_error(AsyncWebClient(token, base_url=slack.api_url).auth_test()))["error"] == error


async def test_an_app_token_cannot_post(slack: SlackSimulator, general: str) -> None:
    app = AsyncWebClient(slack.app_token, base_url=slack.api_url)
    body = await catch_error(app.chat_postMessage(channel=general, text="hello"))
    assert body["error"] == "not_allowed_token_type"
    assert slack.messages("general") == []


async def test_a_missing_scope_is_named(slack: SlackSimulator, client: AsyncWebClient, general: str) -> None:
    slack.scopes.discard("chat:write")
    body = await catch_error(client.chat_postMessage(channel=general, text="hello"))
    assert (body["error"], body["needed"]) == ("missing_scope", "chat:write")
    assert "chat:write" not in body["provided"].split(",")
    assert "chat:write" not in (await client.auth_test()).headers["x-oauth-scopes"].split(",")


@pytest.mark.parametrize(
    ("method", "scope"),
    [
        ("bots.info", "users:read"),
        ("chat.deleteScheduledMessage", "chat:write"),
        ("chat.meMessage", "chat:write"),
        ("chat.scheduleMessage", "chat:write"),
        ("conversations.join", "channels:join"),
        ("conversations.members", "channels:read"),
        ("emoji.list", "emoji:read"),
        ("files.list", "files:read"),
        ("pins.add", "pins:write"),
        ("pins.list", "pins:read"),
        ("pins.remove", "pins:write"),
        ("reactions.get", "reactions:read"),
        ("reactions.list", "reactions:read"),
        ("users.conversations", "channels:read"),
        ("users.lookupByEmail", "users:read.email"),
        ("users.profile.get", "users.profile:read"),
    ],
)
async def test_a_method_needs_the_scope_of_its_page(
    slack: SlackSimulator, client: AsyncWebClient, general: str, method: str, scope: str
) -> None:
    slack.scopes.discard(scope)
    body = await catch_error(client.api_call(method, params={"channel": general}))
    assert (body["error"], body["needed"]) == ("missing_scope", scope)


async def test_a_list_of_conversations_needs_the_scope_of_each_type(
    slack: SlackSimulator, client: AsyncWebClient
) -> None:
    slack.scopes.discard("im:read")
    for call in (client.conversations_list, client.users_conversations):
        await call(types="public_channel,private_channel,mpim")
        body = await catch_error(call(types="public_channel,im"))
        assert (body["error"], body["needed"]) == ("missing_scope", "im:read")


@pytest.mark.parametrize("token", ["", "xoxb-wrong"])
async def test_api_test_needs_no_token_and_returns_its_arguments(slack: SlackSimulator, token: str) -> None:
    client = AsyncWebClient(token, base_url=slack.api_url)
    assert "args" not in (await client.api_test()).data
    assert (await client.api_test(foo="bar"))["args"] == {"foo": "bar"}
    body = await catch_error(client.api_test(error="my_error", foo="bar"))
    assert (body["error"], body["args"]) == ("my_error", {"error": "my_error", "foo": "bar"})


async def test_an_unknown_method_is_rejected(client: AsyncWebClient) -> None:
    assert (await catch_error(client.api_call("chat.shout")))["error"] == "unknown_method"
