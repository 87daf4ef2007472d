"""Markdown in answers, as Slack's page shows it."""

import re
from pathlib import Path

import pytest

from channels.slack.settings import Streaming
from chatrig.models import Say
from chatrig.page.markdown import render_slack
from chatrig.slack import SlackSimulator
from tests.channels.slack.conftest import run_bot


def list_answers(texts: list[str]) -> list[str]:
    return [text for text in texts if not text.startswith("@")]


@pytest.mark.parametrize("streaming", ["edit", "native"])
@pytest.mark.parametrize(
    ("text", "sent", "shown"),
    [
        ("**重要\uff1a**请注意", "**重要**\uff1a请注意", "<strong>重要</strong>\uff1a请注意"),
        ("**서버(API)**를 봐", "**서버(API**)를 봐", "<strong>서버(API</strong>)를 봐"),
        ("これは**「重要」**です", "これは「**重要**」です", "これは「<strong>重要</strong>」です"),
        ("*注意\uff1a*请", "*注意*\uff1a请", "<em>注意</em>\uff1a请"),
        ("- **`config.py`**를 수정", "- `config.py`를 수정", "<code>config.py</code>를 수정"),
    ],
)
async def test_bold_beside_punctuation_is_bold(
    slack: SlackSimulator, tmp_path: Path, text: str, sent: str, shown: str, streaming: Streaming
) -> None:
    async with run_bot(slack, tmp_path, [Say(text, pieces=len(text), pace=0.01)], streaming=streaming) as bot:
        question = await bot.mention_bot("ada", "general", "hello")
        await bot.wait_for_texts(question, lambda texts: list_answers(texts) == [sent])
        assert shown in render_slack(sent, lambda inner: "")


async def test_a_table_with_too_many_rows_continues_in_the_next_message(slack: SlackSimulator, tmp_path: Path) -> None:
    table = "| n | m |\n|---|---|\n" + "".join(f"| {n} | {n} |\n" for n in range(150))
    async with run_bot(slack, tmp_path, f"Numbers:\n\n{table}\nThat is all.") as bot:
        question = await bot.mention_bot("ada", "general", "count")
        texts = list_answers(await bot.wait_for_texts(question, lambda texts: texts[-1].endswith("That is all.")))
        assert [text.count("| n | m |\n|---|---|") for text in texts] == [1, 1]
        assert re.findall(r"\| (\d+) \| \1 \|", "".join(texts)) == [str(n) for n in range(150)]
        assert all(not message.files for message in bot.list_thread(question))


async def test_a_table_with_too_many_columns_becomes_code(slack: SlackSimulator, tmp_path: Path) -> None:
    row = "".join(f"| c{n} " for n in range(25)) + "|\n"
    async with run_bot(slack, tmp_path, f"Wide:\n\n{row}{'|---' * 25}|\n{row * 3}\nThat is all.") as bot:
        question = await bot.mention_bot("ada", "general", "list")
        texts = list_answers(await bot.wait_for_texts(question, lambda texts: texts[-1].endswith("That is all.")))
        assert re.fullmatch(r"Wide:\n\n```\nc0 +\|[^`]+c24\n```\n\nThat is all\.", "\n".join(texts))
        assert "".join(texts).count("c24") == 4
