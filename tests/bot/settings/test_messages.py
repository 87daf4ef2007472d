"""Messages about wrong values of settings, options and files: they name the value and the rule, in our own words."""

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
import typer
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from bot.agents_toml import AgentTable, read_agents
from bot.cli.main import cli
from bot.monitoring import logs
from bot.settings import Settings, load_settings
from core.errors import SettingsError
from core.tools.mcp import McpConfig, load_servers

#: Words of pydantic, pydantic-settings, Click and Typer about wrong values.
LIBRARY_WORDS = re.compile(
    r"input should|value error|a valid |unable to parse|not permitted|error parsing|instance of|pydantic|\bctx\b|"
    r"decimal places|in another form|match the formats|strptime|Traceback|function-",
    re.IGNORECASE,
)

RATE_RULE = "it must be a number and a time, such as 20/h"
DOLLARS_RULE = "it must be a number of dollars"

WRONG_VALUES = (
    *("x", "-1", "0", "1.5", "nan", "inf", "20", "20/w", "null", "{}", "[1]", "a b"),
    *("user:pw@h", "http://u:hidden-word@h:x/", "postgresql:/u:hidden-word@h/d", "9" * 400, "0." + "1" * 30),
)


#: Settings whose value hides the faults of others, or adds some.
ENTANGLED = frozenset({"agent", "agent_instruction_file", "secret_key"})


def list_faults(value: str, *names: str) -> list[tuple[str, str]]:
    """Return (name, fault) for each fault of these settings if each has this value."""
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setenv(name.upper(), value)
        patch.setattr("bot.settings.settings.add_secret", lambda _: None)  # it is for the whole process
        try:
            load_settings()
        except SettingsError as error:
            return [(name, fault) for fault in error.faults for name in names if fault.startswith(f"{name.upper()}:")]
    return []


@pytest.mark.parametrize("value", WRONG_VALUES)
@pytest.mark.parametrize("names", [Settings.model_fields.keys() - ENTANGLED, *({name} for name in sorted(ENTANGLED))])
def test_a_message_about_a_setting_has_its_value_and_no_words_of_a_library(names: set[str], value: str) -> None:
    for name, fault in list_faults(value, *names):
        is_secret = "SecretStr" in repr(Settings.model_fields[name].annotation)
        assert not LIBRARY_WORDS.search(fault.replace(value, "")), fault
        assert "hidden-word" not in fault or not (is_secret or name.endswith("_url"))
        is_shown = value[:40] in fault or "…" in fault or "redacted" in fault
        assert is_shown is not is_secret or "'…'" in fault, fault
        assert re.search(r"it must |cannot be read|is not |is empty", fault), fault


@example("agent", "~0")
@example("agent", "/" + "a" * 400)
@given(st.sampled_from(sorted(Settings.model_fields)), st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_no_text_makes_a_setting_fail_with_words_of_a_library(name: str, value: str) -> None:
    for _, fault in list_faults(value, name):
        assert not LIBRARY_WORDS.search(fault), fault


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "RATE_LIMIT_PER_USER",
            "20",
            f"{RATE_RULE} (m is a minute, h an hour, d a day)",
        ),
        ("RETENTION_DAYS", "-1", "it must be at least 0"),
        ("RETENTION_DAYS", "inf", "it must be a number"),
        (
            "DAILY_SPENDING_LIMIT_USD",
            "0.1234567",
            f"{DOLLARS_RULE} below 1,000,000, with at most 6 decimals",
        ),
        ("PORT", "70000", "it must be at most 65535"),
        ("LOG_LEVEL", "it", "it must be DEBUG, INFO, WARNING or ERROR"),
        ("LOG_LEVEL", "loud", "it must be DEBUG, INFO, WARNING or ERROR"),
        ("MAX_CONCURRENT_TURNS", "x", "it must be a whole number, such as 100"),
    ],
)
def test_a_message_ends_with_the_value(name: str, value: str, message: str) -> None:
    assert list_faults(value, name) == [(name, f"{name}: {message} (it is '{value}')")]


def test_a_message_hides_a_secret_and_the_password_of_a_url() -> None:
    assert list_faults("xapp-of-another-page", "SLACK_BOT_TOKEN")[0][1].endswith("(it is 'xapp-…')")
    assert list_faults("mysql://u:pass@word@h/d", "DATABASE_URL")[0][1].endswith("(it is '…@h/d')")


def list_values_of_options() -> Iterator[list[str]]:
    """Yield command lines that end with an option, or the argument of `manifest`, and a wrong value."""
    group = typer.main.get_command(cli)
    assert hasattr(group, "commands")
    for name, command in group.commands.items():
        arguments = ["abc" for parameter in command.params if parameter.param_type_name == "argument"]
        for parameter in command.params:
            if parameter.param_type_name == "option" and not parameter.is_flag and parameter.name != "agent":
                for value in ("x", "-5", "yesterday", "2026-13-40", "{}"):
                    yield [name, *arguments, parameter.opts[0], value]
    for value in ("x", "SLACK!", "1"):
        yield ["manifest", value]


@pytest.mark.parametrize("arguments", [*list_values_of_options()], ids=" ".join)
def test_a_message_about_an_option_has_its_value_and_no_words_of_a_library(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr(logs, "configure_logging", lambda *_: None)  # pytest's handlers stay
    result = CliRunner().invoke(cli, arguments, env={"DATABASE_URL": "sqlite:///none.db"})
    output = re.sub(r"[\s│]+", " ", result.output)
    assert not LIBRARY_WORDS.search(output), output
    if result.exit_code == 2 and "Invalid value" in output:
        assert arguments[-2] in output or arguments[0] == "manifest"
        assert f"'{arguments[-1]}'" in output


TOML_VALUES = ("1", "1.5", "true", "'x'", "['a']", "[1]", "{a=1}", "2020-01-01", "-1", "nan", "'ü ü'", "''", "[]")


def test_no_message_about_agents_toml_or_mcp_toml_has_words_of_a_library(tmp_path: Path) -> None:
    tables = [f"default='d'\n[agents.d]\n{key}={value}" for key, value in product(AgentTable.model_fields, TOML_VALUES)]
    tables += [f"default='d'\n{key}={value}\n[agents.d]" for key, value in product(("places", "nope"), TOML_VALUES)]
    servers = [f"[s]\ncommand='a'\n{key}={value}" for key, value in product(McpConfig.model_fields, TOML_VALUES)]
    faults = list[str]()
    for read, texts in ((read_agents, tables), (load_servers, servers)):
        for text in texts:
            (tmp_path / "x.toml").write_text(text)
            try:
                read(tmp_path / "x.toml")
            except SettingsError as error:
                faults += error.faults
    assert len(faults) > 150
    assert [fault for fault in faults if LIBRARY_WORDS.search(fault)] == []
