import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.adk.tools.function_tool import FunctionTool
from hypothesis import given
from hypothesis import strategies as st
from slack_sdk.web.async_client import AsyncWebClient

from channels.base import Chunk, Plan, Priority, ShownToolCall, ToolCallState
from channels.i18n import messages as words
from channels.i18n.messages import ENGLISH, PLACEHOLDER
from channels.replies.chunk_planner import ChunkPlanner
from channels.replies.diff import StartStream
from channels.replies.executor import Executor
from channels.replies.stream import Card, TaskCards
from channels.slack.client.api import SlackApi
from channels.slack.client.rate_limits import TIER_3
from channels.slack.replies.reactions import make_queued_reactions
from channels.slack.replies.streaming import MAX_STREAM_BYTES, StreamPolicy
from channels.slack.replies.surface import LIMITS, SlackSurface
from channels.slack.settings import Streaming
from chatrig.models import CallTool, Pause, Say
from chatrig.slack import SlackMessage, SlackSimulator
from tests.channels.platforms import SlackChat
from tests.channels.slack.conftest import run_bot
from tests.fixtures.executed_reply import ExecutedReply

STREAM_CALLS = ("chat.startStream", "chat.appendStream", "chat.stopStream")


def create_plan(text: str, priority: Priority, status: str = "", waited: str = "") -> Plan:
    """Return the plan of a reply with this text.

    Args:
        status: the status line of a running tool.
        waited: the elapsed time after the status line.
    """
    planner = ChunkPlanner(LIMITS)
    planner.feed(text)
    chunks = list(planner.plan(priority).chunks)
    if not chunks:
        return Plan(
            [Chunk(0, 0, f"{status or PLACEHOLDER}{waited}")], priority, is_growing=True, status=status, elapsed=waited
        )
    if status:
        chunks[-1] = replace(chunks[-1], text=f"{chunks[-1].text}\n\n{status}{waited}")
    return Plan(chunks, priority, is_growing=priority is not Priority.FINAL, status=status, elapsed=waited)


class StreamedReply(ExecutedReply):
    """Streamed reply to a question in Slack, with the message ids that it has stored."""

    def __init__(
        self,
        slack: SlackSimulator,
        web: AsyncWebClient,
        question: SlackMessage,
        streams: StreamPolicy,
        turn_id: str = "turn-1",
    ) -> None:
        self.slack = slack
        self.question = question
        self.api = SlackApi(web, pauses=(0.01, 0.01), speed=100)
        self.address: dict[str, Any] = {
            "team": slack.team_id,
            "channel": question.channel.id,
            "thread_ts": question.thread_ts or question.ts,
            "ts": question.ts,
            "user": slack.people["ada"].id,
            "user_team": slack.team_id,
            "bot": slack.bot_user_id,
        }
        super().__init__(self.create_surface(turn_id, streams))
        self.tool_calls: list[ShownToolCall] = []

    def create_surface(self, turn_id: str = "turn-1", streams: StreamPolicy | None = None) -> SlackSurface:
        reactions = make_queued_reactions(self.api)
        return SlackSurface(self.api, reactions, self.address, turn_id, stream_policy=streams)

    async def find(self) -> list[str]:
        """Return the message ids that a restarted process finds."""
        return await self.create_surface().find_message_ids(self.known, stops_stream=True)

    async def write(self, text: str, priority: Priority = Priority.STREAM_UPDATE, **status: str) -> bool:
        line = status.get("status", "")
        if not (self.tool_calls and self.tool_calls[-1].line == line):
            self.tool_calls = [replace(call, state=ToolCallState.DONE) for call in self.tool_calls]
            self.tool_calls += [ShownToolCall(line)] if line else []
        return await self.show_plan(replace(create_plan(text, priority, **status), tool_calls=self.tool_calls))

    async def begin(self) -> None:
        assert await self.write("")

    async def end(self, text: str) -> None:
        assert await self.write(text, Priority.FINAL)

    @property
    def messages(self) -> list[SlackMessage]:
        root = self.question.thread_ts or self.question.ts
        return [message for message in self.slack.messages(self.question.channel, thread_ts=root) if message.bot_id]

    @property
    def tasks(self) -> list[tuple[str, str]]:
        """Titles and states of the task cards of the first message."""
        return [(task.title, task.status) for task in self.messages[0].tasks]

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.messages]

    def list_calls(self, *methods: str) -> list[str]:
        """Return the API methods of the writing calls, oldest first, without `chat.`.

        Args:
            methods: the methods to list, with `chat.`; by default all.
        """
        wanted = methods or (*STREAM_CALLS, "chat.postMessage", "chat.update")
        return [call.method.removeprefix("chat.") for call in self.slack.calls if call.method in wanted]

    def check_complete(self, *texts: str) -> None:
        """Check that the reply has exactly these texts, as complete and recorded messages."""
        assert self.texts == list(texts)
        assert [message.ts for message in self.messages] == self.known
        assert not any(message.stream and message.stream.is_live for message in self.messages)
        assert not any(task.title == PLACEHOLDER for message in self.messages for task in message.tasks)
        marks = [(message.metadata or {}).get("event_payload", {}).get("chunk") for message in self.messages]
        assert marks == list(range(len(texts)))


