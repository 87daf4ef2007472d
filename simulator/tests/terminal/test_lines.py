import asyncio
import io
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import discord
import pytest

from chatrig.client.discord import DiscordPlatform
from chatrig.client.extension import SimulatorExtension
from chatrig.client.managed_bot import BotState
from chatrig.client.platform import ClientPlatform
from chatrig.client.slack import SlackPlatform
from chatrig.discord import DiscordSimulator
from chatrig.slack import SlackSimulator
from chatrig.terminal import run_terminal
from chatrig.terminal.lines import read_lines, run_lines
from chatrig.terminal.replies import QuietTime
from tests.terminal.conftest import DiscordBot, SlackSdkBot

QUICK = QuietTime(quiet_seconds=0.5, max_quiet_seconds=1.0, stalled_reply_seconds=5, max_wait_seconds=30)


async def iterate_lines(*lines: str) -> AsyncIterator[str]:
    for line in lines:
        yield f"{line}\n"


async def print_lines(slack: SlackSimulator, *lines: str, server: DiscordSimulator | None = None) -> list[str]:
    """Run lines of input in the terminal client, and return the printed lines.

    Message ids are replaced by their order.
    """
    out = io.StringIO()
    platforms: list[ClientPlatform] = [SlackPlatform(slack)]
    if server is not None:
        platforms.append(DiscordPlatform(server))
    await run_lines(platforms, iterate_lines(*lines), out, quiet_time=QUICK)
    ids: dict[str, str] = {}
    named = re.sub(r"\d+\.\d{6}|\d{17,}", lambda found: ids.setdefault(found[0], str(len(ids) + 1)), out.getvalue())
    return named.splitlines()


@pytest.fixture
async def answering_bot(bot: SlackSdkBot) -> AsyncIterator[SlackSdkBot]:
    """Yield a bot that answers each mention with a placeholder and two edits."""

    async def answer() -> None:
        while True:
            channel, ts = await bot.mentions.get()
            reply = await bot.post_message(channel, "Thinking", ts)
            await bot.update_message(channel, reply, "Good\nmorn")
            await asyncio.sleep(0.05)
            await bot.update_message(channel, reply, "Good\nmorning")

    await bot.connect()
    answers = asyncio.create_task(answer())
    yield bot
    answers.cancel()


async def test_each_change_is_one_line_and_the_end_waits(slack: SlackSimulator, answering_bot: SlackSdkBot) -> None:
    assert await print_lines(slack, "/channel general", "@bot hello") == [
        "[Slack #general 1 ada] @bot hello",
        "[Slack #general/1 2 bot] Thinking",
        "[Slack #general/1 2 bot updated] Good ⏎ morn",
        "[Slack #general/1 2 bot updated] Good ⏎ morning",
    ]


async def test_wait_delays_the_next_line_until_the_reply(slack: SlackSimulator, answering_bot: SlackSdkBot) -> None:
    lines = await print_lines(
        slack, "/channel general", "@bot hello", "/wait", "/thread last", "/as grace", "@bot and I?"
    )
    assert lines[4:6] == ["[Slack #general/1 3 grace] @bot and I?", "[Slack #general/1 4 bot] Thinking"]
    assert lines[-1] == "[Slack #general/1 4 bot updated] Good ⏎ morning"


async def test_each_user_has_direct_messages(slack: SlackSimulator, answering_bot: SlackSdkBot) -> None:
    lines = await print_lines(slack, "/as grace", "/channel random", "one", "/dm", "/as ada", "/quit", "never said")
    assert lines == ["[Slack #random 1 grace] one"]


async def test_a_command_has_an_ephemeral_answer(slack: SlackSimulator, answering_bot: SlackSdkBot) -> None:
    lines = await print_lines(slack, "/channel general", "/reset", "hello", "/thread last", "/reset")
    assert lines == [
        "[Slack #general 1 bot only visible to ada] We start over.",
        "[Slack #general 2 ada] hello",
        "[Slack] /reset is not supported in threads. Sorry!",
    ]


