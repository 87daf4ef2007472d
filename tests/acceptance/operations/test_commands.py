"""Operator commands, such as `turns` and `cancel`, on a running bot's database."""

import asyncio
import json
import re
import signal
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from channels.i18n import messages as words
from chatrig.models import Fail, Pause, Say
from core.errors import ProviderRequestError
from tests.acceptance.conftest import AcceptanceBot, MakeProgram, StartBot

_numbers = count(1)


class Operator:
    """Operator who runs commands with the settings of a running bot."""

    def __init__(self, program: MakeProgram, bot: AcceptanceBot, folder: Path) -> None:
        self._program = program
        self._bot = bot
        self._folder = folder

    async def run(self, command: str) -> tuple[int, str]:
        """Run a command of the bot, and return its exit code and output."""
        terminal = self._program(self._bot.program.settings)
        terminal.log_file = self._folder / f"terminal-{next(_numbers)}.log"
        return await terminal.run_command(command)

    async def run_json(self, command: str, code: int = 0) -> Any:
        """Run a command with `--json`, and return the parsed output.

        Args:
            code: the expected exit code.
        """
        ended, output = await self.run(f"{command} --json")
        assert ended == code, output
        return json.loads(output)

    async def wait_for_newest_turn(self, state: str) -> Any:
        """Wait until the newest turn has this state, and return it.

        The reply is complete before the turn ends.

        Raises:
            TimeoutError: after 60 seconds.
        """
        async with asyncio.timeout(60):
            while True:
                (turn,) = await self.run_json("turns --limit 1")
                if turn["state"] == state:
                    return turn


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> dict[str, str]:
    return {"DATABASE_URL": request.getfixturevalue("postgres")} if request.param == "postgres" else {}


