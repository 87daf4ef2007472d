"""Schedules: what people ask the bot to do later, and what they see then."""

import asyncio
import re
import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from channels.i18n import messages as words
from channels.turns import placing
from chatrig.models import CallTool, Pause, ReceivedRequest
from chatrig.slack import SlackSimulator
from core.turns.automation import schedules
from tests.scenarios.chat import (
    list_buttons,
    list_texts,
    run_command,
    wait_for_private_message,
    wait_for_reactions,
    wait_for_texts,
)
from tests.scenarios.conftest import StartBot

#: Minutes of a schedule that is due in a test.
SOON = 0.02


def call(text: str = "water the plants", **arguments: Any) -> CallTool:
    return CallTool("schedule", {"text": text, "in_minutes": SOON, **arguments})


def make_script(*calls: CallTool) -> Any:
    """Return a model that schedules at "later", does a scheduled task, and says "noted" or the tool's error."""

    def answer(request: ReceivedRequest) -> Any:
        role, text = request.messages[-1]
        if role == "tool":
            error = re.search(r'"error": "([^"]*)', text)
            return f"refused: {error[1]}" if error else "noted"
        if "[A scheduled task" in text:
            return f"done: {text.rpartition(chr(10))[2].strip()}{' (late)' if 'and late' in text else ''}"
        return list(calls) if "later" in text else "hello"

    return answer


def has_header(texts: list[str], title: str = "water the plants") -> bool:
    return any(re.fullmatch(rf"@.+ ⏰ {title}", text) for text in texts)


async def test_a_task_is_done_later_in_its_conversation_once(start: StartBot) -> None:
    async with start(make_script(call())) as chat:
        await chat.say("do it later")
        await wait_for_texts(chat, lambda found: found and found[-1] == "done: water the plants")
        first, header, _ = list_texts(chat)
        assert first.startswith("noted\n\n⏰ water the plants: ")
        assert has_header([header])
        await asyncio.sleep(1)
        assert len(list_texts(chat)) == 3


async def test_a_plain_text_is_posted_as_it_is(start: StartBot) -> None:
    async with start(make_script(call("Tea is ready", is_task=False))) as chat:
        await chat.say("later")
        await wait_for_texts(chat, lambda found: has_header(found, "Tea is ready"))
        assert len(list_texts(chat)) == 2


async def test_a_direct_schedule_comes_as_a_direct_message(start: StartBot) -> None:
    async with start(make_script(call(to="direct"))) as chat:
        await chat.say("later")
        await wait_for_texts(chat, lambda found: len(found) == 1 and "(direct message)" in found[0])
        await chat.open_dm()
        await wait_for_texts(chat, lambda found: found and found[-1] == "done: water the plants")


async def test_undo_deletes_a_schedule(start: StartBot) -> None:
    async with start(make_script(call(in_minutes=0.05))) as chat:
        await chat.say("later")
        await chat.press(words.UNDO, user="linus")
        await wait_for_private_message(chat, words.SCHEDULE_NOT_YOURS, user="linus")
        await chat.press(words.UNDO)
        await wait_for_private_message(chat, "Deleted: water the plants")
        await chat.simulator.wait_for(lambda: words.UNDO not in chat.list_replies()[-1].buttons)
        await asyncio.sleep(4)
        assert len(list_texts(chat)) == 1


async def test_a_schedule_survives_a_restart(start: StartBot) -> None:
    async with start(make_script(call(in_minutes=0.05))) as chat:
        await chat.say("later")
        await wait_for_texts(chat, lambda found: found and "⏰" in found[0])
    await asyncio.sleep(3)
    async with start(make_script()) as chat:
        await wait_for_texts(chat, lambda found: found and found[-1] == "done: water the plants")
        assert len(list_texts(chat)) == 3


