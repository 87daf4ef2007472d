"""Handler of Discord's interactions: commands, menu entries, presses, modals.

Discord: docs.discord.com/developers/interactions/receiving-and-responding.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from http import HTTPStatus
from typing import Any

import aiohttp
import discord

from channels.base import Priority
from channels.commands.handlers import PRIVATE_COMMANDS, CommandResult
from channels.commands.services import PlatformServices
from channels.commands.syntax import CommandName, CommandSyntax
from channels.discord.access import DiscordIdentityResolver
from channels.discord.client.api import NO_MENTIONS
from channels.discord.client.responses import RESPONSE_ID
from channels.discord.events.content import read_content
from channels.discord.events.parser import move_to_thread
from channels.discord.events.thread_titles import parse_thread
from channels.discord.interactions.forms import FORM_PAGE_SIZE, MODAL_PREFIX, create_modal, parse_form
from channels.discord.platform import DiscordPlatform
from channels.discord.replies.reactions import mark_denied
from channels.discord.session_ids import PLATFORM, ephemeral_ids, event_key, place_id, session_id, snowflake_time
from channels.discord.text import disable_mentions, quote_lines, shorten
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.intake.context import about_reference
from channels.intake.handler import IntakeHandler, Retract
from channels.intake.incoming import SYNCHRONOUS_SECONDS, IncomingMessage, MenuAction
from channels.rate_limits.retries import RefusedError
from channels.replies.buttons import Press, parse_button
from core.concurrency.tasks import BackgroundTasks
from core.errors import StoreError, SurfaceError
from core.inbox.entries import EntryKind, InboxEntry
from core.messages.identity import BOT_PREFIX
from core.messages.inbox_message import Attachment, InboxMessage, storable_text
from core.observability.secret_redaction import format_error

log = logging.getLogger(__name__)

#: Seconds that starting a thread may take; after that, the reply is posted in the channel.
THREAD_TIMEOUT_SECONDS = 10.0

#: Most characters in the name of a thread, so that the list of threads shows all of it.
MAX_THREAD_NAME = 80

#: Discord's code for an interaction that was acknowledged before.
ALREADY_ACKNOWLEDGED = 40060

#: Most characters of a quoted prompt, and of a quoted message.
_MAX_PROMPT_CHARACTERS, _MAX_QUOTE_CHARACTERS = 1500, 200


class DiscordIntakeHandler(IntakeHandler):
    """Handles messages, commands, menu entries, button presses and submitted modals.

    During the shutdown, the `handle_` methods do nothing. They log each `StoreError` and `SurfaceError`.
    """

    must_refuse = True
    form_page_size = FORM_PAGE_SIZE
    _platform: DiscordPlatform

    def __init__(
        self,
        platform: DiscordPlatform,
        services: PlatformServices,
        work: BackgroundTasks,
        *,
        syntax: CommandSyntax,
        identities: DiscordIdentityResolver,
    ) -> None:
        super().__init__(platform, services, platform.queued_reactions, syntax=syntax, cipher=platform.cipher)
        self._settings = platform.settings
        self._api = platform.api
        self._work = work
        self._identities = identities

    async def deny_privately(self, message: InboxMessage, text: str) -> None:
        """Send a refusal by direct message; if Discord refuses that, add the reaction `DENIED_EMOJI`."""
        try:
            await self._api.send_direct_message(int(message.author), text)
        except RefusedError as refusal:
            log.info("a refusal could not be sent by direct message: %s", refusal)
            await mark_denied(self._api, message.address)

    async def choose_address(self, message: IncomingMessage) -> IncomingMessage:
        """Start a thread on a message for the reply, if the setting `auto_thread` is on.

        No thread is started for a message in a thread, in direct messages or without a mention. The same holds for a
        message over a rate limit of its author or place. A failure is logged.
        """
        in_thread = move_to_thread(message) if self._settings.auto_thread and message.is_mention else None
        if in_thread is None or await self.find_rate_limit_denial(message.inbound):
            return message
        address = message.inbound.address
        name = shorten(message.inbound.text, MAX_THREAD_NAME) or str(address["speaker"])
        try:
            async with asyncio.timeout(THREAD_TIMEOUT_SECONDS):
                await self._api.start_thread(int(address["channel"]), int(address["message"]), name)
        except (SurfaceError, TimeoutError) as error:
            log.warning("no thread could be started, so the reply is in the channel: %s", format_error(error))
            return message
        return in_thread

    async def handle_command(self, interaction: discord.Interaction, name: CommandName, argument: str) -> None:
        """Run a command, and show the result to its author: see `answer`."""
        await self._receive(interaction, "command", {"name": name, "argument": argument})

    async def handle_ask(self, interaction: discord.Interaction, prompt: str) -> None:
        """Post the prompt of a user's `ask` command, and store it as a message to answer.

        If the bot may post in the channel, everyone there sees prompt and answer; else only the author does.
        """
        text = storable_text(prompt).strip()
        await self._receive_prompt(interaction, text, quote=quote_lines(shorten(text, _MAX_PROMPT_CHARACTERS)))

    async def handle_ask_about(self, interaction: discord.Interaction, message: discord.Message) -> None:
        """Post a prompt about a message, and store it as a message to answer.

        The prompt has a fixed text, and the message's text and files as reference. Discord sends the message with its
        content, even without the message content intent.
        """
        content = read_content(message)
        text = content.format_all()
        files = content.all_files
        prompt = words.messages_for(interaction.locale.value)(words.ABOUT_THIS) if text or files else ""
        quote = quote_lines(shorten(text or files[0].name, _MAX_QUOTE_CHARACTERS)) if prompt else ""
        author = f"{BOT_PREFIX}{message.author.id}" if message.author.bot else str(message.author.id)
        key = event_key(message.channel.id, message.id)
        about = about_reference(author, message.author.display_name, text, content.sent_at, key)
        await self._receive_prompt(interaction, prompt, files, [about], quote=f"{quote}\n-# {message.jump_url}")

    async def _receive_prompt(
        self,
        interaction: discord.Interaction,
        text: str,
        files: Sequence[Attachment] = (),
        references: Sequence[Mapping[str, Any]] = (),
        *,
        quote: str,
    ) -> None:
        values = {
            "text": text,
            "files": [asdict(file) for file in files],
            "references": [*references, *parse_thread(interaction.channel, self._api.bot_user)],
            "quote": quote,
        }
        await self._receive(interaction, "prompt", values)

    async def handle_menu(self, interaction: discord.Interaction, message: discord.Message, action: MenuAction) -> None:
        """Show the turn report of an answer, or store a rating of the answer."""
        key = event_key(message.channel.id, message.id)
        await self._receive(interaction, "menu", {"action": action, "message": str(message.id), "key": key})

    async def handle_press(self, interaction: discord.Interaction, button: str) -> None:
        """Perform the action of a pressed button, or open the form of an agent's question."""
        press = parse_button(button)
        if press is not None and press.action == "form":
            await self._open_form(interaction, press)
            return
        await self._receive(interaction, "press", {"button": button})

    async def handle_form(self, interaction: discord.Interaction, data: Mapping[str, Any]) -> None:
        """Store the entries in a submitted modal of a question; ignore other modals."""
        if not str(data.get("custom_id")).startswith(MODAL_PREFIX):
            return
        question, page, entries = parse_form(data)
        await self._receive(interaction, "answer", {"question": question, "page": page, "entries": entries})

    async def _open_form(self, interaction: discord.Interaction, press: Press) -> None:
        """Respond to a button press with the form (modal) of a question, or with a private refusal."""
        if self._work.is_stopping:
            return
        with self._work.track_current():
            say = words.messages_for(interaction.locale.value)
            found: discord.ui.Modal | str
            try:
                async with asyncio.timeout(SYNCHRONOUS_SECONDS):
                    found = await self._create_form(interaction, press, say)
            except (StoreError, TimeoutError) as error:
                log.warning("a form cannot be opened: %s", format_error(error))
                found = say.format_error(StoreError.public)
            try:
                if isinstance(found, str):
                    text = found or say(words.UNKNOWN_BUTTON)
                    await interaction.response.send_message(text, ephemeral=True, allowed_mentions=NO_MENTIONS)
                else:
                    await interaction.response.send_modal(found)
            except (discord.DiscordException, aiohttp.ClientError, TimeoutError, OSError) as error:
                log.warning("a form cannot be opened: %s", format_error(error))

    async def _create_form(
        self, interaction: discord.Interaction, press: Press, say: MessageCatalog
    ) -> discord.ui.Modal | str:
        """Return the modal for answering an open question of the agent, or a text that refuses it."""
        parsed = self._parse(interaction, "form", {})
        authorized = await self.authorize(parsed, partial(self._identify, interaction, parsed))
        if isinstance(authorized, str):
            return authorized
        user = self.get_user(authorized)
        question = await self.presses.answers.find_open(press.target_id, user, say)
        if isinstance(question, str):
            return question
        return create_modal(question, press.page, question.drafts.get(user.id, {}), say)

    async def complete_name(self, interaction: discord.Interaction, name: CommandName, typed: str) -> Sequence[str]:
        """Return the names of agents or models that contain `typed`; those that start with it are first.

        There are none if the user has no access, the database fails, or the lookup takes over `SYNCHRONOUS_SECONDS`.
        """
        parsed = self._parse(interaction, "command", {})
        conversations = self._services.conversations
        try:
            async with asyncio.timeout(SYNCHRONOUS_SECONDS):
                authorized = await self.authorize(parsed, partial(self._identify, interaction, parsed))
                if isinstance(authorized, str):
                    return ()
                session = authorized.message.session_id
                location_names = authorized.message.location_names
                is_model = name == "model"
                names = (
                    await conversations.list_models(session, location_names)
                    if is_model
                    else conversations.agents.list_selectable(location_names)
                )
        except (StoreError, TimeoutError) as error:
            log.warning("an autocompletion failed: %s", format_error(error))
            return ()
        found = [name for name in names if typed.lower() in name.lower()]
        return sorted(found, key=lambda one: not one.lower().startswith(typed.lower()))

    async def _receive(self, interaction: discord.Interaction, kind: EntryKind, values: Mapping[str, Any]) -> None:
        if self._work.is_stopping:
            return
        with self._work.track_current():
            parsed = self._parse(interaction, kind, values)
            await self.receive(parsed, partial(self._identify, interaction, parsed), partial(_acknowledge, interaction))

    def _parse(self, interaction: discord.Interaction, kind: EntryKind, values: Mapping[str, Any]) -> InboxEntry:
        guild = interaction.guild_id
        user = interaction.user
        channel_id = interaction.channel_id or 0
        channel: Any = interaction.channel or discord.Object(channel_id)
        place = place_id(guild, channel)
        session = session_id(guild, channel, user.id, self._settings.sessions)
        surface = {"application": str(interaction.application_id), "token": self._cipher.encrypt(interaction.token)}
        address = {
            "channel": str(channel_id),
            "message": str(interaction.id),
            "speaker": user.display_name,
            "author": str(user.id),
            "locale": interaction.locale.value,
        }
        if is_aside := _must_answer_ephemerally(interaction):
            place, session = ephemeral_ids(user.id, channel_id)
            address |= surface
        message = InboxMessage(
            event_key=f"{PLATFORM}:{channel_id}:command:{interaction.id}",
            session_id=session,
            place=place,
            platform=PLATFORM,
            address=address,
            author=str(user.id),
            text="",
            sent_at=snowflake_time(interaction.id),
        )
        is_of_private_message = interaction.message is not None and interaction.message.flags.ephemeral
        return InboxEntry(
            kind,
            message,
            values,
            {**surface, "is_of_private_message": is_of_private_message},
            locale=interaction.locale.value,
            name=user.display_name,
            is_private=kind != "prompt" or is_aside,
        )

    async def _identify(self, interaction: discord.Interaction, parsed: InboxEntry) -> InboxEntry | str:
        """Return an interaction with its author's roles and its location, or a text that refuses it."""
        say = words.messages_for(interaction.locale.value)
        channel = interaction.channel
        try:
            actor, location = await self._identities.resolve_interaction(interaction)
        except SurfaceError as error:
            log.warning("the author of an interaction cannot be identified: %s", error)
            return say.format_error(SurfaceError.public)
        if channel is None:
            return say(words.PLACE_NOT_ALLOWED)
        is_allowed = interaction.guild_id is None or _can_send_messages(interaction.permissions, channel)
        if not is_allowed and parsed.kind not in ("press", "form", "answer"):
            return say(words.NO_WRITE_PERMISSION)
        if parsed.kind == "prompt" and not parsed.values["text"]:
            return say(words.NO_READABLE_TEXT)
        return replace(parsed, message=replace(parsed.message, actor=actor, location=location))

    async def answer(self, entry: InboxEntry, result: CommandResult) -> None:
        """Show the result of an interaction to its author.

        The result of a command, menu entry or press is an ephemeral message. That of a form is one too, or replaces the
        ephemeral message from which the form was opened. If Discord refuses the response to a command or menu entry,
        the result is posted in the channel, without private content.
        """
        responder = self._platform.create_responder(entry.surface)
        if entry.kind in ("press", "answer"):
            if entry.kind == "answer" and entry.surface.get("is_of_private_message"):
                with suppress(RefusedError):  # the user has dismissed the message
                    await responder.edit_message(RESPONSE_ID, result.text, result.buttons, priority=Priority.FINAL)
                    return
            await responder.send_ephemeral(result.text, result.buttons)
            return
        try:
            await responder.answer(result.text, result.file, result.buttons)
        except RefusedError:
            address = entry.message.address
            if "token" in address:
                raise
            name = entry.values.get("name") or entry.values["action"]
            commands = self.commands
            if result.file is not None:  # the file is private
                public = replace(entry, is_private=False)
                result = await commands.run(name, entry.values["argument"], public)
            say = words.messages_for(entry.locale)
            is_private = name in PRIVATE_COMMANDS
            text = commands.format_private_hint(name, say) if is_private else result.text  # everyone can read it
            surface = self._platform.create_message_surface({**address, "side_name": entry.event_key})
            await surface.post_message(text, result.file)

    async def close_form(self, entry: InboxEntry) -> None:
        if entry.surface.get("is_of_private_message"):
            with suppress(RefusedError):  # the user has dismissed the message
                await self._platform.create_responder(entry.surface).delete_message(RESPONSE_ID)

    async def refuse(self, entry: InboxEntry, text: str) -> None:
        responder = self._platform.create_responder(entry.surface)
        if entry.kind in ("press", "answer"):
            await responder.send_ephemeral(text)
        elif entry.is_private:
            await responder.answer(text)
        else:
            await responder.delete_message(RESPONSE_ID)
            await responder.send_ephemeral(text)

    async def post_prompt(self, entry: InboxEntry) -> tuple[InboxMessage, Retract]:
        """Post a prompt as the response to the interaction, unless it is private.

        The bot's reply then replies to the posted message. A private prompt is not posted: the reply is the response,
        which only the author sees. See `IntakeHandler.post_prompt`.
        """
        address = dict(entry.message.address)
        values = entry.values
        if not entry.is_private:
            address |= {"message": await self._post_prompt(entry), "is_bot_message": True}
        inbound = replace(
            entry.message,
            text=values["text"],
            address=address,
            attachments=tuple(Attachment(**file) for file in values["files"]),
            references=tuple(values["references"]),
        )
        return inbound, partial(self.refuse, entry)

    async def _post_prompt(self, entry: InboxEntry) -> str:
        """Post a user's prompt in the channel, and return the id of the message.

        The message is the response to the interaction or, if Discord refuses the response, a normal message.
        """
        quote = entry.values["quote"]
        with suppress(RefusedError):
            return str(await self._platform.create_responder(entry.surface).answer(quote))
        surface = self._platform.create_message_surface({**entry.message.address, "side_name": entry.event_key})
        return await surface.post_text(f"**{disable_mentions(entry.name)}**\n{quote}")


