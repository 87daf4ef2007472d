"""Shows a reply in a Discord channel, thread or direct message."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import uuid4

from channels.budget import Budget
from channels.calls import PassingError, RefusedError
from channels.channel import STATUS_RESERVE, Button, File, Limits, Priority
from channels.discord.api import ARCHIVED, GONE, DiscordApi, Said
from channels.discord.markdown import DiscordMarkdown, size
from channels.messages import Edited, MessageSurface, Posted
from channels.receipts import Receipts

T = TypeVar("T")

#: Discord takes 2000, and does not say of what: characters or UTF-16 units.
LIMITS = Limits(chunk_size=1_900, measure=size, reserve=STATUS_RESERVE, dialect=DiscordMarkdown())

#: Discord: Unknown Message, and Unknown Channel with all that was in it.
_DELETED = {"10008", "10003"}


class DiscordSurface(MessageSurface):
    """One reply: its first message is a reply to the question, each further one to the message before it.

    Args:
        address: `channel` and `message` that is answered.
    """

    limits = LIMITS

    def __init__(self, api: DiscordApi, receipts: Receipts, address: Mapping[str, Any]) -> None:
        super().__init__(receipts, address)
        self._api = api
        self._channel = int(address["channel"])
        self._question = int(address["message"])
        self._name = uuid4().hex  # no other surface's: under its names Discord knows what has been deleted since
        self._posted = 0
        self._tried: Sequence[Button] | None = None  # the buttons of the first try at a post

    @property
    def _posts(self) -> Budget:
        return self._api.posts(self._channel)

    @property
    def _edits(self) -> Budget:
        return self._api.edits(self._channel)

    async def _post(
        self, position: int, text: str, controls: Sequence[Button], priority: Priority, previous: str | None
    ) -> Posted | None:
        reply_to = int(previous) if previous else self._question
        if self._tried is None:
            self._tried = controls

        async def found() -> Said | None:
            own = await self._api.own_replies(self._channel, reply_to)
            return own[0] if own else None

        said = await self._api.post(
            self._channel,
            text,
            controls,
            reply_to=reply_to,
            name=f"{self._name} {self._posted}",
            priority=priority,
            is_admitted=self.is_admitted(self._posts),
            found=found,
        )
        if said is None:
            return None
        is_new = said.text.strip() == text.strip() and tuple(self._tried) == tuple(controls)
        self._posted, self._tried = self._posted + 1, None
        return Posted(str(said.id), is_new=is_new)

    async def _edit(self, message_id: str, text: str, controls: Sequence[Button], priority: Priority) -> Edited:
        return await self._opened(lambda: self._try_edit(int(message_id), text, controls, priority))

    async def _attach(self, file: File, last: str, known: str | None, record: Callable[[str], Awaitable[None]]) -> None:
        """Let the last message have the file. That can be done any number of times, for it then has it once."""
        if known is not None and known != last:
            await self._detach(known)
        await record(last)
        await self._opened(lambda: self._api.attach(self._channel, int(last), file))

    async def _detach(self, file_id: str) -> None:
        try:
            await self._opened(lambda: self._api.attach(self._channel, int(file_id), None))
        except RefusedError as refusal:
            if refusal.code not in _DELETED:
                raise

    async def _opened(self, edit: Callable[[], Awaitable[T]]) -> T:
        """What `edit` returns; a thread that was archived is opened for it."""
        try:
            return await edit()
        except RefusedError as refusal:
            if refusal.code != ARCHIVED:
                raise
        await self._api.unarchive(self._channel)
        return await edit()

    async def _try_edit(self, message: int, text: str, controls: Sequence[Button], priority: Priority) -> Edited:
        try:
            shown = await self._api.edit(
                self._channel,
                message,
                text,
                controls,
                priority=priority,
                is_admitted=self.is_admitted(self._edits),
            )
        except RefusedError as refusal:
            if refusal.code not in GONE:
                raise
            return Edited.GONE
        except PassingError:
            return Edited.LOST
        return Edited.DONE if shown else Edited.DROPPED

    async def _delete(self, message_id: str) -> None:
        try:
            await self._api.delete(self._channel, int(message_id))
        except RefusedError as refusal:
            if refusal.code not in _DELETED:
                raise

    async def _own(self) -> dict[int, str]:
        own = await self._api.own_replies(self._channel, self._question)
        return {position: str(message.id) for position, message in enumerate(own)}
