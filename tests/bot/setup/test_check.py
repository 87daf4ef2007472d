import asyncio
import os
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot.cli.main import cli
from bot.monitoring import logs
from bot.settings import LOCAL_MODEL
from bot.settings.monitoring import LOOPBACK
from bot.setup.check import run_checks
from bot.setup.env_file import EnvFile
from bot.setup.probes import CheckResult, CheckVerdict
from chatrig.discord import DiscordSimulator
from chatrig.slack import SlackSimulator
from core.privacy.vault import Vault
from core.store.database import Database
from core.store.migrate import migrate


async def test_a_fault_of_the_databases_url_names_its_setting_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:hidden@h/d?channel_binding=require&timeout=soon")
    lines = [finding.line async for finding in run_checks() if finding.verdict is CheckVerdict.FAIL]
    named = [line for line in lines if "DATABASE_URL" in line]
    assert [line.count("DATABASE_URL:") for line in named] == [1, 1]
    assert "channel_binding" in named[0]
    assert not any("hidden" in line for line in lines)


async def test_a_key_that_decrypts_no_stored_row_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    variables = {
        "SLACK_MODE": "http",
        "SLACK_SIGNING_SECRET": "s",
        "SLACK_CLIENT_ID": "1.2",
        "SLACK_CLIENT_SECRET": "s",
    }
    for name, value in {**variables, "MODEL": "local/none", "SECRET_KEY": "0123456789abcdef" * 2}.items():
        monkeypatch.setenv(name, value)
    url = f"sqlite:///{tmp_path / 'parley.db'}"
    monkeypatch.setenv("DATABASE_URL", url)
    database = Database(url.replace("sqlite:", "sqlite+aiosqlite:"))
    try:
        await migrate(database)
        for key, faults in (("0123456789abcdef" * 2, 0), ("fedcba9876543210" * 2, 1)):
            await Vault(database, key).put("one", {})
            found = [
                f.line
                async for f in run_checks()
                if f.verdict is CheckVerdict.FAIL and f.line.startswith("SECRET_KEY:")
            ]
            assert len(found) == faults
    finally:
        await database.aclose()