async def test_what_a_downtime_missed_comes_late_once_and_says_so(
    start: StartBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start(make_script(call(in_minutes=5, repeat="FREQ=MINUTELY;INTERVAL=5", time_zone="UTC"))) as chat:
        await chat.say("later")
        await wait_for_texts(chat, lambda found: found and "⏰" in found[0])
    move_clock(monkeypatch, 3600)
    async with start(make_script()) as chat:
        await wait_for_texts(chat, lambda found: found and found[-1] == "done: water the plants (late)")
        assert "This is late: it was due" in list_texts(chat)[-2]
        await asyncio.sleep(1)
        assert len(list_texts(chat)) == 3


def move_clock(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Move the clock of schedules, as after a downtime."""
    moved = SimpleNamespace(time=lambda: time.time() + seconds)
    monkeypatch.setattr(schedules, "time", moved)
    monkeypatch.setattr(placing, "time", moved)


async def test_a_paused_schedule_waits_until_it_is_resumed(start: StartBot) -> None:
    async with start(make_script(call(in_minutes=60, repeat="FREQ=DAILY", time_zone="UTC"))) as chat:
        await chat.say("later")
        await wait_for_texts(chat, lambda found: found and "⏰" in found[0])
        listed = await run_command(chat, "schedule")
        assert listed.startswith(f"{words.YOUR_SCHEDULES}\n\n1. ⏰ water the plants: ")
        await press_private(chat, f"{words.PAUSE} 1")
        await wait_for_private(chat, "Paused: water the plants")
        assert (await run_command(chat, "schedule")).endswith("Paused._")
        await press_private(chat, f"{words.RESUME} 1")
        await wait_for_private(chat, "⏰ water the plants: ")
        await press_private(chat, f"{words.DELETE} 1")
        await wait_for_private(chat, "Deleted: water the plants")
        assert await run_command(chat, "schedule") == words.NO_SCHEDULES
        assert await run_command(chat, "schedule", user="linus") == words.NO_SCHEDULES


async def press_private(chat: Any, label: str, user: str = "ada") -> None:
    """Press a button of the newest message that only the user sees."""
    messages = list_private(chat, user)
    message = next(each for each in reversed(messages) if label in each.buttons)
    await chat.simulator.click_button(user, message, message.buttons[label])


def list_private(chat: Any, user: str = "ada") -> list[Any]:
    return [message for message in chat.list_bot_messages() if message.ephemeral_to]


async def wait_for_private(chat: Any, beginning: str) -> None:
    await chat.simulator.wait_for(lambda: any(text.startswith(beginning) for text in chat.list_private_messages()))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"in_minutes": 0, "at": "2020-01-01T09:00Z"}, "has passed"),
        ({"repeat": "FREQ=MINUTELY"}, "too often"),
        ({"repeat": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"}, "never due"),
        ({"in_minutes": 0}, "there is no time"),
        ({"text": " "}, "empty"),
        ({"time_zone": "Mars/Base", "in_minutes": 0, "at": "2030-01-01T09:00"}, "no time zone"),
    ],
)
async def test_a_refusal_names_the_remedy(start: StartBot, arguments: dict[str, Any], error: str) -> None:
    async with start(make_script(call(**{"time_zone": "UTC", **arguments}))) as chat:
        await chat.say("later")
        (text,) = await wait_for_texts(chat, lambda found: found and found[0].startswith("refused"))
        assert error in text
        assert "⏰" not in text


async def test_a_person_has_at_most_as_many_schedules_as_the_setting(start: StartBot) -> None:
    calls = [call(f"plan {n}", in_minutes=60 + n) for n in range(4)]
    async with start(make_script(*calls), max_schedules=3) as chat:
        await chat.say("later")
        (text,) = await wait_for_texts(chat, lambda found: found and "⏰" in found[0])
        assert text.count("⏰") == 3


async def merge_messages(chat: Any, gate: asyncio.Event) -> None:
    """Let Ada and Linus ask for a schedule in one turn, which waits behind another one."""
    await chat.say("first")
    await chat.simulator.wait_for(lambda: list_texts(chat))
    await chat.say("later")
    await chat.say("later, too", user="linus")
    await wait_for_reactions(chat, 2)
    gate.set()


async def test_several_speakers_confirm_a_schedule_by_a_press(start: StartBot) -> None:
    gate = asyncio.Event()
    script = make_script(call(in_minutes=0.1))

    def answer(request: ReceivedRequest) -> Any:
        return [Pause(gate), "hello"] if "first" in request.text else script(request)

    async with start(answer, while_running="queue") as chat:
        await merge_messages(chat, gate)
        await wait_for_texts(
            chat, lambda found: any("⏰" in text and words.NEEDS_CONFIRMATION in text for text in found)
        )
        await chat.press(words.CONFIRM, user="grace")
        await wait_for_private_message(chat, words.SCHEDULE_NOT_YOURS, user="grace")
        await chat.press(words.CONFIRM, user="linus")
        await wait_for_texts(chat, lambda found: found and found[-1] == "done: water the plants")
        header = list_texts(chat)[-2]
        assert "linus" in header.lower()
        assert words.CONFIRM not in [label for labels in list_buttons(chat) for label in labels]


async def test_a_schedule_of_a_schedule_is_confirmed_by_its_owner(start: StartBot) -> None:
    other = call("feed the cat")

    def answer(request: ReceivedRequest) -> Any:
        role, text = request.messages[-1]
        if role == "tool":
            return "noted"
        return other if "[A scheduled task" in text and "cat" not in text else make_script(call())(request)

    async with start(answer) as chat:
        await chat.say("later")
        await wait_for_texts(chat, lambda found: any("⏰ feed the cat" in text for text in found))
        await asyncio.sleep(2)
        assert not has_header(list_texts(chat), "feed the cat")
        await chat.press(words.CONFIRM, user="linus")
        await wait_for_private_message(chat, words.SCHEDULE_NOT_YOURS, user="linus")


async def test_a_reset_ends_the_schedules_of_a_conversation(start: StartBot) -> None:
    async with start(make_script(call(in_minutes=60))) as chat:
        await chat.say("later")
        await wait_for_texts(chat, lambda found: found and "⏰" in found[0])
        answer = await run_command(chat, "reset")
        assert answer == f"{words.RESET_DONE} {words.SCHEDULES_ENDED.format(count=1)}"
        assert await run_command(chat, "schedule") == words.NO_SCHEDULES


async def test_a_regenerated_answer_replaces_its_schedules(start: StartBot) -> None:
    async with start(make_script(call(in_minutes=60))) as chat:
        await chat.say("later")
        await chat.press(words.REGENERATE)
        await chat.simulator.wait_for(lambda: len(chat.list_versions()[0]) > 3)
        await wait_for_texts(chat, lambda found: found and "⏰" in found[0])
        assert (await run_command(chat, "schedule")).count("⏰") == 1


async def test_a_local_time_waits_for_the_time_zone_on_discord(start: StartBot) -> None:
    local = call(in_minutes=0, at="2030-06-01T09:00")
    async with start(make_script(local, call(in_minutes=0, repeat="FREQ=DAILY;BYHOUR=9;BYMINUTE=0"))) as chat:
        await chat.say("later")
        (text,) = await wait_for_texts(chat, lambda found: found and "⏰" in found[0])
        if is_slack(chat):
            assert words.NEEDS_TIME_ZONE not in text
            return
        assert text.count(words.NEEDS_TIME_ZONE) == 2
        assert "2030-06-01 09:00" in text
        (message,) = chat.list_replies()
        menu = next(part for part in message.content.components[0]["components"] if "options" in part)
        assert len(menu["options"]) == 25
        tokyo = next(option["value"] for option in menu["options"] if "Tokyo" in option["label"])
        await chat.simulator.select_values("linus", message, menu["custom_id"], [tokyo])
        assert words.NEEDS_TIME_ZONE in list_texts(chat)[0]
        await chat.simulator.select_values("ada", message, menu["custom_id"], [tokyo])
        await wait_for_private(chat, words.TIME_ZONE_CHOSEN.format(zone="Asia/Tokyo"))
        listed = await run_command(chat, "schedule")
        assert f"<t:{int(datetime(2030, 6, 1, tzinfo=UTC).timestamp())}:f>" in listed
        await chat.say("later, once more")
        await wait_for_texts(chat, lambda found: len(found) == 2 and found[1].count("⏰") == 2)
        assert words.NEEDS_TIME_ZONE not in list_texts(chat)[1]


def is_slack(chat: Any) -> bool:
    return isinstance(chat.simulator, SlackSimulator)
