"""A reply while it is being said: what the model streams goes in, what the platform shows comes out."""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from channels.base import FIRST_TEXT, Button, Chunk, EditRefusedError, File, FileRefusedError, Plan, Priority, Surface
from channels.i18n import messages as words
from channels.i18n.messages import Words
from channels.rate_limits.caller import cancel_unless
from channels.replies.chunk_planner import Planner, with_line
from channels.settings import MOST_MESSAGES
from core.concurrency import event_loop
from core.concurrency.tasks import end
from core.errors import TurnLostError
from core.models.finish_reasons import close_code_fence
from core.models.media import format_size

log = logging.getLogger(__name__)

#: The file that holds what is too long for that.
FILE_NAME = "answer.md"

#: Seconds after which a reply that says nothing yet shows for how long, and after which it does so again.
SILENCE = 15.0

#: Seconds that a call in flight has to end when nobody waits for the reply any more.
ABANDON_TIMEOUT = 30.0

#: Awaited with the ids of all the reply's messages whenever they change.
Keep = Callable[[Sequence[str]], Awaitable[None]]

#: Awaited before anything is shown; raises if that is no more this process's to do.
Hold = Callable[[], Awaitable[None]]


async def _at_will() -> None:
    """Nobody else may come to show the reply."""


#: Called with whether there is text in what is shown.
Seen = Callable[[bool], None]


@dataclass(frozen=True, slots=True)
class _Move:
    """What is to be shown next: see `Surface.ready`."""

    priority: Priority
    is_new: bool
    ends: bool


class _LeftError(Exception):
    """Nobody waits for the reply any more."""


