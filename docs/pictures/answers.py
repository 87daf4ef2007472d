"""Answers of the scripted model in the scenes."""

from collections.abc import Callable

from sandbox.models import CallTool, ReceivedRequest, Turn


def make_script() -> Callable[[ReceivedRequest], Turn]:
    """Return a script that answers each question by words in it; the last answer repeats."""
    answers: dict[str, list[Turn]] = {
        "report of Friday": [CallTool("report", {"day": "Friday"}, id="1"), "There it is: 3 on Monday."],
        "on call": ["Linus is."],
    }

    def answer(request: ReceivedRequest) -> Turn:
        turns = next((turns for words, turns in answers.items() if words in request.text), ["Hm."])
        return turns.pop(0) if len(turns) > 1 else turns[0]

    return answer
