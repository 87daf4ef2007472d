"""Options of `parley check --live`."""

import re

import pytest
from typer.testing import CliRunner

from bot.cli.main import cli
from bot.monitoring import logs
from bot.setup.live.command import parse_places
from core.errors import SettingsError


@pytest.fixture(autouse=True)
def _keep_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "configure_logging", lambda *_: None)  # pytest's handlers stay


def test_live_without_a_place_names_what_to_give_and_where_the_ids_are() -> None:
    error = str(CliRunner().invoke(cli, ["check", "--live"]).exception)
    for part in ("--in slack:ID", "Copy member ID", "--in discord:ID", "Developer Mode"):
        assert part in error


@pytest.mark.parametrize(
    "place", ["slack", "slack:general", "slack:#general", "teams:C0123456", "discord:general", "discord:C0123456"]
)
def test_a_place_of_another_form_is_refused(place: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(f"--in {place}: it names no place. Write\n--in ")):
        parse_places([place])


def test_two_places_of_a_platform_are_refused() -> None:
    with pytest.raises(SettingsError, match="one place on a platform"):
        parse_places(["slack:C0123456", "slack:C0123457"])


@pytest.mark.parametrize("options", [["--in", "slack:C0123456"], ["--record", "x.json"]])
def test_the_options_of_live_need_live(options: list[str]) -> None:
    error = str(CliRunner().invoke(cli, ["check", *options]).exception)
    assert "--in and --record belong to --live" in error
