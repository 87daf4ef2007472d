"""Who comes, and where he is, as the door asks for it."""

from dataclasses import replace

from channels.intake.handler import Call
from channels.slack.events.parser import NAME, spot_of
from channels.slack.interactions.responses import Doer
from channels.slack.user_groups import Groups
from core.identity import Spot, Visitor

#: Who has done something, and where.
Seen = tuple[Visitor, Spot]


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

    async def of_deed(self, doer: Doer) -> Seen:
        """Who does something else than write.

        Raises:
            SurfaceError: his user groups are not known.
        """
        home = doer.home or doer.team
        visitor = Visitor(
            NAME,
            doer.user,
            roles=await self._groups.of(doer.team, doer.user),
            workspaces=(home,),
            is_external=home != doer.team,
        )
        return visitor, spot_of(doer.team, doer.channel)
