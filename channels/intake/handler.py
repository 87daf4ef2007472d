"""Handles incoming messages, their edits and deletions.

The access policy is asked first.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from channels.access import AccessDecision
from channels.base import Surface
from channels.commands.handlers import (
    CANCELLING_COMMANDS,
    PRIVATE_COMMANDS,
    CommandContext,
    CommandHandler,
    CommandName,
    CommandResult,
    CommandSyntax,
    command_limit_message,
    parse_command,
    question_limit_message,
)
from channels.commands.presses import PressHandler
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.replies.reactions import QueuedReactions
from channels.services import ChannelServices
from core.concurrency.tasks import Work
from core.errors import StoreError, SurfaceError
from core.identity import Actor, Location
from core.inbox.edits import ClaimedMessage, EditResult
from core.inbox.store import AcceptResult
from core.inbox_message import InboxMessage
from core.secret_redaction import traced
from core.usage.user_rate_limits import RATE_LIMITED, DenialKind, RateLimited

log = logging.getLogger(__name__)

#: What is chosen for a conversation, and by which commands: the last one holds, whichever is heard first.
_CHOICES: Mapping[CommandName, Collection[str]] = {
    "mute": ("mute", "listen"),
    "listen": ("mute", "listen"),
    "agent": ("agent",),
    "model": ("model",),
}

#: Seconds within which somebody can still call the bot by editing what he has said.
EDIT_MENTION_WINDOW_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """A message of a person.

    Attributes:
        is_called: whether it calls the bot by name or is written to it alone. Otherwise it is one that the
            bot answers only where it speaks already, and only if that is for it.
        is_free: whether it calls the bot by being said where nobody has to name it, and where it answers all unless
            it is muted.
        is_late: whether it was said a while ago, and others after it may have been heard before.
        is_on_answer: whether it is in a thread that was opened on an answer of the bot, which is for the bot unless the
            conversation says otherwise.
        send_away: says to its author alone why it is not answered, where the platform would show that he got no
            answer; else he is told once an hour.
    """

    inbound: InboxMessage
    is_mention: bool
    is_free_channel: bool = False
    is_late: bool = False
    is_in_answer_thread: bool = False
    deny_privately: Callable[[str], Awaitable[None]] | None = None

    @property
    def command(self) -> tuple[CommandName, str] | None:
        """What it asks for, and of what, if that is a command and nothing else."""
        return parse_command(self.inbound.text) if self.is_mention and not self.inbound.attachments else None


async def _unchanged(message: IncomingMessage) -> IncomingMessage:
    return message


class MessageHandler:
    """Handles the messages, edits, deletions and presses of a channel.

    Attributes:
        commands: for commands that are not messages.
        presses: for button presses.

    Args:
        surface: where the reply to a message is shown.
        locale: see `Channel.locale`.
        whisper: shows a text to the author of a message alone, if the message has no `send_away`.
        ways: how commands are given on the platform.
        place: chooses where a message is answered, just before it is stored.
    """

    def __init__(
        self,
        services: ChannelServices,
        queued_reactions: QueuedReactions,
        create_surface: Callable[[InboxMessage], Surface],
        get_locale: Callable[[InboxMessage], Awaitable[str]],
        send_ephemeral: Callable[[InboxMessage, str], Awaitable[None]],
        *,
        syntax: CommandSyntax,
        choose_address: Callable[[IncomingMessage], Awaitable[IncomingMessage]] = _unchanged,
    ) -> None:
        self.commands = CommandHandler(services, queued_reactions, syntax, self.run_in_background)
        self.presses = PressHandler(services, queued_reactions, self.run_in_background)
        self._services = services
        self._queued_reactions = queued_reactions
        self._create_surface = create_surface
        self._get_locale = get_locale
        self._send_ephemeral = send_ephemeral
        self._choose_address = choose_address
        self._background = Work()

    async def get_refusal(self, visitor: Actor, spot: Location, *, must_reply: bool = False) -> str | None:
        """What somebody is told who may not speak; nothing at all if he may.

        Args:
            is_owed: whether the platform would show that he got no answer. Otherwise he is told once an hour, and
                `refusal` is empty then; so it is for a bot, always.
        """
        admission = self._services.access_policy.check(visitor, spot)
        if admission is AccessDecision.ALLOWED:
            return None
        return admission.message if must_reply or await self._should_notify(visitor, "door") else ""

    async def get_rate_limit(self, message: InboxMessage | CommandContext) -> RateLimited | None:
        """Whether that would be one too many, as far as can be seen before it is taken."""
        try:
            return await self._services.inbox.find_rate_limit(
                message.event_key, author=message.author, place=message.place
            )
        except StoreError as error:
            log.warning("it is not known how much somebody has asked: %s", traced(error))
            return None

    async def is_known(self, message: InboxMessage | CommandContext) -> bool:
        """Whether that was taken before.

        Raises:
            StoreError: it cannot be seen.
        """
        return await self._services.inbox.has_message(message.event_key)

    async def _deny_privately(self, message: IncomingMessage, render: Callable[[MessageCatalog], str]) -> None:
        text = render(words.messages_for(await words.resolve_locale(self._get_locale(message.inbound))))
        await (message.deny_privately(text) if message.deny_privately else self._send_ephemeral(message.inbound, text))

    async def _should_notify(self, visitor: Actor, kind: DenialKind, *, until: float | None = None) -> bool:
        if visitor.is_bot:
            return False
        try:
            person = f"{visitor.platform}:{visitor.author}"
            return await self._services.refusals.claim_notice(person, kind, until=until)
        except StoreError as error:
            log.warning("it is not known whether somebody was told that he is not answered: %s", traced(error))
            return False

    async def accept(self, message: IncomingMessage) -> None:
        """Store a message that is for the bot and whose author has access, or do the command that it is. If the author
        has to wait for the reply, the message gets a reaction.

        Raises:
            StoreError: it could not be stored, and must not be acknowledged.
        """
        if not (await self._check_access(message) and await self._is_addressed(message)):
            return
        if message.command is not None:
            await self._run_command(*message.command, message)
            return
        message = await self._choose_address(message)
        accepted = await self._services.inbox.accept(message.inbound)
        if isinstance(accepted, RateLimited):
            if message.deny_privately or await self._should_notify(message.inbound.who, "rate", until=accepted.until):
                self.run_in_background(
                    self._deny_privately(message, partial(question_limit_message, accepted)), name="refusal"
                )
        elif accepted is AcceptResult.WAITING:
            self._queued_reactions.add(message.inbound.address)

    async def _check_access(self, message: IncomingMessage) -> bool:
        """Return whether the author has access; one without who mentions the bot is told so."""
        inbound = message.inbound
        admission = self._services.access_policy.check(inbound.who, inbound.spot)
        if admission is AccessDecision.ALLOWED:
            return True
        is_said_to_the_bot = message.is_mention and not message.is_free_channel and not message.is_late
        if message.deny_privately or (is_said_to_the_bot and await self._should_notify(inbound.who, "door")):
            self.run_in_background(self._deny_privately(message, lambda say: say(admission.message)), name="refusal")
        return False

    async def _is_addressed(self, message: IncomingMessage) -> bool:
        conversations, follow = self._services.conversations, self._services.follow
        if message.is_free_channel:
            return not await conversations.is_muted(message.inbound.session_id)
        if message.is_mention:
            return True
        return await conversations.is_for_bot(message.inbound, follow=follow, is_on_answer=message.is_in_answer_thread)

    async def _run_command(self, name: CommandName, argument: str, message: IncomingMessage) -> None:
        """Do what a message asks for, and say there what came of it, once however often it is heard. It is noted when
        it is done: what is broken off before is done when it comes again.
        """
        inbound = message.inbound
        asker = CommandContext.from_message(inbound, await words.resolve_locale(self._get_locale(inbound)))
        is_kept_by_itself = name in CANCELLING_COMMANDS and await self._services.inbox.has_session(inbound.session_id)
        if not is_kept_by_itself and await self.is_known(inbound):
            return
        if limited := self.commands.count_command(asker):
            await self._services.inbox.record_command(inbound, name, outcome=RATE_LIMITED)
            if await self._should_notify(inbound.who, "command", until=limited.until):
                self.run_in_background(
                    self._deny_privately(message, partial(command_limit_message, limited)), name="refusal"
                )
            return
        among = _CHOICES.get(name)  # Slack may bring one again that is not known to be late
        if among and await self._services.inbox.has_newer_command(inbound, names=among):
            await self._services.inbox.record_command(inbound, name)
            return
        said = await self._execute(name, argument, asker)
        is_first = is_kept_by_itself or await self._services.inbox.record_command(inbound, name)
        if is_first and not said.is_visible:
            self.run_in_background(
                self._create_surface(inbound).post_message(said.text, said.file), name=f"answer to {name}"
            )

    async def _execute(self, name: CommandName, argument: str, context: CommandContext) -> CommandResult:
        say = words.messages_for(context.locale)
        if name in PRIVATE_COMMANDS:
            return CommandResult(say(PRIVATE_COMMANDS[name]))
        try:
            return await self.commands.run(name, argument, context)
        except StoreError as error:
            if error.retryable:  # it comes again
                raise
            log.error("%s cannot be done: %s", name, traced(error))
            return CommandResult(say.format_error(error.public))

    async def handle_edit(self, event_key: str, text: str, *, is_mention: bool = False) -> bool:
        """Take note that a message was edited: what waits is answered as it says now, and under an answer that is
        given already stands a button to have it answered anew.

        Args:
            text: as `InboxMessage.text` has it.
            calls: whether it calls the bot now.

        Returns:
            Whether it is a call by that: nothing came of it before.

        Raises:
            StoreError: it could not be noted, and must not be acknowledged.
        """
        revised = await self._services.inbox.edit_message(event_key, text, is_mention=is_mention)
        if isinstance(revised, ClaimedMessage):
            self.run_in_background(self._services.rerender_reply(revised.turn_id), name="edit")
        return revised is EditResult.NOT_RECEIVED

    async def handle_deletion(self, event_key: str) -> None:
        """Take note that a message was deleted: it is not answered any more, or the answer says what became of it.

        Raises:
            StoreError: it could not be noted, and must not be acknowledged.
        """
        asked = await self._services.approvals.open(event_key=event_key)
        withdrawn = await self._services.inbox.delete_message(event_key)
        if (
            isinstance(withdrawn, ClaimedMessage) and withdrawn.is_only_message
        ):  # what is being ended may come to its end before that
            for approval in asked:
                self.run_in_background(self._services.update_approval_message(approval, is_void=True), name="request")
            self.run_in_background(
                self._services.rerender_reply(withdrawn.turn_id, ending=words.WITHDRAWN), name="deletion"
            )

    async def drain(self, seconds: float) -> None:
        """Wait for errands and receipts as `Work.end` does."""
        await self._background.end(seconds)
        await self._queued_reactions.drain(seconds)

    def run_in_background(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Do something that nobody waits for but `settle`."""
        self._background.watch(asyncio.create_task(_log_errors(work, name), name=name))


async def _log_errors(work: Coroutine[Any, Any, None], name: str) -> None:
    try:
        await work
    except (StoreError, SurfaceError) as error:
        log.error("%s: it cannot be shown: %s", name, traced(error))
    except Exception as error:  # asyncio would tell of it with its text, and late
        log.error("%s has failed: %s", name, traced(error))
