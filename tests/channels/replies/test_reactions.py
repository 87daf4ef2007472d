import asyncio

from channels.rate_limits.caller import Caller, TransientError, cancel_unless
from channels.rate_limits.limiter import Window
from channels.replies.reactions import Address, QueuedReactions
from core.errors import SurfaceError, TurnLostError

MESSAGE = {"channel": "1", "message": "2"}


class Signs:
    """Platform with reactions that a test can block."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.open = asyncio.Event()
        self.open.set()
        self.error: SurfaceError | None = None
        self.receipts = QueuedReactions(self._add, self._remove)

    async def _add(self, address: Address) -> None:
        await self.open.wait()
        if self.error is not None:
            raise self.error
        self.log.append(f"add {address['message']}")

    async def _remove(self, address: Address) -> None:
        self.log.append(f"remove {address['message']}")


async def test_a_queued_reaction_is_added_and_removed_once() -> None:
    signs = Signs()
    signs.receipts.add(MESSAGE)
    signs.receipts.remove(MESSAGE)
    signs.receipts.remove(MESSAGE)
    await signs.receipts.drain(1)
    assert signs.log == ["add 2", "remove 2"]


async def test_a_queued_reaction_is_removed_after_its_reply_has_ended() -> None:
    signs, caller, failures = Signs(), Caller("test", pauses=(0.01,)), [TransientError("HTTP 500")]

    async def send() -> None:
        if failures:
            raise failures.pop()

    async def remove(address: Address) -> None:
        await caller.call("unreact", send, caller.limiters.get("key", Window(5, 1.0)))
        signs.log.append(f"remove {address['message']}")

    async def ended() -> None:
        raise TurnLostError("it is shown no more")

    receipts = QueuedReactions(signs._add, remove)
    with cancel_unless(ended):
        receipts.add(MESSAGE)
        receipts.remove(MESSAGE)
    await receipts.drain(1)
    assert signs.log == ["add 2", "remove 2"]


async def test_a_reaction_that_was_not_added_is_not_removed() -> None:
    signs = Signs()
    signs.receipts.remove(MESSAGE)
    await signs.receipts.drain(1)
    assert signs.log == []


async def test_a_slow_reaction_is_removed_after_it_was_added() -> None:
    signs = Signs()
    signs.open.clear()
    signs.receipts.add(MESSAGE)
    signs.receipts.remove(MESSAGE)
    await asyncio.sleep(0.01)
    assert signs.log == []
    signs.open.set()
    await signs.receipts.drain(1)
    assert signs.log == ["add 2", "remove 2"]


async def test_a_failed_reaction_is_no_error() -> None:
    signs = Signs()
    signs.error = SurfaceError("forbidden")
    signs.receipts.add(MESSAGE)
    signs.receipts.remove(MESSAGE)
    await signs.receipts.drain(1)
    assert signs.log == ["remove 2"]


async def test_draining_is_limited_in_time() -> None:
    signs = Signs()
    signs.open.clear()
    signs.receipts.add(MESSAGE)
    async with asyncio.timeout(30):
        await signs.receipts.drain(0.01)
    signs.open.set()
    await signs.receipts.drain(1)
