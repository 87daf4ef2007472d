"""Users of a workspace: their names and their languages."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from channels.lookup_cache import LookupCache
from channels.slack.client.api import SlackApi
from channels.slack.client.rate_limits import TIER_4

#: Seconds for which a name is cached.
NAME_SECONDS = 3600.0

#: Seconds that a reply waits for a name.
LOOKUP_TIMEOUT = 3.0


@dataclass(frozen=True, slots=True)
class Person:
    """A user as Slack describes them.

    Attributes:
        locale: as Slack names it (`ko-KR`); empty if it is not known.
    """

    name: str
    locale: str = ""


class People:
    """The users of all workspaces, fetched one by one and cached."""

    def __init__(self, api: SlackApi, *, timeout: float = LOOKUP_TIMEOUT) -> None:
        self._api = api
        self._people = LookupCache[str, Person]("user", NAME_SECONDS, timeout=timeout)

    async def names(self, team: str, users: Iterable[str]) -> dict[str, str]:
        """Return the names of `users` by their ids; the name of an unknown user is their id."""
        wanted = list(users)
        found = await asyncio.gather(*(self._person(team, user) for user in wanted))
        return {user: person.name for user, person in zip(wanted, found, strict=True)}

    async def locale(self, team: str, user: str) -> str:
        """Return the language that a user has chosen; empty if it is not known."""
        return (await self._person(team, user)).locale

    async def _person(self, team: str, user: str) -> Person:
        async def fetch() -> Person:
            budget = self._api.budget(("users.info", team), TIER_4)
            who = {"user": user, "include_locale": True}
            answer = await self._api.at(team).call("users.info", who, budget, reads=True)
            about = (answer or {}).get("user", {})
            profile = about.get("profile", {})
            name = profile.get("display_name") or profile.get("real_name") or user
            return Person(name, about.get("locale") or "")

        return await self._people.get_or_last(user, fetch, Person(user))
