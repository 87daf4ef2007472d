from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from chatrig.models import CallTool, ReceivedRequest, ReceivedToolResult, Say, ScriptedResponse
from chatrig.tour import STEPS, TourStep, respond_to_tour

TASTING = {"host": "Ada", "guests": 8, "day": "Friday", "coffees": ["Decaf"], "note": None}

REQUEST = ReceivedRequest("scripted-tour", "", "", (), (), (), {}, {}, True)


def get_text(response: ScriptedResponse) -> str:
    assert isinstance(response, Say)
    return response.text


def find_step(text: str) -> TourStep:
    response = respond_to_tour(replace(REQUEST, text=text))
    return next(step for step in STEPS if remove_ids(step.respond(REQUEST)) == remove_ids(response))


def remove_ids(response: ScriptedResponse) -> list[object]:
    """Return the steps of a scripted answer, with tool names in place of tool calls."""
    steps = response if isinstance(response, Sequence) else [response]
    return [step.name if isinstance(step, CallTool) else step for step in steps]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.title)
def test_the_message_of_a_step_starts_it(step: TourStep) -> None:
    assert find_step(step.prompt) is step
    assert find_step(f"Ada: {step.prompt.upper()}") is step


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("hello", "Streaming"),
        ("what about the package of 1042", "Tool"),
        ("refund order 1042 please", "Approval"),
        ("give me a report on the orders", "Report"),
        ("replace the bags", "Choice"),
        ("book a tasting for 20", "Form"),
        ("export the table as a file", "File"),
        ("draw the report as a picture", "Image"),
        ("write a letter about order 1042", "Sub-agent"),
        ("⟦Earlier messages⟧\n> Grace: refund it\n⟦End of the quote⟧\n\nwhere is my order?", "Tool"),
    ],
)
def test_similar_messages_start_a_step(text: str, title: str) -> None:
    assert find_step(text).title == title


def test_each_answer_names_the_next_message() -> None:
    results = {
        "Tool": ReceivedToolResult("1", "find_order", {"order": "1042"}),
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
    assert STEPS[0].prompt in get_text(respond_to_tour(replace(REQUEST, text=STEPS[-1].prompt, system=system)))


def test_a_denied_refund_is_reported_as_such() -> None:
    denied = ReceivedToolResult("1", "refund_order", {"error": "This tool call is rejected."})
    request = replace(REQUEST, text="Please refund it.", tool_results=(denied,))
    assert "nothing was refunded" in get_text(respond_to_tour(request))


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
