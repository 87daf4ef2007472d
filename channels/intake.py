"""What becomes of a message that a channel has heard: a turn, a reset, or nothing."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from channels import words
from channels.channel import Surface
from channels.receipts import Receipts
from core.again import Refused
from core.errors import StoreError, SurfaceError
from core.inbound import Inbound
from core.inbox import Accepted, Inbox
from core.secrets import traced

#: What the id of the button begins with that has a turn tried again; behind a colon is the turn's.
RETRY = "retry"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Call:
    """A message of a person.

    Attributes:
        is_called: whether it calls the bot by name or is written to it alone. Otherwise it is one that the
            bot answers only where it speaks already.
        is_late: whether it was said a while ago, and others after it may have been heard before.
    """

    inbound: Inbound
    is_called: bool
    is_late: bool = False

    @property
    def is_reset(self) -> bool:
        """Whether it asks for nothing but to start over."""
        return self.is_called and self.inbound.text.strip(" .!/").lower() == "reset"


class Intake:
    """Takes in what a channel hears.

    Args:
        surface: where the answer to a message is shown.
    """

    def __init__(self, inbox: Inbox, receipts: Receipts, surface: Callable[[Inbound], Surface]) -> None:
        self._inbox = inbox
        self._receipts = receipts
        self._surface = surface
        self._errands: set[asyncio.Task[None]] = set()
        self._queues = WeakValueDictionary[str, asyncio.Lock]()

    async def take(self, call: Call) -> None:
        """Have a message answered, if it is one for the bot; who has to wait for the answer sees a receipt. What is
        heard of one session at the same time is kept in that order.

        Raises:
            StoreError: it could not be kept, and must not be acknowledged.
        """
        async with self._queues.setdefault(call.inbound.session_id, asyncio.Lock()):
            await self._take(call)

    async def _take(self, call: Call) -> None:
        inbound = call.inbound
        if not call.is_called and not await self._inbox.is_session(inbound.session_id):
            return
        if call.is_reset:
            if await self.reset(inbound, is_late=call.is_late):
                self.run(self._say(inbound, words.RESET_DONE), name="confirmation")
        elif await self._inbox.accept(inbound) is Accepted.WAITS:
            self._receipts.give(inbound.address)

    async def press(self, button: str, *, author: str) -> str:
        """Do what a button is there for.

        Args:
            button: its id.
            author: who has pressed it.

        Returns:
            What there is to say to him about it, if anything.
        """
        try:
            tried = await self._inbox.again(button.removeprefix(f"{RETRY}:"), author=author, kind="retry")
        except StoreError as error:
            log.error("a turn cannot be tried again: %s", traced(error))
            return words.sorry(error.public)
        match tried:
            case Refused.NOT_THEIRS:
                return words.NOT_YOURS
            case Refused():
                return words.OVER
            case Accepted.WAITS, Inbound() as inbound:
                self._receipts.give(inbound.address)
        return ""

    async def reset(self, inbound: Inbound, *, is_late: bool = False) -> bool:
        """Start the session of `inbound` over; false if that was done before, or comes too late.

        Raises:
            StoreError: nothing was changed.
        """
        dropped = await self._inbox.reset(inbound, is_late=is_late)
        for waiting in dropped or ():
            self._receipts.take_back(waiting.address)
        return dropped is not None

    async def settle(self, seconds: float) -> None:
        """Wait for errands and receipts, but for each no longer than so many seconds."""
        if self._errands:
            await asyncio.wait(self._errands, timeout=seconds)
        await self._receipts.settle(seconds)

    def run(self, errand: Coroutine[Any, Any, None], *, name: str) -> None:
        """Do something that nobody waits for but `settle`."""
        task = asyncio.create_task(errand, name=name)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def _say(self, inbound: Inbound, text: str) -> None:
        try:
            await self._surface(inbound).say(text)
        except SurfaceError as error:
            log.error("the reset cannot be confirmed: %s", error)