async def test_reactions_and_deletions_are_printed(slack: SlackSimulator, answering_bot: SlackSdkBot) -> None:
    async def type_lines() -> AsyncIterator[str]:
        yield "/channel general"
        yield "hello"
        message = slack.messages("general")[0]
        await slack.add_reaction("grace", message, "wave")
        yield "/wait"
        await answering_bot.web.reactions_add(channel=message.channel.id, timestamp=message.ts, name="eyes")
        yield "/wait"
        await slack.delete_message("ada", message)

    out = io.StringIO()
    await run_lines([SlackPlatform(slack)], type_lines(), out, quiet_time=QUICK)
    assert [line.partition("ada ")[2] for line in out.getvalue().splitlines()][1:] == [
        "reactions] 👋 1",
        "reactions] 👋 1 👀 1",
        "deleted]",
    ]


async def test_lines_work_on_discord(server: DiscordSimulator, slack: SlackSimulator, discord_bot: DiscordBot) -> None:
    async def answer() -> None:
        message = await discord_bot.next_message()
        reply = await message.reply("Thinking")
        await reply.edit(content="Good\nmorning")
        discord_bot.answers.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(answer())
        lines = await print_lines(
            slack,
            "/discord",
            "/channel general",
            "@bot hello",
            "/wait",
            "/thread last",
            "/ask the time",
            server=server,
        )
    assert lines == [
        "[Discord #general 1 ada] @bot hello",
        "[Discord #general 2 bot in reply to 1] Thinking",
        "[Discord #general 2 bot updated] Good ⏎ morning",
        "[Discord #general/1 3 bot only visible to ada] bot is thinking…",
        "[Discord #general/1 3 bot only visible to ada updated] About the time",
    ]


async def test_a_deferred_response_is_waited_for(
    server: DiscordSimulator, slack: SlackSimulator, discord_bot: DiscordBot
) -> None:
    async def answer() -> None:
        await server.wait_for(lambda: server.messages(server.open_dm("ada")))
        await asyncio.sleep(2 * QUICK.quiet_seconds)  # longer than the wait for a quiet reply
        discord_bot.answers.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(answer())
        lines = await print_lines(slack, "/discord", "/ask", server=server)
    assert lines[-1] == "[Discord dm ada 1 bot only visible to ada updated] About nothing"


async def test_a_line_switches_the_platform(
    slack: SlackSimulator, server: DiscordSimulator, answering_bot: SlackSdkBot, discord_bot: DiscordBot
) -> None:
    lines = await print_lines(
        slack,
        "/channel random",
        "one",
        "/discord",
        "/as grace",
        "two",
        "/slack",
        "three",
        "/discord",
        "four",
        "/quit",
        server=server,
    )
    assert lines == [
        "[Slack #random 1 ada] one",
        "[Discord dm grace 2 grace] two",
        "[Slack #random 3 ada] three",
        "[Discord dm grace 4 grace] four",
    ]


async def test_an_unused_platform_is_not_waited_for(
    slack: SlackSimulator, server: DiscordSimulator, answering_bot: SlackSdkBot
) -> None:
    async with asyncio.timeout(20):
        assert await print_lines(slack, "/channel random", "one", server=server) == ["[Slack #random 1 ada] one"]


async def test_a_wrong_name_is_answered_with_the_known_ones(slack: SlackSimulator, answering_bot: SlackSdkBot) -> None:
    lines = await print_lines(slack, "/as nobody", "/channel nowhere", "/thread last", "/thread 1.5")
    assert lines == [
        "[Slack] There is no user 'nobody'. Users: ada, grace, linus.",
        "[Slack] There is no channel 'nowhere'. Channels: #general, #random.",
        "[Slack] You have not sent a message yet.",
        "[Slack] There is no message '1.5' in @bot.",
    ]


async def test_a_missing_answer_is_reported(slack: SlackSimulator, bot: SlackSdkBot) -> None:
    await bot.connect()
    out = io.StringIO()
    pace = QuietTime(quiet_seconds=0.05, stalled_reply_seconds=0.2)
    await run_lines([SlackPlatform(slack)], iterate_lines("hello"), out, notices=["A simulator."], quiet_time=pace)
    first, _, last = out.getvalue().splitlines()
    assert (first, last) == ("A simulator.", "[Slack] bot did not finish its reply in time.")


async def test_lines_are_read_from_a_pipe_as_they_come() -> None:
    read, write = os.pipe()
    with os.fdopen(read) as stream, os.fdopen(write, "w") as pipe:
        lines = read_lines(stream)
        pipe.write("one\n")
        pipe.flush()
        assert await anext(lines) == "one\n"
        pipe.write("two\n")
        pipe.close()
        assert [line async for line in lines] == ["two\n"]


