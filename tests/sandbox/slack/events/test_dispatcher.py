"""Events of workspace changes, and their order."""

from typing import Any

import pytest
from slack_bolt.async_app import AsyncApp

from sandbox.slack import SlackSandbox
from tests.sandbox.slack.conftest import Connect, create_client


@pytest.fixture
async def connected(slack: SlackSandbox, connect: Connect) -> SlackSandbox:
    await connect(slack, AsyncApp(client=create_client(slack)))
    return slack


async def wait_for_events(slack: SlackSandbox, count: int) -> list[dict[str, Any]]:
    """Wait for the first `count` events and check that there are no more."""
    await slack.open_home("linus")
    await slack.wait_for(lambda: len(slack.envelopes) > count)
    *before, marker = [envelope.payload["event"] for envelope in slack.envelopes]
    assert marker["type"] == "app_home_opened"
    assert len(before) == count
    return before


def list_event_types(told: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    return [(event["type"], event.get("subtype")) for event in told]


@pytest.mark.parametrize("private", [False, True])
async def test_a_mention_in_a_channel_has_two_events(connected: SlackSandbox, private: bool) -> None:
    channel = connected.add_channel("place", private=private)
    root = await connected.post_message("ada", channel, f"<@{connected.bot_user_id}> hi")
    await connected.post_message("ada", channel, "no mention", thread_ts=root.ts)
    told = await wait_for_events(connected, 3)
    assert list_event_types(told) == [("message", None), ("app_mention", None), ("message", None)]
    assert told[0]["channel_type"] == ("group" if private else "channel")
    assert "channel_type" not in told[1]
    assert {event["channel"] for event in told} == {channel.id}
    assert (told[2]["thread_ts"], told[2]["parent_user_id"]) == (root.ts, connected.people["ada"].id)


async def test_a_mention_in_a_dm_has_one_event(connected: SlackSandbox) -> None:
    await connected.post_message("ada", connected.open_dm("ada"), f"<@{connected.bot_user_id}> hi")
    (told,) = await wait_for_events(connected, 1)
    assert (told["type"], told["channel_type"]) == ("message", "im")


async def test_edits_and_deletions_have_the_previous_message(connected: SlackSandbox) -> None:
    message = await connected.post_message("ada", "general", "helo")
    await connected.edit_message("ada", message, "hello")
    await connected.delete_message("ada", message)
    told = await wait_for_events(connected, 3)
    assert list_event_types(told) == [("message", None), ("message", "message_changed"), ("message", "message_deleted")]
    assert (told[1]["message"]["text"], told[1]["previous_message"]["text"]) == ("hello", "helo")
    assert told[1]["message"]["edited"]["user"] == connected.people["ada"].id
    assert (told[2]["deleted_ts"], told[2]["previous_message"]["text"]) == (message.ts, "hello")
    assert len({event["event_ts"] for event in told}) == 3


async def test_an_edit_that_adds_a_mention_sends_app_mention(connected: SlackSandbox) -> None:
    message = await connected.post_message("ada", "general", "hi")
    for text in ("<@{}> hi", "<@{}> hello"):
        await connected.edit_message("ada", message, text.format(connected.bot_user_id))
    assert [kind for kind, subtype in list_event_types(await wait_for_events(connected, 4)) if subtype is None] == [
        "message",
        "app_mention",
    ]


async def test_a_message_of_another_app_has_a_bot_id_and_no_user(connected: SlackSandbox) -> None:
    await connected.post_as_bot("robot", "general", "beep")
    (told,) = await wait_for_events(connected, 1)
    assert (told["subtype"], told["username"]) == ("bot_message", "robot")
    assert told["bot_id"] != connected.bot_id
    assert "user" not in told


async def test_the_event_of_a_broadcast_reply_has_the_root(connected: SlackSandbox) -> None:
    root = await connected.post_message("ada", "general", "question")
    await connected.post_message("ada", "general", "answer", thread_ts=root.ts, is_broadcast=True)
    told = (await wait_for_events(connected, 2))[-1]
    assert (told["subtype"], told["thread_ts"], told["root"]["text"]) == ("thread_broadcast", root.ts, "question")


async def test_a_message_event_has_its_files(connected: SlackSandbox) -> None:
    await connected.post_message("ada", "general", "look", files=["cat.png"])
    (told,) = await wait_for_events(connected, 1)
    assert told["subtype"] == "file_share"
    assert [(file["name"], file["mimetype"]) for file in told["files"]] == [("cat.png", "image/png")]


async def test_channels_without_the_bot_and_ephemeral_messages_send_no_events(connected: SlackSandbox) -> None:
    left = connected.add_channel("left")
    left.members.discard(connected.bot_user_id)
    await connected.post_message("ada", left, f"<@{connected.bot_user_id}> hi")
    general, ada = connected.channels["general"].id, connected.people["ada"].id
    await create_client(connected).chat_postEphemeral(channel=general, user=ada, text="psst")
    await wait_for_events(connected, 0)


async def test_a_deleted_message_with_replies_becomes_a_tombstone(connected: SlackSandbox) -> None:
    root = await connected.post_message("ada", "general", "hello")
    await connected.post_message("grace", "general", "hi", thread_ts=root.ts)
    await connected.delete_message("ada", root)
    changed = (await wait_for_events(connected, 3))[-1]
    assert (changed["subtype"], changed["message"]["subtype"]) == ("message_changed", "tombstone")
    assert (changed["message"]["ts"], changed["previous_message"]["text"]) == (root.ts, "hello")
    assert [message.text for message in connected.messages("general")] == ["This message was deleted.", "hi"]


async def test_an_app_gets_the_events_of_its_manifest(connected: SlackSandbox) -> None:
    events_, commands = ["app_mention"], [{"command": "/reset"}]
    connected.install(
        {
            "oauth_config": {"scopes": {"bot": ["app_mentions:read", "channels:history"]}},
            "settings": {"socket_mode_enabled": True, "event_subscriptions": {"bot_events": events_}},
            "features": {"slash_commands": commands},
        }
    )
    await connected.open_home("ada")
    await connected.post_message("ada", "general", f"<@{connected.bot_user_id}> hi")
    await connected.wait_for(lambda: connected.envelopes)
    assert [envelope.payload["event"]["type"] for envelope in connected.envelopes] == ["app_mention"]
    with pytest.raises(ValueError, match="the manifest has no /help"):
        await connected.run_command("ada", "general", "/help")


async def test_a_manifest_may_subscribe_to_an_event_that_is_never_sent(slack: SlackSandbox) -> None:
    manifest = {
        "oauth_config": {"scopes": {"bot": ["app_mentions:read", "mpim:history"]}},
        "settings": {
            "socket_mode_enabled": True,
            "event_subscriptions": {"bot_events": ["app_mention", "message.mpim", "tokens_revoked"]},
        },
        "features": {},
    }
    assert slack.install(manifest) == {"message.mpim"}


async def test_an_invalid_manifest_is_rejected(slack: SlackSandbox) -> None:
    manifest = {
        "oauth_config": {"scopes": {"bot": ["app_mentions:read"]}},
        "settings": {
            "socket_mode_enabled": True,
            "event_subscriptions": {"bot_events": ["message.im", "message.nowhere"]},
        },
        "features": {"slash_commands": [{"command": "/status"}], "agent_view": {"agent_description": "x" * 301}},
    }
    with pytest.raises(ValueError, match="/status: the slash command has an invalid name") as refused:
        slack.install(manifest)
    for fault in ("agent_description", "assistant:write", "message.im needs im:history", "message.nowhere"):
        assert fault in str(refused.value)
