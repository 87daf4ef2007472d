"""Parses, acknowledges and answers the interactions of Discord.

Discord: docs.discord.com/developers/interactions/receiving-and-responding.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from http import HTTPStatus
from typing import Any

import aiohttp
import discord

from channels.commands.handlers import PRIVATE_COMMANDS, CommandContext, CommandName, CommandResult
from channels.discord.access import Visits
from channels.discord.client.api import DiscordApi
from channels.discord.events.parser import attachments_of, text_of
from channels.discord.interactions.responses import ORIGINAL, Token
from channels.discord.replies.surface import DiscordSurface
from channels.discord.session_ids import NAME, aside, event_key, place, sent_at, session_id
from channels.discord.settings import DiscordSettings
from channels.discord.text import headline, inert, quoted
from channels.i18n import messages as words
from channels.intake.context import question_subject
from channels.intake.handler import MessageHandler
from channels.intake.interactions import Interaction, InteractionHandler, Kind, Retract
from channels.rate_limits.caller import RefusedError
from channels.services import ChannelServices
from core.concurrency.tasks import Work
from core.errors import StoreError, SurfaceError
from core.identity import BOT_PREFIX
from core.inbox_message import Attachment, InboxMessage, storable_text
from core.privacy.vault import Seal
from core.secret_redaction import traced

log = logging.getLogger(__name__)

#: Seconds that an autocompletion may take.
COMPLETE_SECONDS = 2.0

#: Discord's code for an interaction that was acknowledged before.
ALREADY_ACKNOWLEDGED = 40060

#: Characters of a question that are shown above its answer, and of a message that is asked about.
_MOST_ASKED, _MOST_ABOUT = 1500, 200


class DiscordInteractionHandler(InteractionHandler):
    """Handles commands, menu entries and button presses of Discord.

    Discord shows a failure for a command that gets no answer.

    Args:
        work: the tasks of the gateway connections.
        seal: encrypts the tokens of interactions too.
        surface: the channel with an address.
        token: see `Token`.
    """

    channel = NAME
    must_refuse = True

    def __init__(
        self,
        settings: DiscordSettings,
        api: DiscordApi,
        services: ChannelServices,
        intake: MessageHandler,
        work: Work,
        *,
        seal: Seal,
        visits: Visits,
        surface: Callable[[Mapping[str, Any]], DiscordSurface],
        token: Callable[[Mapping[str, Any]], Token],
    ) -> None:
        super().__init__(services, intake, seal)
        self._settings = settings
        self._api = api
        self._work = work
        self._visits = visits
        self._surface = surface
        self._token = token

    async def command(self, interaction: discord.Interaction, name: CommandName, argument: str) -> None:
        """Run a command."""
        await self._receive(interaction, "command", {"name": name, "argument": argument})

    async def ask(self, interaction: discord.Interaction, question: str) -> None:
        """Answer a question, for all to see where the bot may write, else for the author alone."""
        text = storable_text(question).strip()
        await self._receive_question(interaction, text, shown=quoted(headline(text, _MOST_ASKED)))

    async def ask_about(self, interaction: discord.Interaction, message: discord.Message) -> None:
        """Answer a question about a message. Discord sends its whole text, whatever the bot may read."""
        said, files = text_of(message, self._api.me), attachments_of(message)
        asked = words.messages_for(interaction.locale.value)(words.ABOUT_THIS) if said or files else ""
        shown = quoted(headline(said or files[0].name, _MOST_ABOUT)) if asked else ""
        author = f"{BOT_PREFIX}{message.author.id}" if message.author.bot else str(message.author.id)
        brings = (question_subject(author, message.author.display_name, said, sent_at(message.id)),)
        await self._receive_question(interaction, asked, files, brings, shown=f"{shown}\n-# {message.jump_url}")

    async def _receive_question(
        self,
        interaction: discord.Interaction,
        text: str,
        files: Sequence[Attachment] = (),
        brings: Sequence[Mapping[str, Any]] = (),
        *,
        shown: str,
    ) -> None:
        values = {"text": text, "files": [asdict(file) for file in files], "brings": list(brings), "shown": shown}
        await self._receive(interaction, "question", values)

    async def why(self, interaction: discord.Interaction, message: discord.Message) -> None:
        """Report on an answer, by one of its messages or by its question."""
        key = event_key(message.channel.id, message.id)
        await self._receive(interaction, "why", {"message": str(message.id), "key": key})

    async def pressed(self, interaction: discord.Interaction, button: str) -> None:
        """Execute a button press."""
        await self._receive(interaction, "press", {"button": button})

    async def complete(self, interaction: discord.Interaction, name: CommandName, typed: str) -> Sequence[str]:
        """Return the agents or models (`name`) to choose from that contain `typed`, first those that begin so."""
        parsed, conversations = self._parse(interaction, "command", {}), self._services.conversations
        try:
            async with asyncio.timeout(COMPLETE_SECONDS):
                authorized = await self.authorize(partial(self._identify, interaction, parsed))
                if isinstance(authorized, str):
                    return ()
                session, spots = authorized.context.session_id or "", authorized.context.spots
                is_model = name == "model"
                names = (
                    await conversations.list_models(session, spots)
                    if is_model
                    else conversations.agents.list_selectable(spots)
                )
        except (StoreError, TimeoutError) as error:
            log.warning("a name cannot be completed: %s", traced(error))
            return ()
        found = [one for one in names if typed.lower() in one.lower()]
        return sorted(found, key=lambda one: not one.lower().startswith(typed.lower()))

    async def _receive(self, interaction: discord.Interaction, kind: Kind, values: Mapping[str, Any]) -> None:
        if self._work.is_ending:
            return
        with self._work.under_way():
            parsed = self._parse(interaction, kind, values)
            await self.receive(parsed, partial(self._identify, interaction, parsed), partial(_acknowledge, interaction))

    def _parse(self, interaction: discord.Interaction, kind: Kind, values: Mapping[str, Any]) -> Interaction:
        guild, user, channel_id = interaction.guild_id, interaction.user, interaction.channel_id or 0
        channel: Any = interaction.channel or discord.Object(channel_id)
        where, session = place(guild, channel), session_id(guild, channel, user.id, self._settings.sessions)
        surface = {"application": str(interaction.application_id), "token": self._seal.close(interaction.token)}
        address = {
            "channel": str(channel_id),
            "message": str(interaction.id),
            "speaker": user.display_name,
            "author": str(user.id),
            "locale": interaction.locale.value,
        }
        if is_aside := _is_aside(interaction):
            where, session = aside(user.id, channel_id)
            address |= surface
        context = CommandContext(
            session_id=session,
            place=where,
            author=str(user.id),
            channel=NAME,
            address=address,
            event_key=f"{NAME}:{channel_id}:command:{interaction.id}",
            locale=interaction.locale.value,
            sent_at=sent_at(interaction.id),
            is_private=kind != "question" or is_aside,
        )
        return Interaction(kind, context, values, surface, user.display_name)

    async def _identify(self, interaction: discord.Interaction, parsed: Interaction) -> Interaction | str:
        """Return the interaction with its author's roles and its place, or why it is refused."""
        say, channel = words.messages_for(interaction.locale.value), interaction.channel
        try:
            visitor, spot = await self._visits.of_interaction(interaction)
        except SurfaceError as error:
            log.warning("the author of an interaction cannot be identified: %s", error)
            return say.format_error(SurfaceError.public)
        if channel is None:
            return say(words.NOT_HERE)
        is_allowed = interaction.guild_id is None or _may_speak(interaction.permissions, channel)
        if not is_allowed and parsed.kind != "press":
            return say(words.NOT_FOR_YOU)
        if parsed.kind == "question" and not parsed.values["text"]:
            return say(words.NOTHING_TO_READ)
        return replace(parsed, context=replace(parsed.context, visitor=visitor, spot=spot))

    async def answer(self, interaction: Interaction, result: CommandResult) -> None:
        """Answer by the interaction's token, or in the conversation if Discord refuses the answer to a command."""
        token = self._token(interaction.surface)
        if interaction.kind == "press":
            await token.whisper(result.text)
            return
        try:
            await token.answer(result.text, result.file)
        except RefusedError:
            context = interaction.context
            if "token" in context.address:
                raise
            name = interaction.values.get("name", "why")
            if result.file is not None:  # it was made for the author alone
                public = replace(context, is_private=False)
                result = await self._intake.commands.run(name, interaction.values["argument"], public)
            text = (
                words.messages_for(context.locale)(PRIVATE_COMMANDS[name]) if name in PRIVATE_COMMANDS else result.text
            )  # all see it there
            await self._surface({**context.address, "apart": context.event_key}).post_message(text, result.file)

    async def refuse(self, interaction: Interaction, text: str) -> None:
        token = self._token(interaction.surface)
        if interaction.kind == "press":
            await token.whisper(text)
        elif interaction.context.is_private:
            await token.answer(text)
        else:
            await token.delete(ORIGINAL)
            await token.whisper(text)

    async def show_question(self, interaction: Interaction) -> tuple[InboxMessage, Retract]:
        """Post the question as the answer to the interaction, if all may see it. The reply is a reply to that."""
        context, values = interaction.context, interaction.values
        assert context.session_id is not None, "Discord tells the channel of an interaction"
        address = dict(context.address)
        if not context.is_private:
            address |= {"message": await self._post_question(interaction), "shown": True}
        inbound = replace(
            context.to_message(context.session_id, values["text"]),
            address=address,
            attachments=tuple(Attachment(**file) for file in values["files"]),
            brings=tuple(values["brings"]),
            visitor=context.visitor,
            spot=context.spot,
        )
        return inbound, partial(self.refuse, interaction)

    async def _post_question(self, interaction: Interaction) -> str:
        """Post a question and return the id of the message.

        If Discord refuses it as the answer to the interaction, it is a message of its own.
        """
        shown = interaction.values["shown"]
        with suppress(RefusedError):
            return str(await self._token(interaction.surface).answer(shown))
        surface = self._surface({**interaction.context.address, "apart": interaction.id})
        return await surface.post_text(f"**{inert(interaction.name)}**\n{shown}")


