"""Finish reasons by their meaning, and notes under answers that end early."""

from typing import get_args

import pytest
from anthropic.types import StopReason
from google.genai.types import FinishReason
from openai.types.chat.chat_completion import Choice

from core.models.finish_reasons import (
    BLOCKED_NOTE,
    BROKEN_OFF_NOTE,
    CUT_OFF_NOTE,
    FINISH_REASONS,
    UNCLEAR_NOTE,
    Ending,
    add_ending_note,
    get_ending,
    to_finish_reason,
)

NOTES = {
    Ending.CUT: CUT_OFF_NOTE,
    Ending.REFUSED: BLOCKED_NOTE,
    Ending.REPEAT: BROKEN_OFF_NOTE,
    Ending.UNCLEAR: UNCLEAR_NOTE,
}


@pytest.mark.parametrize("finish", [None, FinishReason.STOP])
def test_a_complete_answer_gets_no_note(finish: FinishReason | None) -> None:
    assert add_ending_note("Once upon", finish) == "Once upon"


@pytest.mark.parametrize("finish", [finish for finish in FinishReason if finish is not FinishReason.STOP])
def test_any_other_answer_gets_the_note_of_its_ending(finish: FinishReason) -> None:
    assert add_ending_note("Once upon", finish) == f"Once upon\n\n{NOTES[get_ending(finish)]}"


def test_each_reason_of_the_sdks_is_in_the_table() -> None:
    openai = get_args(Choice.model_fields["finish_reason"].annotation)
    reasons = {*openai, *get_args(StopReason), *(finish.value for finish in FinishReason)}
    assert {reason.lower() for reason in reasons} <= set().union(*FINISH_REASONS.values())


def test_each_reason_has_one_ending() -> None:
    assert sum(map(len, FINISH_REASONS.values())) == len(set().union(*FINISH_REASONS.values()))


@pytest.mark.parametrize(
    ("reason", "ending"),
    [("STOP", Ending.COMPLETE), ("content-filter", Ending.REFUSED), ("", Ending.COMPLETE), ("new", Ending.UNCLEAR)],
)
def test_reasons_are_read_in_any_form(reason: str, ending: Ending) -> None:
    assert get_ending(reason) is ending


@pytest.mark.parametrize("ending", [Ending.COMPLETE, Ending.CUT, Ending.REFUSED, Ending.UNCLEAR])
def test_the_stored_reason_has_the_same_ending(ending: Ending) -> None:
    assert {get_ending(to_finish_reason(reason)) for reason in FINISH_REASONS[ending]} == {ending}


@pytest.mark.parametrize(
    ("text", "closing"),
    [
        ("```python\nprint(1)", "\n```"),
        ("```\none\n```\n~~~~ text\ntwo\n~~~", "\n~~~~"),
        ("````\n```\none\n```\n", "\n````"),
        ("```\none\n```python\ntwo", "\n```"),
        ("```\none\n  ``` \ntwo", ""),
        ("```one``` and two", ""),
        ("    ```\nno fence", ""),
        ("1. ```bash\n   make\n   ```\n2. done", ""),
        ("1. First:\n   - run\n     ```bash\n     make", "\n     ```"),
        ("- ```bash\n  make", "\n  ```"),
        ("a\n\n<!-- note\n\nb", "\n-->"),
        ("- <!-- note", "\n-->"),
        ("a <!-- note", ""),
        ("> <!-- note", ""),
        ("<!-- a -->", ""),
        ("```\n<!-- a\n```", ""),
    ],
)
def test_the_note_is_outside_an_open_block(text: str, closing: str) -> None:
    assert add_ending_note(text, FinishReason.MAX_TOKENS) == f"{text}{closing}\n\n{CUT_OFF_NOTE}"
