"""The language of who is answered: nothing that is shown waits to know it."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from channels.i18n import messages as words
from channels.i18n.messages import LOCALE_SECONDS, Words
from core.secret_redaction import traced

log = logging.getLogger(__name__)


class Language:
    """Asks for it while it is entered.

    Args:
        locale: of somebody, as his platform tells it: see `Channel.locale`.

    Attributes:
        now: the language as far as it is known; until then, the one that the bot prefers.
    """

    def __init__(self, locale: Coroutine[Any, Any, str]) -> None:
        self.now = words.of("")
        self._asking = asyncio.create_task(locale, name="language")
        self._tell: Callable[[Words], None] = lambda _: None

    async def __aenter__(self) -> Self:
        """Return at once; what the platform need not be asked for is known by then."""
        self._asking.add_done_callback(self._learn)
        await asyncio.sleep(0)  # one step of the task
        if self._asking.done():
            await asyncio.sleep(0)  # and one of its callback
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tell = lambda _: None
        self._asking.cancel()
        await asyncio.wait([self._asking])

    def tell(self, whom: Callable[[Words], None]) -> None:
        """Have somebody told when it is known, if it is not yet."""
        self._tell = whom

    async def known(self) -> Words:
        """The same as `now`, a moment later if it takes no longer."""
        await asyncio.wait([self._asking], timeout=LOCALE_SECONDS)
        return self.now

    def _learn(self, asked: asyncio.Task[str]) -> None:
        if asked.cancelled():
            return
        if error := asked.exception():
            log.warning("a language cannot be asked for: %s", traced(error))
        else:
            self.now = words.of(asked.result())
            self._tell(self.now)
