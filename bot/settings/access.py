"""Settings of access: allowed and blocked ids, admins, approvers, rate limits."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import NoDecode

from bot.settings.discord import DiscordSection
from bot.settings.parsing import Names
from bot.settings.slack import SlackSection
from channels.access import DM_RULE, AccessPolicy, AccessRules
from core.messages.identity import AUTHOR
from core.usage.user_rate_limits import RateLimit, UserRateLimiter

#: First letters of Slack's ids, by kind. A bot is named by its bot id (B...).
_SLACK_ID_PREFIXES: Mapping[str, str] = {"user": "UWB", "role": "S", "channel": "CGD", "workspace": "TE"}
_SLACK_ID = re.compile("[A-Z][A-Z0-9]{2,}")

_DISCORD_KINDS = ("user", "role", "channel", "guild")

_SLACK_ID_HELP = "copy the id from a profile's or channel's menu, or from the URL in a browser"
_DISCORD_ID_HELP = "turn on developer mode, then right-click and choose Copy ID"


def _parse_slack_rule(rule: str) -> str:
    if rule.lower() in ("dm", DM_RULE):
        return DM_RULE
    kind, _, id_ = rule.rpartition(":")
    expected = next((name for name, letters in _SLACK_ID_PREFIXES.items() if id_[:1] in letters), "")
    if not _SLACK_ID.fullmatch(id_) or not expected or kind not in ("", expected):
        raise ValueError(
            f"{rule!r} is not an id in Slack: write ids such as user:U024BE7LH, role:S0615G0KT (a user group), "
            f"channel:C024BE91L, channel:dm or workspace:T024BE7LD; {_SLACK_ID_HELP}"
        )
    return f"{expected}:{id_}"


def _parse_discord_rule(rule: str) -> str:
    if rule.lower() in ("dm", DM_RULE):
        return DM_RULE
    kind, _, id_ = rule.rpartition(":")
    if kind not in _DISCORD_KINDS or not id_.isdecimal():
        raise ValueError(
            f"{rule!r} is not a rule for Discord: write user:ID, role:ID, channel:ID (or a category's), "
            f"channel:dm or guild:ID; {_DISCORD_ID_HELP}"
        )
    return f"{kind}:{id_}"


def _parse_admin_id(rule: str) -> str:
    kind, _, id_ = rule.rpartition(":")
    is_slack = (
        _SLACK_ID.fullmatch(id_) is not None and id_[0] in _SLACK_ID_PREFIXES["user"] + _SLACK_ID_PREFIXES["role"]
    )
    if kind not in ("", "user", "role") or not (is_slack or id_.isdecimal()):
        raise ValueError(
            f"{rule!r} is not the id of a user or role; in Slack, {_SLACK_ID_HELP}; in Discord, {_DISCORD_ID_HELP}"
        )
    return id_


def _map_each(parse: Callable[[str], str]) -> AfterValidator:
    """Return a pydantic validator that applies `parse` to each value of a tuple."""
    return AfterValidator(lambda values: tuple(map(parse, values)))


_Rate = Annotated[
    RateLimit | None,
    NoDecode,
    BeforeValidator(lambda value: RateLimit.parse(value) if isinstance(value, str) else value),
]


class AccessSection(SlackSection, DiscordSection):
    """Settings of access: allowed and blocked ids, admins, approvers, rate limits."""

    slack_allow: Annotated[Names, _map_each(_parse_slack_rule)] = ()
    slack_block: Annotated[Names, _map_each(_parse_slack_rule)] = ()
    discord_allow: Annotated[Names, _map_each(_parse_discord_rule)] = ()
    discord_block: Annotated[Names, _map_each(_parse_discord_rule)] = ()
    admins: Annotated[Names, _map_each(_parse_admin_id)] = ()
    approvers: Names = (AUTHOR,)
    approval_hours: float = Field(default=24, gt=0)
    rate_limit_per_user: _Rate = None
    rate_limit_per_channel: _Rate = None

    def find_conflicts(self) -> Iterator[str]:
        yield from super().find_conflicts()
        for allowed, blocked, name in (
            (self.slack_allow, self.slack_block, "SLACK"),
            (self.discord_allow, self.discord_block, "DISCORD"),
        ):
            if conflicts := sorted({*allowed} & {*blocked}):
                yield f"{name}_ALLOW: {conflicts[0]} is also in {name}_BLOCK, which wins: remove one of them"

    @property
    def access_policy(self) -> AccessPolicy:
        servers = {f"guild:{id_}" for id_ in self.discord_guild_ids}
        servers |= {rule for rule in self.discord_allow if rule.startswith("guild:")}
        slack = AccessRules(
            frozenset(self.slack_allow),
            frozenset(self.slack_block),
            allows_external=self.slack_allow_external_users,
            allows_bots=self.slack_allow_bots,
        )
        discord = AccessRules(
            frozenset(self.discord_allow) | servers,  # direct messages have no server: members are checked
            frozenset(self.discord_block),
            guilds=frozenset(rule.partition(":")[2] for rule in servers) if self.discord_guild_ids else frozenset(),
        )
        return AccessPolicy({"slack": slack, "discord": discord}, self.admins, self.approvers)

    @property
    def user_rate_limits(self) -> UserRateLimiter:
        return UserRateLimiter(user=self.rate_limit_per_user, channel=self.rate_limit_per_channel)
