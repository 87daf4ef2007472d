"""Surface of replies in a Discord channel, thread or direct message."""

import logging
import math
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import uuid4

import discord

from channels.base import Button, File
from channels.discord.client.api import (
    REPLY_FORBIDDEN_CODE,
    THREAD_ARCHIVED_CODE,
    THREAD_LOCKED_CODE,
    UNEDITABLE_CODES,
    USER_MESSAGE_TYPES,
    DiscordApi,
    SentMessage,
)
from channels.discord.client.components import has_button
from channels.discord.client.files import MAX_FILE_BYTES, check_file_sizes
from channels.discord.replies.reactions import add_reaction
from channels.discord.text import DiscordMarkdown, utf16_size
from channels.i18n import messages as words
from channels.markdown.dialect import MessageLimits
from channels.rate_limits.limiter import RateLimiter
from channels.rate_limits.retries import RefusedError, TransientError
from channels.replies.buttons import RATING_PREFIXES
from channels.replies.diff import Edit, Post
from channels.replies.reactions import QueuedReactions
from channels.replies.surface import EditOutcome, PostOutcome, RecordFile, Surface
from channels.replies.tool_status import LINE_SIZE
from core.concurrency import event_loop
from core.errors import SurfaceError
from core.turns.turn import FILE_PREFIX

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Discord: at most 2000 characters or UTF-16 units; it does not say which. Posts are scarce, so messages are filled up
#: to this limit. The reserve is for the longest status line of a tool, and the time since the last output.
LIMITS = MessageLimits(chunk_size=2_000, measure=utf16_size, status_reserve=LINE_SIZE + 20, dialect=DiscordMarkdown())

#: Discord's codes for a deleted message, and for a deleted channel.
DELETED_CODES = {"10008", "10003"}

#: Messages for missing access, missing permissions, and a locked thread.
_REFUSAL_MESSAGES = {"50001": words.CANNOT_WRITE, "50013": words.CANNOT_WRITE, THREAD_LOCKED_CODE: words.THREAD_LOCKED}


class DiscordMessageSurface(Surface):
    """Base of Discord's surfaces, which attach all files to a reply's last message."""

    limits = LIMITS

    @abstractmethod
    async def _set_files(self, message_id: str, files: Sequence[File]) -> None:
        """Replace all attachments of a message by `files`."""

    async def _file_limit(self, size: int) -> int:
        """Return the most bytes that a file may have in the reply's channel."""
        return MAX_FILE_BYTES

    async def attach(self, files: Sequence[File], last_id: str, known: Mapping[str, str], record: RecordFile) -> None:
        check_file_sizes(files, await self._file_limit(max(len(file.data) for file in files)))
        for id_ in set(known.values()) - {last_id}:
            await self.detach(id_)
        for file in files:
            await record(file.name, last_id)
        await self._set_files(last_id, files)

    async def detach(self, file_id: str) -> None:
        await ignore_deleted(self._set_files(file_id, ()))


