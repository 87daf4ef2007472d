"""The difference between the plan of a reply and what the platform shows."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.base import Button, Chunk, File, Plan, Priority, ShownToolCall, ToolCallState
from channels.replies.diff import (
    AppendStream,
    Attach,
    Delete,
    Detach,
    Edit,
    FinishStream,
    Limits,
    Operation,
    Post,
    ShownMessage,
    ShownReply,
    StartStream,
    StopStream,
    StreamRules,
    diff,
)
from channels.replies.stream import MessageStream, StreamPart, TaskCards

RULES = StreamRules(seconds=60.0, max_size=100, measure=lambda part: len(part.text) + 10 * len(part.cards))
LIMITS = Limits(now=0.0)
STREAMING = Limits(now=0.0, may_stream=True, stream_rules=RULES)
STOP = Button("stop:1", "Stop")


def create_plan(*texts: str, is_growing: bool = False, files: Sequence[str] = ()) -> Plan:
    chunks = [Chunk(0, 0, text, len(text)) for text in texts]
    priority = Priority.STREAM_UPDATE if is_growing else Priority.FINAL
    return Plan(chunks, priority, [STOP], [File(name, b"") for name in files], is_growing)


def show(plan: Plan) -> ShownReply:
    """Return what a platform shows once a plan is shown."""
    last = len(plan.chunks) - 1
    messages = [
        ShownMessage(f"m{position}", (chunk.text, (STOP,) if position == last else ()))
        for position, chunk in enumerate(plan.chunks)
    ]
    names = tuple(file.name for file in plan.files)
    files = tuple((name, f"f{name}") for name in names)
    return ShownReply(tuple(messages), files, (f"m{last}", *names) if names else ())


def stream(text: str, *, is_broken: bool = False, ends_at: float = 60.0) -> ShownReply:
    """Return what a platform shows of a reply whose only message is streamed."""
    opened = MessageStream(text, TaskCards(), ends_at, size=len(text), is_broken=is_broken)
    return ShownReply((ShownMessage("m0", stream=opened),))


def first(plan: Plan, shown: ShownReply, limits: Limits = LIMITS) -> Operation | None:
    return next(diff(plan, shown, limits), None)


TEXTS = st.lists(st.sampled_from(["one", "two", "three"]), min_size=1, max_size=4)
FILES = st.lists(st.sampled_from(["a.png", "b.png"]), unique=True, max_size=2)
MESSAGES = st.one_of(
    st.none(),
    st.builds(ShownMessage, st.just("m"), st.none(), st.sampled_from([0.0, 9.0])),
    st.builds(lambda text: ShownMessage("m", (text, ())), st.sampled_from(["one", "two", "three", "on"])),
    st.builds(
        lambda text, broken: stream(text, is_broken=broken).messages[0], st.sampled_from(["o", "tw"]), st.booleans()
    ),
)


@given(TEXTS, FILES, st.booleans())
def test_a_plan_that_is_shown_needs_no_operation(texts: list[str], files: list[str], is_growing: bool) -> None:
    plan = create_plan(*texts, is_growing=is_growing, files=files)
    assert list(diff(plan, show(plan), STREAMING)) == []


@given(TEXTS, st.lists(MESSAGES, max_size=5))
def test_a_message_that_shows_its_chunk_is_not_touched(texts: list[str], messages: list[ShownMessage | None]) -> None:
    plan = create_plan(*texts)
    target = show(plan)
    touched = {operation.position for operation in diff(plan, ShownReply(tuple(messages)), STREAMING)}
    for position, message in enumerate(messages[: len(texts)]):
        wanted = target.messages[position]
        assert wanted is not None
        assert (position in touched) == (message is None or message.content != wanted.content)


@given(TEXTS, st.lists(MESSAGES, max_size=5), FILES)
def test_a_final_plan_has_an_operation_for_each_message_that_differs(
    texts: list[str], messages: list[ShownMessage | None], files: list[str]
) -> None:
    plan = create_plan(*texts, files=files)
    shown = ShownReply(tuple(messages))
    operations = list(diff(plan, shown, LIMITS))
    assert all(operation.priority <= Priority.PROGRESS for operation in operations)
    posted = [operation.position for operation in operations if isinstance(operation, Post)]
    assert posted == [position for position in range(len(texts)) if shown.get_message(position) is None]
    deleted = {operation.position for operation in operations if isinstance(operation, Delete)}
    assert deleted == {n for n in range(len(texts), len(messages)) if messages[n] is not None}


def test_a_growing_message_is_not_begun_without_a_call_that_ends_it() -> None:
    full = Limits(now=0.0, may_grow=False)
    assert first(create_plan("gro", is_growing=True), ShownReply(), full) is None
    assert isinstance(first(create_plan("full", "gro", is_growing=True), ShownReply(), full), Post)
    begun = show(create_plan("gr", is_growing=True))
    assert isinstance(first(create_plan("gro", is_growing=True), begun, full), Edit)


def test_only_an_update_of_a_growing_message_may_be_dropped() -> None:
    growing = create_plan("gro", is_growing=True)
    priorities = [
        operation.priority
        for operation in (
            first(growing, ShownReply()),  # the placeholder
            first(growing, ShownReply.from_ids(["m0"])),  # after a restart
            first(growing, show(create_plan("gr"))),
            first(create_plan("grown", "m", is_growing=True), show(growing)),
            first(create_plan("grown"), show(growing)),
        )
        if operation is not None
    ]
    progress, tick = Priority.PROGRESS, Priority.STREAM_UPDATE
    assert priorities == [progress, progress, tick, progress, Priority.FINAL]


def test_a_message_whose_edit_got_no_response_is_edited_once_it_can_take_no_effect() -> None:
    unknown = ShownReply((ShownMessage("m0", late_until=5.0),))
    edit = first(create_plan("one"), unknown)
    assert isinstance(edit, Edit)
    assert edit.not_before == 5.0


def test_after_a_refused_edit_only_the_final_text_is_tried() -> None:
    refused = replace(show(create_plan("gr")), refuses_edits=True)
    assert first(create_plan("gro", is_growing=True), refused) is None
    assert isinstance(first(create_plan("grown"), refused), Edit)


def test_a_stream_grows_by_appends_and_ends_with_the_rest() -> None:
    started = first(create_plan("It", is_growing=True), ShownReply(), STREAMING)
    assert isinstance(started, StartStream)
    assert started.part == StreamPart(text="It")
    appended = first(create_plan("It is", is_growing=True), stream("It"), STREAMING)
    assert isinstance(appended, AppendStream)
    assert appended.part == StreamPart(text=" is")
    finished = first(create_plan("It is 42."), stream("It is"), STREAMING)
    assert isinstance(finished, FinishStream)
    assert (finished.part, finished.content) == (StreamPart(text=" 42."), ("It is 42.", (STOP,)))


@pytest.mark.parametrize(
    ("text", "shown", "ends_streaming"),
    [
        ("Another", stream("It"), False),  # only the end of the text may have moved to the next message
        ("It is", stream("It", is_broken=True), True),
        ("It is", stream("It", ends_at=0.0), True),
        ("It" + "x" * 100, stream("It"), True),
    ],
    ids=["another text", "unknown", "old", "full"],
)
def test_a_stream_that_cannot_go_on_is_stopped_and_then_edited(
    text: str, shown: ShownReply, ends_streaming: bool
) -> None:
    operation = first(create_plan(text), shown, STREAMING)
    assert operation == StopStream(0, Priority.PROGRESS, ends_streaming)


def test_the_cards_of_an_ended_stream_are_removed_unless_they_are_complete() -> None:
    plan = create_plan("done")
    shown = show(plan)
    message = shown.get_message(0)
    assert message is not None
    edit = first(plan, shown.with_message(0, replace(message, has_open_cards=True)))
    assert isinstance(edit, Edit)
    assert edit.priority is Priority.PROGRESS


def test_tools_that_ended_before_a_message_have_no_card_in_it() -> None:
    calls = [ShownToolCall("_search_", ToolCallState.DONE), ShownToolCall("_read_")]
    plan = replace(create_plan("one", "two", is_growing=True), tool_calls=calls)
    started = first(plan, show(create_plan("one", "")).with_message(1, None), STREAMING)
    if isinstance(started, Edit):  # the button moves to the last message
        started = list(diff(plan, show(create_plan("one", "")).with_message(1, None), STREAMING))[-1]
    assert isinstance(started, StartStream)
    assert [card.title for _, card in started.part.cards] == ["read"]


def test_files_follow_the_last_message() -> None:
    plan = create_plan("one", files=["a.png"])
    shown = show(create_plan("one", files=["b.png"]))
    assert list(diff(plan, shown, LIMITS)) == [
        Detach(0, Priority.PROGRESS, "fb.png"),
        Attach(0, Priority.FINAL),
    ]


@given(st.lists(st.sampled_from(["m0", "m1", "file:f1:a.png", "file:f2:b: c.png"]), unique=True))
def test_stored_ids_are_read_back(ids: list[str]) -> None:
    shown = ShownReply.from_ids(ids)
    assert sorted(shown.stored_ids) == sorted(ids)
    assert ShownReply.from_ids(shown.stored_ids) == shown
