"""Scripted tour of the simulator: its steps, and the answers of its scripted model.

Each step has a message that starts it, and also recognizes similar messages. An answer ends with the message of the
next step. To add a step, add a `TourStep` before the last one, and its tool to the agent in
`bot/simulator/tour_agent.py`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from chatrig.models import CallTool, ReceivedRequest, Say, ScriptedOpenAI, ScriptedResponse

#: Full name of the tour's model, for `MODEL`.
TOUR_MODEL = "openai/scripted-tour"

#: Size of a piece of a streamed text, and the seconds between two pieces.
PIECE_CHARACTERS, PIECE_SECONDS = 24, 0.04

#: Text in ADK's system prompt for the agent `writer`.
_WRITER_NAME = 'internal name is "writer"'

#: Messages around the user's own, which the bot quotes in the prompt.
_QUOTE = re.compile("⟦.*⟧", re.DOTALL)

CSV = """\
day,orders,refunds,revenue
Monday,31,1,612.40
Tuesday,28,0,540.10
Wednesday,44,2,903.75
Thursday,39,1,811.20
Friday,52,3,1120.60
"""

GRINDS = ("Whole beans", "Filter", "Espresso")

#: JSON Schema of the form, for ADK's `request_input`.
TASTING_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "host": {"type": "string", "title": "Your name", "maxLength": 60},
        "guests": {"type": "integer", "title": "Guests", "minimum": 2, "maximum": 20, "default": 8},
        "day": {"enum": ["Thursday", "Friday", "Saturday"], "title": "Day"},
        "coffees": {
            "type": "array",
            "title": "Coffees",
            "items": {"enum": ["Harbour Blend", "Ethiopia Guji", "Kenya AA", "Decaf"]},
            "default": ["Harbour Blend"],
        },
        "note": {"type": "string", "title": "Note", "description": "Allergies, for example"},
    },
    "required": ["host", "guests", "day"],
}

SQL = """\
SELECT date(created_at) AS day, count(*) AS orders, sum(total) AS revenue
FROM orders
WHERE created_at >= date('now', '-5 days')
GROUP BY day
ORDER BY day;"""

TASKS = (
    "Call the carrier about the damaged parcels of Wednesday",
    "Order 400 more bags, because Harbour Blend is at 60",
    "Move the roasting of Ethiopia Guji from Tuesday to Monday",
    "Ask the printer for labels that survive rain",
    "Refund the two double charges of Friday",
    "Answer the three reviews that wait since last week",
    "Update the delivery times for the islands",
    "Send the café on Pier 7 their monthly invoice",
    "Check the scale of packing table 2 again",
    "Photograph the new tins for the shop",
    "Thank Mina Park for the photos of her parcel",
    "Plan the tasting on the 12th: 20 guests, 5 coffees",
)


@dataclass(frozen=True, slots=True)
class TourStep:
    """Step of the scripted tour.

    Attributes:
        title: the feature that the step shows.
        prompt: the user's message that starts the step.
        pattern: regular expression that is searched for in messages, to find their step; case does not matter. It
            must match `prompt`, too.
        respond: returns the model's response for a request, with a tool call first where the step needs one.
        tool: the tool after whose result the step continues, whatever the newest message is; "" for none.
    """

    title: str
    prompt: str
    pattern: str
    respond: Callable[[ReceivedRequest], ScriptedResponse]
    tool: str = ""


def respond_to_tour(request: ReceivedRequest) -> ScriptedResponse:
    """Return the model's response in the step of the tour to which a request belongs.

    If the request ends with a result of a step's tool, it is that step. Otherwise it is the last step whose pattern
    matches the user's newest text, or else the first step. A request of the sub-agent `writer` always gets the text
    `LETTER`.
    """
    if _WRITER_NAME in request.system:
        return _say(LETTER, STEPS[0])
    text = _QUOTE.sub("", request.text)
    past_steps = (step for step in STEPS if step.tool and _get_result(request, step.tool) is not None)
    meant = (step for step in reversed(STEPS) if re.search(step.pattern, text, re.IGNORECASE))
    step = next(past_steps, None) or next(meant, STEPS[0])
    return step.respond(request)


def create_tour_server() -> ScriptedOpenAI:
    """Return the model server of the tour, which is not started yet."""
    return ScriptedOpenAI(respond_to_tour)


def _say(text: str, next_step: TourStep) -> Say:
    """Return a streamed answer that ends with the message that starts the next step."""
    full_text = f"{text.strip()}\n\n**Next step:** write “{next_step.prompt}”"
    return Say(full_text, pieces=max(1, len(full_text) // PIECE_CHARACTERS), pace=PIECE_SECONDS)


def _call(tool: str, **arguments: object) -> CallTool:
    return CallTool(tool, arguments, id=f"call_{uuid4().hex}")


def _get_result(request: ReceivedRequest, tool: str) -> object:
    """Return a tool's result from the calls just before a request.

    Args:
        tool: the name of the tool.

    Returns:
        The decoded JSON result of the first of these calls to the tool; None without one.
    """
    return next((result.content for result in request.tool_results if result.name == tool), None)


def _introduce(_: ReceivedRequest) -> ScriptedResponse:
    return _say(INTRODUCTION, STEPS[1])


def _find_order(request: ReceivedRequest) -> ScriptedResponse:
    if _get_result(request, "find_order") is None:
        return _call("find_order", order="1042")
    return _say(ORDER, STEPS[2])


def _refund(request: ReceivedRequest) -> ScriptedResponse:
    match _get_result(request, "refund_order"):
        case None:
            return [Say("A refund needs an approval."), _call("refund_order", order="1042", amount="$42.00")]
        case {"refunded": amount}:
            return _say(f"Approved and done: {amount} goes back to Mina Park.", STEPS[3])
        case _:
            return _say("Denied: nothing was refunded. You can ask again at any time.", STEPS[3])


def _ask_grind(request: ReceivedRequest) -> ScriptedResponse:
    match _get_result(request, "get_user_choice"):
        case None:
            return [Say("How do they grind it?"), _call("get_user_choice", options=list(GRINDS))]
        case {"result": str(grind)}:
            return _say(f"Two bags of Harbour Blend leave today, ground as: **{grind}**.", STEPS[4])
        case _:
            return _say("Nothing was sent: nobody chose.", STEPS[4])


def _plan_tasting(request: ReceivedRequest) -> ScriptedResponse:
    match _get_result(request, "adk_request_input"):
        case None:
            text = [Say("Some details, please.")]
            return [*text, _call("adk_request_input", message=TASTING_QUESTION, response_schema=TASTING_SCHEMA)]
        case {"result": {"host": host, "guests": guests, "day": day, "coffees": coffees, "note": note}}:
            names = ", ".join(map(str, coffees or ())) or "whatever is fresh"
            note = f" Note: {note}" if note else ""
            return _say(f"Booked: **{day}**, {guests} guests of {host}, with {names}.{note}", STEPS[5])
        case {"result": str(text)}:
            return _say(f"Noted: {text}", STEPS[5])
        case _:
            return _say("Nothing was booked: nobody answered.", STEPS[5])


def _report(_: ReceivedRequest) -> ScriptedResponse:
    tasks = "\n".join(f"{number}. {task}" for number, task in enumerate(TASKS, 1))
    return _say(REPORT.format(sql=SQL, tasks=tasks), STEPS[6])


def _make_file(request: ReceivedRequest) -> ScriptedResponse:
    if _get_result(request, "make_file") is None:
        return _call("make_file", name="week.csv", content=CSV)
    return _say("The file is attached: five days, with orders, refunds and revenue.", STEPS[7])


def _draw_chart(request: ReceivedRequest) -> ScriptedResponse:
    if _get_result(request, "draw_chart") is None:
        return _call("draw_chart", name="revenue.png")
    return _say("The revenue of each day in dollars. Friday was the best one.", STEPS[8])


def _hand_over(_: ReceivedRequest) -> ScriptedResponse:
    return _call("transfer_to_agent", agent_name="writer")


INTRODUCTION = """
*Scripted tour: no model is asked.* I play the support of a small coffee shop. The bot around me is the real one: it \
streams this text, as it does for any ADK agent.

