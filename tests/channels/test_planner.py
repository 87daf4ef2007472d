import re
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from channels.channel import Chunk, Limits, Priority
from channels.planner import Planner
from channels.slack.surface import LIMITS as SLACK

#: Small enough for a text of some hundred characters to need several messages.
SMALL = Limits(chunk_size=400, measure=SLACK.measure)

_PIECES = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        [
            "word ", "\n", "\n\n", "\r\n", " ", "   ", "\t", "# Title\n", "- item\n", "x" * 150, "word " * 60,
            "\n" * 500, " " * 500, "```", "~~~", "````", "``", "`", "```py\n", "```python title=\"a\"\n", "\n```\n",
            "\r\n```\r\n", "~~~~ info\n", "\n~~~~\n", "```" + "i" * 450, "  ```\n", "    ```\n", "code = 1\n" * 20,
            "`" * 40, "<!channel>", "<@U123>", "<https://x|y>", "< ", "👩‍👩‍👧‍👦", "e\u0301", "❤️", "漢字", "\u200d",
        ]
    ),
)  # fmt: skip
texts = st.lists(_PIECES, max_size=25).map("".join)
limits = st.sampled_from([SMALL, Limits(600, len), Limits(500, lambda text: len(text.encode("utf-16-le")) // 2)])


def planned(text: str, of: Limits = SMALL) -> list[Chunk]:
    planner = Planner(of)
    planner.feed(text)
    return list(planner.plan(Priority.FINAL).chunks)


def open_fence(text: str) -> str:
    """The marks of the fence that a reader of Markdown would find open at the end of `text`."""
    marks = ""
    for line in re.split(r"\r\n?|\n", text):
        found = re.match(r" {0,3}(`{3,16}(?!`)|~{3,16}(?!~))(.*)", line)
        if not found:
            continue
        if not marks:
            marks = "" if found[1][0] == "`" and "`" in found[2] else found[1]
        elif found[1].startswith(marks) and not found[2].strip():
            marks = ""
    return marks


@given(texts, limits)
def test_the_spans_partition_the_text_and_give_it_back(text: str, of: Limits) -> None:
    chunks = planned(text, of)
    assert "".join(text[chunk.start : chunk.end] for chunk in chunks) == (text if text.strip() else "")
    assert all(before.end == after.start for before, after in pairwise(chunks))


@given(texts, limits)
def test_every_chunk_fits_and_has_something_to_read(text: str, of: Limits) -> None:
    for chunk in planned(text, of):
        assert of.measure(chunk.text) <= of.chunk_size
        assert chunk.text.strip()


@given(texts, limits)
@example("```\r0", Limits(chunk_size=400, measure=len))
@example("~~~\r~~~", Limits(chunk_size=400, measure=len))
def test_every_fence_is_closed_in_its_chunk(text: str, of: Limits) -> None:
    for chunk in planned(text, of):
        assert not open_fence(chunk.text)


@given(texts, limits)
def test_nothing_that_can_be_read_is_left_out(text: str, of: Limits) -> None:
    for chunk in planned(text, of):
        assert text[chunk.start : chunk.end].strip() in chunk.text


@given(st.lists(_PIECES, max_size=25), limits)
def test_a_text_fed_in_pieces_is_cut_as_if_fed_whole_and_nothing_stable_changes(pieces: list[str], of: Limits) -> None:
    planner, stable = Planner(of), list[Chunk]()
    for piece in pieces:
        planner.feed(piece)
        chunks = list(planner.plan(Priority.TICK).chunks)
        if chunks:
            assert chunks[: len(stable)] == stable
            stable = chunks[:-1]
    assert list(planner.plan(Priority.FINAL).chunks) == planned("".join(pieces), of)


@given(texts, texts)
def test_a_replaced_text_is_planned_as_if_nothing_had_been_there(first: str, second: str) -> None:
    planner = Planner(SMALL)
    planner.feed(first)
    planner.plan(Priority.TICK)
    planner.replace(second)
    assert planner.text == second
    assert list(planner.plan(Priority.FINAL).chunks) == planned(second)


@pytest.mark.parametrize("mark", ["```", "~~~", "`````"])
def test_a_fence_that_is_cut_is_opened_again_with_its_info_string(mark: str) -> None:
    code = "".join(f"line {n}\n" for n in range(100))
    first, *others = planned(f"See:\n\n{mark}python\n{code}{mark}\n\nThat is all.")
    assert len(others) >= 2
    assert first.text.endswith(f"\n{mark}")
    assert all(chunk.text.startswith(f"{mark}python\nline ") for chunk in others)
    assert others[-1].text.endswith(f"line 99\n{mark}\n\nThat is all.")
    shown = [line for chunk in (first, *others) for line in chunk.text.split("\n") if line.startswith("line ")]
    assert shown == code.splitlines()


def test_a_shorter_fence_within_a_longer_one_is_text() -> None:
    inner = "```\nnot a fence of its own\n```\n" * 30
    chunks = planned(f"````markdown\n{inner}````")
    assert len(chunks) > 1
    assert all(chunk.text.startswith("````markdown\n") and chunk.text.endswith("\n````") for chunk in chunks)


def test_paragraphs_are_cut_before_lines_and_lines_before_words() -> None:
    assert planned("a" * 300 + "\n\n" + "b\nb " * 30)[0].end == 302
    assert planned("a" * 300 + "\n" + "b b " * 40)[0].end == 301
    assert planned("a" * 300 + " " + "b" * 300)[0].end == 301
    assert planned("a" * 800)[0].end == 400


def test_no_cut_makes_a_fence_of_marks_in_the_middle_of_a_line() -> None:
    for space in range(380, 402):
        chunks = planned("a" * space + " ``` " + "b" * 300)
        assert not any(chunk.text.startswith("```") for chunk in chunks)


def test_no_cut_goes_through_a_family_or_an_accent() -> None:
    for shift in range(20):
        for chunk in planned("x" * shift + "👩‍👩‍👧" * 100) + planned("x" * shift + "e\u0301" * 300):
            assert chunk.text[0] not in "\u200d\u0301"
            assert chunk.text[-1] not in "\u200d"


def test_white_space_that_comes_last_needs_no_message_of_its_own() -> None:
    assert [chunk.text for chunk in planned("a" * 400 + "\n" * 5000)] == ["a" * 400]
    assert planned("\n" * 5000) == []
    assert planned("") == []
    assert [chunk.text for chunk in planned("\n" * 5000 + "    indented")] == ["    indented"]


def test_what_becomes_longer_by_making_it_inert_still_fits() -> None:
    chunks = planned("<@U1>" * 1000, SLACK)
    assert max(SLACK.measure(chunk.text) for chunk in chunks) <= 3_500
    assert "".join(chunk.text for chunk in chunks) == "<@U1>" * 1000


@pytest.mark.parametrize("unit", ["word ", "x", "\n", "line\n", "```\ncode\n```\n"])
def test_the_cost_grows_with_the_text_and_no_faster(unit: str) -> None:
    def cost(size: int, *, piece: int) -> int:
        measured = 0

        def measure(text: str) -> int:
            nonlocal measured
            measured += len(text)
            return len(text)

        planner, text = Planner(Limits(400, measure)), unit * (size // len(unit))
        for start in range(0, len(text), piece):
            planner.feed(text[start : start + piece])
            planner.plan(Priority.TICK)
        return measured

    for piece in (50, 10**6):
        assert cost(80_000, piece=piece) <= 4.5 * cost(20_000, piece=piece) + 5_000
