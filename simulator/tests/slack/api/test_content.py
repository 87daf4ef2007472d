"""Content of messages in the local Slack: attachments, authors, broadcast replies."""

from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from chatrig.slack import SlackSimulator
from tests.slack.conftest import catch_error

SECTION: dict[str, Any] = {"type": "section", "text": {"type": "mrkdwn", "text": "*bold*"}}


async def test_attachments_need_no_text_and_are_shown_and_returned(
    slack: SlackSimulator, client: AsyncWebClient, general: str
) -> None:
    attachments = [
        {"color": "#36a64f", "title": "Build", "text": "passed", "fields": [{"title": "Branch", "value": "main"}]},
        {"fallback": "plain", "blocks": [SECTION]},
    ]
    posted = await client.chat_postMessage(channel=general, attachments=attachments)
    (message,) = slack.messages("general")
    assert message.text == "Build\npassed\nBranch\nmain\n*bold*"
    for returned in (posted["message"], (await client.conversations_history(channel=general))["messages"][0]):
        first, second = returned["attachments"]
        assert (first["id"], first["color"], first["fallback"]) == (1, "36a64f", "passed")
        assert (second["id"], second["fallback"], second["blocks"][0]["text"]) == (2, "plain", SECTION["text"])
        assert second["blocks"][0]["block_id"]


@pytest.mark.parametrize(
    ("attachments", "error"),
    [
        ([{"text": str(n)} for n in range(101)], "too_many_attachments"),
        ("{", "invalid_attachments"),
        ({"text": "a"}, "invalid_attachments"),
        (["a"], "invalid_attachments"),
        ([{}], "no_text"),
        ([{"color": "good", "text": ""}], "no_text"),
        ([{"blocks": [{"type": "paragraph"}]}], "invalid_attachments"),
        ([{"blocks": [SECTION], "fields": []}], "invalid_attachments"),
        ([], "no_text"),
    ],
)
async def test_invalid_attachments_are_rejected(
    slack: SlackSimulator, client: AsyncWebClient, general: str, attachments: Any, error: str
) -> None:
    body = await catch_error(client.api_call("chat.postMessage", json={"channel": general, "attachments": attachments}))
    assert body["error"] == error
    assert slack.messages("general") == []


async def test_an_update_keeps_the_attachments_that_it_does_not_name(
    slack: SlackSimulator, client: AsyncWebClient, general: str
) -> None:
    posted = await client.chat_postMessage(channel=general, text="Build", attachments=[{"text": "running"}])
    (message,) = slack.messages("general")
    target: dict[str, Any] = {"channel": general, "ts": posted["ts"]}
    await client.chat_update(**target, text="Build 2")
    assert message.text == "Build 2\nrunning"
    await client.chat_update(**target, attachments=[{"text": "passed"}])
    assert message.text == "Build 2\npassed"
    await client.chat_update(**target, text="Build 3", attachments=[])
    assert message.text == "Build 3"


async def test_a_mention_in_an_attachment_counts_as_a_ping(
    slack: SlackSimulator, client: AsyncWebClient, general: str
) -> None:
    ada = slack.people["ada"]
    await client.chat_postMessage(channel=general, attachments=[{"text": f"<@{ada.id}>"}])
    assert slack.messages("general")[0].pings == {ada.id}


async def test_a_broadcast_reply_is_in_the_thread_and_in_the_channel(
    slack: SlackSimulator, client: AsyncWebClient, general: str
) -> None:
    root = await slack.post_message("ada", "general", "question")
    about: dict[str, Any] = {"channel": general, "thread_ts": root.ts}
    await client.chat_postMessage(**about, text="quiet")
    posted = await client.chat_postMessage(**about, text="loud", reply_broadcast=True)
    assert posted["message"]["subtype"] == "thread_broadcast"
    history = (await client.conversations_history(channel=general))["messages"]
    assert [message["text"] for message in history] == ["loud", "question"]
    assert history[0]["root"]["text"] == "question"
    replies = (await client.conversations_replies(channel=general, ts=root.ts))["messages"]
    assert [message["text"] for message in replies] == ["question", "quiet", "loud"]


async def test_an_update_can_broadcast_a_reply(slack: SlackSimulator, client: AsyncWebClient, general: str) -> None:
    root = await client.chat_postMessage(channel=general, text="root")
    reply = await client.chat_postMessage(channel=general, text="reply", thread_ts=root["ts"])
    broadcast: dict[str, Any] = {"channel": general, "text": "loud", "reply_broadcast": True}
    body = await catch_error(client.chat_update(**broadcast, ts=root["ts"]))
    assert body["error"] == "cant_broadcast_message"
    await client.chat_update(**broadcast, ts=reply["ts"])
    assert [message.is_in_channel for message in slack.messages("general")] == [True, True]


@pytest.mark.parametrize(
    ("icon", "icons"),
    [
        ({"icon_emoji": ":robot_face:"}, {"emoji": ":robot_face:"}),
        ({"icon_url": "https://example.com/a.png"}, {"image_48": "https://example.com/a.png"}),
        ({}, None),
    ],
)
async def test_an_app_may_choose_another_author(
    slack: SlackSimulator, client: AsyncWebClient, general: str, icon: dict[str, Any], icons: dict[str, str] | None
) -> None:
    posted = await client.chat_postMessage(channel=general, text="beep", username="Robot", **icon)
    message = posted["message"]
    assert (message["subtype"], message["username"], message["bot_id"]) == ("bot_message", "Robot", slack.bot_id)
    assert "user" not in message
    assert message.get("icons") == icons
    await client.chat_update(channel=general, ts=posted["ts"], text="boop")


async def test_another_author_is_ignored_without_the_scope(
    slack: SlackSimulator, client: AsyncWebClient, general: str
) -> None:
    slack.scopes.discard("chat:write.customize")
    posted = await client.chat_postMessage(channel=general, text="beep", username="Robot", icon_emoji=":robot_face:")
    assert posted["message"]["user"] == slack.bot_user_id
    assert not {"username", "icons", "subtype"} & posted["message"].keys()
