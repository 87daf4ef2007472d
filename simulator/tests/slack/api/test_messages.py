"""Message methods of the local Slack, through slack_sdk."""

from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from chatrig.slack import SlackMessage, SlackSimulator
from tests.slack.conftest import catch_error


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"channel": "C0NOTHING", "text": "a"}, "channel_not_found"),
        ({"text": "a"}, "invalid_arguments"),
        ({"channel": "general"}, "no_text"),
        ({"channel": "general", "text": " "}, "no_text"),
        ({"channel": "general", "text": ["a"]}, "invalid_arguments"),
        ({"channel": "general", "text": "a", "unfurl_links": "perhaps"}, "invalid_arguments"),
        ({"channel": "general", "text": "a", "thread_ts": "1.000001"}, "thread_not_found"),
        ({"channel": "general", "text": "a", "markdown_text": "b"}, "markdown_text_conflict"),
        ({"channel": "general", "markdown_text": "a" * 12_001}, "msg_too_long"),
        ({"channel": "general", "blocks": "{"}, "invalid_blocks_format"),
        ({"channel": "general", "blocks": [{"type": "divider"}] * 51}, "invalid_blocks"),
        ({"channel": "general", "blocks": [{"type": "markdown", "text": "a" * 6_001}] * 2}, "invalid_blocks"),
        (
            {
                "channel": "general",
                "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "a" * 3_001}}],
            },
            "invalid_blocks",
        ),
        ({"channel": "general", "text": "a", "metadata": {"event_type": "x"}}, "invalid_metadata_format"),
    ],
)
async def test_an_invalid_post_is_rejected(
    slack: SlackSimulator, client: AsyncWebClient, arguments: dict[str, Any], error: str
) -> None:
    assert (await catch_error(client.api_call("chat.postMessage", json=arguments)))["error"] == error
    assert slack.messages("general") == []
    assert slack.calls[-1].error == error


async def test_a_post_above_40000_characters_is_truncated_with_a_warning(
    slack: SlackSimulator, client: AsyncWebClient, general: str
) -> None:
    reply = await client.chat_postMessage(channel=general, text="a" * 40_001)
    assert reply["warning"] == "message_truncated"
    assert len(slack.messages("general")[0].text) == 40_000


async def test_an_update_above_4000_characters_is_rejected(
    slack: SlackSimulator, client: AsyncWebClient, general: str
) -> None:
    ts = (await client.chat_postMessage(channel=general, text="…"))["ts"]
    await client.chat_update(channel=general, ts=ts, text="a" * 4_000)
    body = await catch_error(client.chat_update(channel=general, ts=ts, text="a" * 4_001))
    assert body["error"] == "msg_too_long"
    assert len(slack.messages("general")[0].text) == 4_000


async def test_an_update_with_blocks_is_not_marked_edited_and_text_alone_drops_blocks(
    slack: SlackSimulator, client: AsyncWebClient, general: str
) -> None:
    blocks = [{"type": "markdown", "text": "**hi**"}]
    ts = (await client.chat_postMessage(channel=general, text="hi", blocks=blocks))["ts"]
    (message,) = slack.messages("general")
    assert message.text == "**hi**"
    assert [(block["type"], block["text"]) for block in message.blocks or ()] == [("markdown", "**hi**")]
    await client.chat_update(channel=general, ts=ts, text="hi", blocks=[{"type": "markdown", "text": "there"}])
    assert (message.text, message.edited) == ("there", False)
    await client.chat_update(channel=general, ts=ts, text="bye")
    assert (message.text, message.blocks, message.edited) == ("bye", None, True)


async def test_the_bot_can_change_and_delete_only_its_own_messages(
    slack: SlackSimulator, client: AsyncWebClient, general: str
) -> None:
    ts = (await slack.post_message("ada", "general", "mine")).ts
    update, delete = client.chat_update, client.chat_delete
    assert (await catch_error(update(channel=general, ts=ts, text="yours")))["error"] == "cant_update_message"
    assert (await catch_error(delete(channel=general, ts=ts)))["error"] == "cant_delete_message"
    assert (await catch_error(update(channel=general, ts="1.000001", text="a")))["error"] == "message_not_found"


async def test_a_deleted_message_cannot_be_found(slack: SlackSimulator, client: AsyncWebClient, general: str) -> None:
    ts = (await client.chat_postMessage(channel=general, text="oops"))["ts"]
    await client.chat_delete(channel=general, ts=ts)
    assert slack.messages("general") == []
    assert [message.deleted for message in slack.messages("general", deleted=True)] == [True]
    assert (await catch_error(client.chat_delete(channel=general, ts=ts)))["error"] == "message_not_found"


