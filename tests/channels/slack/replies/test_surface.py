"""Reply surface of Slack: what its messages look like, and how they are found."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from channels.base import Priority
from channels.slack.client.api import SlackApi
from channels.slack.replies.surface import WORKSPACE_POST_WINDOW, SlackSurface
from chatrig.slack import SlackSimulator
from tests.channels.replies.test_surface import SurfaceReply, open_api


@pytest.fixture
async def reply(slack: SlackSimulator) -> AsyncIterator[SurfaceReply]:
    async with open_api(slack) as api:
        yield SurfaceReply(slack, await slack.post_message("ada", "general", "question"), api)


async def test_an_edited_answer_has_no_edited_mark_and_no_previews(reply: SurfaceReply) -> None:
    await reply.show("…", priority=Priority.PROGRESS)
    await reply.show("It is 42.")
    (message,) = reply.messages
    assert not message.edited
    assert (message.unfurl_links, message.unfurl_media) == (False, False)


async def test_the_notification_of_a_message_has_no_markdown(reply: SurfaceReply) -> None:
    await reply.show("# Done\n\n**See** [the page](https://x.y)\n\n| a | b |\n|---|---|\n| `&lt;T>` | 2 |")
    (message,) = reply.messages
    assert message.content.text == "Done\nSee the page\na b\n&lt;T&gt; 2"
    assert not message.pings


async def test_an_internal_error_of_slack_is_transient(reply: SurfaceReply) -> None:
    reply.simulator.faults.fail("chat.postMessage", error="internal_error")
    assert await reply.show("done")
    assert reply.texts == ["done"]


async def test_a_post_of_another_turn_is_not_mistaken_for_a_lost_one(reply: SurfaceReply) -> None:
    assert isinstance(reply.api, SlackApi)
    await SlackSurface(reply.api, reply.reactions, reply.address, "turn-0").post_message("one")
    reply.simulator.faults.fail("chat.postMessage")
    await reply.show("one")
    assert reply.texts == ["one", "one"]


async def test_of_two_messages_at_one_position_the_recorded_one_is_used(reply: SurfaceReply) -> None:
    await reply.show("recorded")
    (recorded,) = reply.known
    reply.restart(reply.surface, ())
    await reply.show("posted by who had lost the turn")
    assert await reply.create_surface().find_message_ids([recorded]) == [recorded]


async def test_posts_of_triggered_turns_leave_a_part_of_the_workspaces_window_to_people(reply: SurfaceReply) -> None:
    assert isinstance(reply.api, SlackApi)
    address = {**reply.address, "is_triggered": True}
    triggered = SlackSurface(reply.api, reply.reactions, address, "turn-2")
    await triggered.post_message("of a schedule")
    limiter = reply.api.get_limiter(("chat.postMessage", reply.simulator.team_id), WORKSPACE_POST_WINDOW)
    while limiter.try_acquire(Priority.BACKFILL):
        limiter.complete()
    waiting = asyncio.create_task(triggered.post_message("of the next schedule"))
    await reply.show("of a person")
    assert reply.texts == ["of a schedule", "of a person"]
    waiting.cancel()
    await asyncio.wait([waiting])
