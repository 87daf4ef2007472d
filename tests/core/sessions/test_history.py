from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions, EventCompaction
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from core.sessions.codec import get_role
from core.sessions.history import (
    DEFAULT_MAX_TURNS,
    HistoryEntry,
    count_sent_turns,
    is_user_message,
    repair_history,
    token_budget_truncate,
)
from tests.core.sessions.events import (
    call_event,
    list_call_ids,
    list_response_ids,
    list_texts,
    model_event,
    response_event,
    user_event,
)


def entries(*events: Event, tokens: int = 10) -> list[HistoryEntry]:
    return [HistoryEntry(event, tokens) for event in events]


def cut_history(*events: Event, budget: int | None) -> list[Event]:
    return [entry.event for entry in token_budget_truncate(entries(*events), budget)]


def compaction() -> Event:
    summary = types.Content(role="model", parts=[types.Part(text="summary")])
    compacted = EventCompaction(start_timestamp=1, end_timestamp=2, compacted_content=summary)
    return Event(author="user", actions=EventActions(compaction=compacted))


def confirmation(id_: str, call_id: str) -> Event:
    args = {"originalFunctionCall": {"id": call_id, "name": "t"}, "toolConfirmation": {}}
    return call_event(id_, name="adk_request_confirmation", args=args, long_running_tool_ids={id_})


def test_up_to_40_turns_stay_and_of_more_the_newest_20() -> None:
    events = [event for n in range(41) for event in (user_event(f"q{n}"), model_event(f"a{n}"))]
    assert DEFAULT_MAX_TURNS == 40
    assert cut_history(*events[:80], budget=10_000) == events[:80]
    history = cut_history(*events, budget=10_000)
    assert sum(map(is_user_message, history)) == 20
    assert list_texts(history)[0] == "q21"


def test_the_start_stays_until_more_than_40_turns_follow_it() -> None:
    starts = [count - count_sent_turns(count) for count in range(1, 104)]
    assert starts == [0] * 40 + [21] * 21 + [42] * 21 + [63] * 21
    assert [count_sent_turns(count, 5) for count in range(1, 11)] == [1, 2, 3, 4, 5, 2, 3, 4, 5, 2]
    assert [count_sent_turns(count, 1) for count in range(4)] == [0, 1, 1, 1]
    assert [count_sent_turns(count, 2) for count in range(1, 6)] == [1, 2, 1, 2, 1]


def test_the_newest_user_message_stays_even_if_it_is_larger_than_the_budget() -> None:
    history = [HistoryEntry(user_event("old"), 10), HistoryEntry(user_event("huge"), 1_000)]
    assert list_texts([entry.event for entry in token_budget_truncate(history, 50)]) == ["huge"]


def test_a_turn_larger_than_the_budget_keeps_its_question_and_its_end() -> None:
    turn = [event for n in range(10) for event in (call_event(f"c{n}"), response_event(f"c{n}"))]
    history = cut_history(user_event("old"), user_event("question"), *turn, budget=50)
    assert list_texts(history)[0] == "question"
    assert list_call_ids(history) == list_response_ids(history) == ["c8", "c9"]


def test_an_open_confirmation_stays_with_the_events_it_needs() -> None:
    story = [
        user_event("do it"),
        call_event("c"),
        confirmation("k", call_id="c"),
        response_event("c", response={"error": "confirm"}),
    ]
    later = [event for n in range(30) for event in (user_event(f"q{n}"), model_event(f"a{n}"))]
    history = cut_history(user_event("old"), *story, *later, budget=100)
    assert history[:4] == story
    assert is_user_message(history[4])
    assert repair_history(history) == history


def test_a_decided_confirmation_stays_as_long_as_its_answer() -> None:
    story = [
        user_event("do it"),
        call_event("c"),
        confirmation("k", call_id="c"),
        response_event("c", response={"error": "confirm"}),
    ]
    later = [event for n in range(30) for event in (user_event(f"q{n}"), model_event(f"a{n}"))]
    decided = response_event("k", name="adk_request_confirmation", response={"confirmed": True}, author="user")
    history = cut_history(user_event("old"), *story, *later, decided, budget=150)
    assert history[:4] == story
    assert history[-1] == decided


def test_a_call_that_may_still_be_answered_is_left_open() -> None:
    events = [user_event("1"), call_event("a", "b"), response_event("a"), Event(author="bot", error_code="X")]
    assert repair_history(events) == events
    waiting = [user_event("1"), call_event("a", long_running_tool_ids={"a"}), user_event("2")]
    assert repair_history(waiting) == waiting


