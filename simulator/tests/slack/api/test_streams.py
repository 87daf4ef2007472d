import asyncio
from typing import Any

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from chatrig.slack import SlackMessage, SlackSimulator, TaskCard
from tests.slack.conftest import catch_error, create_client


@pytest.fixture
async def question(slack: SlackSimulator) -> SlackMessage:
    return await slack.post_message("ada", "general", "question")


def get_recipient(slack: SlackSimulator) -> dict[str, Any]:
    return {"recipient_user_id": slack.people["ada"].id, "recipient_team_id": slack.team_id}


def create_text_chunks(text: str) -> list[dict[str, Any]]:
    return [{"type": "markdown_text", "text": text}]


def create_task_chunk(status: str, title: str = "Looking", number: str = "1", **kwargs: str) -> dict[str, Any]:
    return {"type": "task_update", "id": number, "title": title, "status": status, **kwargs}


async def start_stream(
    slack: SlackSimulator, question: SlackMessage, **content: Any
) -> tuple[SlackMessage, dict[str, Any]]:
    """Start a stream in the thread of a question.

    Args:
        content: more arguments of `chat.startStream`.

    Returns:
        The stream's message, and the arguments that identify the stream.
    """
    started = await create_client(slack).chat_startStream(
        channel=question.channel.id, thread_ts=question.ts, **get_recipient(slack), **content
    )
    message = slack.messages(question.channel, thread_ts=question.ts)[-1]
    assert message.ts == started["ts"]
    return message, {"channel": question.channel.id, "ts": message.ts}


async def test_a_stream_becomes_a_message_at_its_end(
    slack: SlackSimulator, client: AsyncWebClient, question: SlackMessage
) -> None:
    message, stream = await start_stream(slack, question, markdown_text="It **is**")
    await client.chat_appendStream(**stream, markdown_text=" 42.")
    await client.chat_stopStream(**stream, markdown_text=" Sure.")
    assert [version.text for version in message.versions] == ["It **is**", "It **is** 42.", "It **is** 42. Sure."]
    assert (message.thread_ts, message.edited) == (question.ts, False)
    await client.chat_update(**stream, text="It is 43.")
    assert message.text == "It is 43."
    await client.chat_delete(**stream)
    assert message.deleted


async def test_tasks_are_cards_that_change_in_place(
    slack: SlackSimulator, client: AsyncWebClient, question: SlackMessage
) -> None:
    message, stream = await start_stream(slack, question, chunks=[create_task_chunk("in_progress", details="one")])
    await client.chat_appendStream(
        **stream, chunks=[*create_text_chunks("Found."), create_task_chunk("complete", "Looked", details=", two")]
    )
    await client.chat_appendStream(
        **stream, chunks=[create_task_chunk("pending", number="2"), {"type": "plan_update", "title": "P"}]
    )
    assert message.tasks == (
        TaskCard("1", "Looked", "complete", details="one, two"),
        TaskCard("2", "Looking", "pending"),
    )
    assert (message.text, message.content.plan) == ("Found.", "P")
    await client.chat_stopStream(**stream)
    await client.chat_update(**stream, text="Found it.")
    assert not message.versions[-1].tasks


async def test_only_the_recipient_sees_live_updates(
    slack: SlackSimulator, client: AsyncWebClient, question: SlackMessage
) -> None:
    message, stream = await start_stream(slack, question, markdown_text="a")
    await client.chat_appendStream(**stream, markdown_text="b")
    ada, grace = slack.people["ada"].id, slack.people["grace"].id
    assert (message.version_for(ada).text, message.version_for(grace).text) == ("ab", "a")
    await client.chat_stopStream(**stream)
    assert message.version_for(grace).text == "ab"


async def test_a_live_stream_can_be_neither_edited_nor_deleted(
    slack: SlackSimulator, client: AsyncWebClient, question: SlackMessage
) -> None:
    _, stream = await start_stream(slack, question)
    assert (await catch_error(client.chat_update(**stream, text="x")))["error"] == "streaming_state_conflict"
    assert (await catch_error(client.chat_delete(**stream)))["error"] == "cant_delete_message"


