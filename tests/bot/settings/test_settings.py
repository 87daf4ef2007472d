from pathlib import Path

import pytest

from bot import settings as configuration
from bot.settings.settings import REMOVED_SETTINGS, RENAMED_SETTINGS
from core.errors import SettingsError
from core.observability.secret_redaction import MASK, redact_secrets


def list_faults(patch: pytest.MonkeyPatch, settings: dict[str, str]) -> list[str]:
    for name, value in settings.items():
        patch.setenv(name, value)
    with pytest.raises(SettingsError) as error:
        configuration.load_settings()
    return list(error.value.faults)


_SLACK_SIGN_IN = {
    "SLACK_BOT_TOKEN": "xoxb-1",
    "SLACK_APP_TOKEN": "xapp-1",
    "PUBLIC_URL": "https://bot.example.com",
    "SLACK_SIGN_IN_CLIENT_ID": "1.2",
    "SLACK_SIGN_IN_CLIENT_SECRET": "hidden",
}

_SEVERAL = {"SLACK_CLIENT_ID": "1.2", "SLACK_CLIENT_SECRET": "hidden"}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (
            {"SLACK_BOT_TOKEN": "xoxb-1"},
            ["SLACK_APP_TOKEN is missing (SLACK_BOT_TOKEN is set)", "https://api.slack.com/apps"],
        ),
        ({"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_MODE": "http"}, ["SLACK_SIGNING_SECRET is missing (SLACK_MODE=http)"]),
        ({"SLACK_CLIENT_ID": "1.2"}, ["SLACK_CLIENT_ID and SLACK_CLIENT_SECRET belong together"]),
        (
            _SEVERAL | {"SECRET_KEY": "hidden and short"},
            ["SECRET_KEY: it encrypts the tokens of workspaces", "openssl rand"],
        ),
        (_SEVERAL | {"SECRET_KEY": "k" * 64}, ["SECRET_KEY: it encrypts the tokens of workspaces", "openssl rand"]),
        (
            _SEVERAL | {"SECRET_KEY": "another" * 6},
            ["SECRET_KEY: it encrypts the tokens of workspaces", "openssl rand"],
        ),
        (
            {"KEEP_PROMPTS_DAYS": "7"},
            ["SECRET_KEY: it encrypts the prompts of KEEP_PROMPTS_DAYS", "openssl rand -hex 32"],
        ),
        (
            _SEVERAL | {"KEEP_PROMPTS_DAYS": "7"},
            ["SECRET_KEY: it encrypts the tokens of workspaces and the prompts of KEEP_PROMPTS_DAYS"],
        ),
        (
            {"KEEP_PROMPTS_DAYS": "31", "SECRET_KEY": "0123456789abcdef" * 2},
            ["KEEP_PROMPTS_DAYS: it must be at most TURN_RETENTION_DAYS"],
        ),
        ({"KEEP_PROMPTS_DAYS": "-1"}, ["KEEP_PROMPTS_DAYS: "]),
        (
            _SLACK_SIGN_IN | {"SECRET_KEY": "hidden and short"},
            ["SECRET_KEY: it encrypts the accounts that people connect", "openssl rand -hex 32"],
        ),
        *(
            ({"SIGN_IN_CLIENT_SECRETS": value}, ["SIGN_IN_CLIENT_SECRETS: it must be a JSON object of client ids"])
            for value in ("id:hidden", '["hidden"]', '{"id": ["hidden"]}', "[" * 100_000)
        ),
        (_SEVERAL | {"SLACK_BOT_TOKEN": "xoxb-1"}, ["SLACK_BOT_TOKEN is for one workspace"]),
        (_SEVERAL | {"SECRET_KEY": "0123456789abcdef" * 2}, ["SLACK_APP_TOKEN is missing (SLACK_CLIENT_ID is set)"]),
        ({"SLACK_APP_TOKEN": "xapp-1"}, ["SLACK_BOT_TOKEN is missing (SLACK_APP_TOKEN is set)"]),
        ({"SLACK_BOT_TOKEN": "xapp-1", "SLACK_APP_TOKEN": "xapp-1"}, ["SLACK_BOT_TOKEN: it must begin with xoxb-"]),
        (
            {"SLACK_API_URL": "http://[::1", "DISCORD_API_URL": "nowhere", "GOOGLE_BASE_URL": "http://h:port"},
            [
                f"{name}: it must be an http:// or https:// URL"
                for name in ("SLACK_API_URL", "DISCORD_API_URL", "GOOGLE_BASE_URL")
            ],
        ),
        (
            {"DISCORD_BOT_TOKEN": "no-token"},
            ["DISCORD_BOT_TOKEN: it must contain two dots", "https://discord.com/developers/applications"],
        ),
        ({"SLACK_STREAMING": "fast"}, ["SLACK_STREAMING: it must be 'auto', 'native' or 'edit'"]),
        ({"DISCORD_GUILD_IDS": "My Server"}, ["DISCORD_GUILD_IDS: it must be ids of servers", "Copy Server ID"]),
        (
            {
                "DISCORD_FREE_CHANNEL_IDS": "#general",
                "DISCORD_CHANNEL_SESSIONS": "mine",
                "DISCORD_PING_AFTER_SECONDS": "-1",
            },
            [
                "DISCORD_FREE_CHANNEL_IDS: it must be ids of channels",
                "DISCORD_CHANNEL_SESSIONS: it must be 'shared' or 'user'",
                "DISCORD_PING_AFTER_SECONDS: it must be at least 0",
            ],
        ),
        ({"DISCORD_SHARD_COUNT": "many"}, ["DISCORD_SHARD_COUNT: it must be auto or a whole number above 0"]),
        ({"DISCORD_SHARD_COUNT": "0"}, ["DISCORD_SHARD_COUNT: it must be auto or a whole number above 0"]),
        ({"DATABASE_URL": "postgresql://u:hidden@h:port/db"}, ["DATABASE_URL: it is not a URL"]),
        ({"DATABASE_POOL_SIZE": "2"}, ["DATABASE_POOL_SIZE: it must be at least 3"]),
        ({"DATABASE_URL": "mysql://x"}, ["DATABASE_URL: it must be a postgresql:// or sqlite:/// URL"]),
        (
            {"AGENT_NAME": "two words", "TURN_TIMEOUT_SECONDS": "soon"},
            ["AGENT_NAME:", "TURN_TIMEOUT_SECONDS: it must be a number, such as 600"],
        ),
        ({"MAX_CONCURRENT_TURNS": "2.5"}, ["MAX_CONCURRENT_TURNS: it must be a whole number, such as 100"]),
        ({"SUMMARIES": "maybe"}, ["SUMMARIES: it must be true or false"]),
        ({"DAILY_SPENDING_LIMIT_USD": "ten"}, ["DAILY_SPENDING_LIMIT_USD: it must be a number of dollars"]),
        ({"LOG_LEVEL": "loud"}, ["LOG_LEVEL: it must be DEBUG, INFO, WARNING or ERROR"]),
        (
            {"AGENT": "weather", "AGENT_NAME": "x", "TOOLS": ","},
            ["AGENT: your own agent has its name", "remove AGENT_NAME, TOOLS, or AGENT"],
        ),
        ({"AGENT_INSTRUCTION_FILE": "nowhere.md"}, ["AGENT_INSTRUCTION_FILE: nowhere.md cannot be read (No such file"]),
        ({"AGENT_INSTRUCTION_FILE": "/dev/null"}, ["AGENT_INSTRUCTION_FILE: /dev/null is empty"]),
        (
            {"BACKFILL_HOURS": "48", "TURN_RETENTION_DAYS": "2"},
            ["BACKFILL_HOURS: it must be less than TURN_RETENTION_DAYS"],
        ),
        ({"REPLY_BUTTONS": "retry"}, ["REPLY_BUTTONS: it must be 'regenerate' or 'feedback'"]),
        ({"DYNO": "worker.1"}, ["DATABASE_URL: a dyno loses its disk", "heroku addons:create"]),
        ({"FOLLOW": "all"}, ["FOLLOW: this setting is now REPLY_WITHOUT_MENTION"]),
    ],
)
def test_each_fault_is_one_line_with_the_setting_and_its_remedy(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], named: list[str]
) -> None:
    lines = list_faults(monkeypatch, settings)
    for words in named:
        assert any(words in line for line in lines)
    assert not any("hidden" in line or "\n" in line for line in lines)


