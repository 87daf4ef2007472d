"""What was said in Slack while nobody listened.

Slack: `conversations.history` has what was said in a channel or in direct messages, newest first, and of each thread
the time of the latest reply; `conversations.replies` has a thread, oldest first, its first message always before all.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from channels.base import Priority
from channels.intake.backfill import ACTIVE_SECONDS
from channels.intake.handler import IncomingMessage
from channels.rate_limits.caller import RefusedError
from channels.slack.client.api import Answer, SlackApi
from channels.slack.client.rate_limits import PAST, TIER_3
from channels.slack.directory import WorkspaceDirectory
from channels.slack.session_ids import root_of
from core.inbox.watermarks import ActivePlace

log = logging.getLogger(__name__)

#: Seconds before the gap in which a thread may have begun in which somebody has called the bot for the first time.
THREADS = 86_400.0

#: How many messages one call asks for, and the most calls for one channel or thread.
PAGE = 200
MOST_PAGES = 5

#: Slack: the refusals that speak of the app, and not of a place.
_OF_THE_APP = {"account_inactive", "invalid_auth", "not_authed", "token_expired", "token_revoked"}


class SlackHistory:
    """Reads what a workspace has kept.

    Args:
        hear: finds the call in an event.
    """

    def __init__(
        self, api: SlackApi, directory: WorkspaceDirectory, hear: Callable[[Mapping[str, Any]], IncomingMessage | None]
    ) -> None:
        self._api = api
        self._directory = directory
        self._hear = hear

    def look(self, since: float) -> Callable[[ActivePlace], Awaitable[list[IncomingMessage]]]:
        """Begin a look: what was said in a place since then (seconds since the epoch). What cannot be looked into is
        left.

        Raises:
            SurfaceError: Slack is out of reach, or does not take the token.
        """
        return partial(self._calls, since=since)

    async def _calls(self, place: ActivePlace, *, since: float) -> list[IncomingMessage]:
        """The calls in what was said in a place since then."""
        _, team, channel = place.id.split(":")
        try:
            bot = await self._directory.bot(team)
            messages = await self._said(team, channel, [root_of(session) for session in place.sessions], since)
            is_shared = await self._is_shared(team, channel, messages)
        except RefusedError as refusal:
            self._skip(place, refusal)
            return []
        authorization = {"team_id": team, "user_id": bot["user_id"], "enterprise_id": bot.get("enterprise_id")}
        about = {"team_id": team, "authorizations": [authorization], "is_ext_shared_channel": is_shared}
        calls = []
        for message in messages:  # up to a thousand, each parsed on the event loop
            await asyncio.sleep(0)
            if (call := self._hear({**about, "event": _event(channel, message)})) is not None:
                calls.append(call)
        return calls

    async def _is_shared(self, team: str, channel: str, messages: Sequence[Answer]) -> bool | None:
        """Whether a channel is shared with another organisation, as an event tells; unknown where only people of the
        workspace speak. One that several workspaces of an organisation have is not.
        """
        if {message.get("user_team") or message.get("team") or team for message in messages} <= {team}:
            return None
        budget, about = self._api.budget(("conversations.info", team), TIER_3), {"channel": channel}
        answer = await self._api.at(team).call(
            "conversations.info", about, budget, priority=Priority.BACKFILL, reads=True
        )
        return bool((answer or {}).get("channel", {}).get("is_ext_shared"))

    async def _said(self, team: str, channel: str, sessions: Sequence[str], since: float) -> list[Answer]:
        """What was said in a channel, and in those of its threads that have news.

        Args:
            sessions: the first messages of threads that the bot follows, however old they are; empty for one
                conversation of all that is said, in whichever thread.
        """
        about = {"channel": channel, "oldest": _ts(since - (ACTIVE_SECONDS if "" in sessions else THREADS))}
        opening = await self._pages("conversations.history", team, about)
        said = {message["ts"]: message for message in opening}
        threads = [ts for ts, message in said.items() if float(message.get("latest_reply") or 0) >= since]
        for root in [*threads, *(root for root in sessions if root and root not in said)]:
            about = {"channel": channel, "ts": root, "oldest": _ts(since)}
            try:
                replies = await self._pages("conversations.replies", team, about)
            except RefusedError as refusal:
                if refusal.code != "thread_not_found":
                    raise
                continue
            said |= {message["ts"]: message for message in replies}
        return [message for ts, message in said.items() if float(ts) >= since]

    async def _pages(self, method: str, team: str, about: Mapping[str, Any]) -> list[Answer]:
        api, asked = self._api.at(team), {**about, "limit": PAGE}
        budget = self._api.budget((method, team), PAST)
        return await api.pages(method, asked, budget, most=MOST_PAGES, priority=Priority.BACKFILL)

    def _skip(self, place: ActivePlace, refusal: RefusedError) -> None:
        """Pass over a place that may not be looked into.

        Raises:
            RefusedError: it is not the place that it is about.
        """
        if refusal.code in _OF_THE_APP and not self._api.is_shared:
            raise refusal
        log.warning("the messages of %s that were missed cannot be read: %s", place.id, refusal)


def _event(channel: str, message: Answer) -> dict[str, Any]:
    """A message as the event would have told it.

    What was edited since reads as it does now. Of the first message of a thread, an event tells no thread: nobody had
    replied then.
    """
    event = {name: value for name, value in message.items() if name != "edited"}
    if event.get("thread_ts") == event["ts"]:
        del event["thread_ts"]
    return {**event, "type": "message", "channel": channel}


def _ts(at: float) -> str:
    return f"{at:.6f}"
