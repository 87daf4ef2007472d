"""Gateway events for changes in the server.

Discord: docs.discord.com/developers/events/gateway-events.
"""

from collections.abc import Sequence

from sandbox.discord.api.base import DiscordRestApi
from sandbox.discord.api.requests import ApiRequest, ApiResponse
from sandbox.discord.events.gateway import LocalGateway
from sandbox.discord.state.guild import DiscordMessage, DiscordUser, GuildChange, GuildChannel
from sandbox.discord.state.payloads import Json
from sandbox.discord.state.permissions import (
    DM_MESSAGES,
    DM_REACTIONS,
    GUILD_MEMBERS,
    GUILD_MESSAGES,
    GUILD_REACTIONS,
    GUILDS,
    MESSAGE_CONTENT,
)

#: Discord: limit of new sessions in a day.
MAX_SESSIONS_PER_DAY = 1000

_MESSAGE_EVENTS = {"posted": "MESSAGE_CREATE", "updated": "MESSAGE_UPDATE"}
_REACTION_EVENTS = {"reaction_added": "MESSAGE_REACTION_ADD", "reaction_removed": "MESSAGE_REACTION_REMOVE"}


class DiscordEventDispatcher:
    """Sender of the gateway events for changes that the bot can see.

    Also handles the routes that give clients the gateway's address.
    """

    def __init__(self, api: DiscordRestApi, gateway: LocalGateway) -> None:
        self._api = api
        self._guild = api.guild
        self._payloads = api.payloads
        self._gateway = gateway
        api.add_route("GET /gateway", lambda _: ApiResponse({"url": gateway.url}))
        api.add_route("GET /gateway/bot", self._get_gateway_bot)

    def _get_gateway_bot(self, request: ApiRequest) -> ApiResponse:
        limit = {
            "total": MAX_SESSIONS_PER_DAY,
            "remaining": max(0, MAX_SESSIONS_PER_DAY - len(self._gateway.sessions)),
            "reset_after": 86_400_000,
            "max_concurrency": self._gateway.max_concurrency,
        }
        return ApiResponse({"url": self._gateway.url, "shards": self._gateway.shards, "session_start_limit": limit})

    def dispatch_change(self, change: GuildChange) -> None:
        """Send the event of a message's change, unless the message is ephemeral."""
        message = change.message
        if message.ephemeral_to is not None or not self._is_visible(message.channel):
            return
        place = self._guild_fields(message.channel)
        if name := _MESSAGE_EVENTS.get(change.kind):
            self._gateway.dispatch(
                name,
                DM_MESSAGES if message.channel.is_dm else GUILD_MESSAGES,
                lambda session: self._message_payload(message, content=bool(session.intents & MESSAGE_CONTENT)) | place,
                guild_id=place.get("guild_id"),
            )
        elif change.kind == "deleted":
            deleted = {"id": message.id, "channel_id": message.channel.id} | place
            intent = DM_MESSAGES if message.channel.is_dm else GUILD_MESSAGES
            self._gateway.dispatch("MESSAGE_DELETE", intent, lambda _: deleted, guild_id=place.get("guild_id"))
        elif name := _REACTION_EVENTS.get(change.kind):
            self._dispatch_reaction(name, change, place)

    def dispatch_bulk_delete(self, messages: Sequence[DiscordMessage]) -> None:
        """Send `MESSAGE_DELETE_BULK` for messages of one channel."""
        channel = messages[0].channel
        if self._is_visible(channel):
            about = {"ids": [message.id for message in messages], "channel_id": channel.id} | self._guild_fields(
                channel
            )
            self._dispatch_to_guild("MESSAGE_DELETE_BULK", about, GUILD_MESSAGES)

    def dispatch_thread_create(self, thread: GuildChannel) -> None:
        if self._is_visible(thread):
            self._dispatch_to_guild("THREAD_CREATE", self._payloads.channel(thread) | {"newly_created": True})

    def dispatch_thread_update(self, thread: GuildChannel) -> None:
        if self._is_visible(thread):
            self._dispatch_to_guild("THREAD_UPDATE", self._payloads.channel(thread))

    def dispatch_channel_create(self, channel: GuildChannel) -> None:
        self._dispatch_to_guild("CHANNEL_CREATE", self._payloads.channel(channel))

    def dispatch_channel_delete(self, channel: GuildChannel) -> None:
        """Send `CHANNEL_DELETE`, or `THREAD_DELETE` for a thread."""
        if not self._is_visible(channel):
            return
        about = self._payloads.channel(channel)
        if channel.is_thread:
            about = {name: about[name] for name in ("id", "guild_id", "parent_id", "type")}
        self._dispatch_to_guild("THREAD_DELETE" if channel.is_thread else "CHANNEL_DELETE", about)

    def dispatch_member_add(self, user: DiscordUser) -> None:
        about = self._payloads.member(user) | {"guild_id": self._guild.id}
        self._gateway.dispatch("GUILD_MEMBER_ADD", GUILD_MEMBERS, lambda _: about, guild_id=self._guild.id)

    def _dispatch_to_guild(self, name: str, about: Json, intent: int = GUILDS) -> None:
        self._gateway.dispatch(name, intent, lambda _: about, guild_id=self._guild.id)

    def _is_visible(self, channel: GuildChannel) -> bool:
        """Return whether the bot can see the channel."""
        return channel.is_visible_to(self._guild.bot.id) and (channel.is_dm or "view_channel" in self._api.permissions)

    def _guild_fields(self, channel: GuildChannel) -> Json:
        return {} if channel.is_dm else {"guild_id": self._guild.id}

    def _message_payload(self, message: DiscordMessage, *, content: bool) -> Json:
        """Return a message as in events, with the members of its author and the mentioned users.

        Args:
            content: whether the session has the message content intent.
        """
        about = self._payloads.message(message, content=content or self._api.is_readable(message))
        # Discord: discord-api-docs #8311; discord.js needs it to create the channel of a first DM.
        about["channel_type"] = self._payloads.channel_type(message.channel)
        if message.channel.is_dm:
            return about
        members = {user.id: self._payloads.member(user, with_user=False) for user in self._guild.users.values()}
        about["mentions"] = [user | {"member": members[user["id"]]} for user in about["mentions"]]
        return about | ({} if message.webhook_id else {"member": members[message.author.id]})

    def _dispatch_reaction(self, name: str, change: GuildChange, place: Json) -> None:
        message, user = change.message, self._guild.users[change.user_id or ""]
        about: Json = {
            "user_id": user.id,
            "channel_id": message.channel.id,
            "message_id": message.id,
            "emoji": {"id": None, "name": change.emoji},
            "burst": False,
            "type": 0,
        } | place
        if change.kind == "reaction_added":
            about["message_author_id"] = message.author.id
            if place:
                about["member"] = self._payloads.member(user)
        intent = DM_REACTIONS if message.channel.is_dm else GUILD_REACTIONS
        self._gateway.dispatch(name, intent, lambda _: about, guild_id=place.get("guild_id"))
