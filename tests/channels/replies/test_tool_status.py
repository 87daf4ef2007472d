"""Status lines of running tools in a reply."""

from typing import Any

import pytest

from channels.base import ToolCallState
from channels.discord.replies.surface import LIMITS as DISCORD
from channels.discord.text import utf16_size
from channels.i18n import messages as words
from channels.replies.tool_status import ToolStatus, render_call
from core.agents.events import StreamEvent, StreamEventType


def create_tool_start(tool: str = "look_up", line: str = "", call: str = "c1", **arguments: Any) -> StreamEvent:
    return StreamEvent("tool_start", text=line, tool=tool, call_id=call, data=arguments)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            create_tool_start(line="Looking up the weather in {city}", city="Seoul"),
            "_Looking up the weather in Seoul…_",
        ),
        (
            create_tool_start(line="Asking {whom} about {what}.", whom=["Ada", "Bob"], what=7),
            "_Asking Ada, Bob about 7…_",
        ),
        (create_tool_start("make_file", "Writing {name}", name="a_b.csv"), "_Writing a b.csv…_"),
        (create_tool_start(line="In {city}"), "_Using look up…_"),
        (create_tool_start(line="In {city}", city={"a": 1}), "_Using look up…_"),
        (create_tool_start("lookUpWeather-now"), "_Using look Up Weather now…_"),
        (create_tool_start(line="Reading {url}", url="https://a.example/x?y"), "_Reading a.example/x?y…_"),
        (
            create_tool_start(line="To {x}", x="**b**\n# h\n[l](http://e) <@U1> <!here> `c`"),
            "_To b # h l (e) @U1 !here c…_",
        ),
        (create_tool_start(line="To {x}", x="{city}", city="no"), "_To city…_"),
        (create_tool_start(line="To {x}", x="long " * 100), f"_To {'long ' * 11}long…_"),
        (create_tool_start("<@U1>_*x*_" * 50), None),
        (create_tool_start(line="Looking for {x}, {y}, {z}", x="🙈" * 99, y="🙉" * 99, z="🙊\ud83d" * 99), None),
    ],
)
def test_a_tool_status_is_plain_text(event: StreamEvent, expected: str | None) -> None:
    text = render_call(event, words.ENGLISH)
    assert expected is None or text == expected
    assert utf16_size(f"\n\n{text}{words.ENGLISH.format_elapsed(86_400)}") <= DISCORD.status_reserve
    assert not set("*`<>[]\n") & set(text)


def test_each_builtin_tool_has_a_status_in_each_language() -> None:
    event = create_tool_start("current_time", "Checking the time")
    assert render_call(event, words.messages_for("ko")) == "_시간을 확인하는 중…_"
    assert (
        render_call(create_tool_start("read_page", "Reading {url}", url="a.example"), words.messages_for("ko"))
        == "_a.example 읽는 중…_"
    )


def end_call(event: StreamEvent, type_: StreamEventType = "tool_end") -> StreamEvent:
    return StreamEvent(type_, tool=event.tool, call_id=event.call_id)


def test_the_newest_running_tool_is_shown() -> None:
    tools = ToolStatus()
    first, second = create_tool_start("one", call="1"), create_tool_start("two", call="2")
    lines = list[str]()
    for event in (first, second, end_call(second), end_call(second), end_call(first)):
        tools.update(event, words.ENGLISH)
        lines.append(tools.line)
    assert lines == ["_Using one…_", "_Using two…_", "_Using one…_", "_Using one…_", ""]
    assert [call.state for call in tools.calls] == [ToolCallState.DONE] * 2


def test_each_call_has_the_state_of_its_end() -> None:
    tools = ToolStatus()
    failed, waiting, done, denied = (create_tool_start(call=str(number)) for number in range(4))
    for event in (failed, waiting, done, end_call(failed, "error"), end_call(failed), end_call(waiting, "tool_wait")):
        tools.update(event, words.ENGLISH)
    assert tools.line == "_Using look up…_"
    for event in (end_call(done), end_call(denied, "error"), end_call(denied)):
        tools.update(event, words.ENGLISH)
    assert tools.line == ""
    states = [ToolCallState.FAILED, ToolCallState.WAITING, ToolCallState.DONE, ToolCallState.FAILED]
    assert [call.state for call in tools.calls] == states
