"""Handles incoming messages, their edits and deletions.

The access policy is asked first.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from channels.access import Admission
from channels.base import Surface
from channels.commands.handlers import (
    ENDING,
    PRIVATE,
    Asker,
    Commands,
    Name,
    Said,
    Ways,
    command_in,
    too_many,
    too_often,
)
from channels.commands.presses import PressHandler
from channels.i18n import messages as words
from channels.i18n.messages import Words
from channels.replies.reactions import Receipts
from channels.services import Desk
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
_CHOICES: Mapping[Name, Collection[str]] = {
    "mute": ("mute", "listen"),
    "listen": ("mute", "listen"),
    "agent": ("agent",),
    "model": ("model",),
}

#: Seconds within which somebody can still call the bot by editing what he has said.
MOMENT = 300.0


@dataclass(frozen=True, slots=True)
class Call:
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
    is_called: bool
    is_free: bool = False
    is_late: bool = False
    is_on_answer: bool = False
    send_away: Callable[[str], Awaitable[None]] | None = None

    @property
    def command(self) -> tuple[Name, str] | None:
        """What it asks for, and of what, if that is a command and nothing else."""
        return command_in(self.inbound.text) if self.is_called and not self.inbound.attachments else None


async def _unchanged(call: Call) -> Call:
    return call


class Intake:
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
        desk: Desk,
        receipts: Receipts,
        surface: Callable[[InboxMessage], Surface],
        locale: Callable[[InboxMessage], Awaitable[str]],
        whisper: Callable[[InboxMessage, str], Awaitable[None]],
        *,
        ways: Ways,
        place: Callable[[Call], Awaitable[Call]] = _unchanged,
    ) -> None:
        self.commands = Commands(desk, receipts, ways, self.run)
        self.presses = PressHandler(desk, receipts, self.run)
        self._desk = desk
        self._receipts = receipts
        self._surface = surface
        self._locale = locale
        self._whisper = whisper
        self._place = place
        self._work = Work()

    async def refusal(self, visitor: Actor, spot: Location, *, is_owed: bool = False) -> str | None:
        """What somebody is told who may not speak; nothing at all if he may.

        Args:
            is_owed: whether the platform would show that he got no answer. Otherwise he is told once an hour, and
                `refusal` is empty then; so it is for a bot, always.
        """
        admission = self._desk.door.admits(visitor, spot)
        if admission is Admission.ADMITTED:
            return None
        return admission.sentence if is_owed or await self._is_to_be_told(visitor, "door") else ""

    async def limited(self, said: InboxMessage | Asker) -> RateLimited | None:
        """Whether that would be one too many, as far as can be seen before it is taken."""
        try:
            return await self._desk.inbox.find_rate_limit(said.event_key, author=said.author, place=said.place)
        except StoreError as error:
            log.warning("it is not known how much somebody has asked: %s", traced(error))
            return None

    async def knows(self, said: InboxMessage | Asker) -> bool:
        """Whether that was taken before.

        Raises:
            StoreError: it cannot be seen.
        """
        return await self._desk.inbox.has_message(said.event_key)

    async def _send_away(self, call: Call, sentence: Callable[[Words], str]) -> None:
        text = sentence(words.of(await words.told(self._locale(call.inbound))))
        await (call.send_away(text) if call.send_away else self._whisper(call.inbound, text))

    async def _is_to_be_told(self, visitor: Actor, kind: DenialKind, *, until: float | None = None) -> bool:
        if visitor.is_bot:
            return False
        try:
            person = f"{visitor.platform}:{visitor.author}"
            return await self._desk.refusals.claim_notice(person, kind, until=until)
        except StoreError as error:
            log.warning("it is not known whether somebody was told that he is not answered: %s", traced(error))
            return False

    async def take(self, call: Call) -> None:
        """Store a message that is for the bot and whose author has access, or do the command that it is. If the author
        has to wait for the reply, the message gets a reaction.

        Raises:
            StoreError: it could not be stored, and must not be acknowledged.
        """
        if not (await self._admits(call) and await self._is_for_the_bot(call)):
            return
        if call.command is not None:
            await self._do(*call.command, call)
            return
        call = await self._place(call)
        accepted = await self._desk.inbox.accept(call.inbound)
        if isinstance(accepted, RateLimited):
            if call.send_away or await self._is_to_be_told(call.inbound.who, "rate", until=accepted.until):
                self.run(self._send_away(call, partial(too_often, accepted)), name="refusal")
        elif accepted is AcceptResult.WAITING:
            self._receipts.give(call.inbound.address)

    async def _admits(self, call: Call) -> bool:
        """Return whether the author has access; one without who mentions the bot is told so."""
        inbound = call.inbound
        admission = self._desk.door.admits(inbound.who, inbound.spot)
        if admission is Admission.ADMITTED:
            return True
        is_said_to_the_bot = call.is_called and not call.is_free and not call.is_late
        if call.send_away or (is_said_to_the_bot and await self._is_to_be_told(inbound.who, "door")):
            self.run(self._send_away(call, lambda say: say(admission.sentence)), name="refusal")
        return False

    async def _is_for_the_bot(self, call: Call) -> bool:
        conversations, follow = self._desk.conversations, self._desk.follow
        if call.is_free:
            return not await conversations.is_muted(call.inbound.session_id)
        if call.is_called:
            return True
        return await conversations.is_for_bot(call.inbound, follow=follow, is_on_answer=call.is_on_answer)

    async def _do(self, name: Name, argument: str, call: Call) -> None:
        """Do what a message asks for, and say there what came of it, once however often it is heard. It is noted when
        it is done: what is broken off before is done when it comes again.
        """
        inbound = call.inbound
        asker = Asker.of(inbound, await words.told(self._locale(inbound)))
        is_kept_by_itself = name in ENDING and await self._desk.inbox.has_session(inbound.session_id)
        if not is_kept_by_itself and await self.knows(inbound):
            return
        if limited := self.commands.count(asker):
            await self._desk.inbox.record_command(inbound, name, outcome=RATE_LIMITED)
            if await self._is_to_be_told(inbound.who, "command", until=limited.until):
                self.run(self._send_away(call, partial(too_many, limited)), name="refusal")
            return
        among = _CHOICES.get(name)  # Slack may bring one again that is not known to be late
        if among and await self._desk.inbox.has_newer_command(inbound, names=among):
            await self._desk.inbox.record_command(inbound, name)
            return
        said = await self._said_to(name, argument, asker)
        is_first = is_kept_by_itself or await self._desk.inbox.record_command(inbound, name)
        if is_first and not said.is_seen:
            self.run(self._surface(inbound).post_message(said.text, said.file), name=f"answer to {name}")

    async def _said_to(self, name: Name, argument: str, asker: Asker) -> Said:
        say = words.of(asker.locale)
        if name in PRIVATE:
            return Said(say(PRIVATE[name]))
        try:
            return await self.commands.run(name, argument, asker)
        except StoreError as error:
            if error.retryable:  # it comes again
                raise
            log.error("%s cannot be done: %s", name, traced(error))
            return Said(say.sorry(error.public))

    async def edited(self, event_key: str, text: str, *, calls: bool = False) -> bool:
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
        revised = await self._desk.inbox.edit_message(event_key, text, is_mention=calls)
        if isinstance(revised, ClaimedMessage):
            self.run(self._desk.reshow(revised.turn_id), name="edit")
        return revised is EditResult.NOT_RECEIVED

    async def deleted(self, event_key: str) -> None:
        """Take note that a message was deleted: it is not answered any more, or the answer says what became of it.

        Raises:
            StoreError: it could not be noted, and must not be acknowledged.
        """
        asked = await self._desk.approvals.open(event_key=event_key)
        withdrawn = await self._desk.inbox.delete_message(event_key)
        if (
            isinstance(withdrawn, ClaimedMessage) and withdrawn.is_only_message
        ):  # what is being ended may come to its end before that
            for approval in asked:
                self.run(self._desk.reask(approval, is_void=True), name="request")
            self.run(self._desk.reshow(withdrawn.turn_id, ending=words.WITHDRAWN), name="deletion")

    async def settle(self, seconds: float) -> None:
        """Wait for errands and receipts as `Work.end` does."""
        await self._work.end(seconds)
        await self._receipts.settle(seconds)

    def run(self, errand: Coroutine[Any, Any, None], *, name: str) -> None:
        """Do something that nobody waits for but `settle`."""
        self._work.watch(asyncio.create_task(_run(errand, name), name=name))


async def _run(errand: Coroutine[Any, Any, None], name: str) -> None:
    try:
        await errand
    except (StoreError, SurfaceError) as error:
        log.error("%s: it cannot be shown: %s", name, traced(error))
    except Exception as error:  # asyncio would tell of it with its text, and late
        log.error("%s has failed: %s", name, traced(error))
