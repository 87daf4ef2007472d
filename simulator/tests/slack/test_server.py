"""User actions, subscriptions and waiting in the local Slack."""

import asyncio
from contextlib import aclosing

import pytest

from chatrig.slack import SlackSimulator, WorkspaceChange
from tests.slack.conftest import create_client


async def test_a_subscriber_gets_every_change_after_subscribing(slack: SlackSimulator) -> None:
    client = create_client(slack)
    first = slack.changes()
    question = await slack.post_message("ada", "general", "hello")
    second = slack.changes()
    channel = slack.channels["general"].id
    ts = (await client.chat_postMessage(channel=channel, text="…", thread_ts=question.ts))["ts"]
    await client.chat_update(channel=channel, ts=ts, text="hi")
    await client.reactions_add(channel=channel, timestamp=question.ts, name="wave")
    await client.reactions_remove(channel=channel, timestamp=question.ts, name="wave")
    await client.chat_postEphemeral(channel=channel, user=slack.people["ada"].id, text="psst")
    await client.chat_delete(channel=channel, ts=ts)
    kinds = ["posted", "updated", "reaction_added", "reaction_removed", "ephemeral", "deleted"]
    async with aclosing(first), aclosing(second), asyncio.timeout(30):
        seen_by_first = [await anext(first) for _ in range(7)]
        seen_by_second = [await anext(second) for _ in range(6)]
    assert [change.kind for change in seen_by_first] == ["posted", *kinds]
    assert [change.kind for change in seen_by_second] == kinds
    assert seen_by_first[1].message is seen_by_second[0].message


async def test_a_subscription_ends_with_the_simulator() -> None:
    async with SlackSimulator() as slack:
        changes = slack.changes()
        await slack.post_message("ada", "general", "hello")

    async def read() -> list[WorkspaceChange]:
        return [change async for change in changes]

    assert len(await asyncio.wait_for(read(), 30)) == 1


async def test_a_timeout_describes_the_state(slack: SlackSimulator) -> None:
    await slack.post_message("ada", "general", "hello there")
    with pytest.raises(TimeoutError, match="hello there"):
        await slack.wait_for(lambda: slack.calls, timeout=0.05)


async def test_users_can_edit_and_delete_only_their_own_messages(slack: SlackSimulator) -> None:
    message = await slack.post_message("ada", "general", "helo")
    with pytest.raises(ValueError, match="their own messages"):
        await slack.edit_message("grace", message, "hello")
    await slack.edit_message("ada", message, "hello")
    assert [version.text for version in message.versions] == ["helo", "hello"]
    assert message.edited
    await slack.delete_message("ada", message)
    with pytest.raises(ValueError, match="not deleted"):
        await slack.delete_message("ada", message)


async def test_only_members_can_post_in_a_private_channel(slack: SlackSimulator) -> None:
    slack.add_channel("secret", private=True, members=["ada"])
    with pytest.raises(ValueError, match="grace is not in secret"):
        await slack.post_message("grace", "secret", "hello")
    with pytest.raises(ValueError, match="grace is not in ada"):
        await slack.post_message("grace", slack.open_dm("ada"), "hello")
    with pytest.raises(ValueError, match="there is no message"):
        await slack.post_message("ada", "general", "hello", thread_ts="1.000001")


async def test_errors_name_unknown_and_duplicate_users_and_channels(slack: SlackSimulator) -> None:
    with pytest.raises(ValueError, match="no user nobody"):
        await slack.post_message("nobody", "general", "hello")
    with pytest.raises(ValueError, match="no channel nowhere"):
        await slack.post_message("ada", "nowhere", "hello")
    with pytest.raises(ValueError, match="ada already"):
        slack.add_user("ada")
    with pytest.raises(ValueError, match="general already"):
        slack.add_channel("general")


async def test_a_message_has_its_visible_text_and_all_its_pings(slack: SlackSimulator) -> None:
    ada, client = slack.people["ada"], create_client(slack)
    ts = (await client.chat_postMessage(channel="#general", text=f"<@{ada.id}> &lt;3"))["ts"]
    (message,) = slack.messages("general")
    assert message.text == "@ada <3"
    await client.chat_update(channel=slack.channels["general"].id, ts=ts, text="&lt;!channel&gt; no ping")
    assert message.text == "<!channel> no ping"
    assert message.versions[-1].pings == frozenset()
    assert message.pings == {ada.id}


async def test_a_link_preview_leaves_the_edited_mark(slack: SlackSimulator) -> None:
    client, general = create_client(slack), slack.channels["general"].id
    linked = await slack.post_message("ada", "general", "hello")
    message = await slack.post_message("ada", "general", "a lnik")
    await slack.unfurl_link(message, linked)
    (newest, _) = (await client.conversations_history(channel=general))["messages"]
    assert ("edited" in newest, len(newest["attachments"])) == (False, 1)
    await slack.edit_message("ada", message, "a link")
    (edited, _) = (await client.conversations_history(channel=general))["messages"]
    await slack.unfurl_link(message, linked)
    (newest, _) = (await client.conversations_history(channel=general))["messages"]
    assert newest["edited"] == edited["edited"]
    assert newest["edited"]["user"] == slack.people["ada"].id
