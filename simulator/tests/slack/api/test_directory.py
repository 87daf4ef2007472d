"""Methods that read messages, users and channels of the local Slack, by slack_sdk."""

from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from chatrig.slack import SlackSimulator
from tests.slack.conftest import catch_error, create_client


async def test_a_thread_is_paginated_with_its_root_first(
    slack: SlackSimulator, client: AsyncWebClient, general: str
) -> None:
    root = await slack.post_message("ada", "general", "0")
    await slack.post_message("ada", "general", "elsewhere")
    for n in range(1, 6):
        await slack.post_message("grace", "general", str(n), thread_ts=root.ts)
    texts: list[list[str]] = []
    async for page in await client.conversations_replies(channel=general, ts=root.ts, limit=2):
        texts.append([message["text"] for message in page["messages"]])
    assert texts == [["0", "1", "2"], ["0", "3", "4"], ["0", "5"]]
    history = (await client.conversations_history(channel=general))["messages"]
    assert [message["text"] for message in history] == ["elsewhere", "0"]
    assert history[1]["reply_count"] == 5
    body = await catch_error(client.conversations_replies(channel=general, ts="1.000001"))
    assert body["error"] == "thread_not_found"


@pytest.mark.parametrize(("zone", "offset"), [("Asia/Seoul", 9 * 3600), ("Etc/UTC", 0), ("Mars/Olympus", 0), ("", 0)])
async def test_a_user_has_the_time_zone_that_the_test_chose(
    slack: SlackSimulator, client: AsyncWebClient, zone: str, offset: int
) -> None:
    minsu = slack.add_user("minsu", time_zone=zone)
    user = (await client.users_info(user=minsu.id))["user"]
    assert (user["tz"], user["tz_offset"]) == (zone, offset)


async def test_a_deactivated_user_is_deleted_and_in_no_channel(
    slack: SlackSimulator, client: AsyncWebClient, general: str
) -> None:
    grace = slack.people["grace"].id
    assert not (await client.users_info(user=grace))["user"]["deleted"]
    slack.deactivate_user("grace")
    assert (await client.users_info(user=grace))["user"]["deleted"]
    assert grace not in (await client.conversations_members(channel=general))["members"]


async def test_history_can_be_limited_by_time(slack: SlackSimulator, client: AsyncWebClient, general: str) -> None:
    messages = [await slack.post_message("ada", "general", str(n)) for n in range(4)]

    async def list_texts(**bounds: Any) -> list[str]:
        reply = await client.conversations_history(channel=general, **bounds)
        return [message["text"] for message in reply["messages"]]

    assert await list_texts(oldest=messages[1].ts) == ["3", "2"]
    assert await list_texts(oldest=messages[1].ts, inclusive=True) == ["3", "2", "1"]
    assert await list_texts(oldest=messages[0].ts, latest=messages[2].ts) == ["1"]


async def test_users_and_conversations_can_be_looked_up(slack: SlackSimulator, client: AsyncWebClient) -> None:
    ada = slack.people["ada"]
    assert (await client.users_info(user=ada.id))["user"]["profile"]["real_name"] == "Ada Lovelace"
    assert (await catch_error(client.users_info(user="U0NOBODY")))["error"] == "user_not_found"
    assert {user["name"] for user in (await client.users_list())["members"]} == {
        "bot",
        "slackbot",
        *slack.people,
    }
    assert {c["name"] for c in (await client.conversations_list())["channels"]} == {"general", "random"}
    assert (await client.team_info())["team"]["id"] == slack.team_id


async def test_user_groups_have_handles(slack: SlackSimulator, client: AsyncWebClient) -> None:
    group = slack.add_user_group("oncall", ["ada", "grace"])
    (found,) = (await client.usergroups_list())["usergroups"]
    assert (found["id"], found["handle"], found["user_count"]) == (group.id, "oncall", 2)
    slack.scopes.discard("usergroups:read")
    assert (await catch_error(client.usergroups_list()))["error"] == "missing_scope"


