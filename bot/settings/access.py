"""The settings of the door: who may speak with the bot, where, and how often."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from bot.settings.discord import DiscordPart
from bot.settings.parsing import several
from bot.settings.slack import SlackPart
from channels.access import DIRECT, Door, Rules
from core.identity import ASKER
from core.usage.user_rate_limits import Rate, Rates

#: Slack: what the ids of each kind begin with. A bot has the id of an app's bot.
_SLACK: Mapping[str, str] = {"user": "UWB", "role": "S", "channel": "CGD", "workspace": "TE"}
_SLACK_ID = re.compile("[A-Z][A-Z0-9]{2,}")

_DISCORD = ("user", "role", "channel", "guild")

_COPY_SLACK = "ids are copied from a profile's or channel's menu, or stand in the address in a browser"
_COPY_DISCORD = "ids are copied with a right click, Copy ID, in developer mode"


class AccessPart(SlackPart, DiscordPart):
    """Who may speak."""

    slack_allow: Annotated[tuple[str, ...], NoDecode] = ()
    slack_block: Annotated[tuple[str, ...], NoDecode] = ()
    discord_allow: Annotated[tuple[str, ...], NoDecode] = ()
    discord_block: Annotated[tuple[str, ...], NoDecode] = ()
    admins: Annotated[tuple[str, ...], NoDecode] = ()
    approvers: Annotated[tuple[str, ...], NoDecode] = (ASKER,)
    approval_hours: float = Field(default=24, gt=0)
    rate_per_person: Annotated[Rate | None, NoDecode] = None
    rate_per_place: Annotated[Rate | None, NoDecode] = None

    @field_validator("slack_allow", "slack_block", mode="before")
    @classmethod
    def _of_slack(cls, value: object) -> object:
        return tuple(map(_of_slack, _several(value)))

    @field_validator("discord_allow", "discord_block", mode="before")
    @classmethod
    def _of_discord(cls, value: object) -> object:
        return tuple(map(_of_discord, _several(value)))

    @field_validator("admins", mode="before")
    @classmethod
    def _of_people(cls, value: object) -> object:
        return tuple(map(_of_person, _several(value)))

    @field_validator("approvers", mode="before")
    @classmethod
    def _are_names(cls, value: object) -> object:
        return several(value)

    @field_validator("rate_per_person", "rate_per_place", mode="before")
    @classmethod
    def _is_rate(cls, value: object) -> object:
        return Rate.parse(value) if isinstance(value, str) else value

    def faults(self) -> Iterator[str]:
        """Yield the lists that allow and block the same."""
        yield from super().faults()
        for allowed, blocked, name in (
            (self.slack_allow, self.slack_block, "SLACK"),
            (self.discord_allow, self.discord_block, "DISCORD"),
        ):
            if both := sorted({*allowed} & {*blocked}):
                yield f"{name}_ALLOW: {both[0]} is in {name}_BLOCK as well, which holds: remove one of them"

    @property
    def door(self) -> Door:
        servers = {f"guild:{id_}" for id_ in self.discord_guilds}
        servers |= {rule for rule in self.discord_allow if rule.startswith("guild:")}
        slack = Rules(
            frozenset(self.slack_allow),
            frozenset(self.slack_block),
            external=self.slack_external,
            bots=self.answer_bots,
        )
        discord = Rules(
            frozenset(self.discord_allow) | servers,  # also for direct messages, which are in no server
            frozenset(self.discord_block),
            served=frozenset(rule.partition(":")[2] for rule in servers) if self.discord_guilds else frozenset(),
        )
        return Door({"slack": slack, "discord": discord}, self.admins, self.approvers)

    @property
    def rates(self) -> Rates:
        return Rates(person=self.rate_per_person, place=self.rate_per_place)


def _several(value: object) -> Sequence[str]:
    found = several(value)
    return tuple(map(str, found)) if isinstance(found, Sequence) else ()


def _of_slack(rule: str) -> str:
    if rule.lower() in ("dm", DIRECT):
        return DIRECT
    kind, _, id_ = rule.rpartition(":")
    told = next((name for name, letters in _SLACK.items() if id_[:1] in letters), "")
    if not _SLACK_ID.fullmatch(id_) or not told or kind not in ("", told):
        raise ValueError(
            f"{rule!r} names nothing in Slack: write ids such as user:U024BE7LH, role:S0615G0KT (a user group), "
            f"channel:C024BE91L, channel:dm or workspace:T024BE7LD; {_COPY_SLACK}"
        )
    return f"{told}:{id_}"


def _of_discord(rule: str) -> str:
    if rule.lower() in ("dm", DIRECT):
        return DIRECT
    kind, _, id_ = rule.rpartition(":")
    if kind not in _DISCORD or not id_.isdecimal():
        raise ValueError(
            f"{rule!r} does not say what it names in Discord: write user:ID, role:ID, channel:ID (or a category's), "
            f"channel:dm or guild:ID; {_COPY_DISCORD}"
        )
    return f"{kind}:{id_}"


def _of_person(rule: str) -> str:
    kind, _, id_ = rule.rpartition(":")
    is_slack = _SLACK_ID.fullmatch(id_) is not None and id_[0] in _SLACK["user"] + _SLACK["role"]
    if kind not in ("", "user", "role") or not (is_slack or id_.isdecimal()):
        raise ValueError(
            f"{rule!r} is nobody's id: write those of people or roles; {_COPY_SLACK}; in Discord, {_COPY_DISCORD}"
        )
    return id_
