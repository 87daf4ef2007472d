"""The names of the people in a workspace."""

import asyncio
import logging
import time
from collections.abc import Iterable

from channels.budget import Window
from channels.slack.api import SlackApi
from core.errors import SurfaceError
from core.secrets import traced

log = logging.getLogger(__name__)

#: Slack's Tier 4: 100 calls a minute for an app in a workspace.
TIER_4 = Window(calls=100, seconds=60)

#: Seconds for which a name is taken to be the same.
FRESH = 3600.0

#: Seconds that an answer waits for a name.
PATIENCE = 3.0


class People:
    """Asks Slack for names, and remembers them for a while."""

    def __init__(self, api: SlackApi, *, patience: float = PATIENCE) -> None:
        self._api = api
        self._patience = patience
        self._names: dict[str, tuple[str, float]] = {}

    async def names(self, team: str, users: Iterable[str]) -> dict[str, str]:
        """The names of `users` by their ids; who cannot be looked up goes by the id."""
        wanted = list(users)
        found = await asyncio.gather(*(self._name(team, user) for user in wanted))
        return dict(zip(wanted, found, strict=True))

    async def _name(self, team: str, user: str) -> str:
        name, known_at = self._names.get(user, ("", 0.0))
        if name and time.monotonic() - known_at < FRESH:
            return name
        try:
            async with asyncio.timeout(self._patience):
                answer = await self._api.call(
                    "users.info", {"user": user}, self._api.budget(("users.info", team), TIER_4), reads=True
                )
        except (SurfaceError, TimeoutError) as error:
            log.warning("the name of a user cannot be looked up: %s", traced(error))
            return name or user
        profile = (answer or {}).get("user", {}).get("profile", {})
        name = profile.get("display_name") or profile.get("real_name") or user
        self._names[user] = (name, time.monotonic())
        return name
