"""Surface of replies on Slack: the operations on messages in a thread."""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from channels.base import STATUS_RESERVE, File, FileRefusedError, Priority
from channels.markdown.dialect import MessageLimits
from channels.rate_limits.limiter import RateLimiter, Window
from channels.rate_limits.retries import RefusedError, TransientError
from channels.replies.diff import Edit, Post
from channels.replies.reactions import QueuedReactions
from channels.replies.surface import EditOutcome, PostOutcome, RecordFile, Surface
from channels.slack.client.api import ApiObject, SlackApi
from channels.slack.client.blocks import message_content
from channels.slack.client.rate_limits import TIER_3, TIER_4
from channels.slack.replies.assistant import AssistantThreads
from channels.slack.replies.reactions import add_reaction
from channels.slack.replies.streaming import SlackStreams, StreamPolicy
from channels.slack.replies.thread import ReplyThread
from channels.slack.text import SlackMarkdown, utf8_size
from core.errors import SurfaceError
from core.turns.turn import FILE_PREFIX

log = logging.getLogger(__name__)

#: Slack: `chat.update` fails above about 4,000 characters; the limits of blocks and streams are larger.
LIMITS = MessageLimits(chunk_size=3_500, measure=utf8_size, status_reserve=STATUS_RESERVE, dialect=SlackMarkdown())

#: Slack: one message a second in a channel, with short bursts. A window of less than 5 s would allow two bursts in a
#: row; 0.25 s are added for network delays.
POST_WINDOW = Window(calls=5, seconds=5.25)

#: Slack: "several hundred messages per minute" in a workspace. When 1,000 schedules are due in a minute, the urgent
#: fifth shortens a person's median wait for an answer from 18 s to 0.05 s (`make bench-schedules`).
WORKSPACE_POST_WINDOW = Window(calls=300, seconds=60.5, urgent_fraction=0.2)

#: Slack: errors for an edit of a message that is deleted or may no longer be edited.
_NOT_EDITABLE = {"message_not_found", "cant_update_message", "edit_window_closed"}

#: Slack: error for an edit of a message that is being streamed.
_STREAMING = "streaming_state_conflict"

#: Slack: errors for a file that does not exist.
_NO_FILE = {"file_not_found", "file_deleted"}

#: Slack: error for the deletion of a message that is being streamed, or that may not be deleted.
_NOT_DELETABLE = "cant_delete_message"


