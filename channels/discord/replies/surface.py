"""Reply surface of a Discord channel, thread or direct message."""

import logging
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar
from uuid import uuid4

import discord

from channels.base import FINAL_PRIORITIES, Button, File, Plan, Priority, RecordMessageId
from channels.discord.client.api import ARCHIVED, GONE, NO_REPLIES, SPOKEN, THREAD_LOCKED, DiscordApi, Said
from channels.discord.client.components import has_button
from channels.discord.client.files import FILE_SIZE, check
from channels.discord.text import DiscordMarkdown, size
from channels.i18n import messages as words
from channels.markdown.dialect import Limits
from channels.rate_limits.caller import RefusedError, TransientError
from channels.rate_limits.limiter import RateLimiter
from channels.replies.reactions import QueuedReactions
from channels.replies.surface import EditOutcome, MessageSurface, PostedMessage, RecordFile
from channels.replies.tool_status import LINE_SIZE
from core.concurrency import event_loop
from core.errors import SurfaceError

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Discord takes 2000, and does not say of what: characters or UTF-16 units. Posts are what is short there, so that a
#: message is filled up to that; under its text, the longest line of a tool has room, and for how long nothing has come.
LIMITS = Limits(chunk_size=2_000, measure=size, reserve=LINE_SIZE + 20, dialect=DiscordMarkdown())

#: Discord: Unknown Message, and Unknown Channel with all that was in it.
DELETED = {"10008", "10003"}

#: What is said of Missing Access, Missing Permissions, and a thread that is locked.
_WORDS = {"50001": words.FORBIDDEN, "50013": words.FORBIDDEN, THREAD_LOCKED: words.LOCKED}