async def _acknowledge(interaction: discord.Interaction, parsed: InboxEntry) -> bool:
    """Acknowledge an interaction; except for presses and forms, show "thinking".

    The result is False if Discord refuses the acknowledgement, and has shown the user that the application did not
    respond. True if Discord accepts it or has one already, or if the outcome is unknown.
    """
    try:
        if parsed.kind in ("press", "answer"):
            await interaction.response.defer()
        else:
            await interaction.response.defer(ephemeral=parsed.is_private, thinking=True)
    except (discord.DiscordException, aiohttp.ClientError, TimeoutError, OSError) as error:
        log.warning("an interaction could not be acknowledged: %s", format_error(error))
        is_refused = isinstance(error, discord.HTTPException) and error.status < HTTPStatus.INTERNAL_SERVER_ERROR
        return not is_refused or getattr(error, "code", 0) == ALREADY_ACKNOWLEDGED
    return True


def _must_answer_ephemerally(interaction: discord.Interaction) -> bool:
    """Return whether the bot cannot post in the channel, but only respond ephemerally.

    This is so in DMs between other people, in servers without the bot, and without the permission to post.
    """
    if interaction.guild_id is None:
        return interaction.context.private_channel is True
    channel = interaction.channel
    return not (interaction.is_guild_integration() and _can_send_messages(interaction.app_permissions, channel))


def _can_send_messages(permissions: discord.Permissions, channel: Any) -> bool:
    is_thread = isinstance(channel, discord.Thread)
    may_post = permissions.send_messages_in_threads if is_thread else permissions.send_messages
    return permissions.view_channel and may_post