@pytest.fixture
async def streams() -> StreamPolicy:
    return StreamPolicy("native")


@pytest.fixture
async def reply(slack: SlackSimulator, web: AsyncWebClient, streams: StreamPolicy) -> AsyncIterator[StreamedReply]:
    on = StreamedReply(slack, web, await slack.post_message("ada", "general", "question"), streams)
    with on.executor.track():
        yield on


async def test_a_streamed_reply_grows_by_appends_and_ends_without_tasks(reply: StreamedReply) -> None:
    await reply.begin()
    assert reply.tasks == [(PLACEHOLDER, "in_progress")]
    for text in ("It", "It is", "It is 42,"):
        assert await reply.write(text)
    await reply.end("It is 42, you know.")
    assert reply.list_calls() == ["startStream", *["appendStream"] * 3, "stopStream", "update"]
    assert [version.text for version in reply.messages[0].versions] == [
        *("", "It", "It is", "It is 42,"),
        *("It is 42, you know.", "It is 42, you know."),
    ]
    reply.check_complete("It is 42, you know.")
    assert (reply.messages[0].unfurl_links, reply.messages[0].unfurl_media) == (False, False)


async def test_tools_are_tasks_that_stay_above_an_unedited_answer(reply: StreamedReply) -> None:
    await reply.begin()
    await reply.write("", status=ENGLISH.format_tool("search_web"))
    await reply.write("", status=ENGLISH.format_tool("search_web"), waited=" (15 s)")
    assert reply.tasks == [("Using search web… (15 s)", "in_progress")]
    await reply.write("", status=ENGLISH.format_tool("read"))
    await reply.write("Found")
    assert reply.tasks == [("Using search web", "complete"), ("Using read", "complete")]
    await reply.end("Found it.")
    assert reply.list_calls("chat.update") == []
    reply.check_complete("Found it.")
    assert reply.tasks == [("Using search web", "complete"), ("Using read", "complete")]


async def test_text_that_may_still_change_is_not_appended(reply: StreamedReply) -> None:
    await reply.begin()
    for text in ("See **bo", "See **bold** [the pa", "See **bold** [the page](https://x.y/z) <", "See **bold** "):
        await reply.write(text)
        assert "See **bold** [the page](https://x.y/z) <!here> and".startswith(reply.messages[0].text)
    await reply.end("See **bold** [the page](https://x.y/z) <!here> and")
    assert reply.list_calls("chat.appendStream", "chat.stopStream")[-1] == "stopStream"
    assert reply.messages[0].pings == frozenset()


@given(
    st.lists(
        st.sampled_from(
            ["word ", "**", "*", "`co", "de` ", "[a](https://b.c)", "\n\n", "- x\n", "```\n", "<!here>", "<"]
        )
    )
)
def test_stable_text_never_changes_while_the_message_grows(pieces: list[str]) -> None:
    planner, settled = ChunkPlanner(LIMITS), ""
    for piece in pieces:
        planner.feed(piece)
        chunks = planner.plan(Priority.STREAM_UPDATE).chunks
        if chunks:
            assert len(chunks) == 1
            assert chunks[0].text.startswith(settled)
            settled = chunks[0].text[: chunks[0].stable_length].rstrip("<")


