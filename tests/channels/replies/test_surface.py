"""Surfaces of replies, on both platforms against their local API."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from channels.base import Priority
from channels.discord.client.api import DiscordApi
from channels.discord.client.auth import log_in, make_client
from channels.discord.replies.reactions import make_queued_reactions as make_discord_reactions
from channels.discord.replies.surface import DiscordSurface
from channels.replies.chunk_planner import ChunkPlanner
from channels.slack.client.api import SlackApi
from channels.slack.client.auth import make_web_client
from channels.slack.replies.reactions import make_queued_reactions as make_slack_reactions
from channels.slack.replies.surface import SlackSurface
from chatrig.discord import DiscordSimulator
from chatrig.slack import SlackSimulator
from core.errors import SurfaceError
from tests.channels.discord.conftest import PAUSES
from tests.channels.discord.conftest import create_settings as create_discord_settings
from tests.channels.platforms import DiscordChat, SlackChat
from tests.channels.slack.conftest import create_settings as create_slack_settings
from tests.fixtures.executed_reply import ExecutedReply


class SurfaceReply(ExecutedReply):
    """Reply to a question, with the message ids that it has stored.

    Attributes:
        question: the message of the user.
        calls: the platform's API methods: see `tests.channels.platforms.Chat`.
        api: the client of the platform's API.
        reactions: the "queued" reactions.
        address: the address of the reply.
        create_surface: returns the surface of another process.
    """

    def __init__(self, simulator: Any, question: Any, api: SlackApi | DiscordApi) -> None:
        self.simulator = simulator
        self.question = question
        self.api = api
        self.create_surface: Callable[..., Any]
        if isinstance(api, SlackApi):
            self.calls = SlackChat.calls
            self.reactions = make_slack_reactions(api)
            ids = {"team": simulator.team_id, "channel": question.channel.id}
            self.address: dict[str, Any] = {**ids, "thread_ts": question.ts, "ts": question.ts}
            self.create_surface = partial(SlackSurface, api, self.reactions, self.address, "turn-1")
        else:
            self.calls = DiscordChat.calls
            self.reactions = make_discord_reactions(api)
            self.address = {"channel": question.channel.id, "message": question.id, "speaker": "Ada"}
            self.create_surface = partial(DiscordSurface, api, self.reactions, self.address)
        super().__init__(self.create_surface())

    @property
    def messages(self) -> list[Any]:
        """Bot messages in the channel of the question, or in its thread on Slack."""
        if isinstance(self.api, SlackApi):
            return list(self.simulator.messages("general", thread_ts=self.question.ts)[1:])
        return [m for m in self.simulator.messages(self.question.channel) if m.author.id == self.simulator.bot_id]

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.messages]

    async def delete(self, position: int) -> None:
        await self.create_surface().delete(self.known[position])

    def count_calls(self, kind: str) -> int:
        name = "method" if isinstance(self.api, SlackApi) else "route"
        return sum(getattr(call, name) == self.calls[kind] for call in self.simulator.calls)


@asynccontextmanager
async def open_api(simulator: Any) -> AsyncIterator[SlackApi | DiscordApi]:
    """Yield a client of the platform's API with a login, but without a connection for events."""
    if isinstance(simulator, SlackSimulator):
        yield SlackApi(make_web_client(create_slack_settings(simulator)), pauses=PAUSES)
        return
    client = make_client(create_discord_settings(simulator))
    api = DiscordApi(client, pauses=PAUSES)
    await log_in(client, create_discord_settings(simulator))
    yield api
    await client.close()


@pytest.fixture
async def reply(simulator: Any) -> AsyncIterator[SurfaceReply]:
    async with open_api(simulator) as api:
        yield SurfaceReply(simulator, await simulator.post_message("ada", "general", "question"), api)


async def test_a_placeholder_grows_into_the_answer(reply: SurfaceReply) -> None:
    assert await reply.show("…", priority=Priority.PROGRESS)
    assert await reply.show("It", priority=Priority.STREAM_UPDATE)
    assert await reply.show("It is 42.")
    (message,) = reply.messages
    assert [version.text for version in message.versions] == ["…", "It", "It is 42."]


async def test_messages_are_posted_and_deleted_as_planned(reply: SurfaceReply) -> None:
    await reply.show("one")
    await reply.show("one", "two", "three")
    assert reply.texts == ["one", "two", "three"]
    await reply.show("1", "two")
    assert reply.texts == ["1", "two"]
    assert reply.count_calls("edit") == 1


