from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from channels.base import Priority
from channels.replies.chunk_planner import ChunkPlanner
from channels.slack.client.api import SlackApi
from channels.slack.replies.reactions import make_queued_reactions
from channels.slack.replies.surface import SlackSurface
from chatrig.slack import SlackMessage, SlackSimulator
from core.errors import SurfaceError
from tests.fixtures.executed_reply import ExecutedReply

#: Seconds between the tries of a call with transient errors.
PAUSES = (0.01, 0.01)


class SlackSurfaceReply(ExecutedReply):
    """Slack reply surface for a question, with the message ids that it has stored."""

    def __init__(self, slack: SlackSimulator, web: AsyncWebClient, question: SlackMessage) -> None:
        self.slack = slack
        self.question = question
        self.api = SlackApi(web, pauses=PAUSES)
        self.address: dict[str, Any] = {
            "team": slack.team_id,
            "channel": question.channel.id,
            "thread_ts": question.ts,
            "ts": question.ts,
        }
        self.queued_reactions = make_queued_reactions(self.api)
        super().__init__(SlackSurface(self.api, self.queued_reactions, self.address, "turn-1"))

    @property
    def messages(self) -> list[SlackMessage]:
        return self.slack.messages("general", thread_ts=self.question.ts)[1:]

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.messages]

    def count_calls(self, method: str) -> int:
        return sum(call.method == method for call in self.slack.calls)


@pytest.fixture
async def reply(slack: SlackSimulator, web: AsyncWebClient) -> SlackSurfaceReply:
    return SlackSurfaceReply(slack, web, await slack.post_message("ada", "general", "question"))


async def test_an_edited_answer_has_no_edited_mark_and_no_previews(reply: SlackSurfaceReply) -> None:
    await reply.show("…", priority=Priority.PROGRESS)
    await reply.show("It is 42.")
    (message,) = reply.messages
    assert not message.edited
    assert (message.unfurl_links, message.unfurl_media) == (False, False)


async def test_the_notification_of_a_message_has_no_markdown(reply: SlackSurfaceReply) -> None:
    await reply.show("# Done\n\n**See** [the page](https://x.y)\n\n| a | b |\n|---|---|\n| `&lt;T>` | 2 |")
    (message,) = reply.messages
    assert message.content.text == "Done\nSee the page\na b\n&lt;T&gt; 2"
    assert not message.pings


@pytest.mark.parametrize("code", ["cant_update_message", "edit_window_closed"])
async def test_a_message_that_cannot_be_edited_is_followed_by_a_new_one(reply: SlackSurfaceReply, code: str) -> None:
    await reply.show("half an ans")
    reply.slack.faults.fail("chat.update", error=code)
    await reply.show("half an answer")
    assert reply.texts == ["half an ans", "half an answer"]


async def test_a_long_answer_is_posted_within_the_rate_limit(reply: SlackSurfaceReply) -> None:
    texts = [str(number) for number in range(7)]
    assert await reply.show(*texts)
    assert reply.texts == texts
    assert not [call.method for call in reply.slack.calls if call.status == 429]


@pytest.mark.parametrize("method", ["chat.postMessage", "chat.update"])
async def test_a_rate_limited_call_is_retried_without_a_limit(reply: SlackSurfaceReply, method: str) -> None:
    await reply.show("…", priority=Priority.PROGRESS)
    reply.slack.faults.rate_limit(method, 0, times=len(PAUSES) + 1)
    assert await reply.show("one", "two")
    assert reply.texts == ["one", "two"]


async def test_an_internal_error_of_slack_is_transient(reply: SlackSurfaceReply) -> None:
    reply.slack.faults.fail("chat.postMessage", error="internal_error")
    assert await reply.show("done")
    assert reply.texts == ["done"]


async def test_a_post_that_had_no_effect_is_repeated(reply: SlackSurfaceReply) -> None:
    reply.slack.faults.fail("chat.postMessage", 2)
    assert await reply.show("one")
    assert reply.texts == ["one"]


