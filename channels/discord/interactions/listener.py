"""Hears what people ask for by commands, menus and buttons."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

import aiohttp
import discord

from channels.commands.handlers import Asker, Name
from channels.discord.access import Visits
from channels.discord.client.api import DiscordApi
from channels.discord.events.parser import attachments_of, text_of
from channels.discord.interactions.handler import Deed, Deeds, Does
from channels.discord.session_ids import NAME, aside, event_key, place, sent_at, session_id
from channels.discord.settings import DiscordSettings
from channels.discord.text import headline, quoted
from channels.i18n import messages as words
from channels.intake.context import about
from core.concurrency.tasks import Work
from core.conversations.service import Conversations
from core.errors import StoreError, SurfaceError
from core.identity import BOT, Spot, Visitor
from core.inbox.interactions import ACK_SECONDS
from core.inbox_message import Attachment, storable
from core.privacy.vault import Seal
from core.secret_redaction import traced

log = logging.getLogger(__name__)

#: Seconds that identifying the user may take, and looking up the models for an autocompletion.
LOOK_SECONDS, COMPLETE_SECONDS = 1.5, 1.0

#: Discord's code for an interaction that was acknowledged before.
ALREADY_ACKNOWLEDGED = 40060

#: Characters of a question that are shown above its answer, and of a message that is asked about.
_MOST_ASKED, _MOST_ABOUT = 1500, 200


class Interactions:
    """Stores, acknowledges and processes interactions, and checks the user's access, which Discord does as well.

    One that takes longer to store is acknowledged first.

    Args:
        deeds: does what is asked for.
        seal: closes what lets the bot answer an interaction.
    """

    def __init__(
        self,
        settings: DiscordSettings,
        api: DiscordApi,
        deeds: Deeds,
        conversations: Conversations,
        work: Work,
        *,
        seal: Seal,
        visits: Visits,
    ) -> None:
        self._settings = settings
        self._api = api
        self._deeds = deeds
        self._work = work
        self._seal = seal
        self._visits = visits
        self._conversations = conversations

    async def command(self, interaction: discord.Interaction, name: Name, argument: str) -> None:
        """Do what a command asks for, and tell it to who gave it, and to nobody else."""
        await self._take(interaction, "command", {"name": name, "argument": argument})

    async def ask(self, interaction: discord.Interaction, question: str) -> None:
        """Answer a question, for all to see where the bot may write, else for the asker alone."""
        text = storable(question).strip()
        await self._ask(interaction, text, shown=quoted(headline(text, _MOST_ASKED)))

    async def ask_about(self, interaction: discord.Interaction, message: discord.Message) -> None:
        """Answer what there is to say about a message. Discord tells it whole, whatever the bot may read."""
        said, files = text_of(message, self._api.me), attachments_of(message)
        asked = words.of(interaction.locale.value)(words.ABOUT_THIS) if said or files else ""
        shown = quoted(headline(said or files[0].name, _MOST_ABOUT)) if asked else ""
        author = f"{BOT}{message.author.id}" if message.author.bot else str(message.author.id)
        brings = (about(author, message.author.display_name, said, sent_at(message.id)),)
        await self._ask(interaction, asked, files, brings, shown=f"{shown}\n-# {message.jump_url}")

    async def _ask(
        self,
        interaction: discord.Interaction,
        text: str,
        files: Sequence[Attachment] = (),
        brings: Sequence[Mapping[str, Any]] = (),
        *,
        shown: str,
    ) -> None:
        told = {"text": text, "files": [asdict(file) for file in files], "brings": list(brings), "shown": shown}
        await self._take(interaction, "ask", told)

    async def why(self, interaction: discord.Interaction, message: discord.Message) -> None:
        """Tell what an answer was made of, by one of its messages or by its question."""
        key = event_key(message.channel.id, message.id)
        await self._take(interaction, "why", {"message": str(message.id), "key": key})

    async def pressed(self, interaction: discord.Interaction, button: str) -> None:
        """Do what a button asks for, and tell the one who pressed it, and nobody else, if there is a word to say."""
        await self._take(interaction, "press", {"button": button})

    async def models(self, interaction: discord.Interaction, typed: str) -> Sequence[str]:
        """The models that may be chosen there whose names have in them what was typed, first those that begin so."""
        asker = await self._asker(interaction, "command")
        if isinstance(asker, str):
            return ()
        try:
            async with asyncio.timeout(COMPLETE_SECONDS):
                offered = await self._conversations.offered(asker.session_id or "", asker.spots)
        except (StoreError, TimeoutError) as error:
            log.warning("it is not known which models there are to choose from: %s", traced(error))
            return ()
        return _typed(typed, offered)

    async def agents(self, interaction: discord.Interaction, typed: str) -> Sequence[str]:
        """The agents that may be chosen there, in the same way."""
        asker = await self._asker(interaction, "command")
        return () if isinstance(asker, str) else _typed(typed, self._conversations.agents.offered(asker.spots))

    async def _take(self, interaction: discord.Interaction, does: Does, of: Mapping[str, Any]) -> None:
        if self._work.is_ending:
            return
        with self._work.under_way():
            storing = asyncio.create_task(self._store(interaction, does, of), name="interaction")
            self._work.watch(storing)
            await asyncio.wait([storing], timeout=ACK_SECONDS)
            if storing.done() and storing.result() is None:
                return
            is_denied = storing.done() and isinstance(storing.result(), str)
            is_private = does != "ask" or is_denied or _is_aside(interaction)
            is_acknowledged = await _acknowledge(interaction, does, is_private=is_private)
            stored = await storing
            if isinstance(stored, str):
                await self._deeds.turn_away(does, self._by(interaction), stored, is_private=is_private)
            elif stored is not None:
                await (self._deeds.do(stored) if is_acknowledged else self._deeds.drop(stored))

    async def _store(self, interaction: discord.Interaction, does: Does, of: Mapping[str, Any]) -> Deed | str | None:
        """Store an interaction until it is processed.

        Returns:
            The interaction; the refusal if the user is denied; None if another connection has received it as well.
        """
        asker = await self._asker(interaction, does)
        if isinstance(asker, str):
            return asker
        if does == "ask" and not of["text"]:
            return words.of(asker.locale)(words.NOTHING_TO_READ)
        deed = Deed(does, of, asker, self._by(interaction))
        return deed if await self._deeds.keep(deed) else None

    async def _asker(self, interaction: discord.Interaction, does: Does) -> Asker | str:
        """Who asks, and where; or why nothing is done for him here, in his language. Of who presses a button that is
        seen when it is done.
        """
        say, channel = words.of(interaction.locale.value), interaction.channel
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                visitor, spot = await self._visits.of_interaction(interaction)
                if channel is None:
                    return say(words.NOT_HERE)
                asker = self._asking(interaction, channel, visitor, spot)
                if does == "press":
                    return asker
                if refusal := await self._deeds.refusal(does, asker):
                    return refusal
        except (SurfaceError, TimeoutError) as error:
            log.warning("it cannot be seen who asks for something: %s", traced(error))
            return say.sorry(SurfaceError.public)
        is_here = interaction.guild_id is None or _may_speak(interaction.permissions, channel)
        return asker if is_here else say(words.NOT_FOR_YOU)

    def _asking(self, interaction: discord.Interaction, channel: Any, visitor: Visitor, spot: Spot) -> Asker:
        guild, user = interaction.guild_id, interaction.user
        where, session = place(guild, channel), session_id(guild, channel, user.id, self._settings.sessions)
        address = {
            "channel": str(channel.id),
            "message": str(interaction.id),
            "speaker": user.display_name,
            "author": str(user.id),
            "locale": interaction.locale.value,
        }
        if _is_aside(interaction):
            where, session = aside(user.id, channel.id)
            address |= self._by(interaction)
        return Asker(
            session_id=session,
            place=where,
            author=str(user.id),
            channel=NAME,
            address=address,
            event_key=f"{NAME}:{channel.id}:command:{interaction.id}",
            locale=interaction.locale.value,
            sent_at=sent_at(interaction.id),
            visitor=visitor,
            spot=spot,
            is_private=True,
        )

    def _by(self, interaction: discord.Interaction) -> dict[str, str]:
        """What lets the bot answer it, whichever worker does: see `Token`."""
        return {"application": str(interaction.application_id), "token": self._seal.close(interaction.token)}


async def _acknowledge(interaction: discord.Interaction, does: Does, *, is_private: bool) -> bool:
    """Acknowledge an interaction: a press with nothing to see, all others with an answer to come.

    Args:
        is_private: whether the user alone sees that answer.

    Returns:
        False if Discord refuses it, and has told the user that the application did not respond. An acknowledgement
        whose reply is lost may have arrived.
    """
    try:
        if does == "press":
            await interaction.response.defer()
        else:
            await interaction.response.defer(ephemeral=is_private, thinking=True)
    except (discord.DiscordException, aiohttp.ClientError, TimeoutError, OSError) as error:
        log.warning("an interaction could not be acknowledged: %s", traced(error))
        is_refused = isinstance(error, discord.HTTPException) and error.status < HTTPStatus.INTERNAL_SERVER_ERROR
        return not is_refused or getattr(error, "code", 0) == ALREADY_ACKNOWLEDGED
    return True


def _typed(typed: str, names: Sequence[str]) -> list[str]:
    found = [name for name in names if typed.lower() in name.lower()]
    return sorted(found, key=lambda name: not name.lower().startswith(typed.lower()))


def _is_aside(interaction: discord.Interaction) -> bool:
    """Whether the bot cannot write there itself, so that it has only the interaction."""
    if interaction.guild_id is None:
        return interaction.context.private_channel is True
    channel = interaction.channel
    return not (interaction.is_guild_integration() and _may_speak(interaction.app_permissions, channel))


def _may_speak(permissions: discord.Permissions, channel: Any) -> bool:
    is_thread = isinstance(channel, discord.Thread)
    speak = permissions.send_messages_in_threads if is_thread else permissions.send_messages
    return permissions.view_channel and speak
