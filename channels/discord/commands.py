"""The bot's application commands, and what Discord knows of them."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import discord
from discord import app_commands

#: What a command is, in Discord's own form; the rest is what Discord adds.
_FIELDS = ("name", "type", "description", "options", "contexts", "integration_types")


def reset_command(take: Callable[[discord.Interaction], Awaitable[None]]) -> app_commands.Command[Any, ..., None]:
    """`/reset`, for servers and direct messages.

    Args:
        take: does what the command asks, and answers it.
    """

    @app_commands.command(name="reset", description="Start over: the bot forgets what was said here")
    @app_commands.allowed_contexts(guilds=True, dms=True, private_channels=False)
    @app_commands.allowed_installs(guilds=True, users=False)
    async def command(interaction: discord.Interaction) -> None:
        await take(interaction)

    return command


async def sync(tree: app_commands.CommandTree[Any]) -> bool:
    """Register the commands, unless Discord has exactly these: it limits how often that may be done.

    Returns:
        Whether anything was changed.
    """
    client = tree.client
    assert client.application_id is not None, "the client is logged in"
    wanted = [_essence(command.to_dict(tree)) for command in tree.get_commands()]
    # As they come: discord.py's own reading of them loses where they may be used.
    there = [_essence(command) for command in await client.http.get_global_commands(client.application_id)]
    if _sorted(wanted) == _sorted(there):
        return False
    await tree.sync()
    return True


def _essence(command: Mapping[str, Any]) -> dict[str, Any]:
    """What is compared. What is empty, Discord may leave out."""
    return {field: command[field] for field in _FIELDS if command.get(field)}


def _sorted(commands: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(commands, key=lambda command: (command["type"], command["name"]))
