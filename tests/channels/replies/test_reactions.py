import asyncio

from channels.rate_limits.limiter import Window
from channels.rate_limits.retries import Caller, TransientError, cancel_unless
from channels.replies.reactions import Address, QueuedReactions
from core.errors import SurfaceError, TurnLostError

MESSAGE = {"channel": "1", "message": "2"}


class BlockableReactions:
    """Queued reactions of a platform whose calls a test can block or fail.

    Attributes:
        log: the successful calls, such as "add 1".
        open: calls wait until it is set.
        error: raised by each attempt to add a reaction.
    """

    def __init__(self) -> None:
        self.log: list[str] = []
        self.open = asyncio.Event()
        self.open.set()
        self.error: SurfaceError | None = None
        self.queue = QueuedReactions(self._add, self._remove)

    async def _add(self, address: Address) -> None:
        await self.open.wait()
        if self.error is not None:
            raise self.error
        self.log.append(f"add {address['message']}")

    async def _remove(self, address: Address) -> None:
        self.log.append(f"remove {address['message']}")


async def test_a_queued_reaction_is_added_and_removed_once() -> None:
    reactions = BlockableReactions()
    reactions.queue.add(MESSAGE)
    reactions.queue.remove(MESSAGE)
    reactions.queue.remove(MESSAGE)
    await reactions.queue.drain(1)
    assert reactions.log == ["add 2", "remove 2"]


async def test_a_queued_reaction_is_removed_after_its_reply_has_ended() -> None:
    reactions, caller, failures = BlockableReactions(), Caller("test", pauses=(0.01,)), [TransientError("HTTP 500")]

    async def send() -> None:
        if failures:
            raise failures.pop()

    async def remove(address: Address) -> None:
        await caller.call("unreact", send, caller.limiters.get("key", Window(5, 1.0)))
        reactions.log.append(f"remove {address['message']}")

    async def raise_turn_lost() -> None:
        raise TurnLostError("it is shown no more")

    queue = QueuedReactions(reactions._add, remove)
    with cancel_unless(raise_turn_lost):
        queue.add(MESSAGE)
        queue.remove(MESSAGE)
    await queue.drain(1)
    assert reactions.log == ["add 2", "remove 2"]


async def test_a_reaction_that_was_not_added_is_not_removed() -> None:
    reactions = BlockableReactions()
    reactions.queue.remove(MESSAGE)
    await reactions.queue.drain(1)
    assert reactions.log == []


async def test_a_slow_reaction_is_removed_after_it_was_added() -> None:
    reactions = BlockableReactions()
    reactions.open.clear()
    reactions.queue.add(MESSAGE)
    reactions.queue.remove(MESSAGE)
    await asyncio.sleep(0.01)
    assert reactions.log == []
    reactions.open.set()
    await reactions.queue.drain(1)
    assert reactions.log == ["add 2", "remove 2"]


async def test_a_failed_reaction_is_no_error() -> None:
    reactions = BlockableReactions()
    reactions.error = SurfaceError("forbidden")
    reactions.queue.add(MESSAGE)
    reactions.queue.remove(MESSAGE)
    await reactions.queue.drain(1)
    assert reactions.log == ["remove 2"]


async def test_draining_is_limited_in_time() -> None:
    reactions = BlockableReactions()
    reactions.open.clear()
    reactions.queue.add(MESSAGE)
    async with asyncio.timeout(30):
        await reactions.queue.drain(0.01)
    reactions.open.set()
    await reactions.queue.drain(1)
