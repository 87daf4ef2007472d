"""Scripted tour of the simulator: its steps, and the answers of its scripted model.

Each step has one message that starts it; another model answers all other messages. The answer of a step ends with the
message of the next one. To add a step, add a `TourStep` before the last one, and its tool to the agent in
`tour_agent.py`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from chatrig.client.platform import ClientMessage
from chatrig.models import CallTool, ReceivedRequest, Say, ScriptedOpenAI, ScriptedResponse
from chatrig.oauth import CalendarEvent, OAuthServer

#: Full name of the tour's model, for `MODEL`.
TOUR_MODEL = "openai/scripted-tour"

#: Environment variable with the URL of the server that has people's calendars, and the id of the shop's client there.
CALENDAR_VARIABLE, CALENDAR_CLIENT = "PARLEY_TOUR_CALENDAR", "https://parley.example/tour"

#: Tomorrow's event of each person in the simulator.
EVENTS: Mapping[str, str] = {
    "ada": "Cupping with Mina Park",
    "grace": "Call with the carrier",
    "linus": "Maintenance of the roaster",
}

#: Size of a piece of a streamed text, and the seconds between two pieces.
PIECE_CHARACTERS, PIECE_SECONDS = 24, 0.04

#: Text in ADK's system prompt for the agent `writer`.
_WRITER_NAME = 'internal name is "writer"'

#: Regular expression for the words before a step's message: the author's name, and a mention.
_BEFORE = r"(?:[^:]{1,80}: )?(?:@\S+ )?"

#: The start of the prompt for a finished background job, with the name of its tool.
_JOB_PROMPT = re.compile(r"⟦The background job \w+, (\w+)\(")

#: Seconds that the background job takes.
ROAST_SECONDS = 5.0

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
        prompt: the user's message that starts the step.
        tools: the tools after whose results the step continues, whatever the newest message is.
        button: label of a button with which people decide or answer in the step.
    """

    title: str
    prompt: str
    respond: Callable[[ReceivedRequest], ScriptedResponse]
    tools: tuple[str, ...] = ()
    button: str = ""


@dataclass(frozen=True, slots=True)
class TourState:
    """State of the tour in one channel, DM or thread.

    Attributes:
        open_step: index of the step that waits for the bot or for a user.
        waits_for_user: whether a user must press a button before the step goes on.
        next_step: index of the step after the newest result; after the last step, the number of steps.
        result_at: time of the newest result; 0.0 without one.
    """

    open_step: int | None = None
    waits_for_user: bool = False
    next_step: int | None = None
    result_at: float = 0.0


def find_step(text: str) -> TourStep | None:
    """Return the step that a message starts, or whose background job has ended.

    Case, spaces, a mention and quotes do not matter.
    """
    if (job := _JOB_PROMPT.search(text)) is not None:
        return next((step for step in STEPS if job[1] in step.tools), None)
    begin, end = text.find("⟦"), text.rfind("⟧")  # messages around the user's own, which the bot quotes in the prompt
    own = text[:begin] + text[end + 1 :] if 0 <= begin < end else text
    words = " ".join(own.split()).casefold()
    return next((step for step in STEPS if re.fullmatch(_BEFORE + re.escape(step.prompt.casefold()), words)), None)


def find_tour_state(messages: Sequence[ClientMessage]) -> TourState:
    """Return the state of the tour in the messages of one channel, DM or thread, oldest first."""
    started: int | None = None
    state = TourState()
    for message in messages:
        if not message.is_from_bot:
            if (step := find_step(message.plain_text)) is not None:
                started = STEPS.index(step)
                state = replace(state, open_step=started)
            continue
        is_running = message.is_pending or "Stop" in message.buttons
        asking = next((index for index, step in enumerate(STEPS) if step.button in message.buttons), None)
        result = next((index for index, end in enumerate(_ENDS) if end in message.plain_text), None)
        if result is not None and not is_running:
            state = TourState(next_step=result + 1, result_at=message.sent_at)
        elif not state.waits_for_user:
            open_step = asking if asking is not None else started if is_running else None
            state = replace(state, open_step=open_step, waits_for_user=asking is not None)
    return state