async def test_members_of_a_channel_are_paginated(slack: SlackSimulator, client: AsyncWebClient, general: str) -> None:
    pages = [page["members"] async for page in await client.conversations_members(channel=general, limit=3)]
    assert [len(page) for page in pages] == [3, 1]
    assert {id_ for page in pages for id_ in page} == slack.channels["general"].members
    direct = await client.conversations_members(channel=slack.open_dm("ada").id)
    assert set(direct["members"]) == {slack.people["ada"].id, slack.bot_user_id}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"channel": "C0NOTHING"}, "channel_not_found"),
        ({"channel": "secret"}, "channel_not_found"),
        ({"channel": "general", "cursor": "x"}, "invalid_cursor"),
        ({"channel": "general", "limit": -1}, "invalid_limit"),
        ({}, "invalid_arguments"),
    ],
)
async def test_invalid_requests_for_members_are_rejected(
    slack: SlackSimulator, client: AsyncWebClient, arguments: dict[str, Any], error: str
) -> None:
    slack.add_channel("secret", private=True).members.discard(slack.bot_user_id)
    if arguments.get("channel") in slack.channels:
        arguments = arguments | {"channel": slack.channels[arguments["channel"]].id}
    assert (await catch_error(client.api_call("conversations.members", params=arguments)))["error"] == error


async def test_conversations_of_a_user_are_those_that_the_bot_sees(
    slack: SlackSimulator, client: AsyncWebClient
) -> None:
    shared, secret = (slack.add_channel(name, private=True, members=["ada"]) for name in ("shared", "secret"))
    secret.members.discard(slack.bot_user_id)
    slack.add_channel("elsewhere", members=["grace"])
    slack.add_channel("old", members=["ada"]).archived = True
    direct = slack.open_dm("ada")

    async def list_ids(**arguments: Any) -> set[str]:
        found = (await client.users_conversations(**arguments))["channels"]
        assert all(channel.keys().isdisjoint({"is_member", "num_members"}) for channel in found)
        return {channel["id"] for channel in found}

    public = {slack.channels[name].id for name in ("general", "random", "old")}
    assert await list_ids(user=slack.people["ada"].id) == public
    types = "public_channel,private_channel,im"
    assert await list_ids(user=slack.people["ada"].id, types=types) == public | {shared.id, direct.id}
    assert await list_ids(exclude_archived=True) == {slack.channels[n].id for n in ("general", "random", "elsewhere")}


async def test_conversations_of_a_user_are_paginated(slack: SlackSimulator, client: AsyncWebClient) -> None:
    pages = [page["channels"] async for page in await client.users_conversations(limit=1)]
    assert [[channel["name"] for channel in page] for page in pages] == [["general"], ["random"]]
    for arguments, error in (
        ({"user": "U0NOBODY"}, "user_not_found"),
        ({"types": "public_channel,group"}, "invalid_types"),
        ({"cursor": "x"}, "invalid_cursor"),
        ({"limit": -1}, "invalid_limit"),
    ):
        assert (await catch_error(client.users_conversations(**arguments)))["error"] == error


async def test_the_bot_can_join_a_public_channel(slack: SlackSimulator, client: AsyncWebClient) -> None:
    channel = slack.add_channel("elsewhere")
    channel.members.discard(slack.bot_user_id)
    joined = await client.conversations_join(channel=channel.id)
    assert (joined["channel"]["id"], joined["channel"]["is_member"]) == (channel.id, True)
    assert "warning" not in joined.data
    assert slack.bot_user_id in channel.members
    assert [message.subtype for message in slack.messages(channel)] == ["channel_join"]

    second = await client.conversations_join(channel=channel.id)
    assert second["warning"] == "already_in_channel"
    assert second["response_metadata"] == {"warnings": ["already_in_channel"]}
    assert len(slack.messages(channel)) == 1


