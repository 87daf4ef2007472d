"""Who is served: the workspaces in which the app is installed, and the people in them."""

import logging
from collections.abc import Mapping
from typing import Any

from channels.slack.hearing import team_of
from channels.slack.private import team_of_deed
from channels.slack.workspaces import Workspaces
from core.errors import StoreError

log = logging.getLogger(__name__)


class Admission:
    """Knows it.

    Args:
        workspaces: where the app is installed; none where that is one workspace, and needs no telling.
        external: whether people from other workspaces, who share a channel with this one (Slack Connect), are served.
    """

    def __init__(self, workspaces: Workspaces | None, *, external: bool) -> None:
        self._workspaces = workspaces
        self._external = external

    async def of_event(self, body: Mapping[str, Any]) -> bool:
        """Whether an event is of a workspace that is served.

        Raises:
            StoreError: the database does not say.
        """
        return await self._has(team_of(body))

    async def of_deed(self, body: Mapping[str, Any]) -> bool:
        """Whether a command, a press or the like is. Where the database does not say, it is: it will be told why it is
        not done.
        """
        team = str(body.get("team_id") or team_of_deed(body))
        if not self._external and str((body.get("user") or {}).get("team_id") or team) != team:
            log.info("somebody from another workspace is not served")
            return False
        try:
            return await self._has(team)
        except StoreError:
            return True

    async def _has(self, team: str) -> bool:
        if self._workspaces is None or await self._workspaces.has(team):
            return True
        log.warning("the app is not installed in workspace %s: what is said there is left", team)
        return False
