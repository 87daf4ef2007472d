from dataclasses import replace
from itertools import pairwise

import pytest

from bot.simulator.tour import STEPS, TourState, TourStep, find_step, find_tour_state, respond_to_tour
from chatrig.client.platform import ClientMessage
from chatrig.models import CallTool, ReceivedRequest, ReceivedToolResult, Say, ScriptedResponse

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


@pytest.mark.parametrize(
    "text",
    ["hello", "Write a poem about orders.", "Refund order 1042. And hurry!", "How was this week for you?", "", ":"],
)
def test_another_message_starts_no_step(text: str) -> None:
    assert find_step(text) is None
    assert "I only know its steps" in get_text(respond_to_tour(replace(REQUEST, text=text)))


def test_the_first_step_shows_a_tool_a_table_and_an_approval() -> None:
    request = replace(REQUEST, text=STEPS[0].prompt)
    lookup = respond_to_tour(request)
    assert isinstance(lookup, CallTool)
    assert lookup.name == "find_order"
    found = ReceivedToolResult("1", "find_order", {"order": "1042"})
    answer = respond_to_tour(replace(request, tool_results=(found,)))
    assert isinstance(answer, list | tuple)
    text, refund = answer
    assert isinstance(text, Say)
    assert "| Coffee, 2 bags | $42.00 |" in text.text
    assert isinstance(refund, CallTool)
    assert refund.name == "refund_order"


def test_each_answer_names_the_next_message_and_the_last_one_none() -> None:
    results = {
        "Approval": ReceivedToolResult("2", "refund_order", {"refunded": "$42.00"}),
        "Choice": ReceivedToolResult("3", "get_user_choice", {"result": "Filter"}),
        "Form": ReceivedToolResult("4", "adk_request_input", {"result": TASTING}),
        "File": ReceivedToolResult("5", "make_file", {"made": "week.csv"}),
        "Image": ReceivedToolResult("6", "draw_chart", {"drawn": "revenue.png"}),
    }
    for step, following in pairwise(STEPS):
        found = tuple([results[step.title]] if step.title in results else [])
        answer = get_text(respond_to_tour(replace(REQUEST, text=step.prompt, tool_results=found)))
        assert answer.endswith(f"**Next step:** write “{following.prompt}”")
    system = 'You are an agent. Your internal name is "writer".'
    last = get_text(respond_to_tour(replace(REQUEST, text=STEPS[-1].prompt, system=system)))
    assert last.endswith("run your own agent: `make run AGENT=FOLDER`.")
    assert "Next step" not in last


def test_a_denied_refund_is_reported_as_such() -> None:
    denied = ReceivedToolResult("1", "refund_order", {"error": "This tool call is rejected."})
    request = replace(REQUEST, text=STEPS[0].prompt, tool_results=(denied,))
    assert "nothing was refunded" in get_text(respond_to_tour(request))


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


@pytest.mark.parametrize(
    ("tool", "text"), [("get_user_choice", "nobody chose"), ("adk_request_input", "nobody answered")]
)
def test_an_expired_question_is_reported_as_such(tool: str, text: str) -> None:
    assert text in answer_question(tool, {"error": "Nobody answered."})