def test_calls_with_the_same_id_get_ids_of_their_own() -> None:
    events = [
        user_event("1"),
        call_event("c"),
        response_event("c"),
        call_event("c", "c"),
        response_event("c", "c"),
        call_event(None),
        response_event(None),
    ]
    repaired = repair_history(events)
    assert list_call_ids(repaired) == list_response_ids(repaired) == ["c", "c_2", "c_3", "call_t"]


def test_a_confirmation_follows_the_new_id_of_its_call() -> None:
    events = [
        user_event("1"),
        call_event("c"),
        response_event("c"),
        call_event("c"),
        confirmation("k", call_id="c"),
        response_event("c"),
    ]
    repaired = repair_history(events)
    (call,) = repaired[4].get_function_calls()
    assert call.args is not None
    assert call.args["originalFunctionCall"]["id"] == list_call_ids(repaired)[1] == "c_2"


turns = st.lists(
    st.one_of(
        st.just("said"),
        st.just("replied"),
        st.just("compaction"),
        st.just("error"),
        st.tuples(st.just("called"), st.lists(st.sampled_from(["a", "b", None]), min_size=1, max_size=2)),
        st.tuples(st.just("long"), st.sampled_from(["k1", "k2", "k3"])),
        st.tuples(st.just("answered"), st.lists(st.sampled_from(["a", "b", "k1", None]), min_size=1, max_size=2)),
    ),
    max_size=40,
)


@st.composite
def histories(draw: st.DrawFn) -> list[HistoryEntry]:
    events = [user_event("first")]
    call_ids: set[str] = set()
    for step in draw(turns):
        match step:
            case "said":
                events.append(user_event("q"))
            case "replied":
                events.append(model_event("a"))
            case "compaction":
                events.append(compaction())
            case "error":
                events.append(Event(author="bot", error_code="X"))
            case ("called", list(ids)):
                events.append(call_event(*ids))
            case ("long", str(id_)) if id_ not in call_ids:
                call_ids.add(id_)
                events.append(call_event(id_, long_running_tool_ids={id_}))
            case ("answered", list(ids)):
                events.append(response_event(*ids))
    return [HistoryEntry(event, draw(st.integers(1, 50))) for event in events]


@given(histories(), st.integers(1, 600))
def test_any_history_under_any_budget_is_sendable(history: list[HistoryEntry], budget: int) -> None:
    history_tail = token_budget_truncate(history, budget)
    events = [entry.event for entry in history_tail]
    repaired = repair_history(events)

    # no entry is invented, reordered or doubled
    places = [next(i for i, entry in enumerate(history) if entry is one) for one in history_tail]
    assert places == sorted(set(places))

    # the newest user message stays
    newest = max(i for i, entry in enumerate(history) if is_user_message(entry.event))
    assert newest in places
    for i, entry in enumerate(history):
        if entry.event.actions.compaction is not None:
            assert i in places
        later = {id_ for after in history[i:] for id_ in list_response_ids([after.event])}
        if (entry.event.long_running_tool_ids or set()) - later:
            assert i in places

    # the first content is a user's message
    assert is_user_message(next(event for event in repaired if event.content is not None))

    # each call has one result
    ids = list_call_ids(repaired)
    assert None not in ids
    assert len(ids) == len(set(ids))
    seen: set[str | None] = set()
    for event in repaired:
        assert set(list_response_ids([event])) <= seen
        seen |= set(list_call_ids([event]))
    open_ids = set(ids) - set(list_response_ids(repaired))
    turns = [event for event in repaired if get_role(event) in ("user", "assistant")]
    for event in repaired:
        unanswered = open_ids & set(list_call_ids([event]))
        assert event is turns[-1] or unanswered <= (event.long_running_tool_ids or set())

    # a second repair changes nothing
    assert repair_history(repaired) == repaired


@given(st.lists(st.integers(1, 100), min_size=1, max_size=120), st.integers(1, 2000))
def test_plain_talk_stays_within_the_budget(sizes: list[int], budget: int) -> None:
    history = [HistoryEntry(user_event("q") if i % 2 == 0 else model_event("a"), size) for i, size in enumerate(sizes)]
    history_tail = token_budget_truncate(history, budget)
    newest = next(entry for entry in reversed(history) if is_user_message(entry.event))
    assert sum(entry.tokens for entry in history_tail) <= max(budget, newest.tokens)
    if len(history_tail) < len(history):
        assert is_user_message(history_tail[0].event)
    assert sum(is_user_message(entry.event) for entry in history_tail) <= DEFAULT_MAX_TURNS