class SlackSurface(Surface):
    """Surface of a reply in a thread or, if there is none, directly in a channel.

    Args:
        address: the ids `team`, `channel`, `thread_ts` (empty without a thread) and `ts` (of the user's message).
            `user` and `user_team` are the author and their workspace, `bot` is the bot's user id, and `title` the first
            words of the message; these may be missing. `is_triggered` is true if no person's message began the turn:
            its posts wait for those of other turns.
        turn_id: the id that marks the messages of the reply, in their metadata; empty for none.
        stream_policy: decides whether the growing message is streamed; None: it is edited.
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
        stream_policy: StreamPolicy | None = None,
    ) -> None:
        super().__init__(queued_reactions, address)
        self._thread = ReplyThread(api, address, turn_id, assistant)
        self._api = self._thread.api
        self._turn_id = turn_id
        self._assistant = assistant
        self._is_resumed = False
        if stream_policy is not None and address.get("user") and address.get("bot") and self._thread.ts:
            self.streams = SlackStreams(self._thread, address, stream_policy)

    @contextmanager
    def show_processing(self) -> Iterator[None]:
        if self._assistant is None:
            yield
            return
        with self._assistant.show_processing(self._address, lambda: self._is_resumed):
            yield

    async def add_reaction(self, emoji: str) -> None:
        await add_reaction(self._api, emoji, self._address)

    @property
    def post_limiter(self) -> RateLimiter:
        return self._api.get_limiter(("chat.postMessage", self._thread.team, self._thread.channel), POST_WINDOW)

    @property
    def edit_limiter(self) -> RateLimiter:
        return self._thread.edit_limiter

    async def edit(self, message_id: str, operation: Edit, *, has_slot: bool = False) -> EditOutcome:
        try:
            return await self._try_edit(message_id, operation, has_slot=has_slot)
        except RefusedError as refusal:
            if refusal.code != _STREAMING:
                raise
        await self._thread.stop_stream(message_id)
        return await self._try_edit(message_id, operation, has_slot=False)

    async def _try_edit(self, message_id: str, operation: Edit, *, has_slot: bool) -> EditOutcome:
        try:
            answer = await self._api.call(
                "chat.update",
                {
                    "channel": self._thread.channel,
                    "ts": message_id,
                    "metadata": self._thread.create_metadata(operation.position),
                    **message_content(*operation.content),
                },
                self.edit_limiter,
                priority=operation.priority,
                has_slot=has_slot,
            )
        except RefusedError as refusal:
            if refusal.code not in _NOT_EDITABLE:
                raise
            return EditOutcome.GONE
        except TransientError:
            return EditOutcome.NO_RESPONSE
        return EditOutcome.DROPPED if answer is None else EditOutcome.DONE

    async def post(self, operation: Post, *, previous_id: str | None = None, has_slot: bool = False) -> PostOutcome:
        existing: ApiObject | None = None
        was_lost = False

        async def find_posted() -> ApiObject | None:
            nonlocal existing, was_lost
            was_lost = True
            own = dict(self._thread.find_own(await self._thread.read()))
            ts = own.get(operation.position) if self._turn_id else None
            existing = None if ts is None else {"ts": ts}
            return existing

        answer = await self._api.call(
            "chat.postMessage",
            {
                **self._thread.arguments,
                "unfurl_links": False,
                "unfurl_media": False,
                "metadata": self._thread.create_metadata(operation.position),
                **message_content(*operation.content),
            },
            self.post_limiter,
            outer_limiter=self._api.get_limiter(("chat.postMessage", self._thread.team), WORKSPACE_POST_WINDOW),
            priority=Priority.BACKFILL if self._address.get("is_triggered") else operation.priority,
            has_slot=has_slot,
            find_effect=find_posted,
        )
        return PostOutcome(str(answer["ts"]) if answer else "", is_new=answer is not existing, was_lost=was_lost)

    async def find_message_ids(self, recorded_ids: Sequence[str] = (), *, stops_stream: bool = False) -> list[str]:
        """Look up the reply's messages on Slack: see `Surface.find_message_ids`.

        A message that is streamed has no metadata yet; it is found if it is recorded, or by its open stream.
        """
        self._is_resumed = True
        messages = await self._thread.read()
        existing = {message["ts"] for message in messages}
        by_position = dict(self._thread.find_own(messages))
        # of two messages at a position, the recorded one counts
        by_position.update((position, id_) for position, id_ in enumerate(recorded_ids) if id_ in existing)
        lost = await self._thread.stop_lost_streams(messages, by_position.values()) if stops_stream else []
        files = [id_ for id_ in recorded_ids if id_.startswith(FILE_PREFIX)]
        return [*(by_position[position] for position in sorted(by_position)), *lost, *files]

    async def delete_strays(self, known_ids: Sequence[str]) -> None:
        try:
            messages = await self._thread.read()
            own = [message_id for _, message_id in self._thread.find_own(messages)]
            lost = [] if self.streams is None else await self._thread.stop_lost_streams(messages, known_ids)
            for message_id in {*own, *lost} - set(known_ids):
                await self.delete(message_id)
        except SurfaceError as error:
            log.warning("stray messages of a reply cannot be deleted: %s", error)

    async def attach(self, files: Sequence[File], last_id: str, known: Mapping[str, str], record: RecordFile) -> None:
        """Post each file in its own message: Slack cannot add files to a posted message."""
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
        file_id = await self._api.upload(file, self._thread.team)
        await record(file.name, file_id)
        return await self._share(file, file_id)

    async def post_file(self, file: File) -> None:
        """Upload a file, and post it in the thread, outside of the reply's messages."""
        await self._share(file, await self._api.upload(file, self._thread.team))

    async def _share(self, file: File, file_id: str) -> None:
        """Post an uploaded file in the thread, unless it is posted there already."""

        async def find_shared() -> ApiObject | None:
            return next((message for message in await self._thread.read() if _has_file(message, file_id)), None)

        if await find_shared() is not None:
            return
        await self._api.call(
            "files.completeUploadExternal",
            {
                "files": json.dumps([{"id": file_id, "title": file.name}]),
                "channel_id": self._thread.channel,
                "thread_ts": self._thread.ts or None,  # slack_sdk leaves None out of a form
            },
            self._api.get_limiter(("files.completeUploadExternal", self._thread.team), TIER_4),
            priority=Priority.FINAL,
            is_form=True,
            find_effect=find_shared,
        )

    async def detach(self, file_id: str) -> None:
        limiter = self._api.get_limiter(("files.delete", self._thread.team), TIER_3)
        try:
            await self._api.call("files.delete", {"file": file_id}, limiter)
        except RefusedError as refusal:
            if refusal.code not in _NO_FILE:
                raise

    async def delete(self, message_id: str) -> None:
        try:
            await self._try_delete(message_id)
        except RefusedError as refusal:
            if refusal.code != _NOT_DELETABLE or not await self._thread.stop_stream(message_id):
                raise
            await self._try_delete(message_id)

    async def _try_delete(self, message_id: str) -> None:
        try:
            await self._api.call(
                "chat.delete",
                {"channel": self._thread.channel, "ts": message_id},
                self._api.get_limiter(("chat.delete", self._thread.team), TIER_3),
            )
        except RefusedError as refusal:
            if refusal.code != "message_not_found":
                raise


def _has_file(message: ApiObject, file_id: str) -> bool:
    return any(file.get("id") == file_id for file in message.get("files") or ())
