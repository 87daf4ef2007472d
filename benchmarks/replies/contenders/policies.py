"""Streaming policies of other bots, rebuilt from their sources: posts, edits and endings.

Other features (Markdown, buttons, sessions) are left out. Each policy has its platform's real client with its original
retries; for clients of other languages, the nearest settings of the Python client.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Self

from benchmarks.replies.contenders.platform_clients import Desk

#: Each client raises errors of its own for failed calls.
_FAILED = Exception


class Policy(ABC):
    """Writer with a policy; `speed` divides its times."""

    def __init__(self, desk: Desk, speed: float) -> None:
        self._desk = desk
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


class ChatSdk(Policy):
    """Vercel's Chat SDK in its mode for platforms without streams.

    A placeholder; then, if there is new text, an edit 500 ms after the end of the former one. A failed edit is ignored,
    a failed last one raises. Text over the platform's limit is cut.
    """

    PAUSE = 0.5

    async def __aenter__(self) -> Self:
        self._message = await self._desk.post("...")
        self._shown = ""
        self._ending = asyncio.Event()
        self._loop = asyncio.create_task(self._edit_now_and_then(), name="Chat SDK")
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
            await self._desk.edit(self._message, _cut(text, self._desk.size))

    async def _edit_now_and_then(self) -> None:
        while not self._ending.is_set():
            try:
                await asyncio.wait_for(self._ending.wait(), self.PAUSE / self._speed)
            except TimeoutError:
                await self._edit()

    async def _edit(self) -> None:
        if (text := self._text.strip()) and text != self._shown:
            try:
                await self._desk.edit(self._message, _cut(text, self._desk.size))
            except _FAILED:
                return
            self._shown = text


class Turnstile:
    """Time of llmcord's last post or edit in the whole process."""

    def __init__(self) -> None:
        self.last = float("-inf")


class Llmcord(Policy):
    """llmcord: one timer for all replies of the process.

    The first text is posted at once. Then each edit blocks the model's stream, and is made if no reply was posted or
    edited for a second. A full message gets a last edit, and a new one follows. (The original uses descriptions of
    embeds with 4,096 characters; here plain texts with 2,000.)
    """

    PAUSE = 1.0
    MARK = " ⚪"

    def __init__(self, desk: Desk, speed: float, turnstile: Turnstile) -> None:
        super().__init__(desk, speed)
        self._turnstile = turnstile

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
        size = self._desk.size - len(self.MARK)
        message, shown, following = None, "", await self._deltas.get()
        while following is not None:
            delta, following = following, await self._deltas.get()
            if message is None or len(shown) + len(delta) > size:
                shown, message = delta, await self._desk.post(delta + self.MARK)
                self._turnstile.last = _now()
                continue
            shown += delta
            since = _now() - self._turnstile.last
            is_last = following is None or len(shown) + len(following) > size
            if is_last or since >= self.PAUSE / self._speed:
                await asyncio.sleep(self.PAUSE / self._speed - since)
                await self._desk.edit(message, shown if is_last else shown + self.MARK)
                self._turnstile.last = _now()


class ChatGptInSlack(Policy):
    """ChatGPT-in-Slack: an edit per 20 deltas, independent of the former edit's end.

    Edits, including the last, show the first 3,500 bytes; the rest is posted in messages of 20,000. A failed edit is
    ignored, a failed last one raises.
    """

    CHUNKS = 20
    EDITED, POSTED = 3_500, 20_000
    MARK = " ... :writing_hand:"

    async def __aenter__(self) -> Self:
        self._message = await self._desk.post(":hourglass: Wait a second, please ...")
        self._chunks = 0
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
        self._chunks += 1
        if self._chunks == self.CHUNKS:
            self._chunks = 0
            text = self._text.strip()[: self.EDITED] + self.MARK
            self._edits.add(asyncio.create_task(self._desk.edit(self._message, text), name="ChatGPT-in-Slack"))

    async def close(self, text: str) -> None:
        if self._edits:
            await asyncio.wait(self._edits)
        await self._desk.edit(self._message, text[: self.EDITED])
        for start in range(self.EDITED, len(text), self.POSTED):
            await self._desk.post(text[start : start + self.POSTED])


class OpenClaw(Policy):
    """OpenClaw: one draft with a pause between edits, and one call in flight.

    The draft stops at the first failure, and when the text exceeds a message. A last edit makes it the answer;
    otherwise the answer is posted in pieces and the draft deleted.
    """

    def __init__(self, desk: Desk, speed: float, pause: float) -> None:
        super().__init__(desk, speed)
        self._pause = pause / speed

    async def __aenter__(self) -> Self:
        self._message: str | None = None
        self._stopped = asyncio.Event()
        self._fed = asyncio.Event()
        self._loop = asyncio.create_task(self._draft(), name="OpenClaw")
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
        if self._message is not None and len(text) <= self._desk.size:
            try:
                await self._desk.edit(self._message, text)
            except _FAILED:
                pass
            else:
                return
        for piece in _pieces(text, self._desk.size):
            await self._desk.post(piece)
        if self._message is not None:
            await self._desk.delete(self._message)

    async def _draft(self) -> None:
        await self._fed.wait()
        while not self._stopped.is_set() and len(text := self._text.strip()) <= self._desk.size:
            try:
                if self._message is None:
                    self._message = await self._desk.post(text)
                else:
                    await self._desk.edit(self._message, text)
            except _FAILED:
                return
            try:
                await asyncio.wait_for(self._stopped.wait(), self._pause)
            except TimeoutError:
                continue


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size - 3] + "..."


def _pieces(text: str, size: int) -> list[str]:
    """Return the text in messages, split at spaces."""
    pieces = []
    while len(text) > size:
        at = text.rfind(" ", 0, size) + 1 or size
        pieces.append(text[:at])
        text = text[at:]
    return [*pieces, text]


def _now() -> float:
    return asyncio.get_running_loop().time()


Make = Callable[[Desk], Policy]