async def test_a_replaced_text_ends_the_stream_and_is_edited_in(reply: StreamedReply) -> None:
    await reply.begin()
    await reply.write("The password is hun")
    await reply.write("I may not tell.")
    assert reply.texts == ["I may not tell."]
    await reply.write("I may not tell. S")
    await reply.end("I may not tell. Sorry.")
    assert reply.list_calls() == ["startStream", "appendStream", "stopStream", "update", "update", "update"]
    reply.check_complete("I may not tell. Sorry.")


async def test_retracted_text_is_removed_even_if_the_new_text_is_its_prefix(reply: StreamedReply) -> None:
    await reply.begin()
    await reply.write("Yes, and the password is hunter2")
    await reply.write("Yes")
    assert reply.texts == ["Yes"]
    await reply.end("Yes")
    reply.check_complete("Yes")


async def test_a_long_reply_continues_in_another_stream(reply: StreamedReply) -> None:
    text = "\n\n".join(f"Paragraph {number}. " + "word " * 60 for number in range(30))
    await reply.begin()
    for end in range(400, len(text), 400):
        assert await reply.write(text[:end])
    assert len(reply.messages) > 2
    assert sum(bool(message.stream and message.stream.is_live) for message in reply.messages) <= 1
    await reply.end(text)
    reply.check_complete(*[chunk.text for chunk in create_plan(text, Priority.FINAL).chunks])
    assert not [call for call in reply.slack.calls if call.error and call.error != "streaming_state_conflict"]


async def test_a_stream_near_its_time_limit_is_stopped_and_then_edited(
    slack: SlackSimulator, web: AsyncWebClient
) -> None:
    on = StreamedReply(
        slack, web, await slack.post_message("ada", "general", "question"), StreamPolicy("native", seconds=2.0)
    )
    with on.executor.track():
        await on.begin()
        await on.write("before")
        await asyncio.sleep(2.0)
        await on.write("before and")
        await on.write("before and after")
        assert on.list_calls() == ["startStream", "appendStream", "stopStream", "update", "update"]
        await on.end("before and after.")
    on.check_complete("before and after.")


async def test_a_stream_near_its_time_limit_is_stopped_without_new_text(
    slack: SlackSimulator, web: AsyncWebClient
) -> None:
    on = StreamedReply(
        slack, web, await slack.post_message("ada", "general", "question"), StreamPolicy("native", seconds=0.1)
    )
    with on.executor.track():
        await on.begin()
        await on.write("a")
        await asyncio.sleep(0.1)
        await on.write("a")
    assert not (on.messages[0].stream and on.messages[0].stream.is_live)
    assert on.texts == ["a"]


async def test_a_stream_with_too_many_tasks_is_stopped_before_slack_refuses(reply: StreamedReply) -> None:
    await reply.begin()
    for number in range(60):
        await reply.write("", status=ENGLISH.format_tool(f"tool_{number}_{'x' * 100}"))
    assert "update" in reply.list_calls()
    assert not [call for call in reply.slack.calls if call.error]
    await reply.end("done")
    reply.check_complete("done")


async def test_an_edit_is_reserved_only_for_a_stream_that_ends_with_one(reply: StreamedReply) -> None:
    edits = reply.api.for_team(reply.slack.team_id).get_limiter(("chat.update", reply.slack.team_id), TIER_3)
    most = int(0.8 * TIER_3.calls)
    await reply.begin()
    assert not edits.can_reserve(most)
    await reply.write("", status=ENGLISH.format_tool("search"))  # a card that may stay
    assert edits.can_reserve(most)
    await reply.slack.end_streams()
    await reply.write("one")
    assert reply.list_calls()[-1] == "update"
    assert not edits.can_reserve(most)
    await reply.end("one two")
    reply.check_complete("one two")


def _lose_all(slack: SlackSimulator, method: str) -> None:
    slack.faults.lose_response(method)
    slack.faults.fail("conversations.replies")


FAULTS: dict[str, Callable[[SlackSimulator, str], None]] = {
    "lost": lambda slack, method: slack.faults.lose_response(method),
    "lost and the look for it fails": _lose_all,
    "down": lambda slack, method: slack.faults.fail(method),
    "down for long": lambda slack, method: slack.faults.fail(method, 3),
    "too often": lambda slack, method: slack.faults.rate_limit(method, 0),
    "over": lambda slack, method: slack.faults.fail(method, error="message_not_in_streaming_state"),
    "too long": lambda slack, method: slack.faults.fail(method, error="msg_too_long"),
    "unknown": lambda slack, method: slack.faults.fail(method, error="unknown_method"),
    "no answer that makes sense": lambda slack, method: slack.faults.fail(method, error="internal_error"),
}


