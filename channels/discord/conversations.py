"""Conversations that the bot begins on Discord: their messages, and the people for whom they begin."""

from dataclasses import replace
from typing import Any

from channels.base import Priority
from channels.discord.access import DiscordIdentityResolver
from channels.discord.client.api import SentMessage
from channels.discord.platform import DiscordPlatform
from channels.discord.session_ids import place_id, session_id, time_snowflake
from channels.turns.placing import LOOKUP_MARGIN_SECONDS
from core.messages.inbox_message import InboxMessage
from core.messages.trigger import DIRECT


class DiscordConversations:
    """People and places of Discord: see `channels.turns.placing.Conversations`."""

    #: Discord: Unknown Channel, Unknown Guild, Missing Access.
    closed_place_codes = frozenset({"10003", "10004", "50001"})

    def __init__(self, platform: DiscordPlatform, identities: DiscordIdentityResolver) -> None:
        self._platform = platform
        self._api = platform.api
        self._identities = identities

    async def resolve(self, message: InboxMessage) -> InboxMessage | None:
        trigger = message.trigger
        assert trigger is not None, "no person wrote it"
        if trigger.target:
            message = await self._move(message, trigger.target)
        stored_at = time_snowflake(message.sent_at - LOOKUP_MARGIN_SECONDS)
        message = replace(message, address={**message.address, "message": str(stored_at)})
        if message.is_bot:
            return message
        guild = message.location.workspace
        actor = await self._identities.resolve_member(int(guild) if guild else None, int(message.author))
        return None if actor is None else replace(message, actor=actor)

    async def begin(self, message: InboxMessage, header: str, *, may_exist: bool) -> InboxMessage:
        channel = int(message.address["channel"])
        person = 0 if message.is_bot else int(message.author)
        text = f"<@{person}> {header}" if person else header

        async def find_posted() -> SentMessage | None:
            own = await self._api.fetch_own_messages(channel, int(message.address["message"]))
            return next((SentMessage(each.id, each.content) for each in own if each.content == text), None)

        posted = await find_posted() if may_exist else None
        posted = posted or await self._api.post_message(
            channel,
            text,
            reply_to=None,
            nonce_key=message.event_key,
            priority=Priority.BACKFILL,
            has_slot=False,
            find_posted=find_posted,
            mentioned_user=person,
        )
        assert posted is not None, "only a stream update may be dropped"
        return replace(message, address={**message.address, "message": str(posted.id), "is_bot_message": True})

    async def _move(self, message: InboxMessage, target: str) -> InboxMessage:
        """Return an entry at another channel, or at the direct messages with its author."""
        if target == DIRECT:
            channel: Any = await self._api.open_dm(int(message.author))
            guild = None
        else:
            channel = await self._api.fetch_channel(int(target))
            guild = channel.guild.id
        address = {
            key: value for key, value in message.address.items() if key not in ("guild", "root", "application", "token")
        }
        address["channel"] = str(channel.id)
        if guild is not None:
            address["guild"] = str(guild)
        author = 0 if message.is_bot else int(message.author)
        return replace(
            message,
            address=address,
            location=await self._identities.resolve_location(guild, channel),
            place=place_id(guild, channel),
            session_id=session_id(guild, channel, author, self._platform.settings.sessions),
        )
