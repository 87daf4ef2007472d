"""History: fetches the messages that were sent while the bot was disconnected.

Slack: `conversations.history` returns the messages of a channel, newest first, and of each thread the time of the
latest reply. `conversations.replies` returns a thread, oldest first; the thread's first message is always included.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from channels.base import Priority
from channels.intake.backfill import ACTIVE_SECONDS
from channels.intake.incoming import IncomingMessage
from channels.rate_limits.retries import RefusedError
from channels.slack.client.api import ApiObject, SlackApi
from channels.slack.client.rate_limits import HISTORY, TIER_3
from channels.slack.directory import WorkspaceDirectory
from channels.slack.events.authors import resolve_authors
from channels.slack.session_ids import thread_ts_of
from core.inbox.watermarks import ActivePlace

log = logging.getLogger(__name__)

#: The most seconds before the disconnection at which a thread may have begun: only in such threads, and in those with
#: active sessions, missed messages are found.
THREAD_SECONDS = 86_400.0

#: Messages that one call returns, and the most calls for one channel or thread.
PAGE_SIZE = 200
MAX_PAGES = 5

#: Slack: errors of the app's token, and not of one channel.
_TOKEN_ERRORS = {"account_inactive", "invalid_auth", "not_authed", "token_expired", "token_revoked"}


class SlackHistory:
    """Fetches past messages of channels and threads for the backfill."""

    def __init__(
        self, api: SlackApi, directory: WorkspaceDirectory, parse: Callable[[Mapping[str, Any]], IncomingMessage | None]
    ) -> None:
        self._api = api
        self._directory = directory
        self._parse = parse

    def create_fetch(self, since: float) -> Callable[[ActivePlace], Awaitable[list[IncomingMessage]]]:
        """Return a function that fetches the messages for the bot in a place since a time.

        The function returns the messages in no particular order, and none for a place that the bot may not read. It
        raises `SurfaceError` if Slack cannot be reached, or refuses the token of the only workspace.

        At most `MAX_PAGES` pages of the channel and of each thread are read. Replies are found only in threads that
        have an active session, or that began recently: see `THREAD_SECONDS`.
        """
        return partial(self._fetch, since=since)

    async def _fetch(self, place: ActivePlace, *, since: float) -> list[IncomingMessage]:
        _, team, channel = place.id.split(":")
        try:
            bot = await self._directory.get_auth_test(team)
            found = await self._messages(team, channel, [thread_ts_of(session) for session in place.sessions], since)
            messages = await resolve_authors(self._directory, team, found, own=bot["user_id"])
            is_shared = await self._is_shared(team, channel, messages)
        except RefusedError as refusal:
            if refusal.code in _TOKEN_ERRORS and not self._api.has_many_workspaces:
                raise
            log.warning("the missed messages of %s cannot be read: %s", place.id, refusal)
            return []
        authorization = {"team_id": team, "user_id": bot["user_id"], "enterprise_id": bot.get("enterprise_id")}
        payload = {"team_id": team, "authorizations": [authorization], "is_ext_shared_channel": is_shared}
        parsed = []
        for message in messages:  # up to 1,000: yield to the event loop between them
            await asyncio.sleep(0)
            if (incoming := self._parse({**payload, "event": _event(channel, message)})) is not None:
                parsed.append(incoming)
        return parsed

    async def _is_shared(self, team: str, channel: str, messages: Sequence[ApiObject]) -> bool | None:
        """Return whether a channel is shared with another organisation (Slack Connect).

        False for a channel that only workspaces of one organisation share. None, without a call, if all authors of the
        messages belong to the workspace.
        """
        if {message.get("user_team") or message.get("team") or team for message in messages} <= {team}:
            return None
        limiter = self._api.get_limiter(("conversations.info", team), TIER_3)
        arguments = {"channel": channel}
        answer = await self._api.for_team(team).call(
            "conversations.info", arguments, limiter, priority=Priority.BACKFILL, reads=True
        )
        return bool((answer or {}).get("channel", {}).get("is_ext_shared"))

    async def _messages(self, team: str, channel: str, sessions: Sequence[str], since: float) -> list[ApiObject]:
        """Fetch the messages of a channel and its threads since a time, each once, in no particular order.

        `sessions` has the `ts` of each thread with an active session; "" for direct messages that are one session.
        Other threads are read only if they began at most `THREAD_SECONDS` (with "", `ACTIVE_SECONDS`) before `since`.
        """
        arguments = {"channel": channel, "oldest": _ts(since - (ACTIVE_SECONDS if "" in sessions else THREAD_SECONDS))}
        first = await self._read_pages("conversations.history", team, arguments)
        found = {message["ts"]: message for message in first}
        threads = [ts for ts, message in found.items() if float(message.get("latest_reply") or 0) >= since]
        for root in [*threads, *(root for root in sessions if root and root not in found)]:
            arguments = {"channel": channel, "ts": root, "oldest": _ts(since)}
            try:
                replies = await self._read_pages("conversations.replies", team, arguments)
            except RefusedError as refusal:
                if refusal.code != "thread_not_found":
                    raise
                continue
            found |= {message["ts"]: message for message in replies}
        return [message for ts, message in found.items() if float(ts) >= since]

    async def _read_pages(self, method: str, team: str, arguments: Mapping[str, Any]) -> list[ApiObject]:
        api = self._api.for_team(team)
        arguments = {**arguments, "limit": PAGE_SIZE}
        limiter = self._api.get_limiter((method, team), HISTORY)
        return await api.read_pages(method, arguments, limiter, max_pages=MAX_PAGES, priority=Priority.BACKFILL)


def _event(channel: str, message: ApiObject) -> dict[str, Any]:
    """Return a message of the history as the event by which Slack would have sent it.

    An edited message has its present text. A thread's first message gets no `thread_ts`, since it had no replies when
    it was sent.
    """
    event = {name: value for name, value in message.items() if name != "edited"}
    if event.get("thread_ts") == event["ts"]:
        del event["thread_ts"]
    return {**event, "type": "message", "channel": channel}


def _ts(at: float) -> str:
    return f"{at:.6f}"
