"""Slack's streams (`chat.startStream` and others) of the growing messages of a reply."""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from cachetools import TTLCache

from channels.base import Button
from channels.rate_limits.limiter import RateLimiter
from channels.rate_limits.retries import RefusedError, TransientError
from channels.replies.diff import StreamRules
from channels.replies.stream import StreamPart
from channels.replies.surface import StartOutcome, StreamEndedError
from channels.slack.client.blocks import button_blocks
from channels.slack.client.rate_limits import TIER_2, TIER_4
from channels.slack.replies.thread import ReplyThread
from channels.slack.settings import Streaming
from channels.slack.text import escape_tokens

log = logging.getLogger(__name__)

#: Slack ends a stream after about five minutes or 11,000 bytes (measured); it is stopped before that.
STREAM_SECONDS = 240.0
MAX_STREAM_BYTES = 9_000

#: The most channels in memory in which Slack refused a stream, and the seconds for which no stream is tried in them.
MAX_REFUSED, REFUSED_SECONDS = 10_000, 600.0

#: Slack: most characters of a task's title.
_TITLE_SIZE = 256


class StreamPolicy:
    """Decides in which channels replies are streamed; all replies share one policy.

    Args:
        seconds: the age in seconds at which a stream is stopped; edits show the rest of its reply.
    """

    def __init__(self, streaming: Streaming = "auto", *, seconds: float = STREAM_SECONDS) -> None:
        self.streaming = streaming
        self.seconds = seconds
        self._refused: TTLCache[str, bool, float] = TTLCache(MAX_REFUSED, REFUSED_SECONDS)

    def disable(self, channel: str) -> None:
        """Disable streams in a channel for `REFUSED_SECONDS`, as Slack refused one there."""
        self._refused[channel] = True

    def is_enabled(self, channel: str) -> bool:
        """Return whether streams in a channel are not disabled now by `disable`."""
        return channel not in self._refused


class SlackStreams:
    """Streams of one reply: see `channels.replies.surface.Streams`."""

    def __init__(self, thread: ReplyThread, address: Mapping[str, Any], policy: StreamPolicy) -> None:
        self._thread = thread
        self._api = thread.api
        self._is_first_prompt = address["ts"] == address["thread_ts"]
        # Slack: the recipient is required in channels, where only they see the text grow.
        recipient = {"recipient_user_id": str(address["user"]), "recipient_team_id": str(address.get("user_team", ""))}
        self._recipient = {} if self._is_direct else recipient
        self._policy = policy
        self.rules = StreamRules(policy.seconds, MAX_STREAM_BYTES, _measure)

    @property
    def _is_direct(self) -> bool:
        return self._thread.channel.startswith("D")

    @property
    def start_limiter(self) -> RateLimiter:
        return self._api.get_limiter(("chat.startStream", self._thread.team), TIER_2)

    @property
    def append_limiter(self) -> RateLimiter:
        return self._api.get_limiter(("chat.appendStream", self._thread.team), TIER_4)

    @property
    def stop_limiter(self) -> RateLimiter:
        return self._thread.stop_limiter

    def may_start(self) -> bool:
        """Return whether to stream the next message of the reply.

        Starts and stops have small rate limits: a stream needs a free slot for its start, and one for its stop. In a
        channel, Slack shows the growing text to only one user. With `auto`, streams are therefore used only in direct
        messages and for the first prompt of a thread. Appends must also be allowed as often as edits.
        """
        if not (
            self._policy.is_enabled(self._thread.channel)
            and self.stop_limiter.can_reserve(1)
            and self.start_limiter.can_reserve(1)
        ):
            return False
        if self._policy.streaming == "native":
            return True
        has_one_reader = self._is_direct or self._is_first_prompt
        return has_one_reader and self.append_limiter.calls_per_reply >= self._thread.edit_limiter.calls_per_reply

    async def start(self, position: int, part: StreamPart) -> StartOutcome:
        """Start a stream. After a refusal by Slack, no stream is started in the channel for a while."""
        try:
            answer = await self._api.call_once(
                "chat.startStream",
                {
                    **self._thread.arguments,
                    "unfurl_links": False,
                    "unfurl_media": False,
                    "chunks": _create_chunks(part),
                    **self._recipient,
                },
                self.start_limiter,
            )
        except RefusedError as refusal:
            log.warning("%s; replies in this channel are edited for %g s", refusal, REFUSED_SECONDS)
            self._policy.disable(self._thread.channel)
            return StartOutcome()
        except TransientError as failure:
            if failure.retry_after is not None:
                return StartOutcome()
            found = await self._thread.stop_lost_streams(await self._thread.read())
            return StartOutcome(found[0] if found else "", was_lost=True)
        return StartOutcome(str(answer["ts"]), is_open=True)

    async def append(self, message_id: str, part: StreamPart) -> bool:
        arguments = {"channel": self._thread.channel, "ts": message_id, "chunks": _create_chunks(part)}
        try:
            await self._api.call_once("chat.appendStream", arguments, self.append_limiter)
        except RefusedError as refusal:  # Slack has ended it
            raise StreamEndedError from refusal
        except TransientError as failure:
            if failure.retry_after is None:
                raise StreamEndedError from failure
            return False
        return True

    async def finish(self, position: int, message_id: str, part: StreamPart, buttons: Sequence[Button]) -> None:
        arguments = {
            **self._thread.create_stop_arguments(message_id),
            "metadata": self._thread.create_metadata(position),
        }
        if part:
            arguments["chunks"] = _create_chunks(part)
        if buttons:
            arguments["blocks"] = button_blocks(buttons)
        try:
            await self._api.call_once("chat.stopStream", arguments, self.stop_limiter)
        except (RefusedError, TransientError) as error:
            raise StreamEndedError from error

    async def stop(self, message_id: str) -> None:
        await self._thread.stop_stream(message_id, has_slot=True)


def _create_chunks(part: StreamPart) -> list[dict[str, Any]]:
    """Return the stream chunks of a part; the id of a card is its position."""
    chunks = [
        {
            "type": "task_update",
            "id": str(number),
            "title": escape_tokens(card.title)[:_TITLE_SIZE],
            "status": card.state.value,
        }
        for number, card in part.cards
    ]
    return [*chunks, {"type": "markdown_text", "text": part.text}] if part.text else chunks


def _measure(part: StreamPart) -> int:
    """Return the size of a part in bytes; Slack counts tasks twice (measured)."""
    return sum(
        len(chunk["text"].encode()) if "text" in chunk else 2 * len(json.dumps(chunk, ensure_ascii=False).encode())
        for chunk in _create_chunks(part)
    )