async def test_a_post_of_another_turn_is_not_mistaken_for_a_lost_one(reply: SlackSurfaceReply) -> None:
    await SlackSurface(reply.api, reply.queued_reactions, reply.address, "turn-0").post_message("one")
    reply.slack.faults.fail("chat.postMessage")
    await reply.show("one")
    assert reply.texts == ["one", "one"]


@pytest.mark.parametrize("code", ["not_in_channel", "channel_not_found", "is_archived", "msg_too_long", "invalid_auth"])
@pytest.mark.parametrize("method", ["chat.postMessage", "chat.update"])
async def test_a_permanent_refusal_is_reported_and_not_retried(
    reply: SlackSurfaceReply, method: str, code: str
) -> None:
    if method == "chat.update":
        await reply.show("…", priority=Priority.PROGRESS)
    reply.slack.faults.fail(method, 5, error=code)
    with pytest.raises(SurfaceError, match=f"^{method}: {code}$"):
        await reply.show("done")
    assert reply.count_calls(method) == 1


async def test_an_archived_channel_is_reported(reply: SlackSurfaceReply) -> None:
    reply.slack.channels["general"].archived = True
    with pytest.raises(SurfaceError, match="is_archived"):
        await reply.show("done")


async def test_of_two_messages_at_one_position_the_recorded_one_is_used(reply: SlackSurfaceReply) -> None:
    await reply.show("recorded")
    (recorded,) = reply.known
    reply.restart(reply.surface, ())
    await reply.show("posted by who had lost the turn")
    successor = SlackSurface(reply.api, reply.queued_reactions, reply.address, "turn-1")
    assert await successor.find_message_ids([recorded]) == [recorded]


HOSTILE = "<!channel> <@U0AAAAAAA> <!subteam^S1> <!here|x> <https://evil.example|bank.example> "


@pytest.mark.parametrize(
    "text",
    [HOSTILE * 100, "```\n" + HOSTILE * 100 + "\n```", ("x" * 3401 + HOSTILE) * 3, "`" + HOSTILE + "`", "<" * 4000],
)
async def test_no_text_of_the_model_notifies_anyone_wherever_it_is_split(reply: SlackSurfaceReply, text: str) -> None:
    planner = ChunkPlanner(reply.surface.limits)
    planner.feed(text)
    chunks = [chunk.text for chunk in planner.plan(Priority.FINAL).chunks]
    await reply.show("…", priority=Priority.PROGRESS)
    assert await reply.show(*chunks[:3])
    assert [message.pings for message in reply.messages] == [frozenset()] * len(chunks[:3])
    assert "<!channel>" in "".join(reply.texts) or "<<<" in reply.texts[0]


async def test_a_queued_reaction_is_removed_and_its_failures_delay_nothing(reply: SlackSurfaceReply) -> None:
    reply.queued_reactions.add(reply.address)
    await reply.slack.wait_for(lambda: reply.question.reactions.get("eyes") == [reply.slack.bot_user_id])
    reply.slack.faults.delay("reactions.remove", 1.0)
    reply.surface.remove_queued_reaction()
    assert reply.question.reactions
    await reply.slack.wait_for(lambda: not reply.question.reactions)
    await reply.queued_reactions.drain(1)
    reply.slack.faults.fail("reactions.add", error="no_permission")
    reply.queued_reactions.add(reply.address)
    reply.surface.remove_queued_reaction()
    await reply.queued_reactions.drain(1)
    assert not reply.question.reactions


async def test_a_lost_post_of_a_stream_update_ends_with_the_final_text(reply: SlackSurfaceReply) -> None:
    await reply.show("one", priority=Priority.PROGRESS)
    reply.slack.faults.lose_response("chat.postMessage")
    await reply.show("one", "tw", priority=Priority.STREAM_UPDATE)
    assert await reply.show("one", "two")
    assert reply.texts == ["one", "two"]
