"""Shows a reply in a Slack thread."""

import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any

from channels.base import STATUS_RESERVE, Button, File, FileRefusedError, Priority
from channels.markdown.dialect import Limits
from channels.rate_limits.caller import RefusedError, TransientError
from channels.rate_limits.limiter import RateLimiter, Window
from channels.replies.reactions import QueuedReactions
from channels.replies.surface import EditOutcome, MessageSurface, PostedMessage, RecordFile
from channels.slack.client.api import Answer, SlackApi
from channels.slack.client.blocks import content
from channels.slack.client.rate_limits import PAST, TIER_2, TIER_3, TIER_4
from channels.slack.replies.assistant import AssistantThreads
from channels.slack.text import SlackMarkdown, size
from core.errors import SurfaceError

log = logging.getLogger(__name__)

#: One size for every way that Slack has of showing text: `chat.update` fails above about 4,000 characters,
#: and its limits on blocks and streams are larger.
LIMITS = Limits(chunk_size=3_500, measure=size, reserve=STATUS_RESERVE, dialect=SlackMarkdown())

#: Slack: one message a second in a channel, with short bursts. A shorter window would allow two bursts on end, and
#: without the quarter of a second on top what the network delays would come too often.
POSTS = Window(calls=5, seconds=5.25)

#: Slack: "several hundred messages per minute" in a workspace.
ALL_POSTS = Window(calls=300, seconds=60.5)

#: Marks what was posted, so that it is found again when Slack's answer to its posting was lost.
_METADATA = "parley_chunk"

#: Slack: what it says of a message that somebody has deleted, or that may not be edited any more.
_NOT_EDITABLE = {"message_not_found", "cant_update_message", "edit_window_closed"}

#: Slack: what it says of an edit of a message that is being streamed.
_STILL_STREAMED = "streaming_state_conflict"

#: Slack: errors for a file that does not exist.
_NO_FILE = {"file_not_found", "file_deleted"}

#: Slack: what it says of the deletion of a message that is being streamed, and of any other that may not be deleted.
_NOT_DELETABLE = "cant_delete_message"