def respond_to_tour(request: ReceivedRequest) -> ScriptedResponse:
    """Return the model's response in the step of the tour to which a request belongs.

    If the request ends with a result of a step's tool, it is that step. Otherwise it is the step of the user's newest
    text.
    """
    if _WRITER_NAME in request.system:
        return _stream(LETTER)
    results = {result.name for result in request.tool_results}
    step = next((step for step in STEPS if results.intersection(step.tools)), None) or find_step(request.text)
    return step.respond(request) if step else _say(OTHER, STEPS[0])


def create_tour_server() -> ScriptedOpenAI:
    """Return the model server of the tour, which is not started yet."""
    return ScriptedOpenAI(respond_to_tour)


def create_calendar_server(redirect_uri: str) -> OAuthServer:
    """Return the server of the calendars, which is not started yet; the shop's client has no secret."""
    server = OAuthServer()
    metadata = {"client_id": CALENDAR_CLIENT, "client_name": "Harbour Coffee", "redirect_uris": [redirect_uri]}
    server.client_documents[CALENDAR_CLIENT] = metadata
    starts_at = datetime.now(UTC).replace(hour=9, minute=0, second=0, microsecond=0) + timedelta(days=1)
    for name, title in EVENTS.items():
        server.users[name].events[:] = [CalendarEvent(title, starts_at)]
    return server


def _say(text: str, next_step: TourStep) -> Say:
    return _stream(f"{text.strip()}\n\n**Next step:** write “{next_step.prompt}”")


