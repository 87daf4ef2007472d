"""Executor: executes the operations of one reply on its surface, within the rate limits."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from enum import Enum, auto

from channels.base import FileRefusedError, Plan, Priority
from channels.rate_limits.limiter import RateLimiter
from channels.rate_limits.retries import RefusedError
from channels.replies.diff import (
    AppendStream,
    Attach,
    Delete,
    DeleteStrays,
    Detach,
    Edit,
    FinishStream,
    Limits,
    Operation,
    Post,
    ShownMessage,
    ShownReply,
    StartStream,
    StopStream,
    diff,
)
from channels.replies.stream import MessageStream
from channels.replies.surface import EditOutcome, StreamEndedError, Streams, Surface
from core.concurrency import event_loop
from core.errors import SurfaceError

log = logging.getLogger(__name__)

#: Seconds within which a call without a response may still take effect.
LATE_CALL_SECONDS = 1.0

#: Awaited with the ids of all messages of a reply whenever they change.
SaveMessageIds = Callable[[Sequence[str]], Awaitable[None]]


class _Reserve(Enum):
    """Calls that are reserved for the end of a growing message: the edit after `STOP` removes the placeholder."""

    NOTHING = auto()
    EDIT = auto()
    STOP = auto()
    STOP_AND_EDIT = auto()


class Executor:
    """Executes the operations of one reply on its surface, one at a time.

    It owns the slots of the rate limits: the one for the next call, and the reserve for the end of a growing message.
    `save_ids` is awaited with the ids whenever they change, before the next operation.
    """

    def __init__(self, surface: Surface, known_ids: Sequence[str], save_ids: SaveMessageIds) -> None:
        self._surface = surface
        self._save_ids = save_ids
        self.shown = ShownReply.from_ids(known_ids)
        self._began_at = event_loop.now()
        self._reserve = _Reserve.NOTHING
        self._reserved = ExitStack()
        self._slot: RateLimiter | None = None
        self._acquiring: asyncio.Task[None] | None = None

    @contextmanager
    def track(self) -> Iterator[None]:
        """Show in the `with` block that the reply is written; its end frees all slots."""
        with self._surface.show_processing():
            try:
                yield
            finally:
                self._reserve_end(_Reserve.NOTHING)
                self._release_slot()

    def choose(self, plan: Plan) -> Operation | None:
        """Return the next operation towards a plan, and reserve what the end of a growing message needs.

        The result is None if the plan is shown, or if nothing may be done for it now: see `is_shown`.
        """
        limits = self._get_limits()
        operation = next(diff(plan, self.shown, limits), None)
        if operation is None:
            self._release_slot()  # the text that it was acquired for is not shown any more
        match operation:
            case StartStream():
                self._reserve_end(_Reserve.STOP_AND_EDIT)
            case Post(is_growing=True) | Edit(is_growing=True) if limits.may_grow:
                self._reserve_end(_Reserve.EDIT)
            case None if self.shown.get_message(len(plan.chunks) - 1) is None:
                self._reserve_end(_Reserve.NOTHING)
        return operation

    def is_shown(self, plan: Plan) -> bool:
        """Return whether nothing is to be done for a plan, whatever the rate limits allow now."""
        shown = replace(self.shown, refuses_edits=False)
        return next(diff(plan, shown, replace(self._get_limits(), may_grow=True)), None) is None

    def has_slot(self, operation: Operation) -> bool:
        """Return whether an operation needs no slot, or its slot is acquired."""
        limiter = self._get_limiter(operation)
        return limiter is None or limiter is self._slot

    async def acquire_slot(self, operation: Operation, since: float) -> None:
        """Wait for the slot of an operation, and acquire it, unless `interrupt` ends the wait.

        The caller chooses the operation anew after the wait, so that it shows the newest text. The age of the call
        counts from the loop's time `since`: see `RateLimiter.acquire`.
        """
        self._release_slot()
        limiter = self._get_limiter(operation)
        assert limiter is not None, "the operation needs a slot"
        self._acquiring = asyncio.create_task(self._acquire(limiter, operation.priority, since), name="slot")
        try:
            await asyncio.wait([self._acquiring])
        finally:
            if not self._acquiring.done():
                self._acquiring.cancel()
                await asyncio.wait([self._acquiring])

    async def _acquire(self, limiter: RateLimiter, priority: Priority, since: float) -> None:
        await limiter.acquire(priority, since)
        self._slot = limiter

    def interrupt(self) -> None:
        """End a wait in `acquire_slot`."""
        if self._acquiring is not None and not self._acquiring.cancelling():
            self._acquiring.cancel()

    async def execute(self, operation: Operation, plan: Plan) -> bool:
        """Execute an operation that `choose` returned for a plan.

        The result is False if the rate limits dropped the operation, or its outcome is unknown.

        Raises:
            FileRefusedError: the platform refuses some of the files.
            SurfaceError: the platform refuses the operation, or cannot be reached.
        """
        self._slot = None  # the call completes it
        stored_ids = self.shown.stored_ids
        position = operation.position
        is_done = True
        match operation:
            case Post():
                is_done = await self._post(operation)
            case Edit():
                is_done = await self._edit(operation, plan)
            case StartStream():
                is_done = await self._start_stream(operation, self._streams)
            case AppendStream() | FinishStream():
                is_done = await self._add_to_stream(operation, self._streams)
            case StopStream():
                await self._streams.stop(self._get_message(position).id)
                self._set_message(position, ShownMessage(self._get_message(position).id))
                if operation.ends_streaming:
                    self.shown = replace(self.shown, may_stream=False)
                self._reserve_end(_Reserve.EDIT)
            case Delete():
                await _delete_leftover(self._surface.delete, self._get_message(position).id)
                self._set_message(position, None)
            case DeleteStrays():
                await _wait_until(operation.not_before)
                await self._surface.delete_strays(self.shown.message_ids)
                self.shown = replace(self.shown, strays_until=0.0)
            case Detach():
                await _delete_leftover(self._surface.detach, operation.file_id)
                files = tuple((name, id_) for name, id_ in self.shown.files if id_ != operation.file_id)
                self.shown = replace(self.shown, files=files)
            case Attach():
                await self._attach(plan, self._get_message(position).id)
        if self.shown.stored_ids != stored_ids:
            await self._save_ids(self.shown.stored_ids)
        return is_done

    async def delete_messages(self) -> None:
        """Delete the messages of the reply, and their stored ids; a refusal of the platform is logged."""
        for message_id in self.shown.message_ids:
            await _delete_leftover(self._surface.delete, message_id)
        self.shown = ShownReply()
        await self._save_ids([])

    async def _post(self, operation: Post) -> bool:
        shown = self.shown
        position = operation.position
        outcome = await self._surface.post(operation, previous_id=shown.get_previous_id(position), has_slot=True)
        if outcome.was_lost:
            self.shown = replace(self.shown, strays_until=event_loop.now() + LATE_CALL_SECONDS)
        if not outcome.id:
            self.shown = replace(self.shown, is_post_lost=True)
            return False
        is_known = outcome.is_new and not shown.is_post_lost
        self._set_message(position, ShownMessage(outcome.id, operation.content if is_known else None))
        self.shown = replace(self.shown, is_post_lost=False)
        return True

    async def _edit(self, operation: Edit, plan: Plan) -> bool:
        position = operation.position
        message_id = self._get_message(operation.position).id
        await _wait_until(operation.not_before)
        try:
            outcome = await self._surface.edit(message_id, operation, has_slot=True)
        except RefusedError as refusal:
            if plan.is_final:
                raise
            log.warning("the platform refuses an edit of a reply; its final text is tried: %s", refusal)
            self.shown = replace(self.shown, refuses_edits=True)
            return False
        match outcome:
            case EditOutcome.DONE:
                self._set_message(position, ShownMessage(message_id, operation.content))
            case EditOutcome.GONE:
                self._set_message(position, None)
            case EditOutcome.NO_RESPONSE:
                late_until = event_loop.now() + LATE_CALL_SECONDS
                self._set_message(position, ShownMessage(message_id, late_until=late_until))
        return outcome is EditOutcome.DONE

    async def _start_stream(self, operation: StartStream, streams: Streams) -> bool:
        outcome = await streams.start(operation.position, operation.part)
        if outcome.was_lost:
            self.shown = replace(self.shown, strays_until=event_loop.now() + LATE_CALL_SECONDS)
        if outcome.is_open:
            ends_at = event_loop.now() + streams.rules.seconds
            size = streams.rules.measure(operation.part)
            stream = MessageStream(operation.part.text, operation.cards, ends_at, size)
            self._set_stream(operation.position, outcome.id, stream)
            return True
        self.shown = replace(self.shown, may_stream=False)
        self._reserve_end(_Reserve.EDIT)
        if outcome.id:
            self._set_message(operation.position, ShownMessage(outcome.id))
        return False

    async def _add_to_stream(self, operation: AppendStream | FinishStream, streams: Streams) -> bool:
        try:
            if isinstance(operation, AppendStream):
                return await self._append_stream(operation, streams)
            await self._finish_stream(operation, streams)
        except StreamEndedError:
            message_id, stream = self._get_stream(operation.position)
            self._set_stream(operation.position, message_id, replace(stream, is_broken=True))
            return False
        return True

    async def _append_stream(self, operation: AppendStream, streams: Streams) -> bool:
        message_id, stream = self._get_stream(operation.position)
        if not await streams.append(message_id, operation.part):
            return False
        text = stream.text + operation.part.text
        size = stream.size + streams.rules.measure(operation.part)
        grown = replace(stream, text=text, cards=operation.cards, size=size)
        self._set_stream(operation.position, message_id, grown)
        return True

    async def _finish_stream(self, operation: FinishStream, streams: Streams) -> None:
        message_id = self._get_message(operation.position).id
        await streams.finish(operation.position, message_id, operation.part, operation.content[1])
        has_open_cards = not operation.cards.is_final
        message = ShownMessage(message_id, operation.content, has_open_cards=has_open_cards)
        self._set_message(operation.position, message)
        self._reserve_end(_Reserve.EDIT if has_open_cards else _Reserve.NOTHING)

    async def _attach(self, plan: Plan, last_id: str) -> None:
        names = [file.name for file in plan.files]
        known = {name: id_ for name, id_ in self.shown.files if name in names}

        async def record(name: str, id_: str) -> None:
            known[name] = id_
            files = tuple((name, known[name]) for name in names if name in known)
            if files != self.shown.files:
                self.shown = replace(self.shown, files=files)
                await self._save_ids(self.shown.stored_ids)

        try:
            await self._surface.attach(plan.files, last_id, dict(known), record)
        except FileRefusedError:
            raise
        except SurfaceError as error:
            raise FileRefusedError(str(error), names) from error
        self.shown = replace(self.shown, attachment=(last_id, *names))

    @property
    def _streams(self) -> Streams:
        assert self._surface.streams is not None, "only a surface with streams has a stream"
        return self._surface.streams

    def _get_message(self, position: int) -> ShownMessage:
        message = self.shown.get_message(position)
        assert message is not None, "the operation is on a shown message"
        return message

    def _get_stream(self, position: int) -> tuple[str, MessageStream]:
        message = self._get_message(position)
        assert message.stream is not None, "its stream is open"
        return message.id, message.stream

    def _set_message(self, position: int, message: ShownMessage | None) -> None:
        self.shown = self.shown.with_message(position, message)

    def _set_stream(self, position: int, message_id: str, stream: MessageStream) -> None:
        self._set_message(position, ShownMessage(message_id, stream=stream))
        self._reserve_end(_Reserve.STOP_AND_EDIT if stream.cards.is_placeholder else _Reserve.STOP)

    def _get_limiter(self, operation: Operation) -> RateLimiter | None:
        """Return the rate limiter in which an operation needs a slot; None if the surface acquires it itself."""
        match operation:
            case Post():
                return self._surface.post_limiter
            case Edit():
                return self._surface.edit_limiter
            case StartStream():
                return self._streams.start_limiter
            case AppendStream():
                return self._streams.append_limiter
            case FinishStream() | StopStream():
                return self._streams.stop_limiter
        return None

    def _get_limits(self) -> Limits:
        has_edit = self._reserve in (_Reserve.EDIT, _Reserve.STOP_AND_EDIT)
        may_grow = self._surface.edit_limiter.can_reserve(0 if has_edit else 1)
        streams = self._surface.streams
        if streams is None:
            return Limits(event_loop.now(), may_grow)
        has_stop = self._reserve in (_Reserve.STOP, _Reserve.STOP_AND_EDIT)
        may_stream = streams.stop_limiter.can_reserve(0) if has_stop else may_grow and streams.may_start()
        return Limits(event_loop.now(), may_grow, may_stream, streams.rules)

    def _reserve_end(self, reserve: _Reserve) -> None:
        """Reserve calls for the end of the growing message, and count it among those that share the rate limits."""
        if reserve is self._reserve:
            return
        with ExitStack() as stack:
            if reserve in (_Reserve.EDIT, _Reserve.STOP_AND_EDIT):
                stack.enter_context(self._surface.edit_limiter.reserve())
            if reserve is _Reserve.EDIT:
                stack.enter_context(self._surface.edit_limiter.track_reply(self._began_at))
            if reserve in (_Reserve.STOP, _Reserve.STOP_AND_EDIT):
                stack.enter_context(self._streams.stop_limiter.reserve())
                stack.enter_context(self._streams.append_limiter.track_reply(self._began_at))
            self._reserved.close()
            self._reserved = stack.pop_all()
        self._reserve = reserve

    def _release_slot(self) -> None:
        if self._slot is not None:
            self._slot.release()
            self._slot = None


async def _wait_until(time: float) -> None:
    if (seconds := time - event_loop.now()) > 0:
        await asyncio.sleep(seconds)


async def _delete_leftover(delete: Callable[[str], Awaitable[None]], id_: str) -> None:
    """Delete a message or file that is not part of the plan; a refusal is logged, and it stays."""
    try:
        await delete(id_)
    except RefusedError as refusal:
        log.error("a message or file beside a reply cannot be deleted: %s", refusal)
