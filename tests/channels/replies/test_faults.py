"""Faults of API calls: the reply is complete once, or the turn ends in an error."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import aiohttp
import discord
import pytest
import pytest_asyncio
from discord.gateway import DiscordWebSocket

from channels.i18n import messages as words
from channels.slack.client import socket_mode as socket
from chatrig.fault_queue import FaultKind
from chatrig.models import DropConnection, ReceivedRequest, Say, ScriptedResponse
from chatrig.slack import SlackSimulator
from tests.channels.platforms import (
    PLATFORMS,
    Chat,
    DiscordChat,
    SlackChat,
    list_texts,
    run_conversation,
    run_simulator,
    shorten_pauses,
    wait_for_texts,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = "\n\n".join(f"Paragraph {number}. " + "Lorem ipsum dolor sit amet. " * 60 for number in range(7)).strip()
ANSWER = "The answer."

#: Timeout of a call in these tests, and duration of a slow call, in seconds.
TIMEOUT, TOO_LONG = 0.2, 0.3

CALLS = ("post", "edit", "delete", "find", "react", "upload")
STREAM_CALLS = ("chat.startStream", "chat.appendStream", "chat.stopStream")

_numbers = itertools.count(1)


class BreakingModel:
    """Model that answers by words in the message, such as "long" or "slowly".

    For "break", its first answer breaks off in a long text.
    """

    def __init__(self) -> None:
        self._broken: set[str] = set()

    def __call__(self, request: ReceivedRequest) -> ScriptedResponse:
        if "long" in request.text:
            return LONG
        if "break" in request.text and request.text not in self._broken:
            self._broken.add(request.text)
            return [Say(LONG), DropConnection()]
        if "stepwise" in request.text:
            return Say(ANSWER, pieces=4, pace=0.06)
        return Say(ANSWER, pieces=4, pace=0.2) if "slowly" in request.text else ANSWER


@asynccontextmanager
async def run_shared_bot(platform: str, folder: Path, **kwargs: Any) -> AsyncIterator[Chat]:
    """Run one bot with a short call timeout, and yield a conversation for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(discord.http.Route, "BASE", discord.http.Route.BASE)
        patch.setattr(DiscordWebSocket, "DEFAULT_GATEWAY", DiscordWebSocket.DEFAULT_GATEWAY)
        patch.setattr(socket, "PING_INTERVAL_SECONDS", 1)
        async with (
            run_simulator(platform) as simulator,
            run_conversation(simulator, folder, BreakingModel(), max_chunks=3, **kwargs) as chat,
        ):
            client: Any = chat.bot.platform.client
            if isinstance(simulator, SlackSimulator):
                client.timeout = TIMEOUT
            else:
                client.http._HTTPClient__session._timeout = aiohttp.ClientTimeout(total=TIMEOUT)
            yield chat


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=PLATFORMS)
async def shared_chat(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Chat]:
    async with run_shared_bot(request.param, tmp_path_factory.mktemp("bot")) as chat:
        yield chat


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_streaming_chat(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Chat]:
    async with run_shared_bot("slack", tmp_path_factory.mktemp("streaming"), streaming="auto") as chat:
        yield chat


@pytest_asyncio.fixture(loop_scope="module")
async def streaming_chat(shared_streaming_chat: Any) -> AsyncIterator[SlackChat]:
    """Yield a conversation with streamed replies in a new Slack channel."""
    name = f"streamed-{next(_numbers)}"
    shared_streaming_chat.simulator.add_channel(name)
    shorten_pauses(shared_streaming_chat.bot)  # forget the learned rate limits
    yield SlackChat(shared_streaming_chat.bot, name)
    shared_streaming_chat.simulator.faults.clear()


@pytest_asyncio.fixture(loop_scope="module")
async def chat(shared_chat: Chat) -> AsyncIterator[Chat]:
    """Yield a conversation in a new Slack channel or a new Discord thread."""
    name = f"chat-{next(_numbers)}"
    simulator = shared_chat.simulator
    if isinstance(simulator, SlackSimulator):
        simulator.add_channel(name)
        yield SlackChat(shared_chat.bot, name)
    else:
        root = await simulator.post_message("ada", simulator.add_channel(name), "a root")
        yield DiscordChat(shared_chat.bot, await simulator.start_thread("ada", root, name))
    simulator.faults.clear()


