"""REST routes of messages: post, edit, delete, read, pin, publish, and polls.

Discord: docs.discord.com/developers/resources/message.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

from chatrig.discord.api.base import DiscordRestApi
from chatrig.discord.api.component_rules import IS_COMPONENTS_V2
from chatrig.discord.api.message_content import parse_content, parse_nonce
from chatrig.discord.api.requests import (
    ALREADY_CROSSPOSTED,
    CANNOT_EDIT_MESSAGE,
    DM_CHANNEL,
    INVALID_CHANNEL_TYPE,
    INVALID_STICKER,
    NO_CONTENT,
    NOT_A_POLL,
    POLL_NOT_EDITABLE,
    REPLY_REQUIRES_HISTORY,
    SYSTEM_MESSAGE,
    THREAD_ARCHIVED,
    TOO_MANY_PINS,
    TOO_OLD_TO_DELETE,
    UNKNOWN_MESSAGE,
    UNREADABLE_FORWARD,
    ApiRequest,
    ApiResponse,
    DiscordError,
    create_form_error,
    parse_limit,
    parse_page,
    parse_snowflake,
    parse_timestamp,
)
from chatrig.discord.state.messages import (
    CHAT_COMMAND,
    CROSSPOSTED,
    DEFAULT,
    MENU_COMMAND,
    REPLY,
    DiscordContent,
    DiscordMessage,
    GuildChannel,
)
from chatrig.discord.state.payloads import Json, format_timestamp
from chatrig.discord.state.snowflakes import to_snowflake

#: Discord: a nonce is checked for "a few minutes".
NONCE_LIFETIME_SECONDS = 180.0
MAX_HISTORY_MESSAGES = 100
MAX_PINS, MAX_PINS_PAGE, MAX_BULK_DELETE_DAYS = 250, 50, 14
FORWARD = 1
SUPPRESS_EMBEDS, SUPPRESS_NOTIFICATIONS = 1 << 2, 1 << 12
#: Flags that a bot may set.
SETTABLE_FLAGS = SUPPRESS_EMBEDS | SUPPRESS_NOTIFICATIONS | IS_COMPONENTS_V2


class MessageRoutes:
    """REST routes of messages, and the posting of a message as the bot.

    Args:
        speed: divides the time for which `enforce_nonce` finds the message of an equal nonce.
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
        api.add_route(f"POST {one}/crosspost", self._crosspost_message)
        api.add_route(f"POST {messages}/bulk-delete", self._delete_messages)
        api.add_route(f"GET {messages}/pins", self._list_pins)
        api.add_route("GET /channels/{channel}/pins", self._list_newest_pins)
        for pin in (f"{messages}/pins/{{message}}", "/channels/{channel}/pins/{message}"):
            api.add_route(f"PUT {pin}", self._pin_message)
            api.add_route(f"DELETE {pin}", self._unpin_message)
        api.add_route("GET /channels/{channel}/polls/{message}/answers/{answer}", self._list_voters)
        api.add_route("POST /channels/{channel}/polls/{message}/expire", self._end_poll)

    def _create_message(self, request: ApiRequest) -> ApiResponse:
        channel, form = self._api.get_writable_channel(request), request.form
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
        """Post the message in a form as the bot: a new message, a reply or a forward.

        Args:
            form: the object with the message's fields.
            details: further fields of `DiscordMessage`; a forward ignores them.

        Raises:
            DiscordError: the form is invalid, or the bot lacks a permission.
        """
        reference = form.get("message_reference")
        if reference and reference.get("type") == FORWARD:
            return self._forward_message(request, channel, form)
        content = self.apply_permissions(parse_content(request.body, form), channel)
        if reference:
            details["reply_to"] = reply_to = self._find_replied_message(channel, reference)
            details["type"] = REPLY if reply_to else DEFAULT
        flags = int(form.get("flags") or 0) & SETTABLE_FLAGS
        return self._guild.post_message(channel, self._guild.bot, content, flags=flags, **details)

    def _forward_message(self, request: ApiRequest, channel: GuildChannel, form: Mapping[str, Any]) -> DiscordMessage:
        """Post a forward of a message that the bot can read; it has no content of its own.

        Discord: docs.discord.com/developers/resources/message, "Message Reference Types", and discord-api-docs #8561.

        Raises:
            DiscordError: the form has content, or the message cannot be read or forwarded.
        """
        reference = form["message_reference"]
        if not reference.get("channel_id"):
            raise create_form_error("message_reference.channel_id", "BASE_TYPE_REQUIRED", "This field is required")
        if request.body.uploads or any(form.get(name) for name in ("content", "embeds", "components", "sticker_ids")):
            message = "A forward cannot have additional content"
            raise create_form_error("message_reference", "FORWARD_CONTAINS_UNSUPPORTED_CONTENT", message)
        ids = {"channel": str(reference["channel_id"]), "message": str(reference["message_id"])}
        source = ApiRequest(ids, request.query, request.body)
        original = self._api.get_message(source, self._api.get_channel(source, "read_message_history"))
        if "message_content" not in self._api.privileged_intents and not self._api.is_readable(original):
            text = "You cannot forward a message whose content you cannot read."
            raise DiscordError(400, UNREADABLE_FORWARD, text)
        if original.type not in (DEFAULT, REPLY, CHAT_COMMAND, MENU_COMMAND) or original.content.poll is not None:
            raise create_form_error("message_reference", "MESSAGE_REFERENCE_INVALID", "Message cannot be forwarded")
        return self._guild.forward_message(original, channel, self._guild.bot)

    def apply_permissions(self, content: DiscordContent, channel: GuildChannel) -> DiscordContent:
        """Return content as the bot's permissions in a channel allow it.

        Without the permission to mention everyone, `@everyone` and `@here` ping nobody. Outside of the server, the
        content is unchanged, and no permission is needed.

        Discord: a bot can send the stickers of a server only there (discord-api-docs #3128, discord.js #6670).

        Raises:
            DiscordError: 50013, the content has files or a poll that the bot may not send; 50081, a sticker is unknown,
                or the channel is not in the server.
        """
        stickers = self._guild.integrations.stickers if channel.is_in_guild else {}
        if any(sticker not in stickers for sticker in content.stickers):
            raise DiscordError(400, INVALID_STICKER, "Invalid sticker sent")
        if not channel.is_in_guild:
            return content
        if content.attachments:
            self._api.check_permissions("attach_files")
        if content.poll:
            self._api.check_permissions("send_polls")
        if "mention_everyone" in self._api.permissions:
            return content
        allowed = content.allowed_mentions or {"parse": ["users", "roles"], "replied_user": True}
        parse = [kind for kind in allowed.get("parse") or () if kind != "everyone"]
        return replace(content, allowed_mentions={**allowed, "parse": parse})

    def _find_replied_message(self, channel: GuildChannel, reference: Mapping[str, Any]) -> DiscordMessage | None:
        """Return the message that a `message_reference` names.

        It is None for an unknown message if the request accepts that (`fail_if_not_exists` is false).

        Raises:
            DiscordError: 160002 without the permission to read the history, or 50035 for an unknown message.
        """
        if not channel.is_dm and "read_message_history" not in self._api.permissions:
            raise DiscordError(400, REPLY_REQUIRES_HISTORY, "Cannot reply without permission to read message history")
        message = self._guild.find_message(channel, str(reference.get("message_id")))
        if message is None and reference.get("fail_if_not_exists", True):
            raise create_form_error("message_reference", "REPLIES_UNKNOWN_MESSAGE", "Unknown message")
        return message

    def _find_by_nonce(self, channel: GuildChannel, nonce: str | int) -> DiscordMessage | None:
        """Return the message that was posted in a channel with a nonce.

        It is None if there is none, or if the lifetime of the nonce is over.
        """
        posted_at, message = self._nonces.get((channel.id, str(nonce)), (0.0, None))
        return message if monotonic() - posted_at < self._nonce_lifetime_seconds else None

    def _edit_message(self, request: ApiRequest) -> ApiResponse:
        channel = self._api.get_channel(request)
        message = self._api.get_message(request, channel)
        if message.author != self._guild.bot:
            raise DiscordError(403, CANNOT_EDIT_MESSAGE, "Cannot edit a message authored by another user")
        if channel.archived:
            raise DiscordError(400, THREAD_ARCHIVED, "Thread is archived")
        if message.content.poll is not None:
            raise DiscordError(400, POLL_NOT_EDITABLE, "Cannot edit a poll message")
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
            if message.channel.is_dm:
                raise DiscordError(403, DM_CHANNEL, "Cannot execute action on a DM channel")
            self._api.check_permissions("manage_messages")
        self._guild.delete_message(message)
        return NO_CONTENT

    def _delete_messages(self, request: ApiRequest) -> ApiResponse:
        """Delete 2 to 100 messages of the last two weeks; skip unknown ids.

        Raises:
            DiscordError: the channel is a DM, the bot lacks a permission, an id occurs twice, or a message is too old.
                Nothing is deleted.
        """
        channel = self._api.get_channel(request, "manage_messages", "read_message_history")
        if channel.is_dm:
            raise DiscordError(400, DM_CHANNEL, "Cannot execute action on a DM channel")
        ids = request.form["messages"]
        if len(set(map(str, ids))) < len(ids):
            raise create_form_error(
                "messages", "SET_TYPE_ALREADY_CONTAINS_VALUE", "The set already contains this value."
            )
        oldest = datetime.now(UTC) - timedelta(days=MAX_BULK_DELETE_DAYS)
        if any(int(id_) < to_snowflake(oldest) for id_ in ids):
            raise DiscordError(400, TOO_OLD_TO_DELETE, "A message provided was too old to bulk delete")
        found = (self._guild.find_message(channel, str(id_)) for id_ in ids)
        self._guild.delete_messages([message for message in found if message is not None])
        return NO_CONTENT

    def _crosspost_message(self, request: ApiRequest) -> ApiResponse:
        """Publish a message of an announcement channel, which sets its flag `CROSSPOSTED`.

        No other server follows the channel.
        """
        channel = self._api.get_channel(request, "send_messages")
        message = self._api.get_message(request, channel)
        if not channel.is_announcement:
            raise DiscordError(400, INVALID_CHANNEL_TYPE, "Cannot execute action on this channel type")
        if message.author != self._guild.bot:
            self._api.check_permissions("manage_messages")
        if message.flags & CROSSPOSTED:
            raise DiscordError(400, ALREADY_CROSSPOSTED, "This message has already been crossposted.")
        message.flags |= CROSSPOSTED
        self._guild.publish_update(message)
        return ApiResponse(self._message_payload(message))

    def _get_message(self, request: ApiRequest) -> ApiResponse:
        channel = self._api.get_channel(request, "read_message_history")
        return ApiResponse(self._message_payload(self._api.get_message(request, channel)))

    def _list_messages(self, request: ApiRequest) -> ApiResponse:
        """Return a page of a channel's messages, newest first.

        The query has at most one of `before`, `after` and `around`; without one, the newest messages are returned. The
        page is empty if the bot may not read the channel's history.
        """
        channel, query = self._api.get_channel(request), request.query
        limit_count = parse_limit(query, MAX_HISTORY_MESSAGES, default=50)
        if not channel.is_dm and "read_message_history" not in self._api.permissions:
            return ApiResponse([])
        messages = [m for m in self._guild.list_messages(channel) if self._guild.find_message(channel, m.id)]
        if after := query.get("after"):
            start = parse_snowflake("after", after)
            messages = [m for m in messages if int(m.id) > start][:limit_count]
        elif before := query.get("before"):
            end = parse_snowflake("before", before)
            messages = [m for m in messages if int(m.id) < end][-limit_count:]
        elif around := query.get("around"):
            # Half of them on each side: an even limit gives one more (discord.py, `abc.Messageable.history`).
            middle = parse_snowflake("around", around)
            place, half = sum(int(m.id) < middle for m in messages), limit_count // 2
            messages = messages[max(0, place - half) : place + half + 1]
        else:
            messages = messages[-limit_count:]
        return ApiResponse([self._message_payload(message) for message in reversed(messages)])

    def _message_payload(self, message: DiscordMessage) -> Json:
        content = "message_content" in self._api.privileged_intents or self._api.is_readable(message)
        return self._api.payloads.message(message, content=content)

    # Pins

    def _pin_message(self, request: ApiRequest) -> ApiResponse:
        channel = self._api.get_channel(request, "pin_messages")
        message = self._api.get_message(request, channel)
        if message.type not in (DEFAULT, REPLY, CHAT_COMMAND, MENU_COMMAND):
            raise DiscordError(403, SYSTEM_MESSAGE, "Cannot execute action on a system message")
        if len(self._guild.list_pins(channel)) >= MAX_PINS:
            raise DiscordError(400, TOO_MANY_PINS, f"Maximum number of pins reached for the channel ({MAX_PINS})")
        if message.pinned_at is None:
            self._guild.pin_message(message, self._guild.bot)
        return NO_CONTENT

    def _unpin_message(self, request: ApiRequest) -> ApiResponse:
        message = self._api.get_message(request, self._api.get_channel(request, "pin_messages"))
        if message.pinned_at is not None:
            self._guild.unpin_message(message)
        return NO_CONTENT

    def _list_pins(self, request: ApiRequest) -> ApiResponse:
        """Return a page of a channel's pinned messages, the last pinned first.

        The page is empty if the bot may not read the channel's history.
        """
        pins = self._get_readable_pins(request)
        limit = parse_limit(request.query, MAX_PINS_PAGE, default=MAX_PINS_PAGE)
        if before := request.query.get("before"):
            time = parse_timestamp("before", before)
            pins = [message for message in pins if message.pinned_at is not None and message.pinned_at < time]
        items = [
            {"pinned_at": format_timestamp(message.pinned_at), "message": self._message_payload(message)}
            for message in pins[:limit]
        ]
        return ApiResponse({"items": items, "has_more": len(pins) > limit})

    def _list_newest_pins(self, request: ApiRequest) -> ApiResponse:
        return ApiResponse([self._message_payload(pin) for pin in self._get_readable_pins(request)[:MAX_PINS_PAGE]])

    def _get_readable_pins(self, request: ApiRequest) -> list[DiscordMessage]:
        channel = self._api.get_channel(request)
        if not channel.is_dm and "read_message_history" not in self._api.permissions:
            return []
        return self._guild.list_pins(channel)

    # Polls

    def _list_voters(self, request: ApiRequest) -> ApiResponse:
        message = self._api.get_message(request, self._api.get_channel(request, "read_message_history"))
        answer = request.path_ids["answer"]
        if message.content.poll is None or not answer.isdecimal():
            raise DiscordError(404, UNKNOWN_MESSAGE, "Unknown Message")
        ids = parse_page(request.query, sorted(message.poll_votes.get(int(answer), []), key=int), 100, default=25)
        return ApiResponse({"users": [self._api.payloads.user(self._guild.users[user]) for user in ids]})

    def _end_poll(self, request: ApiRequest) -> ApiResponse:
        message = self._api.get_message(request, self._api.get_channel(request))
        if message.content.poll is None:
            raise DiscordError(400, NOT_A_POLL, "Cannot expire a non-poll message")
        if message.author != self._guild.bot:
            raise DiscordError(403, CANNOT_EDIT_MESSAGE, "Cannot edit a message authored by another user")
        message.is_poll_over = True
        self._guild.publish_update(message)
        return ApiResponse(self._message_payload(message))
