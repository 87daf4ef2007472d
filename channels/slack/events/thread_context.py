"""What was said around a question: in its thread by others, and in the messages that it passes on.

Slack: `conversations.replies` has a thread, oldest first, its first message always before all; what was edited reads as
it does now, and what was deleted is not there.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from channels.base import ContextMessage, SurroundingMessages
from channels.slack.client.api import Answer, SlackApi
from channels.slack.client.rate_limits import PAST
from channels.slack.directory import WorkspaceDirectory
from channels.slack.events.content import PERMALINK, passed_on, said
from channels.slack.events.parser import is_written, name_of
from channels.slack.session_ids import NAME
from channels.slack.text import to_words
from core.conversations.history_state import HistoryState
from core.identity import BOT_PREFIX
from core.inbox_message import InboxMessage

#: Slack: the most messages that one call tells. And the most calls for one question.
PAGE = 999
MOST_PAGES = 5

#: How many calls have to be left for one more that is likely to tell nothing: where nobody was heard to speak.
SPARE = PAST.calls // 2

#: For how many messages of a thread names are asked for: more of them find no place.
NAMED = 200


class SlackContextFetcher:
    """Looks it up.

    Args:
        hears_all: whether it is kept of a conversation that somebody has said something there to others.
    """

    def __init__(self, api: SlackApi, directory: WorkspaceDirectory, *, hears_all: bool) -> None:
        self._api = api
        self._directory = directory
        self._hears_all = hears_all

    async def fetch(self, messages: Sequence[InboxMessage], behind: HistoryState | None) -> SurroundingMessages:
        """See `Channel.around`.

        Raises:
            SurfaceError: Slack is out of reach, or does not let the bot read there.
        """
        newest = messages[-1]
        team, asked = str(newest.address["team"]), {str(message.address["ts"]): message for message in messages}
        thread = await self._thread(messages, behind)
        now = {message["ts"]: passed_on(message) for message in thread if message["ts"] in asked}
        passed = [(message, part) for ts, message in asked.items() for part in now.get(ts) or _brought(message)]
        before = []
        if behind is not None:
            # an event tells the bot's own user, an interaction does not
            bot = newest.address.get("bot") or (thread and (await self._directory.bot(team))["user_id"])
            before = [
                message
                for message in thread
                if is_written(message)
                and message["ts"] not in asked
                and message.get("user") != bot
                and behind.since < float(message["ts"]) <= newest.sent_at
            ]
        others = {one.author: one for one in behind.others} if behind is not None else {}
        near = [*before[:1], *before[-NAMED:]]
        names = await self._directory.names(
            team,
            {
                *(str(message["user"]) for message in near if message.get("user") and not message.get("bot_id")),
                *(part["author"] for _, part in passed if part["author"]),
                *(author for author, one in others.items() if not one.is_bot),
            },
            [*map(said, near), *(str(part["text"]) for _, part in passed)],
        )
        return SurroundingMessages(
            [
                *(_before(message, names) for message in before),
                *(_passed_on(message, part, names) for message, part in passed),
            ],
            {author: names.get(author) or str(one.address.get("name", "")) for author, one in others.items()},
        )

    async def _thread(self, messages: Sequence[InboxMessage], behind: HistoryState | None) -> list[Answer]:
        """What stands in the thread since the newest that the history holds, the questions included; nothing, if there
        can be nothing to be known of it.
        """
        newest, root = messages[-1], str(messages[-1].address["thread_ts"] or messages[-1].address["ts"])
        is_deep = any(str(message.address["ts"]) != root for message in messages)
        if not (behind is not None and is_deep) and not any(PERMALINK in message.text for message in messages):
            return []
        since = min(behind.since if behind is not None else newest.sent_at, messages[0].sent_at)
        about = {
            "channel": newest.address["channel"],
            "ts": root,
            "oldest": f"{since:.6f}",
            "latest": newest.address["ts"],
            "inclusive": True,
            "limit": PAGE,
        }
        api = self._api.at(str(newest.address["team"]))
        budget = api.budget(("conversations.replies", newest.address["team"]), PAST)
        if behind is not None and behind.is_quiet and self._hears_all and not budget.can_reserve(SPARE):
            return []
        told = await api.pages("conversations.replies", about, budget, most=MOST_PAGES)
        return list({message["ts"]: message for message in told}.values())


def _brought(message: InboxMessage) -> list[Mapping[str, Any]]:
    """What a message passes on, as an event told it."""
    return [part for part in message.brings if "text" in part]


def _before(message: Mapping[str, Any], names: Mapping[str, str]) -> ContextMessage:
    bot = str(message.get("bot_id") or "")
    user = str(message.get("user") or "")
    parts = [said(message), *(f"[passed on] {part['name']}: {part['text']}" for part in passed_on(message))]
    return ContextMessage(
        author=f"{BOT_PREFIX}{bot}" if bot else user,
        name=name_of(message, bot) if bot else names.get(user, user),
        text=to_words("\n".join(filter(None, parts)), names),
        sent_at=float(message["ts"]),
        is_thread_start=message.get("thread_ts", message["ts"]) == message["ts"],
    )


def _passed_on(message: InboxMessage, part: Mapping[str, str], names: Mapping[str, str]) -> ContextMessage:
    author = part["author"]
    return ContextMessage(
        author=author or f"{NAME}:{part['name']}",
        name=names.get(author) or part["name"] or "somebody",
        text=to_words(part["text"], names),
        sent_at=float(part["ts"] or 0),
        kind="forwarded",
        event_key=message.event_key,
    )
