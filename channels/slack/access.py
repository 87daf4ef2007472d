"""Identity of users on Slack: user groups, location, and the ids in access rules.

A user's groups are their roles. Slack: `usergroups.list` returns the groups with their members, if the app has the
scope `usergroups:read`.
"""

from collections.abc import Iterable
from dataclasses import replace

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from channels.intake.incoming import IncomingMessage
from channels.slack.client.auth import make_web_client
from channels.slack.directory import UNKNOWN_USER_CODES, WorkspaceDirectory
from channels.slack.session_ids import PLATFORM, location_of
from channels.slack.settings import SlackSettings
from core.errors import SettingsError, SurfaceError
from core.messages.identity import Actor, Location

#: The method that looks up an id, and its parameter, by the kind of the id.
_LOOKUPS = {"user": ("users.info", "user"), "channel": ("conversations.info", "channel")}

#: Slack's errors for an id that does not exist.
_UNKNOWN = {*UNKNOWN_USER_CODES, "channel_not_found"}


class SlackIdentityResolver:
    """Looks up the user groups of authors, and the locations of interactions.

    Each method raises `SurfaceError` if the user groups cannot be looked up.

    Args:
        needs_groups: whether access rules or approvals name user groups; if not, no groups are looked up.
    """

    def __init__(self, directory: WorkspaceDirectory, *, needs_groups: bool) -> None:
        self._directory = directory
        self._needs_groups = needs_groups

    async def resolve_message(self, incoming: IncomingMessage) -> IncomingMessage:
        """Return a message with the user groups of its author, if they have any, as their roles."""
        inbound = incoming.inbound
        if inbound.is_bot:
            return incoming
        roles = await self.get_groups(str(inbound.address["team"]), inbound.author)
        if not roles:
            return incoming
        return replace(incoming, inbound=replace(inbound, actor=replace(inbound.actor_or_author, roles=roles)))

    async def resolve_interaction(
        self, team: str, channel: str, user: str, *, home_team: str = ""
    ) -> tuple[Actor, Location]:
        """Return an interaction's author, with user groups as roles, and its location."""
        home_team = home_team or team
        roles = await self.get_groups(team, user)
        author = Actor(PLATFORM, user, roles=roles, workspaces=(home_team,), is_external=home_team != team)
        return author, location_of(team, channel)

    async def get_groups(self, team: str, user: str) -> tuple[str, ...]:
        if not self._needs_groups:
            return ()
        groups = await self._directory.get_user_groups(team)
        if groups is None:
            raise SurfaceError(f"the user groups of workspace {team} are not known")
        return tuple(group.id for group in groups if user in group.members)


def is_user_group_id(id_: str) -> bool:
    return id_.startswith("S")


async def find_unknown_ids(settings: SlackSettings, rules: Iterable[str]) -> list[str]:
    """Look up the ids of access rules (`kind:id`) on Slack; return a line for each unknown id.

    A line is a sentence for operators that names the remedy. If the app lacks the scope to look up user groups, the
    last line tells so, and further rules are not looked up. Without a bot token the list is empty: the app may then be
    in several workspaces, none of which knows all ids.

    Raises:
        SettingsError: Slack cannot be reached, or refuses a lookup for another reason than an unknown id.
    """
    if not settings.bot_token:
        return []
    web = make_web_client(settings)
    lines = list[str]()
    groups: set[str] | None = None
    for rule in rules:
        kind, _, id_ = rule.partition(":")
        try:
            if kind == "role":
                groups = await _groups(web) if groups is None else groups
                is_known = id_ in groups
            else:
                is_known = kind not in _LOOKUPS or id_ == "dm" or id_.startswith("B") or await _is_known(web, kind, id_)
        except SlackApiError as error:
            if error.response.get("error") != "missing_scope":
                raise SettingsError(f"SLACK_API_URL: Slack could not look up {rule}; try again.") from error
            lines.append(f"to know who is in {rule}, add the scope usergroups:read to the app, and install it again")
            break
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = type(error).__name__
            raise SettingsError(f"SLACK_API_URL: {web.base_url} cannot be reached ({reason}).") from error
        if not is_known:
            hint = "; a private channel is known once the bot is in it" if kind == "channel" else ""
            lines.append(f"Slack knows no {rule} here: copy the id anew, or remove it{hint}")
    return lines


async def _is_known(web: AsyncWebClient, kind: str, id_: str) -> bool:
    method, name = _LOOKUPS[kind]
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