class DiscordSurface(MessageSurface):
    """One reply: its first message is a reply to the question, each further one to the message before it.

    Args:
        address: `channel` and `message` that is answered, and its `author`, who else is told nothing; and its `root`,
            the channel in which it stands, if a thread was begun from it for the answer. What was asked by a command is
            `shown` by a message of the bot's. `guild` is the server, if it is in one. A message that stands `apart`
            replies to nothing, and is known by the end of the ids of its buttons.
        ping_after: after how many seconds the author is told that the answer is there; 0 for never.
    """

    limits = LIMITS

    def __init__(
        self, api: DiscordApi, queued_reactions: QueuedReactions, address: Mapping[str, Any], *, ping_after: float = 0.0
    ) -> None:
        super().__init__(queued_reactions, address)
        self._api = api
        self._channel = int(address["channel"])
        self._question = int(address["message"])
        self._author = int(address.get("author", 0))
        self._guild = int(address.get("guild", 0))
        self._say = words.messages_for(address.get("locale", ""))
        self._opens = "root" in address
        self._is_theirs = not (self._opens or "shown" in address)
        is_told = ping_after and self._author
        self._ping_at = event_loop.now() + ping_after if is_told else math.inf
        self._is_told = False
        self._apart = str(address.get("apart", ""))
        self._replies = not self._apart
        self._name = uuid4().hex  # no other surface's: under its names Discord knows what has been deleted since
        self._posted = 0
        self._tried: Sequence[Button] | None = None  # the buttons of the first try at a post

    @property
    def _post_limiter(self) -> RateLimiter:
        return self._api.posts(self._channel)

    @property
    def _edit_limiter(self) -> RateLimiter:
        return self._api.edits(self._channel)

    async def _post(
        self, position: int, text: str, buttons: Sequence[Button], priority: Priority, previous: str | None
    ) -> PostedMessage | None:
        opens = self._opens and previous is None  # Discord: nothing replies to what was said in another channel
        answered = int(previous) if previous else self._question
        if self._tried is None:
            self._tried = buttons

        async def found() -> Said | None:
            own = await self._api.own_behind(self._channel, self._question if self._apart else answered)
            stand = apart(own, self._apart) if self._apart else chain(own, None if opens else answered)
            return Said(stand[0].id, stand[0].content) if stand else None

        async def post(reply_to: int | None) -> Said | None:
            return await self._api.post(
                self._channel,
                text,
                buttons,
                reply_to=reply_to,
                name=f"{self._name} {self._posted}",
                priority=priority,
                is_admitted=self.use_slot(self._post_limiter),
                found=found,
            )

        try:
            said = await post(None if opens or not self._replies else answered)
        except RefusedError as refusal:
            if refusal.code != NO_REPLIES:
                raise
            self._replies = False
            said = await post(None)
        if said is None:
            return None
        is_new = said.text.strip() == text.strip() and tuple(self._tried) == tuple(buttons)
        self._posted, self._tried = self._posted + 1, None
        return PostedMessage(str(said.id), is_new=is_new)

    async def _tell_of(self, refusal: RefusedError) -> None:
        """Tell the author, once and directly, why nothing is said where he asked, if somebody can change that."""
        word = _WORDS.get(refusal.code)
        if word is None or not self._author or self._is_told:
            return
        self._is_told = True
        try:
            await self._api.tell(self._author, self._say(word, place=f"<#{self._channel}>"))
        except SurfaceError as error:  # Discord: whoever wants no direct messages gets none
            log.warning("who has asked cannot be told that there is no answer: %s", error)

    async def show(self, plan: Plan, known_ids: Sequence[str], record: RecordMessageId) -> bool:
        """As of any reply; its author is told when one that took long has come to its end, and why there is none."""
        try:
            shown = await super().show(plan, known_ids, record)
        except RefusedError as refusal:
            await self._tell_of(refusal)
            raise
        if shown and plan.priority in FINAL_PRIORITIES and event_loop.now() >= self._ping_at:
            self._ping_at = math.inf
            question = self._question if self._is_theirs else None
            try:
                word, name = self._say(words.READY), f"{self._name} ping"
                await self._api.ping(self._channel, question, self._author, word, name=name)
            except SurfaceError as error:
                log.warning("who has asked cannot be told that the answer is there: %s", error)
        return shown

    async def _edit(self, message_id: str, text: str, buttons: Sequence[Button], priority: Priority) -> EditOutcome:
        return await self._opened(lambda: self._try_edit(int(message_id), text, buttons, priority))

    async def _attach(self, files: Sequence[File], last: str, known: Mapping[str, str], record: RecordFile) -> None:
        """Let the last message have the files. That can be done any number of times, for it then has them once."""
        most = await self._file_limit(max(len(file.data) for file in files))
        check(files, most)
        for id_ in set(known.values()) - {last}:
            await self._detach(id_)
        for file in files:
            await record(file.name, last)
        await self._opened(lambda: self._api.attach(self._channel, int(last), files))

    async def _file_limit(self, size: int) -> int:
        """Of how many bytes a file may be: the server is asked only for what is too large for the others."""
        if size <= FILE_SIZE or not self._guild:
            return FILE_SIZE
        try:
            return (await self._api.guild(self._guild)).filesize_limit
        except SurfaceError as error:
            log.warning("how large a file may be cannot be seen: %s", error)
            return FILE_SIZE

    async def _detach(self, file_id: str) -> None:
        try:
            await self._opened(lambda: self._api.attach(self._channel, int(file_id), ()))
        except RefusedError as refusal:
            if refusal.code not in DELETED:
                raise

    async def _opened(self, edit: Callable[[], Awaitable[T]]) -> T:
        """What `edit` returns; a thread that was archived is opened for it."""
        try:
            return await edit()
        except RefusedError as refusal:
            if refusal.code != ARCHIVED:
                raise
        try:
            await self._api.unarchive(self._channel)
        except RefusedError as refusal:
            raise RefusedError("edit", THREAD_LOCKED) from refusal
        return await edit()

    async def _try_edit(self, message: int, text: str, controls: Sequence[Button], priority: Priority) -> EditOutcome:
        try:
            shown = await self._api.edit(
                self._channel,
                message,
                text,
                controls,
                priority=priority,
                is_admitted=self.use_slot(self._edit_limiter),
            )
        except RefusedError as refusal:
            if refusal.code not in GONE:
                raise
            return EditOutcome.GONE
        except TransientError:
            return EditOutcome.LOST
        return EditOutcome.DONE if shown else EditOutcome.DROPPED

    async def _delete(self, message_id: str) -> None:
        try:
            await self._api.delete(self._channel, int(message_id))
        except RefusedError as refusal:
            if refusal.code not in DELETED:
                raise

    async def find_message_ids(self, recorded_ids: Sequence[str] = (), *, is_contested: bool = False) -> list[str]:
        if self._apart and recorded_ids:
            return list(recorded_ids)
        return await super().find_message_ids(recorded_ids, is_contested=is_contested)

    async def _find_strays(self, shown: Sequence[str]) -> Sequence[str]:
        """What stands apart has a mark of its own, and is found by that."""
        if self._apart:
            return ()
        try:
            own = await self._api.own_behind(self._channel, self._question)
        except SurfaceError as error:
            log.warning("whether a post took effect beside the reply cannot be seen: %s", error)
            return ()
        known = {int(id_) for id_ in shown}
        return [str(message.id) for message in beside(own, None if self._opens else self._question, known)]

    async def _find_own(self) -> dict[int, str]:
        own = await self._api.own_behind(self._channel, self._question)
        question = None if self._opens else self._question
        found = apart(own, self._apart) if self._apart else chain(own, question)
        return {position: str(message.id) for position, message in enumerate(found)}


def chain(own: Sequence[discord.Message], question: int | None) -> list[discord.Message]:
    """The first reply to the question, the reply to that, and so on.

    Args:
        question: none in a thread that was begun from it. There the first of them is a reply to nothing.
    """
    found, last = list[discord.Message](), question
    for message in own:
        if message.type in SPOKEN and _answered(message) == last:
            found.append(message)
            last = message.id
    return found


def beside(own: Sequence[discord.Message], question: int | None, shown: Collection[int]) -> list[discord.Message]:
    """What answers the same as the messages of a reply that are shown, and is none of them. A reply to nothing may be
    anything.
    """
    answered = {question, *shown} - {None}
    return [
        message
        for message in own
        if message.type in SPOKEN and _answered(message) in answered and message.id not in shown
    ]


def apart(own: Sequence[discord.Message], name: str) -> list[discord.Message]:
    """The first that has a button whose id ends in this name, if one has."""
    return [message for message in own if has_button(message, f":{name}")][:1]


def _answered(message: discord.Message) -> int | None:
    """The id of the message that it replies to."""
    return message.reference.message_id if message.reference else None
