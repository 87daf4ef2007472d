"""Surfaces of replies, on both platforms against their local API."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from channels.base import Priority
from channels.discord.client.api import DiscordApi
from channels.discord.client.auth import log_in, make_client
from channels.discord.replies.reactions import make_queued_reactions as make_discord_reactions
from channels.discord.replies.surface import DiscordSurface
from channels.replies.surface import Surface
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
    """Reply to a question in #general, with the message ids that it has stored.

    Attributes:
        calls: the platform's API methods: see `tests.channels.platforms.Chat`.
        create_surface: returns the surface of another process.
    """

    def __init__(
        self, simulator: Any, question: Any, calls: Mapping[str, str], create_surface: Callable[[], Surface]
    ) -> None:
        super().__init__(create_surface())
        self.simulator = simulator
        self.calls = calls
        self.create_surface = create_surface
        self._question = question

    @property
    def messages(self) -> list[Any]:
        return [message for message in self.simulator.messages("general") if message is not self._question]

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.messages]

    async def delete(self, position: int) -> None:
        await self.create_surface().delete(self.known[position])

    def count_calls(self, kind: str) -> int:
        name = "method" if isinstance(self.simulator, SlackSimulator) else "route"
        return sum(getattr(call, name) == self.calls[kind] for call in self.simulator.calls)


@pytest.fixture
async def reply(simulator: Any) -> AsyncIterator[SurfaceReply]:
    question = await simulator.post_message("ada", "general", "question")
    if isinstance(simulator, SlackSimulator):
        slack_api = SlackApi(make_web_client(create_slack_settings(simulator)), pauses=PAUSES)
        address = {
            "team": simulator.team_id,
            "channel": question.channel.id,
            "thread_ts": question.ts,
            "ts": question.ts,
        }
        reactions = make_slack_reactions(slack_api)
        yield SurfaceReply(
            simulator, question, SlackChat.calls, lambda: SlackSurface(slack_api, reactions, address, "turn-1")
        )
        return
    client = make_client(create_discord_settings(simulator))
    api = DiscordApi(client, pauses=PAUSES)
    await log_in(client, create_discord_settings(simulator))
    place = {"channel": question.channel.id, "message": question.id, "speaker": "Ada"}
    yield SurfaceReply(
        simulator, question, DiscordChat.calls, lambda: DiscordSurface(api, make_discord_reactions(api), place)
    )
    await client.close()


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


async def test_an_edit_with_a_lost_response_is_retried(reply: SurfaceReply) -> None:
    await reply.show("…", priority=Priority.PROGRESS)
    reply.simulator.faults.lose_response(reply.calls["edit"], 2)
    assert await reply.show("done")
    assert reply.count_calls("edit") == 3


async def test_a_post_whose_response_was_lost_is_found_and_not_repeated(reply: SurfaceReply) -> None:
    reply.simulator.faults.lose_response(reply.calls["post"], 2)
    assert await reply.show("one", "two")
    assert reply.texts == ["one", "two"]
    assert reply.count_calls("post") == 2


async def test_a_lost_post_is_found_even_if_the_first_search_fails(reply: SurfaceReply) -> None:
    reply.simulator.faults.lose_response(reply.calls["post"])
    reply.simulator.faults.fail(reply.calls["find"], status=503)
    assert await reply.show("one")
    assert reply.texts == ["one"]
    assert reply.count_calls("post") == 1


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