async def test_unchanged_messages_are_not_sent_again(reply: SurfaceReply) -> None:
    await reply.show("one", "two")
    before = len(reply.simulator.calls)
    assert await reply.show("one", "two", priority=Priority.STREAM_UPDATE)
    assert len(reply.simulator.calls) == before


async def test_a_deleted_message_is_posted_again(reply: SurfaceReply) -> None:
    await reply.show("one", "two")
    await reply.delete(0)
    await reply.show("one more", "two")
    assert sorted(reply.texts) == ["one more", "two"]
    assert len(set(reply.known)) == 2


async def test_a_leftover_message_may_be_deleted_already(reply: SurfaceReply) -> None:
    await reply.show("one", "two")
    await reply.delete(1)
    assert await reply.show("one")
    assert reply.texts == ["one"]


async def test_stream_updates_are_dropped_during_a_rate_limit(reply: SurfaceReply) -> None:
    await reply.show("…", priority=Priority.PROGRESS)
    is_discord = isinstance(reply.simulator, DiscordSimulator)
    options = {"has_via_header": False} if is_discord else {}  # discord.py does not try it again
    reply.simulator.faults.rate_limit(reply.calls["edit"], 1, **options)
    start = asyncio.get_running_loop().time()
    assert not await reply.show("a", priority=Priority.STREAM_UPDATE)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reply.show("a b", priority=Priority.STREAM_UPDATE), 0.2)
    assert reply.count_calls("edit") == 1
    assert await reply.show("a b c")
    assert asyncio.get_running_loop().time() - start >= 1
    assert reply.count_calls("edit") == 2
    assert reply.texts == ["a b c"]


async def test_a_stream_update_is_tried_once(reply: SurfaceReply) -> None:
    await reply.show("…", priority=Priority.PROGRESS)
    reply.simulator.faults.fail(reply.calls["edit"], 3, status=503)
    assert not await reply.show("a", priority=Priority.STREAM_UPDATE)
    assert reply.count_calls("edit") == 1


@pytest.mark.parametrize("status", [500, 503])
async def test_a_transient_failure_is_retried_and_shown_once(reply: SurfaceReply, status: int) -> None:
    await reply.show("…", priority=Priority.PROGRESS)
    for kind in ("edit", "post"):
        reply.simulator.faults.fail(reply.calls[kind], 2, status=status)
    assert await reply.show("one", "two")
    assert reply.texts == ["one", "two"]


async def test_an_unreachable_platform_is_given_up_after_some_attempts(reply: SurfaceReply) -> None:
    reply.simulator.faults.fail(reply.calls["post"], 50, status=503)
    with pytest.raises(SurfaceError, match=r"the platform cannot be reached \(HTTP 503\)$"):
        await reply.show("done")
    assert reply.count_calls("post") == len(PAUSES) + 1


async def test_a_reply_found_after_a_restart_is_edited_in_place(reply: SurfaceReply) -> None:
    await reply.show("half an ans", "left over")
    reply.restart(reply.create_surface())
    await reply.show("the answer")
    assert reply.texts == ["the answer"]


async def test_a_lost_post_of_a_stream_update_ends_with_the_final_text(reply: SurfaceReply) -> None:
    await reply.show("one", priority=Priority.PROGRESS)
    reply.simulator.faults.lose_response(reply.calls["post"])
    assert await reply.show("one", "tw", priority=Priority.STREAM_UPDATE)
    assert await reply.show("one", "two")
    assert reply.texts == ["one", "two"]
    assert reply.known == [message.id if hasattr(message, "id") else message.ts for message in reply.messages]


@pytest.mark.parametrize("kind", ["post", "edit"])
async def test_a_rate_limited_call_is_retried_without_a_limit(reply: SurfaceReply, kind: str) -> None:
    is_slack = isinstance(reply.simulator, SlackSimulator)
    scopes: list[dict[str, Any]] = [{"scope": scope} for scope in ("user", "global", "shared")]
    for options in [{}] if is_slack else scopes:
        await reply.show("…", priority=Priority.PROGRESS)
        reply.simulator.faults.rate_limit(reply.calls[kind], 0 if is_slack else 0.1, len(PAUSES) + 1, **options)
        assert await reply.show("one", "two")
        assert reply.texts == ["one", "two"]


