"""Line mode of the terminal client, for pipes.

It sends the lines of the input, and prints each event as one line.
"""

import asyncio
import re
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from typing import TextIO

from chatrig.client.extension import SimulatorExtension
from chatrig.client.forms import ClientForm, format_form
from chatrig.client.platform import ClientEvent, ClientEventKind, ClientMessage, ClientPlatform
from chatrig.terminal.controls import escape_controls
from chatrig.terminal.replies import QuietTime, ReplyTracker
from chatrig.terminal.sessions import TerminalSessions

#: Time for the bot to connect before the first line is sent.
CONNECT_TIMEOUT_SECONDS = 30.0
#: Time for the platform to show a sent message.
ECHO_TIMEOUT_SECONDS = 5.0


async def run_lines(
    platforms: Sequence[ClientPlatform],
    lines: AsyncIterator[str],
    out: TextIO,
    *,
    extension: SimulatorExtension | None = None,
    notices: Sequence[str] = (),
    quiet_time: QuietTime | None = None,
) -> None:
    """Send each input line, print all events, and return after the last replies.

    A line is a message or a command for the first platform, until a line such as `/discord` switches the platform. The
    line `/wait` waits for the replies so far, and `/quit` returns without waiting. If the replies are not complete in
    time, a line says so. The first line to a platform waits up to `CONNECT_TIMEOUT_SECONDS` for the bot's connection.

    Args:
        lines: lines of the input.
        out: stream to which events are printed.
        extension: further commands and notices, and the process of the bot; None for none.
        notices: lines that are printed first.
        quiet_time: the waiting times for replies; None for the defaults.
    """
    session = _LineSession(TerminalSessions(platforms, extension), out, quiet_time or QuietTime())
    for notice in notices:
        session.write(notice)
    async with AsyncExitStack() as stack:
        changes = [await stack.enter_async_context(aclosing(platform.changes())) for platform in platforms]
        async with asyncio.TaskGroup() as tasks:
            listening = [
                tasks.create_task(session.watch_platform(*pair)) for pair in zip(platforms, changes, strict=True)
            ]
            listening += [tasks.create_task(session.watch_forms(platform)) for platform in platforms]
            await session.run(lines)
            for task in listening:
                task.cancel()


async def read_lines(stream: TextIO) -> AsyncGenerator[str, None]:
    """Yield the lines of a blocking text stream without blocking the event loop.

    The lines include their line breaks. A daemon thread reads the stream (a file or a pipe).
    """
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str | None] = asyncio.Queue()

    def read() -> None:
        with suppress(RuntimeError):  # the loop is closed
            for line in stream:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, None)

    # A daemon thread: waiting for input must not keep the process alive.
    threading.Thread(target=read, name="stdin", daemon=True).start()
    while (line := await lines.get()) is not None:
        yield line


