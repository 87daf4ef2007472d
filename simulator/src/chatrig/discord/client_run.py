"""Clients of discord.py in the process of the test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

_CONNECT_SECONDS = 30.0


@asynccontextmanager
async def start_discord_client(client: Any, token: str, api_url: str, gateway_url: str) -> AsyncIterator[None]:
    """Run a client of discord.py until the context is left.

    The addresses of discord.py hold for the whole process: one simulator at a time.
    """
    import discord  # noqa: PLC0415 - only this function needs discord.py
    from discord.gateway import DiscordWebSocket  # noqa: PLC0415
    from yarl import URL  # noqa: PLC0415

    real = discord.http.Route.BASE, DiscordWebSocket.DEFAULT_GATEWAY
    discord.http.Route.BASE, DiscordWebSocket.DEFAULT_GATEWAY = api_url, URL(gateway_url)
    tasks: list[asyncio.Task[None]] = []
    try:
        await client.login(token)
        tasks = [asyncio.create_task(client.connect()), asyncio.create_task(client.wait_until_ready())]
        await asyncio.wait(tasks, timeout=_CONNECT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            tasks[0].result()
        if not tasks[1].done():
            raise TimeoutError(f"the client did not connect within {_CONNECT_SECONDS:g} s")
        yield
    finally:
        await client.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        discord.http.Route.BASE, DiscordWebSocket.DEFAULT_GATEWAY = real
