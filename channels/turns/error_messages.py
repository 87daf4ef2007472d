"""Messages in replies about errors, restarts and fallback models."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import date, timedelta

from channels.base import Button, File, Priority
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.platform import Platform
from channels.replies.buttons import create_button
from channels.replies.reply import FILE_NAME, Reply
from channels.requests.approval_message import plain_line
from core.errors import ParleyError, SpendingLimitError, StoreError, SurfaceError
from core.messages.inbox_message import InboxMessage
from core.turns.turn import Turn
from core.usage.meter import ModelCall
from core.usage.spending_ledger import SpendingStore

log = logging.getLogger(__name__)

#: Seconds that showing the notice of a restart may take; if it fails, the turn is released all the same.
NOTICE_TIMEOUT_SECONDS = 3.0


class ErrorMessages:
    """Builds the sentence that tells a user why their turn failed.

    Without `spending`, it names no administrators. `admins` are the ids of the people who can raise a spending limit,
    as on their platform, such as `U012AB3CD`.
    """

    def __init__(self, spending: SpendingStore | None = None, admins: Collection[str] = ()) -> None:
        self._spending = spending
        self._admins = frozenset(admins)

    async def describe(self, error: Exception, turn: Turn, say: MessageCatalog) -> str:
        """Return a sentence on why a turn failed: a general one if `error` is no `ParleyError`.

        For a spending limit, it also says until when the limit applies and who can raise it.
        """
        if not isinstance(error, SpendingLimitError):
            return say(error.public if isinstance(error, ParleyError) else ParleyError.public)
        until = date.fromisoformat(turn.meter.day) + timedelta(days=1)
        admins = await self._admin_names(turn.newest_message.platform, say)
        return f"{say(error.public, **error.facts)} {say(words.LIMIT_RESETS, day=until.isoformat(), who=admins)}"

    async def _admin_names(self, platform: str, say: MessageCatalog) -> str:
        if self._spending is None or not self._admins:
            return say(words.LIMIT_OPERATOR)
        names = await self._spending.get_latest_names([f"{platform}:{id_}" for id_ in self._admins])
        return ", ".join(sorted(names.values())) or say(words.LIMIT_ADMINS)


async def post_as_file(
    reply: Reply, turn_id: str, text: str, files: Sequence[File], reason: str = words.MESSAGE_REFUSED
) -> None:
    """Close a reply whose text the platform refuses, with the text in a file.

    The reply shows `reason` (untranslated), the turn's id and a *Retry* button; for an empty text, a general error. If
    that cannot be shown either, the reply stays as it is. The caller ends the turn.

    Raises:
        StoreError: the ids of the reply's messages cannot be stored, or another worker has claimed the turn.
    """
    text = text.strip()
    files = [File(FILE_NAME, text.encode()), *files] if text else files
    ending = reply.say.format_error_with_id(reason if text else SurfaceError.public, turn_id)
    with suppress(SurfaceError):
        retry = [create_button("retry", turn_id, reply.say)]
        await reply.close("", Priority.ERROR, ending=ending, buttons=retry, files=files)


async def announce_restart(reply: Reply, turn_id: str, buttons: Sequence[Button]) -> None:
    """Close a reply with a notice that the bot restarts and the reply will continue.

    Failures are logged; the call takes at most `NOTICE_TIMEOUT_SECONDS`.
    """
    try:
        async with asyncio.timeout(NOTICE_TIMEOUT_SECONDS):
            await reply.close(
                reply.text_without_ending.rstrip(), ending=reply.say(words.RESTARTING), buttons=list(buttons)
            )
    except (StoreError, SurfaceError, TimeoutError) as error:
        log.warning("turn %s: the notice of the restart cannot be shown: %s", turn_id, error)


def log_level(error: Exception) -> int:
    return logging.INFO if isinstance(error, SpendingLimitError) else logging.ERROR


def error_summary(error: Exception) -> str:
    """Return the type of an error, and the text of a `ParleyError`: others may contain secrets."""
    return f"{type(error).__name__}: {error}" if isinstance(error, ParleyError) else type(error).__name__


def add_model_note(text: str, calls: Sequence[ModelCall], say: MessageCatalog) -> str:
    """Return an answer with a note below it if a fallback model wrote it; an empty one gets no note."""
    answered = [call for call in calls if not call.error]
    stand_in = answered[-1] if answered else None
    if stand_in is None or not stand_in.instead_of or not text.strip():
        return text
    note = say(words.ANSWERED_BY_FALLBACK, model=stand_in.model, other=stand_in.instead_of)
    return f"{text.rstrip()}\n\n{note}"


async def spending_notice(platform: Platform, messages: Sequence[InboxMessage], say: MessageCatalog) -> str:
    """Return the sentence that a turn leaves out messages, since their authors reached their spending limit."""
    names = {plain_line((await platform.read_message(message)).speaker) for message in messages}
    return say(words.MESSAGES_LEFT_OUT, names=", ".join(sorted(name or say(words.UNKNOWN_USER) for name in names)))


def add_notice(text: str, notice: str) -> str:
    return f"{text.rstrip()}\n\n{notice}".strip() if notice else text
