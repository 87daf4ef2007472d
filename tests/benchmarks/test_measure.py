import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.replies.load import TOKENS, TokenStream, build_token, last_position
from benchmarks.replies.measure import (
    MeasuredReply,
    drain,
    final_time,
    mean_age,
    measure_replies,
    newest_positions,
    percentile,
)
from benchmarks.replies.platforms import MeasuredPrompt, Version

TOKEN_TIMES = [float(second) for second in range(11)]


def make_text(reply: int, start: int, end: int) -> str:
    return "".join(build_token(reply, position) for position in range(start, end)).strip()


def version(at: float, message: str, text: str | None, reply_to: str | None = None) -> Version:
    return Version(at, message, int(message[1:]), text, reply_to)


@given(st.integers(0, 199), st.integers(0, TOKENS - 1))
def test_each_word_encodes_its_position_also_before_trailing_markup(reply: int, position: int) -> None:
    text = make_text(reply, max(0, position - 5), position + 1)
    for marked in (text, f"{text} ⚪", f"{text} ... :writing_hand:", f"{text}\n\n⏳"):
        assert last_position(marked) == (reply, position)


def test_a_placeholder_has_no_position() -> None:
    for text in ("...", "💭 …", "_Thinking..._", ":hourglass: Wait a second, please ..."):
        assert last_position(text) is None


def test_a_missing_text_is_as_old_as_the_speech() -> None:
    assert mean_age(TOKEN_TIMES, []) == 5


def test_a_text_without_edits_ages() -> None:
    assert mean_age(TOKEN_TIMES, [(0.0, 0)]) == 5


def test_an_edit_lowers_the_age_from_then_on() -> None:
    assert mean_age(TOKEN_TIMES, [(5.0, 5)]) == 2.5
    assert mean_age(TOKEN_TIMES, [(5.0, 3)]) == 3.5
    assert mean_age(TOKEN_TIMES, [(5.0, 5), (20.0, 10)]) == 2.5


@given(st.lists(st.floats(0, 10), max_size=8))
def test_more_edits_never_raise_the_age(moments: list[float]) -> None:
    newest = [(at, int(at)) for at in sorted(moments)]
    assert mean_age(TOKEN_TIMES, newest) <= mean_age(TOKEN_TIMES, newest[:-1]) + 1e-9


def test_the_newest_word_is_taken_from_all_messages() -> None:
    versions = [
        version(1, "m0", "..."),
        version(2, "m0", make_text(3, 0, 9)),
        version(3, "m1", make_text(3, 9, 12)),
        version(4, "m0", make_text(3, 0, 8)),
        version(5, "m1", None),
    ]
    assert newest_positions(versions) == [(1, -1), (2, 8), (3, 11), (4, 11), (5, 7)]


def test_a_final_text_counts_from_the_time_it_is_complete_and_alone() -> None:
    full_text = make_text(0, 0, 20)
    halves = [version(12, "m0", make_text(0, 0, 10)), version(13, "m1", make_text(0, 10, 20))]
    assert final_time(full_text, 10, halves) == 13
    torn = [version(12, "m0", full_text[:42]), version(13, "m1", full_text[42:])]
    assert final_time(full_text, 10, torn) == 13
    assert final_time(full_text, 10, [version(12, "m0", full_text), version(13, "m0", full_text)]) == 12
    assert final_time(full_text, 10, [version(12, "m0", full_text), version(13, "m0", full_text[:-5])]) is None
    assert final_time(full_text, 10, [version(9, "m1", "..."), version(12, "m0", full_text)]) is None
    assert (
        final_time(full_text, 10, [version(9, "m1", "..."), version(12, "m0", full_text), version(14, "m1", None)])
        == 14
    )
    assert final_time(full_text, 10, []) is None


def test_a_message_belongs_to_the_reply_of_its_words_or_of_its_prompt() -> None:
    prompts = [MeasuredPrompt(number, number, "C", f"q{number}") for number in range(2)]
    streams = [TokenStream(number) for number in range(2)]
    for stream in streams:
        stream.token_times.extend(position / 40 for position in range(TOKENS))
    seen = [
        version(1, "m0", "...", "q0"),
        version(1, "m1", "...", "q1"),
        version(31, "m0", streams[0].text, "q0"),
        version(31, "m2", streams[1].text, "m1"),
    ]
    first, second = measure_replies(prompts, streams, seen)
    assert first.final == 31
    assert second.final is None, "its placeholder was left standing"
    first, _ = measure_replies(prompts, streams, [*seen[:2], version(20, "m3", "...", "m0"), *seen[2:]])
    assert first.final is None, "so was one behind its first message"


def test_the_drain_is_the_share_of_the_limit_that_final_edits_used() -> None:
    at_the_limit = [MeasuredReply(0, 10, 12.0 + 2 * number, 0) for number in range(10)]
    assert drain(at_the_limit, rate=0.5, window=5, until=40) == pytest.approx(1)
    slow = [MeasuredReply(0, 10, 14.0 + 4 * number, 0) for number in range(10)]
    assert drain(slow, rate=0.5, window=5, until=60) == pytest.approx(0.5)
    assert drain([MeasuredReply(0, 10, 10.1, 0)], rate=0.5, window=5, until=40) is None
    assert drain([MeasuredReply(0, 10, None, 0)], rate=0.5, window=5, until=40) == 0


def test_percentiles_are_observed_values() -> None:
    values = [float(value) for value in range(1, 201)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile([7.0], 0.99)) == (100, 198, 7)
