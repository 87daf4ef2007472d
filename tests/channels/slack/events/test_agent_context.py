"""Slack's agent context (viewed channel, action token) in the state of tools."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from google.adk.tools.tool_context import ToolContext

from channels.slack.manifest import manifest
from chatrig.models import CallTool
from chatrig.slack import SlackSimulator
from core.tools.tool import to_adk_tool
from tests.channels.slack.conftest import run_bot

contexts = list[Any]()

LOOKED_AT = {"type": "slack#/types/channel_id", "value": "C01234ABDCE", "team_id": "T0ABCDE6543"}


async def look(tool_context: ToolContext) -> str:
    """Append Slack's agent context, as the state has it, to `contexts`."""
    contexts.append(tool_context.state.get("temp:slack"))
    return "done"


TOOLS = {"tools": [to_adk_tool(look)]}
SCRIPT = CallTool("look"), "Done.", CallTool("look"), "Done."


@pytest.fixture(autouse=True)
def _clear_seen() -> None:
    contexts.clear()


def read_files(folder: Path) -> bytes:
    """Return the joined contents of all files of a folder."""
    return b"".join(file.read_bytes() for file in folder.iterdir() if file.is_file())


def is_acknowledged(slack: SlackSimulator) -> bool:
    return all(envelope.acknowledged_at is not None for envelope in slack.envelopes)


async def test_a_tool_sees_what_the_user_views(slack: SlackSimulator, tmp_path: Path) -> None:
    async with run_bot(slack, tmp_path, *SCRIPT, core=TOOLS) as bot:
        await slack.view_entities("ada", LOOKED_AT)
        await slack.wait_for(lambda: is_acknowledged(slack))
        for author in ("ada", "grace"):
            question = await slack.post_message(author, slack.open_dm(author), "what is this?")
            await bot.wait_for_texts(question, lambda texts: texts[-1] == "Done.")
        assert contexts == [{"entities": [LOOKED_AT]}, None]


async def test_the_viewed_context_counts_in_direct_messages_until_it_is_left(
    slack: SlackSimulator, tmp_path: Path
) -> None:
    async with run_bot(slack, tmp_path, *SCRIPT, core=TOOLS) as bot:
        await slack.view_entities("ada", LOOKED_AT)
        await slack.wait_for(lambda: is_acknowledged(slack))
        question = await bot.mention_bot("ada", "general", "what is this?")
        await bot.wait_for_texts(question, lambda texts: texts[-1] == "Done.")
        await slack.view_entities("ada")
        await slack.wait_for(lambda: is_acknowledged(slack))
        question = await slack.post_message("ada", slack.open_dm("ada"), "what is this?")
        await bot.wait_for_texts(question, lambda texts: texts[-1] == "Done.")
        assert contexts == [None, None]


async def test_the_action_token_reaches_tools_and_is_stored_encrypted(slack: SlackSimulator, tmp_path: Path) -> None:
    app = manifest(prompts=())
    app["oauth_config"]["scopes"]["bot"].append("search:read.public")
    slack.install(app)
    async with run_bot(slack, tmp_path, *SCRIPT[:2], core=TOOLS) as bot:
        question = await bot.mention_bot("ada", "general", "search")
        await bot.wait_for_texts(question, lambda texts: texts[-1] == "Done.")
        tokens = {envelope.payload["event"].get("action_token") for envelope in slack.envelopes} - {None}
        assert contexts[0]["action_token"] in tokens
    stored = await asyncio.to_thread(read_files, tmp_path)
    assert b"search" in stored
    assert not any(token.encode() in stored for token in tokens)
