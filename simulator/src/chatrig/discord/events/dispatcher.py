"""Dispatcher of gateway events for changes in the server.

Discord: docs.discord.com/developers/events/gateway-events.
"""

from collections.abc import Mapping
from time import time

from chatrig.discord.api.base import DiscordRestApi
from chatrig.discord.api.requests import ApiRequest, ApiResponse
from chatrig.discord.events.gateway import GatewayServer
from chatrig.discord.state.messages import DiscordMessage, GuildChange, GuildChannel, GuildEvent, GuildEventName
from chatrig.discord.state.payloads import MAX_MEMBER_COUNT, Json, create_emoji, format_timestamp
from chatrig.discord.state.permissions import (
    DM_MESSAGES,
    DM_POLLS,
    DM_REACTIONS,
    DM_TYPING,
    GUILD_EXPRESSIONS,
    GUILD_INVITES,
    GUILD_MEMBERS,
    GUILD_MESSAGES,
    GUILD_POLLS,
    GUILD_REACTIONS,
    GUILD_TYPING,
    GUILD_WEBHOOKS,
    GUILDS,
    MESSAGE_CONTENT,
)

#: Discord: limit of new sessions in a day.
MAX_SESSIONS_PER_DAY = 1000

_MESSAGE_EVENTS = {"posted": "MESSAGE_CREATE", "updated": "MESSAGE_UPDATE"}
#: Intents of an event in the server and in direct messages.
#: Discord: docs.discord.com/developers/events/gateway, "List of Intents".
_INTENTS: Mapping[GuildEventName, tuple[int, int]] = {
    "CHANNEL_CREATE": (GUILDS, 0),
    "CHANNEL_DELETE": (GUILDS, 0),
    "CHANNEL_PINS_UPDATE": (GUILDS, DM_MESSAGES),
    "CHANNEL_UPDATE": (GUILDS, 0),
    "GUILD_EMOJIS_UPDATE": (GUILD_EXPRESSIONS, 0),
    "GUILD_MEMBER_ADD": (GUILD_MEMBERS, 0),
    "GUILD_MEMBER_REMOVE": (GUILD_MEMBERS, 0),
    "GUILD_MEMBER_UPDATE": (GUILD_MEMBERS, 0),
    "INVITE_CREATE": (GUILD_INVITES, 0),
    "INVITE_DELETE": (GUILD_INVITES, 0),
    "MESSAGE_DELETE_BULK": (GUILD_MESSAGES, DM_MESSAGES),
    "MESSAGE_POLL_VOTE_ADD": (GUILD_POLLS, DM_POLLS),
    "MESSAGE_POLL_VOTE_REMOVE": (GUILD_POLLS, DM_POLLS),
    "MESSAGE_REACTION_REMOVE_ALL": (GUILD_REACTIONS, DM_REACTIONS),
    "MESSAGE_REACTION_REMOVE_EMOJI": (GUILD_REACTIONS, DM_REACTIONS),
    "THREAD_CREATE": (GUILDS, 0),
    "THREAD_DELETE": (GUILDS, 0),
    "THREAD_MEMBERS_UPDATE": (GUILD_MEMBERS, 0),
    "THREAD_MEMBER_UPDATE": (GUILDS, 0),
    "THREAD_UPDATE": (GUILDS, 0),
    "TYPING_START": (GUILD_TYPING, DM_TYPING),
    "WEBHOOKS_UPDATE": (GUILD_WEBHOOKS, 0),
}
_REACTION_EVENTS = {"reaction_added": "MESSAGE_REACTION_ADD", "reaction_removed": "MESSAGE_REACTION_REMOVE"}
#: Events that changes of the server cause.
DISPATCHED_EVENTS = frozenset({*_INTENTS, *_MESSAGE_EVENTS.values(), "MESSAGE_DELETE", *_REACTION_EVENTS.values()})


