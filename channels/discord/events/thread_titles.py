"""Titles of forum posts and names of threads, which are part of the first question there.

The name of a thread that the bot started is left out, and so is one that repeats the message it was started on.
"""

from collections.abc import Sequence
from typing import Any

import discord

from channels.base import ContextMessage
from channels.discord.session_ids import snowflake_time, thread_id_of
from core.messages.identity import clean_name
from core.messages.inbox_message import InboxMessage, storable_text

#: Characters of a title. Discord: the limit of a thread's name.
MAX_TITLE_LENGTH = 100

#: Authors of titles in the prompt.
POST, THREAD = "Forum post", "Thread"


def parse_thread(channel: Any, bot: discord.abc.User) -> list[dict[str, Any]]:
    """Return the title of a thread or post, for `InboxMessage.references`; empty for other channels.

    It is empty for a thread that the bot started, too. A post whose forum discord.py has not cached, such as an old
    post in the backfill, looks like a thread.
    """
    if not isinstance(channel, discord.Thread) or channel.owner_id == bot.id:
        return []
    is_post = isinstance(channel.parent, discord.ForumChannel)
    tags = [clean_name(storable_text(tag.name)) for tag in channel.applied_tags]
    title = clean_name(storable_text(channel.name), MAX_TITLE_LENGTH)
    return [{"title": title, "tags": tags, "is_post": is_post}]


def get_title_as_text(inbound: InboxMessage) -> str:
    """Return the title of a post if a message is its first one; else an empty text."""
    is_first = str(thread_id_of(inbound.session_id)) == inbound.address["message"]
    return next((str(part["title"]) for part in inbound.references if is_first and part.get("is_post")), "")


def to_context_message(messages: Sequence[InboxMessage], thread: int, first_text: str) -> ContextMessage | None:
    """Return the title of a turn's thread or post as a context message; None if it adds nothing."""
    part = next((part for part in messages[-1].references if "title" in part), None)
    if part is None or not (part["is_post"] or not _is_named_after(part["title"], first_text)):
        return None
    tags = f"\n[tags: {', '.join(part['tags'])}]" if part["tags"] else ""
    return ContextMessage(
        author="thread",
        name=POST if part["is_post"] else THREAD,
        text=f"{part['title']}{tags}",
        sent_at=snowflake_time(thread),
        kind="about",
        event_key=messages[0].event_key,
    )


def _is_named_after(name: str, text: str) -> bool:
    """Return whether a name is the beginning of a text, as for a thread that Discord named."""
    beginning, whole = (" ".join(part.split()).casefold() for part in (name.rstrip("….").rstrip(), text))
    return whole.startswith(beginning)
