"""Builder of the JSON objects of Discord's API.

Discord: docs.discord.com/developers/resources, and github.com/discord/discord-api-spec.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from time import time
from typing import Any
from urllib.parse import quote

from chatrig.discord.state.components import create_components, create_extra_fields
from chatrig.discord.state.guild import Guild
from chatrig.discord.state.integrations import Invite, Webhook
from chatrig.discord.state.messages import (
    REPLY,
    THREAD_STARTER,
    DiscordAttachment,
    DiscordMessage,
    DiscordUser,
    GuildChannel,
    InteractionMetadata,
)
from chatrig.discord.state.permissions import APPLICATION_FLAGS, DEFAULT_PERMISSIONS, PERMISSIONS, combine_bits
from chatrig.discord.state.roles import Role
from chatrig.discord.state.snowflakes import EPOCH_MILLISECONDS

Json = dict[str, Any]

CHANNEL_TYPES = {"text": 0, "dm": 1, "group": 3, "thread": 11, "forum": 15}
ANNOUNCEMENT, ANNOUNCEMENT_THREAD, PRIVATE_THREAD = 5, 10, 12
GUILD_NAME = "Simulator"
#: Discord: greatest reported number of a thread's members.
MAX_MEMBER_COUNT = 50


def format_timestamp(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def format_snowflake_time(snowflake: str) -> str:
    """Return the creation time that a snowflake encodes, in ISO format."""
    return datetime.fromtimestamp(((int(snowflake) >> 22) + EPOCH_MILLISECONDS) / 1000, UTC).isoformat()


def create_emoji(key: str) -> Json:
    """Return the JSON of a reaction's emoji.

    Args:
        key: a Unicode emoji, or `name:id` of the server's own emoji.
    """
    name, _, emoji_id = key.partition(":")
    return {"id": emoji_id or None, "name": name}


class DiscordPayloads:
    """Builder of Discord's JSON for the server, its users, channels and messages.

    Args:
        permissions: names of the bot's current permissions.
        privileged_intents: names of the enabled privileged intents.

    Attributes:
        base_url: the address of the simulator's HTTP server, without a path.
        file_url_seconds: lifetime of new file URLs; they have expired already if it is not positive.
    """

    def __init__(self, guild: Guild, permissions: set[str], privileged_intents: set[str]) -> None:
        self._guild = guild
        self._permissions = permissions
        self._privileged_intents = privileged_intents
        self.base_url = "http://127.0.0.1"
        self.file_url_seconds = 86_400

    # Users

    @staticmethod
    def user(user: DiscordUser) -> Json:
        return {
            "id": user.id,
            "username": user.name,
            "global_name": None if user.is_bot else user.display_name,
            "discriminator": "0",
            "avatar": None,
            "bot": user.is_bot,
            "public_flags": 0,
            "flags": 0,
            "primary_guild": None,
        }

    def bot_user(self) -> Json:
        return self.user(self._guild.bot) | {
            "verified": True,
            "mfa_enabled": False,
            "locale": "en-US",
            "email": None,
            "banner": None,
            "accent_color": None,
        }

    def member(self, user: DiscordUser, *, with_user: bool = True) -> Json:
        return {
            "roles": [self._guild.bot_role_id] if user == self._guild.bot else self._guild.roles.list_ids(user.id),
            "nick": self._guild.nicknames.get(user.id),
            "avatar": None,
            "banner": None,
            "joined_at": format_snowflake_time(user.id),
            "premium_since": None,
            "communication_disabled_until": None,
            "deaf": False,
            "mute": False,
            "pending": False,
            "flags": 0,
        } | ({"user": self.user(user)} if with_user else {})

    def application(self) -> Json:
        guild = self._guild
        flags = combine_bits(self._privileged_intents, APPLICATION_FLAGS)
        return {
            "id": guild.bot.id,
            "name": guild.bot.display_name,
            "icon": None,
            "description": "",
            "type": None,
            "summary": "",
            "bot": self.user(guild.bot),
            "bot_public": True,
            "bot_require_code_grant": False,
            "verify_key": "0" * 64,
            "flags": flags,
            "flags_new": str(flags),
            "redirect_uris": [],
            "interactions_endpoint_url": None,
            "role_connections_verification_url": None,
            "owner": self.user(guild.owner or guild.bot),
            "approximate_guild_count": 1,
            "approximate_user_install_count": 0,
            "approximate_user_authorization_count": 0,
            "explicit_content_filter": 0,
            "team": None,
            "eligible_oauth2_scopes": [],
        }

    # Channels and the server

    @staticmethod
    def channel_type(channel: GuildChannel) -> int:
        if channel.is_private:
            return PRIVATE_THREAD
        if channel.is_announcement:
            return ANNOUNCEMENT
        is_in_announcements = channel.parent is not None and channel.parent.is_announcement
        return ANNOUNCEMENT_THREAD if is_in_announcements else CHANNEL_TYPES[channel.kind]

    def channel(self, channel: GuildChannel) -> Json:
        if channel.kind == "forum":  # Discord: the newest post, which has the id of its first message
            ids = [post.id for post in self._guild.channels.values() if post.parent is channel]
        else:
            ids = [message.id for message in self._guild.list_messages(channel)]
        about: Json = {
            "id": channel.id,
            "type": self.channel_type(channel),
            "last_message_id": ids[-1] if ids else None,
            "flags": 0,
        }
        if channel.last_pinned_at is not None:
            about["last_pin_timestamp"] = format_timestamp(channel.last_pinned_at)
        if channel.dm_user is not None:
            return about | {"recipients": [self.user(channel.dm_user)]}
        if channel.kind == "group":
            people = [self._guild.users[user] for user in sorted(channel.members or ())]
            owner = {"name": channel.name, "icon": None, "owner_id": people[0].id}
            return about | owner | {"recipients": [self.user(user) for user in people]}
        guild_id = channel.foreign_guild_id or self._guild.id
        about |= {"guild_id": guild_id, "name": channel.name, "rate_limit_per_user": channel.slow_mode_seconds}
        if channel.parent is not None:
            return about | self._thread_fields(channel, channel.parent)
        about |= {
            "position": list(self._guild.channels).index(channel.id) if channel.id in self._guild.channels else 0,
            "permission_overwrites": self._overwrites(channel),
            "nsfw": channel.is_nsfw,
            "parent_id": channel.category_id,
            "topic": channel.topic,
        }
        if channel.kind == "forum":
            about |= {
                "available_tags": [
                    {"id": key, "name": name, "moderated": False, "emoji_id": None, "emoji_name": None}
                    for name, key in channel.tags.items()
                ],
                "default_reaction_emoji": None,
                "default_sort_order": None,
                "default_forum_layout": 0,
            }
        return about

    def _thread_fields(self, thread: GuildChannel, parent: GuildChannel) -> Json:
        number = sum(message.type != THREAD_STARTER for message in self._guild.list_messages(thread))
        bot = self._guild.bot.id
        joined = {"member": self.thread_member(thread, bot)} if bot in thread.thread_members else {}
        return {
            "parent_id": parent.id,
            "owner_id": thread.owner_id,
            "message_count": number,
            "total_message_sent": number,
            "member_count": min(len(thread.thread_members), MAX_MEMBER_COUNT),
            "thread_metadata": {
                "archived": thread.archived,
                "auto_archive_duration": thread.auto_archive_minutes,
                "archive_timestamp": format_timestamp(thread.archived_at),
                "create_timestamp": format_timestamp(thread.created_at),
                "locked": thread.locked,
            },
            **({"applied_tags": list(thread.applied_tags)} if parent.kind == "forum" else {}),
        } | joined

    @staticmethod
    def thread_member(thread: GuildChannel, user_id: str) -> Json:
        joined_at = format_timestamp(thread.thread_members[user_id])
        return {"id": thread.id, "user_id": user_id, "join_timestamp": joined_at, "flags": 0}

    def _overwrites(self, channel: GuildChannel) -> list[Json]:
        if channel.members is None:
            return []
        view = str(PERMISSIONS["view_channel"])
        hidden = {"id": self._guild.id, "type": 0, "allow": "0", "deny": view}
        return [hidden, *({"id": user, "type": 1, "allow": view, "deny": "0"} for user in sorted(channel.members))]

    def guild(self) -> Json:
        """Return the server's JSON as in REST responses."""
        guild = self._guild
        empty_fields = (
            "icon description home_header splash discovery_splash banner application_id afk_channel_id "
            "system_channel_id widget_channel_id max_presences vanity_url_code rules_channel_id "
            "safety_alerts_channel_id public_updates_channel_id incidents_data"
        )
        zero_fields = (
            "system_channel_flags verification_level default_message_notifications mfa_level explicit_content_filter "
            "premium_tier premium_subscription_count nsfw_level"
        )
        return {
            **dict.fromkeys(empty_fields.split()),
            **dict.fromkeys(zero_fields.split(), 0),
            "id": guild.id,
            "name": GUILD_NAME,
            "owner_id": (guild.owner or guild.bot).id,
            "region": "deprecated",
            "features": ["COMMUNITY"] if guild.locale != "en-US" else [],  # Discord: only such servers have a language
            "emojis": self.emojis(),
            "stickers": [self.sticker(key) for key in guild.integrations.stickers],
            "roles": [
                self._everyone_role(),
                self._bot_role(),
                *map(self._role_payload, self._guild.roles.by_name.values()),
            ],
            "afk_timeout": 300,
            "widget_enabled": False,
            "max_members": 500_000,
            "max_stage_video_channel_users": 50,
            "max_video_channel_users": 25,
            "preferred_locale": guild.locale,
            "premium_progress_bar_enabled": False,
            "nsfw": False,
        }

    def guild_counts(self) -> Json:
        """Return the JSON fields with the numbers of members and of online members.

        They are `approximate_member_count` and `approximate_presence_count`. All members count as online.
        """
        people = len(self._guild.list_members())
        return {"approximate_member_count": people, "approximate_presence_count": people}

    def bot_guilds(self, *, with_counts: bool = False) -> list[Json]:
        """Return the JSON of the bot's servers: the simulator's, or none without the bot.

        Args:
            with_counts: whether to include the numbers of members.
        """
        if not self._guild.has_bot:
            return []
        about = {name: value for name, value in self.guild().items() if name in ("id", "name", "icon", "banner")}
        if with_counts:
            about |= self.guild_counts()
        return [about | {"owner": False, "permissions": self.bot_permissions(), "features": []}]

    def _everyone_role(self) -> Json:
        return {
            "id": self._guild.id,
            "name": "@everyone",
            "permissions": self.bot_permissions(),
            "position": 0,
            "color": 0,
            "colors": {"primary_color": 0, "secondary_color": None, "tertiary_color": None},
            "hoist": False,
            "managed": False,
            "mentionable": False,
            "icon": None,
            "unicode_emoji": None,
            "flags": 0,
        }

    def _bot_role(self) -> Json:
        bot = self._guild.bot
        about = {"id": self._guild.bot_role_id, "name": bot.display_name, "position": 1, "managed": True}
        return self._everyone_role() | about | {"tags": {"bot_id": bot.id}}

    def _role_payload(self, role: Role) -> Json:
        return self._everyone_role() | {"id": role.id, "name": role.name, "position": 2, "permissions": "0"}

    def bot_permissions(self) -> str:
        """Return the bot's permission bits as a decimal number."""
        return str(combine_bits(self._permissions, PERMISSIONS))

    def user_permissions(self, user: DiscordUser) -> str:
        """Return a user's permission bits as a decimal number."""
        return str(combine_bits(DEFAULT_PERMISSIONS - self._guild.denied_permissions.get(user.id, set()), PERMISSIONS))

    def emojis(self) -> list[Json]:
        return [
            {
                **{"id": key, "name": name, "roles": [], "user": self.user(self._guild.bot)},
                **{"require_colons": True, "managed": False, "animated": False, "available": True},
            }
            for key, name in self._guild.integrations.emojis.items()
        ]

    def sticker(self, sticker_id: str) -> Json:
        name = self._guild.integrations.stickers[sticker_id]
        about = {"id": sticker_id, "name": name, "tags": name, "description": None, "guild_id": self._guild.id}
        return about | {"type": 2, "format_type": 1, "available": True}

    def webhook(self, webhook: Webhook, *, with_token: bool) -> Json:
        about = {"id": webhook.id, "type": 1, "name": webhook.name, "avatar": None, "channel_id": webhook.channel_id}
        about |= {"guild_id": self._guild.id, "application_id": self._guild.bot.id}
        if with_token:
            about |= {"token": webhook.token, "url": f"{self.base_url}/api/webhooks/{webhook.id}/{webhook.token}"}
        return about

    def invite(self, invite: Invite, *, with_counts: bool = False) -> Json:
        guild, channel = self.guild(), self._guild.channels[invite.channel_id]
        shown = (
            "id name splash banner description icon features verification_level vanity_url_code nsfw_level nsfw "
            "premium_subscription_count"
        )
        about: Json = {
            "type": 0,
            "code": invite.code,
            "inviter": self.user(self._guild.bot),
            "max_age": invite.max_age,
            "max_uses": invite.max_uses,
            "temporary": invite.temporary,
            "uses": 0,
            "created_at": format_timestamp(invite.created_at),
            "expires_at": format_timestamp(invite.expires_at),
            "guild": {name: guild[name] for name in shown.split()},
            "guild_id": self._guild.id,
            "channel": {"id": channel.id, "type": self.channel_type(channel), "name": channel.name},
        }
        return about | (self.guild_counts() if with_counts else {})

    def guild_create(self, *, all_members: bool) -> Json:
        """Return the server's JSON as in `GUILD_CREATE`.

        Args:
            all_members: whether to include all members, not only the bot.
        """
        guild = self._guild
        people = guild.list_members() if all_members else [guild.bot]
        public = [channel for channel in guild.channels.values() if channel.is_in_guild and not channel.is_thread]
        return self.guild() | {
            "joined_at": format_snowflake_time(guild.bot.id),
            "large": False,
            "unavailable": False,
            "member_count": len(guild.list_members()),
            "voice_states": [],
            "members": [self.member(user) for user in people],
            "channels": [self.channel(channel) for channel in public],
            "threads": [
                self.channel(thread) for thread in guild.list_active_threads() if thread.is_visible_to(guild.bot.id)
            ],
            "presences": [],
            "stage_instances": [],
            "guild_scheduled_events": [],
            "soundboard_sounds": [],
        }

    # Messages

    def message(self, message: DiscordMessage, *, content: bool = True, with_reference: bool = True) -> Json:
        """Return a message's JSON as in REST responses.

        Args:
            content: False for an app without the message content intent. Then the text is "", and files, embeds,
                components, stickers and the poll are left out.
            with_reference: whether to include the message to which this one replies.
        """
        message_content = message.content
        files = [self.attachment(message.channel, file) for file in message_content.attachments] if content else []
        payload: Json = {
            "id": message.id,
            "type": message.type,
            "channel_id": message.channel.id,
            "author": self.user(message.author),
            "content": message_content.text if content else "",
            "mentions": [self.user(self._guild.users[user]) for user in message.mentions.users],
            "mention_roles": list(message.mentions.roles),
            "mention_everyone": bool(message.mentions.everyone),
            "attachments": files,
            "embeds": [{"type": "rich", **embed} for embed in message_content.embeds] if content else [],
            "components": create_components(message_content.components, files) if content else [],
            "timestamp": format_timestamp(message.posted_at),
            "edited_timestamp": format_timestamp(message.edited_at),
            "flags": message.flags,
            "pinned": message.pinned_at is not None,
            "tts": False,
        }
        if content:
            payload |= create_extra_fields(message, self._guild)
        if message.forwarded_message is not None:
            payload |= self._forward_fields(message.forwarded_message, content=content)
        if message.nonce is not None:
            payload["nonce"] = message.nonce
        if message.reactions:
            payload["reactions"] = [self._reaction(emoji, users) for emoji, users in message.reactions.items()]
        if message.thread is not None:
            payload["thread"] = self.channel(message.thread)
        if message.webhook_id is not None:
            payload["webhook_id"] = message.webhook_id
        if message.interaction_metadata is not None:
            payload |= self._interaction_fields(message)
        if message.reply_to is not None:
            payload |= self._reply_fields(message, message.reply_to, content=content, with_reference=with_reference)
        return payload

    def _forward_fields(self, message: DiscordMessage, *, content: bool) -> Json:
        """Return the JSON fields of a message that forwards `message`.

        They are `message_reference`, and `message_snapshots` with a copy of `message` without its author.

        Args:
            content: False for an app without the message content intent.
        """
        place = {"guild_id": self._guild.id} if message.channel.is_in_guild else {}
        copied_fields = (
            "type",
            "content",
            "mentions",
            "mention_roles",
            "attachments",
            "embeds",
            "components",
            "timestamp",
            "sticker_items",
            "edited_timestamp",
            "flags",
        )
        payload = self.message(message, content=content, with_reference=False)
        snapshot = {name: payload[name] for name in copied_fields if name in payload}
        return {
            "message_reference": {"type": 1, "channel_id": message.channel.id, "message_id": message.id} | place,
            "message_snapshots": [{"message": snapshot}],
        }

    def attachment(self, channel: GuildChannel, file: DiscordAttachment) -> Json:
        """Return the JSON of a message's file, with a URL that expires."""
        now = int(time())  # Discord: an address is signed, and expires
        signed = f"ex={now + self.file_url_seconds:x}&is={now:x}&hm={file.id}"
        url = f"{self.base_url}/attachments/{channel.id}/{file.id}/{quote(file.name)}?{signed}&"
        about: Json = {
            "id": file.id,
            "filename": file.name,
            "size": len(file.data),
            "url": url,
            "proxy_url": url,
        }
        if file.content_type:
            about["content_type"] = file.content_type
        if file.description:
            about["description"] = file.description
        return about

    def _reply_fields(
        self, message: DiscordMessage, to: DiscordMessage, *, content: bool, with_reference: bool
    ) -> Json:
        place = {"guild_id": self._guild.id} if to.channel.is_in_guild else {}
        about: Json = {"message_reference": {"type": 0, "channel_id": to.channel.id, "message_id": to.id} | place}
        if with_reference and message.type in (REPLY, THREAD_STARTER):
            quoted = None if to.deleted else self.message(to, content=content, with_reference=False)
            about["referenced_message"] = quoted
        return about

    def _interaction_fields(self, message: DiscordMessage) -> Json:
        if message.interaction_metadata is None:
            return {}
        metadata = self._interaction_metadata(message.interaction_metadata, message.channel)
        return {"application_id": self._guild.bot.id, "interaction_metadata": metadata}

    def _interaction_metadata(self, metadata: InteractionMetadata, channel: GuildChannel) -> Json:
        payload: Json = {
            "id": metadata.interaction_id,
            "type": metadata.type,
            "user": self.user(metadata.user),
            "authorizing_integration_owners": self.integration_owners(metadata.user, channel),
        }
        if metadata.target_message is not None:
            payload["target_message_id"] = metadata.target_message.id
        if metadata.modal_opener is not None:
            payload["triggering_interaction_metadata"] = self._interaction_metadata(metadata.modal_opener, channel)
        elif metadata.component_message is not None:
            payload["interacted_message_id"] = metadata.component_message.id
        return payload

    def integration_owners(self, user: DiscordUser, channel: GuildChannel) -> Json:
        """Return the field `authorizing_integration_owners` of an interaction.

        Its key is "1" with the user's id in a channel without the bot, where the user has installed the app. Otherwise
        it is "0" with the server's id or, in a DM, with "0".
        """
        if not channel.can_have_bot:
            return {"1": user.id}
        return {"0": "0" if channel.is_dm else self._guild.id}

    def _reaction(self, emoji: str, users: Sequence[str]) -> Json:
        return {
            "emoji": create_emoji(emoji),
            "count": len(users),
            "count_details": {"normal": len(users), "burst": 0},
            "burst_colors": [],
            "me_burst": False,
            "me": self._guild.bot.id in users,
        }
