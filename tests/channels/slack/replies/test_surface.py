import asyncio
from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from channels.base import Chunk, Plan, Priority
from channels.replies.chunk_planner import ChunkPlanner
from channels.slack.client.api import SlackApi
from channels.slack.replies.reactions import make_queued_reactions
from channels.slack.replies.surface import SlackSurface
from chatrig.slack import SlackMessage, SlackSimulator
from core.errors import SurfaceError

#: Seconds between the tries of a call with transient errors.
PAUSES = (0.01, 0.01)


async def refuse_record(_position: int, _ts: str) -> None:
    raise AssertionError("it stands by now")


class SlackSurfaceReply:
    """Slack reply surface for a question, with the message ids that it has recorded."""

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
        self.surface = SlackSurface(self.api, self.queued_reactions, self.address, "turn-1")
        self.known: list[str] = []

    async def show(self, *texts: str, priority: Priority = Priority.FINAL) -> bool:
        async def record(position: int, ts: str) -> None:
            assert position <= len(self.known)
            self.known[position:] = [ts, *self.known[position + 1 :]]

        plan = Plan([Chunk(0, 0, text) for text in texts], priority)
        is_complete = await self.surface.show(plan, tuple(self.known), record)
        if is_complete:
            del self.known[len(texts) :]
        return is_complete

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


async def test_a_placeholder_grows_into_the_answer(reply: SlackSurfaceReply) -> None:
    assert await reply.show("…", priority=Priority.PROGRESS)
    assert await reply.show("It", priority=Priority.STREAM_UPDATE)
    assert await reply.show("It is 42.")
    (message,) = reply.messages
    assert [version.text for version in message.versions] == ["…", "It", "It is 42."]
    assert message.ts == reply.known[0]
    assert not message.edited
    assert (message.unfurl_links, message.unfurl_media) == (False, False)


async def test_the_notification_of_a_message_has_no_markdown(reply: SlackSurfaceReply) -> None:
    await reply.show("# Done\n\n**See** [the page](https://x.y)\n\n| a | b |\n|---|---|\n| `&lt;T>` | 2 |")
    (message,) = reply.messages
    assert message.content.text == "Done\nSee the page\na b\n&lt;T&gt; 2"
    assert not message.pings


async def test_messages_are_posted_and_deleted_as_planned(reply: SlackSurfaceReply) -> None:
    await reply.show("one")
    await reply.show("one", "two", "three")
    assert reply.texts == ["one", "two", "three"]
    await reply.show("1", "two")
    assert reply.texts == ["1", "two"]
    assert [message.ts for message in reply.messages] == reply.known
    assert reply.count_calls("chat.update") == 1


async def test_unchanged_messages_are_not_sent_again(reply: SlackSurfaceReply) -> None:
    await reply.show("one", "two")
    before = len(reply.slack.calls)
    assert await reply.show("one", "two", priority=Priority.STREAM_UPDATE)
    assert len(reply.slack.calls) == before


async def test_a_deleted_message_is_posted_again(reply: SlackSurfaceReply, web: AsyncWebClient) -> None:
    await reply.show("one", "two")
    await web.chat_delete(channel=reply.question.channel.id, ts=reply.known[0])
    await reply.show("one more", "two")
    assert sorted(reply.texts) == ["one more", "two"]
    assert len(set(reply.known)) == 2


@pytest.mark.parametrize("code", ["cant_update_message", "edit_window_closed"])
async def test_a_message_that_cannot_be_edited_is_followed_by_a_new_one(reply: SlackSurfaceReply, code: str) -> None:
    await reply.show("half an ans")
    reply.slack.faults.fail("chat.update", error=code)
    await reply.show("half an answer")
    assert reply.texts == ["half an ans", "half an answer"]


async def test_a_leftover_message_may_be_deleted_already(reply: SlackSurfaceReply, web: AsyncWebClient) -> None:
    await reply.show("one", "two")
    await web.chat_delete(channel=reply.question.channel.id, ts=reply.known[1])
    assert await reply.show("one")
    assert reply.texts == ["one"]


async def test_stream_updates_are_dropped_during_a_rate_limit(reply: SlackSurfaceReply) -> None:
    await reply.show("…", priority=Priority.PROGRESS)
    reply.slack.faults.rate_limit("chat.update", retry_after=1)
    start = asyncio.get_running_loop().time()
    assert not await reply.show("a", priority=Priority.STREAM_UPDATE)
    assert not await reply.show("a b", priority=Priority.STREAM_UPDATE)
    assert reply.count_calls("chat.update") == 1
    assert await reply.show("a b c")
    assert asyncio.get_running_loop().time() - start >= 1
    assert reply.count_calls("chat.update") == 2
    assert reply.texts == ["a b c"]


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


