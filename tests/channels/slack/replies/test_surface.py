import asyncio
from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from channels.base import Chunk, Plan, Priority
from channels.replies.chunk_planner import Planner
from channels.slack.client.api import SlackApi
from channels.slack.replies.reactions import make_queued_reactions
from channels.slack.replies.surface import SlackSurface
from core.errors import SurfaceError
from sandbox.slack import SlackMessage, SlackSandbox

#: Seconds between the attempts at a call that failed in passing.
PAUSES = (0.01, 0.01)


async def unrecorded(_position: int, _ts: str) -> None:
    raise AssertionError("it stands by now")


class Shown:
    """A surface under a question, and the ids that it has recorded."""

    def __init__(self, slack: SlackSandbox, web: AsyncWebClient, question: SlackMessage) -> None:
        self.slack = slack
        self.question = question
        self.api = SlackApi(web, pauses=PAUSES)
        self.address: dict[str, Any] = {
            "team": slack.team_id,
            "channel": question.channel.id,
            "thread_ts": question.ts,
            "ts": question.ts,
        }
        self.receipts = make_queued_reactions(self.api)
        self.surface = SlackSurface(self.api, self.receipts, self.address, "turn-1")
        self.known: list[str] = []

    async def show(self, *texts: str, priority: Priority = Priority.FINAL) -> bool:
        async def record(position: int, ts: str) -> None:
            assert position <= len(self.known)
            self.known[position:] = [ts, *self.known[position + 1 :]]

        plan = Plan([Chunk(0, 0, text) for text in texts], priority)
        shown = await self.surface.show(plan, tuple(self.known), record)
        if shown:
            del self.known[len(texts) :]
        return shown

    @property
    def messages(self) -> list[SlackMessage]:
        return self.slack.messages("general", thread_ts=self.question.ts)[1:]

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.messages]

    def calls(self, method: str) -> int:
        return sum(call.method == method for call in self.slack.calls)


@pytest.fixture
async def on(slack: SlackSandbox, web: AsyncWebClient) -> Shown:
    return Shown(slack, web, await slack.post_message("ada", "general", "question"))


async def test_a_placeholder_grows_into_the_answer(on: Shown) -> None:
    assert await on.show("…", priority=Priority.PROGRESS)
    assert await on.show("It", priority=Priority.STREAM_UPDATE)
    assert await on.show("It is 42.")
    (message,) = on.messages
    assert [version.text for version in message.versions] == ["…", "It", "It is 42."]
    assert message.ts == on.known[0]
    assert not message.edited
    assert (message.unfurl_links, message.unfurl_media) == (False, False)


async def test_messages_are_added_and_taken_away_as_the_plan_has_them(on: Shown) -> None:
    await on.show("one")
    await on.show("one", "two", "three")
    assert on.texts == ["one", "two", "three"]
    await on.show("1", "two")
    assert on.texts == ["1", "two"]
    assert [message.ts for message in on.messages] == on.known
    assert on.calls("chat.update") == 1


async def test_what_stands_already_is_not_sent_again(on: Shown) -> None:
    await on.show("one", "two")
    before = len(on.slack.calls)
    assert await on.show("one", "two", priority=Priority.STREAM_UPDATE)
    assert len(on.slack.calls) == before


async def test_a_message_that_somebody_deleted_is_posted_anew(on: Shown, web: AsyncWebClient) -> None:
    await on.show("one", "two")
    await web.chat_delete(channel=on.question.channel.id, ts=on.known[0])
    await on.show("one more", "two")
    assert sorted(on.texts) == ["one more", "two"]
    assert len(set(on.known)) == 2


@pytest.mark.parametrize("code", ["cant_update_message", "edit_window_closed"])
async def test_a_message_that_may_not_be_edited_any_more_is_followed_by_a_new_one(on: Shown, code: str) -> None:
    await on.show("half an ans")
    on.slack.faults.fail("chat.update", error=code)
    await on.show("half an answer")
    assert on.texts == ["half an ans", "half an answer"]


async def test_a_left_over_message_that_is_gone_is_no_fault(on: Shown, web: AsyncWebClient) -> None:
    await on.show("one", "two")
    await web.chat_delete(channel=on.question.channel.id, ts=on.known[1])
    assert await on.show("one")
    assert on.texts == ["one"]


