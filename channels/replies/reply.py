"""Reply of one turn: shows the model's text on a surface while it is generated."""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from channels.base import (
    FIRST_TEXT,
    Button,
    Chunk,
    EditRefusedError,
    File,
    FileRefusedError,
    Plan,
    Priority,
    ShownToolCall,
    Surface,
)
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.rate_limits.caller import cancel_unless
from channels.replies.chunk_planner import ChunkPlanner, append_line
from channels.settings import MAX_MESSAGES
from core.concurrency import event_loop
from core.concurrency.tasks import drain_tasks
from core.errors import TurnLostError
from core.models.finish_reasons import close_blocks
from core.models.media import format_size

log = logging.getLogger(__name__)

#: The name of the file with a text that is too long for messages.
FILE_NAME = "answer.md"

#: Seconds without activity after which a reply shows the elapsed time, and between its updates.
SILENCE_SECONDS = 15.0

#: Seconds that the running call of an abandoned reply may take.
ABANDON_TIMEOUT_SECONDS = 30.0

#: Awaited with the ids of all messages of a reply whenever they change.
SaveMessageIds = Callable[[Sequence[str]], Awaitable[None]]

#: Awaited before each change of a reply; raises `TurnLostError` if another process has claimed the turn.
CheckOwned = Callable[[], Awaitable[None]]


async def _allow() -> None:
    """Do nothing: the default check for a reply that no other process can show."""


#: Called with whether the shown reply has text.
OnShown = Callable[[bool], None]


@dataclass(frozen=True, slots=True)
class _NextCall:
    """Parameters of the next `Surface.acquire_slot`."""

    priority: Priority
    is_post: bool
    is_last_edit: bool


class _AbandonedError(Exception):
    """The reply was abandoned: see `Reply.abandon`."""


