"""Who comes, and where he is, as the door asks for it."""

from dataclasses import replace

from channels.intake import Call
from channels.slack.groups import Groups
from channels.slack.hearing import NAME, spot_of
from channels.slack.private import Visitor as Somebody
from core.visitors import Spot, Visitor


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

    async def of_deed(self, somebody: Somebody) -> tuple[Visitor, Spot]:
        """Who does something else than write.

        Raises:
            SurfaceError: his user groups are not known.
        """
        home = somebody.home or somebody.team
        visitor = Visitor(
            NAME,
            somebody.user,
            roles=await self._groups.of(somebody.team, somebody.user),
            workspaces=(home,),
            is_external=home != somebody.team,
        )
        return visitor, spot_of(somebody.team, somebody.channel)
