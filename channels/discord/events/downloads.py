"""Downloads of the files of Discord messages.

Discord: docs.discord.com/developers/reference, "Signed Attachment CDN URLs"
"""

import time
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

from channels.discord.client.api import DiscordApi
from channels.discord.events.content import read_content
from channels.intake.downloads import FileClient
from channels.platform import FetchedFile, FileCheck, UnreadableFileError
from core.errors import SurfaceError
from core.messages.inbox_message import Attachment

#: HTTP statuses of an expired address.
_EXPIRED_STATUSES = (403, 404)


class DiscordDownloads(FileClient):
    """Downloads the attachments of messages by their signed URLs."""

    api_hosts = ("discord.com", "discordapp.com")
    file_hosts = ("cdn.discordapp.com", "media.discordapp.net")

    def __init__(self, api: DiscordApi, api_url: str) -> None:
        super().__init__(api_url)
        self._api = api

    async def fetch(self, file: Attachment, check: FileCheck) -> FetchedFile:
        """Download an attachment; if its URL has expired, fetch a new URL first.

        Args:
            check: called before the body is read, with the size from the HTTP response.

        Raises:
            UnreadableFileError: the file is not available, or `check` refuses it.
        """
        url = str(file.source.get("url", ""))
        if not _has_expired(url):
            try:
                return await self.download(url, file, check)
            except UnreadableFileError as error:
                if error.status not in _EXPIRED_STATUSES:
                    raise
        file = await self._refresh_url(file)
        return await self.download(str(file.source["url"]), file, check)

    async def _refresh_url(self, file: Attachment) -> Attachment:
        """Fetch the message of an attachment; return the attachment with its new URL."""
        try:
            message = await self._api.fetch_message(int(file.source["channel"]), int(file.source["message"]))
        except SurfaceError as error:
            raise UnreadableFileError("it is deleted") from error
        for found in read_content(message).all_files:
            if found.source["id"] == str(file.source.get("id", "")):
                return replace(file, source={**file.source, "url": found.source["url"]})
        raise UnreadableFileError("it is deleted")


def _has_expired(url: str) -> bool:
    """Return whether the signature of an attachment's URL has expired.

    Discord: the parameter `ex` is the time of expiry, in hexadecimal seconds since the epoch. A URL without a valid
    `ex` has not expired.
    """
    try:
        return int(parse_qs(urlsplit(url).query)["ex"][0], 16) <= time.time()
    except (KeyError, ValueError):
        return False