class DiscordSurface(DiscordMessageSurface):
    """Surface of a reply whose messages form a chain of Discord replies.

    The first message replies to the user's message, and each further message to the previous one.

    Args:
        address: the ids `channel`, `message` (the user's message) and `author`. Optional keys: `guild` is the server.
            `root` is the channel of the user's message if a thread was started on it. `is_bot_message` is set if the
            bot posted `message` itself. `side_name` is set for a message beside a reply, such as an approval: it
            replies to nothing, and the ids of its buttons end with the name.
        ping_after: the author of the message is notified when the reply ends more than these seconds after the surface
            was created; 0 for never.
    """

    def __init__(
        self, api: DiscordApi, queued_reactions: QueuedReactions, address: Mapping[str, Any], *, ping_after: float = 0.0
    ) -> None:
        super().__init__(queued_reactions, address)
        self._api = api
        self._channel = int(address["channel"])
        self._prompt_id = int(address["message"])
        self._author = int(address.get("author", 0))
        self._guild = int(address.get("guild", 0))
        self._messages = words.messages_for(address.get("locale", ""))
        self._is_thread_start = "root" in address
        self._is_prompt_in_channel = not (self._is_thread_start or "is_bot_message" in address)
        notifies = ping_after and self._author
        self._notify_at = event_loop.now() + ping_after if notifies else math.inf
        self._is_refusal_explained = False
        self._side_name = str(address.get("side_name", ""))
        self._uses_references = not self._side_name
        self._nonce_prefix = uuid4().hex  # unique: Discord knows the nonces of deleted messages
        self._post_count = 0

    @property
    def post_limiter(self) -> RateLimiter:
        return self._api.post_limiter(self._channel)

    @property
    def edit_limiter(self) -> RateLimiter:
        return self._api.edit_limiter(self._channel)

    def filter_buttons(self, buttons: Sequence[Button]) -> Sequence[Button]:
        """Return the buttons without those of a rating: Discord has no element for them, so they are in a menu."""
        return [button for button in buttons if not button.id.startswith(RATING_PREFIXES)]

    async def post(self, operation: Post, *, previous_id: str | None = None, has_slot: bool = False) -> PostOutcome:
        starts_thread = self._is_thread_start and previous_id is None  # Discord: no reply across channels
        answered = int(previous_id) if previous_id else self._prompt_id
        existing: SentMessage | None = None

        async def find_posted() -> SentMessage | None:
            nonlocal existing
            after = self._prompt_id if self._side_name else answered
            own_messages = await self._fetch_reply(after, None if starts_thread else answered)
            existing = SentMessage(own_messages[0].id, own_messages[0].content) if own_messages else None
            return existing

        async def post(reply_to: int | None, *, has_slot: bool) -> SentMessage | None:
            return await self._api.post_message(
                self._channel,
                *operation.content,
                reply_to=reply_to,
                nonce_key=f"{self._nonce_prefix} {self._post_count}",
                priority=operation.priority,
                has_slot=has_slot,
                find_posted=find_posted,
            )

        try:
            message = await post(None if starts_thread or not self._uses_references else answered, has_slot=has_slot)
        except RefusedError as refusal:
            if refusal.code != REPLY_FORBIDDEN_CODE:
                raise
            self._uses_references = False
            message = await post(None, has_slot=False)
        if message is None:
            return PostOutcome("")
        self._post_count += 1
        return PostOutcome(str(message.id), is_new=message is not existing)

    async def explain_refusal(self, refusal: RefusedError) -> None:
        """Send the author a direct message on missing permissions or a locked thread, once; log a failure."""
        word = _REFUSAL_MESSAGES.get(refusal.code)
        if word is None or not self._author or self._is_refusal_explained:
            return
        self._is_refusal_explained = True
        try:
            await self._api.send_direct_message(self._author, self._messages(word, place=f"<#{self._channel}>"))
        except SurfaceError as error:  # the author may accept no direct messages
            log.warning("the author cannot be told why there is no reply: %s", error)

    async def notify_author(self) -> None:
        """Notify the author if the reply took more than `ping_after` seconds, once; log a failure."""
        if event_loop.now() < self._notify_at:
            return
        self._notify_at = math.inf
        prompt_id = self._prompt_id if self._is_prompt_in_channel else None
        try:
            text = self._messages(words.ANSWER_READY)
            key = f"{self._nonce_prefix} ping"
            await self._api.send_notification(self._channel, prompt_id, self._author, text, nonce_key=key)
        except SurfaceError as error:
            log.warning("the author cannot be notified of the reply: %s", error)

    async def edit(self, message_id: str, operation: Edit, *, has_slot: bool = False) -> EditOutcome:
        async def edit(has_slot: bool) -> object:
            return await self._api.edit_message(
                self._channel, int(message_id), *operation.content, priority=operation.priority, has_slot=has_slot
            )

        return await get_edit_outcome(self._edit_unarchived(edit, has_slot=has_slot))

    async def _set_files(self, message_id: str, files: Sequence[File]) -> None:
        await self._edit_unarchived(lambda _: self._api.set_files(self._channel, int(message_id), files))

    async def _file_limit(self, size: int) -> int:
        """Return the server's file size limit; it is fetched only for more than `MAX_FILE_BYTES`."""
        if size <= MAX_FILE_BYTES or not self._guild:
            return MAX_FILE_BYTES
        try:
            return (await self._api.fetch_guild(self._guild)).filesize_limit
        except SurfaceError as error:
            log.warning("the server's file size limit is not known: %s", error)
            return MAX_FILE_BYTES

    async def _edit_unarchived(self, edit: Callable[[bool], Awaitable[T]], *, has_slot: bool = False) -> T:
        """Edit a message; if its thread is archived, unarchive the thread and edit again.

        `edit` is called with whether a slot of the rate limits is acquired for it. For a locked thread, the code of the
        `RefusedError` is `THREAD_LOCKED_CODE`.
        """
        try:
            return await edit(has_slot)
        except RefusedError as refusal:
            if refusal.code != THREAD_ARCHIVED_CODE:
                raise
        try:
            await self._api.unarchive_thread(self._channel)
        except RefusedError as refusal:
            raise RefusedError("edit", THREAD_LOCKED_CODE) from refusal
        return await edit(False)

    async def add_reaction(self, emoji: str) -> None:
        await add_reaction(self._api, emoji, self._address)

    async def delete(self, message_id: str) -> None:
        await ignore_deleted(self._api.delete_message(self._channel, int(message_id)))

    async def find_message_ids(self, recorded_ids: Sequence[str] = (), *, stops_stream: bool = False) -> list[str]:
        if self._side_name and recorded_ids:
            return list(recorded_ids)
        own_messages = await self._fetch_reply(self._prompt_id, None if self._is_thread_start else self._prompt_id)
        files = [id_ for id_ in recorded_ids if id_.startswith(FILE_PREFIX)]
        return [*(str(message.id) for message in own_messages), *files]

    async def _fetch_reply(self, after: int, answered: int | None) -> list[discord.Message]:
        """Fetch the messages of this reply, oldest first.

        For a message beside a reply, such as an approval, the list has at most that message.
        """
        own_messages = await self._api.fetch_own_messages(self._channel, after)
        return (
            find_by_button(own_messages, self._side_name)
            if self._side_name
            else find_reply_chain(own_messages, answered)
        )


