"""Streaming policies of other bots, reimplemented from their sources.

A policy is the rules for posts, edits and the end of a reply, without other features (Markdown, buttons, sessions).
Each policy has its platform's real client with its original retries. Clients of other languages are replaced by the
Python client with the nearest settings.
"""

import asyncio
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from benchmarks.replies.contenders.platform_clients import MessageClient

#: Error of a failed call: each client has its own classes.
_CALL_ERROR = Exception


class StreamingPolicy(ABC):
    """Reply writer that follows the rules of one bot for posts and edits.

    Args:
        speed: platform seconds in a real second; it shortens the bot's pauses.
    """

    def __init__(self, client: MessageClient, speed: float) -> None:
        self._client = client
        self._speed = speed
        self._text = ""

    @abstractmethod
    async def __aenter__(self) -> Self: ...

    @abstractmethod
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def feed(self, delta: str) -> None:
        self._text += delta

    @abstractmethod
    async def close(self, text: str) -> None: ...


class ChatSdk(StreamingPolicy):
    """Rules of Vercel's Chat SDK for platforms without streams.

    It posts a placeholder. Then it edits the message 500 ms after the end of the former edit, if there is new text. It
    ignores a failed edit, except the last one, whose error it raises. It cuts text over the platform's limit.
    """

    EDIT_INTERVAL_SECONDS = 0.5

    async def __aenter__(self) -> Self:
        self._message = await self._client.post("...")
        self._shown = ""
        self._ending = asyncio.Event()
        self._loop = asyncio.create_task(self._edit_periodically(), name="Chat SDK")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.cancel()
        await asyncio.wait([self._loop])

    async def close(self, text: str) -> None:
        self._ending.set()
        await asyncio.wait([self._loop])
        if text != self._shown:
            await self._client.edit(self._message, _truncate(text, self._client.size))

    async def _edit_periodically(self) -> None:
        while not self._ending.is_set():
            try:
                await asyncio.wait_for(self._ending.wait(), self.EDIT_INTERVAL_SECONDS / self._speed)
            except TimeoutError:
                await self._edit()

    async def _edit(self) -> None:
        if (text := self._text.strip()) and text != self._shown:
            try:
                await self._client.edit(self._message, _truncate(text, self._client.size))
            except _CALL_ERROR:
                return
            self._shown = text


class LastWrite:
    """Time of llmcord's last post or edit, shared by all replies of the process.

    Attributes:
        at: in seconds of the event loop's clock; -infinity before the first one.
    """

    def __init__(self) -> None:
        self.at = float("-inf")


class Llmcord(StreamingPolicy):
    """Rules of llmcord: one timer for all replies of the process.

    The first text is posted at once. Later text is edited in if no reply was posted or edited for a second; each edit
    blocks the model's stream. A full message gets a last edit, and a new one follows.

    The original uses descriptions of embeds with 4,096 characters; here plain texts with 2,000.
    """

    EDIT_INTERVAL_SECONDS = 1.0
    STREAMING_SUFFIX = " ⚪"

    def __init__(self, client: MessageClient, speed: float, last_write: LastWrite) -> None:
        super().__init__(client, speed)
        self._last_write = last_write

    async def __aenter__(self) -> Self:
        self._deltas = asyncio.Queue[str | None]()
        self._loop = asyncio.create_task(self._write(), name="llmcord")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.cancel()
        await asyncio.wait([self._loop])

    def feed(self, delta: str) -> None:
        self._deltas.put_nowait(delta)

    async def close(self, text: str) -> None:
        self._deltas.put_nowait(None)
        await asyncio.shield(self._loop)

    async def _write(self) -> None:
        size = self._client.size - len(self.STREAMING_SUFFIX)
        message, visible_text, following = None, "", await self._deltas.get()
        while following is not None:
            delta, following = following, await self._deltas.get()
            if message is None or len(visible_text) + len(delta) > size:
                visible_text, message = delta, await self._client.post(delta + self.STREAMING_SUFFIX)
                self._last_write.at = _now()
                continue
            visible_text += delta
            since = _now() - self._last_write.at
            is_last = following is None or len(visible_text) + len(following) > size
            if is_last or since >= self.EDIT_INTERVAL_SECONDS / self._speed:
                await asyncio.sleep(self.EDIT_INTERVAL_SECONDS / self._speed - since)
                await self._client.edit(message, visible_text if is_last else visible_text + self.STREAMING_SUFFIX)
                self._last_write.at = _now()


