"""Attacks on limits: files, parallel and stopped answers, budgets of others, decisions and answers by form."""

import asyncio
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from channels.i18n import messages as words
from chatrig.models import Finish, Pause, ReceivedRequest, Say
from chatrig.slack import SlackFile, SlackSimulator
from core.store.schema import human_requests, inbox
from core.usage.prices import to_amount
from core.usage.spending_ledger import FIRST_DAY
from core.usage.spending_limits import SpendingLimits
from core.usage.user_rate_limits import RateLimit, UserRateLimiter
from tests.channels.platforms import PLATFORMS, Chat, list_texts, run_conversation, run_simulator, wait_for_texts
from tests.channels.requests.test_approvals import ConfirmedPaymentTool, create_payment, create_settings
from tests.channels.requests.test_questions import ASKING, FORM, create_choice, create_input_request, wait_for_button
from tests.channels.slack.conftest import run_bot
from tests.fixtures.files import create_pdf

#: A token of the scripted model costs a tenth of a cent, so that a page of a PDF file is estimated at three dollars.
DOLLAR = to_amount(Decimal(1))

LIMIT_SAID = "daily spending limit"

PDFS: Mapping[str, bytes] = {
    "true": create_pdf(100),
    "of one page by its own count": create_pdf(100, claimed=1),
    "compressed": create_pdf(100, claimed=1, is_compressed=True),
}


@pytest.mark.parametrize("kind", PDFS)
async def test_parallel_questions_with_files_pass_a_limit_by_one_call(
    slack: SlackSimulator, tmp_path: Path, kind: str
) -> None:
    go_on = asyncio.Event()
    core = {"limits": SpendingLimits(user=100 * DOLLAR)}
    script = [Pause(go_on), Say("It has many pages."), Finish(input=200_000)]
    async with run_bot(slack, tmp_path, lambda _: script, core=core) as bot:
        files = [SlackFile("F1", "report.pdf", PDFS[kind])]
        questions = await asyncio.gather(
            *(bot.mention_bot("ada", "general", f"question {n}", files=files) for n in range(6))
        )
        await bot.wait_for_turns(5)
        go_on.set()
        await bot.wait_for_turns(6)
        assert len(bot.model.requests) == 1
        texts = [bot.list_texts(question)[-1] for question in questions]
        assert sum(LIMIT_SAID in text for text in texts) == 5


async def test_a_stopped_answer_costs_its_files(slack: SlackSimulator, tmp_path: Path) -> None:
    core = {"limits": SpendingLimits(user=100 * DOLLAR)}
    async with run_bot(slack, tmp_path, lambda _: [Say("It says"), Pause(60)], core=core) as bot:
        files = [SlackFile("F1", "report.pdf", create_pdf(100))]
        question = await bot.mention_bot("ada", "general", "what does it say?", files=files)
        await bot.wait_for_texts(question, lambda texts: "It says" in texts[-1])
        await bot.mention_bot("ada", "general", "stop", thread_ts=question.ts)
        await bot.wait_for_turns(1)
        second = await bot.mention_bot("ada", "general", "again", files=files)
        await bot.wait_for_texts(second, lambda texts: LIMIT_SAID in texts[-1])
        assert len(bot.model.requests) == 1


async def test_files_of_the_history_count_again(slack: SlackSimulator, tmp_path: Path) -> None:
    go_on = asyncio.Event()

    def answer(request: ReceivedRequest) -> Any:
        return "Noted." if "keep this" in request.text else [Pause(go_on), Say("Well.")]

    core = {"limits": SpendingLimits(user=100 * DOLLAR)}
    async with run_bot(slack, tmp_path, answer, core=core) as bot:
        files = [SlackFile("F1", "report.pdf", create_pdf(100))]
        thread = await bot.mention_bot("ada", "general", "keep this", files=files)
        await bot.wait_for_texts(thread, lambda texts: texts[-1] == "Noted.")
        await bot.mention_bot("ada", "general", "and now?", thread_ts=thread.ts)
        await bot.slack.wait_for(lambda: len(bot.model.requests) == 2)
        other = await bot.mention_bot("ada", "general", "beside it")
        await bot.wait_for_texts(other, lambda texts: LIMIT_SAID in texts[-1])
        go_on.set()
        await bot.wait_for_turns(3)
        assert len(bot.model.requests) == 2


