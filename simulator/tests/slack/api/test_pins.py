"""Pin methods of the local Slack, through slack_sdk."""

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from chatrig.slack import SlackSimulator
from chatrig.slack.api.pins import MAX_PINS
from tests.slack.conftest import catch_error


async def test_a_message_can_be_pinned_listed_and_unpinned(
    slack: SlackSimulator, client: AsyncWebClient, general: str
) -> None:
    message = await slack.post_message("ada", "general", "hello")
    target = {"channel": general, "timestamp": message.ts}
    await client.pins_add(**target)
    (item,) = (await client.pins_list(channel=general))["items"]
    assert (item["type"], item["channel"], item["created_by"]) == ("message", general, slack.bot_user_id)
    assert (item["message"]["ts"], item["message"]["pinned_to"]) == (message.ts, [general])
    assert (await catch_error(client.pins_add(**target)))["error"] == "already_pinned"
    assert (await client.conversations_history(channel=general))["pin_count"] == 1
    await client.pins_remove(**target)
    assert (await client.conversations_history(channel=general))["pin_count"] == 0
    assert (await client.pins_list(channel=general))["items"] == []
    assert (await catch_error(client.pins_remove(**target)))["error"] == "no_pin"


@pytest.mark.parametrize("method", ["pins.add", "pins.remove"])
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"timestamp": "1.000001"}, "channel_not_found"),
        ({"channel": "general"}, "no_item_specified"),
        ({"channel": "general", "timestamp": "yesterday"}, "bad_timestamp"),
        ({"channel": "general", "timestamp": "1.000001"}, "message_not_found"),
        ({"channel": "C0NOTHING", "timestamp": "1.000001"}, "channel_not_found"),
    ],
)
async def test_a_pin_of_nothing_is_rejected(
    client: AsyncWebClient, general: str, method: str, arguments: dict[str, str], error: str
) -> None:
    named = arguments | ({"channel": general} if arguments.get("channel") == "general" else {})
    assert (await catch_error(client.api_call(method, params=named)))["error"] == error


async def test_pins_are_listed_for_a_known_channel_only(client: AsyncWebClient) -> None:
    assert (await catch_error(client.pins_list(channel="C0NOTHING")))["error"] == "channel_not_found"
    assert (await catch_error(client.api_call("pins.list")))["error"] == "channel_not_found"


async def test_messages_elsewhere_and_of_slack_cannot_be_pinned(
    slack: SlackSimulator, client: AsyncWebClient, general: str
) -> None:
    slack.add_user("eve")
    await slack.join_channel("eve", "general")
    (joined,) = slack.messages("general")
    body = await catch_error(client.pins_add(channel=general, timestamp=joined.ts))
    assert body["error"] == "not_pinnable"
    left, old = slack.add_channel("left"), slack.add_channel("old")
    messages = [await slack.post_message("ada", channel, "hello") for channel in (left, old)]
    left.members.discard(slack.bot_user_id)
    old.archived = True
    for message, error in zip(messages, ("not_in_channel", "is_archived"), strict=True):
        body = await catch_error(client.pins_add(channel=message.channel.id, timestamp=message.ts))
        assert body["error"] == error


async def test_a_channel_has_a_hundred_pins_at_most(
    slack: SlackSimulator, client: AsyncWebClient, general: str
) -> None:
    for _ in range(MAX_PINS):
        await slack.pin_message("ada", await slack.post_message("ada", "general", "hello"))
    message = await slack.post_message("ada", "general", "one more")
    body = await catch_error(client.pins_add(channel=general, timestamp=message.ts))
    assert body["error"] == "too_many_pins"
