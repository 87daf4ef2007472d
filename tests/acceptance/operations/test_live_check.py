"""Command `parley check --live` as a process, against both local platforms."""

import json
import re
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from chatrig.discord import DiscordSimulator
from chatrig.slack import SlackSimulator
from tests.acceptance.conftest import MakeProgram

_PAGE = Path(__file__).parents[3] / "docs/howto/check-a-real-workspace.md"
_EXAMPLE = re.compile(r"^\$ \S+ check --live [^\n]*\n(?P<lines>.*?)^```", re.M | re.S)


@pytest.fixture
def settings(slack: SlackSimulator, discord: DiscordSimulator) -> Mapping[str, str]:
    return {
        "SLACK_BOT_TOKEN": slack.bot_token,
        "SLACK_APP_TOKEN": slack.app_token,
        "SLACK_API_URL": slack.api_url,
        "DISCORD_BOT_TOKEN": discord.bot_token,
        "DISCORD_API_URL": discord.api_url,
        "MODEL": "local/none",
    }


async def test_the_page_shows_the_output_of_the_live_check(
    program: MakeProgram, slack: SlackSimulator, discord: DiscordSimulator, settings: Mapping[str, str]
) -> None:
    secret = slack.add_channel("secret", private=True)
    hidden = discord.add_channel("hidden", members=["ada"])
    command = f"check --live --in slack:{secret.id} --in discord:{hidden.id}"
    code, output = await program(settings).run_command(command)
    assert code == 0
    example = _EXAMPLE.search(_PAGE.read_text())
    assert example is not None
    assert output == example["lines"]


async def test_json_has_the_verdicts_and_a_failure_the_exit_code_1(
    program: MakeProgram, slack: SlackSimulator, settings: Mapping[str, str]
) -> None:
    place = f"slack:{slack.channels['general'].id}"
    code, output = await program(settings).run_command(f"check --live --json --in {place}")
    assert code == 1
    found = json.loads(output)
    assert [result["verdict"] for result in found] == ["ok", "fail", "note", "note"]
    assert found[-1]["line"].startswith("Discord: not checked. Add --in discord:ID")


async def test_a_place_without_a_token_is_a_failure(program: MakeProgram) -> None:
    code, output = await program({"MODEL": "local/none"}).run_command("check --live --in slack:C0123456")
    assert (code, output) == (1, "FAIL Slack: no token is set, so that --in slack:C0123456 cannot be used\n")


async def test_a_recording_that_exists_is_not_overwritten(
    program: MakeProgram, slack: SlackSimulator, settings: Mapping[str, str], tmp_path: Path
) -> None:
    (tmp_path / "shapes.json").write_text("mine")
    command = f"check --live --in slack:{slack.people['ada'].id} --record shapes.json"
    code, output = await program(settings).run_command(command)
    assert (code, output) == (2, "--record: shapes.json exists: name another file, or remove it\n")
    assert slack.calls == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_an_interrupted_check_deletes_what_it_wrote(
    program: MakeProgram, slack: SlackSimulator, settings: Mapping[str, str], number: signal.Signals
) -> None:
    dm = slack.open_dm("ada")
    slack.faults.delay("chat.appendStream", 0.5)
    check = program(settings)
    await check.start(f"check --live --in slack:{slack.people['ada'].id}")
    await slack.wait_for(lambda: any(call.method == "chat.appendStream" for call in slack.calls))
    assert slack.messages(dm) != []
    assert await check.stop(number) == 130
    assert slack.messages(dm) == []
    assert check.log.endswith("ok   Slack: everything that the check wrote is deleted\n")
