"""Scripted answers of the model in the scenes."""

import asyncio
from collections.abc import Callable

from sandbox.models import CallTool, Fail, Pause, ReceivedRequest, Say, Turn


def script(held: asyncio.Event) -> Callable[[ReceivedRequest], Turn]:
    """What the model says: the answers to each question, by words of it, the last one again and again."""
    never = asyncio.Event()
    answers: dict[str, list[Turn]] = {
        "until when": ["Until Friday."],
        "hello to the robot": ["Hello, @robot."],
        "robot: hello": ["Hello, @robot."],
        "report of Friday": [CallTool("report", {"day": "Friday"}, id="2"), "There it is: 3 on Monday."],
        "report for us": [CallTool("report", id="3"), "Here it is."],
        "build-7": ["Delete what is older than a week."],
        "bike is red": ["I shall remember it."],
        "which colour": ["You have not told me."],
        "seven wonders": [[Say("The pyramid, "), Pause(1.5), Say("and six more.")]],
        "Moby Dick": ["whale " * 600],
        "set out": ["At dawn.", "At noon."],
        "on call": ["Linus is."],
        "what is this about": ["A full disk: the build has failed twice."],
        "planets": ["Eight."],
        "light one": ["That, too."],
        "dark mode": ["Why not?"],
        "oncall": ["Ada and Grace."],
        "ship": ["Ship it when it is green.", "On Monday."],
        "sail": ["At dawn."],
        "bad": ["It is: the disk is full."],
        "rain": [Fail(400), "It stays dry."],
        "story": [[Say("Once upon a time"), Pause(never)]],
        "sea blue": ["Water takes the red out of the light."],
        "sky blue": ["Air scatters blue light most."],
        "cat": ["Grace does."],
        "stars": [[Say("One, two"), Pause(held), Say(", and so on.")]],
        "on Monday": ["Writing."],
        "make the report": [CallTool("report", id="1"), "Here it is."],
        "undo": ["With `git reset --soft HEAD~1`."],
        "rebase": ["It moves commits to another base."],
        "parser": ["It is."],
        "Japan": ["Tokyo."],
    }

    def answer(asked: ReceivedRequest) -> Turn:
        turns = next((turns for words, turns in answers.items() if words in asked.text), ["Hm."])
        return turns.pop(0) if len(turns) > 1 else turns[0]

    return answer
