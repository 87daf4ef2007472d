import pytest

from channels.i18n import messages as words
from channels.i18n.messages import ENGLISH
from channels.replies.buttons import Wish, button, under_answer, wished
from channels.settings import EXTRAS


@pytest.mark.parametrize("wish", ["retry", "regenerate", "revise", "stop", "good", "bad", "why"])
def test_a_press_is_known_by_what_it_asks_for_and_of_which_turn(wish: Wish) -> None:
    assert wished(button(wish, "t1", ENGLISH).id) == (wish, "t1")


@pytest.mark.parametrize("strange", ["", "retry", "retry:", "delete:t1", "retry t1"])
def test_a_button_of_somebody_else_asks_for_nothing(strange: str) -> None:
    assert wished(strange) is None


def test_each_button_has_a_label_of_the_language() -> None:
    assert button("stop", "t1", ENGLISH).label == words.STOP
    assert button("stop", "t1", words.of("ko")).label == "중지"


def test_under_an_answer_stands_what_is_set() -> None:
    def labels(*extras: str, is_revised: bool = False) -> list[str]:
        chosen = {extra for extra in EXTRAS if extra in extras}
        return [one.label for one in under_answer("t1", ENGLISH, chosen, is_revised=is_revised)]

    assert labels(*EXTRAS) == [words.REGENERATE, words.WHY, words.GOOD, words.BAD]
    assert labels("feedback") == [words.GOOD, words.BAD]
    assert labels() == []
    assert labels(is_revised=True) == [words.REVISE]
    assert labels(*EXTRAS, is_revised=True) == [words.REVISE, words.WHY, words.GOOD, words.BAD]
