"""Reply of one turn: shows the model's text on a surface while it is generated."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from channels.base import FIRST_TEXT, Button, Chunk, File, FileRefusedError, Plan, Priority, ShownToolCall
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.rate_limits.retries import RefusedError, cancel_unless
from channels.replies.chunk_planner import ChunkPlanner, append_line
from channels.replies.diff import Operation
from channels.replies.executor import Executor, SaveMessageIds
from channels.replies.surface import Surface
from channels.settings import MAX_MESSAGES
from core.concurrency import event_loop
from core.concurrency.tasks import drain_tasks
from core.models.finish_reasons import close_blocks
from core.models.media import format_size

log = logging.getLogger(__name__)

#: The name of the file with a text that is too long for messages.
FILE_NAME = "answer.md"

#: Seconds without activity after which a reply shows the elapsed time, and between its updates.
SILENCE_SECONDS = 15.0

#: Seconds that the running call of an abandoned reply may take.
ABANDON_TIMEOUT_SECONDS = 30.0

#: Awaited before each change of a reply; raises `TurnLostError` if another process has claimed the turn.
CheckOwned = Callable[[], Awaitable[None]]


async def _allow() -> None:
    """Do nothing: the default check for a reply that no other process can show."""


#: Called with whether the shown reply has text.
OnShown = Callable[[bool], None]


@dataclass(frozen=True, slots=True)
class _Final:
    """Arguments of `Reply.close` besides the text and the buttons."""

    priority: Priority
    ending: str
    files: Sequence[File]


class _AbandonedError(Exception):
    """The reply was abandoned: see `Reply.abandon`."""


class Reply:
    """Posts the answer of one turn, and edits its messages as the text grows.

    A background task always shows the newest text: the model never waits for the platform. Use the reply with `async
    with`, and `close` it with the final text.

    Args:
        known_ids: the ids of the reply's messages that an earlier attempt posted.
        save_ids: awaited with the ids of all messages whenever they change.
        check_owned: awaited before each change; raises `TurnLostError` if another process has claimed the turn.
        max_messages: the most messages. Of a longer text they show the start, and `close` attaches the whole as the
            file `FILE_NAME`. If the platform refuses that file, `close` shows the whole in messages.
        on_shown: called after each change with whether the reply has text; if not, it shows a placeholder.
        has_placeholder: whether a placeholder is shown before the first text.
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
        self._executor = Executor(surface, known_ids, save_ids)
        self._check_owned = check_owned
        self._max_messages = min(max_messages, surface.max_messages)
        self.say = say
        self._on_shown = on_shown
        self._has_placeholder = has_placeholder
        self._planner = ChunkPlanner(surface.limits)
        self._buttons = buttons
        self._status = ""
        self._tool_calls: Sequence[ShownToolCall] = ()
        self._final: _Final | None = None
        self._is_abandoned = False
        self._shows_text = False
        self._outdated_since: float | None = None  # the loop's time since which the shown text is out of date
        self._last_activity_at = 0.0
        self._newest_plan: Plan | None = None  # None: it is to be made
        self._changed = asyncio.Event()
        self._urgent = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None

    @property
    def text(self) -> str:
        """The text so far, in Markdown; once closed, with the `ending` that `close` added."""
        return self._planner.text

    @property
    def text_without_ending(self) -> str:
        return self.text.removesuffix(self._final.ending) if self._final is not None else self.text

    @property
    def is_closed(self) -> bool:
        """True once `close` was called, even if the final text is not shown yet."""
        return self._final is not None

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
        """Abandon the reply, and delete its messages and the "queued" reaction, if this worker still owns the turn."""
        await self.abandon()
        self._surface.remove_queued_reaction()
        if self._executor.shown.messages:
            await self._check_owned()
            await self._executor.delete_messages()

    def feed(self, delta: str) -> None:
        """Append text that the model generated, and clear the status line."""
        had_text = self._planner.has_text
        self._planner.feed(delta)
        self._status = ""
        self._on_text(had_text)

    def replace(self, text: str) -> None:
        """Replace the whole text, such as by the final text of a model call; the status line stays."""
        if text != self._planner.text:
            had_text = self._planner.has_text
            self._planner.replace(text)
            self._on_text(had_text)

    def show_status(self, line: str, tool_calls: Sequence[ShownToolCall] = ()) -> None:
        """Show a Markdown line, such as the running tool, below the text until text arrives; empty for none."""
        self._status = line
        self._tool_calls = tool_calls
        self._on_activity()

    def update_buttons(self, buttons: Sequence[Button]) -> None:
        """Change the buttons under the reply with the next update; do nothing once `close` was called."""
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
            ending: Markdown to show below the text, even if the text is truncated.
            files: the files to attach; a note below the text names those that the platform refuses.

        Raises:
            SurfaceError: the reply cannot be shown.
            StoreError: the ids of its messages cannot be stored.
            TurnLostError: another worker has claimed the turn.
        """
        is_repeated = self.is_closed
        self._status = ""
        self._buttons = buttons
        self._final = _Final(priority, ending, files)
        self._set_final_text(text)
        self._mark_dirty(is_urgent=True)
        assert self._writer is not None, "a reply is closed inside its `async with`"
        if self._writer.done() and (is_repeated or self._writer.exception() is None):  # it has shown a final text
            self._writer = asyncio.create_task(self._show_until_closed(), name="reply")
        await asyncio.shield(self._writer)

    def _set_final_text(self, text: str) -> None:
        ending = self._final.ending if self._final is not None else ""
        self._planner.replace(f"{close_blocks(text)}\n\n{ending}".strip() if ending else text)

    def _drop_files(self, final: _Final, refused: FileRefusedError) -> None:
        """Remove refused files from the reply, and add a note below its text for each.

        If the platform refuses `FILE_NAME`, the file with a long text, later calls show the whole text in messages; if
        it shows no more messages, the error is raised.
        """
        if FILE_NAME in refused.names and FILE_NAME not in [file.name for file in final.files]:
            if self._max_messages == self._surface.max_messages:
                raise refused
            log.warning("the platform refuses the file of a long text, which goes into messages: %s", refused)
            self._max_messages = self._surface.max_messages
        dropped = [file for file in final.files if file.name in refused.names]
        if dropped:
            log.warning("the platform refuses files of a reply: %s", refused)
            notes = (
                self.say(words.FILE_NOT_ATTACHED, name=f"`{file.name}`", size=format_size(len(file.data)))
                for file in dropped
            )
            text = self.text_without_ending.rstrip()
            files = [file for file in final.files if file not in dropped]
            self._final = _Final(final.priority, "\n\n".join(filter(None, [*notes, final.ending])), files)
            self._set_final_text(text)
        self._mark_dirty()

    def _on_text(self, had_text: bool) -> None:
        """Show new text; the first text of the reply does not wait its turn."""
        if self._planner.has_text and not had_text:
            self._executor.interrupt()
            if not self._has_placeholder:
                self._urgent.set()  # nothing was shown until now
        self._on_activity()

    def _on_activity(self) -> None:
        self._last_activity_at = event_loop.now()
        self._mark_dirty(is_urgent=self._planner.is_due)  # a full chunk goes first

    def _mark_dirty(self, *, is_urgent: bool = False) -> None:
        if self._outdated_since is None:
            self._outdated_since = event_loop.now()
        self._newest_plan = None
        self._changed.set()
        if is_urgent:
            self._urgent.set()
            self._executor.interrupt()

    async def _show_until_closed(self) -> None:
        """Show the newest text whenever the rate limits allow, until the final text."""
        with self._executor.track(), cancel_unless(self._check_active):
            while not self._is_abandoned:
                self._urgent.clear()
                plan = await self._get_newest_plan()
                operation = self._executor.choose(plan) if plan is not None else None
                if plan is None or operation is None:
                    if plan is None or not plan.is_final:
                        await self._wait_for_change(plan)
                        continue
                    await self._surface.notify_author()
                    if self._newest_plan is plan:
                        return
                elif not self._executor.has_slot(operation):
                    await self._executor.acquire_slot(operation, self._get_wait_start())
                else:
                    await self._check_owned()
                    await self._execute(operation, plan)

    async def _execute(self, operation: Operation, plan: Plan) -> None:
        outdated_since = self._outdated_since
        has_text = self._planner.has_text
        self._outdated_since = None
        try:
            is_done = await self._executor.execute(operation, plan)
        except FileRefusedError as refused:
            assert self._final is not None, "only a final text has files"
            self._drop_files(self._final, refused)
            return
        except RefusedError as refusal:
            await self._surface.explain_refusal(refusal)
            raise
        finally:
            self._surface.remove_queued_reaction()
        if is_done:
            self._on_shown(has_text)
            self._shows_text |= has_text and plan.chunks[0].text != words.PLACEHOLDER
        else:
            self._outdated_since = outdated_since

    async def _check_active(self) -> None:
        if self._is_abandoned:
            raise _AbandonedError
        await self._check_owned()

    async def _wait_for_change(self, plan: Plan | None) -> None:
        """Wait until there is more to show than a plan, for at most `SILENCE_SECONDS`.

        After that time the reply is marked for an update: its status line shows the elapsed time, and a Slack stream
        that gets too old is ended. If the rate limits do not allow the plan, only an urgent change ends the wait.
        """
        is_shown = plan is not None and self._executor.is_shown(plan)
        if plan is not None and not is_shown and not self._executor.shown.messages:
            self._surface.add_queued_reaction()
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                await (self._changed if is_shown else self._urgent).wait()
        except TimeoutError:
            self._mark_dirty()

    def _get_wait_start(self) -> float:
        """Return the time of the event loop from which the age of the next call counts."""
        if self._planner.has_text and not self._shows_text:
            return FIRST_TEXT
        return event_loop.now() if self._outdated_since is None else self._outdated_since

    async def _get_newest_plan(self) -> Plan | None:
        await self._planner.catch_up()
        if not (self._has_placeholder or self._planner.has_text or self.is_closed):
            return None
        if self._newest_plan is None:
            self._changed.clear()
            plan = self._plan()
            buttons = self._surface.filter_buttons(self._buttons)
            self._newest_plan = replace(plan, buttons=buttons, tool_calls=self._tool_calls)
        return self._newest_plan

    def _plan(self) -> Plan:
        priority = self._final.priority if self._final is not None else Priority.STREAM_UPDATE
        plan = self._planner.plan(priority, empty_text=self.say(words.NO_ANSWER))
        if not plan.chunks:
            text = f"{self._status or words.PLACEHOLDER}{self._elapsed_text}"
            return replace(plan, chunks=[Chunk(0, 0, text)], status=self._status, elapsed=self._elapsed_text)
        if self._final is not None:
            is_short = len(plan.chunks) <= self._max_messages
            return replace(plan, files=self._final.files) if is_short else self._plan_with_file(plan, self._final)
        status, elapsed = (f"{self._status}{self._elapsed_text}", self._elapsed_text) if self._status else ("", "")
        return replace(plan, chunks=self._limit_chunks(plan.chunks, status), status=self._status, elapsed=elapsed)

    def _limit_chunks(self, chunks: Sequence[Chunk], status: str) -> Sequence[Chunk]:
        """Return the first `max_messages` chunks, with a line below: the status, or that the text goes on in a file."""
        if len(chunks) <= self._max_messages:
            return append_line(chunks, status) if status else chunks
        *front, last = chunks[: self._max_messages]
        last = replace(last, stable_length=len(last.text))
        return append_line([*front, last], status or self.say(words.CONTINUES_IN_FILE))

    def _plan_with_file(self, plan: Plan, final: _Final) -> Plan:
        """Return the plan of a reply that is too long: its start, and the whole as a file."""
        files = [File(FILE_NAME, self.text.encode()), *final.files]
        line = self.say(words.FULL_ANSWER_IN_FILE)
        if not final.ending:
            return replace(plan, chunks=append_line(plan.chunks[: self._max_messages], line), files=files)
        chunks = plan.chunks[: max(1, self._max_messages - 1)]
        ending = ChunkPlanner(self._surface.limits)  # the ending may be long: it names refused files
        ending.feed(final.ending)
        end = Chunk(chunks[-1].end, len(self.text), f"{line}\n\n{ending.plan(plan.priority).chunks[0].text}")
        return replace(plan, chunks=[*chunks, end], files=files)

    @property
    def _elapsed_text(self) -> str:
        """The time without new text or status, rounded down to a multiple of `SILENCE_SECONDS`; empty if shorter."""
        seconds = event_loop.now() - self._last_activity_at
        return (
            self.say.format_elapsed(int(seconds // SILENCE_SECONDS * SILENCE_SECONDS))
            if seconds >= SILENCE_SECONDS
            else ""
        )
