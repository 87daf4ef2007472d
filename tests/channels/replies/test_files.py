"""Files that tools generate, on both platforms."""

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from channels.discord.client.api import DiscordApi
from channels.i18n import messages as words
from channels.slack.replies.surface import SlackSurface
from chatrig.models import CallTool
from core.store.schema import artifacts
from core.tools.tool import to_adk_tool
from core.turns.store import TurnStore
from tests.channels.platforms import (
    Chat,
    list_texts,
    run_conversation,
    wait_for_answer,
    wait_for_texts,
)
from tests.channels.slack.conftest import short_ping_interval
from tests.channels.turns.test_reply_end import create_crash, wait_for_turns
from tests.channels.wiring import wait_until

__all__ = ["short_ping_interval"]

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels" * 10


async def plot(title: str, tool_context: ToolContext) -> str:
    """Save a draft and a final curve as one artifact, and a note as another."""
    for data in (b"a draft", PNG):
        part = types.Part.from_bytes(data=data, mime_type="image/png")
        await tool_context.save_artifact("charts/plot.png", part, {"alt": f"A curve: {title}"})
    await tool_context.save_artifact("notes.txt", types.Part(text="as text"))
    return "drawn"


def table() -> dict[str, Any]:
    """Return a table with a CSV file."""
    return {"rows": 1, "table.csv": b"a,b\n1,2\n"}


TOOLS: dict[str, Any] = {"tools": [to_adk_tool(plot), to_adk_tool(table)]}
MAKES = [CallTool("plot", {"title": "up"}), CallTool("table", {})]
MADE = [("plot.png", PNG), ("notes.txt", b"as text"), ("table.csv", b"a,b\n1,2\n")]


async def count_artifacts(chat: Chat) -> int:
    async with chat.bot.database.read() as connection:
        return int((await connection.execute(sa.select(sa.func.count()).select_from(artifacts))).scalar_one())


def list_alt_texts(chat: Chat) -> list[str]:
    """Return the alternative texts of the images in the channel `general`."""
    visible = [m for m in chat.simulator.messages("general") if not m.deleted]
    if chat.simulator.api_url.endswith("/api/"):
        return [file.alt_text for m in visible for file in m.files if file.alt_text]
    return [file.description for m in visible for file in m.content.attachments if file.description]


async def test_generated_files_are_posted_in_order_and_deleted_with_the_session(simulator: Any, tmp_path: Path) -> None:
    script = [MAKES, "Here you are.", MAKES[1:], "Once more."]
    async with run_conversation(simulator, tmp_path, *script, core=TOOLS) as chat:
        await chat.say("draw")
        await wait_for_answer(chat, "Here you are.")
        await wait_for_turns(chat)
        assert sorted(chat.list_files()) == sorted(MADE)
        assert list_alt_texts(chat) == ["A curve: up"]
        assert "The user gets this file with your answer." in str(chat.bot.model.received[1].tool_results)
        await chat.press(words.REGENERATE)
        await wait_for_answer(chat, "Once more.")
        await wait_for_turns(chat, 2)
        assert chat.list_files() == MADE[2:]
        await chat.say("reset")
        await wait_for_texts(chat, lambda found: words.RESET_DONE in found)
        assert await count_artifacts(chat) == 0


@pytest.mark.parametrize("moment", ["sent", "recorded", "shared"])
async def test_each_generated_file_is_posted_once_despite_a_crash(
    simulator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    async with run_conversation(simulator, tmp_path, MAKES[:1], "Here you are.", core=TOOLS) as chat:
        shares = 0
        share, attach, save_ids = SlackSurface._share, DiscordApi.set_files, TurnStore.save_message_ids

        async def die_at_second_share(surface: Any, *kwargs: Any) -> None:
            nonlocal shares
            shares += 1
            if shares == 2:
                await create_crash(chat)()
            await (share if isinstance(surface, SlackSurface) else attach)(surface, *kwargs)

        async def die_before_record(turns: Any, turn: Any, ids: Any) -> None:
            if any(id_.startswith("file:") and id_.endswith("notes.txt") for id_ in ids):
                await create_crash(chat)()
            await save_ids(turns, turn, ids)

        with monkeypatch.context() as death:
            if moment == "sent":
                death.setattr(TurnStore, "save_message_ids", die_before_record)
            elif moment == "recorded":
                death.setattr(SlackSurface, "_share", die_at_second_share)
                death.setattr(DiscordApi, "set_files", create_crash(chat))
            else:
                death.setattr(TurnStore, "end", create_crash(chat))
            await chat.say("draw")
            await wait_until(chat.bot.worker._stopping.is_set)
            await chat.bot.worker.stop(5)
        assert len(chat.list_files()) == (2 if moment == "shared" else 1 if hasattr(chat, "channel") else 0)
    async with run_conversation(simulator, tmp_path, "never said", core=TOOLS) as chat:
        assert (await wait_for_turns(chat))[0].state == "done"
        assert sorted(chat.list_files()) == sorted(MADE[:2])
        assert list_texts(chat) == ["Here you are."]
