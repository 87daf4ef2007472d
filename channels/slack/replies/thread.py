"""Thread of a reply on Slack: its arguments, its rate limits, and the reply's messages in it."""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from channels.rate_limits.limiter import RateLimiter
from channels.rate_limits.retries import RefusedError
from channels.slack.client.api import ApiObject, SlackApi
from channels.slack.client.rate_limits import HISTORY, TIER_2, TIER_3
from channels.slack.replies.assistant import AssistantThreads

log = logging.getLogger(__name__)

#: Event type of the metadata by which a posted message is found if Slack's response was lost.
_METADATA_EVENT = "parley_chunk"


class ReplyThread:
    """Thread in which a reply is shown or, if there is none, the channel."""

    def __init__(
        self, api: SlackApi, address: Mapping[str, Any], turn_id: str, assistant: AssistantThreads | None
    ) -> None:
        self.team = str(address["team"])
        self.api = api.for_team(self.team)
        self.channel = str(address["channel"])
        self.ts = str(address["thread_ts"])
        self._address = address
        self._prompt_ts = str(address["ts"])
        self._bot = str(address.get("bot", ""))
        self._turn_id = turn_id
        self._assistant = assistant

    @property
    def arguments(self) -> dict[str, str]:
        """The arguments of a post into the thread, or into the channel if there is none."""
        thread = {"thread_ts": self.ts} if self.ts else {}
        return {"channel": self.channel, **thread}

    @property
    def edit_limiter(self) -> RateLimiter:
        return self.api.get_limiter(("chat.update", self.team), TIER_3)

    @property
    def stop_limiter(self) -> RateLimiter:
        return self.api.get_limiter(("chat.stopStream", self.team), TIER_2)

    def create_metadata(self, position: int) -> dict[str, Any]:
        """Return Slack's metadata of a message: the turn's id and the message's index in the reply."""
        return {"event_type": _METADATA_EVENT, "event_payload": {"turn": self._turn_id, "chunk": position}}

    def create_stop_arguments(self, message_id: str) -> dict[str, Any]:
        status = {} if self._assistant is None else self._assistant.get_stop_arguments(self._address)
        return {"channel": self.channel, "ts": message_id, **status}

    async def stop_stream(self, message_id: str, *, has_slot: bool = False) -> bool:
        """Stop the stream of a message, so that it can be edited; False if Slack refuses it (logged)."""
        arguments = self.create_stop_arguments(message_id)
        try:
            await self.api.call("chat.stopStream", arguments, self.stop_limiter, has_slot=has_slot)
        except RefusedError as refusal:
            log.info("%s", refusal)
            return False
        return True

    async def read(self) -> Sequence[ApiObject]:
        """Fetch up to 200 messages of the thread or channel after the user's message, oldest first."""
        method = "conversations.replies" if self.ts else "conversations.history"
        arguments = {"channel": self.channel, "oldest": self._prompt_ts, "include_all_metadata": True, "limit": 200}
        if self.ts:
            arguments["ts"] = self.ts
        limiter = self.api.get_limiter((method, self.team), HISTORY)
        answer = await self.api.call(method, arguments, limiter, reads=True)
        found: Sequence[ApiObject] = (answer or {}).get("messages", ())
        return sorted(found, key=lambda message: float(message["ts"]))

    def find_own(self, messages: Sequence[ApiObject]) -> list[tuple[int, str]]:
        """Return the index in the reply and the id of each message with the metadata of this reply."""
        own = [message for message in messages if self._is_own(message)]
        return [(int(message["metadata"]["event_payload"]["chunk"]), str(message["ts"])) for message in own]

    async def stop_lost_streams(self, messages: Sequence[ApiObject], known_ids: Collection[str] = ()) -> list[str]:
        """Stop the streams of unknown messages, and return the ids of these messages.

        Slack: a stream has no metadata until it stops, and nothing else tells one that was started without a response
        from another message of the bot. Of a message that is not being streamed, the stop is refused.
        """
        unmarked = [message for message in messages if message["ts"] not in known_ids and self._is_unmarked(message)]
        return [str(message["ts"]) for message in unmarked if await self.stop_stream(str(message["ts"]))]

    def _is_own(self, message: ApiObject) -> bool:
        metadata = message.get("metadata") or {}
        payload = metadata.get("event_payload") or {}
        return metadata.get("event_type") == _METADATA_EVENT and payload.get("turn") == self._turn_id

    def _is_unmarked(self, message: ApiObject) -> bool:
        """Return whether a message of the bot after the user's message is of no reply, as far as it shows."""
        if (message.get("metadata") or {}).get("event_type") == _METADATA_EVENT or message.get("files"):
            return False
        return bool(self._bot) and message.get("user") == self._bot and float(message["ts"]) > float(self._prompt_ts)
