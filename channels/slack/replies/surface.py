"""Surface of replies on Slack that posts and edits messages in a thread."""

import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any

from channels.base import STATUS_RESERVE, Button, File, FileRefusedError, Priority
from channels.markdown.dialect import MessageLimits
from channels.rate_limits.caller import RefusedError, TransientError
from channels.rate_limits.limiter import RateLimiter, Window
from channels.replies.reactions import QueuedReactions
from channels.replies.surface import EditOutcome, MessageSurface, PostedMessage, RecordFile
from channels.slack.client.api import ApiObject, SlackApi
from channels.slack.client.blocks import message_content
from channels.slack.client.rate_limits import HISTORY, TIER_2, TIER_3, TIER_4
from channels.slack.replies.assistant import AssistantThreads
from channels.slack.replies.reactions import add_reaction
from channels.slack.text import SlackMarkdown, utf8_size
from core.errors import SurfaceError

log = logging.getLogger(__name__)

#: Slack: `chat.update` fails above about 4,000 characters; the limits of blocks and streams are larger.
LIMITS = MessageLimits(chunk_size=3_500, measure=utf8_size, status_reserve=STATUS_RESERVE, dialect=SlackMarkdown())

#: Slack: one message a second in a channel, with short bursts. A window of less than 5 s would allow two bursts in a
#: row; 0.25 s are added for network delays.
POST_WINDOW = Window(calls=5, seconds=5.25)

#: Slack: "several hundred messages per minute" in a workspace.
WORKSPACE_POST_WINDOW = Window(calls=300, seconds=60.5)

#: Event type of the metadata by which a posted message is found if Slack's response was lost.
_METADATA_EVENT = "parley_chunk"

#: Slack: errors for an edit of a message that is deleted or may no longer be edited.
_NOT_EDITABLE = {"message_not_found", "cant_update_message", "edit_window_closed"}

#: Slack: error for an edit of a message that is being streamed.
_STREAMING = "streaming_state_conflict"

#: Slack: errors for a file that does not exist.
_NO_FILE = {"file_not_found", "file_deleted"}

#: Slack: error for the deletion of a message that is being streamed, or that may not be deleted.
_NOT_DELETABLE = "cant_delete_message"