async def test_a_refusal_is_waited_out_and_ticks_are_dropped_meanwhile(on: Shown) -> None:
    await on.show("…", priority=Priority.PROGRESS)
    on.slack.faults.rate_limit("chat.update", retry_after=1)
    begun = asyncio.get_running_loop().time()
    assert not await on.show("a", priority=Priority.STREAM_UPDATE)
    assert not await on.show("a b", priority=Priority.STREAM_UPDATE)
    assert on.calls("chat.update") == 1
    assert await on.show("a b c")
    assert 1 <= asyncio.get_running_loop().time() - begun < 2
    assert on.calls("chat.update") == 2
    assert on.texts == ["a b c"]


async def test_a_long_answer_is_posted_no_faster_than_slack_allows(on: Shown) -> None:
    texts = [str(number) for number in range(7)]
    assert await on.show(*texts)
    assert on.texts == texts
    assert not [call.method for call in on.slack.calls if call.status == 429]


@pytest.mark.parametrize("method", ["chat.postMessage", "chat.update"])
async def test_however_often_slack_says_later_nothing_is_given_up(on: Shown, method: str) -> None:
    await on.show("…", priority=Priority.PROGRESS)
    on.slack.faults.rate_limit(method, 0, times=len(PAUSES) + 1)
    assert await on.show("one", "two")
    assert on.texts == ["one", "two"]


@pytest.mark.parametrize("status", [500, 502, 503])
async def test_an_edit_that_failed_in_passing_is_made_again(on: Shown, status: int) -> None:
    await on.show("…", priority=Priority.PROGRESS)
    on.slack.faults.fail("chat.update", 2, status=status)
    assert await on.show("done")
    assert on.texts == ["done"]
    assert on.calls("chat.update") == 3


async def test_an_edit_whose_connection_was_cut_is_made_again(on: Shown) -> None:
    await on.show("…", priority=Priority.PROGRESS)
    on.slack.faults.lose_response("chat.update", 2)
    assert await on.show("done")
    assert on.calls("chat.update") == 3


async def test_an_error_that_says_nothing_of_the_call_is_passing(on: Shown) -> None:
    on.slack.faults.fail("chat.postMessage", error="internal_error")
    assert await on.show("done")
    assert on.texts == ["done"]


async def test_a_tick_is_tried_once(on: Shown) -> None:
    await on.show("…", priority=Priority.PROGRESS)
    on.slack.faults.fail("chat.update", 3)
    assert not await on.show("a", priority=Priority.STREAM_UPDATE)
    assert on.calls("chat.update") == 1


async def test_a_post_whose_answer_was_lost_is_not_made_twice(on: Shown) -> None:
    on.slack.faults.lose_response("chat.postMessage", 2)
    assert await on.show("one", "two")
    assert on.texts == ["one", "two"]
    assert on.known == [message.ts for message in on.messages]
    assert on.calls("chat.postMessage") == 2


async def test_that_holds_even_if_the_search_for_it_fails_at_first(on: Shown) -> None:
    on.slack.faults.lose_response("chat.postMessage")
    on.slack.faults.fail("conversations.replies", 2)
    assert await on.show("one")
    assert on.texts == ["one"]
    assert on.calls("chat.postMessage") == 1


async def test_a_post_that_did_not_take_effect_is_made_again(on: Shown) -> None:
    on.slack.faults.fail("chat.postMessage", 2)
    assert await on.show("one")
    assert on.texts == ["one"]


async def test_a_post_of_another_turn_is_not_taken_for_it(on: Shown) -> None:
    await SlackSurface(on.api, on.receipts, on.address, "turn-0").post_message("one")
    on.slack.faults.fail("chat.postMessage")
    await on.show("one")
    assert on.texts == ["one", "one"]


@pytest.mark.parametrize("code", ["not_in_channel", "channel_not_found", "is_archived", "msg_too_long", "invalid_auth"])
@pytest.mark.parametrize("method", ["chat.postMessage", "chat.update"])
async def test_what_slack_refuses_for_good_is_named_and_not_tried_again(on: Shown, method: str, code: str) -> None:
    if method == "chat.update":
        await on.show("…", priority=Priority.PROGRESS)
    on.slack.faults.fail(method, 5, error=code)
    with pytest.raises(SurfaceError, match=f"^{method}: {code}$"):
        await on.show("done")
    assert on.calls(method) == 1