async def test_other_conversations_cannot_be_joined(slack: SlackSimulator, client: AsyncWebClient) -> None:
    secret, private = slack.add_channel("secret", private=True), slack.add_channel("private", private=True)
    secret.members.discard(slack.bot_user_id)
    old = slack.add_channel("old")
    old.archived = True
    for id_, error in (
        ("C0NOTHING", "channel_not_found"),
        (secret.id, "channel_not_found"),
        (private.id, "method_not_supported_for_channel_type"),
        (slack.open_dm("ada").id, "method_not_supported_for_channel_type"),
        (old.id, "is_archived"),
    ):
        assert (await catch_error(client.conversations_join(channel=id_)))["error"] == error


async def test_a_user_can_be_found_by_the_email_address(slack: SlackSimulator, client: AsyncWebClient) -> None:
    ada = slack.people["ada"]
    found = (await client.users_lookupByEmail(email=ada.email.upper()))["user"]
    assert (found["id"], found["profile"]["email"]) == (ada.id, ada.email)
    for email in ("nobody@example.com", "bot@example.com"):
        assert (await catch_error(client.users_lookupByEmail(email=email)))["error"] == "users_not_found"
    assert (await catch_error(client.api_call("users.lookupByEmail")))["error"] == "invalid_arguments"


async def test_a_profile_has_names_pictures_and_with_the_scope_an_email_address(
    slack: SlackSimulator, client: AsyncWebClient
) -> None:
    ada = slack.people["ada"]
    profile = (await client.users_profile_get(user=ada.id))["profile"]
    assert (profile["real_name"], profile["email"]) == ("Ada Lovelace", ada.email)
    assert profile["image_512"].startswith("https://")
    assert (await client.users_profile_get())["profile"]["real_name"] == "bot"
    slack.scopes.discard("users:read.email")
    assert "email" not in (await client.users_profile_get(user=ada.id))["profile"]
    assert "email" not in (await client.users_info(user=ada.id))["user"]["profile"]
    assert (await catch_error(client.users_profile_get(user="U0NOBODY")))["error"] == "user_not_found"


async def test_bots_can_be_looked_up(slack: SlackSimulator, client: AsyncWebClient) -> None:
    own = (await client.bots_info(bot=slack.bot_id))["bot"]
    assert (own["id"], own["app_id"], own["user_id"]) == (slack.bot_id, slack.app_id, slack.bot_user_id)
    other = await slack.post_as_other_bot("robot", "general", "beep")
    assert (await client.bots_info(bot=other.bot_id))["bot"]["name"] == "robot"
    assert "bot" not in (await client.bots_info()).data
    assert (await catch_error(client.bots_info(bot="B0NOTHING")))["error"] == "bot_not_found"


async def test_custom_emoji_are_listed(slack: SlackSimulator, client: AsyncWebClient) -> None:
    assert (await client.emoji_list())["emoji"] == {}
    slack.add_emoji("party_parrot")
    (name, url), *_ = (await client.emoji_list())["emoji"].items()
    assert name == "party_parrot"
    assert url.startswith("https://emoji.slack-edge.com/")


async def test_teams_and_channels_have_the_fields_of_members(slack: SlackSimulator, client: AsyncWebClient) -> None:
    assert (await client.team_info())["team"]["icon"]["image_132"].startswith("https://")
    joined, left = slack.channels["general"], slack.add_channel("left")
    left.members.discard(slack.bot_user_id)
    assert (await client.conversations_info(channel=joined.id))["channel"]["last_read"] == "0000000000.000000"
    assert "last_read" not in (await client.conversations_info(channel=left.id))["channel"]


async def test_the_bot_has_the_name_of_the_simulators_argument() -> None:
    async with SlackSimulator(bot_name="Tea Bot") as slack:
        client = create_client(slack)
        assert (await client.auth_test())["user"] == slack.bot_name == "tea_bot"
        assert (await client.users_profile_get())["profile"]["real_name"] == "Tea Bot"
