"""Output of `parley manifest`: Slack's manifest and Discord's invite link."""

import base64
import json
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from bot.settings import Settings, load_settings
from bot.setup import SetupPlatform
from bot.setup.manifest_command import EXAMPLE_URL, format_create_link, format_manifest
from bot.setup.questions import slack_manifest
from channels.discord.invite import invite_link
from channels.slack.interactions.commands import SLASH_COMMANDS
from chatrig.slack.manifest_check import check_manifest
from core.errors import SettingsError


def create_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **variables: str) -> Settings:
    monkeypatch.chdir(tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return load_settings()


def test_slack_accepts_the_manifest_with_the_configured_prompts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    printed = json.loads(
        format_manifest(
            SetupPlatform.SLACK, create_settings(monkeypatch, tmp_path, SLACK_SUGGESTED_PROMPTS="One? | Two?")
        )
    )
    check_manifest(printed)
    assert not [event for event in printed["settings"]["event_subscriptions"]["bot_events"] if "assistant" in event]
    assert [prompt["message"] for prompt in printed["features"]["agent_view"]["suggested_prompts"]] == ["One?", "Two?"]
    nothing = json.loads(
        format_manifest(SetupPlatform.SLACK, create_settings(monkeypatch, tmp_path, SLACK_SUGGESTED_PROMPTS="|"))
    )
    assert "suggested_prompts" not in nothing["features"]["agent_view"]


def test_the_manifests_of_the_wizard_and_the_command_have_the_prefix(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = create_settings(monkeypatch, tmp_path, COMMAND_PREFIX="parley-")
    for text in (format_manifest(SetupPlatform.SLACK, settings), slack_manifest()):
        printed = json.loads(text)
        check_manifest(printed)
        commands = {command["command"] for command in printed["features"]["slash_commands"]}
        assert commands == {command.replace("/", "/parley-") for command in SLASH_COMMANDS}


@pytest.mark.parametrize("prefix", ["/parley-", "Parley-", "my bot", "x" * 26])
def test_a_prefix_that_a_platform_refuses_prints_no_manifest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, prefix: str
) -> None:
    with pytest.raises(SettingsError, match=r"^COMMAND_PREFIX: it must have at most 20 characters: lowercase letters"):
        create_settings(monkeypatch, tmp_path, COMMAND_PREFIX=prefix)


def test_the_slack_manifest_has_a_redirect_url_for_several_workspaces(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    back, events_url = [f"{EXAMPLE_URL}/slack/oauth_redirect"], f"{EXAMPLE_URL}/slack/events"
    one = {"SLACK_MODE": "http", "SLACK_BOT_TOKEN": "xoxb-1", "SLACK_SIGNING_SECRET": "s"}
    printed = json.loads(format_manifest(SetupPlatform.SLACK, create_settings(monkeypatch, tmp_path, **one)))
    check_manifest(printed)
    assert "redirect_urls" not in printed["oauth_config"]
    assert printed["settings"]["interactivity"]["request_url"] == events_url
    monkeypatch.delenv("SLACK_BOT_TOKEN")
    several = {
        "SLACK_CLIENT_ID": "1.2",
        "SLACK_CLIENT_SECRET": "s",
        "SECRET_KEY": "0123456789abcdef" * 2,
        "SLACK_APP_TOKEN": "xapp-1",
    }
    for mode in ("socket", "http"):
        found = create_settings(monkeypatch, tmp_path, **several, SLACK_MODE=mode)
        printed = json.loads(format_manifest(SetupPlatform.SLACK, found))
        check_manifest(printed)
        assert printed["oauth_config"]["redirect_urls"] == back
        assert printed["settings"]["socket_mode_enabled"] is (mode == "socket")


def test_the_manifest_has_the_redirect_url_and_scope_of_sign_in_with_slack(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    variables = {"SLACK_SIGN_IN_CLIENT_ID": "1.2", "SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1"}
    for url in ("", "https://bot.example.com"):
        settings = create_settings(monkeypatch, tmp_path, **variables, PUBLIC_URL=url)
        printed = json.loads(format_manifest(SetupPlatform.SLACK, settings))
        check_manifest(printed)
        assert printed["oauth_config"]["redirect_urls"] == [f"{url or EXAMPLE_URL}/sign-in/identity"]
        assert printed["oauth_config"]["scopes"]["user"] == ["openid"]


def test_the_discord_manifest_is_an_invite_link_for_the_app(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DISCORD_BOT_TOKEN", raising=False)
    with pytest.raises(SettingsError, match="DISCORD_BOT_TOKEN is not set"):
        format_manifest(SetupPlatform.DISCORD, create_settings(monkeypatch, tmp_path))
    token = f"{base64.b64encode(b'1234567890').decode()}.b.c"
    link = format_manifest(SetupPlatform.DISCORD, create_settings(monkeypatch, tmp_path, DISCORD_BOT_TOKEN=token))
    assert link == invite_link(1234567890, auto_thread=False)
    opens = format_manifest(SetupPlatform.DISCORD, create_settings(monkeypatch, tmp_path, DISCORD_AUTO_THREAD="1"))
    assert opens == invite_link(1234567890, auto_thread=True)


def test_more_prompts_than_slack_shows_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="SLACK_SUGGESTED_PROMPTS: Slack shows at most 4"):
        create_settings(monkeypatch, tmp_path, SLACK_SUGGESTED_PROMPTS="1|2|3|4|5")


def test_the_link_that_makes_the_slack_app_has_the_whole_manifest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    prompts = 'What\'s & why? | 안녕 50% #1 + "two"'
    manifest = format_manifest(
        SetupPlatform.SLACK, create_settings(monkeypatch, tmp_path, SLACK_SUGGESTED_PROMPTS=prompts)
    )
    link = format_create_link(manifest)
    assert link.isascii()
    assert " " not in link
    assert len(link) < 6_000  # servers commonly accept request lines of 8 KB
    url = urlsplit(link)
    query = parse_qs(url.query, strict_parsing=True)
    assert (url.scheme, url.netloc, url.path, url.fragment) == ("https", "api.slack.com", "/apps", "")
    assert query["new_app"] == ["1"]
    assert [json.loads(value) for value in query["manifest_json"]] == [json.loads(manifest)]