async def test_check_names_the_key_that_stored_prompts_need(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{tmp_path / 'parley.db'}")
    monkeypatch.setenv("KEEP_PROMPTS_DAYS", "7")
    (line,) = [finding.line async for finding in run_checks() if finding.verdict is CheckVerdict.FAIL]
    assert line.startswith("SECRET_KEY: it encrypts the prompts of KEEP_PROMPTS_DAYS")
    assert "openssl rand -hex 32" in line


@pytest.mark.parametrize("rate", ["", "20/h"])
async def test_check_recommends_a_user_rate_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rate: str) -> None:
    variables = {"SLACK_MODE": "http", "SLACK_SIGNING_SECRET": "s", "SLACK_CLIENT_ID": "1.2"}
    secrets = {"SLACK_CLIENT_SECRET": "s", "SECRET_KEY": "0123456789abcdef" * 2, "RATE_LIMIT_PER_USER": rate}
    for name, value in {**variables, **secrets, "MODEL": "local/none"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{tmp_path / 'parley.db'}")
    notes = [finding.line async for finding in run_checks() if finding.verdict is CheckVerdict.NOTE]
    assert any(line.startswith("RATE_LIMIT_PER_USER") for line in notes) is not bool(rate)


def test_a_secret_in_the_wrong_setting_is_not_shown() -> None:
    line = CheckResult(CheckVerdict.FAIL, "MODEL=sk-ant-api03-0123456789abcdef: no such model").line
    assert line == "MODEL=[redacted]: no such model"


@pytest.fixture
def misspelt_setting() -> None:
    Path(".env").write_text("MODELL=openai/x\n")


@pytest.fixture
def latin_env_file() -> None:
    Path(".env").write_bytes(b"MODEL=\xff\xfe")


@pytest.mark.usefixtures("misspelt_setting")
async def test_check_notes_misspelt_settings_and_uncallable_tools(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MODEL", LOCAL_MODEL)
    notes = [finding.line async for finding in run_checks() if finding.verdict is CheckVerdict.NOTE]
    assert ".env: MODELL is no setting: did you mean MODEL?" in notes
    unused = "parley never uses current_time, schedule; set MODEL to one that can"
    assert f"{LOCAL_MODEL} cannot call tools: {unused}" in notes


@pytest.mark.parametrize("source", [".env", "environment"])
async def test_check_fails_for_each_misspelt_limit(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    settings = {
        "DAILY_SPENDING_LIMIT": "DAILY_SPENDING_LIMIT_USD",
        "SPENDING_LIMT_PER_DAY": "DAILY_SPENDING_LIMIT_PER_USER_USD",
        "RATE_LIMIT_USER": "RATE_LIMIT_PER_USER",
        "APPROVER": "APPROVERS",
        "SLACK_ALLOWED": "SLACK_ALLOW",
        "RETENTION_DAY": "RETENTION_DAYS",
        "METRIC_TOKEN": "METRICS_TOKEN",
        "guild_ids": "DISCORD_GUILD_IDS",
    }
    monkeypatch.setenv("MODEL", LOCAL_MODEL)
    for name in settings:
        if source == ".env":
            EnvFile(Path(".env")).set_value(name, "5")
        else:
            monkeypatch.setenv(name, "5")
    failures = [finding.line async for finding in run_checks() if finding.verdict is CheckVerdict.FAIL]
    assert sorted(failures) == sorted(
        f"{source}: {name} is no setting: did you mean {setting}?" for name, setting in settings.items()
    )


async def test_check_ignores_variables_of_other_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL", LOCAL_MODEL)
    for name in ("USER", "HOST", "LANG", "BLOCK_SIZE", "GITHUB_RATE_LIMIT", "MODELL", "SLACK_TOKEN", "METRICS_PORT"):
        monkeypatch.setenv(name, "5")
    lines = [finding.line async for finding in run_checks()]
    assert [line for line in lines if "is no setting" in line] == []


async def test_check_writes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MODEL", LOCAL_MODEL)
    lines = [finding.line async for finding in run_checks() if finding.line.startswith("database")]
    assert [line.partition("; ")[2] for line in lines] == ["its tables are created or updated at the next start"]
    assert os.listdir(tmp_path) == []
    monkeypatch.setattr(logs, "configure_logging", lambda *_: None)  # pytest's handlers stay
    result = await asyncio.to_thread(CliRunner().invoke, cli, ["status"])
    assert "no such database yet" in str(result.exception)
    assert os.listdir(tmp_path) == []


async def test_check_names_a_folder_in_which_no_database_can_be_created(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL", LOCAL_MODEL)
    monkeypatch.setenv("DATA_DIR", "/dev/null/data")
    [line] = [finding.line async for finding in run_checks() if finding.verdict is CheckVerdict.FAIL]
    assert "/dev/null cannot be written to" in line


@pytest.mark.usefixtures("latin_env_file")
async def test_check_names_an_env_file_that_is_not_utf8() -> None:
    lines = [(finding.verdict, finding.line) async for finding in run_checks()]
    assert lines == [(CheckVerdict.FAIL, ".env: it is not UTF-8 text: save it as UTF-8")]


async def test_faults_of_the_model_and_of_each_tool_are_reported_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL", "openai/x")
    monkeypatch.setenv("TOOLS", "core.tools:curent_time,core.tools:nothing_like_it,nowhere:x")
    lines = [finding.line async for finding in run_checks() if finding.verdict is CheckVerdict.FAIL]
    assert lines[0].startswith("OPENAI_API_KEY is not set")
    assert lines[1:] == [
        "TOOLS: core.tools:curent_time: core.tools has no curent_time; did you mean current_time?",
        "TOOLS: core.tools:nothing_like_it: core.tools has no nothing_like_it",
        "TOOLS: nowhere:x: there is no module nowhere",
    ]


async def test_check_names_the_address_of_tickets_and_tries_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    async def list_lines() -> list[str]:
        return [finding.line async for finding in run_checks() if finding.line.startswith(("tickets: ", "requests "))]

    assert await list_lines() == []
    monkeypatch.setenv("PUBLIC_URL", "https://bot.example/")
    with socket.create_server((LOOPBACK, 0)) as listener:
        monkeypatch.setenv("PORT", str(listener.getsockname()[1]))
        assert await list_lines() == ["tickets: POST https://bot.example/tickets/ID finishes background jobs"]
    _, note = await list_lines()
    assert note.startswith("requests from outside: nothing listens at PORT=")


async def list_sign_in_results(monkeypatch: pytest.MonkeyPatch, **variables: str) -> list[CheckResult]:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return [result async for result in run_checks() if "sign-in" in result.line or "SIGN_IN" in result.line]


async def test_check_tries_the_clients_of_sign_ins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    async with SlackSimulator() as slack, DiscordSimulator() as discord:
        variables = {
            "SLACK_BOT_TOKEN": slack.bot_token,
            "SLACK_APP_TOKEN": slack.app_token,
            "SLACK_API_URL": slack.api_url,
            "SLACK_SIGN_IN_CLIENT_ID": slack.oauth.client_id,
            "SLACK_SIGN_IN_CLIENT_SECRET": slack.oauth.client_secret,
            "DISCORD_BOT_TOKEN": discord.bot_token,
            "DISCORD_API_URL": discord.api_url,
            "DISCORD_CLIENT_SECRET": discord.oauth.client_secret,
            "MODEL": "local/none",
        }
        results = await list_sign_in_results(monkeypatch, **variables)
        assert [str(result) for result in results] == [
            f"FAIL sign-in on {name} is off: set PUBLIC_URL and SECRET_KEY" for name in ("Slack", "Discord")
        ]
        results = await list_sign_in_results(
            monkeypatch, PUBLIC_URL="http://bot.example.com", SECRET_KEY="0123456789abcdef" * 4
        )
        assert {result.line.partition(": ")[2] for result in results} == {"set https:// in PUBLIC_URL"}
        results = await list_sign_in_results(monkeypatch, PUBLIC_URL="https://bot.example.com/")
        assert [str(result) for result in results] == [
            f"ok   sign-in on {name}: the app must have the redirect URL https://bot.example.com/sign-in/identity"
            for name in ("Slack", "Discord")
        ]
        results = await list_sign_in_results(
            monkeypatch, SLACK_SIGN_IN_CLIENT_SECRET="wrong-secret", DISCORD_CLIENT_SECRET="wrong-secret"
        )
        assert [result.verdict for result in results] == [CheckVerdict.FAIL, CheckVerdict.FAIL]
        assert "Slack says bad_client_secret. Copy SLACK_SIGN_IN_CLIENT_ID" in results[0].line
        assert "invalid_client. Copy DISCORD_CLIENT_SECRET at" in results[1].line
        assert not any("wrong-secret" in result.line for result in results)
        slack.faults.fail("openid.connect.token", status=503)
        (result, _) = await list_sign_in_results(monkeypatch)
        assert result.line.endswith("try again.")
        monkeypatch.delenv("SLACK_SIGN_IN_CLIENT_SECRET")
        (result, _) = await list_sign_in_results(monkeypatch)
        assert result.line == "sign-in on Slack is off: set SLACK_SIGN_IN_CLIENT_SECRET"


async def test_servers_at_which_people_sign_in_need_its_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    servers = "[box]\nurl='https://box.example/mcp'\nauth='oauth'\n[key]\nurl='http://k'\nperson_headers={K='Key'}"
    (tmp_path / "mcp.toml").write_text(servers)

    async def list_lines(**variables: str) -> list[str]:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return [str(result) async for result in run_checks() if "people sign in" in result.line or "own" in result.line]

    fault = "FAIL MCP_FILE=mcp.toml: [{}] people sign in at this server: set "
    everything = "PUBLIC_URL, SECRET_KEY, and SLACK_SIGN_IN_CLIENT_ID with its secret or DISCORD_CLIENT_SECRET"
    assert await list_lines(MODEL="openai/small", OPENAI_BASE_URL="http://127.0.0.1:9") == [
        fault.format(name) + everything for name in ("box", "key")
    ]
    discord = {"DISCORD_BOT_TOKEN": "MTIzNDU2Nzg5MDEyMzQ1Njc4.x.y", "DISCORD_CLIENT_SECRET": "secret"}
    assert await list_lines(**discord) == [fault.format(name) + "PUBLIC_URL, SECRET_KEY" for name in ("box", "key")]
    ready = await list_lines(PUBLIC_URL="https://bot.example", SECRET_KEY="0123456789abcdef" * 4)
    assert ready == [f"ok   MCP server {name}: each person connects their own account" for name in ("box", "key")]
