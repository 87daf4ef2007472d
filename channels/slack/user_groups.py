"""The user groups of a workspace, which are for Slack what roles are elsewhere.

Slack: `usergroups.list` tells them with their members, where the app has the scope `usergroups:read`.
"""

import asyncio
import logging

from channels.slack.client.api import SlackApi
from channels.slack.client.rate_limits import TIER_2
from channels.ttl_cache import Remembered
from core.errors import SurfaceError
from core.secrets import traced

log = logging.getLogger(__name__)

#: Seconds for which what is known of them is taken to be the same.
FRESH = 300.0

#: Seconds that whoever speaks waits for them.
PATIENCE = 2.0


def is_group(id_: str) -> bool:
    """Whether it is the id of one."""
    return id_.startswith("S")


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
