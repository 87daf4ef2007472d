"""Access to the bot on Slack: the author, user groups and place of an event, and the ids in the access lists.

Slack: `usergroups.list` returns the groups with their members, if the app has the scope `usergroups:read`.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from channels.intake.handler import Call
from channels.slack.client.api import SlackApi
from channels.slack.client.auth import client
from channels.slack.client.rate_limits import TIER_2
from channels.slack.session_ids import NAME, spot_of
from channels.slack.settings import SlackSettings
from channels.ttl_cache import Remembered
from core.errors import SettingsError, SurfaceError
from core.identity import Spot, Visitor
from core.secret_redaction import traced

log = logging.getLogger(__name__)

#: Who has done something, and where.
Seen = tuple[Visitor, Spot]

#: Seconds for which what is known of them is taken to be the same.
FRESH = 300.0

#: Seconds that whoever speaks waits for them.
PATIENCE = 2.0

#: By the kind, the method that tells of one, and what that calls it.
_ASKS = {"user": ("users.info", "user"), "channel": ("conversations.info", "channel")}

#: What Slack says of what there is not.
_UNKNOWN = {"user_not_found", "users_not_found", "user_not_visible", "channel_not_found"}


class Groups:
    """Asks for them where anything depends on them, and remembers them for a while.

    Args:
        are_asked_for: whether anything does.
    """

    def __init__(self, api: SlackApi, *, are_asked_for: bool) -> None:
        self._api = api
        self._are_asked_for = are_asked_for
        self._known = Remembered[str, dict[str, tuple[str, ...]]](FRESH)  # by workspace: the groups by their members

    async def of(self, team: str, user: str) -> tuple[str, ...]:
        """The ids of somebody's.

        Raises:
            SurfaceError: Slack does not tell them, and it is not known either what they were.
        """
        if not self._are_asked_for:
            return ()
        known = self._known.get(team)
        if known is None or not self._known.is_fresh(team):
            try:
                async with asyncio.timeout(PATIENCE):
                    known = self._known.keep(team, await self._ask(team))
            except (SurfaceError, TimeoutError) as error:
                if known is None:
                    raise SurfaceError(f"the user groups of workspace {team} are not known") from error
                log.warning("the user groups of workspace %s cannot be looked up anew: %s", team, traced(error))
        return known.get(user, ())

    async def _ask(self, team: str) -> dict[str, tuple[str, ...]]:
        budget = self._api.budget(("usergroups.list", team), TIER_2)
        answer = await self._api.at(team).call("usergroups.list", {"include_users": True}, budget, reads=True)
        found = dict[str, tuple[str, ...]]()
        for group in (answer or {}).get("usergroups", ()):
            for user in group.get("users") or ():
                found[user] = (*found.get(user, ()), str(group["id"]))
        return found


class Visits:
    """Tells it."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    async def of_call(self, call: Call) -> Call:
        """A message, with the user groups of its author.

        Raises:
            SurfaceError: they are not known.
        """
        inbound = call.inbound
        if inbound.is_bot:
            return call
        roles = await self._groups.of(str(inbound.address["team"]), inbound.author)
        return replace(call, inbound=replace(inbound, visitor=replace(inbound.who, roles=roles))) if roles else call

    async def resolve_interaction(self, team: str, channel: str, user: str, *, home: str = "") -> Seen:
        """Return the author and the place of an interaction.

        Args:
            home: the workspace of the user; empty for the workspace of the interaction.

        Raises:
            SurfaceError: the user groups are not known.
        """
        home = home or team
        roles = await self._groups.of(team, user)
        return Visitor(NAME, user, roles=roles, workspaces=(home,), is_external=home != team), spot_of(team, channel)


def is_group(id_: str) -> bool:
    """Return whether an id is that of a user group."""
    return id_.startswith("S")


async def unknown(settings: SlackSettings, rules: Iterable[str]) -> list[str]:
    """A line for each of the rules (`kind:id`) that names what Slack does not know. Where there may be several
    workspaces, no one knows all of them, and nothing is asked.

    Raises:
        SettingsError: Slack cannot be asked.
    """
    if not settings.bot_token:
        return []
    web, lines = client(settings), list[str]()
    groups: set[str] | None = None
    for rule in rules:
        kind, _, id_ = rule.partition(":")
        try:
            if kind == "role":
                groups = await _groups(web) if groups is None else groups
                is_known = id_ in groups
            else:
                is_known = kind not in _ASKS or id_ == "dm" or id_.startswith("B") or await _is_known(web, kind, id_)
        except SlackApiError as error:
            if error.response.get("error") != "missing_scope":
                raise SettingsError(f"SLACK_API_URL: Slack does not say whether it knows {rule}; try again.") from error
            lines.append(f"to know who is in {rule}, add the scope usergroups:read to the app, and install it again")
            break
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            said = f"cannot be reached ({type(error).__name__})"
            raise SettingsError(f"SLACK_API_URL: {web.base_url} {said}.") from error
        if not is_known:
            hint = "; a private channel is known once the bot is in it" if kind == "channel" else ""
            lines.append(f"Slack knows no {rule} here: copy the id anew, or remove it{hint}")
    return lines


async def _is_known(web: AsyncWebClient, kind: str, id_: str) -> bool:
    method, name = _ASKS[kind]
    try:
        await web.api_call(method, http_verb="GET", params={name: id_})
    except SlackApiError as error:
        if error.response.get("error") not in _UNKNOWN:
            raise
        return False
    return True


async def _groups(web: AsyncWebClient) -> set[str]:
    answer = await web.api_call("usergroups.list", http_verb="GET")
    return {str(group["id"]) for group in answer.get("usergroups") or ()}