async def test_the_bot_can_post_only_in_its_channels(slack: SlackSimulator, client: AsyncWebClient) -> None:
    left, secret = slack.add_channel("left"), slack.add_channel("secret", private=True)
    old = slack.add_channel("old")
    left.members.discard(slack.bot_user_id)
    secret.members.discard(slack.bot_user_id)
    old.archived = True
    for channel, error in ((left, "not_in_channel"), (secret, "channel_not_found"), (old, "is_archived")):
        assert (await catch_error(client.chat_postMessage(channel=channel.id, text="a")))["error"] == error


async def test_a_post_to_a_user_id_goes_to_the_dm(slack: SlackSimulator, client: AsyncWebClient) -> None:
    ada = slack.people["ada"]
    reply = await client.chat_postMessage(channel=ada.id, text="hello")
    assert reply["channel"] == slack.open_dm(ada).id
    opened = await client.conversations_open(users=[ada.id])
    assert opened["channel"]["id"] == reply["channel"]
    assert opened["already_open"]


async def test_an_ephemeral_message_is_for_one_user_and_not_in_the_history(
    slack: SlackSimulator, client: AsyncWebClient, general: str
) -> None:
    ada = slack.people["ada"]
    ts = (await client.chat_postEphemeral(channel=general, user=ada.id, text="psst"))["message_ts"]
    assert [(m.ts, m.ephemeral_to) for m in slack.messages("general")] == [(ts, ada.id)]
    assert (await client.conversations_history(channel=general))["messages"] == []
    body = await catch_error(client.chat_update(channel=general, ts=ts, text="a"))
    assert body["error"] == "message_not_found"
    body = await catch_error(client.chat_postEphemeral(channel=general, user="U0NOBODY", text="a"))
    assert body["error"] == "user_not_in_channel"


async def test_metadata_is_returned_on_request(slack: SlackSimulator, client: AsyncWebClient, general: str) -> None:
    metadata = {"event_type": "reply", "event_payload": {"turn": "t1"}}
    await client.chat_postMessage(channel=general, text="a", metadata=metadata, unfurl_links=False)
    (message,) = slack.messages("general")
    assert (message.metadata, message.unfurl_links, message.unfurl_media) == (metadata, False, None)
    plain = await client.conversations_history(channel=general)
    full = await client.conversations_history(channel=general, include_all_metadata=True)
    assert "metadata" not in plain["messages"][0]
    assert full["messages"][0]["metadata"] == metadata


async def test_a_permalink_points_into_the_thread(slack: SlackSimulator, client: AsyncWebClient, general: str) -> None:
    root = await slack.post_message("ada", "general", "hello")
    reply = await slack.post_message("ada", "general", "again", thread_ts=root.ts)

    async def get_permalink(message: SlackMessage) -> str:
        answer = await client.chat_getPermalink(channel=general, message_ts=message.ts)
        return str(answer["permalink"])

    assert (await get_permalink(root)).endswith(f"/archives/{general}/p{root.ts.replace('.', '')}")
    assert f"thread_ts={root.ts}" in await get_permalink(reply)


async def test_a_me_message_has_text_only(slack: SlackSimulator, client: AsyncWebClient, general: str) -> None:
    posted = await client.chat_meMessage(channel=general, text="is thinking")
    (message,) = slack.messages("general")
    assert (posted["channel"], posted["ts"]) == (general, message.ts)
    (entry,) = (await client.conversations_history(channel=general))["messages"]
    assert (entry["subtype"], entry["text"]) == ("me_message", "is thinking")
    assert "blocks" not in entry
    left, old = slack.add_channel("left"), slack.add_channel("old")
    left.members.discard(slack.bot_user_id)
    old.archived = True
    for arguments, error in (
        ({"channel": general, "text": " "}, "no_text"),
        ({"channel": general, "text": "a" * 40_001}, "msg_too_long"),
        ({"channel": "C0NOTHING", "text": "a"}, "channel_not_found"),
        ({"channel": left.id, "text": "a"}, "not_in_channel"),
        ({"channel": old.id, "text": "a"}, "is_archived"),
    ):
        assert (await catch_error(client.api_call("chat.meMessage", json=arguments)))["error"] == error