def test_an_env_file_that_is_not_utf8_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(".env").write_bytes(b"MODEL=\xff\xfe")
    assert list_faults(monkeypatch, {}) == [".env: it is not UTF-8 text: save it as UTF-8"]


def test_the_instruction_is_a_text_or_a_file_but_not_both(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("said.md").write_text("Sign as {name}.\n\nBe brief.\n")
    monkeypatch.setenv("AGENT_INSTRUCTION_FILE", "said.md")
    assert configuration.load_settings().agent_config.instruction == "Sign as {name}.\n\nBe brief.\n"
    assert list_faults(monkeypatch, {"AGENT_INSTRUCTION": "Be long."})[0].startswith("AGENT_INSTRUCTION_FILE and")
    monkeypatch.delenv("AGENT_INSTRUCTION")
    Path("said.md").write_bytes(b"\xff\xfe")
    assert list_faults(monkeypatch, {}) == ["AGENT_INSTRUCTION_FILE: said.md is not UTF-8 text"]


def test_the_env_file_of_an_agent_applies_below_the_environment_and_env(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("weather").mkdir()
    Path("weather/agent.py").touch()
    Path("weather/.env").write_text("GOOGLE_API_KEY=of-the-agent\nMODEL=openai/x\nLOG_LEVEL=DEBUG\n")
    Path(".env").write_text("AGENT=weather\nMODEL=openai/y\n")
    monkeypatch.setenv("LOG_LEVEL", "ERROR")
    settings = configuration.load_settings()
    assert settings.endpoints.google_api_key == "of-the-agent"
    assert (settings.model, settings.log_level) == ("openai/y", "ERROR")


def test_an_empty_environment_variable_hides_the_value_in_env(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(".env").write_text("DISCORD_GUILD_IDS=123456789012345678\nLOG_LEVEL=DEBUG\nMODEL=\n")
    monkeypatch.setenv("DISCORD_GUILD_IDS", "")
    monkeypatch.setenv("MODEL", "openai/y")
    settings = configuration.load_settings()
    assert settings.discord_guild_ids == ()
    assert (settings.model, settings.log_level) == ("openai/y", "DEBUG")


def test_spaces_and_line_ends_around_values_are_stripped(monkeypatch: pytest.MonkeyPatch) -> None:
    pasted = {
        "SLACK_BOT_TOKEN": " xoxb-1\n",
        "SLACK_APP_TOKEN": "xapp-1 ",
        "SLACK_STREAMING": " native ",
        "DISCORD_BOT_TOKEN": " a.b.c\n",
        "DISCORD_API_URL": "https://discord.example/api/v10/ ",
        "DISCORD_GUILD_IDS": " 1, 2 ,",
        "DISCORD_FREE_CHANNEL_IDS": "3 ,4",
        "DISCORD_AUTO_THREAD": "1",
        "DISCORD_SHARD_COUNT": " 2 ",
        "MODEL": " openai/m ",
        "MODELS": " openai/n, anthropic/o ,",
    }
    for name, value in pasted.items():
        monkeypatch.setenv(name, value)
    settings = configuration.load_settings()
    assert settings.slack is not None
    assert settings.discord is not None
    assert (settings.slack.bot_token, settings.slack.app_token) == ("xoxb-1", "xapp-1")
    assert settings.slack.streaming == "native"
    assert (settings.discord.bot_token, settings.discord.guilds) == ("a.b.c", frozenset({1, 2}))
    assert (settings.discord.free_channels, settings.discord.auto_thread) == (frozenset({3, 4}), True)
    assert (settings.discord.api_url, settings.discord.shards) == ("https://discord.example/api/v10", 2)
    assert (settings.model, settings.models) == ("openai/m", ("openai/n", "anthropic/o"))


def test_a_platform_without_tokens_is_not_configured() -> None:
    settings = configuration.load_settings()
    assert (settings.slack, settings.discord) == (None, None)


@pytest.mark.parametrize(
    ("setting", "language"), [("ko", "ko"), ("de_DE:ko_KR.UTF-8:en", "ko"), ("de_DE:de", "en"), ("", "en")]
)
def test_language_accepts_the_list_that_gettext_uses(
    monkeypatch: pytest.MonkeyPatch, setting: str, language: str
) -> None:
    monkeypatch.setenv("LANGUAGE", setting)
    assert configuration.load_settings().language == language


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        ({}, "127.0.0.1"),
        ({"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1"}, "127.0.0.1"),
        ({"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_MODE": "http", "SLACK_SIGNING_SECRET": "hidden"}, None),
        (_SEVERAL | {"SECRET_KEY": "0123456789abcdef" * 2, "SLACK_APP_TOKEN": "xapp-1"}, None),
        ({"DYNO": "web.1", "DATABASE_URL": "sqlite:///parley.db"}, None),
        ({"LISTEN_HOST": "0.0.0.0"}, "0.0.0.0"),
        ({"DYNO": "web.1", "DATABASE_URL": "sqlite:///parley.db", "LISTEN_HOST": "::1"}, "::1"),
    ],
)
def test_the_server_listens_on_loopback_unless_it_must_be_public(
    settings: dict[str, str], address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert configuration.load_settings().listen_address == address


def test_faults_of_all_kinds_are_reported_together(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        "SLACK_BOT_TOKEN": "xoxb-1",
        "TURN_TIMEOUT_SECONDS": "abc",
        "AGENT_INSTRUCTION": "Be brief.",
        "AGENT_INSTRUCTION_FILE": "/dev/null",
        "BACKFILL_HOURS": "48",
        "TURN_RETENTION_DAYS": "2",
        "MODEL": "openai/x",
        "MODELS": "anthropic/y",
    }
    lines = list_faults(monkeypatch, settings)
    assert [line.partition(":")[0] for line in lines] == [
        "AGENT_INSTRUCTION_FILE",
        "TURN_TIMEOUT_SECONDS",
        "SLACK_APP_TOKEN is missing (SLACK_BOT_TOKEN is set)",
        "BACKFILL_HOURS",
        "OPENAI_API_KEY is not set",
        "MODELS=anthropic/y",
    ]


def test_a_malformed_setting_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"SLACK_BOT_TOKEN": "xapp-1", "SLACK_APP_TOKEN": "xapp-1", "GOOGLE_API_KEY": "k"}
    [line] = list_faults(monkeypatch, settings)
    assert line.startswith("SLACK_BOT_TOKEN: it must begin with xoxb-")


def test_a_misspelt_name_in_the_env_file_is_noted_with_its_suggestion() -> None:
    Path(".env").write_text("SLAK_BOT_TOKEN=x\nMODELL=openai/x\nturn_timeout=1\nWEATHER_API=y\nmodel=openai/x\n")
    assert [*map(str, configuration.find_unknown_settings())] == [
        ".env: SLAK_BOT_TOKEN is no setting: did you mean SLACK_BOT_TOKEN?",
        ".env: MODELL is no setting: did you mean MODEL?",
        ".env: turn_timeout is no setting: did you mean TURN_TIMEOUT_SECONDS?",
    ]


def test_a_removed_setting_is_noted_with_what_applies_now(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(".env").write_text("file_max_count=0\n")
    monkeypatch.setenv("REPLY_MAX_MESSAGES", "9")
    assert [*map(str, configuration.find_unknown_settings())] == [
        f".env: file_max_count is no setting any more: {REMOVED_SETTINGS['FILE_MAX_COUNT']}",
        "environment: REPLY_MAX_MESSAGES is no setting any more: a reply has at most 5 messages, then a file",
    ]


def test_former_names_are_refused_with_the_current_name_from_environment_and_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path(".env").write_text("STOP_SECONDS=5\nslack_dm=single\n")
    assert list_faults(monkeypatch, {"CATCH_UP_HOURS": "2"}) == [
        "SLACK_DM: this setting is now SLACK_DM_SESSIONS",
        "STOP_SECONDS: this setting is now SHUTDOWN_TIMEOUT_SECONDS",
        "CATCH_UP_HOURS: this setting is now BACKFILL_HOURS",
    ]


def test_each_former_name_leads_to_a_setting() -> None:
    fields = {name.upper() for name in configuration.Settings.model_fields}
    assert set(RENAMED_SETTINGS.values()) <= fields
    assert not fields & (RENAMED_SETTINGS.keys() | REMOVED_SETTINGS.keys())


def test_the_secrets_of_oauth_clients_are_read_and_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGN_IN_CLIENT_SECRETS", '{"client": "the-secret-of-a-client"}')
    settings = configuration.load_settings()
    assert settings.sign_in_client_secrets["client"].get_secret_value() == "the-secret-of-a-client"
    assert "the-secret-of-a-client" not in repr(settings)
    assert redact_secrets("the-secret-of-a-client") == MASK


@pytest.mark.parametrize(
    ("change", "platforms", "missing"),
    [
        ({}, ("slack",), []),
        ({"PUBLIC_URL": "http://127.0.0.1:3000"}, ("slack",), []),
        ({"PUBLIC_URL": "http://bot.example.com"}, (), ["https:// in PUBLIC_URL"]),
        ({"PUBLIC_URL": ""}, (), ["PUBLIC_URL"]),
        ({"SECRET_KEY": "", "PUBLIC_URL": ""}, (), ["PUBLIC_URL", "SECRET_KEY"]),
        ({"SLACK_SIGN_IN_CLIENT_SECRET": ""}, (), ["SLACK_SIGN_IN_CLIENT_SECRET"]),
        ({"SLACK_SIGN_IN_CLIENT_ID": ""}, (), ["SLACK_SIGN_IN_CLIENT_ID"]),
    ],
)
def test_sign_in_is_on_only_with_all_its_settings(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, str], platforms: tuple[str, ...], missing: list[str]
) -> None:
    for name, value in {
        **_SLACK_SIGN_IN,
        "SECRET_KEY": "0123456789abcdef" * 4,
        "GOOGLE_API_KEY": "k",
        **change,
    }.items():
        monkeypatch.setenv(name, value)
    settings = configuration.load_settings()
    assert settings.sign_in_platforms == platforms
    assert dict(settings.find_missing_sign_in_settings()) == {"slack": missing}