class DiscordEventDispatcher:
    """Sender of the gateway events for changes that the bot can see.

    It also serves the REST routes `GET /gateway` and `GET /gateway/bot`, which return the gateway's address.
    """

    def __init__(self, api: DiscordRestApi, gateway: GatewayServer) -> None:
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
        """Send the gateway event for a message's change to the sessions with its intent.

        Nothing is sent for an ephemeral message, or one in a channel that the bot cannot see. Events of the server are
        lost during its outage: see `GatewayServer.dispatch`.
        """
        message = change.message
        if message.ephemeral_to is not None or not self._api.can_view(message.channel):
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

    def dispatch_event(self, event: GuildEvent) -> None:
        """Send a gateway event to the sessions with its intent.

        Nothing is sent about a channel that the bot cannot see, except its creation, change and deletion. A removed bot
        receives no event of the server. Events of the server are lost during its outage: see
        `GatewayServer.dispatch`.
        """
        channel = event.channel
        if not self._guild.has_bot and (channel is None or channel.is_in_guild):
            return
        # Discord: bots know all channels of a server, also those that they cannot see.
        is_known = event.name in ("CHANNEL_CREATE", "CHANNEL_UPDATE", "CHANNEL_DELETE")
        if channel is not None and not is_known and not self._api.can_view(channel):
            return
        in_guild, in_dm = _INTENTS[event.name]
        intent = in_dm if channel is not None and channel.is_dm else in_guild
        if event.name == "THREAD_MEMBERS_UPDATE" and self._guild.bot.id in (*event.added_ids, *event.removed_ids):
            intent |= GUILDS
        data = self._event_payload(event)
        guild_id = None if channel is not None and channel.is_dm else self._guild.id
        self._gateway.dispatch(event.name, intent, lambda _: data, guild_id=guild_id)

    def _event_payload(self, event: GuildEvent) -> Json:
        payloads, channel, user = self._payloads, event.channel, event.user
        if user is not None and event.name.startswith("GUILD_MEMBER"):
            member = {"user": payloads.user(user)} if event.name == "GUILD_MEMBER_REMOVE" else payloads.member(user)
            return member | {"guild_id": self._guild.id}
        if channel is None:
            return {"guild_id": self._guild.id, "emojis": payloads.emojis()}
        if event.name.startswith(("CHANNEL", "THREAD")) and event.name != "CHANNEL_PINS_UPDATE":
            return self._channel_payload(event, channel)
        about: Json = {"channel_id": channel.id} | self._guild_fields(channel)
        match event.name:
            case "CHANNEL_PINS_UPDATE":
                about["last_pin_timestamp"] = format_timestamp(channel.last_pinned_at)
            case "MESSAGE_DELETE_BULK":
                about["ids"] = [message.id for message in event.messages]
            case "MESSAGE_REACTION_REMOVE_ALL" | "MESSAGE_REACTION_REMOVE_EMOJI":
                about["message_id"] = event.messages[0].id
                about |= {"emoji": create_emoji(event.subject)} if event.subject else {}
            case "MESSAGE_POLL_VOTE_ADD" | "MESSAGE_POLL_VOTE_REMOVE":
                about |= {"message_id": event.messages[0].id, "answer_id": int(event.subject)}
            case "INVITE_CREATE":
                invite = payloads.invite(self._guild.integrations.invites[event.subject])
                about |= {name: value for name, value in invite.items() if name not in ("channel", "guild", "type")}
            case "INVITE_DELETE":
                about["code"] = event.subject
            case "TYPING_START" if user is not None:
                about |= {"timestamp": int(time())}
                about |= {} if channel.is_dm else {"member": payloads.member(user)}
        return about | ({"user_id": user.id} if user is not None else {})

    def _channel_payload(self, event: GuildEvent, channel: GuildChannel) -> Json:
        about = self._payloads.channel(channel)
        if event.name == "THREAD_DELETE":
            return {name: about[name] for name in ("id", "guild_id", "parent_id", "type")}
        if event.name == "THREAD_CREATE" and event.user is None:
            return about | {"newly_created": True}
        if event.name == "THREAD_MEMBER_UPDATE":
            return self._payloads.thread_member(channel, self._guild.bot.id) | {"guild_id": self._guild.id}
        if event.name != "THREAD_MEMBERS_UPDATE":
            return about
        added = [
            self._payloads.thread_member(channel, id_)
            | {"member": self._payloads.member(self._guild.users[id_]), "presence": None}
            for id_ in event.added_ids
        ]
        number = len(channel.thread_members.keys() - set(event.removed_ids))
        about = {"id": channel.id, "guild_id": self._guild.id, "member_count": min(number, MAX_MEMBER_COUNT)}
        return about | {"added_members": added, "removed_member_ids": list(event.removed_ids)}

    def _guild_fields(self, channel: GuildChannel) -> Json:
        return {} if channel.is_dm else {"guild_id": self._guild.id}

    def _message_payload(self, message: DiscordMessage, *, content: bool) -> Json:
        """Return a message's JSON as in gateway events.

        Outside DMs, the author and the mentioned users have their server members.

        Args:
            content: whether the session has the message content intent. Without it, the content is left out unless the
                bot may read it anyway.
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
            "emoji": create_emoji(change.emoji or ""),
            "burst": False,
            "type": 0,
        } | place
        if change.kind == "reaction_added":
            about["message_author_id"] = message.author.id
            if place:
                about["member"] = self._payloads.member(user)
        intent = DM_REACTIONS if message.channel.is_dm else GUILD_REACTIONS
        self._gateway.dispatch(name, intent, lambda _: about, guild_id=place.get("guild_id"))
