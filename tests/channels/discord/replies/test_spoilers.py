import re
from pathlib import Path

import pytest

from chatrig.discord import DiscordSimulator
from chatrig.models import Say
from tests.channels.discord.conftest import run_bot

_SPOILER = re.compile(r"\|\|.+?\|\|", re.DOTALL)


@pytest.mark.parametrize(
    "hidden",
    [
        "secret " * 40,
        "**secret** and " * 300,
        "secret\n\n" * 300,
        "\n- secret" * 300,
        "\n```\n" + "secret || secret\n" * 200 + "```\n",
    ],
    ids=["short", "bold", "paragraphs", "list", "code"],
)
async def test_no_stored_version_of_a_message_shows_a_spoiler(
    server: DiscordSimulator, tmp_path: Path, hidden: str
) -> None:
    answer = f"The ending: ||{hidden}|| That is all."
    async with run_bot(server, tmp_path, [Say(answer, pieces=len(answer) // 50, pace=0.005)]) as bot:
        question = await bot.mention_bot("ada", "general", "how does it end?")
        messages = await bot.wait_for_last_reply(question, lambda text: text.endswith("That is all."))
        versions = [version.text for message in messages for version in message.versions]
        assert len(messages) >= (2 if len(hidden) > 2_000 else 1)
        assert any("secret" in version for version in versions[:-1])
        assert [version for version in versions if "secret" in _SPOILER.sub("", version)] == []


async def test_an_unpaired_mark_hides_nothing_in_the_end(server: DiscordSimulator, tmp_path: Path) -> None:
    answer = "Use the || operator. " + "More words follow here. " * 120
    async with run_bot(server, tmp_path, [Say(answer, pieces=60, pace=0.005)]) as bot:
        question = await bot.mention_bot("ada", "general", "how?")
        (row,) = await bot.wait_for_turns(1)
        assert row.state == "done"
        texts = bot.list_texts(question)
        assert len(texts) == 2
        assert "".join(texts).count("||") == 1


@pytest.mark.parametrize("text", ["**重要\uff1a**请", "**서버(API)**를", "これは**「重要」**です"])
async def test_bold_beside_punctuation_is_unchanged_on_discord(
    server: DiscordSimulator, tmp_path: Path, text: str
) -> None:
    async with run_bot(server, tmp_path, text) as bot:
        await bot.wait_for_replies(await bot.mention_bot("ada", "general", "hello"), text)
