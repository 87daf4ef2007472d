"""Usage reports, spending limits and fallback models on Discord."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from channels.i18n import messages as words
from chatrig.discord import DiscordSimulator
from chatrig.models import Fail, Say
from core.store.schema import spending
from core.usage.prices import to_amount
from core.usage.spending_limits import SpendingLimits
from tests.channels.discord.conftest import WiredDiscordBot, run_bot
from tests.channels.slack.test_spending import ONE
from tests.channels.wiring import FALLBACK_MODEL, echo


async def run_usage_command(bot: WiredDiscordBot, user: str, channel: Any) -> str:
    """Run `/usage`, and return the text of its ephemeral response."""
    (response,) = responses = await bot.server.run_command(user, channel, "/usage")
    await bot.server.wait_for(lambda: not responses[0].loading and responses[0].text)
    assert response.ephemeral_to is bot.server.people[user]
    return str(responses[0].text)


async def test_usage_is_private_and_a_spending_limit_ends_with_the_day(
    server: DiscordSimulator, tmp_path: Path
) -> None:
    grace = str(server.people["grace"].id)
    limits: dict[str, Any] = {"limits": SpendingLimits(user=to_amount(Decimal("0.01"))), "admins": [grace]}
    async with run_bot(server, tmp_path, echo, core=limits, admins=[grace]) as bot:
        await bot.wait_for_last_reply(await bot.mention_bot("ada", "general", "one"), lambda text: "one" in text)
        await bot.wait_for_turns(1)
        usage = await run_usage_command(bot, "ada", "general")
        assert [f"{label}: {ONE}" in usage for label in (words.USAGE_YOURS, words.USAGE_HERE)] == [True, True]
        assert "Ada" not in usage
        question = await bot.mention_bot("ada", "general", "two")
        (reply,) = await bot.wait_for_last_reply(question, lambda text: "daily spending limit" in text)
        assert words.LIMIT_ADMINS in reply.text
        assert len(bot.model.requests) == 1
        await bot.wait_for_last_reply(
            await bot.mention_bot("grace", server.open_dm("grace"), "mine"), lambda text: "mine" in text
        )
        await bot.wait_for_turns(3)
        everything = await run_usage_command(bot, "grace", "general")
        assert [line for line in everything.splitlines() if "Ada" in line and ONE in line]
        async with bot.database.write() as connection:  # the day is over
            await connection.execute(sa.update(spending).values(day="2026-01-01"))
        await server.click_button("ada", reply, reply.buttons[words.RETRY])
        await bot.wait_for_last_reply(question, lambda text: text.startswith("heard:"))


async def test_a_fallback_model_answers_and_is_named(server: DiscordSimulator, tmp_path: Path) -> None:
    broken = [Say("The sky is gr"), Fail(503)]
    async with run_bot(server, tmp_path, broken, core={"fallback_script": echo}) as bot:
        note = words.ANSWERED_BY_FALLBACK.format(model=FALLBACK_MODEL, other="openai/scripted")
        (answer,) = await bot.wait_for_last_reply(
            await bot.mention_bot("ada", "general", "one"), lambda text: FALLBACK_MODEL in text
        )
        assert answer.text.endswith(f"one\n\n{note}")
