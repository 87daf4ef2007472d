"""Files that came with messages of Discord's.

Discord: docs.discord.com/developers/reference, "Signed Attachment CDN URLs"
"""

import time
from dataclasses import replace
from urllib.parse import SplitResult, parse_qs, urlsplit

from channels.base import Check, Fetched
from channels.discord.client.api import DiscordApi
from channels.discord.events.history import message_of
from channels.intake.downloads import UnreadableFileError, download
from core.errors import SurfaceError
from core.inbox_message import Attachment

#: Where Discord keeps files.
_HOSTS = ("cdn.discordapp.com", "media.discordapp.net")

#: What it says of an address that has expired.
_EXPIRED = (403, 404)


class Downloads:
    """Fetches files.

    Args:
        address: where Discord's API is; where that is elsewhere than at Discord, that is where files are too.
    """

    def __init__(self, api: DiscordApi, address: str) -> None:
        self._api = api
        self._address = urlsplit(address)

    async def fetch(self, file: Attachment, check: Check) -> Fetched:
        """A file.

        Raises:
            UnreadableFileError: it cannot be had, or is not to be read.
        """
        url = str(file.source.get("url", ""))
        if not _has_expired(url):
            try:
                return await download(url, file, check, is_own=self._is_own)
            except UnreadableFileError as error:
                if error.status not in _EXPIRED:
                    raise
        file = await self._asked(file)
        return await download(str(file.source["url"]), file, check, is_own=self._is_own)

    async def _asked(self, file: Attachment) -> Attachment:
        """The file with an address that is good again."""
        try:
            message = await message_of(self._api, int(file.source["channel"]), int(file.source["message"]))
        except SurfaceError as error:
            raise UnreadableFileError("it is not there any more") from error
        url = next((one.url for one in message.attachments if str(one.id) == str(file.source.get("id", ""))), None)
        if url is None:
            raise UnreadableFileError("it is not there any more")
        return replace(file, source={**file.source, "url": url})

    def _is_own(self, url: SplitResult) -> bool:
        if (self._address.hostname or "").endswith(("discord.com", "discordapp.com")):
            return url.scheme == "https" and url.hostname in _HOSTS
        return (url.scheme, url.netloc) == (self._address.scheme, self._address.netloc)


def _has_expired(url: str) -> bool:
    """Discord: `ex` is when an address expires, in hexadecimal seconds since the epoch."""
    try:
        return int(parse_qs(urlsplit(url).query)["ex"][0], 16) <= time.time()
    except (KeyError, ValueError):
        return False
