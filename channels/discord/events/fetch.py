"""Reads what stands in Discord's channels."""

from typing import Any

import discord

from channels.base import Priority
from channels.discord.client.api import MESSAGES, DiscordApi


async def messages_in(
    api: DiscordApi, room: Any, *, after: int, before: int | None, limit: int, priority: Priority = Priority.PROGRESS
) -> list[discord.Message]:
    """The newest messages of a channel or thread between two ids, newest first."""
    start, end = discord.Object(after), None if before is None else discord.Object(before)

    async def send() -> list[discord.Message]:
        return [message async for message in room.history(limit=limit, after=start, before=end, oldest_first=False)]

    return await api.call("history", send, api.budget(("history", room.id), MESSAGES), priority=priority) or []


async def message_of(api: DiscordApi, channel: int, message: int) -> discord.Message:
    """A message.

    Raises:
        SurfaceError: it cannot be had.
    """
    room = api.direct(channel)

    async def send() -> discord.Message:
        return await room.fetch_message(message)

    found = await api.call("message", send, api.budget(("message", channel), MESSAGES))
    assert found is not None, "only a tick may be dropped"
    return found
