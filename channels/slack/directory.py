"""Lookup of names, locales, time zones, user groups and the bot's user in workspaces, cached."""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from channels.base import Priority
from channels.rate_limits.limiter import Window
from channels.rate_limits.retries import RefusedError
from channels.slack.client.api import ApiObject, SlackApi
from channels.slack.client.rate_limits import AUTH_TEST, TIER_2, TIER_3, TIER_4
from channels.slack.text import mentioned_ids
from core.concurrency.lookup_cache import LookupCache
from core.messages.identity import find_time_zone

#: Seconds for which names and the bot's own user are cached, and for user groups, on which access may depend.
NAME_SECONDS, GROUP_SECONDS = 3600.0, 300.0

#: Seconds for which it is cached that a user has an account: a schedule of a user who has left must not run.
MEMBER_SECONDS = 30.0

#: Slack's errors for a user who does not exist.
UNKNOWN_USER_CODES = {"user_not_found", "users_not_found", "user_not_visible"}

#: Seconds that a turn waits for a name; seconds that an event waits for user groups (Slack: acknowledgement within 3).
LOOKUP_TIMEOUT_SECONDS, GROUP_TIMEOUT = 3.0, 2.0


@dataclass(frozen=True, slots=True)
class SlackUser:
    """Display name, locale, time zone and kind of a user.

    Attributes:
        locale: the locale as Slack names it (`ko-KR`); empty if unknown.
        time_zone: the IANA name of the time zone; empty if unknown.
        is_person: False for a bot user, and if Slack does not tell.
        is_deleted: True for a deactivated account.
    """

    name: str
    locale: str = ""
    time_zone: str = ""
    is_person: bool = False
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class SlackUserGroup:
    """User group of a workspace.

    Attributes:
        handle: the name in mentions, without the `@`.
    """

    id: str
    handle: str
    members: frozenset[str]


class WorkspaceDirectory:
    """Looks up users, channels, user groups and the bot's user, with caches.

    User groups are cached for `GROUP_SECONDS`, the others for `NAME_SECONDS`; failed lookups are not cached.

    Slack: `usergroups.list` needs the scope `usergroups:read`, which an app may lack.

    Args:
        timeout: the most seconds to wait for a user or channel. After that, or if Slack fails, the last known name and
            locale are used, or else the id and no locale. The same holds for the time zone.
    """

    def __init__(self, api: SlackApi, *, timeout: float = LOOKUP_TIMEOUT_SECONDS) -> None:
        self._api = api
        self._users = LookupCache[str, SlackUser]("user", NAME_SECONDS, timeout=timeout)
        self._members = LookupCache[str, SlackUser]("member", MEMBER_SECONDS)
        self._channels = LookupCache[str, str]("channel", NAME_SECONDS, timeout=timeout)
        self._groups = LookupCache[str, Sequence[SlackUserGroup]]("user groups", GROUP_SECONDS, timeout=GROUP_TIMEOUT)
        self._bots = LookupCache[str, ApiObject]("the bot's own user", NAME_SECONDS)

    async def get_names(self, team: str, users: Iterable[str], texts: Iterable[str] = ()) -> dict[str, str]:
        """Return display names by the ids of users, channels and user groups.

        The name of an unknown user or channel is its id. Unknown user groups are left out. If a text mentions a group,
        the handles of all groups of the workspace are in the result.
        """
        mentioned = set[str]().union(*map(mentioned_ids, texts))
        people = list({*users, *(id_ for id_ in mentioned if id_[0] in "UW")})
        channels = [id_ for id_ in mentioned if id_[0] in "CDG"]
        found = await asyncio.gather(*(self._user(team, id_) for id_ in people))
        channel_names = await asyncio.gather(*(self._channel_name(team, id_) for id_ in channels))
        groups = await self.get_user_groups(team) if any(id_[0] == "S" for id_ in mentioned) else ()
        return (
            {group.id: group.handle for group in groups or ()}
            | {id_: user.name for id_, user in zip(people, found, strict=True)}
            | dict(zip(channels, channel_names, strict=True))
        )

    async def get_locale(self, team: str, user: str) -> str:
        return (await self._user(team, user)).locale

    async def get_time_zone(self, team: str, user: str) -> str:
        name = (await self._user(team, user)).time_zone
        return name if find_time_zone(name) else ""

    async def find_people(self, team: str, users: Collection[str]) -> set[str]:
        """Return those of the user ids that Slack knows as people's, and not as bots'."""
        found = await asyncio.gather(*(self._user(team, user) for user in users))
        return {user for user, known in zip(users, found, strict=True) if known.is_person}

    async def get_user_groups(self, team: str) -> Sequence[SlackUserGroup] | None:
        """Return the user groups of a workspace with their members, at most `GROUP_SECONDS` old.

        If Slack fails, or does not answer within `GROUP_TIMEOUT` seconds, the result is the last known groups at any
        age, or None if none were fetched before.
        """

        async def fetch() -> Sequence[SlackUserGroup]:
            answer = await self._read(team, "usergroups.list", TIER_2, include_users=True)
            return [
                SlackUserGroup(str(group["id"]), str(group["handle"]), frozenset(group.get("users") or ()))
                for group in answer.get("usergroups", ())
            ]

        return await self._groups.get_or_last(team, fetch, None)

    async def get_auth_test(self, team: str) -> ApiObject:
        """Return Slack's `auth.test` response for a workspace, with the bot's `user_id`.

        The response is cached for `NAME_SECONDS`; in that time, neither an outage nor a refused token is noticed.
        """

        async def fetch() -> ApiObject:
            return await self._read(team, "auth.test", AUTH_TEST, priority=Priority.BACKFILL)

        return await self._bots.get(team, fetch)

    async def _user(self, team: str, user: str) -> SlackUser:
        return await self._users.get_or_last(user, lambda: self._fetch_user(team, user), SlackUser(user))

    async def is_member(self, team: str, user: str) -> bool:
        """Return whether a user has an active account, as of at most `MEMBER_SECONDS` ago, or raise `SurfaceError`."""
        try:
            return not (await self._members.get(user, lambda: self._fetch_user(team, user))).is_deleted
        except RefusedError as refusal:
            if refusal.code not in UNKNOWN_USER_CODES:
                raise
            return False

    async def _fetch_user(self, team: str, user: str) -> SlackUser:
        answer = await self._read(team, "users.info", TIER_4, user=user, include_locale=True)
        found = answer.get("user", {})
        profile = found.get("profile", {})
        return SlackUser(
            profile.get("display_name") or profile.get("real_name") or user,
            found.get("locale") or "",
            found.get("tz") or "",
            is_person=found.get("is_bot") is False,
            is_deleted=found.get("deleted") is True,
        )

    async def _channel_name(self, team: str, channel: str) -> str:
        async def fetch() -> str:
            answer = await self._read(team, "conversations.info", TIER_3, channel=channel)
            return str(answer.get("channel", {}).get("name") or channel)

        return await self._channels.get_or_last(channel, fetch, channel)

    async def _read(
        self, team: str, method: str, window: Window, *, priority: Priority = Priority.PROGRESS, **arguments: object
    ) -> ApiObject:
        limiter = self._api.get_limiter((method, team), window)
        return await self._api.for_team(team).call(method, arguments, limiter, priority=priority, reads=True) or {}