def _stream(text: str) -> Say:
    return Say(text.strip(), pieces=max(1, len(text) // PIECE_CHARACTERS), pace=PIECE_SECONDS)


def _call(tool: str, **arguments: object) -> CallTool:
    return CallTool(tool, arguments, id=f"call_{uuid4().hex}")


def _get_result(request: ReceivedRequest, tool: str) -> object:
    return next((result.content for result in request.tool_results if result.name == tool), None)


def _refund(request: ReceivedRequest) -> ScriptedResponse:
    if not request.tool_results:
        return _call("find_order", order="1042")
    match _get_result(request, "refund_order"):
        case None:
            return [_stream(ORDER), _call("refund_order", order="1042", amount="$42.00")]
        case {"refunded": amount}:
            return _say(f"Approved and done: {amount} goes back to Mina Park.", STEPS[1])
        case _:
            return _say("Denied: nothing was refunded. You can ask again at any time.", STEPS[1])


def _ask_grind(request: ReceivedRequest) -> ScriptedResponse:
    match _get_result(request, "get_user_choice"):
        case None:
            return [Say("How do they grind it?"), _call("get_user_choice", options=list(GRINDS))]
        case {"result": str(grind)}:
            return _say(f"Two bags of Harbour Blend leave today, ground as: **{grind}**.", STEPS[2])
        case _:
            return _say("Nothing was sent: nobody chose.", STEPS[2])


def _plan_tasting(request: ReceivedRequest) -> ScriptedResponse:
    match _get_result(request, "adk_request_input"):
        case None:
            text = [Say("Some details, please.")]
            return [*text, _call("adk_request_input", message=TASTING_QUESTION, response_schema=TASTING_SCHEMA)]
        case {"result": {"host": host, "guests": guests, "day": day, "coffees": coffees, "note": note}}:
            names = ", ".join(map(str, coffees or ())) or "whatever is fresh"
            note = f" Note: {note}" if note else ""
            return _say(f"Booked: **{day}**, {guests} guests of {host}, with {names}.{note}", STEPS[3])
        case {"result": str(text)}:
            return _say(f"Noted: {text}", STEPS[3])
        case _:
            return _say("Nothing was booked: nobody answered.", STEPS[3])


def _report(_: ReceivedRequest) -> ScriptedResponse:
    tasks = "\n".join(f"{number}. {task}" for number, task in enumerate(TASKS, 1))
    return _say(REPORT.format(sql=SQL, tasks=tasks), STEPS[4])


def _make_file(request: ReceivedRequest) -> ScriptedResponse:
    if _get_result(request, "make_file") is None:
        return _call("make_file", name="week.csv", content=CSV)
    return _say("The file is attached: five days, with orders, refunds and revenue.", STEPS[5])


def _draw_chart(request: ReceivedRequest) -> ScriptedResponse:
    if _get_result(request, "draw_chart") is None:
        return _call("draw_chart", name="revenue.png")
    return _say("The revenue of each day in dollars. Friday was the best one.", STEPS[6])


def _remind(request: ReceivedRequest) -> ScriptedResponse:
    if _get_result(request, "schedule") is None:
        return _call("schedule", text="Taste the new espresso.", in_minutes=1, is_task=False)
    return _say("You get a reminder in one minute, unless you undo it.", STEPS[7])


def _roast(request: ReceivedRequest) -> ScriptedResponse:
    if _get_result(request, "roast_coffee") is not None:
        return _stream(f"The roaster runs for {ROAST_SECONDS:.0f} seconds. This answer ends here; I mention you then.")
    if _JOB_PROMPT.search(request.text) is None:
        return _call("roast_coffee", blend="Harbour Blend", kilograms=20)
    if "20 kg" in request.text:
        return _say("The Harbour Blend is roasted: **20 kg**. The background job has begun this answer.", STEPS[8])
    return _say("The roaster stopped with the bot. You can ask again at any time.", STEPS[7])


def _read_calendar(request: ReceivedRequest) -> ScriptedResponse:
    match _get_result(request, "list_events"):
        case None:
            return [Say("I read it as you, with your account."), _call("list_events")]
        case {"events": [{"title": title, "starts_at": starts_at}]}:
            return _say(CALENDAR.format(title=title, at=datetime.fromisoformat(starts_at)), STEPS[9])
        case _:
            return _say("Nothing was read: you have connected no calendar.", STEPS[9])


def _hand_over(_: ReceivedRequest) -> ScriptedResponse:
    return _call("transfer_to_agent", agent_name="writer")


ORDER = """
*Scripted tour: no model is asked.* I play the support of a small coffee shop. The bot around me is the real one.

The tool `find_order` has found order 1042 of Mina Park:

| Item | Total | State |
| :-- | --: | :-- |
| Coffee, 2 bags | $42.00 | damaged |

The refund needs your approval.
"""

OTHER = """
*Scripted tour: no model is asked.* I only know its steps.
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

CALENDAR = """
Tomorrow at {at:%H:%M} UTC: **{title}**. This is the calendar of the account that you chose; another person would be \
asked for their own. `/connections` shows your account, and disconnects it.
"""

LETTER = """
I am *writer*, the second agent. Here is the message:

> Dear Mina,
> I am sorry that your coffee arrived damaged. Your $42.00 are on their way back, and two fresh bags leave tomorrow, \
on us.
> Yours, Harbour Coffee

That was the tour. Paste a key to talk with a real model, or run your own agent: `make run AGENT=FOLDER`.
"""

TASTING_QUESTION = "What shall the tasting be like?"

STEPS = (
    TourStep("Approval", "Refund order 1042.", _refund, ("find_order", "refund_order"), "Approve"),
    TourStep("Choice", "Send a replacement.", _ask_grind, ("get_user_choice",), GRINDS[0]),
    TourStep("Form", "Plan a tasting.", _plan_tasting, ("adk_request_input",), "Answer"),
    TourStep("Report", "How was this week?", _report),
    TourStep("File", "Make a CSV file of it.", _make_file, ("make_file",)),
    TourStep("Image", "Draw a chart of it.", _draw_chart, ("draw_chart",)),
    TourStep("Reminder", "Remind me in one minute.", _remind, ("schedule",)),
    TourStep("Background job", "Roast more coffee.", _roast, ("roast_coffee",)),
    TourStep("Sign-in", "What is in my calendar?", _read_calendar, ("list_events",), "Connect"),
    TourStep("Sub-agent", "Write to the customer.", _hand_over),
)

#: Text at the end of the answer of each step.
_ENDS = (*(f"write “{step.prompt}”" for step in STEPS[1:]), "That was the tour.")
