"""Notes under answers that end early, by finish reason."""

import pytest
from google.genai.types import FinishReason

from core.models.finish_reasons import BLOCKED_NOTE, BLOCKED_REASONS, CUT_OFF_NOTE, add_ending_note


@pytest.mark.parametrize("finish", [None, FinishReason.STOP, FinishReason.OTHER, FinishReason.MALFORMED_FUNCTION_CALL])
def test_a_complete_answer_gets_no_note(finish: FinishReason | None) -> None:
    assert add_ending_note("Once upon", finish) == "Once upon"


def test_an_answer_cut_off_by_the_token_limit_gets_a_note() -> None:
    assert add_ending_note("Once upon", FinishReason.MAX_TOKENS) == f"Once upon\n\n{CUT_OFF_NOTE}"


@pytest.mark.parametrize("finish", [FinishReason(name) for name in sorted(BLOCKED_REASONS)])
def test_a_partly_blocked_answer_gets_a_note(finish: FinishReason) -> None:
    assert add_ending_note("Once upon", finish) == f"Once upon\n\n{BLOCKED_NOTE}"


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
    ],
)
def test_the_note_is_outside_an_open_code_fence(text: str, closing: str) -> None:
    assert add_ending_note(text, FinishReason.MAX_TOKENS) == f"{text}{closing}\n\n{CUT_OFF_NOTE}"
