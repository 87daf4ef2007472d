"""Verdicts from visible texts alone."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatrig.conformance.answers import create_document, number_words
from chatrig.conformance.verdicts import Outcome, Question, Verdict, Version, judge, merge_runs

QUESTION = Question("c01", 12, "C1", ("m0",), 100.0)
ANSWER = number_words("c01", 12)


def post(
    text: str | None, *, message: str = "m1", at: float = 101.0, root: str | None = "m0", **fields: Any
) -> Version:
    return Version(at, message, "C1", root, text, **fields)


def read(*versions: Version) -> Verdict:
    return judge(QUESTION, versions, allowed_seconds=20)


def test_a_complete_answer_is_ok_whatever_is_around_its_words() -> None:
    assert read(post(f"@ada Answer:\n**{ANSWER}**\n_model 1, 3 s_")).outcome is Outcome.OK


def test_only_the_last_state_of_a_message_counts() -> None:
    draft, final = post("Thinking..."), post(ANSWER, at=103.0)
    assert read(draft, post(ANSWER[:30]), final).outcome is Outcome.OK
    assert read(post(ANSWER, message="m2"), draft, post(None)).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("versions", "outcome"),
    [
        ([], Outcome.LOST),
        ([post(None)], Outcome.LOST),
        ([post("Thinking...")], Outcome.LOST),
        ([post(":hourglass: ⏳")], Outcome.LOST),
        ([post("", is_loading=True)], Outcome.LOST),
        ([post(ANSWER, root="other")], Outcome.OK),
        ([post("Sorry, the model failed.")], Outcome.TOLD),
        ([post("Something went wrong, please wait...")], Outcome.TOLD),
        ([post("Das Modell antwortet nicht.", root=None)], Outcome.TOLD),
        ([post("Sorry, the model failed.", root="other")], Outcome.LOST),
        ([post(ANSWER[:40])], Outcome.CUT),
        ([post(f"{ANSWER[:40]} (1/2)")], Outcome.CUT),
        ([post(f"{ANSWER[:40]}\n⚠️ The bot was restarted.")], Outcome.TOLD),
        ([post(ANSWER), post(ANSWER, message="m2")], Outcome.DOUBLED),
        ([post(ANSWER[:18]), post(ANSWER, message="m2")], Outcome.DOUBLED),
        ([post(ANSWER[36:]), post(ANSWER[:36], message="m2")], Outcome.DISORDERED),
        ([post("Thinking..."), post(ANSWER, message="m2")], Outcome.STRAY),
        ([post(ANSWER), post("", message="m2", is_loading=True)], Outcome.STRAY),
        ([post(ANSWER, is_loading=True)], Outcome.STRAY),
        ([post("Sorry, an error occurred."), post(ANSWER, message="m2")], Outcome.STRAY),
        ([post("Hello, I am your assistant."), post(ANSWER, message="m2")], Outcome.OK),
        ([post("see the file", file_text=ANSWER)], Outcome.OK),
        ([post(ANSWER[:40], file_text=ANSWER)], Outcome.OK),
        ([post(ANSWER, at=121.0)], Outcome.LATE),
        ([post(ANSWER, at=119.0), post(ANSWER[:20], at=119.5), post(ANSWER, at=130.0)], Outcome.LATE),
    ],
)
def test_each_fault_that_people_can_see_has_its_verdict(versions: list[Version], outcome: Outcome) -> None:
    assert read(*versions).outcome is outcome


def test_silence_is_right_where_nobody_asked() -> None:
    unasked = Question("c04", 0, "C1", ("m0",), 100.0)
    assert judge(unasked, [], allowed_seconds=20).outcome is Outcome.OK
    assert judge(unasked, [post("hello", root=None)], allowed_seconds=20).outcome is Outcome.STRAY


@given(st.lists(st.integers(0, len(ANSWER)), max_size=6))
def test_a_split_anywhere_even_within_a_word_is_ok(cuts: list[int]) -> None:
    ends = [0, *sorted(cuts), len(ANSWER)]
    texts = [ANSWER[start:end] for start, end in pairwise(ends)]
    versions = [post(text, message=f"m{number}") for number, text in enumerate(texts, 1) if text.strip()]
    assert read(*versions).outcome is Outcome.OK


@given(st.sets(st.integers(0, 11), min_size=1))
def test_an_answer_without_some_words_is_cut_or_lost(missing: set[int]) -> None:
    text = " ".join(f"c01w{number}" for number in range(12) if number not in missing)
    assert read(post(text)).outcome is (Outcome.CUT if text else Outcome.LOST)


@given(st.permutations(range(12)))
def test_any_other_order_is_disordered(order: list[int]) -> None:
    texts = [f"c01w{number}" for number in order]
    versions = [post(text, message=f"m{place}") for place, text in enumerate(texts, 1)]
    assert read(*versions).outcome is (Outcome.OK if order == list(range(12)) else Outcome.DISORDERED)


@given(st.lists(st.sampled_from(list(Outcome)), min_size=1, max_size=3))
def test_the_verdict_on_three_runs_is_never_worse_than_two_of_them(outcomes: list[Outcome]) -> None:
    merged = merge_runs([Verdict(outcome) for outcome in outcomes])
    as_bad = sum(Verdict(outcome).severity >= merged.severity for outcome in outcomes)
    assert as_bad >= min(2, len(outcomes))


def test_late_has_the_shortest_delay_of_its_runs() -> None:
    runs = [Verdict(Outcome.LATE, "", seconds) for seconds in (59.0, 31.0, 44.0)]
    assert str(merge_runs(runs)) == "late 31 s"


def test_the_document_has_each_word_once_a_table_and_a_code_block() -> None:
    document = create_document("c06")
    assert 14_000 < len(document.text) < 16_000
    question = Question("c06", document.words, "C1", ("m0",), 100.0)
    assert judge(question, [post(document.text)], allowed_seconds=20).outcome is Outcome.OK
    assert "| --- |" in document.text
    assert document.text.count("```") == 2
