"""Checks of Slack's tokens, scopes and API address at the start."""

import asyncio
from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from channels.slack.client.auth import make_session, make_web_client, verify_tokens
from channels.slack.settings import SlackSettings
from chatrig.slack import SlackSimulator
from core.errors import SettingsError
from tests.channels.wiring import wait_until


async def test_valid_tokens_name_their_bot_and_workspace(web: AsyncWebClient, slack: SlackSimulator) -> None:
    assert await verify_tokens(web, slack.app_token) == f"{slack.bot_name} in Simulator"


async def test_a_wrong_token_says_where_to_get_the_right_one(slack: SlackSimulator) -> None:
    wrong = make_web_client(SlackSettings("xoxb-wrong", "xapp-wrong", slack.api_url))
    with pytest.raises(SettingsError) as raised:
        await verify_tokens(wrong, "xapp-wrong")
    bot, app = raised.value.faults
    assert bot.startswith("SLACK_BOT_TOKEN: Slack says invalid_auth. It begins with xoxb-")
    assert app.startswith("SLACK_APP_TOKEN: Slack says invalid_auth. It begins with xapp-")
    assert "wrong" not in str(raised.value)


async def test_swapped_tokens_are_reported(web: AsyncWebClient, slack: SlackSimulator) -> None:
    with pytest.raises(SettingsError, match="SLACK_APP_TOKEN: Slack says not_allowed_token_type"):
        await verify_tokens(web, slack.bot_token)


async def test_missing_scopes_are_reported(web: AsyncWebClient, slack: SlackSimulator) -> None:
    slack.scopes.difference_update({"chat:write", "users:read"})
    with pytest.raises(SettingsError, match="SLACK_BOT_TOKEN: the app lacks the scopes chat:write, users:read"):
        await verify_tokens(web, slack.app_token)


async def test_an_unreachable_address_is_reported(slack: SlackSimulator) -> None:
    nowhere = make_web_client(SlackSettings(slack.bot_token, slack.app_token, "http://127.0.0.1:9/api/"))
    with pytest.raises(SettingsError, match=r"SLACK_API_URL: http://127\.0\.0\.1:9/api/ cannot be reached"):
        await verify_tokens(nowhere, slack.app_token)


@pytest.mark.parametrize("method", ["auth.test", "apps.connections.open"])
@pytest.mark.parametrize("fault", [{"status": 503}, {"status": 429}, {"error": "internal_error"}], ids=str)
async def test_an_outage_of_slack_is_not_a_wrong_token(
    web: AsyncWebClient, slack: SlackSimulator, method: str, fault: dict[str, Any]
) -> None:
    slack.faults.fail(method, **fault)
    with pytest.raises(SettingsError, match=r"SLACK_API_URL: .* cannot answer right now \(.+\); try again"):
        await verify_tokens(web, slack.app_token)


async def test_a_server_that_is_not_slack_is_reported(web: AsyncWebClient, slack: SlackSimulator) -> None:
    slack.faults.fail("auth.test", status=404)
    with pytest.raises(SettingsError, match="SLACK_BOT_TOKEN: Slack says HTTP 404"):
        await verify_tokens(web, slack.app_token)


async def test_calls_share_connections_and_replace_closed_ones(slack: SlackSimulator, web: AsyncWebClient) -> None:
    def count_connections() -> int:
        assert slack._runner.server is not None
        return len(slack._runner.server.connections)

    async with make_session() as web.session:
        for _ in range(3):
            await web.auth_test()
        assert count_connections() == 1
        await asyncio.gather(*(web.auth_test() for _ in range(5)))
        assert 1 <= count_connections() <= 5
        assert slack._runner.server is not None
        for connection in slack._runner.server.connections:
            connection.force_close()
        await wait_until(lambda: not count_connections())
        await web.auth_test()
        assert count_connections() == 1
