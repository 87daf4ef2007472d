"""Intake: checks what comes in, stores it in the inbox, and handles what is no question to the agent.

A message waits in the inbox for a turn. Everything else is an `InboxEntry`, stored before its acknowledgement and
handled beside the turns. If a worker dies, another worker handles its entries.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import ClassVar

from channels.access import AccessDecision
from channels.base import Button
from channels.commands.handlers import (
    PRIVATE_COMMANDS,
    CommandHandler,
    CommandResult,
    command_limit_message,
    prompt_limit_message,
)
from channels.commands.presses import PressHandler
from channels.commands.services import PlatformServices
from channels.commands.syntax import CommandName, CommandSyntax
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.intake.incoming import Incoming, IncomingChange, IncomingMessage
from channels.platform import Platform
from channels.replies.reactions import QueuedReactions
from channels.replies.surface import Surface
from core.errors import StoreError, SurfaceError
from core.inbox.edits import ClaimedMessage, EditResult
from core.inbox.entries import InboxEntry
from core.messages.identity import Actor, User
from core.messages.inbox_message import AcceptResult, InboxMessage
from core.observability.secret_redaction import format_error
from core.privacy.vault import Cipher
from core.tools.human_requests import Question
from core.usage.user_rate_limits import DenialKind, RateLimitDenial

log = logging.getLogger(__name__)

#: The commands that change the same choice of a session: the one that was sent last wins.
_CHOICES: Mapping[CommandName, Collection[str]] = {
    "mute": ("mute", "listen"),
    "listen": ("mute", "listen"),
    "agent": ("agent",),
    "model": ("model",),
}

#: Seconds after which an interaction is acknowledged, stored or not. Slack and Discord wait for 3 seconds, and a
#: statement that waits for a lock of SQLite cannot be interrupted.
ACK_SECONDS = 1.5

#: Seconds that identifying the author may take before an entry is stored without the author's identity.
IDENTIFY_SECONDS = 1.0

#: Returns an entry with its author and place, or a refusal (empty for one that the author is not told).
Identify = Callable[[], Awaitable[InboxEntry | str]]

#: Awaited with a sentence: deletes a posted prompt, and sends its author the sentence with the reason.
Retract = Callable[[str], Awaitable[None]]


class IntakeHandler(ABC):
    """Base of the handlers of all that comes in from a platform.

    A subclass parses interactions, and shows their results on the platform.

    Attributes:
        must_refuse: whether each refused interaction, except a button press, must get an answer, since the platform
            would show a failure. Otherwise a user is told once an hour that they have no access.
        form_page_size: the most fields on a page of a form; 0 for no limit.
    """

    must_refuse: ClassVar[bool]
    form_page_size: ClassVar[int] = 0

    def __init__(
        self,
        platform: Platform,
        services: PlatformServices,
        queued_reactions: QueuedReactions,
        *,
        syntax: CommandSyntax,
        cipher: Cipher,
    ) -> None:
        self.commands = CommandHandler(services, queued_reactions, syntax)
        self.presses = PressHandler(services, queued_reactions)
        self._platform = platform
        self._services = services
        self._queued_reactions = queued_reactions
        self._cipher = cipher
        self._abandoned: asyncio.Task[None] | None = None

    @abstractmethod
    async def deny_privately(self, message: InboxMessage, text: str) -> None:
        """Show a text only to the author of a message, or raise `SurfaceError`."""

    async def choose_address(self, message: IncomingMessage) -> IncomingMessage:
        """Return a message, just before it is stored, with the final address of its reply, such as in a new thread."""
        return message

    @abstractmethod
    async def answer(self, entry: InboxEntry, result: CommandResult) -> None:
        """Show the result of an interaction, or raise `SurfaceError`.

        If the platform cannot show it only to the author, private content is left out.
        """

    async def refuse(self, entry: InboxEntry, text: str) -> None:
        """Show only the author the translated reason why the interaction is not processed, or raise `SurfaceError`."""
        await self.answer(entry, CommandResult(text))

    async def close_form(self, entry: InboxEntry) -> None:  # noqa: B027 - a platform may have nothing to close
        """Delete the private message from which the author opened a submitted form, if there is one."""

    @abstractmethod
    async def post_prompt(self, entry: InboxEntry) -> tuple[InboxMessage, Retract] | None:
        """Post a user's prompt for the agent (a command, form or menu entry), so that others see it too.

        Returns:
            The posted prompt as a message to answer, and a function that deletes the prompt and tells its author the
            reason. None if the prompt cannot be shown and the author was told.

        Raises:
            SurfaceError: the prompt cannot be shown, and the author was not told.
        """

    async def find_session(self, entry: InboxEntry) -> InboxEntry | None:
        """Return a command with the id of its session; None if the author is asked to choose one.

        Their choice arrives as another interaction.
        """
        return entry

    # Life cycle

    def start(self) -> None:
        """Start to handle the entries of dead workers, until `stop`."""
        work = self._services.entries.run_abandoned(self._platform.name, self._cipher, self._run_abandoned)
        self._abandoned = asyncio.create_task(work, name=f"{self._platform.name} entries")

    async def stop(self, seconds: float) -> None:
        """Cancel the task that handles entries of dead workers; wait at most `seconds` for its end."""
        if self._abandoned is not None:
            self._abandoned.cancel()
            await asyncio.wait([self._abandoned], timeout=seconds)  # the database may hang

    async def drain(self, seconds: float) -> None:
        """Wait for background tasks and queued reactions, at most `seconds` each, then cancel the unfinished."""
        await self._services.background.drain(seconds)
        await self._queued_reactions.drain(seconds)

    # Messages and their changes

    async def accept(self, incoming: Incoming) -> None:
        """Store what comes in, if it is for the bot and its author has access; run a command.

        A message that has to wait for a running turn gets the "queued" reaction. The author is told of a refusal for
        missing access or a rate limit: see `IncomingMessage.deny_privately`. Repeated deliveries are ignored, as are
        messages that the bot does not answer: see `IncomingMessage.is_mention`.

        Raises:
            StoreError: nothing is stored, and the platform must not get its acknowledgement.
        """
        if isinstance(incoming, IncomingChange):
            await self._accept_change(incoming)
            return
        if not (self._check_access(incoming) and await self._is_addressed(incoming)):
            return
        if incoming.command is not None:
            await self._accept_command(*incoming.command, incoming)
            return
        message = await self.choose_address(incoming)
        accepted = await self._services.inbox.accept(replace(message.inbound, is_addressed=message.is_mention))
        if isinstance(accepted, RateLimitDenial):
            render = partial(prompt_limit_message, accepted)
            self._services.background.start(self._deny(message, "rate", render, until=accepted.until), name="refusal")
        elif accepted is AcceptResult.WAITING:
            self._queued_reactions.add(message.inbound.address)

    def _check_access(self, message: IncomingMessage) -> bool:
        """Return whether a message's author may use the bot at its place; if not, tell them in the background.

        Without `deny_privately`, only an author who mentioned the bot is told, at most once an hour, and not for a
        message with `is_late` or `is_free_channel`.
        """
        decision = self._services.access_policy.check(message.inbound.actor_or_author, message.inbound.location)
        if decision is AccessDecision.ALLOWED:
            return True
        if message.deny_privately or (message.is_mention and not message.is_free_channel and not message.is_late):
            self._services.background.start(
                self._deny(message, "access", lambda say: say(decision.message)), name="refusal"
            )
        return False

    async def _is_addressed(self, message: IncomingMessage) -> bool:
        conversations = self._services.conversations
        follow = self._services.reply_without_mention
        if message.is_free_channel:
            return not await conversations.is_muted(message.inbound.session_id)
        if message.is_mention:
            return True
        return await conversations.is_for_bot(
            message.inbound,
            follow=follow,
            is_on_answer=message.is_in_answer_thread,
            addresses_others=message.addresses_others and not await self._may_answer_question(message.inbound),
        )

    async def _may_answer_question(self, inbound: InboxMessage) -> bool:
        author = self._services.access_policy.to_user(inbound.actor_or_author, "")
        return any(
            isinstance(request, Question) and request.takes_messages and request.may_be_answered_by(inbound, author)
            for request in await self._services.human_requests.list_open(session_id=inbound.session_id)
        )

    async def _accept_command(self, name: CommandName, argument: str, message: IncomingMessage) -> None:
        """Store a command and run it, before the next message of its session is stored.

        Not run is a command over the rate limit, and an older one of `_CHOICES` after a newer one: Slack may deliver an
        old command again.
        """
        inbound = message.inbound
        if limited := self.commands.apply_rate_limit(inbound):
            render = partial(command_limit_message, limited)
            self._services.background.start(self._deny(message, "command", render, until=limited.until), name="refusal")
            return
        locale = await words.resolve_locale(self._platform.get_locale(inbound))
        values = {"name": name, "argument": argument}
        # `until`: a command in a message does not affect later messages
        entry = InboxEntry("command", inbound, values, locale=locale, until=inbound.sent_at, is_private=False)
        if await self._services.entries.append(entry, self._cipher):
            await self._handle(entry)

    async def _accept_change(self, change: IncomingChange) -> None:
        """Apply an edit or deletion to the stored message.

        A message that waits is answered with its new text, or not at all. If a turn has claimed the message, its
        growing or finished answer gets a button to answer the new text. If a deleted message was the turn's only one, a
        running turn is cancelled, its open approvals and questions become void, and its reply says so.
        """
        if change.text is None:
            await self._delete(change.changed_key)
            return
        inbox = self._services.inbox
        mention = change.mention
        result = await inbox.edit_message(change.changed_key, change.text, is_mention=mention is not None)
        if isinstance(result, ClaimedMessage):
            self._services.rerenderer.rerender(result.turn_id)
        elif result is EditResult.NOT_RECEIVED and mention is not None:
            await self.accept(mention)

    async def _delete(self, event_key: str) -> None:
        requests = await self._services.human_requests.list_open(event_key=event_key)
        result = await self._services.inbox.delete_message(event_key)
        if isinstance(result, ClaimedMessage) and result.is_only_message:  # the turn may end before the reply changes
            for request in requests:
                self._services.request_messages.start_update(request, is_void=True)
            self._services.rerenderer.rerender(result.turn_id, ending=words.STOPPED_BY_DELETION)

    async def _deny(
        self,
        message: IncomingMessage,
        kind: DenialKind,
        render: Callable[[MessageCatalog], str],
        *,
        until: float | None = None,
    ) -> None:
        inbound = message.inbound
        if message.deny_privately or await self._should_notify(
            inbound.actor_or_author, kind, until=until, sent_at=inbound.sent_at
        ):
            text = render(words.messages_for(await words.resolve_locale(self._platform.get_locale(inbound))))
            await (message.deny_privately(text) if message.deny_privately else self.deny_privately(inbound, text))

    async def _should_notify(
        self, actor: Actor, kind: DenialKind, *, until: float | None = None, sent_at: float | None = None
    ) -> bool:
        """Return whether to tell a user of a denial, which is stored then; if that fails, they are not told."""
        if actor.is_bot:
            return False
        try:
            person = f"{actor.platform}:{actor.author}"
            return await self._services.denial_notices.claim_notice(person, kind, until=until, sent_at=sent_at)
        except StoreError as error:
            log.warning("a notice of a refusal cannot be recorded: %s", format_error(error))
            return False

    # Interactions

    async def receive(
        self,
        entry: InboxEntry,
        identify: Identify,
        acknowledge: Callable[[InboxEntry], Awaitable[bool]],
    ) -> None:
        """Store an interaction, acknowledge it within `ACK_SECONDS`, and handle it.

        A second delivery, or an interaction whose acknowledgement fails, is not handled. A refusal is shown to the
        author. If the database cannot store the interaction, it is handled all the same.

        Args:
            identify: returns the entry with its author and place; if it is refused, the reason to show.
            acknowledge: returns whether the platform accepts the acknowledgement. If not, the platform has told the
                author of the failure. For a refused interaction, its argument has `is_private` set.
        """
        storing = asyncio.create_task(self._store(entry, identify), name="interaction")
        try:
            await asyncio.wait([storing], timeout=ACK_SECONDS)
            if storing.done() and isinstance(storing.result(), str):
                entry = replace(entry, is_private=True)
            is_acknowledged = await acknowledge(entry)
            stored = await storing
        finally:
            storing.cancel()
        if isinstance(stored, str):
            await self._refuse(entry, stored)
        elif stored is not None:
            async with self._services.entries.handle(stored):
                if is_acknowledged:
                    await self._run(stored, identify)

    async def _store(self, entry: InboxEntry, identify: Identify) -> InboxEntry | str | None:
        """Store an interaction, unless it is refused within `IDENTIFY_SECONDS`; None if it was delivered before.

        If its author is not identified by then, it is stored as it is, and access is checked when it is handled.
        """
        say = words.messages_for(entry.locale)
        if limited := self.commands.apply_rate_limit(entry.message):
            return command_limit_message(limited, say)
        try:
            async with asyncio.timeout(IDENTIFY_SECONDS):
                authorized = await self.authorize(entry, identify)
        except TimeoutError:
            authorized = entry
        if isinstance(authorized, str):
            return authorized
        try:
            is_new = await self._services.entries.append(authorized, self._cipher)
        except StoreError as error:
            log.warning("an interaction is not stored, and is lost if this process ends now: %s", format_error(error))
            return authorized
        return authorized if is_new else None

    async def authorize(self, entry: InboxEntry, identify: Identify) -> InboxEntry | str:
        """Identify an interaction's author, and check their access; of a prompt, the rate limits too.

        A refusal is the translated reason to show; it is empty if the author is not told now. The database stores that
        an author was told of missing access.
        """
        identified = await identify() if entry.message.actor is None else entry
        if isinstance(identified, str):
            return identified
        message = identified.message
        say = words.messages_for(identified.locale)
        decision = self._services.access_policy.check(message.actor_or_author, message.location)
        if decision is not AccessDecision.ALLOWED:
            must_reply = self.must_refuse and entry.kind != "press"
            is_told = must_reply or await self._should_notify(message.actor_or_author, "access")
            return say(decision.message) if is_told else ""
        limited = await self.find_rate_limit_denial(message) if entry.kind == "prompt" else None
        return prompt_limit_message(limited, say) if limited else identified

    async def find_rate_limit_denial(self, message: InboxMessage) -> RateLimitDenial | None:
        """Return the exceeded rate limit of a message's author or place; None if the limits cannot be read (logged).

        Nothing is counted: the limits are checked again when the message is stored.
        """
        try:
            return await self._services.inbox.find_limit_denial(
                message.event_key, author=message.author, place=message.place
            )
        except StoreError as error:
            log.warning("a rate limit cannot be read: %s", format_error(error))
            return None

    # Entries

    async def _run_abandoned(self, entry: InboxEntry) -> None:
        """Handle an entry of a dead worker; it ends, also after a failure."""

        async def fail() -> str:  # the platform has told who they are only once
            return words.messages_for(entry.locale).format_error(SurfaceError.public)

        async with self._services.entries.handle(entry):
            await self._run(entry, fail)

    async def _handle(self, entry: InboxEntry) -> None:
        async with self._services.entries.handle(entry):
            await self._perform(entry)

    async def _run(self, entry: InboxEntry, identify: Identify) -> None:
        authorized = await self.authorize(entry, identify)
        if isinstance(authorized, str):
            await self._refuse(entry, authorized)
        else:
            await self._perform(authorized)

    async def _perform(self, entry: InboxEntry) -> None:
        try:
            match entry.kind:
                case "press":
                    await self._handle_press(entry)
                case "answer":
                    await self._submit_answer(entry)
                case "prompt":
                    await self._accept_prompt(entry)
                case "menu":
                    await self.answer(entry, await self._use_menu(entry))
                case "command":
                    await self._run_command(entry)
        except StoreError as error:
            log.error("an entry of the inbox cannot be handled: %s", format_error(error))
            await self._refuse(entry, words.messages_for(entry.locale).format_error(error.public))
        except SurfaceError as error:
            log.error("an interaction cannot be answered: %s", error)

    async def _handle_press(self, entry: InboxEntry) -> None:
        result = await self.presses.handle(
            entry.values["button"],
            actor=entry.message.actor_or_author,
            locale=entry.locale,
            name=entry.name,
            workspace=entry.message.location.workspace,
        )
        if result.text:
            await self.answer(entry, result)

    async def _use_menu(self, entry: InboxEntry) -> CommandResult:
        values = entry.values
        if values["action"] == "why":
            return await self.commands.explain_message(values["message"], values["key"], values.get("files", ()), entry)
        return await self.commands.rate_message(values["message"], values["key"], values["action"], entry)

    async def _submit_answer(self, entry: InboxEntry) -> None:
        say = words.messages_for(entry.locale)
        values = entry.values
        result = await self.presses.answers.submit(
            values["question"],
            values["entries"],
            self.get_user(entry),
            say,
            page=values.get("page", 0),
            page_size=self.form_page_size,
        )
        if result.text:
            label = say(words.CORRECT_ANSWER if result.is_correction else words.CONTINUE_FORM)
            button = Button(f"form:{result.page}:{result.question_id}", label)
            buttons = (button,) if result.question_id else ()
            await self.answer(entry, CommandResult(result.text, buttons=buttons))
        else:
            await self.close_form(entry)

    async def _run_command(self, entry: InboxEntry) -> None:
        name = entry.values["name"]
        argument = entry.values["argument"]
        if not entry.is_message:
            command = await self.find_session(entry)
            if command is not None:
                await self.answer(command, await self.commands.run(name, argument, command))
            return
        competing_commands = _CHOICES.get(name)
        if competing_commands and await self._services.inbox.has_newer_command(entry.message, names=competing_commands):
            return
        if name in PRIVATE_COMMANDS:
            hint = self.commands.format_private_hint(name, words.messages_for(entry.locale))
            result = CommandResult(hint)
        else:
            result = await self.commands.run(name, argument, entry)
        if not result.is_visible:
            answer = self._create_surface(entry.message).post_message(result.text, result.file)
            self._services.background.start(answer, name=f"answer to {name}")

    async def _accept_prompt(self, entry: InboxEntry) -> None:
        if await self._services.inbox.has_message(entry.message.event_key):  # accepted by a worker that died
            return
        posted = await self.post_prompt(entry)
        if posted is None:
            return
        inbound, retract = posted
        try:
            prefix = self.commands.syntax.prefix
            await self.accept(IncomingMessage(inbound, is_mention=True, command_prefix=prefix, deny_privately=retract))
        except StoreError as error:
            log.error("a prompt cannot be stored: %s", format_error(error))
            await retract(words.messages_for(entry.locale).format_error(error.public))

    async def _refuse(self, entry: InboxEntry, text: str) -> None:
        if not text:
            return
        try:
            if entry.is_message:
                await self._create_surface(entry.message).post_message(text)
            else:
                await self.refuse(entry, text)
        except SurfaceError as error:
            log.error("an interaction cannot be answered: %s", error)

    def _create_surface(self, message: InboxMessage) -> Surface:
        return self._platform.create_surface(message.address, turn_id=message.event_key)

    def get_user(self, entry: InboxEntry) -> User:
        return self._services.access_policy.to_user(entry.message.actor_or_author, entry.name)