class SlackSurface(MessageSurface):
    """Surface of a reply in a thread or, if there is none, directly in a channel.

    Args:
        api: makes the calls.
        queued_reactions: adds and removes the reactions that mark users' messages as waiting.
        address: the ids `team`, `channel`, `thread_ts` (empty without a thread) and `ts` (of the user's message).
            `user` and `user_team` are the author and their workspace, `bot` is the bot's user id, and `title` the first
            words of the message; these may be missing.
        turn_id: the id that marks the messages of the reply, in their metadata; empty for none.
        assistant: sets the status of the thread; None to set none.
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
        self._api = api.for_team(self._team)
        self._channel = str(address["channel"])
        self._thread_ts = str(address["thread_ts"])
        self._prompt_ts = str(address["ts"])
        self._bot = str(address.get("bot", ""))
        self._turn_id = turn_id
        self._assistant = assistant
        self._is_resumed = False
        self._recorded: Collection[str] = ()
        self._stream_positions: dict[str, int] = {}  # positions of messages without metadata, as they were streamed
        self._may_have_stray_stream = False  # whether a start got no answer

    @contextmanager
    def track_reply(self) -> Iterator[None]:
        with ExitStack() as stack:
            if self._assistant is not None:
                stack.enter_context(self._assistant.show_processing(self._address, lambda: self._is_resumed))
            stack.enter_context(super().track_reply())
            yield

    async def find_message_ids(self, recorded_ids: Sequence[str] = (), *, is_contested: bool = False) -> list[str]:
        self._is_resumed, self._recorded = True, recorded_ids
        return await super().find_message_ids(recorded_ids, is_contested=is_contested)

    async def add_reaction(self, emoji: str) -> None:
        await add_reaction(self._api, emoji, self._address)

    @property
    def _thread_arguments(self) -> dict[str, str]:
        """The argument `thread_ts` for posts into the thread; empty without a thread."""
        return {"thread_ts": self._thread_ts} if self._thread_ts else {}

    @property
    def _post_limiter(self) -> RateLimiter:
        return self._api.get_limiter(("chat.postMessage", self._team, self._channel), POST_WINDOW)

    @property
    def _edit_limiter(self) -> RateLimiter:
        return self._api.get_limiter(("chat.update", self._team), TIER_3)

    async def _edit(self, message_id: str, text: str, buttons: Sequence[Button], priority: Priority) -> EditOutcome:
        try:
            return await self._try_edit(message_id, text, buttons, priority)
        except RefusedError as refusal:
            if refusal.code != _STREAMING:
                raise
        await self._stop_stream(message_id)
        return await self._try_edit(message_id, text, buttons, priority)

    async def _try_edit(self, message_id: str, text: str, buttons: Sequence[Button], priority: Priority) -> EditOutcome:
        position = self._stream_positions.get(message_id)
        try:
            answer = await self._api.call(
                "chat.update",
                {
                    "channel": self._channel,
                    "ts": message_id,
                    **({} if position is None else {"metadata": self._metadata(position)}),
                    **message_content(text, buttons),
                },
                self._edit_limiter,
                priority=priority,
                has_slot=self.use_slot(self._edit_limiter),
            )
        except RefusedError as refusal:
            if refusal.code not in _NOT_EDITABLE:
                raise
            return EditOutcome.GONE
        except TransientError:
            return EditOutcome.NO_RESPONSE
        if answer is None:
            return EditOutcome.DROPPED
        self._stream_positions.pop(message_id, None)
        return EditOutcome.DONE

    @property
    def _stop_limiter(self) -> RateLimiter:
        return self._api.get_limiter(("chat.stopStream", self._team), TIER_2)

    @property
    def _stop_arguments(self) -> dict[str, str]:
        return {} if self._assistant is None else self._assistant.get_stop_arguments(self._address)

    async def _stop_stream(self, message_id: str) -> None:
        """Stop the stream of a message, so that the message can be edited.

        A refusal by Slack is logged.
        """
        try:
            await self._api.call(
                "chat.stopStream",
                {"channel": self._channel, "ts": message_id, **self._stop_arguments},
                self._stop_limiter,
                has_slot=self.use_slot(self._stop_limiter),
            )
        except RefusedError as refusal:  # Slack has ended it already; else the edit fails
            log.info("%s", refusal)

    async def _post(
        self, position: int, text: str, buttons: Sequence[Button], priority: Priority, previous: str | None
    ) -> PostedMessage | None:
        existing: ApiObject | None = None

        async def find_posted() -> ApiObject | None:
            nonlocal existing
            self._has_strays = True
            existing = (await self._messages()).get(position) if self._turn_id else None
            return existing

        answer = await self._api.call(
            "chat.postMessage",
            {
                "channel": self._channel,
                **self._thread_arguments,
                "unfurl_links": False,
                "unfurl_media": False,
                "metadata": self._metadata(position),
                **message_content(text, buttons),
            },
            self._post_limiter,
            outer_limiter=self._api.get_limiter(("chat.postMessage", self._team), WORKSPACE_POST_WINDOW),
            priority=priority,
            has_slot=self.use_slot(self._post_limiter),
            find_effect=find_posted,
        )
        return None if answer is None else PostedMessage(str(answer["ts"]), is_new=answer is not existing)

    def _metadata(self, position: int) -> dict[str, Any]:
        """Return the metadata of a message: the turn's id and the message's index.

        Args:
            position: the index of the message in the reply.

        Returns:
            Slack's message metadata, with the keys `event_type` and `event_payload`; the payload has the keys `turn`
            and `chunk`.
        """
        return {"event_type": _METADATA_EVENT, "event_payload": {"turn": self._turn_id, "chunk": position}}

    async def _find_own(self) -> dict[int, str]:
        return {position: str(message["ts"]) for position, message in (await self._messages()).items()}

    async def _messages(self) -> dict[int, ApiObject]:
        """Fetch the messages of this reply from Slack as JSON, by index in the reply.

        The message that is being streamed has no metadata. There is only one such message: all other messages of the
        bot after the user's message have the metadata of a reply, or files. It gets the first free index.
        """
        thread = await self._read_thread()
        marked = [message for message in thread if self._is_own(message)]
        # of two messages at a position, the recorded one counts
        marked.sort(key=lambda message: message["ts"] in self._recorded)
        own_by_position = {_position(message): message for message in marked}
        unmarked = [message for message in thread if self._is_unmarked(message)]
        free = (position for position in count() if position not in own_by_position)
        for position, message in zip([next(free) for _ in unmarked], unmarked, strict=True):
            own_by_position[position] = message
            self._stream_positions[str(message["ts"])] = position
        return own_by_position

    def _is_unmarked(self, message: ApiObject) -> bool:
        if (message.get("metadata") or {}).get("event_type") == _METADATA_EVENT or message.get("files"):
            return False
        return bool(self._bot) and message.get("user") == self._bot and float(message["ts"]) > float(self._prompt_ts)

    async def _find_strays(self, shown_ids: Sequence[str]) -> Sequence[str]:
        try:
            others = [message for message in await self._read_thread() if message["ts"] not in shown_ids]
        except SurfaceError as error:
            log.warning("stray messages of a reply cannot be searched for: %s", error)
            return ()
        streamed = [
            str(message["ts"]) for message in others if self._may_have_stray_stream and self._is_unmarked(message)
        ]
        self._stream_positions.update(dict.fromkeys(streamed, 0))  # `_delete` stops them first
        return [*streamed, *(str(message["ts"]) for message in others if self._is_own(message))]

    def _is_own(self, message: ApiObject) -> bool:
        """Return whether a message on Slack has the metadata of this reply."""
        metadata = message.get("metadata") or {}
        payload = metadata.get("event_payload") or {}
        return metadata.get("event_type") == _METADATA_EVENT and payload.get("turn") == self._turn_id

    async def _read_thread(self) -> Sequence[ApiObject]:
        """Fetch up to 200 messages that were sent after the user's message, oldest first.

        The messages are those of the thread or, if there is none, of the channel.
        """
        method = "conversations.replies" if self._thread_ts else "conversations.history"
        answer = await self._api.call(
            method,
            {
                "channel": self._channel,
                **({"ts": self._thread_ts} if self._thread_ts else {}),
                "oldest": self._prompt_ts,
                "include_all_metadata": True,
                "limit": 200,
            },
            self._api.get_limiter((method, self._team), HISTORY),
            reads=True,
        )
        found: Sequence[ApiObject] = (answer or {}).get("messages", ())
        return sorted(found, key=lambda message: float(message["ts"]))

    async def _attach(self, files: Sequence[File], last: str, known: Mapping[str, str], record: RecordFile) -> None:
        """Post each file in its own message: Slack cannot add files to a posted message.

        See `MessageSurface._attach`.
        """
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
            except RefusedError as refusal:  # its upload was not completed, or it was deleted
                log.info("a file is uploaded once more: %s", refusal)
        file_id = await self._api.upload(file, self._team)
        await record(file.name, file_id)
        return await self._share(file, file_id)

    async def post_file(self, file: File) -> None:
        """Upload a file, and post it in the thread, outside of the reply's messages.

        Raises:
            SurfaceError: the file cannot be posted.
        """
        await self._share(file, await self._api.upload(file, self._team))

    async def _share(self, file: File, file_id: str) -> None:
        """Post an uploaded file in the thread, unless it is posted there already."""

        async def find_shared() -> ApiObject | None:
            return next((message for message in await self._read_thread() if _has_file(message, file_id)), None)

        if await find_shared() is not None:
            return
        await self._api.call(
            "files.completeUploadExternal",
            {
                "files": json.dumps([{"id": file_id, "title": file.name}]),
                "channel_id": self._channel,
                **self._thread_arguments,
            },
            self._api.get_limiter(("files.completeUploadExternal", self._team), TIER_4),
            priority=Priority.FINAL,
            is_form=True,
            find_effect=find_shared,
        )

    async def _detach(self, file_id: str) -> None:
        limiter = self._api.get_limiter(("files.delete", self._team), TIER_3)
        try:
            await self._api.call("files.delete", {"file": file_id}, limiter)
        except RefusedError as refusal:
            if refusal.code not in _NO_FILE:
                raise

    async def _delete(self, message_id: str) -> None:
        try:
            await self._try_delete(message_id)
        except RefusedError as refusal:
            if refusal.code != _NOT_DELETABLE or message_id not in self._stream_positions:
                raise
            await self._stop_stream(message_id)
            await self._try_delete(message_id)
        self._stream_positions.pop(message_id, None)

    async def _try_delete(self, message_id: str) -> None:
        try:
            await self._api.call(
                "chat.delete",
                {"channel": self._channel, "ts": message_id},
                self._api.get_limiter(("chat.delete", self._team), TIER_3),
            )
        except RefusedError as refusal:
            if refusal.code != "message_not_found":
                raise


def _position(message: ApiObject) -> int:
    return int(message["metadata"]["event_payload"]["chunk"])


def _has_file(message: ApiObject, file_id: str) -> bool:
    return any(file.get("id") == file_id for file in message.get("files") or ())
