"""REST routes of messages: post, edit, delete, read, reactions and the typing indicator.

Discord: docs.discord.com/developers/resources/message.
"""

from collections.abc import Mapping
from dataclasses import replace
from time import monotonic
from typing import Any

from sandbox.discord.api.base import DiscordRestApi
from sandbox.discord.api.component_rules import IS_COMPONENTS_V2
from sandbox.discord.api.message_content import parse_content, parse_nonce
from sandbox.discord.api.requests import (
    CANNOT_EDIT_MESSAGE,
    MISSING_PERMISSIONS,
    NO_CONTENT,
    NON_TEXT_CHANNEL,
    REPLY_REQUIRES_HISTORY,
    THREAD_ARCHIVED,
    THREAD_LOCKED,
    UNKNOWN_EMOJI,
    ApiRequest,
    ApiResponse,
    DiscordError,
    create_form_error,
)
from sandbox.discord.state.guild import DEFAULT, REPLY, DiscordContent, DiscordMessage, GuildChannel
from sandbox.discord.state.payloads import Json

#: Discord: a nonce is checked for "a few minutes".
NONCE_LIFETIME_SECONDS = 180.0
MAX_HISTORY_MESSAGES = 100
SUPPRESS_EMBEDS, SUPPRESS_NOTIFICATIONS = 1 << 2, 1 << 12
#: Flags that a bot may set.
SETTABLE_FLAGS = SUPPRESS_EMBEDS | SUPPRESS_NOTIFICATIONS | IS_COMPONENTS_V2


