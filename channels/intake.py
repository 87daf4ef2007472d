"""What becomes of a message that a channel has heard: a turn, a reset, or nothing."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from channels import words
from channels.buttons import wished
from channels.channel import Surface
from channels.receipts import Receipts
from core.again import Refused
from core.errors import StoreError, SurfaceError
from core.inbound import Inbound
from core.inbox import Accepted, Inbox
from core.secrets import traced

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
        locale: the language of who wrote it: see `Channel.locale`.
    """

    def __init__(
        self,
        inbox: Inbox,
        receipts: Receipts,
        surface: Callable[[Inbound], Surface],
        locale: Callable[[Inbound], Awaitable[str]],
    ) -> None:
        self._inbox = inbox
        self._receipts = receipts
        self._surface = surface
        self._locale = locale
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

    async def press(self, button: str, *, author: str, locale: str) -> str:
        """Do what a button is there for.

        Args:
            button: its id.
            author: who has pressed it.
            locale: his.

        Returns:
            What there is to say to him about it, if anything.
        """
        say = words.of(locale)
        match wished(button):
            case ("retry" | "regenerate" | "revise") as kind, turn_id:
                pass
            case _:
                return say(words.NOT_MINE)
        try:
            again = await self._inbox.again(turn_id, author=author, kind=kind)
        except StoreError as error:
            log.error("a turn cannot be answered once more: %s", traced(error))
            return say.sorry(error.public)
        match again:
            case Refused.NOT_THEIRS:
                return say(words.NOT_YOURS)
            case Refused.OVER:
                return say(words.OVER)
            case Refused.NEWER:
                return say(words.NEWER)
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

    async def _say(self, inbound: Inbound, sentence: str) -> None:
        try:
            await self._surface(inbound).say(words.of(await self._locale(inbound))(sentence))
        except SurfaceError as error:
            log.error("the reset cannot be confirmed: %s", error)
