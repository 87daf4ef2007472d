"""Web API methods `chat.startStream`, `chat.appendStream` and `chat.stopStream`.

Slack: the pages of the methods. They do not document the lifetime and size of a stream. They also lack that the first
call decides between `markdown_text` and `chunks`, and that a live stream can be neither edited nor deleted. Users
measured these.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

from chatrig.slack.api.assistant import STATUSES, AssistantMethods
from chatrig.slack.api.base import WebApi
from chatrig.slack.api.block_kit.blocks import check_blocks
from chatrig.slack.api.content import parse_author, parse_metadata, parse_thread_ts
from chatrig.slack.api.limits import (
    MAX_MARKDOWN_CHARS,
    MAX_STREAM_BYTES,
    MAX_TASK_CHARS,
    STREAM_LIFETIME_SECONDS,
)
from chatrig.slack.api.requests import Arguments, SlackError
from chatrig.slack.state.markup import SlackContent, TaskCard
from chatrig.slack.state.messages import NativeStream, SlackConversation, SlackMessage

_TASK_STATUSES = {"pending", "in_progress", "complete", "error"}
_TASK_DISPLAY_MODES = {"", "timeline", "plan"}


class StreamMethods:
    """Web API methods that start, append to and stop streamed messages.

    Args:
        speed: factor by which the lifetime of a stream is shorter than Slack's.
    """

    def __init__(self, api: WebApi, assistant: AssistantMethods, *, speed: float) -> None:
        self._api = api
        self._assistant = assistant
        self._workspace = api.workspace
        self._lifetime = STREAM_LIFETIME_SECONDS / speed
        for name, handler in {
            "chat.startStream": self.start_stream,
            "chat.appendStream": self.append_stream,
            "chat.stopStream": self.stop_stream,
        }.items():
            api.register(name, handler, scope="chat:write")

    def start_stream(self, arguments: Arguments) -> dict[str, Any]:
        channel = self._api.require_writable(self._api.find_channel(arguments))
        arguments.get_required("thread_ts")
        recipient = self._parse_recipient(channel, arguments)
        if arguments.text("task_display_mode") not in _TASK_DISPLAY_MODES:
            raise SlackError("invalid_arguments")
        chunks, kind = _parse_chunks(arguments)
        stream = NativeStream(recipient, monotonic() + self._lifetime, mode=kind)
        message = self._workspace.post_message(
            channel,
            _apply_chunks(SlackContent(is_markdown=True), stream, chunks),
            user=self._workspace.bot.id,
            bot_id=self._workspace.bot_id,
            thread_ts=parse_thread_ts(self._workspace, channel, arguments),
            unfurl_links=arguments.optional_flag("unfurl_links"),
            unfurl_media=arguments.optional_flag("unfurl_media"),
            stream=stream,
            **parse_author(self._api, arguments),
        )
        return {"channel": channel.id, "ts": message.ts}

    def append_stream(self, arguments: Arguments) -> dict[str, Any]:
        channel, message, stream = self._find_stream(arguments)
        chunks, kind = _parse_chunks(arguments)
        if kind is None:
            raise SlackError("no_text")
        self._workspace.update_stream(message, self._append_chunks(message, stream, chunks, kind))
        return {"channel": channel.id, "ts": message.ts}

    def stop_stream(self, arguments: Arguments) -> dict[str, Any]:
        channel, message, stream = self._find_stream(arguments)
        status = arguments.text("session_status") or "active"
        if status not in STATUSES:
            raise SlackError("invalid_arguments", messages=["[ERROR] no such status [json-pointer:/session_status]"])
        chunks, kind = _parse_chunks(arguments)
        blocks = arguments.json("blocks", error="invalid_blocks_format")
        metadata = parse_metadata(arguments)
        content = self._append_chunks(message, stream, chunks, kind)
        if blocks:
            text_blocks = [{"type": "markdown", "text": content.text}] if content.text else []
            content = replace(content, blocks=[*text_blocks, *check_blocks(blocks)])
        message.metadata = metadata or message.metadata
        stream.ends_at = monotonic()
        self._workspace.update_message(message, content, edited=False)
        session = self._assistant.find_session(channel, message.thread_ts or message.ts)
        if session is not None and session.status != status:
            session.statuses.append(status)
        return {"channel": channel.id, "ts": message.ts, "message": self._api.payloads.stopped_message(message)}

    def _find_stream(self, arguments: Arguments) -> tuple[SlackConversation, SlackMessage, NativeStream]:
        """Return the conversation, message and stream of the arguments `channel` and `ts`.

        Raises:
            SlackError: `message_not_owned_by_app` or `message_not_in_streaming_state`, or as for
                `WebApi.find_channel`, `WebApi.require_writable` and `WebApi.find_message`.
        """
        channel = self._api.require_writable(self._api.find_channel(arguments))
        message = self._api.find_message(channel, arguments.get_required("ts"))
        if message.bot_id != self._workspace.bot_id:
            raise SlackError("message_not_owned_by_app")
        if message.stream is None or not message.stream.is_live:
            raise SlackError("message_not_in_streaming_state")
        return channel, message, message.stream

    def _parse_recipient(self, channel: SlackConversation, arguments: Arguments) -> str | None:
        """Return the id of the user who sees live updates of a new stream.

        In a DM it is the DM's user. Elsewhere it is the argument `recipient_user_id`. It is never None.

        Raises:
            SlackError: outside DMs, `missing_recipient_user_id`, `missing_recipient_team_id` or `user_not_found`.
        """
        user, team = arguments.text("recipient_user_id"), arguments.text("recipient_team_id")
        if channel.is_dm:
            return channel.user
        if not user:
            raise SlackError("missing_recipient_user_id")
        if not team:
            raise SlackError("missing_recipient_team_id")
        return self._api.find_user(user).id

    @staticmethod
    def _append_chunks(
        message: SlackMessage, stream: NativeStream, chunks: Sequence[Mapping[str, Any]], mode: str | None
    ) -> SlackContent:
        """Return the content of a streamed message with further chunks at its end.

        The message is unchanged. The stream's `byte_count` grows, and its `mode` is set by the first chunks.

        Args:
            mode: the argument with the chunks, `markdown_text` or `chunks`; None if there are no chunks.

        Raises:
            SlackError: `streaming_mode_mismatch` if the stream uses the other argument, or `msg_too_long`.
        """
        if mode is not None and stream.mode not in (None, mode):
            raise SlackError("streaming_mode_mismatch")
        content = _apply_chunks(message.content, stream, chunks)
        stream.mode = stream.mode or mode
        return content


def _parse_chunks(arguments: Arguments) -> tuple[Sequence[Mapping[str, Any]], str | None]:
    """Return the chunks in the arguments `markdown_text` or `chunks`, as JSON objects.

    Returns:
        The chunks, and the name of the argument; no chunks and None if both arguments are missing or empty.

    Raises:
        SlackError: `cannot_provide_both_markdown_text_and_chunks`, `msg_too_long`, `invalid_chunks`, or as for
            `check_blocks`.
    """
    text, chunks = arguments.text("markdown_text"), arguments.json("chunks", error="invalid_chunks")
    if text and chunks:
        raise SlackError("cannot_provide_both_markdown_text_and_chunks")
    if len(text) > MAX_MARKDOWN_CHARS:
        raise SlackError("msg_too_long")
    if text:
        return [{"type": "markdown_text", "text": text}], "markdown_text"
    if not chunks:
        return [], None
    if not isinstance(chunks, list) or not all(map(_is_chunk, chunks)):
        raise SlackError("invalid_chunks")
    return chunks, "chunks"


def _is_chunk(chunk: object) -> bool:
    """Return whether Slack would accept an item of the argument `chunks`.

    Raises:
        SlackError: as for `check_blocks`, for a chunk with blocks.
    """
    match chunk:
        case {"type": "markdown_text", "text": str(text)}:
            return len(text) <= MAX_MARKDOWN_CHARS
        case {"type": "task_update", "id": str(), "title": str(title), "status": str(status)}:
            return len(title) <= MAX_TASK_CHARS and status in _TASK_STATUSES
        case {"type": "plan_update", "title": str(title)}:
            return len(title) <= MAX_TASK_CHARS
        case {"type": "blocks", "blocks": list(blocks)}:
            return bool(check_blocks(blocks))
    return False


def _apply_chunks(content: SlackContent, stream: NativeStream, chunks: Sequence[Mapping[str, Any]]) -> SlackContent:
    """Return the content of a message with chunks added, and count their size.

    Args:
        stream: stream of the message, whose `byte_count` grows.

    Raises:
        SlackError: `msg_too_long`.
    """
    size = stream.byte_count + sum(map(_count_bytes, chunks))
    if size > MAX_STREAM_BYTES:
        raise SlackError("msg_too_long")
    text, tasks, plan = content.text, {task.id: task for task in content.tasks}, content.plan
    for chunk in chunks:
        match chunk["type"]:
            case "markdown_text":
                text += chunk["text"]
            case "task_update":
                before = tasks.get(chunk["id"])
                tasks[chunk["id"]] = TaskCard(
                    chunk["id"],
                    chunk["title"],
                    chunk["status"],
                    details=(before.details if before else "") + str(chunk.get("details") or ""),
                    output=(before.output if before else "") + str(chunk.get("output") or ""),
                )
            case "plan_update":
                plan = chunk["title"]
    stream.byte_count = size
    blocks = [block for chunk in chunks if chunk["type"] == "blocks" for block in chunk["blocks"]]
    return replace(content, text=text, tasks=tuple(tasks.values()), plan=plan, blocks=blocks or content.blocks)


def _count_bytes(chunk: Mapping[str, Any]) -> int:
    """Return the size of a chunk in bytes, as Slack seems to count it.

    Text counts its bytes in UTF-8. Any other chunk counts twice the bytes of its JSON.
    """
    if chunk["type"] == "markdown_text":
        return len(chunk["text"].encode())
    return 2 * len(json.dumps(chunk, ensure_ascii=False).encode())