In eight more steps you see a tool, an approval, a choice, a form, a report with a table, a file, an image and a \
second agent. Use *Stop*, *Regenerate*, an edit of your message or another channel at any time.
"""

ORDER = """
Order 1042 of **Mina Park**: 2 bags of Harbour Blend for $42.00, *delivered damaged*. I looked that up with the tool \
`find_order`; the inspector and `/why` show the call.
"""

REPORT = """
## This week

| Day | Orders | Refunds | Revenue |
| :-- | --: | --: | --: |
| Monday | 31 | 1 | $612.40 |
| Tuesday | 28 | 0 | $540.10 |
| Wednesday | 44 | 2 | $903.75 |
| Thursday | 39 | 1 | $811.20 |
| Friday | 52 | 3 | $1,120.60 |

The query behind it:

```sql
{sql}
```

Open tasks:

{tasks}

A longer answer continues in further messages. Slack draws the table itself; for Discord the bot draws it with letters.
"""

LETTER = """
I am *writer*, the second agent. Here is the message:

> Dear Mina,
> I am sorry that your coffee arrived damaged. Your $42.00 are on their way back, and two fresh bags leave tomorrow, \
on us.
> Yours, Harbour Coffee

That was the tour. Paste a key to talk with a real model, or run your own agent: `parley simulator --agent FOLDER`.
"""

TASTING_QUESTION = "What shall the tasting be like?"

STEPS = (
    TourStep("Streaming", "What can you show me?", "what can you", _introduce),
    TourStep("Tool", "Where is order 1042?", r"\border|\bparcel|1042", _find_order),
    TourStep("Approval", "Please refund it.", r"\brefund|money back|\bpay back", _refund, "refund_order"),
    TourStep("Choice", "Send a replacement.", r"\breplace|\bnew bag|\bgrind", _ask_grind, "get_user_choice"),
    TourStep("Form", "Plan a tasting.", r"\btasting|\bbook\b", _plan_tasting, "adk_request_input"),
    TourStep("Report", "How was this week?", r"\bweek\b|\breport|\btable\b|\btasks?\b", _report),
    TourStep("File", "Make a CSV file of it.", r"\bfile\b|\bcsv\b|\bexport\b|\bspreadsheet", _make_file),
    TourStep("Image", "Draw a chart of it.", r"\bchart|\bdraw|\bplot\b|\bpicture|\bimage", _draw_chart),
    TourStep("Sub-agent", "Write to the customer.", r"\bwrite|\bcustomer\b|\bletter\b|\bapolog", _hand_over),
)