class Reply:
    """Posts the answer of one turn, and edits its messages as the text grows.

    A background task always shows the newest text: the model never waits for the platform. Use the reply with `async
    with`, and `close` it with the final text.

    Args:
        surface: the place on the platform.
        known_ids: the ids of the reply's messages that an earlier attempt posted.
        save_ids: awaited with the ids of all messages whenever they change.
        check_owned: awaited before each change; raises `TurnLostError` if another process has claimed the turn.
        max_messages: the most messages. Of a longer text they show the start, and `close` attaches the whole as the
            file `FILE_NAME`. If the platform refuses that file, `close` shows the whole in messages.
        say: the message catalogue of the author's language.
        buttons: the buttons under the growing reply.
        on_shown: called after each change with whether the reply has text; if not, it shows a placeholder.
        has_placeholder: whether a placeholder is shown before the first text.

    Attributes:
        orphaned_ids: the ids of messages, and the entries of files (`file:ID:NAME`), that were posted after another
            process had claimed the turn.
    """

    def __init__(
        self,
        surface: Surface,
        *,
        known_ids: Sequence[str] = (),
        save_ids: SaveMessageIds,
        check_owned: CheckOwned = _allow,
        max_messages: int = MAX_MESSAGES,
        say: MessageCatalog = words.ENGLISH,
        buttons: Sequence[Button] = (),
        on_shown: OnShown = lambda _: None,
        has_placeholder: bool = True,
    ) -> None:
        self._surface = surface
        self._on_shown = on_shown
        self._has_placeholder = has_placeholder
        self._known_ids = list(known_ids)
        self._save_ids = save_ids
        self._check_owned = check_owned
        self._max_messages = max_messages
        self.say = say
        self.orphaned_ids = list[str]()
        self._ending = ""
        self._files: list[File] = []
        self._buttons = buttons
        self._planner = ChunkPlanner(surface.limits)
        self._status = ""
        self._tool_calls: Sequence[ShownToolCall] = ()
        self._final_priority: Priority | None = None
        self._is_abandoned = self._is_refused = False
        self._outdated_since: float | None = None  # the loop's time since which the shown text is out of date
        self._has_text = False
        self._shows_text = False
        self._final_count = 0  # chunks that are shown and full
        self._changed = asyncio.Event()
        self._urgent = asyncio.Event()
        self._slot: asyncio.Task[None] | None = None  # the wait for a slot of the rate limits
        self._last_activity_at = 0.0
        self._writer: asyncio.Task[None] | None = None

    @property
    def text(self) -> str:
        """The text so far, in Markdown; once closed, with the `ending` that `close` added."""
        return self._planner.text

    @property
    def text_without_ending(self) -> str:
        """The text without the `ending` that `close` added."""
        return self.text.removesuffix(self._ending)

    @property
    def is_closed(self) -> bool:
        """True once `close` was called, even if the final text is not shown yet."""
        return self._final_priority is not None

    async def __aenter__(self) -> Self:
        """Start the background task that shows the reply, first with a placeholder."""
        self._last_activity_at = event_loop.now()
        self._writer = asyncio.create_task(self._show_until_closed(), name="reply")
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Abandon the reply: see `abandon`. A final text that is shown stays."""
        await self.abandon()

    async def abandon(self) -> None:
        """Stop updating the reply, and wait for the platform call that is running.

        That call is not retried, and is cancelled after `ABANDON_TIMEOUT_SECONDS`. The posted messages stay.
        """
        if self._writer is None:
            return
        self._is_abandoned = True
        self._mark_dirty(is_urgent=True)
        await drain_tasks([self._writer], ABANDON_TIMEOUT_SECONDS)
        if self._writer.done() and not self._writer.cancelled():
            self._writer.exception()  # marks it as retrieved: `close` has raised it

    async def discard(self) -> None:
        """Abandon the reply, and delete its messages and the "queued" reaction.

        Raises:
            SurfaceError: the messages cannot be deleted.
            StoreError: the message ids cannot be deleted from the database.
            TurnLostError: another worker has claimed the turn.
        """
        await self.abandon()
        await self._surface.remove_queued_reaction()
        if self._known_ids:
            await self._check_owned()
            await self._surface.delete_messages(self._known_ids)
            self._known_ids.clear()
            await self._save_ids(self._known_ids)

    def feed(self, delta: str) -> None:
        """Append text that the model generated, and clear the status line."""
        self._planner.feed(delta)
        self._status = ""
        self._on_first_text()
        self._on_activity()

    def replace(self, text: str) -> None:
        """Replace the whole text of the reply, such as by the final text of a model call.

        The status line stays.
        """
        if text == (before := self._planner.text):
            return
        if not text.startswith(before):
            self._final_count = 0
        self._planner.replace(text)
        if text:
            self._on_first_text()
        self._on_activity()

    def show_status(self, line: str, tool_calls: Sequence[ShownToolCall] = ()) -> None:
        """Show a status line, such as the running tool, below the text until text arrives.

        Args:
            line: Markdown; empty for none.
            tool_calls: the tool calls of the run so far, in order.
        """
        self._status = line
        self._tool_calls = tool_calls
        self._on_activity()

    def update_buttons(self, buttons: Sequence[Button]) -> None:
        """Change the buttons under the reply; do nothing once `close` was called.

        The background task shows them with its next update.
        """
        if not self.is_closed:
            self._buttons = buttons
            self._mark_dirty()

    async def close(
        self,
        text: str,
        priority: Priority = Priority.FINAL,
        *,
        ending: str = "",
        buttons: Sequence[Button] = (),
        files: Sequence[File] = (),
    ) -> None:
        """Show the final text, and return when the platform has confirmed it.

        The status line is removed. A second call replaces the final text.

        Args:
            text: the whole text of the reply. If it is blank and `ending` is empty, only the placeholder is shown,
                without the files.
            priority: the priority of the platform calls.
            ending: Markdown to show below the text, even if the text is truncated.
            buttons: the buttons under the reply.
            files: the files to attach; a note below the text names those that the platform refuses.

        Raises:
            SurfaceError: the reply cannot be shown.
            StoreError: the ids of its messages cannot be stored.
            TurnLostError: another worker has claimed the turn.
        """
        is_repeated = self.is_closed
        self._status, self._final_priority, self._buttons, self._files = "", priority, buttons, list(files)
        self._set_final_text(text, ending)
        self._mark_dirty(is_urgent=True)
        assert self._writer is not None, "a reply is closed inside its `async with`"
        if self._writer.done() and (
            is_repeated or self._writer.exception() is None
        ):  # it has shown a final text before
            self._writer = asyncio.create_task(self._show_until_closed(), name="reply")
        await asyncio.shield(self._writer)

    def _set_final_text(self, text: str, ending: str) -> None:
        self._ending = ending
        self._planner.replace(f"{close_blocks(text)}\n\n{ending}".strip() if ending else text)

    def _drop_files(self, refused: FileRefusedError) -> None:
        """Remove refused files from the reply, and add a note below its text for each.

        If the platform refuses `FILE_NAME`, the file with a long text, later calls show the whole text in messages.

        Args:
            refused: the error with the names of the files; it is logged.
        """
        if FILE_NAME in refused.names and FILE_NAME not in [file.name for file in self._files]:
            log.warning("the platform refuses the file of a long text, which goes into messages: %s", refused)
            self._max_messages = sys.maxsize
        dropped = [file for file in self._files if file.name in refused.names]
        self._files = [file for file in self._files if file not in dropped]
        if dropped:
            log.warning("the platform refuses files of a reply: %s", refused)
            notes = (
                self.say(words.FILE_NOT_ATTACHED, name=f"`{file.name}`", size=format_size(len(file.data)))
                for file in dropped
            )
            self._set_final_text(self.text_without_ending.rstrip(), "\n\n".join(filter(None, [*notes, self._ending])))

    def _on_first_text(self) -> None:
        """Make the next call urgent when the first text of the reply arrives."""
        if not self._has_text:
            self._has_text = True
            self._reprioritize()
            if not self._has_placeholder:
                self._urgent.set()  # nothing was shown until now

    def _on_activity(self) -> None:
        self._last_activity_at = event_loop.now()
        self._mark_dirty(is_urgent=self._planner.is_due)  # a full chunk goes first

    def _mark_dirty(self, *, is_urgent: bool = False) -> None:
        if self._outdated_since is None:
            self._outdated_since = event_loop.now()
        self._changed.set()
        if is_urgent:
            self._urgent.set()
            self._reprioritize()

    def _reprioritize(self) -> None:
        """Cancel the background task's wait for a slot of the rate limits, if it waits.

        The background task then starts a new wait, with a new priority.
        """
        if self._slot is not None and not self._slot.cancelling():
            self._slot.cancel()

    async def _show_until_closed(self) -> None:
        """Show the newest text whenever the rate limits allow, until the final text.

        This is the background task of the reply. It also stores the message ids, and adds and removes the "queued"
        reaction on the user's message.
        """
        is_first = True
        with self._surface.track_reply(), cancel_unless(self._check_active):
            while not self._is_abandoned:
                self._urgent.clear()
                await self._planner.catch_up()
                next_call = self._get_next_call(is_first)
                if next_call is None:
                    if is_first and self._has_placeholder:
                        self._surface.add_queued_reaction()
                    await self._wait_for_change(self._urgent)
                    continue
                if not await self._wait_for_slot(next_call):
                    continue
                await self._check_owned()
                await self._planner.catch_up()
                self._changed.clear()
                is_final, outdated_since, self._outdated_since = (
                    self._final_priority is not None,
                    self._outdated_since,
                    None,
                )
                former_count, self._final_count, has_text = (
                    self._final_count,
                    self._planner.full_count,
                    bool(self._planner.text),
                )
                priority = self._final_priority if self._final_priority is not None else next_call.priority
                plan = replace(self._plan(former_count, priority), tool_calls=self._tool_calls)
                try:
                    is_shown = await self._show(plan)
                finally:
                    if is_first:
                        await self._surface.remove_queued_reaction()
                        is_first = False
                if is_shown:
                    self._on_shown(has_text)
                    self._shows_text |= has_text and plan.chunks[0].text != words.PLACEHOLDER
                if is_shown and len(self._known_ids) > (count := len(plan.chunks) + len(plan.files)):
                    del self._known_ids[count:]
                    await self._save_ids(self._known_ids)
                if is_final and is_shown and not self._changed.is_set():
                    return
                if not is_shown:
                    self._outdated_since, self._final_count = outdated_since, min(former_count, self._final_count)
                elif plan.is_growing and not self._is_abandoned:
                    await self._wait_for_change(self._changed)

    async def _show(self, plan: Plan) -> bool:
        """Show a plan on the surface.

        Returns:
            True if the whole plan is shown. False if the rate limits dropped it, or the platform refused a file or an
            edit: a new plan is then to be shown. Refused files are dropped: see `_drop_files`. After a refused edit,
            only the final text is shown.
        """
        try:
            return await self._surface.show(plan, tuple(self._known_ids), self._record)
        except FileRefusedError as error:
            self._drop_files(error)
        except EditRefusedError as error:
            log.warning("the platform refuses an edit of a reply; its final text is tried: %s", error)
            self._is_refused = True
        return False

    async def _check_active(self) -> None:
        """Check that the reply is not abandoned and this worker still owns the turn.

        Raises:
            _AbandonedError: the reply was abandoned.
            TurnLostError: another worker has claimed the turn.
        """
        if self._is_abandoned:
            raise _AbandonedError
        await self._check_owned()

    def _get_next_call(self, is_first: bool) -> _NextCall | None:
        """Return the parameters of the next platform call; None while none is to be made.

        A growing message needs one more call, which ends it. If the rate limits leave no room for that call, a message
        is posted only when it is full. A full message is completed before the next one grows.

        Args:
            is_first: whether no call was made yet.
        """
        is_new = len(self._known_ids) <= self._final_count
        if self._final_priority is not None:
            return _NextCall(self._final_priority, is_post=is_new, is_last_edit=True)
        if self._is_refused or not (self._has_placeholder or self._planner.text):
            return None
        full_count, priority = self._planner.full_count, Priority.PROGRESS if is_first else Priority.STREAM_UPDATE
        if full_count > self._final_count:
            return _NextCall(Priority.PROGRESS, is_post=is_new, is_last_edit=len(self._known_ids) <= full_count)
        if self._surface.try_open() or len(self._known_ids) > full_count:
            return _NextCall(priority, is_post=is_new, is_last_edit=False)
        return None

    async def _wait_for_change(self, event: asyncio.Event) -> None:
        """Wait until the event is set, for at most `SILENCE_SECONDS`.

        After that time the reply is marked for an update: its status line shows the elapsed time, and a Slack stream
        that gets too old is ended.
        """
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                await event.wait()
        except TimeoutError:
            self._mark_dirty()

    async def _wait_for_slot(self, move: _NextCall) -> bool:
        """Wait for a slot of the rate limits for the next platform call.

        Returns:
            True if the slot is acquired; False if `_reprioritize` cancelled the wait, or the reply is abandoned.
        """
        outdated_since = event_loop.now() if self._outdated_since is None else self._outdated_since
        outdated_since = FIRST_TEXT if self._has_text and not self._shows_text else outdated_since
        acquiring = self._surface.acquire_slot(
            move.priority, is_post=move.is_post, is_last_edit=move.is_last_edit, outdated_since=outdated_since
        )
        slot = self._slot = asyncio.create_task(acquiring, name="place")
        try:
            await asyncio.wait([slot])
        finally:
            self._slot = None
            if not slot.done():
                slot.cancel()
                await asyncio.wait([slot])
        return not slot.cancelled() and not self._is_abandoned

    def _plan(self, shown_count: int, priority: Priority) -> Plan:
        """Return the plan for the next call, with the text, status line and files so far.

        Args:
            shown_count: the number of full chunks that the platform shows.
            priority: the priority of the call.
        """
        plan = self._planner.plan(priority, empty_text=self.say(words.NO_ANSWER))
        if not plan.chunks:
            text = f"{self._status or words.PLACEHOLDER}{self._elapsed_text}"
            chunks: Sequence[Chunk] = [Chunk(0, 0, text)]
            return Plan(
                chunks, priority, self._buttons, (), plan.is_growing, status=self._status, elapsed=self._elapsed_text
            )
        if self._final_priority is not None:
            is_short = len(plan.chunks) <= self._max_messages
            return replace(plan, buttons=self._buttons, files=self._files) if is_short else self._plan_with_file(plan)
        full_count = self._planner.full_count
        if shown_count < full_count >= len(self._known_ids):  # the next call decides whether another one may grow
            controls = self._buttons if full_count > self._max_messages else ()  # no later message will be shown
            return Plan(self._limit_chunks(plan.chunks[:full_count], ""), priority, controls)
        status, elapsed = (f"{self._status}{self._elapsed_text}", self._elapsed_text) if self._status else ("", "")
        chunks = self._limit_chunks(plan.chunks, status)
        return Plan(chunks, priority, self._buttons, (), plan.is_growing, status=self._status, elapsed=elapsed)

    def _limit_chunks(self, chunks: Sequence[Chunk], status: str) -> Sequence[Chunk]:
        """Return the first `max_messages` chunks, with a status line below the last.

        If chunks are left out and `status` is empty, the line says that the text continues in a file.

        Args:
            status: the status line in Markdown; empty for none.
        """
        if len(chunks) > self._max_messages:
            return append_line(chunks[: self._max_messages], status or self.say(words.CONTINUES_IN_FILE))
        return append_line(chunks, status) if status else chunks

    def _plan_with_file(self, plan: Plan) -> Plan:
        """Return the plan of a reply that is too long: its start, and the whole as a file.

        Args:
            plan: the plan with all chunks of the reply.
        """
        files, line = [File(FILE_NAME, self.text.encode()), *self._files], self.say(words.FULL_ANSWER_IN_FILE)
        if not self._ending:
            return Plan(append_line(plan.chunks[: self._max_messages], line), plan.priority, self._buttons, files)
        chunks = plan.chunks[: max(1, self._max_messages - 1)]
        ending = ChunkPlanner(self._surface.limits)  # the ending may be long: it names refused files
        ending.feed(self._ending)
        end = Chunk(chunks[-1].end, len(self.text), f"{line}\n\n{ending.plan(plan.priority).chunks[0].text}")
        return Plan([*chunks, end], plan.priority, self._buttons, files)

    @property
    def _elapsed_text(self) -> str:
        """The time without new text or status, as a text in the author's language.

        It is rounded down to a multiple of `SILENCE_SECONDS`; empty if shorter than that.
        """
        seconds = event_loop.now() - self._last_activity_at
        return (
            self.say.format_elapsed(int(seconds // SILENCE_SECONDS * SILENCE_SECONDS))
            if seconds >= SILENCE_SECONDS
            else ""
        )

    async def _record(self, position: int, message_id: str) -> None:
        """Store the id of a posted message: see `RecordMessageId`.

        Raises:
            TurnLostError: another worker has claimed the turn; the id is added to `orphaned_ids`.
            StoreError: the id cannot be stored.
        """
        self._known_ids[position:] = [message_id, *self._known_ids[position + 1 :]]
        try:
            await self._save_ids(self._known_ids)
        except TurnLostError:
            self.orphaned_ids.append(message_id)
            raise
