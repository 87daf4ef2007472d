"""Shows a reply to one person alone, where the bot has nothing but the token of an interaction."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from channels.budget import Budget
from channels.calls import PassingError, RefusedError
from channels.channel import Button, File, Priority
from channels.discord.answers import ORIGINAL, Token
from channels.discord.api import GONE
from channels.discord.surface import DELETED, LIMITS
from channels.messages import Edited, MessageSurface, Posted
from channels.receipts import Receipts

#: The buttons that need no more of the place than what stands there; the others would show something anew later.
_KEPT = ("stop", "good", "bad", "approve", "always", "deny")


class Aside(MessageSurface):
    """One reply: its first message is the answer to the interaction, and the rest follow it.

    A message that waits for its turn has no sign of that: the asker sees that the bot thinks.
    """

    limits = LIMITS

    def __init__(self, token: Token, receipts: Receipts, address: Mapping[str, Any]) -> None:
        super().__init__(receipts, address)
        self._token = token
        self._is_first = "apart" not in address

    @property
    def _posts(self) -> Budget:
        return self._token.posts

    @property
    def _edits(self) -> Budget:
        return self._token.edits

    async def find(self, recorded: Sequence[str] = ()) -> list[str]:
        """Discord tells of no message but the first: what was recorded is all that is known."""
        return list(recorded)

    def waits(self) -> None: ...

    def waited(self) -> None: ...

    async def begun(self) -> None: ...

    async def _post(
        self, position: int, text: str, controls: Sequence[Button], priority: Priority, previous: str | None
    ) -> Posted | None:
        del previous
        is_admitted = self.is_admitted(self._posts)
        if position or not self._is_first:
            said = await self._token.post(text, _kept(controls), priority=priority, is_admitted=is_admitted)
        else:
            said = await self._token.edit(ORIGINAL, text, _kept(controls), priority=priority, is_admitted=is_admitted)
        return None if said is None else Posted(str(said.id))

    async def _edit(self, message_id: str, text: str, controls: Sequence[Button], priority: Priority) -> Edited:
        is_admitted = self.is_admitted(self._edits)
        try:
            said = await self._token.edit(message_id, text, _kept(controls), priority=priority, is_admitted=is_admitted)
        except RefusedError as refusal:
            if refusal.code not in GONE:
                raise
            return Edited.GONE
        except PassingError:
            return Edited.LOST
        return Edited.DROPPED if said is None else Edited.DONE

    async def _delete(self, message_id: str) -> None:
        try:
            await self._token.delete(message_id)
        except RefusedError as refusal:
            if refusal.code not in DELETED:
                raise

    async def _attach(self, file: File, last: str, known: str | None, record: Callable[[str], Awaitable[None]]) -> None:
        if known is not None and known != last:
            await self._detach(known)
        await record(last)
        await self._token.attach(last, file)

    async def _detach(self, file_id: str) -> None:
        try:
            await self._token.attach(file_id, None)
        except RefusedError as refusal:
            if refusal.code not in DELETED:
                raise

    async def _own(self) -> dict[int, str]:
        return {}


def _kept(controls: Sequence[Button]) -> list[Button]:
    return [control for control in controls if control.id.startswith(_KEPT)]
