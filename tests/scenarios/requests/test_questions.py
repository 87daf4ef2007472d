"""Questions of an agent: a button, a message or a form of the asked user answers each once."""

from typing import Any

from channels.i18n import messages as words
from chatrig.models import CallTool, ReceivedRequest
from tests.scenarios.chat import Chat, list_buttons, list_texts, wait_for_private_message, wait_for_texts
from tests.scenarios.conftest import StartBot

ASKING: dict[str, Any] = {
    "tools": ("tests.scenarios.tools:get_user_choice_tool", "tests.scenarios.tools:request_input")
}
SIZES = CallTool("get_user_choice", {"options": ["S", "M"]})
FORM = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "count": {"type": "integer"}, "size": {"enum": ["S", "M"]}},
    "required": ["name", "count", "size"],
}


def ask(call: CallTool) -> Any:
    """Return a script that makes a call at "a shirt", and answers with its result, or with "heard"."""

    def answer(request: ReceivedRequest) -> Any:
        if request.tool_results:
            return f"Result: {request.tool_results[-1].content}"
        return call if request.text.endswith("a shirt") else "heard"

    return answer


async def wait_for_question(chat: Chat, label: str) -> None:
    await chat.simulator.wait_for(lambda: any(label in labels for labels in list_buttons(chat)))


async def wait_for_result(chat: Chat, sign: str, *results: str) -> None:
    """Wait until the question has a sign and no buttons, and the newest message contains the results."""
    await wait_for_texts(chat, lambda texts: sign in texts[1] and all(result in texts[-1] for result in results))
    assert not list_buttons(chat)[1]


async def test_a_button_answers_once_and_only_for_the_author(start: StartBot) -> None:
    async with start(ask(SIZES), **ASKING) as chat:
        await chat.say("a shirt")
        await wait_for_question(chat, "M")
        assert ["S", "M"] in list_buttons(chat)
        await chat.press("M", user="grace")
        await wait_for_private_message(chat, words.AUTHOR_MUST_ANSWER, user="grace")
        await chat.press("M")
        await wait_for_result(chat, "✅", "Result", "M")
        await chat.say("thanks")
        await wait_for_texts(chat, lambda texts: texts[-1] == "heard")


async def test_a_message_answers_also_after_a_restart(start: StartBot) -> None:
    call = CallTool("adk_request_input", {"message": "Which size?"})
    async with start(ask(call), **ASKING) as chat:
        await chat.say("a shirt")
        await wait_for_question(chat, words.ANSWER)
        assert "Which size?" in list_texts(chat)[1]
    async with start(ask(call), **ASKING) as chat:
        await chat.say("rather large")
        await wait_for_result(chat, "✅", "Result", "rather large")


async def test_a_late_answer_is_none(start: StartBot) -> None:
    async with start(ask(SIZES), approval_hours=1e-9, **ASKING) as chat:
        await chat.say("a shirt")
        await wait_for_question(chat, "M")
        await chat.press("M")
        await wait_for_texts(chat, lambda texts: words.QUESTION_EXPIRED in texts[1])
        await chat.say("hello")
        await wait_for_result(chat, words.QUESTION_EXPIRED, "nobody answered this")


async def test_a_stop_closes_a_question(start: StartBot) -> None:
    async with start(ask(SIZES), **ASKING) as chat:
        await chat.say("a shirt")
        await wait_for_question(chat, "M")
        await chat.say("stop")
        await wait_for_texts(chat, lambda texts: words.QUESTION_VOID in texts[1])
        await chat.say("hello")
        await wait_for_result(chat, words.QUESTION_VOID, "nobody answered this")


async def test_a_form_answers_once_and_only_for_the_author(start: StartBot) -> None:
    call = CallTool("adk_request_input", {"message": "Please order.", "response_schema": FORM})
    async with start(ask(call), **ASKING) as chat:
        await chat.say("a shirt")
        await wait_for_question(chat, words.ANSWER)
        await chat.press(words.ANSWER, user="grace")
        await wait_for_private_message(chat, words.AUTHOR_MUST_ANSWER, user="grace")
        await chat.press(words.ANSWER)
        await chat.fill_form("Ada", "3", "option:1")
        await wait_for_result(chat, "✅", "{'name': 'Ada', 'count': 3, 'size': 'M'}")
