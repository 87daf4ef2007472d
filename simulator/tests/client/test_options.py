import pytest

from chatrig.client.options import parse_options

ASK = {
    "name": "ask",
    "options": [
        {"name": "what", "type": 3},
        {"name": "times", "type": 4},
        {"name": "loud", "type": 5},
        {"name": "heat", "type": 10},
    ],
}


@pytest.mark.parametrize(
    ("typed", "options"),
    [
        ("", {}),
        ("what:why is it so", {"what": "why is it so"}),
        ("why is it so", {"what": "why is it so"}),
        ("why? times:2 loud:True heat:0.5", {"what": "why?", "times": 2, "loud": True, "heat": 0.5}),
        ("what:at 10:30 or somewhat:later", {"what": "at 10:30 or somewhat:later"}),
    ],
)
def test_options_are_typed_by_name_except_the_first(typed: str, options: dict[str, object]) -> None:
    assert parse_options(ASK, typed) == options


@pytest.mark.parametrize(
    ("typed", "notice"),
    [("times:often", "times must be a whole number"), ("loud:perhaps", "true or false"), ("heat:hot", "a number")],
)
def test_an_invalid_value_is_reported_with_its_option(typed: str, notice: str) -> None:
    with pytest.raises(ValueError, match=notice):
        parse_options(ASK, typed)


def test_text_for_a_command_without_options_is_refused() -> None:
    with pytest.raises(ValueError, match="/reset takes no options"):
        parse_options({"name": "reset"}, "everything")
    assert parse_options({"name": "reset"}, "") == {}
