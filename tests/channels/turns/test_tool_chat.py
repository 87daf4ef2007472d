"""Reactions and messages that tools send by `get_chat()`, on both platforms."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from channels.turns.tool_chat import MAX_REACTIONS
from chatrig.models import CallTool
from core.errors import ChatError, StoreError, TurnLostError
from core.tools import get_chat
from core.tools.tool import to_adk_tool
from core.turns.store import TurnStore
from tests.channels.platforms import (
    SlackChat,
    list_texts,
    run_conversation,
    wait_for_answer,
    wait_for_texts,
)
from tests.channels.slack.conftest import short_ping_interval
from tests.channels.turns.test_reply_end import create_crash, wait_for_turns
from tests.channels.wiring import wait_until

__all__ = ["short_ping_interval"]


async def react(emoji: str) -> str:
    """React to the user's message."""
    await get_chat().add_reaction(emoji)
    return "done"


async def post(text: str) -> str:
    """Post a message in the conversation."""
    await get_chat().post_message(text)
    return "done"


#: Parts of the expected errors, in their order.
ERRORS = ("at most 3 reactions", "is empty", "is too long", "at most 3 messages")

TOOLS = {"tools": [to_adk_tool(react), to_adk_tool(post)]}


CELEBRATION = [CallTool("react", {"emoji": "🎉"}), CallTool("post", {"text": "**Hello** @everyone <!channel>"})]


def list_tool_results(chat: Any) -> list[str]:
    """Return the tool results in the newest model request, oldest first."""
    messages = chat.bot.model.requests[-1]["messages"]
    return [message["content"] for message in messages if message["role"] == "tool"]


def list_reactions(chat: Any) -> set[str]:
    """Return the names of the reactions on all messages of the conversation."""
    place = chat.channel if isinstance(chat, SlackChat) else chat.place
    return {name for message in chat.simulator.messages(place) for name in message.reactions}


async def test_a_tool_reacts_to_the_message_and_posts_another_one(simulator: Any, tmp_path: Path) -> None:
    async with run_conversation(simulator, tmp_path, CELEBRATION, "Done.", core=TOOLS) as chat:
        await chat.say("celebrate")
        found = await wait_for_texts(chat, lambda found: "Done." in found)
        await wait_for_turns(chat)
        assert sorted(text.partition(" ")[0] for text in found) == ["**Hello**", "Done."]
        assert not any(message.pings for message in chat.list_replies())
        assert list_reactions(chat) == {"tada" if isinstance(chat, SlackChat) else "🎉"}


@pytest.mark.parametrize("emoji", ["tada", ":tada:", "👍🏽"])
async def test_a_reaction_may_be_an_emoji_or_its_name(simulator: Any, tmp_path: Path, emoji: str) -> None:
    async with run_conversation(simulator, tmp_path, CallTool("react", {"emoji": emoji}), "Done.", core=TOOLS) as chat:
        await chat.say("celebrate")
        await wait_for_answer(chat, "Done.")
        await wait_for_turns(chat)
        assert list_tool_results(chat) == ['{"result": "done"}']


async def test_calls_over_the_limits_are_errors_for_the_model(simulator: Any, tmp_path: Path) -> None:
    reacting = [CallTool("react", {"emoji": emoji}) for emoji in "🎉👍👀🚀"]
    posting = [CallTool("post", {"text": text}) for text in ("one", " ", "word " * 2000, "two", "three", "four")]
    async with run_conversation(simulator, tmp_path, [*reacting, *posting], "Done.", core=TOOLS) as chat:
        await chat.say("celebrate")
        found = await wait_for_texts(chat, lambda found: "Done." in found)
        await wait_for_turns(chat)
        assert sorted(found) == ["Done.", "one", "three", "two"]
        assert len(list_reactions(chat)) == MAX_REACTIONS
        errors = [result for result in list_tool_results(chat) if "error" in result]
        assert [part in error for part, error in zip(ERRORS, errors, strict=True)] == [True] * len(ERRORS), errors


async def test_an_unknown_emoji_is_an_error_for_the_model(simulator: Any, tmp_path: Path) -> None:
    script = CallTool("react", {"emoji": "not an emoji"}), "Done."
    async with run_conversation(simulator, tmp_path, *script, core=TOOLS) as chat:
        await chat.say("celebrate")
        await wait_for_answer(chat, "Done.")
        await wait_for_turns(chat)
        assert "the reaction 'not an emoji' cannot be added" in list_tool_results(chat)[0]
        assert not list_reactions(chat)


async def test_a_crash_repeats_neither_the_reaction_nor_the_message(
    simulator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_conversation(simulator, tmp_path, CELEBRATION, "Done.", core=TOOLS) as chat:

        async def die(*_values: Any) -> None:
            with suppress(StoreError):
                await create_crash(chat)()
            raise TurnLostError("the process died here")

        with monkeypatch.context() as death:
            death.setattr(TurnStore, "save_answer", die)
            await chat.say("celebrate")
            await wait_until(chat.bot.worker._stopping.is_set)
            await chat.bot.worker.stop(5)
    async with run_conversation(simulator, tmp_path, "Done.", core=TOOLS) as chat:
        assert (await wait_for_turns(chat))[0].state == "done"
        assert sorted(text.partition(" ")[0] for text in list_texts(chat)) == ["**Hello**", "Done."]


async def test_outside_of_a_turn_there_is_no_conversation() -> None:
    with pytest.raises(ChatError, match="there is no conversation"):
        get_chat()
