"""Shows a reply to one person alone, where the bot has nothing but the token of an interaction."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from channels.base import FINAL_PRIORITIES, Button, File, Plan, Priority, RecordMessageId
from channels.discord.client.api import GONE
from channels.discord.client.files import check
from channels.discord.interactions.responses import ORIGINAL, Token
from channels.discord.replies.surface import DELETED, LIMITS
from channels.i18n import messages as words
from channels.rate_limits.caller import RefusedError, TransientError
from channels.rate_limits.limiter import RateLimiter
from channels.replies.reactions import QueuedReactions
from channels.replies.reply import FILE_NAME
from channels.replies.surface import EditOutcome, MessageSurface, PostedMessage, RecordFile

#: The buttons that need no more of the place than what stands there; the others would show something anew later.
_KEPT = ("stop", "good", "bad", "why", "approve", "always", "deny")


#: Discord: the answer to an interaction, and 5 more.
MOST_MESSAGES = 6


class Aside(MessageSurface):
    """One reply: its first message is the answer to the interaction, and the rest follow it.

    A message that waits for its turn has no sign of that: the asker sees that the bot thinks.
    """

    limits = LIMITS

    def __init__(self, token: Token, queued_reactions: QueuedReactions, address: Mapping[str, Any]) -> None:
        super().__init__(queued_reactions, address)
        self._token = token
        self._is_first = "apart" not in address
        self._say = words.messages_for(address.get("locale", ""))

    @property
    def _post_limiter(self) -> RateLimiter:
        return self._token.posts

    @property
    def _edit_limiter(self) -> RateLimiter:
        return self._token.edits

    async def find_message_ids(self, recorded_ids: Sequence[str] = (), *, is_contested: bool = False) -> list[str]:
        """Return what is recorded: Discord tells of no ephemeral message but the first."""
        self._to_rewrite.update(recorded_ids if is_contested else ())
        return list(recorded_ids)

    async def show(self, plan: Plan, known_ids: Sequence[str], record: RecordMessageId) -> bool:
        """As of any reply; of one of more messages than there may be, the last of them has the whole as a file."""
        if len(plan.chunks) > MOST_MESSAGES:
            plan = self._beginning(plan)
        return await super().show(plan, known_ids, record)

    def _beginning(self, plan: Plan) -> Plan:
        chunks = [*plan.chunks[:MOST_MESSAGES]]
        if plan.priority not in FINAL_PRIORITIES:
            return replace(plan, chunks=chunks, is_growing=False)
        chunks[-1] = replace(chunks[-1], text=f"{chunks[-1].text}\n\n{self._say(words.IN_FILE)}")
        whole = "\n\n".join(chunk.text for chunk in plan.chunks)
        names = {file.name for file in plan.files}
        whole_file = [] if FILE_NAME in names else [File(FILE_NAME, whole.encode())]
        return replace(plan, chunks=chunks, files=[*whole_file, *plan.files])

    def add_queued_reaction(self) -> None: ...

    def assume_queued_reaction(self) -> None: ...

    async def remove_queued_reaction(self) -> None: ...

    async def _post(
        self, position: int, text: str, buttons: Sequence[Button], priority: Priority, previous: str | None
    ) -> PostedMessage | None:
        del previous
        is_admitted = self.use_slot(self._post_limiter)
        if position or not self._is_first:
            said = await self._token.post(text, _kept(buttons), priority=priority, is_admitted=is_admitted)
        else:
            said = await self._token.edit(ORIGINAL, text, _kept(buttons), priority=priority, is_admitted=is_admitted)
        return None if said is None else PostedMessage(str(said.id))

    async def _edit(self, message_id: str, text: str, buttons: Sequence[Button], priority: Priority) -> EditOutcome:
        is_admitted = self.use_slot(self._edit_limiter)
        try:
            said = await self._token.edit(message_id, text, _kept(buttons), priority=priority, is_admitted=is_admitted)
        except RefusedError as refusal:
            if refusal.code not in GONE:
                raise
            return EditOutcome.GONE
        except TransientError:
            return EditOutcome.LOST
        return EditOutcome.DROPPED if said is None else EditOutcome.DONE

    async def _delete(self, message_id: str) -> None:
        try:
            await self._token.delete(message_id)
        except RefusedError as refusal:
            if refusal.code not in DELETED:
                raise

    async def _attach(self, files: Sequence[File], last: str, known: Mapping[str, str], record: RecordFile) -> None:
        check(files)
        for id_ in set(known.values()) - {last}:
            await self._detach(id_)
        for file in files:
            await record(file.name, last)
        await self._token.attach(last, files)

    async def _detach(self, file_id: str) -> None:
        try:
            await self._token.attach(file_id, ())
        except RefusedError as refusal:
            if refusal.code not in DELETED:
                raise

    async def _find_own(self) -> dict[int, str]:
        return {}


def _kept(controls: Sequence[Button]) -> list[Button]:
    return [control for control in controls if control.id.startswith(_KEPT)]
