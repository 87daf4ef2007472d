"""Usage reports, spending limits and fallback models on Slack."""

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from channels.i18n import messages as words
from chatrig.models import Fail, Finish, Say
from chatrig.slack import SlackSimulator
from core.store.schema import spending
from core.usage.prices import to_amount
from core.usage.spending_limits import SpendingLimits
from tests.channels.slack.conftest import run_bot
from tests.channels.slack.interactions.test_commands import run_command
from tests.channels.wiring import FALLBACK_MODEL, echo

#: Cost of one answer of the scripted model, in the bot's words.
ONE = "$0.0120 today (12 tokens), $0.0120 this month (12 tokens)"


async def test_usage_is_private_and_a_spending_limit_ends_with_the_day(slack: SlackSimulator, tmp_path: Path) -> None:
    grace = slack.people["grace"].id
    limits: dict[str, Any] = {"limits": SpendingLimits(user=to_amount(Decimal("0.01"))), "admins": [grace]}
    async with run_bot(slack, tmp_path, echo, core=limits, admins=[grace]) as bot:
        await bot.wait_for_texts(
            await bot.mention_bot("ada", "general", "one"), lambda texts: texts[-1] == "heard: ada: one"
        )
        await bot.wait_for_turns(1)
        text = (await run_command(bot, "ada", "general", "/usage")).text
        assert [f"{label}: {ONE}" in text for label in (words.USAGE_YOURS, words.USAGE_HERE)] == [True, True]
        assert "`ada`" not in text
        question = await bot.mention_bot("ada", "general", "two")
        texts = await bot.wait_for_texts(question, lambda texts: len(texts) == 2 and "daily spending limit" in texts[1])
        assert re.search(
            r"your daily spending limit \(\$0\.0100\)\. I can answer again from \d{4}-\d\d-\d\d,", texts[1]
        )
        assert words.LIMIT_ADMINS in texts[1]
        assert len(bot.model.requests) == 1
        await bot.wait_for_texts(
            await bot.mention_bot("grace", "random", "mine"), lambda texts: texts[-1] == "heard: grace: mine"
        )
        await bot.wait_for_turns(3)
        everything = (await run_command(bot, "grace", "random", "/usage")).text
        assert [line for line in everything.splitlines() if "`ada`" in line and ONE in line]
        assert "$0.0240 today (24 tokens)" in everything
        async with bot.database.write() as connection:  # the day is over
            await connection.execute(sa.update(spending).values(day="2026-01-01"))
        (reply,) = [message for message in bot.list_thread(question) if "daily spending limit" in message.text]
        await slack.click_button("ada", reply, reply.buttons[words.RETRY])
        await bot.wait_for_texts(question, lambda texts: len(texts) == 2 and texts[1].startswith("heard:"))


async def test_usage_lists_the_tokens_of_the_prompt_cache(slack: SlackSimulator, tmp_path: Path) -> None:
    answer = [Say("Hi."), Finish(input=2_000, output=3, cached=1_500, cache_write=400)]
    async with run_bot(slack, tmp_path, answer) as bot:
        await bot.wait_for_texts(await bot.mention_bot("ada", "general", "one"), lambda texts: texts[-1] == "Hi.")
        await bot.wait_for_turns(1)
        text = (await run_command(bot, "ada", "general", "/usage")).text
        assert "; prompt cache this month: 1,500 tokens read, 400 written" in text
        text = (await run_command(bot, "ada", "general", "/why")).text
        assert "Prompt cache: 1,500 tokens read, 400 written" in text


async def test_a_fallback_model_answers_and_is_named(slack: SlackSimulator, tmp_path: Path) -> None:
    broken = [Say("The sky is gr"), Fail(503)]
    async with run_bot(slack, tmp_path, broken, broken, core={"fallback_script": echo}) as bot:
        note = words.ANSWERED_BY_FALLBACK.format(model=FALLBACK_MODEL, other="openai/scripted")
        texts = await bot.wait_for_texts(
            await bot.mention_bot("ada", "general", "one"), lambda texts: FALLBACK_MODEL in texts[-1]
        )
        assert texts[1] == f"heard: ada: one\n\n{note}"
        await bot.wait_for_turns(1)
        text = (await run_command(bot, "ada", "general", "/usage")).text
        assert words.USAGE_UNPRICED.format(tokens="12") in text  # the other model has no price
