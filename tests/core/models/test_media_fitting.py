"""Which of the files in a history go to the model."""

from core.models.media import fitted
from core.models.provider import Media, Message, Takes, Text, ToolResult

TAKES = Takes({"image/png": 10}, total=15)


def png(size: int) -> Media:
    return Media("image/png", b"x" * size)


def left_out(kind: str, size: int) -> Text:
    return Text(f"[a file that is not shown to you: {kind}, {size} bytes]")


def test_the_newest_files_that_the_model_takes_go_and_of_the_others_it_is_told() -> None:
    sound = Media("audio/ogg", b"xyz")
    page = Media("text/plain", b"words " * 100)
    linked = Media("image/png", uri="https://example.com/a.png")
    history = [
        Message("user", (Text("one"), png(8), page, linked)),
        Message("user", (Text("two"), png(9), sound, png(11), png(5))),
    ]
    assert fitted(history, TAKES) == [
        Message("user", (Text("one"), left_out("image/png", 8), page, linked)),
        Message("user", (Text("two"), png(9), left_out("audio/ogg", 3), left_out("image/png", 11), png(5))),
    ]


def test_what_a_tool_shows_is_told_beside_its_result() -> None:
    shown = ToolResult("1", "draw", {"ok": True}, (png(4), png(40)))
    [message] = fitted([Message("tool", (shown,))], TAKES)
    told = {"ok": True, "left_out": [left_out("image/png", 40).text]}
    assert message == Message("tool", (ToolResult("1", "draw", told, (png(4),)),))


def test_a_history_without_files_stays_as_it_is() -> None:
    history = [Message("user", (Text("one"),))]
    assert fitted(history, TAKES)[0] is history[0]
