"""Arguments of tool calls as people see them, of any size."""

import json
from typing import Any

import pytest

from core.models.tool_calls import MAX_JSON_LEVELS, MAX_JSON_VALUES
from core.observability.secret_redaction import add_secret
from core.tools.shown_arguments import MAX_ARGUMENTS, fit_arguments, show_arguments
from tests.fixtures.steps import count_steps

SECRET = 'shown-"arguments"-sécret'


def nest(value: Any, levels: int) -> Any:
    for _ in range(levels):
        value = [value]
    return value


#: Arguments that are too long for a message.
LONG: dict[str, Any] = {
    "many values": {"a": [0] * (MAX_JSON_VALUES - 2)},
    "many texts": {"a": ["ab"] * (MAX_JSON_VALUES - 2)},
    "many fields": {f"f{i}": i for i in range(MAX_JSON_VALUES - 1)},
    "a long text": {"a": "x\u202e" * 100_000},
    "many deep values": {"a": nest([0] * 10_000, MAX_JSON_LEVELS - 2)},
}


@pytest.mark.parametrize("name", LONG)
def test_long_arguments_are_cut_in_the_message_and_whole_in_the_file(name: str) -> None:
    arguments = LONG[name]
    shown = show_arguments(arguments, frozenset())
    assert len(shown.text) <= MAX_ARGUMENTS
    assert shown.missing > 0
    assert json.loads(shown.full_text) == arguments
    assert "\u202e" not in shown.full_text


@pytest.mark.parametrize("name", LONG)
def test_the_work_on_long_arguments_grows_with_their_size_only(name: str) -> None:
    size = len(json.dumps(LONG[name], separators=(",", ":")))
    assert count_steps(lambda: show_arguments(LONG[name], frozenset())) <= 500 + 20 * size


@pytest.mark.parametrize("arguments", [{}, {"a": "x" * 1100}, {"a": [[], {}, None, 1.5, True, "\x7f\u200b"]}])
def test_short_arguments_are_shown_as_they_are(arguments: Any) -> None:
    text, missing = fit_arguments(arguments)
    assert (json.loads(text), missing) == (arguments, 0)
    assert show_arguments(arguments, frozenset()).full_text == text


@pytest.mark.parametrize("arguments", [{"a": [f"x {SECRET} y"]}, {SECRET: 1}, {"a": {"b": {f"{SECRET}!": "c"}}}])
def test_a_known_secret_is_hidden_wherever_it_is(arguments: Any) -> None:
    add_secret(SECRET)
    shown = show_arguments(arguments, frozenset())
    assert (shown.hidden, "sécret" in shown.full_text) == (1, False)
    assert show_arguments({"a": "nothing"}, frozenset()).hidden == 0
    assert show_arguments({"a": "nothing"}, {("a",)}).hidden == 1
