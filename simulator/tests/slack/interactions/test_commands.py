"""Slash commands of the local Slack, through Bolt."""

import asyncio
from typing import Any

import aiohttp
import pytest
from slack_bolt.async_app import AsyncApp
from slack_sdk.webhook.async_client import AsyncWebhookClient

from chatrig.slack import SlackSimulator
from tests.slack.conftest import Connect, create_client


async def test_the_acknowledgement_of_a_command_is_ephemeral(slack: SlackSimulator, connect: Connect) -> None:
    app = AsyncApp(client=create_client(slack))

    @app.command("/reset")
    async def reset(ack: Any, body: dict[str, Any]) -> None:
        await ack(f"{body['user_name']}: {body['text']}")

    await connect(slack, app)
    (response,) = await slack.run_command("ada", "general", "/reset", "all of it")
    assert (response.text, response.ephemeral_to) == ("ada: all of it", slack.people["ada"].id)
    (envelope,) = slack.envelopes
    assert envelope.response == {"text": "ada: all of it"}


async def test_posts_to_a_response_url_follow_the_acknowledgement(slack: SlackSimulator, connect: Connect) -> None:
    app = AsyncApp(client=create_client(slack))
    go = asyncio.Event()

    @app.command("/reset")
    async def reset(ack: Any, respond: Any) -> None:
        await ack()
        await go.wait()
        await respond("Done, for all to see.", response_type="in_channel")

    await connect(slack, app)
    responses = await slack.run_command("ada", "general", "/reset")
    assert responses == []
    go.set()
    (message,) = await slack.wait_for(lambda: responses)
    assert (message.text, message.ephemeral_to) == ("Done, for all to see.", None)
    assert slack.messages("general") == [message]


async def test_a_response_url_accepts_five_posts(slack: SlackSimulator, connect: Connect) -> None:
    app = AsyncApp(client=create_client(slack))

    @app.command("/reset")
    async def reset(ack: Any) -> None:
        await ack("ok")

    await connect(slack, app)
    await slack.run_command("ada", "general", "/reset")
    url = slack.envelopes[0].payload["response_url"]
    hook = AsyncWebhookClient(url)
    async with aiohttp.ClientSession() as session, session.post(url, json={"markdown_text": "a"}) as response:
        assert (response.status, (await response.json())["error"]) == (400, "no_text")
    for n in range(5):
        assert (await hook.send(text=str(n))).body == "ok"
    refused = await hook.send(text="5")
    assert refused.status_code == 404
    assert "used_url" in refused.body
    assert "expired_url" in (await AsyncWebhookClient(url + "x").send(text="5")).body


@pytest.mark.parametrize(("listens", "error"), [(False, "dispatch_failed"), (True, "operation_timeout")])
async def test_slackbot_reports_an_unacknowledged_command(
    fast_slack: SlackSimulator, connect: Connect, listens: bool, error: str
) -> None:
    if listens:
        await connect(
            fast_slack, AsyncApp(client=create_client(fast_slack))
        )  # an app without commands does not acknowledge
    (response,) = await fast_slack.run_command("ada", "general", "/reset")
    assert response.text == f'/reset failed with the error "{error}"'
    assert response.ephemeral_to == fast_slack.people["ada"].id
    assert len(fast_slack.envelopes) == int(listens)
