"""Files in Slack: first sent, then shown in a thread, as a message of their own.

Slack: docs.slack.dev/messaging/working-with-files, "Uploading files".
"""

import json
from collections.abc import Awaitable, Callable

from channels.base import File, Priority
from channels.rate_limits.caller import RefusedError
from channels.slack.client.api import Answer, SlackApi
from channels.slack.client.rate_limits import TIER_3, TIER_4

#: Slack: what it says of a file that is gone.
_GONE = {"file_not_found", "file_deleted"}


class Files:
    """The files of one workspace."""

    def __init__(self, api: SlackApi, team: str) -> None:
        self._api = api
        self._team = team

    async def send(self, file: File) -> str:
        """Send a file to Slack, where nobody sees it yet. One that may not have come there is sent anew.

        Returns:
            Its id.
        """
        budget = self._api.budget(("files.getUploadURLExternal", self._team), TIER_4)
        return await self._api.send_file(file, budget)

    async def share(
        self, file_id: str, title: str, *, channel: str, thread_ts: str, found: Callable[[], Awaitable[Answer | None]]
    ) -> None:
        """Show a file that was sent, in a thread if one is given. Slack's answer may come before it is seen there.

        Args:
            found: looks whether it is, when the answer was lost.
        """
        await self._api.call(
            "files.completeUploadExternal",
            {
                "files": json.dumps([{"id": file_id, "title": title}]),
                "channel_id": channel,
                **({"thread_ts": thread_ts} if thread_ts else {}),
            },
            self._api.budget(("files.completeUploadExternal", self._team), TIER_4),
            priority=Priority.FINAL,
            is_form=True,
            found=found,
        )

    async def delete(self, file_id: str) -> None:
        """Delete a file, and with it the message that shows it; one that is gone already is no fault."""
        try:
            await self._api.call(
                "files.delete", {"file": file_id}, self._api.budget(("files.delete", self._team), TIER_3)
            )
        except RefusedError as refusal:
            if refusal.code not in _GONE:
                raise
