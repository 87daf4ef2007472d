"""Apps of Bolt for Python in the process of the test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def connect_bolt(app: Any, app_token: str) -> AsyncIterator[None]:
    """Connect a Bolt app (`App` or `AsyncApp`) by Socket Mode, until the context is left."""
    from slack_bolt.async_app import AsyncApp  # noqa: PLC0415 - only this function needs Bolt

    if isinstance(app, AsyncApp):
        from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler  # noqa: PLC0415

        handler = AsyncSocketModeHandler(app, app_token)
        await handler.connect_async()
        try:
            yield
        finally:
            await handler.close_async()
    else:
        from slack_bolt.adapter.socket_mode import SocketModeHandler  # noqa: PLC0415

        blocking_handler = SocketModeHandler(app, app_token)
        await asyncio.to_thread(blocking_handler.connect)
        try:
            yield
        finally:
            await asyncio.to_thread(blocking_handler.close)