async def test_a_stream_in_a_channel_requires_a_recipient_and_a_thread(
    slack: SlackSimulator, client: AsyncWebClient, question: SlackMessage
) -> None:
    where: dict[str, Any] = {"channel": question.channel.id, "thread_ts": question.ts}
    user: dict[str, Any] = {"recipient_user_id": slack.people["ada"].id}
    team: dict[str, Any] = {"recipient_team_id": slack.team_id}
    start = client.chat_startStream
    assert (await catch_error(start(**where, **team)))["error"] == "missing_recipient_user_id"
    assert (await catch_error(start(**where, **user)))["error"] == "missing_recipient_team_id"
    assert (await catch_error(start(**where, recipient_user_id="U0NOBODY", **team)))["error"] == "user_not_found"
    nowhere = where | {"thread_ts": "1.000000"}
    assert (await catch_error(start(**nowhere, **get_recipient(slack))))["error"] == "thread_not_found"
    no_thread = client.api_call("chat.startStream", json={"channel": question.channel.id} | get_recipient(slack))
    assert (await catch_error(no_thread))["error"] == "invalid_arguments"
    direct = await slack.post_message("ada", slack.open_dm("ada"), "psst")
    await start(channel=direct.channel.id, thread_ts=direct.ts)


async def test_the_first_call_with_text_decides_the_mode_of_a_stream(
    slack: SlackSimulator, client: AsyncWebClient, question: SlackMessage
) -> None:
    _, stream = await start_stream(slack, question, markdown_text="a")
    both = client.chat_appendStream(**stream, markdown_text="b", chunks=create_text_chunks("b"))
    assert (await catch_error(both))["error"] == "cannot_provide_both_markdown_text_and_chunks"
    for call in (client.chat_appendStream, client.chat_stopStream):
        assert (await catch_error(call(**stream, chunks=create_text_chunks("b"))))["error"] == "streaming_mode_mismatch"
    _, bare = await start_stream(slack, question)
    await client.chat_appendStream(**bare, chunks=create_text_chunks("b"))
    assert (await catch_error(client.chat_appendStream(**bare, markdown_text="b")))[
        "error"
    ] == "streaming_mode_mismatch"


@pytest.mark.parametrize(
    "chunks",
    [
        [{"type": "text", "text": "x"}],
        [create_task_chunk("done")],
        [create_task_chunk("complete", "x" * 257)],
        [{"type": "task_update", "id": "1", "status": "complete"}],
        [{"type": "plan_update", "title": "x" * 257}],
        "no list",
    ],
)
async def test_invalid_chunks_are_rejected(
    slack: SlackSimulator, client: AsyncWebClient, question: SlackMessage, chunks: Any
) -> None:
    _, stream = await start_stream(slack, question)
    call = client.api_call("chat.appendStream", json=stream | {"chunks": chunks})
    assert (await catch_error(call))["error"] == "invalid_chunks"


async def test_an_append_requires_content(
    slack: SlackSimulator, client: AsyncWebClient, question: SlackMessage
) -> None:
    _, stream = await start_stream(slack, question)
    assert (await catch_error(client.chat_appendStream(**stream, markdown_text="")))["error"] == "no_text"
    await client.chat_stopStream(**stream)


async def test_a_stream_ends_after_five_minutes() -> None:
    async with SlackSimulator(speed=1000, rate_limits=False) as slack:
        client, question = create_client(slack), await slack.post_message("ada", "general", "question")
        message, stream = await start_stream(slack, question, markdown_text="a")

        async def append_forever() -> None:
            while True:
                await client.chat_appendStream(**stream, markdown_text="b")

        with pytest.raises(SlackApiError, match="message_not_in_streaming_state"):
            await asyncio.wait_for(append_forever(), 30)
        assert (await catch_error(client.chat_stopStream(**stream)))["error"] == "message_not_in_streaming_state"
        await client.chat_update(**stream, text="recovered")
        assert message.text == "recovered"