@pytest.mark.parametrize("method", STREAM_CALLS)
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_reply_is_complete_and_shown_once_whatever_call_fails(
    reply: StreamedReply, method: str, fault: str
) -> None:
    FAULTS[fault](reply.slack, method)
    await reply.begin()
    for text in ("one", "one two", "one two three"):
        await reply.write(text)
    await reply.end("one two three four")
    reply.check_complete("one two three four")


async def test_a_refused_stream_pauses_streaming_for_other_replies(
    reply: StreamedReply, web: AsyncWebClient, streams: StreamPolicy
) -> None:
    reply.slack.faults.fail("chat.startStream", 9, error="channel_type_not_supported")
    await reply.begin()
    other = StreamedReply(reply.slack, web, await reply.slack.post_message("ada", "general", "another"), streams)
    with other.executor.track():
        await other.begin()
    assert reply.list_calls("chat.startStream") == ["startStream"]


async def test_concurrent_replies_do_not_mix(slack: SlackSimulator, web: AsyncWebClient, streams: StreamPolicy) -> None:
    replies = [
        StreamedReply(slack, web, await slack.post_message("ada", "general", name), streams) for name in ("a", "b")
    ]

    async def stream_words(on: StreamedReply) -> None:
        word = on.question.text
        with on.executor.track():
            await on.begin()
            for count in range(1, 6):
                await on.write(f"{word} " * count)
            await on.end(f"{word} " * 6)

    await asyncio.gather(*map(stream_words, replies))
    for on in replies:
        on.check_complete((f"{on.question.text} " * 6).strip())


async def test_a_rate_limit_during_a_stream_delays_text_and_loses_none(reply: StreamedReply) -> None:
    await reply.begin()
    reply.slack.faults.rate_limit("chat.appendStream", 30)
    assert not await reply.write("one")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reply.write("one two"), 0.3)
    assert reply.list_calls("chat.appendStream") == ["appendStream"]
    await reply.end("one two three")
    reply.check_complete("one two three")


async def test_no_stream_is_started_without_a_call_to_stop_it(
    slack: SlackSimulator, web: AsyncWebClient, streams: StreamPolicy
) -> None:
    api = SlackApi(web)
    started = []
    for number in range(22):
        on = StreamedReply(slack, web, await slack.post_message("ada", slack.open_dm("ada"), str(number)), streams)
        on.api = api
        on.restart(on.create_surface(f"turn-{number}", streams))
        with on.executor.track():
            await on.begin()
            await on.end("done")
        assert on.texts[-1] == "done"
        started.append(on.list_calls("chat.startStream"))
    assert len(started[-1]) == 20
    assert not [call for call in slack.calls if call.rate_limited]


async def test_a_restart_finds_streamed_and_posted_messages_in_order(reply: StreamedReply) -> None:
    text = "\n\n".join(f"Paragraph {number}. " + "word " * 60 for number in range(16))
    await reply.begin()
    for end in range(800, len(text), 800):
        await reply.write(text[:end])
    assert len(reply.known) > 1
    assert await reply.find() == reply.known


async def test_a_restart_deletes_an_extra_stream(reply: StreamedReply) -> None:
    text = "\n\n".join(f"Paragraph {number}. " + "word " * 60 for number in range(16))
    await reply.begin()
    for end in range(800, len(text), 800):
        await reply.write(text[:end])
    reply.restart(reply.create_surface())
    assert len(reply.known) > 1
    await reply.end("something else")
    reply.check_complete("something else")


async def test_a_stream_of_another_turn_is_not_found(reply: StreamedReply, web: AsyncWebClient) -> None:
    await reply.begin()
    await reply.end("the first answer")
    question = await reply.slack.post_message("ada", "general", "and then?", thread_ts=reply.question.ts)
    other = StreamedReply(reply.slack, web, question, StreamPolicy("native"), turn_id="turn-2")
    assert await other.find() == []


