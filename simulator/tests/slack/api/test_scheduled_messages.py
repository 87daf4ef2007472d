"""Methods for scheduled messages of the local Slack, through slack_sdk."""

from time import time
from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from chatrig.slack import SlackSimulator
from chatrig.slack.api.scheduled_messages import MAX_AHEAD_SECONDS, MAX_MESSAGES_PER_WINDOW, WINDOW_SECONDS
from tests.slack.conftest import catch_error, create_client

HOUR_SECONDS = 3_600


def compute_time(seconds: int = HOUR_SECONDS) -> int:
    return int(time()) + seconds


async def test_a_scheduled_message_is_posted_at_its_time(fast_slack: SlackSimulator) -> None:
    client, general = create_client(fast_slack), fast_slack.channels["general"]
    root = await fast_slack.post_message("ada", "general", "when?")
    scheduled = await client.chat_scheduleMessage(
        channel=general.id, text="now", post_at=compute_time(4), thread_ts=root.ts, reply_broadcast=True
    )
    assert scheduled["channel"] == general.id
    assert (scheduled["message"]["type"], scheduled["message"]["text"]) == ("delayed_message", "now")
    assert "ts" not in scheduled["message"]
    assert len(fast_slack.messages("general")) == 1

    (message,) = await fast_slack.wait_for(lambda: fast_slack.messages("general")[1:])
    assert (message.text, message.thread_ts, message.subtype) == ("now", root.ts, "thread_broadcast")
    assert (await client.chat_scheduledMessages_list())["scheduled_messages"] == []
    body = await catch_error(
        client.chat_deleteScheduledMessage(channel=general.id, scheduled_message_id=scheduled["scheduled_message_id"])
    )
    assert body["error"] == "invalid_scheduled_message_id"


async def test_a_scheduled_message_is_dropped_if_the_bot_has_left(fast_slack: SlackSimulator) -> None:
    client, general, random = create_client(fast_slack), fast_slack.channels["general"], fast_slack.channels["random"]
    await client.chat_scheduleMessage(channel=general.id, text="too late", post_at=compute_time(3))
    await client.chat_scheduleMessage(channel=random.id, text="in time", post_at=compute_time(5))
    general.members.discard(fast_slack.bot_user_id)
    await fast_slack.wait_for(lambda: fast_slack.messages("random"))
    assert fast_slack.messages("general") == []


async def test_scheduled_messages_are_listed_by_time_channel_and_page(
    slack: SlackSimulator, client: AsyncWebClient, general: str
) -> None:
    random, start = slack.channels["random"].id, compute_time()
    for channel, seconds in ((general, 300), (random, 200), (general, 100)):
        await client.chat_scheduleMessage(channel=channel, text=str(seconds), post_at=start + seconds)

    async def list_texts(**arguments: Any) -> list[list[str]]:
        pages = await client.chat_scheduledMessages_list(**arguments)
        return [[message["text"] for message in page["scheduled_messages"]] async for page in pages]

    assert await list_texts() == [["100", "200", "300"]]
    assert await list_texts(limit=2) == [["100", "200"], ["300"]]
    assert await list_texts(channel=general) == [["100", "300"]]
    assert await list_texts(oldest=str(start + 150), latest=str(start + 250)) == [["200"]]
    first = (await client.chat_scheduledMessages_list())["scheduled_messages"][0]
    assert (first["channel_id"], first["post_at"]) == (general, start + 100)
    body = await catch_error(client.chat_scheduledMessages_list(channel="C0NOTHING"))
    assert body["error"] == "invalid_channel"
    assert (await catch_error(client.chat_scheduledMessages_list(cursor="x")))["error"] == "invalid_cursor"


async def test_a_scheduled_message_can_be_deleted_until_a_minute_before(
    client: AsyncWebClient, general: str, slack: SlackSimulator
) -> None:
    async def schedule(seconds: int) -> str:
        scheduled = await client.chat_scheduleMessage(channel=general, text="later", post_at=compute_time(seconds))
        return str(scheduled["scheduled_message_id"])

    async def delete(id_: str, channel: str = general) -> None:
        await client.chat_deleteScheduledMessage(channel=channel, scheduled_message_id=id_)

    deletable, near = await schedule(90), await schedule(50)
    await delete(deletable)
    for id_ in (deletable, near, "Q0NOTHING"):
        assert (await catch_error(delete(id_)))["error"] == "invalid_scheduled_message_id"
    other = await schedule(90)
    random = slack.channels["random"].id
    assert (await catch_error(delete(other, random)))["error"] == "invalid_scheduled_message_id"
    assert (await catch_error(delete(other, "C0NOTHING")))["error"] == "channel_not_found"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"post_at": "tomorrow"}, "invalid_time"),
        ({"post_at": 1_000_000_000}, "time_in_past"),
        ({"post_at": compute_time(MAX_AHEAD_SECONDS + HOUR_SECONDS)}, "time_too_far"),
        ({"post_at": None}, "invalid_arguments"),
        ({"text": ""}, "no_text"),
        ({"channel": "C0NOTHING"}, "channel_not_found"),
        ({"blocks": "{"}, "invalid_blocks_format"),
        ({"blocks": [{"type": "marquee"}]}, "invalid_blocks"),
        ({"markdown_text": "**now**"}, "markdown_text_conflict"),
        ({"thread_ts": "1.000001"}, "thread_not_found"),
        ({"metadata": {"event_type": "x"}}, "invalid_metadata_format"),
        ({"attachments": [{"text": "a"}] * 101}, "too_many_attachments"),
    ],
)
async def test_an_invalid_scheduled_message_is_rejected(
    client: AsyncWebClient, general: str, arguments: dict[str, Any], error: str
) -> None:
    valid = {"channel": general, "text": "later", "post_at": compute_time()}
    assert (await catch_error(client.api_call("chat.scheduleMessage", json=valid | arguments)))["error"] == error
    assert (await client.chat_scheduledMessages_list())["scheduled_messages"] == []


async def test_a_message_can_be_scheduled_only_where_the_bot_can_post(
    slack: SlackSimulator, client: AsyncWebClient
) -> None:
    left, old = slack.add_channel("left"), slack.add_channel("old")
    left.members.discard(slack.bot_user_id)
    old.archived = True
    for channel, error in ((left, "not_in_channel"), (old, "is_archived")):
        call = client.chat_scheduleMessage(channel=channel.id, text="later", post_at=compute_time())
        assert (await catch_error(call))["error"] == error


async def test_thirty_messages_can_be_scheduled_in_five_minutes_of_a_channel(
    slack: SlackSimulator, client: AsyncWebClient, general: str
) -> None:
    start = compute_time()

    async def schedule(channel: str, post_at: int) -> None:
        await client.chat_scheduleMessage(channel=channel, text="later", post_at=post_at)

    for n in range(MAX_MESSAGES_PER_WINDOW):
        await schedule(general, start + n * 5)
    body = await catch_error(schedule(general, start + WINDOW_SECONDS - 1))
    assert body["error"] == "restricted_too_many"
    await schedule(general, start + WINDOW_SECONDS)
    await schedule(slack.channels["random"].id, start)