async def test_long_answers_at_once_end_when_they_reach_a_limit_together(slack: SlackSimulator, tmp_path: Path) -> None:
    ready, tale = asyncio.Event(), Say("Upon a time. " * 8_000, pieces=40, pace=0.01)
    script = [Say("Once. " * 400), Pause(ready), tale, Finish(output=20_000)]
    core = {"limits": SpendingLimits(all=20 * DOLLAR)}
    async with run_bot(slack, tmp_path, lambda _: script, core=core) as bot:
        questions = await asyncio.gather(*(bot.mention_bot("ada", "general", f"tale {n}") for n in range(6)))
        await bot.slack.wait_for(lambda: len(bot.model.requests) == 6)
        ready.set()
        await bot.wait_for_turns(6)
        ended = [text for question in questions for text in bot.list_texts(question) if LIMIT_SAID in text]
        assert len(ended) >= 5
        (spent,) = await bot.services.spending.sum_spending(since=FIRST_DAY)
        assert spent.cost < 2 * 20 * DOLLAR


def spend_or_answer(wait: asyncio.Event) -> Any:
    def answer(request: ReceivedRequest) -> Any:
        if "expensive" in request.text:
            return [Say("Dear."), Finish(input=2_000)]
        return [Pause(wait), Say("Well.")] if "slow" in request.text else "Well."

    return answer


async def use_up_budget(chat: Chat, user: str, *, turns: int) -> None:
    """Let a user spend more than a dollar in another channel, and wait until `turns` turns have ended."""
    await chat.bot.mention_bot(user, "random", "expensive")
    await chat.bot.wait_for_turns(turns)


async def say_and_wait(chat: Chat, text: str, user: str) -> None:
    """Post a message, and wait until it is stored: another one then comes after it."""
    await chat.say(text, user=user)
    is_stored = partial(contains_text, text)
    await chat.bot.database.wait_until(chat.bot.list_inbox_messages, is_stored)


def contains_text(text: str, rows: Sequence[Any]) -> bool:
    return any(text in str(row.message) for row in rows)


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("order", ["linus first", "linus last"])
async def test_nobody_is_answered_on_the_budget_of_another(platform: str, order: str, tmp_path: Path) -> None:
    go_on = asyncio.Event()
    core = {"limits": SpendingLimits(user=DOLLAR)}
    async with (
        run_simulator(platform) as simulator,
        run_conversation(simulator, tmp_path, spend_or_answer(go_on), core=core) as chat,
    ):
        await use_up_budget(chat, "linus", turns=1)
        await chat.say("a slow question")
        await simulator.wait_for(lambda: len(chat.bot.model.requests) == 2)
        said = [("the secret wish of linus", "linus"), ("thanks", "ada")]
        for text, user in said if order == "linus first" else reversed(said):
            await say_and_wait(chat, text, user)
        go_on.set()
        await chat.bot.wait_for_turns(3)
        await wait_for_texts(chat, lambda found: words.MESSAGES_LEFT_OUT.partition("{")[0].strip("_ ") in found[-1])
        assert len(chat.bot.model.requests) == 3
        assert "thanks" in str(chat.bot.model.requests[-1])
        assert "secret wish" not in str(chat.bot.model.requests[-1])
        assert "Well." in list_texts(chat)[-1]


@pytest.mark.parametrize("platform", PLATFORMS)
async def test_a_common_answer_is_not_repeated_for_an_author_without_budget(platform: str, tmp_path: Path) -> None:
    go_on = asyncio.Event()
    core = {"limits": SpendingLimits(user=DOLLAR)}
    async with (
        run_simulator(platform) as simulator,
        run_conversation(simulator, tmp_path, spend_or_answer(go_on), core=core) as chat,
    ):
        await chat.say("a slow question")
        await simulator.wait_for(lambda: len(chat.bot.model.requests) == 1)
        for text, user in (("the wish of linus", "linus"), ("thanks", "ada")):
            await say_and_wait(chat, text, user)
        go_on.set()
        await chat.bot.wait_for_turns(2)
        assert "wish of linus" in str(chat.bot.model.requests[-1])
        await use_up_budget(chat, "linus", turns=3)
        await chat.press(words.REGENERATE, user="linus")
        await wait_for_texts(chat, lambda found: "Somebody whose message" in found[-1])
        await chat.bot.wait_for_turns(4)
        assert len(chat.bot.model.requests) == 3


async def make_room(chat: Chat) -> None:
    """Let the rate limits forget what was sent so far."""
    async with chat.bot.database.write() as connection:
        await connection.execute(sa.update(inbox).values(sent_at=inbox.c.sent_at - 7_200.0))


async def list_verdicts(chat: Chat) -> list[str | None]:
    async with chat.bot.database.read() as connection:
        query = sa.select(human_requests.c.decision).order_by(human_requests.c.requested_at)
        return list((await connection.execute(query)).scalars())


TWO_AN_HOUR: dict[str, Any] = {"rates": UserRateLimiter(user=RateLimit(2, 3_600))}