async def test_without_a_terminal_the_standard_streams_are_lines(
    slack: SlackSimulator,
    server: DiscordSimulator,
    answering_bot: SlackSdkBot,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = tmp_path / "script"
    script.write_text("/channel general\n@bot hello\n/wait\n/quit\n")
    with script.open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        await run_terminal(slack, server, notices=["This is the simulator."])
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first == "This is the simulator."
    assert last.endswith("bot updated] Good ⏎ morning")


async def test_buttons_and_files_are_printed_and_clicked(slack: SlackSimulator, bot: SlackSdkBot) -> None:
    button = {"type": "button", "action_id": "again:1", "text": {"type": "plain_text", "text": "Again"}}
    blocks: list[dict[str, Any]] = [
        {"type": "markdown", "text": "It failed."},
        {"type": "actions", "elements": [button]},
    ]
    await bot.connect()
    await slack.wait_until_connected()

    async def type_lines() -> AsyncIterator[str]:
        yield "/channel general"
        yield "hello"
        place = slack.channels["general"].id
        await bot.web.chat_postMessage(channel=place, text="x", blocks=blocks)
        await bot.web.files_upload_v2(channel=place, filename="answer.md", content="all of it")
        yield "/press again"
        yield "/press other"

    out = io.StringIO()
    await run_lines(
        [SlackPlatform(slack)], type_lines(), out, quiet_time=QuietTime(quiet_seconds=0.1, stalled_reply_seconds=0.1)
    )
    print_lines = [re.sub(r"\d+\.\d{6}", "1", line) for line in out.getvalue().splitlines()]
    assert "[Slack #general 1 bot] It failed. ⏎ [ Again ]" in print_lines
    assert "[Slack #general 1 bot] [file answer.md]" in print_lines
    assert "[Slack] There is no button 'other' here. Buttons: Again." in print_lines
    (press,) = [envelope.payload for envelope in slack.envelopes if envelope.type == "interactive"]
    assert (press["user"]["name"], press["actions"][0]["action_id"]) == ("ada", "again:1")


async def test_a_form_is_printed_filled_in_and_submitted(server: DiscordSimulator, discord_bot: DiscordBot) -> None:
    view = discord.ui.View()
    view.add_item(discord.ui.Button(label="Order", custom_id="form"))
    view.stop()
    lines = ["/channel general", "@bot coffee", "/wait", "/press order", "/submit Ada; size: large"]

    async def answer() -> None:
        await (await discord_bot.next_message()).reply("What?", view=view)

    out = io.StringIO()
    async with asyncio.TaskGroup() as group:
        group.create_task(answer())
        await run_lines([DiscordPlatform(server)], iterate_lines(*lines), out, quiet_time=QUICK)
    printed = out.getvalue().splitlines()
    fields = "• Name (For the cup) ⏎ • Size (options: Small, Large) ⏎ • Extras (optional; options: Milk, Ice) = Milk"
    how = "Fill it in: /submit Name: …; Size: …; Extras: …"
    assert printed[2] == f"[Discord form of ada] Order ⏎ {fields} ⏎ {how}"
    assert printed[3].endswith("bot] Received Ada; ['l']; ['m']")


class StartingBot:
    """Process of a bot that starts while somebody waits for a change."""

    state: BotState = "starting"
    exit_reason = log_tail = ""

    async def kill(self) -> None: ...

    async def restart(self) -> None: ...

    async def wait_for_change(self) -> None:
        self.state = "running"


class StateExtension(SimulatorExtension):
    bot: StartingBot

    def list_notices(self) -> list[str]:
        return [f"The bot is {self.bot.state}."]


async def test_the_notices_of_an_extension_follow_the_start_of_the_bot(slack: SlackSimulator, bot: SlackSdkBot) -> None:
    await bot.connect()
    extension, out = StateExtension(), io.StringIO()
    extension.bot = StartingBot()
    lines = iterate_lines("/channel general", "hello", "/quit")
    await run_lines([SlackPlatform(slack)], lines, out, extension=extension, quiet_time=QUICK)
    first, second = out.getvalue().splitlines()
    assert first == "The bot is running."
    assert second.endswith("ada] hello")
