"""The people in a workspace: their names, and the languages that they have chosen."""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from weakref import WeakValueDictionary

from channels.slack.client.api import SlackApi
from channels.slack.client.rate_limits import TIER_4
from channels.ttl_cache import Remembered
from core.errors import SurfaceError
from core.secret_redaction import traced

log = logging.getLogger(__name__)

#: Seconds for which what is known of a person is taken to be the same.
FRESH = 3600.0

#: Seconds that an answer waits for it.
PATIENCE = 3.0


@dataclass(frozen=True, slots=True)
class Person:
    """What Slack tells of a person.

    Attributes:
        locale: as Slack names it (`ko-KR`); empty if it is not known.
    """

    name: str
    locale: str = ""


class People:
    """Asks Slack for people, and remembers them for a while."""

    def __init__(self, api: SlackApi, *, patience: float = PATIENCE) -> None:
        self._api = api
        self._patience = patience
        self._known = Remembered[str, Person](FRESH)
        self._asking = WeakValueDictionary[str, asyncio.Lock]()  # who wants to know of the same person waits

    async def names(self, team: str, users: Iterable[str]) -> dict[str, str]:
        """The names of `users` by their ids; who cannot be looked up goes by the id."""
        wanted = list(users)
        found = await asyncio.gather(*(self._person(team, user) for user in wanted))
        return {user: person.name for user, person in zip(wanted, found, strict=True)}

    async def locale(self, team: str, user: str) -> str:
        """The language that somebody has chosen; empty if it cannot be looked up."""
        return (await self._person(team, user)).locale

    async def _person(self, team: str, user: str) -> Person:
        try:
            async with asyncio.timeout(self._patience), self._asking.setdefault(user, asyncio.Lock()):
                known = self._known.get(user)
                if known is not None and self._known.is_fresh(user):
                    return known
                return await self._look_up(team, user)
        except (SurfaceError, TimeoutError) as error:
            log.warning("a user cannot be looked up: %s", traced(error))
            return self._known.get(user) or Person(user)

    async def _look_up(self, team: str, user: str) -> Person:
        budget = self._api.budget(("users.info", team), TIER_4)
        who = {"user": user, "include_locale": True}
        answer = await self._api.at(team).call("users.info", who, budget, reads=True)
        about = (answer or {}).get("user", {})
        profile = about.get("profile", {})
        name = profile.get("display_name") or profile.get("real_name") or user
        return self._known.keep(user, Person(name, about.get("locale") or ""))