class ChatGptInSlack(StreamingPolicy):
    """Rules of ChatGPT-in-Slack: an edit per 20 deltas, even during another edit.

    Edits, including the last, show the first 3,500 characters; at the end, messages of 20,000 show the rest. It ignores
    a failed edit, except the last one, whose error it raises.
    """

    DELTAS_PER_EDIT = 20
    MAX_EDIT_CHARS, MAX_POST_CHARS = 3_500, 20_000
    STREAMING_SUFFIX = " ... :writing_hand:"

    async def __aenter__(self) -> Self:
        self._message = await self._client.post(":hourglass: Wait a second, please ...")
        self._deltas_since_edit = 0
        self._edits = set[asyncio.Task[None]]()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for edit in self._edits:
            edit.cancel()
        if self._edits:
            await asyncio.wait(self._edits)

    def feed(self, delta: str) -> None:
        super().feed(delta)
        self._deltas_since_edit += 1
        if self._deltas_since_edit == self.DELTAS_PER_EDIT:
            self._deltas_since_edit = 0
            text = self._text.strip()[: self.MAX_EDIT_CHARS] + self.STREAMING_SUFFIX
            self._edits.add(asyncio.create_task(self._client.edit(self._message, text), name="ChatGPT-in-Slack"))

    async def close(self, text: str) -> None:
        if self._edits:
            await asyncio.wait(self._edits)
        await self._client.edit(self._message, text[: self.MAX_EDIT_CHARS])
        for start in range(self.MAX_EDIT_CHARS, len(text), self.MAX_POST_CHARS):
            await self._client.post(text[start : start + self.MAX_POST_CHARS])


class OpenClaw(StreamingPolicy):
    """Rules of OpenClaw: one draft message, one call in flight, a pause between edits.

    The edits of the draft stop at the first failure, and when the text exceeds one message. At the end a last edit
    makes the draft the answer. If that is impossible, the answer is posted in pieces and the draft deleted.

    Args:
        pause: platform seconds between two edits.
    """

    def __init__(self, client: MessageClient, speed: float, pause: float) -> None:
        super().__init__(client, speed)
        self._pause = pause / speed

    async def __aenter__(self) -> Self:
        self._message: str | None = None
        self._stopped = asyncio.Event()
        self._fed = asyncio.Event()
        self._loop = asyncio.create_task(self._update_draft(), name="OpenClaw")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.cancel()
        await asyncio.wait([self._loop])

    def feed(self, delta: str) -> None:
        super().feed(delta)
        self._fed.set()

    async def close(self, text: str) -> None:
        self._stopped.set()
        self._fed.set()
        await asyncio.wait([self._loop])
        if self._message is not None and len(text) <= self._client.size:
            try:
                await self._client.edit(self._message, text)
            except _CALL_ERROR:
                pass
            else:
                return
        for piece in _split(text, self._client.size):
            await self._client.post(piece)
        if self._message is not None:
            await self._client.delete(self._message)

    async def _update_draft(self) -> None:
        await self._fed.wait()
        while not self._stopped.is_set() and len(text := self._text.strip()) <= self._client.size:
            try:
                if self._message is None:
                    self._message = await self._client.post(text)
                else:
                    await self._client.edit(self._message, text)
            except _CALL_ERROR:
                return
            try:
                await asyncio.wait_for(self._stopped.wait(), self._pause)
            except TimeoutError:
                continue


def _truncate(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size - 3] + "..."


def _split(text: str, size: int) -> list[str]:
    """Split a text into parts of at most `size` characters, after spaces if possible."""
    pieces = []
    while len(text) > size:
        at = text.rfind(" ", 0, size) + 1 or size
        pieces.append(text[:at])
        text = text[at:]
    return [*pieces, text]


def _now() -> float:
    return asyncio.get_running_loop().time()
