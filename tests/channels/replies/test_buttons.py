import pytest

from channels.i18n import messages as words
from channels.i18n.messages import ENGLISH
from channels.replies.buttons import ButtonAction, Press, answer_buttons, create_button, parse_button
from channels.settings import EXTRA_BUTTONS


@pytest.mark.parametrize("action", ["retry", "regenerate", "revise", "stop", "good", "bad"])
def test_a_press_is_parsed_into_action_and_turn(action: ButtonAction) -> None:
    assert parse_button(create_button(action, "t1", ENGLISH).id) == Press(action, "t1")


@pytest.mark.parametrize("strange", ["", "retry", "retry:", "delete:t1", "retry t1"])
def test_a_foreign_button_is_ignored(strange: str) -> None:
    assert parse_button(strange) is None


def test_each_button_has_a_label_in_each_language() -> None:
    assert create_button("stop", "t1", ENGLISH).label == words.STOP
    assert create_button("stop", "t1", words.messages_for("ko")).label == "중지"


def test_the_settings_select_the_buttons_under_an_answer() -> None:
    def list_labels(*extras: str, is_revised: bool = False) -> list[str]:
        chosen = {extra for extra in EXTRA_BUTTONS if extra in extras}
        return [button.label for button in answer_buttons("t1", ENGLISH, chosen, is_revised=is_revised)]

    assert list_labels(*EXTRA_BUTTONS) == [words.REGENERATE, words.GOOD_ANSWER, words.BAD_ANSWER]
    assert list_labels("feedback") == [words.GOOD_ANSWER, words.BAD_ANSWER]
    assert list_labels() == []
    assert list_labels(is_revised=True) == [words.ANSWER_EDITED]
    assert list_labels(*EXTRA_BUTTONS, is_revised=True) == [words.ANSWER_EDITED, words.GOOD_ANSWER, words.BAD_ANSWER]
