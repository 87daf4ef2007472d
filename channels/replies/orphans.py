"""Astray: what was posted of a reply while another worker took it."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from channels.base import Surface
from core.conversations.service import Conversations
from core.errors import StoreError, SurfaceError
from core.secret_redaction import traced
from core.store.turn_states import ENDED
from core.turns.store import LOST

log = logging.getLogger(__name__)

#: How often is looked whether the turn has ended, and seconds from one look to the next.
LOOKS, LOOK_SECONDS = 60, 1.0


@asynccontextmanager
async def clearing(conversations: Conversations, turn_id: str, surface: Surface) -> AsyncIterator[list[str]]:
    """Delete in the end the messages whose ids are put here, unless the reply is made of them.

    Until the turn has ended, the other worker may find them and go on with them; what it finds beside its reply at the
    end of that, it deletes itself.
    """
    astray = list[str]()
    try:
        yield astray
    finally:
        if astray:
            clear = asyncio.create_task(_clear(conversations, turn_id, surface, astray), name=f"astray of {turn_id}")
            try:
                await _whole(clear)
            except (StoreError, SurfaceError) as error:
                log.warning("turn %s: what was posted beside its reply may stay: %s", turn_id, traced(error))


async def _whole(clear: asyncio.Task[None]) -> None:
    """Wait for its end; that the turn is another worker's, which is told to who runs it here, does not end it."""
    try:
        await asyncio.shield(clear)
    except asyncio.CancelledError as stop:
        if stop.args != (LOST,):
            clear.cancel()
        await asyncio.wait([clear])
        clear.result()


async def _clear(conversations: Conversations, turn_id: str, surface: Surface, astray: list[str]) -> None:
    for _ in range(LOOKS):
        latest = await conversations.latest(turn_id)
        if latest is None or latest.state in ENDED:
            known = () if latest is None else latest.chunks
            await surface.clear([id_ for id_ in astray if id_ not in known])
            break
        await asyncio.sleep(LOOK_SECONDS)