#: Answers of the platforms that no retry changes, and the reason in the error.
REFUSALS: dict[type[Any], list[tuple[dict[str, Any], str]]] = {
    SlackSimulator: [
        ({"error": code}, code)
        for code in ("not_in_channel", "channel_not_found", "is_archived", "msg_too_long", "invalid_auth")
    ],
    DiscordSimulator: [
        *(({"status": 403, "code": code}, str(code)) for code in (50013, 50001)),
        ({"status": 404, "code": 10003}, "10003"),
        ({"status": 400, "code": 50035}, "50035"),
        ({"status": 401, "code": 0}, "HTTP 401"),
    ],
}


@pytest.mark.parametrize("kind", ["post", "edit"])
async def test_a_permanent_refusal_is_reported_and_not_retried(reply: SurfaceReply, kind: str) -> None:
    for refusal, reason in REFUSALS[type(reply.simulator)]:
        reply.restart(reply.create_surface(), ())
        if kind == "edit":
            await reply.show("…", priority=Priority.PROGRESS)
        before = reply.count_calls(kind)
        reply.simulator.faults.fail(reply.calls[kind], 5, **refusal)
        with pytest.raises(SurfaceError, match=rf"^\S+: {reason}$"):
            await reply.show("done")
        assert reply.count_calls(kind) == before + 1
        reply.simulator.faults.clear()


async def test_a_message_that_cannot_be_edited_is_followed_by_a_new_one(reply: SurfaceReply) -> None:
    is_slack = isinstance(reply.simulator, SlackSimulator)
    too_old: dict[str, Any] = {"status": 400, "code": 30046}
    for refusal in (
        [{"error": code} for code in ("cant_update_message", "edit_window_closed")] if is_slack else [too_old]
    ):
        reply.restart(reply.create_surface(), ())
        await reply.show("half an ans")
        reply.simulator.faults.fail(reply.calls["edit"], **refusal)
        await reply.show("half an answer")
        assert reply.texts[-2:] == ["half an ans", "half an answer"]


#: Text with the tokens that notify users, and with a link that disguises its address.
HOSTILE = (
    "<!channel> <@U0AAAAAAA> <!subteam^S1> <!here|x> <https://evil.example|bank.example> "
    "@everyone <@{ada}> <@!{ada}> <@&{role}> @here [https://bank.example](https://evil.example) <#1> </x:1> "
)


@pytest.mark.parametrize("shape", ["{0}", "```\n{0}\n```", "`{0}`", "||{0}||", f"{'x' * 1_900}{{0}}"])
async def test_no_text_of_the_model_notifies_anyone_wherever_it_is_split(reply: SurfaceReply, shape: str) -> None:
    ada = reply.simulator.people["ada"].id
    hostile = HOSTILE.format(ada=ada, role=getattr(reply.simulator, "bot_role_id", ""))
    planner = ChunkPlanner(reply.surface.limits)
    planner.feed(shape.format(hostile * 40))
    chunks = [chunk.text for chunk in planner.plan(Priority.FINAL).chunks][:3]
    assert len(chunks) == 3
    await reply.show("…", priority=Priority.PROGRESS)
    assert await reply.show(*chunks)
    assert [message.pings for message in reply.messages] == [frozenset()] * 3
    is_code = "`" in shape  # Discord ignores mentions in code, and users copy code unchanged
    is_discord = isinstance(reply.simulator, DiscordSimulator)
    sent = "".join(message.content.text for message in reply.messages)
    assert not is_discord or is_code or not any(token in sent for token in ("<@", "@everyone", "@here"))


async def test_a_queued_reaction_is_removed_and_its_failures_delay_nothing(reply: SurfaceReply) -> None:
    is_slack = isinstance(reply.simulator, SlackSimulator)
    removal = "reactions.remove" if is_slack else reply.calls["react"].replace("PUT", "DELETE")
    reply.reactions.add(reply.address)
    await reply.simulator.wait_for(lambda: reply.question.reactions)
    reply.simulator.faults.delay(removal, 1.0)
    reply.surface.remove_queued_reaction()
    assert reply.question.reactions
    await reply.simulator.wait_for(lambda: not reply.question.reactions)
    await reply.reactions.drain(1)
    refusal: dict[str, Any] = {"error": "no_permission"} if is_slack else {"status": 403, "code": 90001}
    reply.simulator.faults.fail(reply.calls["react"], **refusal)
    reply.reactions.add(reply.address)
    reply.surface.remove_queued_reaction()
    await reply.reactions.drain(1)
    assert not reply.question.reactions