def is_limit_told(chat: Chat, user: str = "ada") -> bool:
    return any("message limit" in text for text in chat.list_private_messages(user))


@pytest.mark.parametrize("platform", PLATFORMS)
async def test_chosen_answers_count_as_messages_and_can_be_given_later(platform: str, tmp_path: Path) -> None:
    script = [create_choice("S", "M"), create_choice("red", "blue"), "A blue one."]
    async with (
        run_simulator(platform) as simulator,
        run_conversation(simulator, tmp_path, *script, core=ASKING | TWO_AN_HOUR) as chat,
    ):
        await chat.say("a shirt")
        await wait_for_button(chat, "M")
        await chat.press("M")
        await wait_for_button(chat, "blue")
        await chat.press("blue")
        await simulator.wait_for(lambda: is_limit_told(chat))
        assert (await list_verdicts(chat), len(chat.bot.model.requests)) == (["answered", None], 2)
        await make_room(chat)
        await chat.press("blue")
        await wait_for_texts(chat, lambda found: found[-1] == "A blue one.")


async def test_a_form_over_the_message_limit_keeps_its_entries(tmp_path: Path) -> None:
    script = create_input_request("Please order.", FORM), "Ordered."
    limits: dict[str, Any] = {"rates": UserRateLimiter(user=RateLimit(1, 3_600))}
    async with (
        run_simulator("slack") as slack,
        run_conversation(slack, tmp_path, *script, core=ASKING | limits) as chat,
    ):
        await chat.say("a shirt")
        await wait_for_button(chat, words.ANSWER)
        await chat.press(words.ANSWER)
        await slack.wait_for(lambda: slack.modals("ada"))
        (modal,) = slack.modals("ada")
        assert await slack.submit_modal(modal, **{"field-0": "Ada L.", "field-1": "3", "field-2": "option:1"})
        await slack.wait_for(lambda: is_limit_told(chat))
        assert (await list_verdicts(chat), len(chat.bot.model.requests)) == ([None], 1)
        await make_room(chat)
        await chat.press(words.ANSWER)
        await slack.wait_for(lambda: slack.modals("ada"))
        (modal,) = slack.modals("ada")
        assert "Ada L." in str(modal.content)
        assert await slack.submit_modal(modal)
        await wait_for_texts(chat, lambda found: found[-1] == "Ordered.")


@pytest.mark.parametrize("platform", PLATFORMS)
async def test_approvals_count_as_messages_of_the_approver(platform: str, tmp_path: Path) -> None:
    payments = ConfirmedPaymentTool()
    script = [create_payment("Bob"), create_payment("Eve"), "Paid."]
    async with (
        run_simulator(platform) as simulator,
        run_conversation(simulator, tmp_path, *script, core=create_settings(payments) | TWO_AN_HOUR) as chat,
    ):
        await chat.say("pay!")
        await wait_for_button(chat, words.APPROVE)
        await chat.press(words.APPROVE)
        await simulator.wait_for(lambda: len(chat.bot.model.requests) == 2)
        await wait_for_button(chat, words.APPROVE)
        await chat.bot.wait_for_turns(2)
        await chat.press(words.APPROVE)
        await simulator.wait_for(lambda: is_limit_told(chat))
        assert (await list_verdicts(chat), payments.paid) == (["approved", None], ["Bob"])
        await make_room(chat)
        await chat.press(words.APPROVE)
        await wait_for_texts(chat, lambda found: found[-1] == "Paid.")
        assert payments.paid == ["Bob", "Eve"]


@pytest.mark.parametrize("platform", PLATFORMS)
async def test_a_denial_over_the_message_limit_is_stored_and_calls_no_model(platform: str, tmp_path: Path) -> None:
    payments = ConfirmedPaymentTool()
    limits: dict[str, Any] = {"rates": UserRateLimiter(user=RateLimit(1, 3_600))}
    async with (
        run_simulator(platform) as simulator,
        run_conversation(
            simulator, tmp_path, create_payment("Bob"), "Never mind.", core=create_settings(payments) | limits
        ) as chat,
    ):
        await chat.say("pay!")
        await wait_for_button(chat, words.DENY)
        await chat.bot.wait_for_turns(1)
        await chat.press(words.DENY)
        await wait_for_texts(chat, lambda found: "⛔" in found[-1])
        await simulator.wait_for(lambda: is_limit_told(chat))
        assert (await list_verdicts(chat), payments.paid, len(chat.bot.model.requests)) == (["denied"], [], 1)
        await make_room(chat)
        await chat.say("and now?")
        await wait_for_texts(chat, lambda found: found[-1] == "Never mind.")
        assert payments.paid == []
