"""Dispatcher: passes the events of a gateway connection to the bot's handlers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import aiohttp
import discord
from discord import app_commands

from channels.commands.syntax import CommandSyntax
from channels.discord.client.gateway import GatewayClient, Shard
from channels.discord.events.listener import MessageListener
from channels.discord.interactions.commands import Command, CommandTranslator
from core.observability.secret_redaction import format_error

log = logging.getLogger(__name__)

#: Seconds that registering the commands may take; the bot receives messages without them too.
SYNC_TIMEOUT_SECONDS = 10.0


class Dispatcher(GatewayClient):
    """Gateway client that passes messages and interactions to the bot's handlers.

    Args:
        commands: the application commands. Discord: known commands do not count towards its daily limit.
        listener: receives each message, the bot's own included, and each edit and deletion.
        on_button: awaited with each button press, and with the id of the button or of the chosen menu option.
        on_form: awaited with each submitted modal, and with its data (JSON).
        on_member_remove: awaited with the id of each user who leaves a server. Discord: only with the intent `members`.
    """

    def __init__(
        self,
        *,
        shard: Shard,
        intents: discord.Intents,
        commands: Sequence[Command],
        syntax: CommandSyntax,
        listener: MessageListener,
        on_button: Callable[[discord.Interaction, str], Awaitable[None]],
        on_form: Callable[[discord.Interaction, Mapping[str, Any]], Awaitable[None]],
        on_member_remove: Callable[[int], Awaitable[None]],
        on_connected: Callable[[], None],
        on_event: Callable[[], None],
        trace: aiohttp.TraceConfig,
    ) -> None:
        super().__init__(shard=shard, intents=intents, on_connected=on_connected, on_event=on_event, trace=trace)
        self._listener = listener
        self._on_button = on_button
        self._on_form = on_form
        self._on_member_remove = on_member_remove
        self._registers_commands = shard.id == 0
        self._tree = _CommandTree(self, syntax)
        for command in commands:
            self._tree.add_command(command)

    async def setup_hook(self) -> None:
        """Register the application commands with Discord; a failure is logged.

        discord.py calls this method once, before it connects. Only the first shard registers the commands. After
        `SYNC_TIMEOUT_SECONDS` it gives up.
        """
        if not self._registers_commands:
            return
        try:
            async with asyncio.timeout(SYNC_TIMEOUT_SECONDS):
                await self._tree.set_translator(CommandTranslator())
                await self._tree.sync()
        except (discord.DiscordException, aiohttp.ClientError, OSError, TimeoutError) as error:
            log.error("the commands could not be registered: %s", format_error(error))

    async def on_message(self, message: discord.Message) -> None:
        await self._listener.receive_message(message)

    async def on_raw_message_edit(self, about: discord.RawMessageUpdateEvent) -> None:
        await self._listener.receive_edit(about.message)

    async def on_raw_message_delete(self, about: discord.RawMessageDeleteEvent) -> None:
        await self._listener.receive_deletion(about.guild_id, about.channel_id, {about.message_id})

    async def on_raw_bulk_message_delete(self, about: discord.RawBulkMessageDeleteEvent) -> None:
        await self._listener.receive_deletion(about.guild_id, about.channel_id, about.message_ids)

    async def on_raw_thread_delete(self, about: discord.RawThreadDeleteEvent) -> None:
        await self._listener.stop_channel_sessions(about.guild_id, about.parent_id, about.thread_id)

    async def on_guild_channel_delete(self, channel: discord.abc.GuildChannel) -> None:
        await self._listener.stop_channel_sessions(channel.guild.id, channel.id, None)

    async def on_raw_member_remove(self, about: discord.RawMemberRemoveEvent) -> None:
        await self._on_member_remove(about.user.id)

    async def on_interaction(self, interaction: discord.Interaction) -> None:
        if interaction.type is discord.InteractionType.component:
            data: Any = interaction.data
            await self._on_button(interaction, str((data.get("values") or [data["custom_id"]])[0]))
        elif interaction.type is discord.InteractionType.modal_submit:
            await self._on_form(interaction, interaction.data or {})


class _CommandTree(app_commands.CommandTree[Dispatcher]):
    def __init__(self, client: Dispatcher, syntax: CommandSyntax) -> None:
        super().__init__(client)
        self._syntax = syntax

    async def interaction_check(self, interaction: discord.Interaction[Dispatcher], /) -> bool:
        """Rename a slash command that is not registered, such as one with a former prefix; return True.

        discord.py calls this method before it looks up the command, whose absence would leave the user without answer.
        """
        data: Any = interaction.data
        is_slash_command = data.get("type", 1) == discord.AppCommandType.chat_input.value
        if is_slash_command and self.get_command(data["name"]) is None:
            name = self._syntax.find_name(data["name"])
            log.warning("Discord sent the command %s, not %s", data["name"], self._syntax.format_name(name))
            data["name"] = self._syntax.format_name(name)
            if name == "help":  # perhaps in place of an unknown command
                data["options"] = []
        return True

    async def on_error(self, _interaction: discord.Interaction, error: app_commands.AppCommandError, /) -> None:
        log.error("a command failed: %s", format_error(error.__cause__ or error))
