"""Approvals: a tool call that needs one is shown, and runs once if the right user approves it in time."""

from collections.abc import Iterator
from typing import Any

import pytest

from channels.i18n import messages as words
from chatrig.models import CallTool, ReceivedRequest
from tests.scenarios import tools
from tests.scenarios.chat import (
    Chat,
    list_buttons,
    list_texts,
    run_command,
    wait_for_private_message,
    wait_for_texts,
)
from tests.scenarios.conftest import StartBot

PAYING: dict[str, Any] = {"tools": ("tests.scenarios.tools:confirmed_pay",)}
TRANSFERRING: dict[str, Any] = {"tools": ("tests.scenarios.tools:confirmed_transfer",)}
PAY_BOB = CallTool("pay", {"to": "Bob"})


@pytest.fixture(autouse=True)
def paid() -> Iterator[list[str]]:
    """Yield the payees of the tools' calls."""
    yield tools.paid
    tools.paid.clear()


def pay_once(request: ReceivedRequest) -> Any:
    """Call `pay`, answer its result, and answer other messages with "heard"."""
    if request.tool_results:
        return f"Result: {request.tool_results[-1].content}"
    return PAY_BOB if request.text.endswith("pay!") else "heard"


async def wait_for_approval(chat: Chat) -> str:
    """Wait for an approval that can be decided, and return its text."""
    await chat.simulator.wait_for(lambda: any(words.DENY in labels for labels in list_buttons(chat)))
    return next(text for text, labels in zip(list_texts(chat), list_buttons(chat), strict=True) if words.DENY in labels)


async def wait_for_decision(chat: Chat, sign: str, answer: str) -> None:
    """Wait until the approval has its decision and no buttons, and the newest message is an answer like `answer`."""
    await wait_for_texts(chat, lambda texts: sign in texts[1] and answer in texts[-1])
    assert not any(words.DENY in labels for labels in list_buttons(chat))


async def test_a_call_is_shown_and_runs_once_when_its_author_approves(start: StartBot, paid: list[str]) -> None:
    async with start(pay_once, **PAYING) as chat:
        await chat.say("pay!")
        request = await wait_for_approval(chat)
        assert list_texts(chat)[0] == words.NEEDS_APPROVAL
        assert "pay" in request
        assert '"to": "Bob"' in request
        await chat.press(words.APPROVE, user="grace")
        await wait_for_private_message(chat, words.AUTHOR_MUST_APPROVE, user="grace")
        assert paid == []
        await chat.press(words.APPROVE)
        await wait_for_decision(chat, "✅", "Bob is paid")
        assert paid == ["Bob"]


async def test_a_denied_call_does_not_run(start: StartBot, paid: list[str]) -> None:
    async with start(pay_once, **PAYING) as chat:
        await chat.say("pay!")
        await wait_for_approval(chat)
        await chat.press(words.DENY)
        await wait_for_decision(chat, "⛔", "rejected")
        assert paid == []


async def test_a_late_approval_is_denied(start: StartBot, paid: list[str]) -> None:
    async with start(pay_once, approval_hours=1e-9, **PAYING) as chat:
        await chat.say("pay!")
        await wait_for_approval(chat)
        await chat.press(words.APPROVE)
        await wait_for_decision(chat, words.EXPIRED, "rejected")
        assert paid == []


async def test_the_author_may_need_another_user_to_approve(start: StartBot, paid: list[str]) -> None:
    async with start(pay_once, approvers=("others",), **PAYING) as chat:
        await chat.say("pay!")
        await wait_for_approval(chat)
        await chat.press(words.APPROVE)
        await wait_for_private_message(chat, words.OTHERS_MUST_APPROVE)
        assert paid == []
        await chat.press(words.APPROVE, user="grace")
        await wait_for_decision(chat, "✅", "Bob is paid")
        assert paid == ["Bob"]


async def test_always_allow_holds_until_a_reset(start: StartBot, paid: list[str]) -> None:
    async with start(pay_once, **PAYING) as chat:
        await chat.say("pay!")
        await wait_for_approval(chat)
        await chat.press(words.ALWAYS_ALLOW)
        await wait_for_decision(chat, "✅", "Bob is paid")
        await chat.say("pay!")
        await wait_for_texts(chat, lambda texts: sum("Bob is paid" in text for text in texts) == 2)
        assert await run_command(chat, "reset") == words.RESET_DONE
        await chat.say("pay!")
        await wait_for_approval(chat)
        assert paid == ["Bob", "Bob"]


async def test_an_edit_of_the_question_voids_its_approval(start: StartBot, paid: list[str]) -> None:
    async with start(pay_once, **PAYING) as chat:
        question = await chat.say("pay!")
        await wait_for_approval(chat)
        await chat.edit(question, "do not pay")
        await chat.press(words.ANSWER_EDITED)
        await wait_for_texts(chat, lambda texts: texts[0] == "heard" and words.APPROVAL_VOID in texts[1])
        assert not any(words.APPROVE in labels for labels in list_buttons(chat))
        assert paid == []


async def test_a_reset_voids_an_approval(start: StartBot, paid: list[str]) -> None:
    async with start(pay_once, **PAYING) as chat:
        await chat.say("pay!")
        await wait_for_approval(chat)
        assert await run_command(chat, "reset") == words.RESET_DONE
        await wait_for_texts(chat, lambda texts: words.APPROVAL_VOID in texts[1])
        await chat.say("hi")
        await wait_for_decision(chat, words.APPROVAL_VOID, "heard")
        assert paid == []


async def test_an_approval_survives_a_restart_and_other_messages(start: StartBot, paid: list[str]) -> None:
    async with start(PAY_BOB, "heard", **PAYING) as chat:
        await chat.say("pay!")
        await wait_for_approval(chat)
        await chat.say("hi")
        await wait_for_texts(chat, lambda texts: texts[-1] == "heard")
    async with start(lambda request: str(request.messages), **PAYING) as chat:
        await chat.press(words.APPROVE)
        await wait_for_decision(chat, "✅", "Bob is paid")
        assert paid == ["Bob"]


async def test_an_approved_call_that_a_restart_interrupts_is_not_repeated(start: StartBot, paid: list[str]) -> None:
    async with start(CallTool("transfer", {"to": "Bob"}), **TRANSFERRING) as chat:
        await chat.say("pay!")
        await wait_for_approval(chat)
        await chat.press(words.APPROVE)
        await chat.simulator.wait_for(lambda: paid)
    async with start(pay_once, **TRANSFERRING) as chat:
        await wait_for_decision(chat, "✅", "interrupted")
        assert paid == ["Bob"]
