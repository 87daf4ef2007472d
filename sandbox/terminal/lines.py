"""Line mode: what is piped in is said, and what happens is written, one line each."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, suppress
from typing import TextIO

from sandbox.terminal.desk import Desk
from sandbox.terminal.replies import Pace, Replies
from sandbox.terminal.view import Happening, Kind, Message, Platform

#: Seconds that the bot has for its connection before the first line is said.
CONNECT_WITHIN = 30.0
#: Seconds within which the platform shows what was said.
ECHO_WITHIN = 5.0


async def run_lines(
    platform: Platform,
    lines: AsyncIterator[str],
    out: TextIO,
    *,
    notices: Sequence[str] = (),
    pace: Pace | None = None,
) -> None:
    """Do what each line says, and return once the replies to them are complete.

    `/wait` holds the next line back until then as well.
    """
    session = _Session(platform, out, pace or Pace())
    for notice in notices:
        session.write(notice)
    async with aclosing(platform.changes()) as changes, asyncio.TaskGroup() as tasks:
        listening = tasks.create_task(session.listen(changes))
        await session.play(lines)
        listening.cancel()


async def read_lines(stream: TextIO) -> AsyncIterator[str]:
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
    def __init__(self, platform: Platform, out: TextIO, pace: Pace) -> None:
        self._platform = platform
        self._out = out
        self._desk = Desk(platform)
        self._replies = Replies(pace)
        self._shown: dict[tuple[str, str], int] = {}
        self._news = asyncio.Event()

    def write(self, line: str) -> None:
        self._out.write(f"{line}\n")
        self._out.flush()

    async def play(self, lines: AsyncIterator[str]) -> None:
        await self._connected()
        async for line in lines:
            if line.strip() == "/wait":
                await self._settle()
                continue
            said = self._desk.said
            if notice := await self._desk.enter(line):
                self.write(notice)
            if self._desk.closed:
                return
            if self._desk.said is not None and self._desk.said is not said:
                self._replies.ask(self._desk.said, addressed=self._addressed(self._desk.said))
                await self._written(self._desk.said)
        await self._settle()

    async def listen(self, changes: AsyncIterator[Happening]) -> None:
        async for happening in changes:
            self._replies.note(happening)
            self._show(happening)

    async def _connected(self) -> None:
        if not await self._platform.connects_within(CONNECT_WITHIN):
            self.write(f"{self._platform.bot} is not connected: it does not hear this.")

    async def _written(self, message: Message) -> None:
        """Wait until what was said is written, so that whatever comes next is written below it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ECHO_WITHIN):
                while (message.channel, message.id) not in self._shown:
                    self._news.clear()
                    await self._news.wait()

    async def _settle(self) -> None:
        if not await self._replies.settled():
            self.write(f"{self._platform.bot} has not finished its reply in time.")

    def _addressed(self, message: Message) -> bool:
        return self._desk.place.direct or f"@{self._platform.bot}" in message.plain.casefold()

    def _show(self, happening: Happening) -> None:
        message = happening.message
        key = (message.channel, message.id)
        if happening.kind is Kind.UPDATED:
            if self._shown.get(key) == message.revision:  # two changes came together
                return
            self.write(f"[{self._head(message)} updated] {one_line(message.plain)}")
        elif happening.kind is Kind.POSTED:
            only = f" only visible to {self._person(message.only_for)}" if message.only_for else ""
            self.write(f"[{self._head(message)}{only}] {one_line(message.plain)}")
        elif happening.kind is Kind.DELETED:
            self.write(f"[{self._head(message)} deleted]")
        else:
            reactions = " ".join(f"{reaction.emoji} {reaction.count}" for reaction in message.reactions)
            self.write(f"[{self._head(message)} reactions] {reactions or 'none'}")
        self._shown[key] = message.revision
        self._news.set()

    def _head(self, message: Message) -> str:
        places = {place.channel: place.name for place in self._platform.channels}
        directs = {self._platform.direct(person).channel: person for person in self._platform.people}
        place = places.get(message.channel) or f"dm {directs[message.channel].name}"
        thread = f"/{message.thread}" if message.thread else ""
        return f"{place}{thread} {message.id} {message.author}"

    def _person(self, key: str) -> str:
        return next((person.name for person in self._platform.people if person.id == key), key)


def one_line(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ⏎ ", text.strip())