async def test_an_archived_channel_is_named(on: Shown) -> None:
    on.slack.channels["general"].archived = True
    with pytest.raises(SurfaceError, match="is_archived"):
        await on.show("done")


async def test_a_slack_that_stays_away_is_given_up_after_some_attempts(on: Shown) -> None:
    on.slack.faults.fail("chat.postMessage", 50)
    with pytest.raises(SurfaceError, match=r"chat.postMessage: out of reach \(HTTP 500\)"):
        await on.show("done")
    assert on.calls("chat.postMessage") == 3


async def test_a_reply_found_after_a_restart_is_edited_in_place(on: Shown) -> None:
    await on.show("half an ans", "left over")
    on.surface = SlackSurface(on.api, on.receipts, on.address, "turn-1")
    await on.show("the answer")
    assert on.texts == ["the answer"]


async def test_late_calls_of_another_worker_are_undone_when_the_final_text_is_shown(on: Shown) -> None:
    await on.show("half an ans")
    (first,) = on.known
    mine = SlackSurface(on.api, on.receipts, on.address, "turn-1")
    assert await mine.find_message_ids(on.known, is_contested=True) == [first]
    answering = asyncio.create_task(mine.show(Plan([Chunk(0, 0, "the answer")], Priority.FINAL), [first], unrecorded))
    while on.texts != ["the answer"]:  # noqa: ASYNC110 (the sandbox tells nothing)
        await asyncio.sleep(0.01)
    await on.show("…(15s)", "and more")
    assert len(on.texts) == 2
    assert await answering
    assert on.texts == ["the answer"]


async def test_of_two_messages_in_one_place_the_one_that_is_recorded_is_the_replys(on: Shown) -> None:
    await on.show("recorded")
    (recorded,) = on.known
    on.known.clear()
    await on.show("posted by who had lost the turn")
    taken = SlackSurface(on.api, on.receipts, on.address, "turn-1")
    assert await taken.find_message_ids([recorded]) == [recorded]


HOSTILE = "<!channel> <@U0AAAAAAA> <!subteam^S1> <!here|x> <https://evil.example|bank.example> "


@pytest.mark.parametrize(
    "text",
    [HOSTILE * 100, "```\n" + HOSTILE * 100 + "\n```", ("x" * 3401 + HOSTILE) * 3, "`" + HOSTILE + "`", "<" * 4000],
)
async def test_nothing_that_the_model_says_pings_anyone_wherever_it_is_cut(on: Shown, text: str) -> None:
    planner = Planner(on.surface.limits)
    planner.feed(text)
    chunks = [chunk.text for chunk in planner.plan(Priority.FINAL).chunks]
    await on.show("…", priority=Priority.PROGRESS)
    assert await on.show(*chunks[:3])
    assert [message.pings for message in on.messages] == [frozenset()] * len(chunks[:3])
    assert "<!channel>" in "".join(on.texts) or "<<<" in on.texts[0]


async def test_a_receipt_is_given_and_taken_back_and_its_faults_hold_nothing_up(on: Shown) -> None:
    on.receipts.add(on.address)
    await on.slack.wait_for(lambda: on.question.reactions.get("eyes") == [on.slack.bot_user_id])
    on.slack.faults.delay("reactions.remove", 1.0)
    await on.surface.remove_queued_reaction()
    assert on.question.reactions
    await on.slack.wait_for(lambda: not on.question.reactions)
    await on.receipts.drain(1)
    on.slack.faults.fail("reactions.add", error="no_permission")
    on.receipts.add(on.address)
    await on.surface.remove_queued_reaction()
    await on.receipts.drain(1)
    assert not on.question.reactions


async def test_a_post_of_a_tick_whose_answer_was_lost_is_taken_up_and_says_the_newest_text(on: Shown) -> None:
    await on.show("one", priority=Priority.PROGRESS)
    on.slack.faults.lose_response("chat.postMessage")
    await on.show("one", "tw", priority=Priority.STREAM_UPDATE)
    assert await on.show("one", "two")
    assert on.texts == ["one", "two"]