async def test_operator_commands_list_retry_and_cancel_turns(
    start: StartBot, program: MakeProgram, database: dict[str, str], tmp_path: Path
) -> None:
    bot = await start(**database)
    operator, platform = Operator(program, bot, tmp_path), bot.platforms[0]

    # a healthy bot
    bot.answer = lambda _request: "Hello."
    await bot.ask(platform, platform.start_conversation(), "hi", "Hello.")
    await operator.wait_for_newest_turn("done")
    (turn,) = await operator.run_json("turns --since 1h")
    assert (turn["state"], turn["kind"], turn["error"]) == ("done", "message", None)
    assert turn["tokens"] > 0
    (session,) = await operator.run_json("sessions")
    assert (session["id"], session["messages"], session["running"]) == (turn["session"], 1, None)
    status = await operator.run_json("status")
    assert status["is_well"]
    assert [worker["is_alive"] for worker in status["workers"]] == [True]
    assert {platform["name"] for platform in status["platforms"]} <= {"slack", "discord"}
    code, output = await operator.run("status")
    assert (code, output.splitlines()[-1]) == (0, "No problems.")
    account = await operator.run_json(f"why {turn['id'][:7]}")
    assert (account["id"], account["run_record"]["history"]["messages"]) == (turn["id"], 0)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", account["created_at"])
    assert turn["session"] in (await operator.run("turns"))[1]
    assert turn["session"] in (await operator.run("sessions"))[1]

    # a failed turn, its report and its retry
    bot.answer = lambda _request: Fail(400, "no")
    conversation = platform.start_conversation()
    await conversation.say("hi again")
    apology = await bot.wait_for_reply(platform, conversation, lambda text: ProviderRequestError.public in text)
    failed = re.search(r"turn `(\w+)`", apology.text)
    assert failed is not None
    await operator.wait_for_newest_turn("failed")
    status = await operator.run_json("status", 1)
    assert [(finding["kind"], finding["subject"]) for finding in status["findings"]] == [("failing", failed[1])]
    code, output = await operator.run("status")
    assert code == 1
    assert "1 turn failed in the last hour with ProviderRequestError" in output
    code, output = await operator.run(f"why (turn`{failed[1]}`)")
    assert code == 0
    assert "ProviderRequestError: " in output
    bot.answer = lambda _request: "Here I am."
    retried = await operator.run_json(f"retry {failed[1]}")
    assert (retried["turn"], retried["is_done"], retried["has_worker"]) == (failed[1], True, True)
    assert retried["newest"] != failed[1]
    await bot.wait_for_reply(platform, conversation, lambda text: text == "Here I am.")
    code, output = await operator.run(f"retry {failed[1]}")
    assert (code, "was already retried" in output) == (1, True)
    code, output = await operator.run(f"retry {turn['id']}")
    assert (code, "is done: only failed turns can be retried" in output) == (1, True)

    # a running turn is cancelled
    bot.answer = lambda _request: [Say("Beginning"), Pause(60.0)]
    conversation = platform.start_conversation()
    await conversation.say("a long story")
    await bot.wait_for_reply(platform, conversation, lambda text: text.startswith("Beginning"))
    (runs,) = await operator.run_json("turns --state running")
    code, output = await operator.run(f"cancel {runs['id']}")
    assert code == 0, output
    await bot.wait_for_reply(platform, conversation, lambda text: text == f"Beginning\n\n{words.STOPPED}")
    await operator.wait_for_newest_turn("cancelled")
    code, output = await operator.run(f"cancel {runs['id']}")
    assert (code, "is cancelled: only active turns can be cancelled" in output) == (1, True)

    # unknown ids
    for given, why in (("xyz", "is not the id of a turn"), ("0123456789", "there is no turn 0123456789")):
        code, output = await operator.run(f"why {given}")
        assert (code, why in output, "`parley turns`" in output) == (1, True, True)
    assert (await operator.run("turns --since soon"))[0] == 2

    # without a running bot, requests are stored
    bot.answer = lambda _request: Fail(400, "no")
    await (conversation := platform.start_conversation()).say("hi")
    apology = await bot.wait_for_reply(platform, conversation, lambda text: ProviderRequestError.public in text)
    assert await bot.program.stop(signal.SIGTERM) == 0
    status = await operator.run_json("status", 1)
    assert "dead" in {finding["kind"] for finding in status["findings"]}
    (newest, *_) = await operator.run_json("turns --limit 1")
    code, output = await operator.run(f"retry {newest['id']}")
    assert (code, "no worker is alive" in output) == (0, True)
    bot.answer = lambda _request: "At last."
    await bot.start()
    await bot.wait_for_reply(platform, conversation, lambda text: text == "At last.")


async def test_commands_without_a_database_say_so_and_create_none(program: MakeProgram, tmp_path: Path) -> None:
    code, output = await program({"DATABASE_URL": f"sqlite:///{tmp_path / 'none.db'}"}).run_command("status")
    assert code == 1
    assert "none.db: no such database yet" in output
    assert not (tmp_path / "none.db").exists()


async def test_forget_deletes_by_id_and_prints_the_counts(
    start: StartBot, program: MakeProgram, tmp_path: Path
) -> None:
    bot = await start()
    operator, platform = Operator(program, bot, tmp_path), bot.platforms[0]
    bot.answer = lambda _request: "Hello."
    await bot.ask(platform, platform.start_dm("ada"), "hi", "Hello.")
    await operator.wait_for_newest_turn("done")
    (session,) = await operator.run_json("sessions")
    code, output = await operator.run("forget --user ada --yes")
    assert code == 1
    assert "nothing was deleted" in output
    (user,) = re.findall(r"^  (\w+)  .*ada.*$", output, re.M | re.I)
    for command in ("turns --user ada", "sessions --user ADA"):
        code, output = await operator.run(command)
        assert (code, re.findall(r"^  (\w+)  .*ada.*$", output, re.M | re.I)) == (1, [user])
    code, output = await operator.run("turns --user bob")
    assert (code, output.strip()) == (1, "nothing is stored of a user with the id bob")
    assert [turn["session"] for turn in await operator.run_json(f"turns --user {user}")] == [session["id"]]
    assert await operator.run_json(f"turns --user {user} --state failed") == []
    code, output = await operator.run("export ada")
    assert (code, "`parley sessions` lists the stored ones" in output) == (1, True)
    code, output = await operator.run("forget --user bob --yes")
    assert (code, output.strip()) == (1, "nothing is stored of a user with the id bob, so nothing was deleted")
    assert (await operator.run_json("sessions")) == [session]

    code, output = await operator.run(f"forget --user {user} --yes")
    assert code == 0
    assert "deleted 1 conversation, 2 messages and 0 files" in output
    assert await operator.run_json("sessions") == []
    for command in (f"forget --user {user} --yes", f"forget --session {session['id']} --yes"):
        code, output = await operator.run(command)
        assert code == 1
        assert "nothing is stored" in output


