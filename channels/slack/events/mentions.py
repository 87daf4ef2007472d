"""Names of the users, channels and user groups that a text mentions by their ids."""

import asyncio
import logging
from collections.abc import Iterable

from channels.lookup_cache import LookupCache
from channels.rate_limits.caller import RefusedError
from channels.slack.client.api import SlackApi
from channels.slack.client.rate_limits import TIER_2, TIER_3
from channels.slack.text import channels_named, groups_named, users_named
from channels.slack.users import LOOKUP_TIMEOUT, NAME_SECONDS, People

log = logging.getLogger(__name__)


class Names:
    """Looks up the names in a text.

    Attributes:
        people: looks up the names of users.
    """

    def __init__(self, api: SlackApi, people: People) -> None:
        self._api = api
        self.people = people
        self._channels = LookupCache[str, str]("channel", NAME_SECONDS, timeout=LOOKUP_TIMEOUT)
        #: By workspace.
        self._groups = LookupCache[str, dict[str, str]]("user groups", NAME_SECONDS, timeout=LOOKUP_TIMEOUT)

    async def of(self, team: str, texts: Iterable[str], users: Iterable[str] = ()) -> dict[str, str]:
        """Return the names of all that the texts mention, and of `users`, by their ids. The name of an unknown user or
        channel is its id.
        """
        said = list(texts)
        people = {*users}.union(*map(users_named, said))
        channels = list(set[str]().union(*map(channels_named, said)))
        names, called, groups = await asyncio.gather(
            self.people.names(team, people),
            asyncio.gather(*(self._channel(team, channel) for channel in channels)),
            self._groups_of(team) if any(map(groups_named, said)) else _nobody(),
        )
        return groups | names | dict(zip(channels, called, strict=True))

    async def _groups_of(self, team: str) -> dict[str, str]:
        """Return the handles of all user groups. An app without the scope for them is given none."""

        async def fetch() -> dict[str, str]:
            budget = self._api.budget(("usergroups.list", team), TIER_2)
            about = {"include_disabled": True, "team_id": team}
            try:
                answer = await self._api.at(team).call("usergroups.list", about, budget, reads=True)
            except RefusedError as refusal:
                log.info("user groups are shown by their ids: %s", refusal)
                return {}
            return {group["id"]: str(group["handle"]) for group in (answer or {}).get("usergroups", ())}

        nobody = dict[str, str]()
        return await self._groups.get_or_last(team, fetch, nobody)

    async def _channel(self, team: str, channel: str) -> str:
        async def fetch() -> str:
            budget = self._api.budget(("conversations.info", team), TIER_3)
            answer = await self._api.at(team).call("conversations.info", {"channel": channel}, budget, reads=True)
            return str((answer or {}).get("channel", {}).get("name") or channel)

        return await self._channels.get_or_last(channel, fetch, channel)


async def _nobody() -> dict[str, str]:
    return {}