# Preparation of each call


async def prepare(chat: Chat, call: str, *, says: str = "hi") -> Callable[[], Awaitable[Any]]:
    """Prepare a conversation for a fault in one of the reply's API calls.

    Args:
        call: the name of the call, such as "post", "edit" or "delete".
        says: the message that the returned function posts.

    Returns:
        A function that leads to the call.
    """
    if call == "delete":  # a retry deletes the extra messages of a long text
        await chat.say(f"break {next(_numbers)}")
        await wait_for_texts(chat, lambda found: found and "⚠️" in found[-1])
        await chat.simulator.wait_for(lambda: words.RETRY in chat.list_replies()[-1].buttons)
        return lambda: chat.press(words.RETRY)
    if call == "react":  # a queued message gets the reaction
        await chat.say("first, slowly")
        await chat.simulator.wait_for(chat.list_replies)
    if call == "find":  # a post with an unknown outcome
        chat.simulator.faults.lose_response(chat.calls["post"])
    return lambda: chat.say("long" if call == "upload" else says)


async def wait_for_turns(chat: Chat, count: int) -> Any:
    """Wait until `count` turns of the conversation have ended; return the newest row."""
    place = chat.channel.id if isinstance(chat, SlackChat) else chat.place.id  # type: ignore[attr-defined]

    async def list_turns() -> list[Any]:
        return [row for row in await chat.bot.list_turns() if place in row.session]

    rows = await chat.bot.database.wait_until(
        list_turns, lambda rows: len(rows) == count and all(row.finished_at for row in rows), seconds=10
    )
    return rows[-1]


def count_turns(call: str) -> int:
    return 2 if call in ("delete", "react") else 1


def check_reply(chat: Chat, call: str) -> None:
    """Check that the bot shows exactly the complete reply, once.

    Args:
        call: the name of the API call with the fault: "upload" and "react" lead to other messages.
    """
    texts = list_texts(chat)
    if call == "upload":
        assert chat.list_files() == [("answer.md", LONG.encode())]
        assert len(texts) == 3
        assert texts[-1].endswith(words.FULL_ANSWER_IN_FILE)
    else:
        assert texts == [ANSWER] * (2 if call == "react" else 1)


# Transient faults


async def exceed_rate_limit(chat: Chat, name: str) -> None:
    chat.simulator.faults.rate_limit(name, 1)


async def fail_with_server_error(chat: Chat, name: str) -> None:
    chat.simulator.faults.fail(name, 2, status=503)


async def lose_response(chat: Chat, name: str) -> None:
    chat.simulator.faults.lose_response(name)


async def exceed_timeout(chat: Chat, name: str) -> None:
    chat.simulator.faults.delay(name, TOO_LONG)


async def close_socket(chat: Chat, name: str) -> None:
    """Close the connection for events, and wait for the new one.

    API calls do not use this connection.
    """
    del name
    await chat.simulator.drop_sockets()
    await chat.simulator.wait_until_connected()