class _LineSession:
    """One run of the line mode: reads input lines, and prints events and forms."""

    def __init__(self, sessions: TerminalSessions, out: TextIO, quiet_time: QuietTime) -> None:
        self._out = out
        self._sessions = sessions
        self._replies = ReplyTracker(quiet_time)
        self._checked_platforms: set[str] = set()
        self._written_revisions: dict[tuple[str, str], int] = {}
        self._event_written = asyncio.Event()

    def write(self, line: str) -> None:
        self._out.write(f"{escape_controls(line)}\n")
        self._out.flush()

    async def run(self, lines: AsyncIterator[str]) -> None:
        async for line in lines:
            if line.strip() == "/wait":
                await self._wait_for_replies()
                continue
            if not self._sessions.find_by_command(line):
                await self._wait_until_connected()
            session = self._sessions.current
            previous = session.last_sent
            self._write_notice(await self._sessions.run_line(line))
            if self._sessions.is_closed:
                return
            if session.last_sent is not None and session.last_sent is not previous:
                self._replies.record_question(
                    session.last_sent, expects_reply=self._is_addressed_to_bot(session.last_sent)
                )
                await self._wait_until_written(session.last_sent)
        await self._wait_for_replies()

    async def watch_platform(self, platform: ClientPlatform, changes: AsyncIterator[ClientEvent]) -> None:
        async for event in changes:
            self._replies.record_event(event)
            self._write_event(platform, event)

    async def watch_forms(self, platform: ClientPlatform) -> None:
        """Print each form that the bot opens for a user of the platform, until cancelled."""
        known: dict[str, ClientForm | None] = {}
        while True:
            for person in platform.people:
                form, former = platform.find_form(person), known.get(person.id)
                if form is not None and (former is None or former.id != form.id):
                    self.write(f"[{platform.name} form of {person.name}] {join_lines(format_form(form))}")
                known[person.id] = form
            await platform.wait_for_change()

    async def _wait_until_connected(self) -> None:
        """Before the first line to a platform, wait until the bot is connected to it.

        After `CONNECT_TIMEOUT_SECONDS` without a connection, a line about this is printed. The first time, the notices
        of the extension are printed.
        """
        platform = self._platform
        if platform.name not in self._checked_platforms:
            self._checked_platforms.add(platform.name)
            if not await platform.wait_until_connected(CONNECT_TIMEOUT_SECONDS):
                self._write_notice(f"{platform.bot_name} is not connected and does not receive this message.")
            elif len(self._checked_platforms) == 1:
                extension = self._sessions.extension
                with suppress(TimeoutError):
                    async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                        while extension.bot is not None and extension.bot.state == "starting":
                            await extension.bot.wait_for_change()
                for notice in extension.list_notices():
                    self.write(notice)

    async def _wait_until_written(self, message: ClientMessage) -> None:
        """Wait until a sent message is printed, for at most `ECHO_TIMEOUT_SECONDS`.

        The replies are then printed below the message.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(ECHO_TIMEOUT_SECONDS):
                while (message.channel, message.id) not in self._written_revisions:
                    self._event_written.clear()
                    await self._event_written.wait()

    async def _wait_for_replies(self) -> None:
        if not await self._replies.wait_until_complete():
            self._write_notice(f"{self._platform.bot_name} did not finish its reply in time.")

    @property
    def _platform(self) -> ClientPlatform:
        return self._sessions.current.platform

    def _write_notice(self, notice: str) -> None:
        for line in notice.splitlines():
            self.write(f"[{self._platform.name}] {line}")

    def _is_addressed_to_bot(self, message: ClientMessage) -> bool:
        """Return whether the bot will answer: a message in its DM or one that mentions it."""
        return self._sessions.current.place.is_dm or f"@{self._platform.bot_name}" in message.plain_text.casefold()

    def _write_event(self, platform: ClientPlatform, event: ClientEvent) -> None:
        message = event.message
        key = (message.channel, message.id)
        head = _format_head(platform, message)
        if event.kind is ClientEventKind.UPDATED:
            # This version is printed already: two changes came together, or the text is unchanged.
            if self._written_revisions.get(key, 0) == message.revision:
                return
            self.write(f"[{head} updated] {join_lines(message.plain_text)}")
        elif event.kind is ClientEventKind.POSTED:
            referring = f" in reply to {message.reply_to.id}" if message.reply_to else ""
            self.write(f"[{head}{referring}] {join_lines(message.plain_text)}")
        elif event.kind is ClientEventKind.DELETED:
            self.write(f"[{head} deleted]")
        else:
            reactions = " ".join(f"{reaction.emoji} {reaction.count}" for reaction in message.reactions)
            self.write(f"[{head} reactions] {reactions or 'none'}")
        self._written_revisions[key] = message.revision
        self._event_written.set()


def _format_head(platform: ClientPlatform, message: ClientMessage) -> str:
    """Return the platform, channel, id and author of a message as a text.

    The text also names the user of an ephemeral message.
    """
    places = {place.channel: place.name for place in platform.channels}
    users_by_dm = {platform.get_dm(person).channel: person for person in platform.people}
    place = places.get(message.channel) or f"dm {users_by_dm[message.channel].name}"
    thread = f"/{message.thread}" if message.thread else ""
    recipient = next(
        (person.name for person in platform.people if person.id == message.ephemeral_to), message.ephemeral_to
    )
    suffix = f" only visible to {recipient}" if recipient else ""
    return f"{platform.name} {place}{thread} {message.id} {message.author}{suffix}"


def join_lines(text: str) -> str:
    """Return a text on one line, with `⏎` for line breaks."""
    return re.sub(r"\s*\n\s*", " ⏎ ", text.strip())