async def get_edit_outcome(edit: Awaitable[object]) -> EditOutcome:
    """Await an edit of a message (None: the rate limits dropped the `STREAM_UPDATE`); return its outcome."""
    try:
        return EditOutcome.DROPPED if await edit is None else EditOutcome.DONE
    except RefusedError as refusal:
        if refusal.code not in UNEDITABLE_CODES:
            raise
        return EditOutcome.GONE
    except TransientError:
        return EditOutcome.NO_RESPONSE


async def ignore_deleted(call: Awaitable[object]) -> None:
    """Await a call; ignore Discord's refusal if the message or channel is deleted."""
    try:
        await call
    except RefusedError as refusal:
        if refusal.code not in DELETED_CODES:
            raise


def find_reply_chain(own_messages: Sequence[discord.Message], prompt_id: int | None) -> list[discord.Message]:
    """Return the bot's first reply to a message, the first reply to that reply, etc.

    The messages are oldest first. In a thread that was started on the user's message, `prompt_id` is None: the bot's
    first message replies to nothing there.
    """
    found = list[discord.Message]()
    last = prompt_id
    for message in own_messages:
        if message.type in USER_MESSAGE_TYPES and _get_replied_id(message) == last:
            found.append(message)
            last = message.id
    return found


def find_by_button(own_messages: Sequence[discord.Message], button_suffix: str) -> list[discord.Message]:
    """Return the first message with a button whose id ends with `:` and the suffix."""
    return [message for message in own_messages if has_button(message, f":{button_suffix}")][:1]


def _get_replied_id(message: discord.Message) -> int | None:
    return message.reference.message_id if message.reference else None