@pytest.mark.parametrize("status", [500, 502, 503])
async def test_a_transient_failure_of_an_edit_is_retried(reply: SlackSurfaceReply, status: int) -> None:
    await reply.show("…", priority=Priority.PROGRESS)
    reply.slack.faults.fail("chat.update", 2, status=status)
    assert await reply.show("done")
    assert reply.texts == ["done"]
    assert reply.count_calls("chat.update") == 3


async def test_an_edit_with_a_lost_connection_is_retried(reply: SlackSurfaceReply) -> None:
    await reply.show("…", priority=Priority.PROGRESS)
    reply.slack.faults.lose_response("chat.update", 2)
    assert await reply.show("done")
    assert reply.count_calls("chat.update") == 3


async def test_an_internal_error_of_slack_is_transient(reply: SlackSurfaceReply) -> None:
    reply.slack.faults.fail("chat.postMessage", error="internal_error")
    assert await reply.show("done")
    assert reply.texts == ["done"]


async def test_a_stream_update_is_tried_once(reply: SlackSurfaceReply) -> None:
    await reply.show("…", priority=Priority.PROGRESS)
    reply.slack.faults.fail("chat.update", 3)
    assert not await reply.show("a", priority=Priority.STREAM_UPDATE)
    assert reply.count_calls("chat.update") == 1


async def test_a_post_whose_answer_was_lost_is_found_and_not_repeated(reply: SlackSurfaceReply) -> None:
    reply.slack.faults.lose_response("chat.postMessage", 2)
    assert await reply.show("one", "two")
    assert reply.texts == ["one", "two"]
    assert reply.known == [message.ts for message in reply.messages]
    assert reply.count_calls("chat.postMessage") == 2


async def test_a_lost_post_is_found_even_if_the_first_search_fails(reply: SlackSurfaceReply) -> None:
    reply.slack.faults.lose_response("chat.postMessage")
    reply.slack.faults.fail("conversations.replies", 2)
    assert await reply.show("one")
    assert reply.texts == ["one"]
    assert reply.count_calls("chat.postMessage") == 1


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


async def test_an_unreachable_slack_is_given_up_after_some_attempts(reply: SlackSurfaceReply) -> None:
    reply.slack.faults.fail("chat.postMessage", 50)
    with pytest.raises(SurfaceError, match=r"chat.postMessage: the platform cannot be reached \(HTTP 500\)"):
        await reply.show("done")
    assert reply.count_calls("chat.postMessage") == 3


async def test_a_reply_found_after_a_restart_is_edited_in_place(reply: SlackSurfaceReply) -> None:
    await reply.show("half an ans", "left over")
    reply.surface = SlackSurface(reply.api, reply.queued_reactions, reply.address, "turn-1")
    await reply.show("the answer")
    assert reply.texts == ["the answer"]


async def test_late_calls_of_another_worker_are_undone_when_the_final_text_is_shown(reply: SlackSurfaceReply) -> None:
    await reply.show("half an ans")
    (first,) = reply.known
    mine = SlackSurface(reply.api, reply.queued_reactions, reply.address, "turn-1")
    assert await mine.find_message_ids(reply.known, is_contested=True) == [first]
    answering = asyncio.create_task(
        mine.show(Plan([Chunk(0, 0, "the answer")], Priority.FINAL), [first], refuse_record)
    )
    while reply.texts != ["the answer"]:  # noqa: ASYNC110 (there is no event)
        await asyncio.sleep(0.01)
    await reply.show("…(15s)", "and more")
    assert len(reply.texts) == 2
    assert await answering
    assert reply.texts == ["the answer"]


async def test_of_two_messages_at_one_position_the_recorded_one_is_used(reply: SlackSurfaceReply) -> None:
    await reply.show("recorded")
    (recorded,) = reply.known
    reply.known.clear()
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
    await reply.surface.remove_queued_reaction()
    assert reply.question.reactions
    await reply.slack.wait_for(lambda: not reply.question.reactions)
    await reply.queued_reactions.drain(1)
    reply.slack.faults.fail("reactions.add", error="no_permission")
    reply.queued_reactions.add(reply.address)
    await reply.surface.remove_queued_reaction()
    await reply.queued_reactions.drain(1)
    assert not reply.question.reactions


async def test_a_lost_post_of_a_stream_update_ends_with_the_final_text(reply: SlackSurfaceReply) -> None:
    await reply.show("one", priority=Priority.PROGRESS)
    reply.slack.faults.lose_response("chat.postMessage")
    await reply.show("one", "tw", priority=Priority.STREAM_UPDATE)
    assert await reply.show("one", "two")
    assert reply.texts == ["one", "two"]