class MessageRoutes:
    """Routes of messages, and the posting of a message as the bot.

    Args:
        speed: divides the lifetime of nonces.
    """

    def __init__(self, api: DiscordRestApi, speed: float) -> None:
        self._api = api
        self._guild = api.guild
        self._nonce_lifetime_seconds = NONCE_LIFETIME_SECONDS / speed
        self._nonces: dict[tuple[str, str], tuple[float, DiscordMessage]] = {}
        messages = "/channels/{channel}/messages"
        one = messages + "/{message}"
        api.add_route(f"POST {messages}", self._create_message)
        api.add_route(f"GET {messages}", self._list_messages)
        api.add_route(f"GET {one}", self._get_message)
        api.add_route(f"PATCH {one}", self._edit_message)
        api.add_route(f"DELETE {one}", self._delete_message)
        api.add_route(f"PUT {one}/reactions/{{emoji}}/@me", self._add_reaction)
        api.add_route(f"DELETE {one}/reactions/{{emoji}}/@me", self._remove_reaction)
        api.add_route("POST /channels/{channel}/typing", self._start_typing)

    def _create_message(self, request: ApiRequest) -> ApiResponse:
        channel, form = self._get_writable_channel(request), request.form
        nonce = parse_nonce(form)
        if form.get("enforce_nonce") and nonce is not None and (existing := self._find_by_nonce(channel, nonce)):
            return ApiResponse(self._message_payload(existing))
        message = self.post_as_bot(request, channel, form, nonce=nonce)
        if nonce is not None:
            self._nonces[channel.id, str(nonce)] = (monotonic(), message)
        return ApiResponse(self._message_payload(message))

    def post_as_bot(
        self, request: ApiRequest, channel: GuildChannel, form: Mapping[str, Any], **details: Any
    ) -> DiscordMessage:
        """Post the message in a form as the bot.

        Args:
            details: further fields of `DiscordMessage`.

        Raises:
            DiscordError: the form is invalid, or the bot lacks a permission.
        """
        content = self.apply_permissions(parse_content(request.body, form), channel)
        if reference := form.get("message_reference"):
            details["reply_to"] = reply_to = self._find_replied_message(channel, reference)
            details["type"] = REPLY if reply_to else DEFAULT
        flags = int(form.get("flags") or 0) & SETTABLE_FLAGS
        return self._guild.post_message(channel, self._guild.bot, content, flags=flags, **details)

    def apply_permissions(self, content: DiscordContent, channel: GuildChannel) -> DiscordContent:
        """Return the content with the effects of the bot's permissions in the channel.

        Without the permission to mention everyone, `@everyone` pings nobody.

        Raises:
            DiscordError: 50013, the content has files and the bot may send none.
        """
        if not channel.is_in_guild:
            return content
        if content.attachments:
            self._api.check_permissions("attach_files")
        if "mention_everyone" in self._api.permissions:
            return content
        allowed = content.allowed_mentions or {"parse": ["users", "roles"], "replied_user": True}
        parse = [kind for kind in allowed.get("parse") or () if kind != "everyone"]
        return replace(content, allowed_mentions={**allowed, "parse": parse})

    def _get_writable_channel(self, request: ApiRequest) -> GuildChannel:
        """Return the channel in the path, if the bot can post there.

        Raises:
            DiscordError: it is unknown, a forum or a locked thread, or the bot lacks a permission.
        """
        channel = self._api.get_channel(request)
        if channel.kind == "forum":
            raise DiscordError(400, NON_TEXT_CHANNEL, "Cannot send messages in a non-text channel")
        if not channel.is_dm:
            self._api.check_permissions("send_messages_in_threads" if channel.is_thread else "send_messages")
        if channel.locked:
            raise DiscordError(400, THREAD_LOCKED, "This thread is locked")
        return channel

    def _find_replied_message(self, channel: GuildChannel, reference: Mapping[str, Any]) -> DiscordMessage | None:
        """Return the message of a `message_reference`; None for a deleted one if the request accepts that.

        Raises:
            DiscordError: 160002 without the permission, or 50035 for an unknown message.
        """
        if not channel.is_dm and "read_message_history" not in self._api.permissions:
            raise DiscordError(400, REPLY_REQUIRES_HISTORY, "Cannot reply without permission to read message history")
        message = self._guild.find_message(channel, str(reference.get("message_id")))
        if message is None and reference.get("fail_if_not_exists", True):
            raise create_form_error("message_reference", "REPLIES_UNKNOWN_MESSAGE", "Unknown message")
        return message

    def _find_by_nonce(self, channel: GuildChannel, nonce: str | int) -> DiscordMessage | None:
        """Return the message that was posted with this nonce within its lifetime; None without one."""
        posted_at, message = self._nonces.get((channel.id, str(nonce)), (0.0, None))
        return message if monotonic() - posted_at < self._nonce_lifetime_seconds else None

    def _edit_message(self, request: ApiRequest) -> ApiResponse:
        channel = self._api.get_channel(request)
        message = self._api.get_message(request, channel)
        if message.author != self._guild.bot:
            raise DiscordError(403, CANNOT_EDIT_MESSAGE, "Cannot edit a message authored by another user")
        if channel.archived:
            raise DiscordError(400, THREAD_ARCHIVED, "Thread is archived")
        content = parse_content(request.body, request.form, message.content, flags=message.flags)
        if "flags" in request.form:
            # Discord: an edit can only set these flags, and never removes IS_COMPONENTS_V2.
            flags = int(request.form["flags"] or 0)
            message.flags = message.flags & ~SUPPRESS_EMBEDS | flags & (SUPPRESS_EMBEDS | IS_COMPONENTS_V2)
        self._guild.update_message(message, self.apply_permissions(content, channel))
        return ApiResponse(self._message_payload(message))

    def _delete_message(self, request: ApiRequest) -> ApiResponse:
        message = self._api.get_message(request, self._api.get_channel(request))
        if message.author != self._guild.bot:
            raise DiscordError(403, MISSING_PERMISSIONS, "Missing Permissions")
        self._guild.delete_message(message)
        return NO_CONTENT

    def _get_message(self, request: ApiRequest) -> ApiResponse:
        channel = self._api.get_channel(request, "read_message_history")
        return ApiResponse(self._message_payload(self._api.get_message(request, channel)))

    def _list_messages(self, request: ApiRequest) -> ApiResponse:
        """Return messages, newest first; of `before`, `after` and `around`, one may be given."""
        channel, query = self._api.get_channel(request), request.query
        limit = query.get("limit", "50")
        if not limit.isdecimal() or not 1 <= int(limit) <= MAX_HISTORY_MESSAGES:
            raise create_form_error(
                "limit", "NUMBER_TYPE_MAX", f"int value should be less than or equal to {MAX_HISTORY_MESSAGES}."
            )
        limit_count = int(limit)
        if not channel.is_dm and "read_message_history" not in self._api.permissions:
            return ApiResponse([])
        messages = [m for m in self._guild.list_messages(channel) if self._guild.find_message(channel, m.id)]
        if after := query.get("after"):
            messages = [m for m in messages if int(m.id) > int(after)][:limit_count]
        elif before := query.get("before"):
            messages = [m for m in messages if int(m.id) < int(before)][-limit_count:]
        elif around := query.get("around"):
            # Half of them on each side: an even limit gives one more (discord.py, `abc.Messageable.history`).
            place, half = sum(int(m.id) < int(around) for m in messages), limit_count // 2
            messages = messages[max(0, place - half) : place + half + 1]
        else:
            messages = messages[-limit_count:]
        return ApiResponse([self._message_payload(message) for message in reversed(messages)])

    def _message_payload(self, message: DiscordMessage) -> Json:
        content = "message_content" in self._api.privileged_intents or self._api.is_readable(message)
        return self._api.payloads.message(message, content=content)

    def _add_reaction(self, request: ApiRequest) -> ApiResponse:
        channel = self._api.get_channel(request, "read_message_history", "add_reactions")
        message = self._api.get_message(request, channel)
        self._guild.add_reaction(message, self._guild.bot, _parse_emoji(request))
        return NO_CONTENT

    def _remove_reaction(self, request: ApiRequest) -> ApiResponse:
        message = self._api.get_message(request, self._api.get_channel(request))
        self._guild.remove_reaction(message, self._guild.bot, _parse_emoji(request))
        return NO_CONTENT

    def _start_typing(self, request: ApiRequest) -> ApiResponse:
        self._get_writable_channel(request)
        return NO_CONTENT


def _parse_emoji(request: ApiRequest) -> str:
    emoji = request.path_ids["emoji"]
    if emoji.isascii():
        raise DiscordError(400, UNKNOWN_EMOJI, "Unknown Emoji")
    return emoji
