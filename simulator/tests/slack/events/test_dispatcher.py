"""Events of changes in the local Slack, and their order."""

from typing import Any

import pytest
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from chatrig.slack import SlackFile, SlackSimulator
from tests.slack.conftest import Connect, create_client


@pytest.fixture
async def connected_slack(slack: SlackSimulator, connect: Connect) -> SlackSimulator:
    await connect(slack, AsyncApp(client=create_client(slack)))
    return slack


async def wait_for_events(slack: SlackSimulator, count: int) -> list[dict[str, Any]]:
    """Wait for the first `count` events, check that no more follow, and return them."""
    await slack.open_home("linus")
    await slack.wait_for(lambda: len(slack.envelopes) > count)
    *before, marker = [envelope.payload["event"] for envelope in slack.envelopes]
    assert marker["type"] == "app_home_opened"
    assert len(before) == count
    return before


def list_event_types(events: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    return [(event["type"], event.get("subtype")) for event in events]


@pytest.mark.parametrize("private", [False, True])
async def test_a_mention_in_a_channel_has_two_events(connected_slack: SlackSimulator, private: bool) -> None:
    channel = connected_slack.add_channel("place", private=private)
    root = await connected_slack.post_message("ada", channel, f"<@{connected_slack.bot_user_id}> hi")
    await connected_slack.post_message("ada", channel, "no mention", thread_ts=root.ts)
    events = await wait_for_events(connected_slack, 3)
    assert list_event_types(events) == [("message", None), ("app_mention", None), ("message", None)]
    assert events[0]["channel_type"] == ("group" if private else "channel")
    assert "channel_type" not in events[1]
    assert {event["channel"] for event in events} == {channel.id}
    assert (events[2]["thread_ts"], events[2]["parent_user_id"]) == (root.ts, connected_slack.people["ada"].id)


async def test_a_mention_in_a_dm_has_one_event(connected_slack: SlackSimulator) -> None:
    await connected_slack.post_message("ada", connected_slack.open_dm("ada"), f"<@{connected_slack.bot_user_id}> hi")
    (event,) = await wait_for_events(connected_slack, 1)
    assert (event["type"], event["channel_type"]) == ("message", "im")


async def test_edits_and_deletions_have_the_previous_message(connected_slack: SlackSimulator) -> None:
    message = await connected_slack.post_message("ada", "general", "helo")
    await connected_slack.edit_message("ada", message, "hello")
    await connected_slack.delete_message("ada", message)
    events = await wait_for_events(connected_slack, 3)
    assert list_event_types(events) == [
        ("message", None),
        ("message", "message_changed"),
        ("message", "message_deleted"),
    ]
    assert (events[1]["message"]["text"], events[1]["previous_message"]["text"]) == ("hello", "helo")
    assert events[1]["message"]["edited"]["user"] == connected_slack.people["ada"].id
    assert (events[2]["deleted_ts"], events[2]["previous_message"]["text"]) == (message.ts, "hello")
    assert len({event["event_ts"] for event in events}) == 3


async def test_an_edit_that_adds_a_mention_sends_app_mention(connected_slack: SlackSimulator) -> None:
    message = await connected_slack.post_message("ada", "general", "hi")
    for text in ("<@{}> hi", "<@{}> hello"):
        await connected_slack.edit_message("ada", message, text.format(connected_slack.bot_user_id))
    assert [
        kind for kind, subtype in list_event_types(await wait_for_events(connected_slack, 4)) if subtype is None
    ] == [
        "message",
        "app_mention",
    ]


async def test_a_message_of_another_app_has_a_bot_id_and_no_user(connected_slack: SlackSimulator) -> None:
    await connected_slack.post_as_other_bot("robot", "general", "beep")
    (event,) = await wait_for_events(connected_slack, 1)
    assert (event["subtype"], event["username"]) == ("bot_message", "robot")
    assert event["bot_id"] != connected_slack.bot_id
    assert "user" not in event


async def test_a_message_of_a_bot_user_has_a_user_who_is_a_bot(
    connected_slack: SlackSimulator, client: AsyncWebClient
) -> None:
    await connected_slack.post_as_other_bot("robot", "general", "beep", has_user=True)
    (event,) = await wait_for_events(connected_slack, 1)
    assert (event.get("subtype"), event["bot_profile"]["name"]) == (None, "robot")
    assert (await client.users_info(user=event["user"]))["user"]["is_bot"]


async def test_a_message_by_a_person_s_token_has_the_person_and_a_bot(connected_slack: SlackSimulator) -> None:
    await connected_slack.post_message("ada", "general", "hi", app="Desk")
    (event,) = await wait_for_events(connected_slack, 1)
    assert (event["user"], event["bot_profile"]["name"]) == (connected_slack.people["ada"].id, "Desk")
    assert event["bot_profile"]["app_id"] == event["app_id"]
    assert event["bot_profile"]["id"] == event["bot_id"]
    assert "client_msg_id" not in event


async def test_slackbot_posts_as_a_user_who_is_no_bot(connected_slack: SlackSimulator, client: AsyncWebClient) -> None:
    await connected_slack.post_message("USLACKBOT", "general", "Reminder: lunch")
    (event,) = await wait_for_events(connected_slack, 1)
    assert (event["user"], event.get("bot_id"), event.get("subtype")) == ("USLACKBOT", None, None)
    user = (await client.users_info(user="USLACKBOT"))["user"]
    assert (user["real_name"], user["is_bot"]) == ("Slackbot", False)


async def test_a_me_command_has_its_subtype(connected_slack: SlackSimulator) -> None:
    await connected_slack.post_message("ada", "general", "wonders", is_me=True)
    (event,) = await wait_for_events(connected_slack, 1)
    assert (event["subtype"], event["text"], event.get("blocks")) == ("me_message", "wonders", None)


async def test_a_hidden_file_has_neither_name_nor_address(
    connected_slack: SlackSimulator, client: AsyncWebClient
) -> None:
    await connected_slack.post_message("ada", "general", "", files=[SlackFile("F0OLD", "old.csv", is_hidden=True)])
    (event,) = await wait_for_events(connected_slack, 1)
    assert (event["files"][0].keys(), event["files"][0]["mode"]) == (
        {"id", "created", "timestamp", "mode"},
        "hidden_by_limit",
    )
    assert "url_private_download" not in (await client.files_info(file="F0OLD"))["file"]


async def test_a_shared_message_has_its_files(connected_slack: SlackSimulator) -> None:
    message = await connected_slack.post_message("ada", "general", "look", files=["cat.png"])
    await connected_slack.share_message("grace", message, "random")
    shown, shared = await wait_for_events(connected_slack, 2)
    assert shared["attachments"][0]["files"] == shown["files"]


async def test_the_event_of_a_broadcast_reply_has_the_root(connected_slack: SlackSimulator) -> None:
    root = await connected_slack.post_message("ada", "general", "question")
    await connected_slack.post_message("ada", "general", "answer", thread_ts=root.ts, is_broadcast=True)
    event = (await wait_for_events(connected_slack, 2))[-1]
    assert (event["subtype"], event["thread_ts"], event["root"]["text"]) == ("thread_broadcast", root.ts, "question")


async def test_a_message_event_has_its_files(connected_slack: SlackSimulator) -> None:
    await connected_slack.post_message("ada", "general", "look", files=["cat.png"])
    (event,) = await wait_for_events(connected_slack, 1)
    assert event["subtype"] == "file_share"
    assert [(file["name"], file["mimetype"]) for file in event["files"]] == [("cat.png", "image/png")]


async def test_channels_without_the_bot_and_ephemeral_messages_send_no_events(connected_slack: SlackSimulator) -> None:
    left = connected_slack.add_channel("left")
    left.members.discard(connected_slack.bot_user_id)
    await connected_slack.post_message("ada", left, f"<@{connected_slack.bot_user_id}> hi")
    general, ada = connected_slack.channels["general"].id, connected_slack.people["ada"].id
    await create_client(connected_slack).chat_postEphemeral(channel=general, user=ada, text="psst")
    await wait_for_events(connected_slack, 0)


async def test_a_deleted_message_with_replies_becomes_a_tombstone(connected_slack: SlackSimulator) -> None:
    root = await connected_slack.post_message("ada", "general", "hello")
    await connected_slack.post_message("grace", "general", "hi", thread_ts=root.ts)
    await connected_slack.delete_message("ada", root)
    changed = (await wait_for_events(connected_slack, 3))[-1]
    assert (changed["subtype"], changed["message"]["subtype"]) == ("message_changed", "tombstone")
    assert (changed["message"]["ts"], changed["previous_message"]["text"]) == (root.ts, "hello")
    assert [message.text for message in connected_slack.messages("general")] == ["This message was deleted.", "hi"]


async def test_an_app_gets_the_events_of_its_manifest(connected_slack: SlackSimulator) -> None:
    events_, commands = ["app_mention"], [{"command": "/reset"}]
    connected_slack.install(
        {
            "oauth_config": {"scopes": {"bot": ["app_mentions:read", "channels:history"]}},
            "settings": {"socket_mode_enabled": True, "event_subscriptions": {"bot_events": events_}},
            "features": {"slash_commands": commands},
        }
    )
    await connected_slack.open_home("ada")
    await connected_slack.post_message("ada", "general", f"<@{connected_slack.bot_user_id}> hi")
    await connected_slack.wait_for(lambda: connected_slack.envelopes)
    assert [envelope.payload["event"]["type"] for envelope in connected_slack.envelopes] == ["app_mention"]
    with pytest.raises(ValueError, match="the manifest has no /help"):
        await connected_slack.run_command("ada", "general", "/help")


async def wait_for_types(slack: SlackSimulator, *types: str) -> list[dict[str, Any]]:
    """Wait until there are events of exactly these types, and return them in order."""
    await slack.wait_for(lambda: len(slack.envelopes) >= len(types))
    events = [envelope.payload["event"] for envelope in slack.envelopes]
    assert [event["type"] for event in events] == list(types)
    return events


def subscribe(slack: SlackSimulator, *types: str) -> None:
    slack.subscriptions.clear()
    slack.subscriptions.update(types)


async def test_reactions_have_events(connected_slack: SlackSimulator) -> None:
    subscribe(connected_slack, "reaction_added", "reaction_removed")
    message = await connected_slack.post_message("ada", "general", "hello")
    await connected_slack.add_reaction("grace", message, "wave")
    await connected_slack.remove_reaction("grace", message, "wave")
    added, removed = await wait_for_types(connected_slack, "reaction_added", "reaction_removed")
    item = {"type": "message", "channel": message.channel.id, "ts": message.ts}
    grace, ada = connected_slack.people["grace"].id, connected_slack.people["ada"].id
    for event in (added, removed):
        assert (event["user"], event["item_user"], event["reaction"]) == (grace, ada, "wave")
        assert event["item"] == item


async def test_reactions_have_no_events_without_the_scope(connected_slack: SlackSimulator) -> None:
    connected_slack.subscriptions.add("reaction_added")
    connected_slack.scopes.discard("reactions:read")
    await connected_slack.add_reaction("grace", await connected_slack.post_message("ada", "general", "hello"), "wave")
    assert list_event_types(await wait_for_events(connected_slack, 1)) == [("message", None)]


async def test_members_that_join_and_leave_have_events(connected_slack: SlackSimulator) -> None:
    channel, eve = connected_slack.add_channel("place", members=["ada"]), connected_slack.add_user("eve")
    subscribe(connected_slack, "member_joined_channel", "member_left_channel")
    await connected_slack.join_channel("eve", channel, inviter="ada")
    await connected_slack.leave_channel("eve", channel)
    joined, left = await wait_for_types(connected_slack, "member_joined_channel", "member_left_channel")
    assert (joined["user"], joined["inviter"]) == (eve.id, connected_slack.people["ada"].id)
    assert (joined["channel"], joined["channel_type"]) == (channel.id, "C")
    assert "inviter" not in left
    messages = [(message.subtype, message.text) for message in connected_slack.messages(channel)]
    assert messages == [
        ("channel_join", "@eve has joined the channel"),
        ("channel_leave", "@eve has left the channel"),
    ]


async def test_a_file_is_created_once_and_shared_each_time(connected_slack: SlackSimulator) -> None:
    subscribe(connected_slack, "file_created", "file_shared")
    file = SlackFile("F1", "a.png")
    await connected_slack.post_message("ada", "general", "one", files=[file])
    await connected_slack.post_message("ada", "random", "two", files=[file])
    events = await wait_for_types(connected_slack, "file_created", "file_shared", "file_shared")
    assert {event["file_id"] for event in events} == {"F1"}
    assert [event["channel_id"] for event in events[1:]] == [
        connected_slack.channels[n].id for n in ("general", "random")
    ]


async def test_pins_have_events(connected_slack: SlackSimulator) -> None:
    subscribe(connected_slack, "pin_added", "pin_removed")
    message = await connected_slack.post_message("ada", "general", "rules")
    await connected_slack.pin_message("grace", message)
    await connected_slack.unpin_message("grace", message)
    added, removed = await wait_for_types(connected_slack, "pin_added", "pin_removed")
    assert (added["pin_count"], added["item"]["message"]["text"]) == (1, "rules")
    assert (removed["pin_count"], removed["has_pins"]) == (0, False)


async def test_metadata_has_events_for_its_subscribers(connected_slack: SlackSimulator) -> None:
    types = [f"message_metadata_{kind}" for kind in ("posted", "updated", "deleted")]
    subscribe(connected_slack, *types)
    connected_slack.metadata_subscriptions.add((connected_slack.app_id, "task_created"))
    client, general = create_client(connected_slack), connected_slack.channels["general"].id
    first, second = ({"event_type": "task_created", "event_payload": {"id": n}} for n in (1, 2))
    other = {"event_type": "task_closed", "event_payload": {}}
    await client.chat_postMessage(channel=general, text="other", metadata=other)
    ts = (await client.chat_postMessage(channel=general, text="task", metadata=first))["ts"]
    await client.chat_update(channel=general, ts=ts, text="task", metadata=second)
    await client.chat_delete(channel=general, ts=ts)
    posted, updated, deleted = await wait_for_types(connected_slack, *types)
    assert (posted["metadata"], posted["message_ts"], posted["app_id"]) == (first, ts, connected_slack.app_id)
    assert (updated["metadata"], updated["previous_metadata"]) == (second, first)
    assert deleted["previous_metadata"] == second
    assert "metadata" not in deleted


async def test_a_message_event_has_its_metadata(connected_slack: SlackSimulator) -> None:
    metadata = {"event_type": "task_created", "event_payload": {}}
    general = connected_slack.channels["general"].id
    await create_client(connected_slack).chat_postMessage(channel=general, text="task", metadata=metadata)
    connected_slack.scopes.discard("metadata.message:read")
    await create_client(connected_slack).chat_postMessage(channel=general, text="task", metadata=metadata)
    assert [event.get("metadata") for event in await wait_for_events(connected_slack, 2)] == [metadata, None]


async def test_a_manifest_may_subscribe_to_an_event_that_is_never_sent(slack: SlackSimulator) -> None:
    manifest = {
        "oauth_config": {"scopes": {"bot": ["app_mentions:read", "mpim:history"]}},
        "settings": {
            "socket_mode_enabled": True,
            "event_subscriptions": {"bot_events": ["app_mention", "message.mpim", "tokens_revoked"]},
        },
        "features": {},
    }
    assert slack.install(manifest) == {"message.mpim"}


async def test_an_invalid_manifest_is_rejected(slack: SlackSimulator) -> None:
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


async def test_an_app_that_may_read_users_learns_of_a_deactivated_account(connected_slack: SlackSimulator) -> None:
    connected_slack.deactivate_user("grace")
    connected_slack.scopes.discard("users:read")
    connected_slack.deactivate_user("ada")
    (event,) = await wait_for_events(connected_slack, 1)
    grace = connected_slack.people["grace"].id
    assert (event["type"], event["user"]["id"], event["user"]["deleted"]) == ("user_change", grace, True)
