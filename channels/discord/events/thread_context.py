"""Context messages of a turn: its thread, and replied-to and forwarded messages.

Discord returns the history of a thread newest first. The message that a thread was started on is in the channel; the
first message of a forum post is in the post. Both have the id of the thread.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import discord

from channels.base import ContextMessage, SurroundingMessages
from channels.discord.client.api import USER_MESSAGE_TYPES, DiscordApi
from channels.discord.events.content import MentionNames, MessageContent, read_content
from channels.discord.events.mentions import DiscordMentionResolver
from channels.discord.events.thread_titles import to_context_message
from channels.discord.session_ids import event_key, snowflake_time, thread_id_of, time_snowflake
from channels.discord.text import shorten
from channels.rate_limits.retries import RefusedError
from core.conversations.history_state import HistoryState
from core.messages.identity import BOT_PREFIX
from core.messages.inbox_message import Attachment, InboxMessage

#: Messages of a thread that are fetched for one turn, the newest ones. Discord returns 100 a call.
MAX_MESSAGES = 300

#: Most characters of a quoted message of the bot: the session's history has the whole text.
MAX_OWN_CHARACTERS = 200

_CONTEXT_TYPES = (
    *USER_MESSAGE_TYPES,
    discord.MessageType.chat_input_command,
    discord.MessageType.context_menu_command,
    discord.MessageType.thread_starter_message,
)

MessageKey = tuple[int, int]


class DiscordContextFetcher:
    """Fetches the context messages of turns from Discord: see `Platform.fetch_context`."""

    def __init__(self, api: DiscordApi) -> None:
        self._api = api
        self._mentions = DiscordMentionResolver(api)

    async def fetch(self, messages: Sequence[InboxMessage], history: HistoryState | None) -> SurroundingMessages:
        """Fetch the context messages of a turn: see `Platform.fetch_context`."""
        thread = None
        messages_by_key = dict[MessageKey, discord.Message]()
        if history is not None and (thread := thread_id_of(messages[-1].session_id)) is not None:
            messages_by_key = await self._fetch_thread(thread, messages, history)
        references = {message.event_key: key for message in messages if (key := _get_reply_reference(message))}
        missing = set(references.values()) - messages_by_key.keys()
        found = await asyncio.gather(*(self._fetch_message(*reference) for reference in missing))
        known = messages_by_key | {
            key: message for key, message in zip(missing, found, strict=True) if message is not None
        }
        contents = {key: read_content(message) for key, message in known.items()}
        names = await self._mentions.resolve_names(
            _get_guild_id(messages[-1]), (part.markup for content in contents.values() for part in content.parts)
        )
        prompt_texts = {int(message.address["message"]): message.text for message in messages}
        title: ContextMessage | None = None
        if thread is not None and history is not None and not history.since:
            first_texts = prompt_texts | {id_: content.format_text(names) for (_, id_), content in contents.items()}
            title = to_context_message(messages, thread, first_texts.get(thread, ""))
        return SurroundingMessages(
            [
                *(
                    replace(_to_context_message(message, contents[key], names), is_thread_start=message.id == thread)
                    for key, message in sorted(messages_by_key.items(), key=lambda item: item[1].id)
                    if (message.author != self._api.bot_user or message.id == thread)
                    and message.id not in prompt_texts
                    and not contents[key].is_empty
                ),
                *(
                    self._quote(known[reference], contents[reference], names, key)
                    for key, reference in references.items()
                    if reference in known
                ),
                *(_to_forwarded_message(message, part) for message in messages for part in message.forwarded),
                *([] if title is None else [title]),
            ],
            {message.author: str(message.address.get("speaker", "")) for message in history.others}
            if history is not None
            else {},
        )

    def _quote(
        self, message: discord.Message, content: MessageContent, names: MentionNames, quoted_by: str
    ) -> ContextMessage:
        """Return a replied-to message as a context message."""
        quoted = _to_context_message(message, content, names)
        text = shorten(quoted.text, MAX_OWN_CHARACTERS) if message.author == self._api.bot_user else quoted.text
        return replace(quoted, text=text, kind="quoted", event_key=quoted_by)

    async def _fetch_thread(
        self, thread: int, messages: Sequence[InboxMessage], history: HistoryState
    ) -> dict[MessageKey, discord.Message]:
        """Fetch the messages of a thread that were sent since the stored history ends.

        At most `MAX_MESSAGES` are fetched, the newest ones. Messages newer than the turn's newest message are left out.
        The message on which the thread was started is included if the history does not cover it.
        """
        if not history.since and any(int(message.address["message"]) == thread for message in messages):
            return {}  # the thread was started on the prompt
        after = time_snowflake(history.since) if history.since else 0
        before = int(messages[-1].address["message"])
        channel = self._api.get_partial_channel(thread)
        page = await self._api.fetch_messages(channel, after=after, before=before, limit=MAX_MESSAGES)
        found = {
            (thread, message.id): message for message in map(_resolve_starter, page) if message.type in _CONTEXT_TYPES
        }
        if thread > after and not any(message.id == thread for message in found.values()):
            parent = int(messages[-1].place.rpartition(":")[2])
            starter = await self._fetch_message(parent, thread) or await self._fetch_message(thread, thread)
            found |= {} if starter is None else {(thread, starter.id): starter}
        return {key: message for key, message in found.items() if snowflake_time(message.id) > history.since}

    async def _fetch_message(self, channel: int, message: int) -> discord.Message | None:
        """Fetch a message; None if it does not exist or the bot may not read it."""
        try:
            return await self._api.fetch_message(channel, message)
        except RefusedError:
            return None


def _get_reply_reference(inbound: InboxMessage) -> MessageKey | None:
    """Return the channel id and message id of the message that a message replies to."""
    found = ((int(to["channel"]), int(to["message"])) for to in inbound.references if "message" in to)
    return next(found, None)


def _get_guild_id(inbound: InboxMessage) -> int | None:
    server = inbound.place.split(":")[1]
    return int(server) if server.isdecimal() else None


def _resolve_starter(message: discord.Message) -> discord.Message:
    """Return the message that a "thread starter" system message refers to.

    Such a system message is the first one in a thread that was started on a message. Any other message is returned as
    it is, and so is a system message that Discord sends without the other message.
    """
    if message.type is not discord.MessageType.thread_starter_message:
        return message
    resolved = message.reference.resolved if message.reference else None
    return resolved if isinstance(resolved, discord.Message) else message


def _to_context_message(message: discord.Message, content: MessageContent, names: MentionNames) -> ContextMessage:
    author = message.author
    return ContextMessage(
        author=f"{BOT_PREFIX}{author.id}" if author.bot else str(author.id),
        name=author.display_name,
        text=content.format_all(names),
        sent_at=content.sent_at,
        attachments=content.all_files,
        key=event_key(message.channel.id, message.id),
    )


def _to_forwarded_message(message: InboxMessage, part: Mapping[str, Any]) -> ContextMessage:
    return ContextMessage(
        author="somebody",
        name="somebody",
        text=str(part["text"]),
        sent_at=float(part["at"]),
        kind="forwarded",
        event_key=message.event_key,
        attachments=tuple(Attachment(**file) for file in part.get("files", ())),
        key=message.event_key,
    )
