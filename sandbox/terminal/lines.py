"""Line mode: what is piped in is said, and what happens is written, one line each."""

import asyncio
import re
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from typing import TextIO

from sandbox.client.platform import ClientEvent, ClientPlatform, HappeningKind, ShownMessage
from sandbox.terminal.replies import QuietTime, ReplyTracker
from sandbox.terminal.sessions import TerminalSessions

#: Seconds that the bot has for its connection before the first line is said.
CONNECT_WITHIN = 30.0
#: Seconds within which the platform shows what was said.
ECHO_WITHIN = 5.0


async def run_lines(
    platforms: Sequence[ClientPlatform],
    lines: AsyncIterator[str],
    out: TextIO,
    *,
    notices: Sequence[str] = (),
    pace: QuietTime | None = None,
) -> None:
    """Do what each line says, on the first platform to begin with, and return once the replies are complete.

    `/wait` holds the next line back until then as well.
    """
    session = _Session(platforms, out, pace or QuietTime())
    for notice in notices:
        session.write(notice)
    async with AsyncExitStack() as stack:
        changes = [await stack.enter_async_context(aclosing(platform.changes())) for platform in platforms]
        async with asyncio.TaskGroup() as tasks:
            listening = [tasks.create_task(session.listen(*pair)) for pair in zip(platforms, changes, strict=True)]
            await session.play(lines)
            for task in listening:
                task.cancel()


async def read_lines(stream: TextIO) -> AsyncGenerator[str, None]:
    """The lines of a blocking stream, of a file as well as of a pipe."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str | None] = asyncio.Queue()

    def read() -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            for line in stream:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, None)

    # A thread of its own, and a daemon: one that waits for input must not keep the process alive.
    threading.Thread(target=read, name="stdin", daemon=True).start()
    while (line := await lines.get()) is not None:
        yield line


class _Session:
    def __init__(self, platforms: Sequence[ClientPlatform], out: TextIO, pace: QuietTime) -> None:
        self._out = out
        self._desks = TerminalSessions(platforms)
        self._replies = ReplyTracker(pace)
        self._awaited: set[str] = set()
        self._shown: dict[tuple[str, str], int] = {}
        self._news = asyncio.Event()

    def write(self, line: str) -> None:
        self._out.write(f"{line}\n")
        self._out.flush()

    async def play(self, lines: AsyncIterator[str]) -> None:
        async for line in lines:
            if line.strip() == "/wait":
                await self._settle()
                continue
            if not self._desks.called(line):
                await self._connected()
            desk = self._desks.desk
            said = desk.said
            self._tell(await self._desks.enter(line))
            if self._desks.closed:
                return
            if desk.said is not None and desk.said is not said:
                self._replies.ask(desk.said, addressed=self._addressed(desk.said))
                await self._written(desk.said)
        await self._settle()

    async def listen(self, platform: ClientPlatform, changes: AsyncIterator[ClientEvent]) -> None:
        async for happening in changes:
            self._replies.note(happening)
            self._show(platform, happening)

    async def _connected(self) -> None:
        """Give the bot its time to connect, once on each platform."""
        platform = self._platform
        if platform.name not in self._awaited:
            self._awaited.add(platform.name)
            if not await platform.connects_within(CONNECT_WITHIN):
                self._tell(f"{platform.bot} is not connected: it does not hear this.")

    async def _written(self, message: ShownMessage) -> None:
        """Wait until what was said is written, so that whatever comes next is written below it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ECHO_WITHIN):
                while (message.channel, message.id) not in self._shown:
                    self._news.clear()
                    await self._news.wait()

    async def _settle(self) -> None:
        if not await self._replies.settled():
            self._tell(f"{self._platform.bot} has not finished its reply in time.")

    @property
    def _platform(self) -> ClientPlatform:
        return self._desks.desk.platform

    def _tell(self, told: str) -> None:
        for line in told.splitlines():
            self.write(f"[{self._platform.name}] {line}")

    def _addressed(self, message: ShownMessage) -> bool:
        return self._desks.desk.place.direct or f"@{self._platform.bot}" in message.plain.casefold()

    def _show(self, platform: ClientPlatform, happening: ClientEvent) -> None:
        message = happening.message
        key = (message.channel, message.id)
        head = _head(platform, message)
        if happening.kind is HappeningKind.UPDATED:
            if self._shown.get(key, 0) == message.revision:  # two changes came together, or its text is the same
                return
            self.write(f"[{head} updated] {one_line(message.plain)}")
        elif happening.kind is HappeningKind.POSTED:
            referring = f" in reply to {message.reply_to.id}" if message.reply_to else ""
            self.write(f"[{head}{referring}] {one_line(message.plain)}")
        elif happening.kind is HappeningKind.DELETED:
            self.write(f"[{head} deleted]")
        else:
            reactions = " ".join(f"{reaction.emoji} {reaction.count}" for reaction in message.reactions)
            self.write(f"[{head} reactions] {reactions or 'none'}")
        self._shown[key] = message.revision
        self._news.set()


def _head(platform: ClientPlatform, message: ShownMessage) -> str:
    """Where it was said, and by whom."""
    places = {place.channel: place.name for place in platform.channels}
    directs = {platform.direct(person).channel: person for person in platform.people}
    place = places.get(message.channel) or f"dm {directs[message.channel].name}"
    thread = f"/{message.thread}" if message.thread else ""
    sees = next((person.name for person in platform.people if person.id == message.only_for), message.only_for)
    only = f" only visible to {sees}" if sees else ""
    return f"{platform.name} {place}{thread} {message.id} {message.author}{only}"


def one_line(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ⏎ ", text.strip())
