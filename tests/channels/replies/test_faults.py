"""Faults of API calls: each reply is complete once, or the turn fails with one log error."""

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
from sandbox.fault_queue import FaultKind
from sandbox.models import DropConnection, ReceivedRequest, Say, Turn
from sandbox.slack import SlackSandbox
from tests.channels.platforms import (
    PLATFORMS,
    DiscordTalk,
    SlackTalk,
    Talk,
    run_conversation,
    run_sandbox,
    shorten_pauses,
    texts,
    wait_for_texts,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = "\n\n".join(f"Paragraph {number}. " + "Lorem ipsum dolor sit amet. " * 60 for number in range(7)).strip()
ANSWER = "The answer."

#: Timeout of a call here, and the duration of a slow call, in seconds.
TIMEOUT, TOO_LONG = 0.2, 0.3

CALLS = ("post", "edit", "delete", "find", "react", "upload")
STREAM_CALLS = ("chat.startStream", "chat.appendStream", "chat.stopStream")

_numbers = itertools.count(1)


class BreakingModel:
    """Model that answers; for `break`, its first answer breaks off in a long text."""

    def __init__(self) -> None:
        self._broken: set[str] = set()

    def __call__(self, asked: ReceivedRequest) -> Turn:
        if "long" in asked.text:
            return LONG
        if "break" in asked.text and asked.text not in self._broken:
            self._broken.add(asked.text)
            return [Say(LONG), DropConnection()]
        if "stepwise" in asked.text:
            return Say(ANSWER, pieces=4, pace=0.06)
        return Say(ANSWER, pieces=4, pace=0.2) if "slowly" in asked.text else ANSWER


@asynccontextmanager
async def run_shared_bot(platform: str, folder: Path, **more: Any) -> AsyncIterator[Talk]:
    """Run one bot with a short call timeout for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(discord.http.Route, "BASE", discord.http.Route.BASE)
        patch.setattr(DiscordWebSocket, "DEFAULT_GATEWAY", DiscordWebSocket.DEFAULT_GATEWAY)
        patch.setattr(socket, "PING_INTERVAL", 0.2)
        async with (
            run_sandbox(platform) as sandbox,
            run_conversation(sandbox, folder, BreakingModel(), most_messages=3, **more) as talk,
        ):
            client: Any = talk.bot.channel._client
            if isinstance(sandbox, SlackSandbox):
                client.timeout = TIMEOUT
            else:
                client.http._HTTPClient__session._timeout = aiohttp.ClientTimeout(total=TIMEOUT)
            yield talk


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=PLATFORMS)
async def shared_talk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Talk]:
    async with run_shared_bot(request.param, tmp_path_factory.mktemp("bot")) as talk:
        yield talk


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_streaming_talk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Talk]:
    async with run_shared_bot("slack", tmp_path_factory.mktemp("streaming"), streaming="auto") as talk:
        yield talk


@pytest_asyncio.fixture(loop_scope="module")
async def streaming_talk(shared_streaming_talk: Any) -> AsyncIterator[SlackTalk]:
    """Begin a conversation with streamed replies."""
    name = f"streamed-{next(_numbers)}"
    shared_streaming_talk.sandbox.add_channel(name)
    shorten_pauses(shared_streaming_talk.bot)  # forget the learned rate limits
    yield SlackTalk(shared_streaming_talk.bot, name)
    shared_streaming_talk.sandbox.faults.clear()


@pytest_asyncio.fixture(loop_scope="module")
async def talk(shared_talk: Talk) -> AsyncIterator[Talk]:
    """Begin a conversation in a thread."""
    name = f"talk-{next(_numbers)}"
    sandbox = shared_talk.sandbox
    if isinstance(sandbox, SlackSandbox):
        sandbox.add_channel(name)
        yield SlackTalk(shared_talk.bot, name)
    else:
        root = await sandbox.post_message("ada", sandbox.add_channel(name), "a root")
        yield DiscordTalk(shared_talk.bot, await sandbox.start_thread("ada", root, name))
    sandbox.faults.clear()


# Preparation of each call


async def prepare(talk: Talk, call: str, *, says: str = "hi") -> Callable[[], Awaitable[Any]]:
    """Prepare the conversation, and return the action that triggers the call."""
    if call == "delete":  # a retry deletes the extra messages of a long text
        await talk.say(f"break {next(_numbers)}")
        await wait_for_texts(talk, lambda found: found and "⚠️" in found[-1])
        await talk.sandbox.wait_for(lambda: words.RETRY in talk.replies()[-1].buttons)
        return lambda: talk.press(words.RETRY)
    if call == "react":  # a queued message gets the reaction
        await talk.say("first, slowly")
        await talk.sandbox.wait_for(talk.replies)
    if call == "find":  # a post with an unknown outcome
        talk.sandbox.faults.lose_response(talk.calls["post"])
    return lambda: talk.say("long" if call == "upload" else says)


async def wait_for_turns(talk: Talk, count: int) -> Any:
    """Wait until `count` turns of this conversation have ended; return the newest."""
    place = talk.channel.id if isinstance(talk, SlackTalk) else talk.place.id  # type: ignore[attr-defined]

    async def list_turns() -> list[Any]:
        return [row for row in await talk.bot.turn_rows() if place in row.session]

    rows = await talk.bot.database.wait_until(
        list_turns, lambda rows: len(rows) == count and all(row.finished_at for row in rows), seconds=10
    )
    return rows[-1]


def count_turns(call: str) -> int:
    return 2 if call in ("delete", "react") else 1


def check_reply(talk: Talk, call: str) -> None:
    """Return whether exactly the complete reply is shown."""
    shown = texts(talk)
    if call == "upload":
        assert talk.files() == [("answer.md", LONG.encode())]
        assert len(shown) == 3
        assert shown[-1].endswith(words.FULL_ANSWER_IN_FILE)
    else:
        assert shown == [ANSWER] * (2 if call == "react" else 1)


# Transient faults


async def exceed_rate_limit(talk: Talk, name: str) -> None:
    talk.sandbox.faults.rate_limit(name, 1)


async def fail_with_server_error(talk: Talk, name: str) -> None:
    talk.sandbox.faults.fail(name, 2, status=503)


async def lose_response(talk: Talk, name: str) -> None:
    talk.sandbox.faults.lose_response(name)


async def exceed_timeout(talk: Talk, name: str) -> None:
    talk.sandbox.faults.delay(name, TOO_LONG)


async def close_socket(talk: Talk, name: str) -> None:
    """Close the connection for events; API calls do not use it."""
    del name
    await talk.sandbox.drop_sockets()
    await talk.sandbox.wait_until_connected()


@pytest.mark.parametrize(
    "fault", [exceed_rate_limit, fail_with_server_error, lose_response, exceed_timeout, close_socket]
)
@pytest.mark.parametrize("call", CALLS)
async def test_transient_faults_leave_the_reply_correct(
    talk: Talk,
    call: str,
    fault: Callable[[Talk, str], Awaitable[None]],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    act = await prepare(talk, call, says="slowly" if fault is exceed_timeout else "hi")
    caplog.clear()
    if call == "upload" and isinstance(talk, DiscordTalk):  # a later edit attaches the files
        attach = talk.bot.channel._api.set_files

        async def attach_with_fault(*about: Any) -> None:
            monkeypatch.undo()
            await fault(talk, talk.calls[call])
            await attach(*about)

        monkeypatch.setattr(talk.bot.channel._api, "set_files", attach_with_fault)
    else:
        await fault(talk, talk.calls[call])
    await act()
    row = await wait_for_turns(talk, count_turns(call))
    assert (row.state, row.error) == ("done", None)
    check_reply(talk, call)
    assert list_errors(caplog) == []
    assert not any(map(talk.sandbox.faults.has_pending, get_args(FaultKind)))  # the fault occurred


@pytest.mark.parametrize(
    "fault", [exceed_rate_limit, fail_with_server_error, lose_response, exceed_timeout, close_socket]
)
@pytest.mark.parametrize("call", STREAM_CALLS)
async def test_transient_faults_leave_a_streamed_reply_correct(
    streaming_talk: SlackTalk,
    call: str,
    fault: Callable[[Talk, str], Awaitable[None]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = len(streaming_talk.sandbox.calls)
    await fault(streaming_talk, call)
    await streaming_talk.say("slowly" if fault is exceed_timeout else "stepwise")
    row = await wait_for_turns(streaming_talk, 1)
    assert (row.state, row.error) == ("done", None)
    check_reply(streaming_talk, "edit")
    assert not any(message.stream and message.stream.is_live for message in streaming_talk.replies())
    assert list_errors(caplog) == []
    assert call in [made.method for made in streaming_talk.sandbox.calls[before:]]


# Permanent faults


async def wait_for_text(talk: Talk) -> None:
    await talk.sandbox.wait_for(lambda: texts(talk)[-1:] not in ([], [words.PLACEHOLDER]))


async def delete_reply(talk: Talk) -> None:
    """Delete the bot's message at its first text."""
    await wait_for_text(talk)
    world = talk.sandbox._workspace if isinstance(talk, SlackTalk) else talk.sandbox._guild
    world.delete_message(talk.replies()[-1])


async def archive_thread(talk: Talk) -> None:
    """Archive the thread during an answer; Slack only archives channels."""
    await wait_for_text(talk)
    if isinstance(talk, SlackTalk):
        talk.channel.archived = True
    elif isinstance(talk, DiscordTalk):
        await talk.sandbox.archive_thread(talk.place)


async def deny_permission(talk: Talk, name: str) -> None:
    if isinstance(talk, SlackTalk):
        talk.sandbox.faults.fail(name, 99, error="missing_scope")
    else:
        talk.sandbox.faults.fail(name, 99, status=403, code=50013)


async def remove_channel(talk: Talk, name: str) -> None:
    if isinstance(talk, SlackTalk):
        talk.sandbox.faults.fail(name, 99, error="channel_not_found")
    else:
        talk.sandbox.faults.fail(name, 99, status=404, code=10003)


async def delete_reply_during_answer(talk: Talk) -> Any:
    """Return the turn of an answer whose message is deleted while it grows."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(delete_reply(talk))
        await talk.say("slowly")
    return await wait_for_turns(talk, 1)


async def test_a_message_deleted_during_an_answer_is_posted_again(talk: Talk) -> None:
    row = await delete_reply_during_answer(talk)
    assert (row.state, row.error) == ("done", None)
    check_reply(talk, "edit")


async def test_a_thread_archived_during_an_answer_is_reopened_and_a_channel_is_not(
    talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(archive_thread(talk))
        await talk.say("slowly")
    row = await wait_for_turns(talk, 1)
    if isinstance(talk, SlackTalk):
        assert (row.state, row.error) == ("failed", "RefusedError: chat.update: is_archived")
        assert len(list_errors(caplog)) == 1
    else:
        assert row.state == "done"
        check_reply(talk, "edit")


async def test_a_deleted_stream_is_posted_again_and_an_archived_channel_is_reported(
    streaming_talk: SlackTalk, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await delete_reply_during_answer(streaming_talk)).state == "done"
    check_reply(streaming_talk, "edit")
    caplog.clear()
    streaming_talk.root = None
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(streaming_talk.say("slowly, and once more"))
        await streaming_talk.sandbox.wait_for(
            lambda: [m for m in streaming_talk.replies() if m.stream and m.stream.is_live]
        )
        streaming_talk.channel.archived = True
    row = await wait_for_turns(streaming_talk, 2)
    assert row.state == "failed"
    assert row.error.endswith(": is_archived")
    assert len(list_errors(caplog)) == 1


@pytest.mark.parametrize("fault", [deny_permission, remove_channel])
@pytest.mark.parametrize("call", ["post", "edit", "find"])
async def test_a_reply_that_cannot_be_shown_fails_the_turn_with_one_log_error(
    talk: Talk, call: str, fault: Callable[[Talk, str], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    act = await prepare(talk, call)
    await fault(talk, talk.calls[call])
    await act()
    row = await wait_for_turns(talk, 1)
    assert row.state == "failed"
    assert row.error.startswith("RefusedError: ")
    (line,) = list_errors(caplog)
    assert line.startswith(f"turn {row.id}: the reply cannot be shown: RefusedError: ")
    talk.sandbox.faults.clear()
    await talk.say("hi")  # the bot still answers
    assert (await wait_for_turns(talk, 2)).state == "done"


def refuse_edits(talk: Talk, times: int) -> None:
    if isinstance(talk, SlackTalk):
        talk.sandbox.faults.fail(talk.calls["edit"], times, error="invalid_blocks")
    else:
        talk.sandbox.faults.fail(talk.calls["edit"], times, status=400, code=240000)


async def test_a_refused_chunk_does_not_block_the_complete_answer(
    talk: Talk,
) -> None:
    """Check a refusal such as Discord's link filter or Slack's `invalid_blocks`."""
    refuse_edits(talk, 1)
    await talk.say("slowly")
    assert (await wait_for_turns(talk, 1)).state == "done"
    check_reply(talk, "edit")


async def test_a_refused_text_is_posted_as_a_file_with_one_apology(
    talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    refuse_edits(talk, 2)  # of a chunk, and of the final text
    await talk.say("slowly")
    row = await wait_for_turns(talk, 1)
    assert row.state == "failed"
    assert row.error.startswith("RefusedError: ")
    assert len(list_errors(caplog)) == 1
    (text,) = texts(talk)
    assert text.startswith(f"⚠️ {words.MESSAGE_REFUSED} (turn")
    assert talk.files() == [("answer.md", ANSWER.encode())]
    assert [*talk.replies()[-1].buttons] == [words.RETRY]
    await talk.press(words.RETRY)
    assert (await wait_for_turns(talk, 2)).state == "done"
    check_reply(talk, "edit")
    assert not talk.files()


@pytest.mark.parametrize("fault", [deny_permission, remove_channel])
async def test_optional_calls_may_fail(talk: Talk, fault: Callable[[Talk, str], Awaitable[None]]) -> None:
    act = await prepare(talk, "react")
    await fault(talk, talk.calls["react"])
    await act()
    assert (await wait_for_turns(talk, 2)).state == "done"
    check_reply(talk, "react")


async def test_an_extra_message_that_cannot_be_deleted_stays_and_is_logged(
    talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    act = await prepare(talk, "delete")
    caplog.clear()
    left = texts(talk)[1:]
    await deny_permission(talk, talk.calls["delete"])
    await act()
    assert (await wait_for_turns(talk, 2)).state == "done"
    assert texts(talk)[0] == ANSWER
    assert len(list_errors(caplog)) == len(left)


async def test_a_refused_file_is_posted_as_messages(talk: Talk) -> None:
    if isinstance(talk, SlackTalk):
        await deny_permission(talk, talk.calls["upload"])
    else:
        talk.sandbox.permissions.discard("attach_files")
    await talk.say("long")
    row = await wait_for_turns(talk, 1)
    if not isinstance(talk, SlackTalk):
        talk.sandbox.permissions.add("attach_files")
    assert row.state == "done"
    assert not talk.files()
    assert "".join("".join(texts(talk)).split()) == "".join(LONG.split())


def list_errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the errors in the bot's log."""
    ours = [one for one in caplog.records if one.levelno >= logging.ERROR and one.name.startswith(("channels", "core"))]
    return [one.getMessage() for one in ours]
