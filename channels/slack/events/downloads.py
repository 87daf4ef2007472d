"""Downloads of the files of Slack messages.

Slack: docs.slack.dev/reference/objects/file-object
"""

import logging
from dataclasses import replace
from typing import Any

from channels.intake.downloads import FileClient
from channels.platform import FetchedFile, FileCheck, UnreadableFileError
from channels.rate_limits.retries import RefusedError
from channels.slack.client.api import SlackApi
from channels.slack.client.rate_limits import TIER_4
from channels.slack.events.content import parse_file
from core.errors import SurfaceError
from core.messages.inbox_message import Attachment

log = logging.getLogger(__name__)

#: Slack: `file_access` of a file in a channel shared with another organisation, until its details are fetched.
_UNKNOWN_ACCESS = "check_file_info"

#: Slack: the mode of an old file in a workspace without a paid plan.
_HIDDEN = "hidden_by_limit"

_NOT_ALLOWED = "the app lacks the scope files:read, so that no files can be read: add it at "
_WHERE = "https://api.slack.com/apps, your app, under OAuth & Permissions, and install the app again"


class SlackDownloads(FileClient):
    """Downloads the files of messages with the bot's token."""

    api_hosts = file_hosts = ("slack.com", "slack-files.com", "slack-gov.com")

    def __init__(self, api: SlackApi) -> None:
        super().__init__(api.base_url)
        self._api = api

    async def fetch(self, team: str, file: Attachment, check: FileCheck) -> FetchedFile:
        """Download a file of a message; if the event had only its id, fetch its details.

        Args:
            check: called with the fetched details, and before the body is read, with the size from the HTTP response.

        Raises:
            UnreadableFileError: the file is not available, or `check` refuses it.
        """
        try:
            if file.source.get("file_access") == _UNKNOWN_ACCESS or not file.source.get("url_private_download"):
                file = await self._details(team, file)
                check(file)
            token = await self._api.for_team(team).token()
        except UnreadableFileError:
            raise
        except RefusedError as refusal:
            if refusal.code != "missing_scope":
                raise UnreadableFileError("it is deleted, or I may not read it") from refusal
            log.error("%s%s", _NOT_ALLOWED, _WHERE)
            raise UnreadableFileError("I am not allowed to read it") from refusal
        except SurfaceError as error:
            raise UnreadableFileError("it cannot be fetched right now") from error
        url = str(file.source.get("url_private_download") or "")
        if not url:
            raise UnreadableFileError("it is stored outside of Slack")
        try:
            return await self.download(url, file, check, token=token)
        except UnreadableFileError as error:
            if error.status in (401, 403):
                log.error("%s%s", _NOT_ALLOWED, _WHERE)
            raise

    async def _details(self, team: str, file: Attachment) -> Attachment:
        limiter = self._api.get_limiter(("files.info", team), TIER_4)
        arguments = {"file": file.source.get("id", "")}
        answer = await self._api.for_team(team).call("files.info", arguments, limiter, reads=True)
        found: dict[str, Any] = (answer or {}).get("file") or {}
        if found.get("mode") == _HIDDEN:
            raise UnreadableFileError("Slack hides it: the workspace has reached its limit")
        details = parse_file({**found, "file_access": ""})
        return replace(details, name=details.name if found.get("name") else file.name)