PROMPTS_ON = {"KEEP_PROMPTS_DAYS": "1", "SECRET_KEY": "0123456789abcdef" * 2}


async def test_why_prints_the_prompts_of_a_turn_or_why_there_are_none(
    start: StartBot, program: MakeProgram, database: dict[str, str], tmp_path: Path
) -> None:
    bot = await start(**database)
    operator, platform = Operator(program, bot, tmp_path), bot.platforms[0]
    bot.answer = lambda _request: "Hello."
    await bot.ask(platform, platform.start_dm("ada"), "while it is off", "Hello.")
    before = await operator.wait_for_newest_turn("done")
    assert await bot.program.stop(signal.SIGTERM) == 0
    bot.program.settings = {**bot.program.settings, **PROMPTS_ON}
    await bot.start()
    dm = platform.start_dm("ada")
    await bot.ask(platform, dm, "two umbrellas\nof \x1b[31mred", "Hello.")
    turn = await operator.wait_for_newest_turn("done")

    code, output = await operator.run(f"why {turn['id'][:8]} --prompt")
    assert code == 0, output
    assert f"Turn {turn['id']}, prompt 1 of 1: " in output
    assert re.search(r"^\[system, text\]\n    \S", output, re.M)
    assert re.search(r"^\[user, text\]$", output, re.M)
    assert re.search(r"^    .*two umbrellas$", output, re.M)
    assert "\x1b" not in output
    (prompt,) = await operator.run_json(f"why {turn['id']} --prompt")
    assert {"called_at", "model", "agent", "messages", "tools", "cut_characters"} == prompt.keys()
    assert "two umbrellas" in prompt["messages"][-1]["parts"][-1]["text"]
    assert "umbrellas" not in (await operator.run(f"why {turn['id']}"))[1]
    assert "umbrellas" not in bot.program.log

    code, output = await operator.run(f"why {before['id']} --prompt")
    assert code == 1
    assert f"no prompts of turn {before['id']} are stored: KEEP_PROMPTS_DAYS was off" in output
    assert (await operator.run("why 0123456789 --prompt"))[0] == 1

    bot.program.settings = {**bot.program.settings, "SECRET_KEY": "fedcba9876543210" * 2}
    code, output = await operator.run(f"why {turn['id']} --prompt")
    assert (code, len(output.splitlines())) == (2, 1)
    assert output.startswith(f"SECRET_KEY: the prompts of turn {turn['id']} were encrypted with another key")
    bot.program.settings = {**bot.program.settings, **PROMPTS_ON}

    assert (await operator.run(f"forget --session {turn['session']} --dry-run"))[0] == 0
    bot.answer = lambda _request: "Hello again."
    await dm.say("reset")
    await platform.wait_for(lambda: len(dm.replies()) > 1, timeout=60)
    code, output = await operator.run(f"why {turn['id']} --prompt")
    assert (code, f"the prompts of turn {turn['id']} are deleted" in output) == (1, True)
