"""Buttons through Bolt."""

from typing import Any

import pytest
from slack_bolt.async_app import AsyncApp

from sandbox.slack import Message, SlackSandbox
from tests.sandbox.slack.conftest import Connect, client_of

BUTTON = {"type": "button", "action_id": "again", "value": "7", "text": {"type": "plain_text", "text": "Again"}}


async def asking(slack: SlackSandbox) -> Message:
    blocks: list[dict[str, Any]] = [
        {"type": "section", "text": {"type": "mrkdwn", "text": "It failed."}},
        {"type": "actions", "elements": [BUTTON]},
    ]
    await client_of(slack).chat_postMessage(channel=slack.channels["general"].id, text="x", blocks=blocks)
    return slack.messages("general")[-1]


async def test_a_press_tells_who_where_and_which(slack: SlackSandbox, connect: Connect) -> None:
    app, presses = AsyncApp(client=client_of(slack)), list[dict[str, Any]]()

    @app.action("again")
    async def again(ack: Any, body: dict[str, Any], respond: Any) -> None:
        await ack()
        presses.append(body)
        await respond("On it.", replace_original=False)

    await connect(slack, app)
    message = await asking(slack)
    assert (message.text, message.buttons) == ("It failed.", {"Again": "again"})
    assert await slack.press("ada", message, "again")
    await slack.wait_for(lambda: len(slack.messages("general")) == 2)
    (body,) = presses
    assert (body["user"]["name"], body["container"]["message_ts"]) == ("ada", message.ts)
    assert (body["actions"][0]["action_id"], body["actions"][0]["value"]) == ("again", "7")
    assert slack.messages("general")[-1].ephemeral_to == slack.people["ada"].id


async def test_nobody_hears_a_press_or_nobody_acknowledges_it(fast: SlackSandbox, connect: Connect) -> None:
    message = await asking(fast)
    assert not await fast.press("ada", message, "again")
    await connect(fast, AsyncApp(client=client_of(fast)))
    assert not await fast.press("ada", message, "again")
    assert [e.type for e in fast.envelopes].count("interactive") == 1  # it does not come again


async def test_only_a_button_that_is_there_can_be_pressed(slack: SlackSandbox) -> None:
    message = await asking(slack)
    with pytest.raises(ValueError, match="no button"):
        await slack.press("ada", message, "other")