async def test_end_streams_ends_a_stream(slack: SlackSimulator, client: AsyncWebClient, question: SlackMessage) -> None:
    _, stream = await start_stream(slack, question)
    await slack.end_streams()
    assert (await catch_error(client.chat_stopStream(**stream)))["error"] == "message_not_in_streaming_state"


async def test_a_stream_holds_eleven_thousand_bytes_and_tasks_count_twice(
    slack: SlackSimulator, client: AsyncWebClient, question: SlackMessage
) -> None:
    _, stream = await start_stream(slack, question, chunks=create_text_chunks("é" * 5_300))
    assert (await catch_error(client.chat_appendStream(**stream, chunks=create_text_chunks("x" * 401))))[
        "error"
    ] == "msg_too_long"
    wordy = create_task_chunk("complete", "x" * 150)
    assert (await catch_error(client.chat_stopStream(**stream, chunks=[wordy])))["error"] == "msg_too_long"
    await client.chat_appendStream(**stream, chunks=create_text_chunks("x" * 400))
    await client.chat_stopStream(**stream)


async def test_metadata_is_set_by_the_stop_of_a_stream(
    slack: SlackSimulator, client: AsyncWebClient, question: SlackMessage
) -> None:
    metadata = {"event_type": "x", "event_payload": {"a": 1}}
    message, stream = await start_stream(slack, question, metadata=metadata)
    assert not message.metadata
    blocks = [{"type": "divider"}]
    await client.chat_stopStream(**stream, markdown_text="a", metadata=metadata, blocks=blocks)
    assert message.metadata == metadata
    assert [block["type"] for block in message.blocks or ()] == ["markdown", "divider"]


async def test_the_message_of_another_author_is_no_stream_of_the_app(
    slack: SlackSimulator, client: AsyncWebClient, question: SlackMessage
) -> None:
    call = client.chat_appendStream(channel=question.channel.id, ts=question.ts, markdown_text="x")
    assert (await catch_error(call))["error"] == "message_not_owned_by_app"
    posted = await client.chat_postMessage(channel=question.channel.id, text="x")
    call = client.chat_appendStream(channel=question.channel.id, ts=posted["ts"], markdown_text="x")
    assert (await catch_error(call))["error"] == "message_not_in_streaming_state"


async def test_starts_and_stops_have_lower_limits_than_appends(
    slack: SlackSimulator, client: AsyncWebClient, question: SlackMessage
) -> None:
    for _ in range(20):
        _, stream = await start_stream(slack, question)
    with pytest.raises(SlackApiError, match="ratelimited"):
        await start_stream(slack, question)
    for _ in range(100):
        await client.chat_appendStream(**stream, markdown_text="x")
    assert (await catch_error(client.chat_appendStream(**stream, markdown_text="x")))["error"] == "ratelimited"


async def test_the_end_of_a_stream_sets_the_status_of_the_session(
    slack: SlackSimulator, client: AsyncWebClient
) -> None:
    direct = slack.open_dm("ada")
    question = await slack.post_message("ada", direct, "why?")
    await client.agents_sessions_setStatus(channel_id=direct.id, thread_ts=question.ts, status="processing")
    session = slack.find_session(question)
    assert session is not None
    for wanted, status in (("processing", "processing"), (None, "active")):
        started = await client.chat_startStream(channel=direct.id, thread_ts=question.ts, markdown_text="Since")
        body = await catch_error(client.chat_stopStream(channel=direct.id, ts=started["ts"], session_status="done"))
        assert body["error"] == "invalid_arguments"
        stopped = await client.chat_stopStream(channel=direct.id, ts=started["ts"], session_status=wanted)
        assert session.status == status
        assert (stopped["channel"], stopped["ts"], stopped["message"]["text"]) == (direct.id, started["ts"], "Since")
