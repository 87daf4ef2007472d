"""Server-sent events, in pieces of any size."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.models.providers.server_sent_events import EventDecoder

#: Data of an event: one line without line ends, and no white space at the ends.
DATA = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), min_size=1).map(str.strip)


def read(body: bytes, cuts: list[int]) -> list[str]:
    decoder = EventDecoder()
    places = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    pieces = [body[begin:end] for begin, end in pairwise(places)]
    return [*(data for piece in pieces for data in decoder.decode(piece)), *decoder.end()]


@given(st.lists(DATA.filter(bool)), st.sampled_from(["\n", "\r\n"]), st.lists(st.integers(0, 10**4)), st.booleans())
def test_events_are_read_however_the_body_is_split(
    events: list[str], end: str, cuts: list[int], has_space: bool
) -> None:
    body = "".join(f"data:{' ' if has_space else ''}{data}{end}{end}" for data in events)
    assert read(body.encode(), cuts) == events


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b": a comment\n\ndata: one\n\n", ["one"]),
        (b"data:\n\ndata: one\n\ndata: \n\n", ["one"]),
        (b"event: message\nid: 4\ndata: one\n\n", ["one"]),
        (b"data: one\ndata: two\n\n", ["one\ntwo"]),
        (b"data: one\n\ndata: two", ["one", "two"]),
        (b"data: \xff\n\n", ["\ufffd"]),
        ("data: a\u2028b\x0bc\n\n".encode(), ["a\u2028b\x0bc"]),
        (b"", []),
    ],
    ids=["comment", "empty data", "other fields", "two lines", "no end", "no UTF-8", "line separators", "nothing"],
)
def test_lines_without_data_are_left_out(body: bytes, events: list[str]) -> None:
    assert read(body, [3]) == events