async def _acknowledge(interaction: discord.Interaction, parsed: Interaction) -> bool:
    """Acknowledge an interaction: a press without a visible answer, all others with an answer to come.

    Returns:
        False if Discord refuses it, and has told the user that the application did not respond. An acknowledgement
        whose reply is lost may have arrived.
    """
    try:
        if parsed.kind == "press":
            await interaction.response.defer()
        else:
            await interaction.response.defer(ephemeral=parsed.context.is_private, thinking=True)
    except (discord.DiscordException, aiohttp.ClientError, TimeoutError, OSError) as error:
        log.warning("an interaction could not be acknowledged: %s", traced(error))
        is_refused = isinstance(error, discord.HTTPException) and error.status < HTTPStatus.INTERNAL_SERVER_ERROR
        return not is_refused or getattr(error, "code", 0) == ALREADY_ACKNOWLEDGED
    return True


def _is_aside(interaction: discord.Interaction) -> bool:
    """Return whether the bot cannot write there itself, so that it can answer the interaction alone."""
    if interaction.guild_id is None:
        return interaction.context.private_channel is True
    channel = interaction.channel
    return not (interaction.is_guild_integration() and _may_speak(interaction.app_permissions, channel))


def _may_speak(permissions: discord.Permissions, channel: Any) -> bool:
    is_thread = isinstance(channel, discord.Thread)
    speak = permissions.send_messages_in_threads if is_thread else permissions.send_messages
    return permissions.view_channel and speak