class Reply:
    """One reply on one surface.

    What is fed is shown by a task of its own, which always shows the newest text: the model is never held up
    by the platform, and a call to the platform is never cancelled.

    Args:
        known: the ids of the messages that stand already.
        keep: awaited with the ids of all its messages whenever they change.
        hold: awaited before they do.
        most: how many messages it may have. Of a longer text they show the beginning, and a file the whole.
        say: the language of what it says in the bot's own name.
        controls: the buttons under it while it grows.
        seen: called whenever something is shown.

    Attributes:
        orphans: the ids of messages that were posted when another process had taken the turn, which may not know them.
    """

    def __init__(
        self,
        surface: Surface,
        *,
        known: Sequence[str] = (),
        keep: Keep,
        hold: Hold = _at_will,
        most: int = MOST_MESSAGES,
        say: Words = words.ENGLISH,
        controls: Sequence[Button] = (),
        seen: Seen = lambda _: None,
    ) -> None:
        self._surface = surface
        self._seen = seen
        self._known = list(known)
        self._keep = keep
        self._hold = hold
        self._most = most
        self.say = say
        self.orphans = list[str]()
        self._ending = ""
        self._files: list[File] = []
        self._controls = controls
        self._planner = Planner(surface.limits)
        self._status = ""
        self._final: Priority | None = None
        self._is_abandoned = self._is_refused = False
        self._since: float | None = None  # when what is shown became out of date
        self._has_words = False
        self._shows_words = False
        self._settled = 0  # how many of the messages stand as they are to stay
        self._changed = asyncio.Event()
        self._grown = asyncio.Event()
        self._place: asyncio.Task[None] | None = None  # that is waited for, in the platform's budget
        self._heard_at = 0.0
        self._writer: asyncio.Task[None] | None = None

    @property
    def text(self) -> str:
        return self._planner.text

    @property
    def said(self) -> str:
        """The text without the ending that it was closed with."""
        return self.text.removesuffix(self._ending)

    @property
    def is_closed(self) -> bool:
        """Whether it has been given its last word, shown or not."""
        return self._final is not None

    async def __aenter__(self) -> Self:
        """Begin to show: first a placeholder."""
        self._heard_at = event_loop.now()
        self._writer = asyncio.create_task(self._write(), name="reply")
        return self

    async def __aexit__(self, *_error: object) -> None:
        """End what was not closed."""
        await self.leave()

    async def leave(self) -> None:
        """Show no more of it: the call in flight ends by itself, and no other is made; nor is that one made again."""
        if self._writer is None:
            return
        self._is_abandoned = True
        self._touch(is_urgent=True)
        await end([self._writer], ABANDON_TIMEOUT)
        if self._writer.done() and not self._writer.cancelled():
            self._writer.exception()  # whoever closed it has it; of a reply that nobody closes, nobody wants it

    def feed(self, delta: str) -> None:
        self._planner.feed(delta)
        self._status = ""
        self._speak()
        self._hear()

    def replace(self, text: str) -> None:
        if text == (before := self._planner.text):
            return
        if not text.startswith(before):
            self._settled = 0
        self._planner.replace(text)
        if text:
            self._speak()
        self._hear()

    def status(self, line: str) -> None:
        """Show `line` under the text until more of it comes."""
        self._status = line
        self._hear()

    def offer(self, controls: Sequence[Button]) -> None:
        """Show other buttons while it grows."""
        if not self.is_closed:
            self._controls = controls
            self._touch()

    async def close(
        self,
        text: str,
        priority: Priority = Priority.FINAL,
        *,
        ending: str = "",
        controls: Sequence[Button] = (),
        files: Sequence[File] = (),
    ) -> None:
        """Show `text`, whole, as the reply's last word; returns when the platform has confirmed it.

        Args:
            ending: what stands below the text, however long that is.
            controls: the buttons under it.
            files: what comes with it; those that cannot be shown are named below the text.

        Raises:
            SurfaceError: it cannot be shown.
        """
        is_another = self.is_closed
        self._status, self._final, self._controls, self._files = "", priority, controls, list(files)
        self._end(text, ending)
        self._touch(is_urgent=True)
        assert self._writer is not None, "a reply is closed inside its `async with`"
        if self._writer.done() and (is_another or self._writer.exception() is None):  # it has had its last word
            self._writer = asyncio.create_task(self._write(), name="reply")
        await asyncio.shield(self._writer)

    def _end(self, text: str, ending: str) -> None:
        self._ending = ending
        self._planner.replace(f"{close_code_fence(text)}\n\n{ending}".strip() if ending else text)

    def _without(self, refused: FileRefusedError) -> None:
        """Do without files that cannot be shown."""
        if FILE_NAME in refused.names and FILE_NAME not in [file.name for file in self._files]:
            log.warning("the text that no file can be had for goes into messages: %s", refused)
            self._most = sys.maxsize
        lost = [file for file in self._files if file.name in refused.names]
        self._files = [file for file in self._files if file not in lost]
        if lost:
            log.warning("files of a reply cannot be shown: %s", refused)
            told = (
                self.say(words.NOT_ATTACHED, name=f"`{file.name}`", size=format_size(len(file.data))) for file in lost
            )
            self._end(self.said.rstrip(), "\n\n".join(filter(None, [*told, self._ending])))

    def _speak(self) -> None:
        """The first words are there: they have no pace to keep."""
        if not self._has_words:
            self._has_words = True
            self._hurry()

    def _hear(self) -> None:
        self._heard_at = event_loop.now()
        self._touch(is_urgent=self._planner.has_grown)  # what is full goes first

    def _touch(self, *, is_urgent: bool = False) -> None:
        if self._since is None:
            self._since = event_loop.now()
        self._changed.set()
        if is_urgent:
            self._grown.set()
            self._hurry()

    def _hurry(self) -> None:
        """What has come changes who may go first: who waits for a place looks again."""
        if self._place is not None and not self._place.cancelling():
            self._place.cancel()

    async def _write(self) -> None:
        """Show the newest text whenever the platform allows it, until the last word stands."""
        is_first = True
        with self._surface.track_reply(), cancel_unless(self._go_on):
            while not self._is_abandoned:
                self._grown.clear()
                await self._planner.catch_up()
                move = self._move(is_first)
                if move is None:
                    if is_first:
                        self._surface.add_queued_reaction()
                    await self._news(self._grown)
                    continue
                if not await self._may_go(move):
                    continue
                await self._hold()
                await self._planner.catch_up()
                self._changed.clear()
                is_last, since, self._since = self._final is not None, self._since, None
                before, self._settled, has_text = self._settled, self._planner.full, bool(self._planner.text)
                plan = self._plan(before, self._final if self._final is not None else move.priority)
                try:
                    shown = await self._show(plan)
                finally:
                    if is_first:
                        await self._surface.remove_queued_reaction()
                        is_first = False
                if shown:
                    self._seen(has_text)
                    self._shows_words |= has_text and plan.chunks[0].text != words.PLACEHOLDER
                if shown and len(self._known) > (count := len(plan.chunks) + len(plan.files)):
                    del self._known[count:]
                    await self._keep(self._known)
                if is_last and shown and not self._changed.is_set():
                    return
                if not shown:
                    self._since, self._settled = since, min(before, self._settled)
                elif plan.is_growing and not self._is_abandoned:
                    await self._news(self._changed)

    async def _show(self, plan: Plan) -> bool:
        """Whether it stands now. What the platform will not have of it may be such that it has the whole."""
        try:
            return await self._surface.show(plan, tuple(self._known), self._record)
        except FileRefusedError as error:
            self._without(error)
        except EditRefusedError as error:
            log.warning("a part of a reply cannot be shown: the whole is tried at its end (%s)", error)
            self._is_refused = True
        return False

    async def _go_on(self) -> None:
        """See that more is to be shown, before a call is made that had to wait."""
        if self._is_abandoned:
            raise _LeftError
        await self._hold()

    def _move(self, is_first: bool) -> _Move | None:
        """What is to be shown next; none as long as it has to wait for a message to be full.

        A message that grows has to be ended by a call of its own. When there is none to spare, a message is shown
        when it is whole, by the post that it takes anyway, and one that has begun to grow is ended when it is full,
        before others grow: that call is owed, and kept back.
        """
        is_new = len(self._known) <= self._settled
        if self._final is not None:
            return _Move(self._final, is_new=is_new, ends=True)
        if self._is_refused:
            return None
        full, soon = self._planner.full, Priority.PROGRESS if is_first else Priority.STREAM_UPDATE
        if full > self._settled:
            return _Move(Priority.PROGRESS, is_new=is_new, ends=len(self._known) <= full)
        if self._surface.try_open() or len(self._known) > full:
            return _Move(soon, is_new=is_new, ends=False)
        return None

    async def _news(self, event: asyncio.Event) -> None:
        """Wait for something new to show. Time that passes is news: one sees for how long nothing has come, and what
        the surface has open may have to be closed.
        """
        try:
            async with asyncio.timeout(SILENCE):
                await event.wait()
        except TimeoutError:
            self._touch()

    async def _may_go(self, move: _Move) -> bool:
        """Wait for a place in the platform's budget; false if something has come that changes who may go first."""
        since = event_loop.now() if self._since is None else self._since
        since = FIRST_TEXT if self._has_words and not self._shows_words else since
        ready = self._surface.acquire_slot(
            move.priority, is_post=move.is_new, is_last_edit=move.ends, outdated_since=since
        )
        place = self._place = asyncio.create_task(ready, name="place")
        try:
            await asyncio.wait([place])
        finally:
            self._place = None
            if not place.done():
                place.cancel()
                await asyncio.wait([place])
        return not place.cancelled() and not self._is_abandoned

    def _plan(self, settled: int, priority: Priority) -> Plan:
        plan = self._planner.plan(priority, nothing=self.say(words.NO_ANSWER))
        if not plan.chunks:
            text = f"{self._status or words.PLACEHOLDER}{self._waited}"
            chunks: Sequence[Chunk] = [Chunk(0, 0, text)]
            return Plan(
                chunks, priority, self._controls, (), plan.is_growing, status=self._status, elapsed=self._waited
            )
        if self._final is not None:
            is_short = len(plan.chunks) <= self._most
            return replace(plan, buttons=self._controls, files=self._files) if is_short else self._beginning(plan)
        full = self._planner.full
        if settled < full >= len(self._known):  # none of them grows; whether the next one may is seen then
            controls = self._controls if full > self._most else ()  # the last one that may be seen is all that will be
            return Plan(self._at_most(plan.chunks[:full], ""), priority, controls)
        status, waited = (f"{self._status}{self._waited}", self._waited) if self._status else ("", "")
        chunks = self._at_most(plan.chunks, status)
        return Plan(chunks, priority, self._controls, (), plan.is_growing, status=self._status, elapsed=waited)

    def _at_most(self, chunks: Sequence[Chunk], status: str) -> Sequence[Chunk]:
        """As many chunks as there may be, with a line below them that says what goes on."""
        if len(chunks) > self._most:
            return with_line(chunks[: self._most], status or self.say(words.GOES_ON))
        return with_line(chunks, status) if status else chunks

    def _beginning(self, plan: Plan) -> Plan:
        """What is shown of a reply that is too long, with the whole in a file."""
        files, line = [File(FILE_NAME, self.text.encode()), *self._files], self.say(words.IN_FILE)
        if not self._ending:
            return Plan(with_line(plan.chunks[: self._most], line), plan.priority, self._controls, files)
        chunks = plan.chunks[: max(1, self._most - 1)]
        ending = Planner(self._surface.limits)  # it may be long, and names files
        ending.feed(self._ending)
        end = Chunk(chunks[-1].end, len(self.text), f"{line}\n\n{ending.plan(plan.priority).chunks[0].text}")
        return Plan([*chunks, end], plan.priority, self._controls, files)

    @property
    def _waited(self) -> str:
        """For how long nothing has come, if it is long."""
        seconds = event_loop.now() - self._heard_at
        return self.say.waited(int(seconds // SILENCE * SILENCE)) if seconds >= SILENCE else ""

    async def _record(self, position: int, message_id: str) -> None:
        self._known[position:] = [message_id, *self._known[position + 1 :]]
        try:
            await self._keep(self._known)
        except TurnLostError:
            self.orphans.append(message_id)
            raise