async def test_a_message_that_another_program_posts_as_the_bot_is_neither_edited_nor_deleted(
    reply: StreamedReply, web: AsyncWebClient
) -> None:
    await reply.begin()
    foreign = await web.chat_postMessage(channel=reply.question.channel.id, thread_ts=reply.question.ts, text="foreign")
    await reply.write("half an")
    assert await reply.find() == reply.known
    reply.restart(reply.create_surface())
    await reply.end("half an answer")
    assert reply.texts == ["half an answer", "foreign"]
    assert foreign["ts"] not in reply.known


async def test_a_stream_that_a_crash_left_without_an_id_is_found(reply: StreamedReply) -> None:
    await reply.begin()
    reply.known.clear()  # the process dies before it stores the id
    found = await reply.find()
    reply.restart(reply.create_surface(), found)
    await reply.end("the answer")
    reply.check_complete("the answer")


@pytest.mark.parametrize(
    ("streaming", "place", "is_native"),
    [
        ("auto", "a direct message", True),
        ("auto", "a question that opens a thread", True),
        ("auto", "a thread that goes on", False),
        ("native", "a thread that goes on", True),
    ],
)
async def test_auto_streams_in_direct_messages_and_new_threads(
    slack: SlackSimulator, web: AsyncWebClient, streaming: Streaming, place: str, is_native: bool
) -> None:
    channel = slack.open_dm("ada") if place == "a direct message" else slack.channels["general"]
    question = await slack.post_message("ada", channel, "question")
    if place == "a thread that goes on":
        question = await slack.post_message("ada", channel, "another", thread_ts=question.ts)
    on = StreamedReply(slack, web, question, StreamPolicy(streaming))
    with on.executor.track():
        await on.begin()
    assert on.list_calls() == ["startStream" if is_native else "postMessage"]
    (call,) = [call for call in slack.calls if call.method.startswith("chat.")]
    assert ("recipient_user_id" in call.arguments) == (is_native and not channel.is_dm)


async def ignore_ids(_ids: object) -> None:
    """Do nothing with the message ids of a reply."""


async def test_auto_uses_edits_once_they_are_faster_than_streams(slack: SlackSimulator, web: AsyncWebClient) -> None:
    api, streams, streamed = SlackApi(web), StreamPolicy("auto"), []
    channel = slack.open_dm("ada")
    address = StreamedReply(slack, web, await slack.post_message("ada", channel, "question"), streams).address
    reactions = make_queued_reactions(api)
    surfaces = [SlackSurface(api, reactions, address, f"turn-{n}", stream_policy=streams) for n in range(9)]
    executors = [Executor(surface, (), ignore_ids) for surface in surfaces]
    for executor in executors:
        streamed.append(isinstance(executor.choose(create_plan("", Priority.STREAM_UPDATE)), StartStream))
    assert sum(streamed) == 7  # 100 stream calls a minute, 50 of other methods, and some are reserved


async def test_a_reply_without_a_known_author_is_edited(
    slack: SlackSimulator, web: AsyncWebClient, streams: StreamPolicy
) -> None:
    on = StreamedReply(slack, web, await slack.post_message("ada", "general", "question"), streams)
    on.address = {name: on.address[name] for name in ("team", "channel", "thread_ts", "ts")}
    on.restart(on.create_surface(streams=streams))
    with on.executor.track():
        await on.begin()
        await on.end("done")
    assert on.list_calls() == ["postMessage", "update"]


async def test_the_bot_streams_its_answer_with_its_tools(slack: SlackSimulator, tmp_path: Path) -> None:
    script = [Say("The quick brown fox jumps over the lazy dog.", pieces=10, pace=0.3)]
    async with run_bot(slack, tmp_path, *script, streaming="auto") as bot:
        question = await bot.mention_bot("ada", "general", "go")
        await bot.wait_for_turns(1)
        (answer,) = bot.list_thread(question)[1:]
        assert answer.text == "The quick brown fox jumps over the lazy dog."
        assert len({version.text for version in answer.versions}) > 3
        assert answer.stream is not None
        assert answer.stream.recipient == slack.people["ada"].id