class SlackSurface(MessageSurface):
    """One reply in one thread.

    Args:
        address: `team`, `channel`, `thread_ts` (empty where there is no thread), and `ts` of the message that is
            answered; `user`, who wrote it, and `user_team`, his workspace; `bot`, the user that the app acts as;
            `title`, its first words.
        assistant: shows that the thread is processing.
    """

    limits = LIMITS

    def __init__(
        self,
        api: SlackApi,
        queued_reactions: QueuedReactions,
        address: Mapping[str, Any],
        turn_id: str,
        *,
        assistant: AssistantThreads | None = None,
    ) -> None:
        super().__init__(queued_reactions, address)
        self._team = str(address["team"])
        self._api = api.at(self._team)
        self._channel = str(address["channel"])
        self._thread_ts = str(address["thread_ts"])
        self._asked_ts = str(address["ts"])
        self._bot = str(address.get("bot", ""))
        self._turn_id = turn_id
        self._assistant = assistant
        self._is_taken_up = False
        self._recorded: Collection[str] = ()
        self._streamed: dict[str, int] = {}  # the positions of messages that bear no mark, since they were streamed
        self._is_start_lost = False  # whether a stream may have been begun that is not known here

    @contextmanager
    def track_reply(self) -> Iterator[None]:
        with ExitStack() as stack:
            if self._assistant is not None:
                stack.enter_context(self._assistant.processing(self._address, lambda: self._is_taken_up))
            stack.enter_context(super().track_reply())
            yield

    async def find_message_ids(self, recorded_ids: Sequence[str] = (), *, is_contested: bool = False) -> list[str]:
        self._is_taken_up, self._recorded = True, recorded_ids
        return await super().find_message_ids(recorded_ids, is_contested=is_contested)

    @property
    def _in_thread(self) -> dict[str, str]:
        """What a post needs to come into the thread, if there is one."""
        return {"thread_ts": self._thread_ts} if self._thread_ts else {}

    @property
    def _post_limiter(self) -> RateLimiter:
        return self._api.budget(("chat.postMessage", self._team, self._channel), POSTS)

    @property
    def _edit_limiter(self) -> RateLimiter:
        return self._api.budget(("chat.update", self._team), TIER_3)

    async def _edit(self, message_id: str, text: str, buttons: Sequence[Button], priority: Priority) -> EditOutcome:
        try:
            return await self._try_edit(message_id, text, buttons, priority)
        except RefusedError as refusal:
            if refusal.code != _STILL_STREAMED:
                raise
        await self._stop(message_id)
        return await self._try_edit(message_id, text, buttons, priority)

    async def _try_edit(
        self, message_id: str, text: str, controls: Sequence[Button], priority: Priority
    ) -> EditOutcome:
        position = self._streamed.get(message_id)
        try:
            answer = await self._api.call(
                "chat.update",
                {
                    "channel": self._channel,
                    "ts": message_id,
                    **({} if position is None else {"metadata": self._mark(position)}),
                    **content(text, controls),
                },
                self._edit_limiter,
                priority=priority,
                is_admitted=self.use_slot(self._edit_limiter),
            )
        except RefusedError as refusal:
            if refusal.code not in _NOT_EDITABLE:
                raise
            return EditOutcome.GONE
        except TransientError:
            return EditOutcome.LOST
        if answer is None:
            return EditOutcome.DROPPED
        self._streamed.pop(message_id, None)
        return EditOutcome.DONE

    @property
    def _stops(self) -> RateLimiter:
        return self._api.budget(("chat.stopStream", self._team), TIER_2)

    async def _stop(self, message_id: str) -> None:
        """End a stream as it is, so that its message can be edited."""
        try:
            await self._api.call(
                "chat.stopStream",
                {"channel": self._channel, "ts": message_id},
                self._stops,
                is_admitted=self.use_slot(self._stops),
            )
        except RefusedError as refusal:  # Slack has ended it already; if that is not so, the edit will tell
            log.info("%s", refusal)

    async def _post(
        self, position: int, text: str, buttons: Sequence[Button], priority: Priority, previous: str | None
    ) -> PostedMessage | None:
        stood: Answer | None = None

        async def found() -> Answer | None:
            nonlocal stood
            self._has_strays = True
            stood = (await self._messages()).get(position) if self._turn_id else None
            return stood

        answer = await self._api.call(
            "chat.postMessage",
            {
                "channel": self._channel,
                **self._in_thread,
                "unfurl_links": False,
                "unfurl_media": False,
                "metadata": self._mark(position),
                **content(text, buttons),
            },
            self._post_limiter,
            within=self._api.budget(("chat.postMessage", self._team), ALL_POSTS),
            priority=priority,
            is_admitted=self.use_slot(self._post_limiter),
            found=found,
        )
        return None if answer is None else PostedMessage(str(answer["ts"]), is_new=answer is not stood)

    def _mark(self, position: int) -> dict[str, Any]:
        """What a message of this reply is found again by."""
        return {"event_type": _METADATA, "event_payload": {"turn": self._turn_id, "chunk": position}}

    async def _find_own(self) -> dict[int, str]:
        return {position: str(message["ts"]) for position, message in (await self._messages()).items()}

    async def _messages(self) -> dict[int, Answer]:
        """The messages of this reply, by their positions, as Slack has them.

        A message that is being streamed bears no mark. But then it is the only one: of the bot's own messages behind
        the question, all others have the mark of some reply, or are files.
        """
        thread = await self._thread()
        marked = [message for message in thread if self._is_own(message)]
        # of two in the same place, the one that is recorded is it
        marked.sort(key=lambda message: message["ts"] in self._recorded)
        own = {_position(message): message for message in marked}
        unmarked = [message for message in thread if self._is_unmarked(message)]
        free = (position for position in count() if position not in own)
        for position, message in zip([next(free) for _ in unmarked], unmarked, strict=True):
            own[position] = message
            self._streamed[str(message["ts"])] = position
        return own

    def _is_unmarked(self, message: Answer) -> bool:
        if (message.get("metadata") or {}).get("event_type") == _METADATA or message.get("files"):
            return False
        return bool(self._bot) and message.get("user") == self._bot and float(message["ts"]) > float(self._asked_ts)

    async def _find_strays(self, shown: Sequence[str]) -> Sequence[str]:
        try:
            beside = [message for message in await self._thread() if message["ts"] not in shown]
        except SurfaceError as error:
            log.warning("whether a post took effect beside the reply cannot be seen: %s", error)
            return ()
        streamed = [str(one["ts"]) for one in beside if self._is_start_lost and self._is_unmarked(one)]
        self._streamed.update(dict.fromkeys(streamed, 0))  # what is still streamed is stopped before it is deleted
        return [*streamed, *(str(one["ts"]) for one in beside if self._is_own(one))]

    def _is_own(self, message: Answer) -> bool:
        """Whether it is a message of this reply."""
        metadata = message.get("metadata") or {}
        payload = metadata.get("event_payload") or {}
        return metadata.get("event_type") == _METADATA and payload.get("turn") == self._turn_id

    async def _thread(self) -> Sequence[Answer]:
        """What stands in the thread, or in the conversation that has none, since the message that is answered."""
        method = "conversations.replies" if self._thread_ts else "conversations.history"
        answer = await self._api.call(
            method,
            {
                "channel": self._channel,
                **({"ts": self._thread_ts} if self._thread_ts else {}),
                "oldest": self._asked_ts,
                "include_all_metadata": True,
                "limit": 200,
            },
            self._api.budget((method, self._team), PAST),
            reads=True,
        )
        found: Sequence[Answer] = (answer or {}).get("messages", ())
        return sorted(found, key=lambda message: float(message["ts"]))

    async def _attach(self, files: Sequence[File], last: str, known: Mapping[str, str], record: RecordFile) -> None:
        """Post each file into the thread, as a message of its own: Slack has no other way."""
        del last
        refused = dict[str, SurfaceError]()
        for file in files:
            try:
                await self._attach_one(file, known.get(file.name), record)
            except SurfaceError as error:
                refused[file.name] = error
        if refused:
            raise FileRefusedError(str(next(iter(refused.values()))), list(refused))

    async def _attach_one(self, file: File, known: str | None, record: RecordFile) -> None:
        if known is not None:
            try:
                return await self._share(file, known)
            except RefusedError as refusal:  # it was never sent whole, or is deleted
                log.info("a file is sent anew: %s", refusal)
        file_id = await self._api.upload(file, self._team)
        await record(file.name, file_id)
        return await self._share(file, file_id)

    async def hand(self, file: File) -> None:
        """Show a file that belongs to no reply.

        Raises:
            SurfaceError: it cannot be shown.
        """
        await self._share(file, await self._api.upload(file, self._team))

    async def _share(self, file: File, file_id: str) -> None:
        """Show a file, unless it is shown already."""

        async def found() -> Answer | None:
            return next((message for message in await self._thread() if _holds(message, file_id)), None)

        if await found() is not None:
            return
        await self._api.call(
            "files.completeUploadExternal",
            {
                "files": json.dumps([{"id": file_id, "title": file.name}]),
                "channel_id": self._channel,
                **self._in_thread,
            },
            self._api.budget(("files.completeUploadExternal", self._team), TIER_4),
            priority=Priority.FINAL,
            is_form=True,
            found=found,
        )

    async def _detach(self, file_id: str) -> None:
        limiter = self._api.budget(("files.delete", self._team), TIER_3)
        try:
            await self._api.call("files.delete", {"file": file_id}, limiter)
        except RefusedError as refusal:
            if refusal.code not in _NO_FILE:
                raise

    async def _delete(self, message_id: str) -> None:
        try:
            await self._try_delete(message_id)
        except RefusedError as refusal:
            if refusal.code != _NOT_DELETABLE or message_id not in self._streamed:
                raise
            await self._stop(message_id)
            await self._try_delete(message_id)
        self._streamed.pop(message_id, None)

    async def _try_delete(self, message_id: str) -> None:
        try:
            await self._api.call(
                "chat.delete",
                {"channel": self._channel, "ts": message_id},
                self._api.budget(("chat.delete", self._team), TIER_3),
            )
        except RefusedError as refusal:
            if refusal.code != "message_not_found":
                raise


def _position(message: Answer) -> int:
    return int(message["metadata"]["event_payload"]["chunk"])


def _holds(message: Answer, file_id: str) -> bool:
    return any(file.get("id") == file_id for file in message.get("files") or ())
