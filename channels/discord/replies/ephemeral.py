"""Surface of ephemeral replies, which are sent by the token of an interaction."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from channels.base import Button, File
from channels.discord.client.responses import RESPONSE_ID, InteractionResponder
from channels.discord.replies.surface import DiscordMessageSurface, get_edit_outcome, ignore_deleted
from channels.rate_limits.limiter import RateLimiter
from channels.rate_limits.retries import TransientError
from channels.replies.diff import Edit, Post
from channels.replies.reactions import QueuedReactions
from channels.replies.surface import EditOutcome, PostOutcome
from core.errors import SurfaceError

#: Actions of buttons that change only the reply; those of others would post a message after the token has expired.
_BUTTON_KINDS = (
    *("stop", "good", "bad", "approve", "always", "deny", "attach", "connect", "decline"),
    *("unschedule", "schedule_", "zones"),
)


class EphemeralSurface(DiscordMessageSurface):
    """Surface of a reply that only the author of an interaction sees.

    The first message is the response to the interaction, the others are follow-up messages.

    Args:
        address: the address of the reply. With the key `side_name`, the surface shows a message beside a reply, such as
            an approval. The first message is then a follow-up message, too.
    """

    max_messages = 6  # Discord: the response and 5 follow-up messages

    def __init__(
        self, responder: InteractionResponder, queued_reactions: QueuedReactions, address: Mapping[str, Any]
    ) -> None:
        super().__init__(queued_reactions, address)
        self._responder = responder
        self._is_first = "side_name" not in address

    @property
    def post_limiter(self) -> RateLimiter:
        return self._responder.post_limiter

    @property
    def edit_limiter(self) -> RateLimiter:
        return self._responder.edit_limiter

    def filter_buttons(self, buttons: Sequence[Button]) -> Sequence[Button]:
        return [button for button in buttons if button.id.startswith(_BUTTON_KINDS)]

    async def find_message_ids(self, recorded_ids: Sequence[str] = (), *, stops_stream: bool = False) -> list[str]:
        """Return `recorded_ids`: Discord lists no ephemeral messages."""
        return list(recorded_ids)

    async def add_reaction(self, emoji: str) -> None:
        raise SurfaceError("a slash command has no message to react to")

    async def post(self, operation: Post, *, previous_id: str | None = None, has_slot: bool = False) -> PostOutcome:
        if operation.position or not self._is_first:
            send = self._responder.post_message
        else:
            send = partial(self._responder.edit_message, RESPONSE_ID)
        try:
            message = await send(*operation.content, priority=operation.priority, has_slot=has_slot)
        except TransientError:  # the next call posts it: Discord lists no ephemeral messages, so the outcome is unknown
            return PostOutcome("")
        return PostOutcome("" if message is None else str(message.id))

    async def edit(self, message_id: str, operation: Edit, *, has_slot: bool = False) -> EditOutcome:
        edit = self._responder.edit_message(
            message_id, *operation.content, priority=operation.priority, has_slot=has_slot
        )
        return await get_edit_outcome(edit)

    async def delete(self, message_id: str) -> None:
        await ignore_deleted(self._responder.delete_message(message_id))

    async def _set_files(self, message_id: str, files: Sequence[File]) -> None:
        await self._responder.set_files(message_id, files)
