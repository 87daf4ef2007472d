"""Downloads of the files that are attached to messages."""

import logging
from collections.abc import Collection
from dataclasses import replace
from urllib.parse import SplitResult, urljoin, urlsplit

import aiohttp
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_exponential

from channels.platform import FetchedFile, FileCheck, UnreadableFileError, too_large
from core.messages.inbox_message import Attachment
from core.models import media

log = logging.getLogger(__name__)

#: The pauses before the retries of a download.
RETRY_WAIT = wait_exponential(0.3)

#: The most redirects of one download.
_MAX_REDIRECTS = 3

_CONNECT_SECONDS = 5.0
_REDIRECTS = (301, 302, 303, 307, 308)
_HTML = ("<!doctype html", "<html")


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, UnreadableFileError) and (error.status == 429 or error.status >= 500)


class FileClient:
    """Base of a client for file downloads, which calls only the platform's hosts.

    `api_hosts` and `file_hosts` include subdomains. If `api_url` is not on `api_hosts` (a simulator), files may only be
    at the host of `api_url`.
    """

    api_hosts: Collection[str]
    file_hosts: Collection[str]

    def __init__(self, api_url: str) -> None:
        self._api_url = urlsplit(api_url)

    async def download(self, url: str, file: Attachment, check: FileCheck, *, token: str = "") -> FetchedFile:
        """Download a file of a message, in at most three attempts if it fails temporarily.

        `check` is called before the body is read, with the size from the HTTP response. The result's metadata has the
        size of the content, and a MIME type that `file` lacks.

        Raises:
            UnreadableFileError: the file is not on the platform's hosts, not available, too large, refused by `check`,
                or the response is a login page.
        """
        data, kind = await self._get(url, file, check, token)
        fetched = replace(file, size=len(data), mime_type=file.mime_type or kind)
        if _is_html(data) and kind == "text/html" and not _is_expected_html(file, data):
            raise UnreadableFileError("I am not allowed to read it", status=403)
        return FetchedFile(fetched, data)

    @retry(retry=retry_if_exception(_is_transient), wait=RETRY_WAIT, stop=stop_after_attempt(3), reraise=True)
    async def _get(self, url: str, file: Attachment, check: FileCheck, token: str) -> tuple[bytes, str]:
        timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT_SECONDS, sock_read=_CONNECT_SECONDS * 2)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            async with aiohttp.ClientSession(timeout=timeout, trust_env=True) as session:
                for _ in range(_MAX_REDIRECTS):
                    if not self._is_platform_url(urlsplit(url)):
                        log.warning(
                            "a file address outside the platform's hosts is ignored: %s", urlsplit(url).hostname
                        )
                        raise UnreadableFileError("it is not on a file server of the platform")
                    async with session.get(url, headers=headers, allow_redirects=False) as answer:
                        if answer.status in _REDIRECTS:
                            url = urljoin(url, answer.headers.get("Location", ""))
                            continue
                        if answer.status != 200:
                            reason = f"it cannot be fetched (HTTP {answer.status})"
                            raise UnreadableFileError(reason, status=answer.status)
                        check(replace(file, size=answer.content_length or file.size))
                        return await _read_body(answer, check.max_bytes), answer.content_type
        except (aiohttp.ClientError, OSError) as error:
            log.info("a file cannot be fetched: %s", type(error).__name__)
            raise UnreadableFileError("it cannot be fetched right now", status=503) from error
        raise UnreadableFileError("it cannot be fetched")

    def _is_platform_url(self, url: SplitResult) -> bool:
        if _is_within(self._api_url, self.api_hosts):
            return url.scheme == "https" and _is_within(url, self.file_hosts)
        return (url.scheme, url.netloc) == (self._api_url.scheme, self._api_url.netloc)


def _is_within(url: SplitResult, hosts: Collection[str]) -> bool:
    return any(f".{url.hostname}".endswith(f".{host}") for host in hosts)


async def _read_body(answer: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    data = bytearray()
    async for piece in answer.content.iter_chunked(2**16):
        data += piece
        if len(data) > max_bytes:
            raise too_large(max_bytes)
    return bytes(data)


def _is_html(data: bytes) -> bool:
    return data[:256].lstrip().lower().startswith(tuple(start.encode() for start in _HTML))


def _is_expected_html(file: Attachment, data: bytes) -> bool:
    """Return whether HTML is the attached file and not a login page, by its type and by the announced size, if any."""
    return media.guess_mime_type(file.name, file.mime_type) == "text/html" and file.size in (0, len(data))
