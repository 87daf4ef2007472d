from dataclasses import replace

import pytest

from bot.simulator.tour import STEPS, TourState, TourStep, find_step, find_tour_state, respond_to_tour
from chatrig.client.platform import ClientMessage
from chatrig.models import ReceivedRequest, ReceivedToolResult, Say, ScriptedResponse

TASTING = {"host": "Ada", "guests": 8, "day": "Friday", "coffees": ["Decaf"], "note": None}

REQUEST = ReceivedRequest("scripted-tour", "", "", (), (), (), {}, {}, True)


def get_text(response: ScriptedResponse) -> str:
    assert isinstance(response, Say)
    return response.text


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.title)
def test_the_message_of_a_step_starts_it(step: TourStep) -> None:
    quote = "⟦Earlier messages⟧\n> Grace: hello\n⟦End of the quote⟧\n\n"
    for text in (step.prompt, f"Ada: {step.prompt.upper()}", f" @parley  {step.prompt}\n", f"{quote}{step.prompt}"):
        assert find_step(text) is step


JOB = '⟦The background job 0a1b2c3d4e, {tool}({{"kilograms": 20}}), {end}.⟧\n⟦Result⟧\n> {{"roasted": "20 kg"}}'


@pytest.mark.parametrize(
    ("end", "answer"),
    [("has ended. Tell the user the result", "is roasted: **20 kg**"), ("was interrupted", "stopped")],
)
def test_the_end_of_a_background_job_continues_its_step(end: str, answer: str) -> None:
    prompt = JOB.format(tool="roast_coffee", end=end)
    prompt = prompt if "ended" in end else prompt.partition("\n")[0]
    assert find_step(prompt) is STEPS[7]
    assert answer in get_text(respond_to_tour(replace(REQUEST, text=prompt)))


def test_a_background_job_of_another_agent_is_no_step() -> None:
    assert find_step(JOB.format(tool="render", end="has ended")) is None


@pytest.mark.parametrize(
    "text",
    ["hello", "Write a poem about orders.", "Refund order 1042. And hurry!", "How was this week for you?", "", ":"],
)
def test_another_message_starts_no_step(text: str) -> None:
    assert find_step(text) is None
    assert "I only know its steps" in get_text(respond_to_tour(replace(REQUEST, text=text)))


def say(text: str, *buttons: str, is_pending: bool = False) -> ClientMessage:
    """Return a message of the bot, with buttons."""
    return replace(ask(text), is_from_bot=True, buttons={label: label for label in buttons}, is_pending=is_pending)


def ask(text: str) -> ClientMessage:
    """Return a message of a user."""
    return ClientMessage("1", "D1", "ada", False, 7.0, text, text)


ANSWERED = [ask("Send a replacement."), say("Ground as: Filter.\nNext step: write “Plan a tasting.”", "Regenerate")]


@pytest.mark.parametrize(
    ("messages", "state"),
    [
        ([], TourState()),
        ([ask("hello"), say("…", "Stop")], TourState()),
        ([ask("@parley Send a replacement.")], TourState(open_step=1)),
        ([ask("Send a replacement."), say("…", "Stop")], TourState(open_step=1)),
        ([ask("Send a replacement."), say("", is_pending=True)], TourState(open_step=1)),
        ([ask("Send a replacement."), say("Stopped", "Regenerate")], TourState()),
        (
            [ask("Send a replacement."), say("Which?", "Whole beans", "Filter"), ask("hm"), say("Well", "Regenerate")],
            TourState(open_step=1, waits_for_user=True),
        ),
        ([say("Approve?", "Approve", "Deny")], TourState(open_step=0, waits_for_user=True)),
        (ANSWERED, TourState(next_step=2, result_at=7.0)),
        ([ANSWERED[0], say(ANSWERED[1].plain_text, "Stop")], TourState(open_step=1)),
        ([*ANSWERED, ask("Plan a tasting.")], TourState(open_step=2, next_step=2, result_at=7.0)),
        ([say("That was the tour. Paste a key", "Regenerate")], TourState(next_step=len(STEPS), result_at=7.0)),
    ],
)
def test_a_step_is_open_until_its_result_appears(messages: list[ClientMessage], state: TourState) -> None:
    assert find_tour_state(messages) == state


def answer_question(tool: str, content: object, text: str = "Friday, please") -> str:
    """Return the tour's answer to a tool result.

    Args:
        content: the result.
        text: the message that led to the question.
    """
    result = ReceivedToolResult("1", tool, content)
    return get_text(respond_to_tour(replace(REQUEST, text=text, tool_results=(result,))))


def test_an_answered_question_continues_its_step_whatever_the_message_says() -> None:
    assert "ground as: **where is it?**" in answer_question(
        "get_user_choice", {"result": "where is it?"}, "where is it?"
    )
    assert "Booked: **Friday**, 8 guests of Ada, with Decaf." in answer_question(
        "adk_request_input", {"result": TASTING}
    )
    noted = {**TASTING, "coffees": None, "note": "No nuts"}
    assert "with whatever is fresh. Note: No nuts" in answer_question("adk_request_input", {"result": noted})
    assert "Noted: Friday, please" in answer_question("adk_request_input", {"result": "Friday, please"})


def test_a_declined_sign_in_is_reported_as_such() -> None:
    assert "you have connected no calendar" in answer_question("list_events", {"error": "It was not called."})


@pytest.mark.parametrize(
    ("tool", "text"), [("get_user_choice", "nobody chose"), ("adk_request_input", "nobody answered")]
)
def test_an_expired_question_is_reported_as_such(tool: str, text: str) -> None:
    assert text in answer_question(tool, {"error": "Nobody answered."})