@pytest.mark.parametrize("decision", [words.APPROVE, words.DENY])
async def test_a_call_that_waits_or_was_denied_has_no_check_mark(
    slack: SlackSimulator, tmp_path: Path, decision: str
) -> None:
    tools = [FunctionTool(refund, require_confirmation=True)]
    script = [CallTool("refund", {})], [Pause(0.3), Say("So be it.")]
    async with run_bot(slack, tmp_path, *script, streaming="native", core={"tools": tools}) as bot:
        chat = SlackChat(bot, "general")
        await chat.say("refund please")
        await chat.simulator.wait_for(lambda: any(words.DENY in message.buttons for message in chat.list_replies()))
        await bot.wait_for_turns(1)
        seen = [task.status for version in chat.list_replies()[0].versions for task in version.tasks]
        assert set(seen) <= {"in_progress", "pending"}
        assert chat.list_replies()[0].tasks == ()
        await chat.press(decision)
        await bot.wait_for_turns(2)
        answer = chat.list_replies()[-1]
        status = "complete" if decision == words.APPROVE else "error"
        assert (answer.text, [(task.title, task.status) for task in answer.tasks]) == (
            "So be it.",
            [("Using refund", status)],
        )


async def test_a_call_that_failed_has_no_check_mark(slack: SlackSimulator, tmp_path: Path) -> None:
    script = [CallTool("fail", {}, id="a"), CallTool("refund", {}, id="b")], [Pause(0.3), Say("So be it.")]
    async with run_bot(slack, tmp_path, *script, streaming="native", core={"tools": [fail, refund]}) as bot:
        chat = SlackChat(bot, "general")
        await chat.say("go")
        await bot.wait_for_turns(1)
        tasks = [(task.title, task.status) for task in chat.list_replies()[0].tasks]
        assert tasks == [("Using fail", "error"), ("Using refund", "complete")]


async def test_a_stream_with_thinking_that_is_taken_back_ends_in_an_edit(slack: SlackSimulator, tmp_path: Path) -> None:
    step = Say("secret thoughts. " * 8 + "</think>The answer.", pieces=20, pace=0.1)
    async with run_bot(slack, tmp_path, [step], streaming="native") as bot:
        chat = SlackChat(bot, "general")
        await chat.say("go")
        await bot.wait_for_turns(1)
        (answer,) = chat.list_replies()
        assert answer.text == "The answer."
        assert any("secret" in version.text for version in answer.versions)
        assert answer.stream is not None
        assert not answer.stream.is_live


def refund() -> str:
    """Refund."""
    return "ok"


def fail() -> str:
    """Fail."""
    raise ValueError("broken")


def test_the_card_of_the_placeholder_becomes_the_card_of_the_first_tool() -> None:
    plan, line = create_plan("", Priority.PROGRESS), ENGLISH.format_tool("search")
    cards = TaskCards().update(plan, is_silent=True)
    assert cards.shown == (Card("…"),)
    cards = cards.update(replace(plan, tool_calls=[ShownToolCall(line)]), is_silent=True)
    assert cards.shown == (Card("Using search…"),)
    cards = cards.update(replace(plan, tool_calls=[ShownToolCall(line, ToolCallState.DONE)]), is_silent=True)
    assert cards.shown == (Card("Using search", ToolCallState.DONE),)
    assert cards.is_final
    assert not cards.is_placeholder


def test_each_call_has_a_card_that_is_complete_only_at_its_end() -> None:
    calls = [ShownToolCall(ENGLISH.format_tool(name)) for name in ("a", "b")]
    plan = create_plan("", Priority.PROGRESS)
    before = TaskCards().update(replace(plan, tool_calls=calls), is_silent=True)
    calls[0] = replace(calls[0], state=ToolCallState.FAILED)
    cards = before.update(replace(plan, tool_calls=calls), is_silent=True)
    assert cards.get_changes(before) == ((1, Card("Using a", ToolCallState.FAILED)),)
    assert not cards.is_final
    calls[1] = replace(calls[1], state=ToolCallState.WAITING)
    before, cards = cards, cards.update(replace(plan, tool_calls=calls), is_silent=True)
    assert cards.get_changes(before) == ((2, Card("Using b", ToolCallState.WAITING)),)
    assert not cards.is_final


def test_a_stream_is_stopped_before_slack_ends_it() -> None:
    assert MAX_STREAM_BYTES < 10_000
    assert StreamPolicy().seconds < 290
