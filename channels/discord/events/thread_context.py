"""What was said around a question: in its thread by others, in what it replies to, and in what it forwards.

Discord: a thread's history is told newest first. The message that a thread was begun from stands in the channel; the
one that opens a post of a forum, in the post; both have the thread's id. What was edited reads as it does now, and what
was deleted is not there.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import discord

from channels.base import ContextMessage, SurroundingMessages
from channels.discord.client.api import SPOKEN, DiscordApi
from channels.discord.events.content import names_in, passed_on, says_nothing, shown
from channels.discord.events.history import message_of, messages_in
from channels.discord.events.mentions import Names
from channels.discord.session_ids import sent_at, snowflake, thread_of
from channels.discord.text import headline
from channels.rate_limits.caller import RefusedError
from core.conversations.history_state import HistoryState
from core.identity import BOT_PREFIX
from core.inbox_message import InboxMessage, storable_text

#: Discord: the most messages that one call tells. And the most calls for one question.
PAGE = 100
MOST_PAGES = 3

#: What of the bot's own words is told where somebody replies to them: the history has the rest.
OWN = 200

_SPOKEN = (
    *SPOKEN,
    discord.MessageType.chat_input_command,
    discord.MessageType.context_menu_command,
    discord.MessageType.thread_starter_message,
)

Reference = tuple[int, int]


class Surroundings:
    """Looks it up."""

    def __init__(self, api: DiscordApi) -> None:
        self._api = api
        self._names = Names(api)

    async def look(self, messages: Sequence[InboxMessage], behind: HistoryState | None) -> SurroundingMessages:
        """See `Channel.around`.

        Raises:
            SurfaceError: Discord is out of reach, or does not let the bot read there.
        """
        thread, said = messages[-1].address["channel"], dict[Reference, discord.Message]()
        if behind is not None and (id_ := thread_of(messages[-1].session_id)) is not None:
            thread, said = id_, await self._thread(id_, messages, behind)
        wanted = {message.event_key: reference for message in messages if (reference := _quoted(message))}
        missing = set(wanted.values()) - said.keys()
        found = await asyncio.gather(*(self._message(*reference) for reference in missing))
        known = said | {reference: one for reference, one in zip(missing, found, strict=True) if one is not None}
        forwarded = [(message, part) for message in messages for part in message.brings if "text" in part]
        names = await self._names.of(_guild(messages[-1]), (one.content for one in known.values()))
        asked = {int(message.address["message"]) for message in messages}
        return SurroundingMessages(
            [
                *(
                    _said(one, names, opens=one.id == thread)
                    for one in sorted(said.values(), key=lambda one: one.id)
                    if (one.author != self._api.me or one.id == thread)
                    and one.id not in asked
                    and not says_nothing(one)
                ),
                *(
                    _said(known[reference], names, kind="quoted", to=key, me=self._api.me)
                    for key, reference in wanted.items()
                    if reference in known
                ),
                *(_forwarded(message, part) for message, part in forwarded),
            ],
            {one.author: str(one.address.get("speaker", "")) for one in behind.others} if behind is not None else {},
        )

    async def _thread(
        self, thread: int, messages: Sequence[InboxMessage], behind: HistoryState
    ) -> dict[Reference, discord.Message]:
        """What was said in a thread since the newest that the history holds, with what it is about if that is new."""
        if not behind.since and any(int(message.address["message"]) == thread for message in messages):
            return {}  # it was begun for the question
        after = snowflake(behind.since) if behind.since else 0
        before, said = int(messages[-1].address["message"]), list[discord.Message]()
        room = self._api.direct(thread)
        for _ in range(MOST_PAGES):
            page = await messages_in(self._api, room, after=after, before=before, limit=PAGE)
            said += page
            if len(page) < PAGE:
                break
            before = page[-1].id
        found = {(thread, one.id): one for one in map(_starter, said) if one.type in _SPOKEN}
        if thread > after and not any(one.id == thread for one in found.values()):
            parent = int(messages[-1].place.rpartition(":")[2])
            starter = await self._message(parent, thread) or await self._message(thread, thread)
            found |= {} if starter is None else {(thread, starter.id): starter}
        return {key: one for key, one in found.items() if sent_at(one.id) > behind.since}

    async def _message(self, channel: int, message: int) -> discord.Message | None:
        """A message, if it stands and the bot may read it."""
        try:
            return await message_of(self._api, channel, message)
        except RefusedError:
            return None


def _quoted(inbound: InboxMessage) -> Reference | None:
    """The message that one replies to."""
    found = ((int(to["channel"]), int(to["message"])) for to in inbound.brings if "message" in to)
    return next(found, None)


def _guild(inbound: InboxMessage) -> int | None:
    where = inbound.place.split(":")[1]
    return int(where) if where.isdecimal() else None


def _starter(message: discord.Message) -> discord.Message:
    """The message that a thread was begun from, for the one that stands for it in the thread."""
    if message.type is not discord.MessageType.thread_starter_message:
        return message
    resolved = message.reference.resolved if message.reference else None
    return resolved if isinstance(resolved, discord.Message) else message


def _said(
    message: discord.Message, names: Mapping[tuple[str, int], str], *, me: Any = None, **how: Any
) -> ContextMessage:
    parts = [shown(message, {**names, **names_in(message)}), *(part["text"] for part in passed_on(message))]
    text, author = storable_text("\n".join(filter(None, parts))), message.author
    return ContextMessage(
        author=f"{BOT_PREFIX}{author.id}" if author.bot else str(author.id),
        name=author.display_name,
        text=headline(text, OWN) if author == me else text,
        sent_at=sent_at(message.id),
        **how,
    )


def _forwarded(message: InboxMessage, part: Mapping[str, Any]) -> ContextMessage:
    return ContextMessage(
        author="somebody",
        name="somebody",
        text=str(part["text"]),
        sent_at=float(part["at"]),
        kind="forwarded",
        event_key=message.event_key,
    )
