"""Handler of incoming messages, edits and deletions; applies the access policy."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from channels.access import AccessDecision
from channels.base import Surface
from channels.commands.handlers import (
    CANCELLING_COMMANDS,
    PRIVATE_COMMANDS,
    CommandContext,
    CommandHandler,
    CommandResult,
    command_limit_message,
    parse_command,
    prompt_limit_message,
)
from channels.commands.presses import PressHandler
from channels.commands.syntax import CommandName, CommandSyntax
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.replies.reactions import QueuedReactions
from channels.services import ChannelServices
from core.concurrency.tasks import BackgroundTasks
from core.errors import StoreError, SurfaceError
from core.identity import Actor, Location
from core.inbox.edits import ClaimedMessage, EditResult
from core.inbox.store import AcceptResult
from core.inbox_message import InboxMessage, InboxOutcome
from core.secret_redaction import format_error
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

#: Seconds after a message in which an edit can add a mention of the bot.
EDIT_MENTION_WINDOW_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """Message of a user, as an adapter parsed it.

    Attributes:
        inbound: the message to store.
        is_mention: whether it mentions the bot or replies to it, is a direct message, or has `is_free_channel`. The bot
            answers another message only in a session in which it takes part.
        is_free_channel: whether it does not address the bot, but is in a channel where the bot answers all messages,
            unless the session is muted.
        is_late: whether newer messages may have been received before it.
        is_in_answer_thread: whether it is in a thread that was started on an answer of the bot.
        addresses_others: whether its text begins with a mention of other people, a group or everybody.
        command_prefix: the prefix of slash commands, which may be typed as a message too.
        deny_privately: shows only the author a text on why the message is not answered. It is set if the platform
            shows a failure for a missing answer; each refusal is then shown. If None, the author is told once an hour.
    """

    inbound: InboxMessage
    is_mention: bool
    is_free_channel: bool = False
    is_late: bool = False
    is_in_answer_thread: bool = False
    addresses_others: bool = False
    command_prefix: str = ""
    deny_privately: Callable[[str], Awaitable[None]] | None = None

    @property
    def command(self) -> tuple[CommandName, str] | None:
        """The name of the command and its argument (empty for none).

        None if the message does not mention the bot, has files, or is no command: see `parse_command`.
        """
        if not self.is_mention or self.inbound.attachments:
            return None
        return parse_command(self.inbound.text, self.command_prefix)


async def _keep_message(message: IncomingMessage) -> IncomingMessage:
    return message


class MessageHandler:
    """Stores a platform's messages, edits and deletions; runs commands; denies access.

    Args:
        queued_reactions: adds the reactions that mark users' messages as waiting.
        create_surface: returns the surface of the reply to a message.
        get_locale: see `Channel.get_locale`.
        send_ephemeral: shows a text to the author of a message only; used if the message has no `deny_privately`.
        syntax: the syntax of commands on the platform.
        choose_address: returns the message with the final address of its reply, such as in a new thread; awaited just
            before the message is stored.

    Attributes:
        commands: runs commands, also those that come as interactions.
        presses: performs the actions of pressed buttons.
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
        choose_address: Callable[[IncomingMessage], Awaitable[IncomingMessage]] = _keep_message,
    ) -> None:
        self.commands = CommandHandler(services, queued_reactions, syntax, self.run_in_background)
        self.presses = PressHandler(services, queued_reactions, self.run_in_background)
        self._services = services
        self._queued_reactions = queued_reactions
        self._create_surface = create_surface
        self._get_locale = get_locale
        self._send_ephemeral = send_ephemeral
        self._choose_address = choose_address
        self._background = BackgroundTasks()

    async def get_refusal(self, actor: Actor, location: Location, *, must_reply: bool = False) -> str | None:
        """Check a user's access, and return a sentence on why they have none.

        Unless `must_reply`, the database stores that the user was told. If that fails, this is logged, and the user is
        not told.

        Args:
            must_reply: whether the user must get the sentence each time, since the platform shows a failure for a
                missing answer. Otherwise a user is told once an hour, and a bot never.

        Returns:
            None if the user has access. Else `AccessDecision.message`, the sentence to translate and show; empty if the
            user is not told now.
        """
        decision = self._services.access_policy.check(actor, location)
        if decision is AccessDecision.ALLOWED:
            return None
        return decision.message if must_reply or await self._should_notify(actor, "access") else ""

    async def find_rate_limit_denial(self, message: InboxMessage | CommandContext) -> RateLimitDenial | None:
        """Return the exceeded rate limit of a message's author or place; else None.

        Nothing is counted: the limits are checked again when the message is stored. A failure to read the limits is
        logged, and the result is None.
        """
        try:
            return await self._services.inbox.find_limit_denial(
                message.event_key, author=message.author, place=message.place
            )
        except StoreError as error:
            log.warning("a rate limit cannot be read: %s", format_error(error))
            return None

    async def is_known(self, message: InboxMessage | CommandContext) -> bool:
        """Return whether a message or command with the same event key is stored.

        Raises:
            StoreError: the inbox cannot be read.
        """
        return await self._services.inbox.has_message(message.event_key)

    async def _deny_privately(self, message: IncomingMessage, render: Callable[[MessageCatalog], str]) -> None:
        text = render(words.messages_for(await words.resolve_locale(self._get_locale(message.inbound))))
        await (message.deny_privately(text) if message.deny_privately else self._send_ephemeral(message.inbound, text))

    async def _should_notify(self, actor: Actor, kind: DenialKind, *, until: float | None = None) -> bool:
        if actor.is_bot:
            return False
        try:
            person = f"{actor.platform}:{actor.author}"
            return await self._services.denial_notices.claim_notice(person, kind, until=until)
        except StoreError as error:
            log.warning("a notice of a refusal cannot be recorded: %s", format_error(error))
            return False

    async def accept(self, message: IncomingMessage) -> None:
        """Store a message for the bot, or run it as a command, if its author has access.

        A message that has to wait for a running turn gets the "queued" reaction. The author is told of a refusal for
        missing access or a rate limit: see `IncomingMessage.deny_privately`. Repeated deliveries are ignored, as are
        messages that the bot does not answer: see `IncomingMessage.is_mention`.

        Raises:
            StoreError: the message is not stored, and must not be acknowledged.
        """
        if not (await self._check_access(message) and await self._is_addressed(message)):
            return
        if message.command is not None:
            await self._run_command(*message.command, message)
            return
        message = await self._choose_address(message)
        accepted = await self._services.inbox.accept(replace(message.inbound, is_addressed=message.is_mention))
        if isinstance(accepted, RateLimitDenial):
            author = message.inbound.actor_or_author
            if message.deny_privately or await self._should_notify(author, "rate", until=accepted.until):
                self.run_in_background(
                    self._deny_privately(message, partial(prompt_limit_message, accepted)), name="refusal"
                )
        elif accepted is AcceptResult.WAITING:
            self._queued_reactions.add(message.inbound.address)

    async def _check_access(self, message: IncomingMessage) -> bool:
        """Return whether the author of a message may use the bot at the message's place.

        If not, a private message to the author is sent in the background. Without `deny_privately`, only an author who
        mentioned the bot gets it, at most once an hour, and not for a message with `is_late` or `is_free_channel`.
        """
        inbound = message.inbound
        decision = self._services.access_policy.check(inbound.actor_or_author, inbound.location)
        if decision is AccessDecision.ALLOWED:
            return True
        is_new_mention = message.is_mention and not message.is_free_channel and not message.is_late
        if message.deny_privately or (is_new_mention and await self._should_notify(inbound.actor_or_author, "access")):
            self.run_in_background(self._deny_privately(message, lambda say: say(decision.message)), name="refusal")
        return False

    async def _is_addressed(self, message: IncomingMessage) -> bool:
        conversations, follow = self._services.conversations, self._services.reply_without_mention
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

    async def _run_command(self, name: CommandName, argument: str, message: IncomingMessage) -> None:
        """Run a command and post its result once, even if the message is delivered twice.

        The message is stored in the inbox after the command has run. If the process dies before, the next delivery
        runs the command again. In an existing session, `stop` and `reset` store the message themselves. A command over
        the user's rate limit is not run. Nor is `agent`, `model`, `mute` or `listen` after a newer command of the same
        kind in the session; `mute` and `listen` are one kind.

        Raises:
            StoreError: the message is not stored.
        """
        inbound = message.inbound
        context = CommandContext.from_message(inbound, await words.resolve_locale(self._get_locale(inbound)))
        is_self_recording = name in CANCELLING_COMMANDS and await self._services.inbox.has_session(inbound.session_id)
        if not is_self_recording and await self.is_known(inbound):
            return
        if limited := self.commands.apply_rate_limit(context):
            await self._services.inbox.record_command(inbound, name, outcome=InboxOutcome.RATE_LIMITED)
            if await self._should_notify(inbound.actor_or_author, "command", until=limited.until):
                self.run_in_background(
                    self._deny_privately(message, partial(command_limit_message, limited)), name="refusal"
                )
            return
        competing_commands = _CHOICES.get(name)  # Slack may deliver an old command again
        if competing_commands and await self._services.inbox.has_newer_command(inbound, names=competing_commands):
            await self._services.inbox.record_command(inbound, name)
            return
        result = await self._execute(name, argument, context)
        is_first = is_self_recording or await self._services.inbox.record_command(inbound, name)
        if is_first and not result.is_visible:
            self.run_in_background(
                self._create_surface(inbound).post_message(result.text, result.file), name=f"answer to {name}"
            )

    async def _execute(self, name: CommandName, argument: str, context: CommandContext) -> CommandResult:
        say = words.messages_for(context.locale)
        if name in PRIVATE_COMMANDS:
            return CommandResult(self.commands.format_private_hint(name, say))
        try:
            return await self.commands.run(name, argument, context)
        except StoreError as error:
            if error.retryable:  # the message is delivered again
                raise
            log.error("the command %s failed: %s", name, format_error(error))
            return CommandResult(say.format_error(error.public))

    async def handle_edit(self, event_key: str, text: str, *, is_mention: bool = False) -> bool:
        """Store the new text of an edited message.

        A message that waits is answered with its new text. If a turn has claimed it, the turn's growing or finished
        answer gets a button to answer the new text.

        Args:
            event_key: the `InboxMessage.event_key` of the message.
            text: the new text without the mention of the bot.
            is_mention: whether the new text mentions the bot.

        Returns:
            True if the new text mentions the bot, and the message is not stored or was stored as one to other people.
            In that case the stored message is deleted, and the caller is to accept the new one. Else False.

        Raises:
            StoreError: the edit is not stored, and must not be acknowledged.
        """
        result = await self._services.inbox.edit_message(event_key, text, is_mention=is_mention)
        if isinstance(result, ClaimedMessage):
            self.run_in_background(self._services.rerender_reply(result.turn_id), name="edit")
        return result is EditResult.NOT_RECEIVED

    async def handle_deletion(self, event_key: str) -> None:
        """Delete the stored text of a message that its author deleted.

        If the message waits, it is not answered. If a turn answers it alone, a running turn is cancelled. Running or
        ended, the turn's open approvals and questions become void, and its run record is deleted. Its cancelled or
        finished reply gets a notice in place of its buttons. A turn that answers other messages too goes on. Nothing
        happens if the message is not stored.

        Raises:
            StoreError: the deletion is not stored, and must not be acknowledged.
        """
        requests = await self._services.human_requests.list_open(event_key=event_key)
        result = await self._services.inbox.delete_message(event_key)
        if (
            isinstance(result, ClaimedMessage) and result.is_only_message
        ):  # its turn may end before the reply is updated
            for request in requests:
                self.run_in_background(self._services.update_request_message(request, is_void=True), name="request")
            self.run_in_background(
                self._services.rerender_reply(result.turn_id, ending=words.STOPPED_BY_DELETION), name="deletion"
            )

    async def drain(self, seconds: float) -> None:
        """Wait for background tasks and queued reactions, then cancel the unfinished.

        Args:
            seconds: the most seconds for each of the two waits.
        """
        await self._background.drain(seconds)
        await self._queued_reactions.drain(seconds)

    def run_in_background(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run a coroutine in a background task; its errors are logged.

        `drain` waits for the task.

        Args:
            name: the purpose of the task, for the log.
        """
        self._background.add(asyncio.create_task(_log_errors(work, name), name=name))


async def _log_errors(work: Coroutine[Any, Any, None], name: str) -> None:
    try:
        await work
    except (StoreError, SurfaceError) as error:
        log.error("%s cannot be shown: %s", name, format_error(error))
    except Exception as error:  # asyncio would log it late, and with its text
        log.error("%s failed: %s", name, format_error(error))
