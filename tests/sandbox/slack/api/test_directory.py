"""Read methods, through slack_sdk's client."""

from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from sandbox.slack import SlackSandbox
from tests.sandbox.slack.conftest import catch_error


async def test_a_thread_is_paginated_with_its_root_first(
    slack: SlackSandbox, client: AsyncWebClient, general: str
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


async def test_history_can_be_limited_by_time(slack: SlackSandbox, client: AsyncWebClient, general: str) -> None:
    said = [await slack.post_message("ada", "general", str(n)) for n in range(4)]

    async def list_texts(**bounds: Any) -> list[str]:
        reply = await client.conversations_history(channel=general, **bounds)
        return [message["text"] for message in reply["messages"]]

    assert await list_texts(oldest=said[1].ts) == ["3", "2"]
    assert await list_texts(oldest=said[1].ts, inclusive=True) == ["3", "2", "1"]
    assert await list_texts(oldest=said[0].ts, latest=said[2].ts) == ["1"]


async def test_users_and_conversations_can_be_looked_up(slack: SlackSandbox, client: AsyncWebClient) -> None:
    ada = slack.people["ada"]
    assert (await client.users_info(user=ada.id))["user"]["profile"]["real_name"] == "Ada Lovelace"
    assert (await catch_error(client.users_info(user="U0NOBODY")))["error"] == "user_not_found"
    assert {user["name"] for user in (await client.users_list())["members"]} == {"parley", *slack.people}
    assert {c["name"] for c in (await client.conversations_list())["channels"]} == {"general", "random"}
    assert (await client.team_info())["team"]["id"] == slack.team_id


async def test_user_groups_have_handles(slack: SlackSandbox, client: AsyncWebClient) -> None:
    group = slack.add_user_group("oncall", ["ada", "grace"])
    (found,) = (await client.usergroups_list())["usergroups"]
    assert (found["id"], found["handle"], found["user_count"]) == (group.id, "oncall", 2)
    slack.scopes.discard("usergroups:read")
    assert (await catch_error(client.usergroups_list()))["error"] == "missing_scope"
