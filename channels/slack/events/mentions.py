"""What people, channels and groups are called, for the ids by which Slack's notation names them."""

import asyncio
import logging
from collections.abc import Iterable

from channels.rate_limits.caller import RefusedError
from channels.slack.client.api import SlackApi
from channels.slack.client.rate_limits import TIER_2, TIER_3
from channels.slack.text import channels_named, groups_named, users_named
from channels.slack.users import FRESH, PATIENCE, People
from channels.ttl_cache import Remembered
from core.errors import SurfaceError
from core.secret_redaction import traced

log = logging.getLogger(__name__)


class Names:
    """Asks Slack for the names that stand in what was said, and remembers them for a while.

    Attributes:
        people: those of one's own.
    """

    def __init__(self, api: SlackApi, people: People, *, patience: float = PATIENCE) -> None:
        self._api = api
        self.people = people
        self._patience = patience
        self._channels = Remembered[str, str](FRESH)
        self._groups = Remembered[str, dict[str, str]](FRESH)  # by their workspaces

    async def of(self, team: str, texts: Iterable[str], users: Iterable[str] = ()) -> dict[str, str]:
        """The names of those whom the texts mention, and of `users`, by their ids; who cannot be looked up goes by the
        id.
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
        """What all groups of people are called that are mentioned like one person. An app that may not know goes by
        their ids, and does not ask again for a while.
        """
        names = self._groups.get(team) or {}
        if self._groups.is_fresh(team):
            return names
        budget = self._api.budget(("usergroups.list", team), TIER_2)
        try:
            async with asyncio.timeout(self._patience):
                api, about = self._api.at(team), {"include_disabled": True, "team_id": team}
                answer = await api.call("usergroups.list", about, budget, reads=True)
            names = {group["id"]: str(group["handle"]) for group in (answer or {}).get("usergroups", ())}
        except RefusedError as refusal:
            log.info("groups go by their ids: %s", refusal)
        except (SurfaceError, TimeoutError) as error:
            log.info("groups cannot be looked up: %s", traced(error))
            return names
        return self._groups.keep(team, names)

    async def _channel(self, team: str, channel: str) -> str:
        name = self._channels.get(channel) or channel
        if self._channels.is_fresh(channel):
            return name
        budget = self._api.budget(("conversations.info", team), TIER_3)
        try:
            async with asyncio.timeout(self._patience):
                api, about = self._api.at(team), {"channel": channel}
                answer = await api.call("conversations.info", about, budget, reads=True)
        except (SurfaceError, TimeoutError) as error:
            log.info("a channel cannot be looked up: %s", traced(error))
            return name
        return self._channels.keep(channel, str((answer or {}).get("channel", {}).get("name") or channel))


async def _nobody() -> dict[str, str]:
    return {}
