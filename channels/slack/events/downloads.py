"""Files that came with messages of Slack's.

Slack: docs.slack.dev/reference/objects/file-object
"""

import logging
from dataclasses import replace
from typing import Any
from urllib.parse import SplitResult, urlsplit

from channels.base import Check, Fetched
from channels.intake.downloads import UnreadableFileError, download
from channels.rate_limits.caller import RefusedError
from channels.slack.client.api import SlackApi
from channels.slack.client.rate_limits import TIER_4
from channels.slack.events.parser import attachment
from core.errors import SurfaceError
from core.inbox_message import Attachment

log = logging.getLogger(__name__)

#: Slack: what stands in the place of a file in a channel that is shared with another organisation.
_ASK = "check_file_info"

#: Where Slack keeps files, beside `slack.com` itself.
_HOSTS = ("slack.com", "slack-files.com", "slack-gov.com")

_NOT_ALLOWED = "the app lacks the scope files:read, so that no files can be read: add it at "
_WHERE = "https://api.slack.com/apps, your app, under OAuth & Permissions, and install the app again"


class Downloads:
    """Fetches files with the app's token, which nobody but Slack is shown."""

    def __init__(self, api: SlackApi) -> None:
        self._api = api

    async def fetch(self, team: str, file: Attachment, check: Check) -> Fetched:
        """A file.

        Raises:
            UnreadableFileError: it cannot be had, or is not to be read.
        """
        if file.source.get("file_access") == _ASK or not file.source.get("url_private_download"):
            file = await self._asked(team, file)
            check(file)
        url = str(file.source.get("url_private_download") or "")
        if not url:
            raise UnreadableFileError("it is kept elsewhere")
        try:
            token = await self._api.at(team).token()
        except SurfaceError as error:
            raise UnreadableFileError("it cannot be fetched right now") from error
        try:
            return await download(url, file, check, is_own=self._is_own, token=token)
        except UnreadableFileError as error:
            if error.status in (401, 403):
                log.error("%s%s", _NOT_ALLOWED, _WHERE)
            raise

    async def _asked(self, team: str, file: Attachment) -> Attachment:
        """What Slack says of a file when it is asked."""
        budget = self._api.budget(("files.info", team), TIER_4)
        try:
            about = {"file": file.source.get("id", "")}
            answer = await self._api.at(team).call("files.info", about, budget, reads=True)
        except RefusedError as refusal:
            if refusal.code == "missing_scope":
                log.error("%s%s", _NOT_ALLOWED, _WHERE)
                raise UnreadableFileError("I am not allowed to read it") from refusal
            raise UnreadableFileError("it is not there any more, or not for me") from refusal
        except SurfaceError as error:
            raise UnreadableFileError("it cannot be fetched right now") from error
        found: dict[str, Any] = (answer or {}).get("file") or {}
        asked = attachment({**found, "file_access": ""})
        return replace(asked, name=asked.name if found.get("name") else file.name)

    def _is_own(self, url: SplitResult) -> bool:
        """Whether an address is Slack's; where the API is elsewhere than at Slack, that is where files are too."""
        api = urlsplit(self._api.address)
        if _is_slack(api.hostname):
            return url.scheme == "https" and _is_slack(url.hostname)
        return (url.scheme, url.netloc) == (api.scheme, api.netloc)


def _is_slack(host: str | None) -> bool:
    return any(host == name or (host or "").endswith(f".{name}") for name in _HOSTS)
