"""Surface of ephemeral replies, which are sent by the token of an interaction."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from channels.base import FINAL_PRIORITIES, Button, File, Plan, Priority, RecordMessageId
from channels.discord.client.responses import RESPONSE_ID, InteractionResponder
from channels.discord.replies.surface import DiscordMessageSurface, get_edit_outcome, ignore_deleted
from channels.i18n import messages as words
from channels.rate_limits.caller import TransientError
from channels.rate_limits.limiter import RateLimiter
from channels.replies.reactions import QueuedReactions
from channels.replies.reply import FILE_NAME
from channels.replies.surface import EditOutcome, PostedMessage
from core.errors import SurfaceError

#: Actions of buttons that change only the reply; those of others would post a message after the token has expired.
_BUTTON_KINDS = ("stop", "good", "bad", "approve", "always", "deny", "attach")


#: Most messages per interaction. Discord: the response and 5 follow-up messages.
MAX_MESSAGES = 6


class EphemeralSurface(DiscordMessageSurface):
    """Surface of a reply that only the author of an interaction sees.

    The first message is the response to the interaction, the others are follow-up messages.

    Args:
        responder: sends and edits the messages by the token of the interaction.
        address: the address of the reply. With the key `side_name`, the surface shows a message beside a reply, such as
            an approval. The first message is then a follow-up message, too.
    """

    def __init__(
        self, responder: InteractionResponder, queued_reactions: QueuedReactions, address: Mapping[str, Any]
    ) -> None:
        super().__init__(queued_reactions, address)
        self._responder = responder
        self._is_first = "side_name" not in address
        self._messages = words.messages_for(address.get("locale", ""))

    @property
    def _post_limiter(self) -> RateLimiter:
        return self._responder.post_limiter

    @property
    def _edit_limiter(self) -> RateLimiter:
        return self._responder.edit_limiter

    async def find_message_ids(self, recorded_ids: Sequence[str] = (), *, is_contested: bool = False) -> list[str]:
        """Return `recorded_ids`: Discord lists no ephemeral messages.

        If `is_contested`, the final call of `show` edits these messages again.
        """
        self._to_rewrite.update(recorded_ids if is_contested else ())
        return list(recorded_ids)

    async def add_reaction(self, emoji: str) -> None:
        del emoji
        raise SurfaceError("a slash command has no message to react to")

    async def show(self, plan: Plan, known_ids: Sequence[str], record: RecordMessageId) -> bool:
        """Show a plan: see `Surface.show`.

        Of more than `MAX_MESSAGES` chunks, the first ones are shown, and the whole final text is attached as a file.
        """
        if len(plan.chunks) > MAX_MESSAGES:
            plan = self._limit_messages(plan)
        return await super().show(plan, known_ids, record)

    def _limit_messages(self, plan: Plan) -> Plan:
        chunks = [*plan.chunks[:MAX_MESSAGES]]
        if plan.priority not in FINAL_PRIORITIES:
            return replace(plan, chunks=chunks, is_growing=False)
        chunks[-1] = replace(chunks[-1], text=f"{chunks[-1].text}\n\n{self._messages(words.FULL_ANSWER_IN_FILE)}")
        text = "\n\n".join(chunk.text for chunk in plan.chunks)
        names = {file.name for file in plan.files}
        whole_file = [] if FILE_NAME in names else [File(FILE_NAME, text.encode())]
        return replace(plan, chunks=chunks, files=[*whole_file, *plan.files])

    async def _post(
        self, position: int, text: str, buttons: Sequence[Button], priority: Priority, previous: str | None
    ) -> PostedMessage | None:
        del previous
        has_slot, buttons = self.use_slot(self._post_limiter), _filter_buttons(buttons)
        if position or not self._is_first:
            send = self._responder.post_message
        else:
            send = partial(self._responder.edit_message, RESPONSE_ID)
        try:
            message = await send(text, buttons, priority=priority, has_slot=has_slot)
        except TransientError:  # the next call posts it: Discord lists no ephemeral messages, so the outcome is unknown
            return None
        return None if message is None else PostedMessage(str(message.id))

    async def _edit(self, message_id: str, text: str, buttons: Sequence[Button], priority: Priority) -> EditOutcome:
        has_slot, buttons = self.use_slot(self._edit_limiter), _filter_buttons(buttons)
        edit = self._responder.edit_message(message_id, text, buttons, priority=priority, has_slot=has_slot)
        return await get_edit_outcome(edit)

    async def _delete(self, message_id: str) -> None:
        await ignore_deleted(self._responder.delete_message(message_id))

    async def _set_files(self, message_id: str, files: Sequence[File]) -> None:
        await self._responder.set_files(message_id, files)

    async def _find_own(self) -> dict[int, str]:
        return {}


def _filter_buttons(controls: Sequence[Button]) -> list[Button]:
    return [control for control in controls if control.id.startswith(_BUTTON_KINDS)]
