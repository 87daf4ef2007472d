"""Usage reports, spending limits and fallback models, through the clients of both platforms."""

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from channels.i18n import messages as words
from chatrig.models import Fail, Finish, Say
from core.store.schema import spending
from core.usage.prices import to_amount
from core.usage.spending_limits import SpendingLimits
from tests.channels.platforms import run_conversation, wait_for_texts
from tests.channels.wiring import FALLBACK_MODEL, echo
from tests.scenarios.chat import run_command

#: Cost of one answer of the scripted model, in the bot's words.
ONE = "$0.0120 today (12 tokens), $0.0120 this month (12 tokens)"


async def test_usage_is_private_and_a_spending_limit_ends_with_the_day(simulator: Any, tmp_path: Path) -> None:
    grace = str(simulator.people["grace"].id)
    limits: dict[str, Any] = {"limits": SpendingLimits(user=to_amount(Decimal("0.01"))), "admins": [grace]}
    async with run_conversation(simulator, tmp_path, echo, core=limits, admins=[grace]) as chat:
        await chat.say("one")
        await chat.bot.wait_for_turns(1)
        usage = await run_command(chat, "usage")
        assert [f"{label}: {ONE}" in usage for label in (words.USAGE_YOURS, words.USAGE_HERE)] == [True, True]
        assert "`ada" not in usage.lower()
        await chat.say("two")
        texts = await wait_for_texts(chat, lambda texts: "daily spending limit" in texts[-1])
        assert re.search(
            r"your daily spending limit \(\$0\.0100\)\. I can answer again from \d{4}-\d\d-\d\d,", texts[-1]
        )
        assert words.LIMIT_ADMINS in texts[-1]
        assert len(chat.bot.model.requests) == 1
        await chat.say("mine", user="grace")
        await chat.bot.wait_for_turns(3)
        usage = await run_command(chat, "usage", user="grace")
        assert [line for line in usage.splitlines() if "`ada" in line.lower() and ONE in line]
        assert "$0.0240 today (24 tokens)" in usage
        async with chat.bot.database.write() as connection:  # the day is over
            await connection.execute(sa.update(spending).values(day="2026-01-01"))
        await chat.press(words.RETRY)
        await wait_for_texts(chat, lambda texts: texts[1].endswith(": two"))


async def test_usage_and_why_list_the_tokens_of_the_prompt_cache(simulator: Any, tmp_path: Path) -> None:
    answer = [Say("Hi."), Finish(input=2_000, output=3, cached=1_500, cache_write=400)]
    async with run_conversation(simulator, tmp_path, answer) as chat:
        await chat.say("one")
        await chat.bot.wait_for_turns(1)
        assert "; prompt cache this month: 1,500 tokens read, 400 written" in await run_command(chat, "usage")
        assert "Prompt cache: 1,500 tokens read, 400 written" in await run_command(chat, "why")


async def test_a_fallback_model_answers_and_is_named(simulator: Any, tmp_path: Path) -> None:
    broken = [Say("The sky is gr"), Fail(503)]
    async with run_conversation(simulator, tmp_path, broken, broken, core={"fallback_script": echo}) as chat:
        await chat.say("one")
        note = words.ANSWERED_BY_FALLBACK.format(model=FALLBACK_MODEL, other="openai/scripted")
        await wait_for_texts(chat, lambda texts: texts and texts[-1].endswith(f": one\n\n{note}"))
        await chat.bot.wait_for_turns(1)
        usage = await run_command(chat, "usage")
        assert words.USAGE_UNPRICED.format(tokens="12") in usage  # the other model has no price