@pytest.mark.parametrize(
    "fault", [exceed_rate_limit, fail_with_server_error, lose_response, exceed_timeout, close_socket]
)
@pytest.mark.parametrize("call", CALLS)
async def test_transient_faults_leave_the_reply_correct(
    chat: Chat,
    call: str,
    fault: Callable[[Chat, str], Awaitable[None]],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    act = await prepare(chat, call, says="slowly" if fault is exceed_timeout else "hi")
    caplog.clear()
    if call == "upload" and isinstance(chat, DiscordChat):  # a later edit attaches the files
        attach = chat.bot.platform.api.set_files

        async def attach_with_fault(*about: Any) -> None:
            monkeypatch.undo()
            await fault(chat, chat.calls[call])
            await attach(*about)

        monkeypatch.setattr(chat.bot.platform.api, "set_files", attach_with_fault)
    else:
        await fault(chat, chat.calls[call])
    await act()
    row = await wait_for_turns(chat, count_turns(call))
    assert (row.state, row.error) == ("done", None)
    check_reply(chat, call)
    assert list_errors(caplog) == []
    assert not any(map(chat.simulator.faults.has_pending, get_args(FaultKind)))  # the fault occurred


@pytest.mark.parametrize(
    "fault", [exceed_rate_limit, fail_with_server_error, lose_response, exceed_timeout, close_socket]
)
@pytest.mark.parametrize("call", STREAM_CALLS)
async def test_transient_faults_leave_a_streamed_reply_correct(
    streaming_chat: SlackChat,
    call: str,
    fault: Callable[[Chat, str], Awaitable[None]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = len(streaming_chat.simulator.calls)
    await fault(streaming_chat, call)
    await streaming_chat.say("slowly" if fault is exceed_timeout else "stepwise")
    row = await wait_for_turns(streaming_chat, 1)
    assert (row.state, row.error) == ("done", None)
    check_reply(streaming_chat, "edit")
    assert not any(message.stream and message.stream.is_live for message in streaming_chat.list_replies())
    assert list_errors(caplog) == []
    assert call in [made_call.method for made_call in streaming_chat.simulator.calls[before:]]


# Permanent faults


async def wait_for_text(chat: Chat) -> None:
    await chat.simulator.wait_for(lambda: list_texts(chat)[-1:] not in ([], [words.PLACEHOLDER]))


async def delete_reply(chat: Chat) -> None:
    """Delete the bot's newest message once it shows its first text."""
    await wait_for_text(chat)
    world = chat.simulator._workspace if isinstance(chat, SlackChat) else chat.simulator._guild
    world.delete_message(chat.list_replies()[-1])


async def archive_thread(chat: Chat) -> None:
    """Archive the thread once the reply shows its first text; on Slack the channel."""
    await wait_for_text(chat)
    if isinstance(chat, SlackChat):
        chat.channel.archived = True
    elif isinstance(chat, DiscordChat):
        await chat.simulator.archive_thread(chat.place)


async def deny_permission(chat: Chat, name: str) -> None:
    if isinstance(chat, SlackChat):
        chat.simulator.faults.fail(name, 99, error="missing_scope")
    else:
        chat.simulator.faults.fail(name, 99, status=403, code=50013)


async def remove_channel(chat: Chat, name: str) -> None:
    if isinstance(chat, SlackChat):
        chat.simulator.faults.fail(name, 99, error="channel_not_found")
    else:
        chat.simulator.faults.fail(name, 99, status=404, code=10003)


async def test_a_thread_archived_during_an_answer_is_reopened_and_a_channel_is_not(
    chat: Chat, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(archive_thread(chat))
        await chat.say("slowly")
    row = await wait_for_turns(chat, 1)
    if isinstance(chat, SlackChat):
        assert (row.state, row.error) == ("failed", "RefusedError: chat.update: is_archived")
        assert len(list_errors(caplog)) == 1
    else:
        assert row.state == "done"
        check_reply(chat, "edit")


async def test_a_deleted_stream_is_posted_again_and_an_archived_channel_is_reported(
    streaming_chat: SlackChat, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(delete_reply(streaming_chat))
        await streaming_chat.say("slowly")
    assert (await wait_for_turns(streaming_chat, 1)).state == "done"
    check_reply(streaming_chat, "edit")
    caplog.clear()
    streaming_chat.root = None
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(streaming_chat.say("slowly, and once more"))
        await streaming_chat.simulator.wait_for(
            lambda: [m for m in streaming_chat.list_replies() if m.stream and m.stream.is_live]
        )
        streaming_chat.channel.archived = True
    row = await wait_for_turns(streaming_chat, 2)
    assert row.state == "failed"
    assert row.error.endswith(": is_archived")
    assert len(list_errors(caplog)) == 1


@pytest.mark.parametrize("fault", [deny_permission, remove_channel])
@pytest.mark.parametrize("call", ["post", "edit", "find"])
async def test_a_reply_that_cannot_be_shown_fails_the_turn_with_one_log_error(
    chat: Chat, call: str, fault: Callable[[Chat, str], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    act = await prepare(chat, call)
    await fault(chat, chat.calls[call])
    await act()
    row = await wait_for_turns(chat, 1)
    assert row.state == "failed"
    assert row.error.startswith("RefusedError: ")
    (line,) = list_errors(caplog)
    assert line.startswith(f"turn {row.id}: the reply cannot be shown: RefusedError: ")
    chat.simulator.faults.clear()
    await chat.say("hi")  # the bot still answers
    assert (await wait_for_turns(chat, 2)).state == "done"


def refuse_edits(chat: Chat, times: int) -> None:
    if isinstance(chat, SlackChat):
        chat.simulator.faults.fail(chat.calls["edit"], times, error="invalid_blocks")
    else:
        chat.simulator.faults.fail(chat.calls["edit"], times, status=400, code=240000)


async def test_a_refused_chunk_does_not_block_the_complete_answer(
    chat: Chat,
) -> None:
    """Check that a reply is complete although the platform refuses one of its edits.

    Discord's link filter and Slack's `invalid_blocks` are such refusals.
    """
    refuse_edits(chat, 1)
    await chat.say("slowly")
    assert (await wait_for_turns(chat, 1)).state == "done"
    check_reply(chat, "edit")


async def test_a_refused_text_is_posted_as_a_file_with_one_apology(
    chat: Chat, caplog: pytest.LogCaptureFixture
) -> None:
    refuse_edits(chat, 2)  # of a chunk, and of the final text
    await chat.say("slowly")
    row = await wait_for_turns(chat, 1)
    assert row.state == "failed"
    assert row.error.startswith("RefusedError: ")
    assert len(list_errors(caplog)) == 1
    (text,) = list_texts(chat)
    assert text.startswith(f"⚠️ {words.MESSAGE_REFUSED} (turn")
    assert chat.list_files() == [("answer.md", ANSWER.encode())]
    assert [*chat.list_replies()[-1].buttons] == [words.RETRY]
    await chat.press(words.RETRY)
    assert (await wait_for_turns(chat, 2)).state == "done"
    check_reply(chat, "edit")
    assert not chat.list_files()


@pytest.mark.parametrize("fault", [deny_permission, remove_channel])
async def test_optional_calls_may_fail(chat: Chat, fault: Callable[[Chat, str], Awaitable[None]]) -> None:
    act = await prepare(chat, "react")
    await fault(chat, chat.calls["react"])
    await act()
    assert (await wait_for_turns(chat, 2)).state == "done"
    check_reply(chat, "react")


async def test_an_extra_message_that_cannot_be_deleted_stays_and_is_logged(
    chat: Chat, caplog: pytest.LogCaptureFixture
) -> None:
    act = await prepare(chat, "delete")
    caplog.clear()
    remaining = list_texts(chat)[1:]
    await deny_permission(chat, chat.calls["delete"])
    await act()
    assert (await wait_for_turns(chat, 2)).state == "done"
    assert list_texts(chat)[0] == ANSWER
    assert len(list_errors(caplog)) == len(remaining)


async def test_a_refused_file_is_posted_as_messages(chat: Chat) -> None:
    if isinstance(chat, SlackChat):
        await deny_permission(chat, chat.calls["upload"])
    else:
        chat.simulator.permissions.discard("attach_files")
    await chat.say("long")
    row = await wait_for_turns(chat, 1)
    if not isinstance(chat, SlackChat):
        chat.simulator.permissions.add("attach_files")
    assert row.state == "done"
    assert not chat.list_files()
    assert "".join("".join(list_texts(chat)).split()) == "".join(LONG.split())


def list_errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the error messages in the bot's log."""
    ours = [
        record
        for record in caplog.records
        if record.levelno >= logging.ERROR and record.name.startswith(("channels", "core"))
    ]
    return [figure.getMessage() for figure in ours]
