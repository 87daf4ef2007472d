"""Takes what people ask for by commands and buttons."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

import discord

from channels import words
from channels.calls import RefusedError
from channels.channel import Priority, Surface
from channels.commands import PRIVATE, Asker, Name, Said
from channels.context import about
from channels.discord.answers import ORIGINAL, Answers, Token
from channels.discord.hearing import (
    NAME,
    aside,
    attachments_of,
    event_key,
    place,
    sent_at,
    session_id,
    text_of,
)
from channels.discord.settings import DiscordSettings
from channels.discord.text import headline, quoted
from channels.discord.visits import Visits
from channels.discord.work import Work
from channels.intake import Call, Intake
from channels.seal import Seal
from core.conversations import Conversations
from core.errands import Errand, Errands
from core.errors import StoreError, SurfaceError
from core.inbound import Attachment, Inbound, storable
from core.secrets import traced
from core.visitors import BOT, Spot, Visitor

log = logging.getLogger(__name__)

#: Seconds for which it is looked who asks, and that keeping what he asks for may take, before it is acknowledged.
#: Discord waits for 3.
LOOK_SECONDS, KEEP_SECONDS = 1.5, 1.0

#: Characters of a question that are shown above its answer, and of a message that is asked about.
_MOST_ASKED, _MOST_ABOUT = 1500, 200


@dataclass(frozen=True, slots=True)
class _Seen:
    """Who asks for something, and where.

    Attributes:
        refusal: why nothing is done for him, in his language; empty if it is.
    """

    visitor: Visitor | None
    spot: Spot
    refusal: str


class Interactions:
    """Each is acknowledged at once, and what it asks for is checked here too, and not by Discord alone.

    Args:
        seal: closes what lets the bot answer an interaction.
        token: what one allows that was kept: see `Token`.
        surface: the place with an address.
        take: takes in a question; raises `StoreError` if it cannot be kept.
    """

    def __init__(
        self,
        settings: DiscordSettings,
        answers: Answers,
        intake: Intake,
        conversations: Conversations,
        work: Work,
        *,
        errands: Errands,
        seal: Seal,
        visits: Visits,
        take: Callable[[Call], Awaitable[None]],
        surface: Callable[[Mapping[str, Any]], Surface],
        token: Callable[[Mapping[str, Any]], Token],
    ) -> None:
        self._settings = settings
        self._answers = answers
        self._intake = intake
        self._work = work
        self._errands = errands
        self._seal = seal
        self._surface = surface
        self._token = token
        self._take = take
        self._visits = visits
        self._conversations = conversations

    async def command(self, interaction: discord.Interaction, name: Name, argument: str) -> None:
        """Do what a command asks for, and tell it to who gave it, and to nobody else."""
        await self._give(interaction, lambda asker: self._intake.commands.run(name, argument, asker), (name, argument))

    async def _give(
        self,
        interaction: discord.Interaction,
        do: Callable[[Asker], Awaitable[Said]],
        command: tuple[Name, str] | None = None,
    ) -> None:
        """Do something for somebody, and tell it to him alone; a `command` is kept until it is done."""
        if self._work.is_ending:
            return
        with self._work.under_way():
            seen, errand = await self._seen(interaction), None
            if command is not None and not seen.refusal:
                errand, is_new = await self._kept(interaction, seen, *command)
                if not is_new:  # another connection has told of it as well
                    return
            await self._answers.acknowledge(interaction, ephemeral=True)
            asker = None if seen.refusal else self._asker(interaction, seen)
            said = Said(seen.refusal) if asker is None else await do(asker)
            await self._answer(interaction, said)
            if errand is not None:
                await self._errands.done(errand)

    async def again(self, errand: Errand) -> None:
        """Do what a worker has left undone who is gone, and tell it to who has asked for it: where Discord does not
        take that any more, in the conversation.
        """
        asked = errand.what["asker"]
        visitor, spot = Visitor.from_json(asked["visitor"]), Spot.from_json(asked["spot"])
        asker = Asker(**{**asked, "until": inf, "visitor": visitor, "spot": spot})
        say, name = words.of(asker.locale), errand.what["name"]
        refused = await self._intake.refusal(visitor, spot, is_owed=True)
        if refused is None:
            said = await self._intake.commands.run(name, errand.what["argument"], asker)
        else:
            said = Said(say(refused))
        token = self._token(errand.what["by"])
        try:
            await token.edit(ORIGINAL, said.text, (), priority=Priority.FINAL, is_admitted=False)
            if said.file is not None:
                await token.attach(ORIGINAL, [said.file])
        except RefusedError:
            if "token" not in asker.address and refused is None:  # all see it there
                text = say(PRIVATE[name]) if name in PRIVATE else said.text
                await self._surface({**asker.address, "apart": errand.key}).say(text, said.file)
        await self._errands.done(errand)

    async def _kept(
        self, interaction: discord.Interaction, seen: _Seen, name: Name, argument: str
    ) -> tuple[Errand, bool]:
        """What somebody asks for, kept until it is done if that can be; and whether it is new."""
        asker = self._asker(interaction, seen)
        by = {"application": str(interaction.application_id), "token": self._seal.close(interaction.token)}
        told = {key: value for key, value in asdict(asker).items() if key != "until"}
        errand = Errand(asker.event_key, {"name": name, "argument": argument, "asker": told, "by": by})
        try:
            async with asyncio.timeout(KEEP_SECONDS):
                return errand, await self._errands.keep(NAME, errand)
        except (StoreError, TimeoutError) as error:
            log.warning("what somebody asks for is not kept until it is done: %s", traced(error))
            return errand, True

    async def models(self, interaction: discord.Interaction, typed: str) -> Sequence[str]:
        """The models that may be chosen there whose names have in them what was typed, first those that begin so."""
        if (seen := await self._seen(interaction)).refusal:
            return ()
        asker = self._asker(interaction, seen)
        try:
            async with asyncio.timeout(KEEP_SECONDS):
                offered = await self._conversations.offered(asker.session_id or "", asker.spots)
        except (StoreError, TimeoutError) as error:
            log.warning("it is not known which models there are to choose from: %s", traced(error))
            return ()
        return _typed(typed, offered)

    async def agents(self, interaction: discord.Interaction, typed: str) -> Sequence[str]:
        """The agents that may be chosen there, in the same way."""
        if (seen := await self._seen(interaction)).refusal:
            return ()
        return _typed(typed, self._conversations.agents.offered(self._asker(interaction, seen).spots))

    async def ask(self, interaction: discord.Interaction, question: str) -> None:
        """Answer a question, for all to see where the bot may write, else for the asker alone."""
        text = storable(question).strip()
        await self._ask(interaction, text, (), (), shown=quoted(headline(text, _MOST_ASKED)))

    async def ask_about(self, interaction: discord.Interaction, message: discord.Message) -> None:
        """Answer what there is to say about a message. Discord tells it whole, whatever the bot may read."""
        said, files = text_of(message, self._answers.me), attachments_of(message)
        asked = words.of(interaction.locale.value)(words.ABOUT_THIS) if said or files else ""
        shown = quoted(headline(said or files[0].name, _MOST_ABOUT)) if asked else ""
        author = f"{BOT}{message.author.id}" if message.author.bot else str(message.author.id)
        brings = (about(author, message.author.display_name, said, sent_at(message.id)),)
        await self._ask(interaction, asked, files, brings, shown=f"{shown}\n-# {message.jump_url}")

    async def why(self, interaction: discord.Interaction, message: discord.Message) -> None:
        """Tell what an answer was made of, by one of its messages or by its question."""
        await self._give(interaction, lambda asker: self._why(asker, message))

    async def _why(self, asker: Asker, message: discord.Message) -> Said:
        key = event_key(message.channel.id, message.id)
        return await self._intake.commands.why_of(str(message.id), key, asker)

    async def pressed(self, interaction: discord.Interaction, button: str) -> None:
        """Do what a button asks for, and tell the one who pressed it, and nobody else, if there is a word to say."""
        if self._work.is_ending:
            return
        with self._work.under_way():
            await self._answers.acknowledge_press(interaction)
            locale, name = interaction.locale.value, interaction.user.display_name
            try:
                visitor, spot = await self._visits.of_interaction(interaction)
                word = await self._intake.press(button, visitor=visitor, spot=spot, locale=locale, name=name)
            except SurfaceError as error:
                log.warning("it cannot be seen who has pressed a button: %s", error)
                word = words.of(locale).sorry(error.public)
            try:
                if word:
                    await self._answers.whisper(interaction, word)
            except SurfaceError as error:
                log.error("who has pressed a button cannot be told: %s", error)

    async def _ask(
        self,
        interaction: discord.Interaction,
        text: str,
        files: tuple[Attachment, ...],
        brings: tuple[Mapping[str, Any], ...],
        *,
        shown: str,
    ) -> None:
        if self._work.is_ending:
            return
        with self._work.under_way():
            say, seen = words.of(interaction.locale.value), await self._seen(interaction)
            refusal, is_aside = seen.refusal, _is_aside(interaction)
            await self._answers.acknowledge(interaction, ephemeral=bool(refusal) or is_aside or not text)
            if refusal or not text:
                await self._answer(interaction, Said(refusal or say(words.NOTHING_TO_READ)))
                return
            try:
                asker = self._asker(interaction, seen)
                address: dict[str, Any] = {**asker.address}
                if not is_aside:  # the answer replies to what says who asked
                    address |= {"message": str(await self._answers.answer(interaction, shown)), "shown": True}
                inbound = _inbound(asker, address, text, files, brings)
                await self._take(Call(inbound, is_called=True, is_owed=is_aside))
            except SurfaceError as error:
                log.error("a question cannot be answered: %s", error)
            except StoreError as error:
                log.error("a question cannot be kept: %s", traced(error))
                await self._answer(interaction, Said(say.sorry(error.public)))

    async def _answer(self, interaction: discord.Interaction, said: Said) -> None:
        try:
            await self._answers.answer(interaction, said.text, said.file)
        except SurfaceError as error:
            log.error("a command cannot be answered: %s", error)

    async def _seen(self, interaction: discord.Interaction) -> _Seen:
        """Who asks, and why nothing is done here for him, if it is not. Discord: a command that nobody answers is seen
        to have failed, so he is told however often he asks.
        """
        say, channel = words.of(interaction.locale.value), interaction.channel
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                visitor, spot = await self._visits.of_interaction(interaction)
        except (SurfaceError, TimeoutError) as error:
            log.warning("it cannot be seen who gives a command: %s", traced(error))
            return _Seen(None, Spot(), say.sorry(SurfaceError.public))
        refused = await self._intake.refusal(visitor, spot, is_owed=True)
        if refused is None and channel is None:
            refused = words.NOT_HERE
        if refused is None and channel is not None and interaction.guild_id is not None:
            refused = None if _may_speak(interaction.permissions, channel) else words.NOT_FOR_YOU
        return _Seen(visitor, spot, say(refused) if refused else "")

    def _asker(self, interaction: discord.Interaction, seen: _Seen) -> Asker:
        guild, channel, user = interaction.guild_id, interaction.channel, interaction.user
        assert channel is not None, "the interaction was not refused"
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
            address |= {"application": str(interaction.application_id), "token": self._seal.close(interaction.token)}
        return Asker(
            session_id=session,
            place=where,
            author=str(user.id),
            channel=NAME,
            address=address,
            event_key=f"{NAME}:{channel.id}:command:{interaction.id}",
            locale=interaction.locale.value,
            sent_at=sent_at(interaction.id),
            visitor=seen.visitor,
            spot=seen.spot,
        )


def _inbound(
    asker: Asker,
    address: dict[str, Any],
    text: str,
    files: tuple[Attachment, ...],
    brings: tuple[Mapping[str, Any], ...],
) -> Inbound:
    assert asker.session_id is not None, "an interaction tells where it was given"
    return Inbound(
        event_key=asker.event_key,
        session_id=asker.session_id,
        place=asker.place,
        channel=asker.channel,
        address=address,
        author=asker.author,
        text=text,
        sent_at=asker.sent_at,
        attachments=files,
        brings=brings,
        visitor=asker.visitor,
        spot=asker.spot,
    )


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
