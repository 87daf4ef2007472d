"""Context messages of a turn: others' messages in the thread, forwarded messages.

Slack: `conversations.replies` returns a thread, oldest first; the thread's first message is always included. Edited
messages have their present text, and deleted messages are missing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from channels.base import ContextMessage, SurroundingMessages
from channels.slack.client.api import ApiObject, SlackApi
from channels.slack.client.rate_limits import HISTORY
from channels.slack.directory import WorkspaceDirectory
from channels.slack.events.authors import resolve_authors
from channels.slack.events.content import PERMALINK, MessageContent, read_message
from channels.slack.events.parser import is_from_person_or_bot
from channels.slack.session_ids import PLATFORM, event_key
from channels.slack.text import to_plain_text
from core.conversations.history_state import HistoryState
from core.messages.inbox_message import InboxMessage

#: The most messages that one call returns (Slack's limit), and the most calls for one turn.
PAGE_SIZE = 999
MAX_PAGES = 5

#: Calls that the rate limit must have left to read a thread in which other people seem to have written nothing.
MIN_SPARE_CALLS = HISTORY.calls // 2

#: Messages of a thread whose authors and mentions are looked up; a prompt has no room for more.
MAX_NAMED_MESSAGES = 200


class SlackContextFetcher:
    """Fetches the context messages of turns from Slack: see `Platform.fetch_context`.

    Args:
        tracks_unaddressed: whether the inbox stores messages to other people in a thread; only then is
            `HistoryState.is_quiet` reliable.
    """

    def __init__(self, api: SlackApi, directory: WorkspaceDirectory, *, tracks_unaddressed: bool) -> None:
        self._api = api
        self._directory = directory
        self._tracks_unaddressed = tracks_unaddressed

    async def fetch(self, messages: Sequence[InboxMessage], history: HistoryState | None) -> SurroundingMessages:
        """Fetch the context messages of a turn: see `Platform.fetch_context`."""
        newest = messages[-1]
        team = str(newest.address["team"])
        prompts = {str(message.address["ts"]): message for message in messages}
        thread = await self._read_thread(messages, history)
        current = {message["ts"]: read_message(message).forwarded for message in thread if message["ts"] in prompts}
        forwarded = [
            (message, part) for ts, message in prompts.items() for part in current.get(ts) or _forwards_of(message)
        ]
        earlier = []
        if history is not None:
            # an event has the bot's own user, an interaction has not
            bot = newest.address.get("bot") or (thread and (await self._directory.get_auth_test(team))["user_id"])
            earlier = [
                message
                for message in thread
                if is_from_person_or_bot(message)
                and message["ts"] not in prompts
                and message.get("user") != bot
                and history.since < float(message["ts"]) <= newest.sent_at
            ]
        others = {message.author: message for message in history.others} if history is not None else {}
        contents = [read_message(message) for message in await resolve_authors(self._directory, team, earlier)]
        named = [*contents[:1], *contents[-MAX_NAMED_MESSAGES:], *(part for _, part in forwarded)]
        names = await self._directory.get_names(
            team,
            {
                *(content.author for content in named if content.author and not content.is_bot),
                *(author for author, message in others.items() if not message.is_bot),
            },
            [content.quotable_text for content in named],
        )
        return SurroundingMessages(
            [
                *(
                    replace(
                        _earlier_message(content, names),
                        is_thread_start=message.get("thread_ts", content.ts) == content.ts,
                        key=event_key(team, str(newest.address["channel"]), content.ts),
                    )
                    for message, content in zip(earlier, contents, strict=True)
                ),
                *(_forwarded_message(message, part, names) for message, part in forwarded),
            ],
            {author: names.get(author) or str(message.address.get("name", "")) for author, message in others.items()},
        )

    async def _read_thread(self, messages: Sequence[InboxMessage], history: HistoryState | None) -> list[ApiObject]:
        """Fetch the messages of the turn, and those of its thread since `history` ends.

        Messages are fetched if the turn is in a thread and has `history`, or if a message of the turn has a link to a
        message: Slack attaches the linked message. If no other person wrote (`HistoryState.is_quiet`), the thread is
        fetched only while the rate limit has `MIN_SPARE_CALLS` left.
        """
        newest = messages[-1]
        root = str(messages[-1].address["thread_ts"] or messages[-1].address["ts"])
        is_in_thread = any(str(message.address["ts"]) != root for message in messages)
        if not (history is not None and is_in_thread) and not any(PERMALINK in message.text for message in messages):
            return []
        since = min(history.since if history is not None else newest.sent_at, messages[0].sent_at)
        arguments = {
            "channel": newest.address["channel"],
            "ts": root,
            "oldest": f"{since:.6f}",
            "latest": newest.address["ts"],
            "inclusive": True,
            "limit": PAGE_SIZE,
        }
        api = self._api.for_team(str(newest.address["team"]))
        limiter = api.get_limiter(("conversations.replies", newest.address["team"]), HISTORY)
        if (
            history is not None
            and history.is_quiet
            and self._tracks_unaddressed
            and not limiter.can_reserve(MIN_SPARE_CALLS)
        ):
            return []
        found = await api.read_pages("conversations.replies", arguments, limiter, max_pages=MAX_PAGES)
        return list({message["ts"]: message for message in found}.values())


def _forwards_of(message: InboxMessage) -> list[MessageContent]:
    return [MessageContent.from_reference(part) for part in message.forwarded]


def _earlier_message(content: MessageContent, names: Mapping[str, str]) -> ContextMessage:
    return ContextMessage(
        author=content.author,
        name=content.name or names.get(content.author, content.author),
        text=to_plain_text(content.quotable_text, names),
        sent_at=float(content.ts),
        attachments=content.all_files,
    )


def _forwarded_message(message: InboxMessage, content: MessageContent, names: Mapping[str, str]) -> ContextMessage:
    return ContextMessage(
        author=content.author or f"{PLATFORM}:{content.name}",
        name=names.get(content.author) or content.name or "somebody",
        text=to_plain_text(content.quotable_text, names),
        sent_at=float(content.ts or 0),
        kind="forwarded",
        event_key=message.event_key,
        attachments=content.all_files,
        key=message.event_key,
    )
