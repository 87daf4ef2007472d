"""Settings of the access policy, and the check of their ids at the platforms."""

from collections.abc import Mapping

import pytest

from bot import settings as configuration
from bot.setup.check import run_checks
from bot.setup.probes import CheckVerdict
from chatrig.discord import DiscordSimulator
from chatrig.slack import SlackSimulator
from core.errors import SettingsError
from core.messages.identity import Actor
from core.usage.user_rate_limits import RateLimit
from tests.channels.discord.conftest import clean_discord_library

__all__ = ["clean_discord_library"]


def set_all(monkeypatch: pytest.MonkeyPatch, values: Mapping[str, str]) -> None:
    for name, value in values.items():
        monkeypatch.setenv(name, value)


def test_ids_are_parsed_with_kinds_for_discord_and_without_for_slack(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = {
        "SLACK_ALLOW": "U024BE7LH, workspace:T024BE7LD,S0615G0KT , dm",
        "SLACK_BLOCK": "channel:C024BE91L, B012345",
        "DISCORD_GUILD_IDS": "7",
        "DISCORD_ALLOW": "guild:8, role:11",
        "DISCORD_BLOCK": "user:9,channel:dm",
        "ADMINS": "U024BE7LH, role:12, 13",
        "RATE_LIMIT_PER_USER": "20/h",
        "RATE_LIMIT_PER_CHANNEL": "100 / d",
    }
    set_all(monkeypatch, lists)
    settings = configuration.load_settings()
    slack, discord = settings.access_policy.get_rules("slack"), settings.access_policy.get_rules("discord")
    assert slack.allow == {"user:U024BE7LH", "workspace:T024BE7LD", "role:S0615G0KT", "channel:dm"}
    assert slack.block == {"channel:C024BE91L", "user:B012345"}
    assert discord.allow == {"guild:7", "guild:8", "role:11"}
    assert discord.guilds == {"7", "8"}
    assert discord.block == {"user:9", "channel:dm"}
    assert settings.access_policy.is_admin(Actor("discord", "1", roles=("12",)))
    assert settings.user_rate_limits.user == RateLimit(20, 3600)
    assert settings.user_rate_limits.channel == RateLimit(100, 86_400)


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("SLACK_ALLOW", "ada", "SLACK_ALLOW: 'ada' is not an id in Slack: write ids such as user:U024BE7LH"),
        ("SLACK_ALLOW", "role:U024BE7LH", "SLACK_ALLOW: 'role:U024BE7LH' is not an id in Slack"),
        ("SLACK_BLOCK", "#general", "SLACK_BLOCK: '#general' is not an id in Slack"),
        ("DISCORD_ALLOW", "123", "DISCORD_ALLOW: '123' is not a rule for Discord: write user:ID"),
        ("DISCORD_BLOCK", "user:ada", "DISCORD_BLOCK: 'user:ada' is not a rule"),
        ("ADMINS", "@ada", "ADMINS: '@ada' is not the id of a user or role"),
        ("ADMINS", "C024BE91L", "ADMINS: 'C024BE91L' is not the id of a user or role"),
        ("RATE_LIMIT_PER_USER", "many", "RATE_LIMIT_PER_USER: it must be a number and a time, such as 20/h"),
        ("RATE_LIMIT_PER_CHANNEL", "0/h", "RATE_LIMIT_PER_CHANNEL: it must be a number and a time"),
    ],
)
def test_a_wrong_value_gives_one_line_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, line: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as raised:
        configuration.load_settings()
    assert [fault for fault in raised.value.faults if fault.startswith(line)]


def test_an_id_that_is_allowed_and_blocked_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, {"SLACK_ALLOW": "U024BE7LH", "SLACK_BLOCK": "user:U024BE7LH"})
    with pytest.raises(SettingsError, match="SLACK_ALLOW: user:U024BE7LH is also in SLACK_BLOCK"):
        configuration.load_settings()


async def test_check_names_ids_that_the_platforms_do_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    async with SlackSimulator() as slack, DiscordSimulator() as server:
        group, role = slack.add_user_group("team", ["ada"]).id, server.assign_role("ada", "team")
        known_in_slack = f"{slack.people['ada'].id},{slack.channels['general'].id},{group},dm,{slack.team_id}"
        known = f"user:{server.people['ada'].id},channel:{server.channels['general'].id},role:{role},dm"
        tokens = {
            "SLACK_BOT_TOKEN": slack.bot_token,
            "SLACK_APP_TOKEN": slack.app_token,
            "SLACK_API_URL": slack.api_url,
            "DISCORD_BOT_TOKEN": server.bot_token,
            "DISCORD_API_URL": server.api_url,
            "SLACK_ALLOW": f"{known_in_slack},U0NOBODY,C0NOWHERE,S0NOTHING",
            "DISCORD_BLOCK": f"{known},user:1,channel:2,role:3,guild:4",
            "MODEL": "local/none",
        }
        set_all(monkeypatch, tokens)
        slack.scopes.add("usergroups:read")
        assert await list_unknown_ids() == {
            "SLACK_ALLOW": ["user:U0NOBODY", "channel:C0NOWHERE", "role:S0NOTHING"],
            "DISCORD_BLOCK": ["user:1", "channel:2", "role:3", "guild:4"],
        }
        slack.scopes.discard("usergroups:read")
        assert (await list_unknown_ids())["SLACK_ALLOW"][-1] == "usergroups:read"


async def list_unknown_ids() -> dict[str, list[str]]:
    """Run `parley check`, and return the unknown ids by setting name."""
    found = dict[str, list[str]]()
    async for finding in run_checks():
        setting, _, line = finding.line.partition(": ")
        if finding.verdict is CheckVerdict.FAIL and setting in ("SLACK_ALLOW", "DISCORD_BLOCK"):
            words = [word.rstrip(":") for word in line.split()]
            named = (word for word in words if ":" in word and word.partition(":")[2])
            found.setdefault(setting, []).append([*named][-1])
    return found
