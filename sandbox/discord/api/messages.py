"""Messages over REST: posting, editing, deleting, reading, reactions, typing.

Discord: docs.discord.com/developers/resources/message.
"""

from collections.abc import Mapping
from dataclasses import replace
from time import monotonic
from typing import Any

from sandbox.discord.api.base import DiscordRestApi
from sandbox.discord.api.message_content import content_of, nonce_of
from sandbox.discord.api.requests import (
    ARCHIVED,
    MISSING_PERMISSIONS,
    NO_CONTENT,
    NO_MESSAGES_HERE,
    NOT_THE_AUTHOR,
    NOT_WITHOUT_HISTORY,
    THREAD_LOCKED,
    UNKNOWN_EMOJI,
    ApiRequest,
    ApiResponse,
    DiscordError,
    invalid,
)
from sandbox.discord.state.guild import DEFAULT, REPLY, DiscordContent, DiscordMessage, GuildChannel
from sandbox.discord.state.payloads import Json

#: "A few minutes", in seconds, in which a nonce is known again.
NONCE_LIFE = 180.0
MOST_READ = 100
#: Flags that a bot may set: no previews, no notification, components alone.
SETTABLE_FLAGS = 1 << 2 | 1 << 12 | 1 << 15


class MessageRoutes:
    def __init__(self, api: DiscordRestApi, speed: float) -> None:
        self._api = api
        self._guild = api.guild
        self._nonce_life = NONCE_LIFE / speed
        self._nonces: dict[tuple[str, str], tuple[float, DiscordMessage]] = {}
        messages = "/channels/{channel}/messages"
        one = messages + "/{message}"
        api.add(f"POST {messages}", self._post)
        api.add(f"GET {messages}", self._history)
        api.add(f"GET {one}", self._read)
        api.add(f"PATCH {one}", self._edit)
        api.add(f"DELETE {one}", self._delete)
        api.add(f"PUT {one}/reactions/{{emoji}}/@me", self._react)
        api.add(f"DELETE {one}/reactions/{{emoji}}/@me", self._unreact)
        api.add("POST /channels/{channel}/typing", self._type)

    def _post(self, request: ApiRequest) -> ApiResponse:
        channel, form = self._place(request), request.form
        nonce = nonce_of(form)
        if form.get("enforce_nonce") and nonce is not None and (known := self._known(channel, nonce)):
            return ApiResponse(self._shown(known))
        message = self.post(request, channel, form, nonce=nonce)
        if nonce is not None:
            self._nonces[channel.id, str(nonce)] = (monotonic(), message)
        return ApiResponse(self._shown(message))

    def post(
        self, request: ApiRequest, channel: GuildChannel, form: Mapping[str, Any], **details: Any
    ) -> DiscordMessage:
        """Post as the bot what a form says; `details` are the fields of `DiscordMessage`.

        Raises:
            DiscordError: the form does not hold, or something in it is not permitted.
        """
        content = self.permitted(content_of(request.body, form), channel)
        if reference := form.get("message_reference"):
            details["reply_to"] = reply_to = self._referred(channel, reference)
            details["type"] = REPLY if reply_to else DEFAULT
        flags = int(form.get("flags") or 0) & SETTABLE_FLAGS
        return self._guild.post(channel, self._guild.bot, content, flags=flags, **details)

    def permitted(self, content: DiscordContent, channel: GuildChannel) -> DiscordContent:
        """The content, if the bot may send it; `@everyone` calls nobody, if it may not call everybody.

        Raises:
            DiscordError: 50013, it has files and the bot may send none.
        """
        if not channel.is_here:
            return content
        if content.attachments:
            self._api.check("attach_files")
        if "mention_everyone" in self._api.permissions:
            return content
        allowed = content.allowed_mentions or {"parse": ["users", "roles"], "replied_user": True}
        parse = [kind for kind in allowed.get("parse") or () if kind != "everyone"]
        return replace(content, allowed_mentions={**allowed, "parse": parse})

    def _place(self, request: ApiRequest) -> GuildChannel:
        channel = self._api.channel(request)
        if channel.kind == "forum":
            raise DiscordError(400, NO_MESSAGES_HERE, "Cannot send messages in a non-text channel")
        if not channel.is_dm:
            self._api.check("send_messages_in_threads" if channel.is_thread else "send_messages")
        if channel.locked:
            raise DiscordError(400, THREAD_LOCKED, "This thread is locked")
        return channel

    def _referred(self, channel: GuildChannel, reference: Mapping[str, Any]) -> DiscordMessage | None:
        if not channel.is_dm and "read_message_history" not in self._api.permissions:
            raise DiscordError(400, NOT_WITHOUT_HISTORY, "Cannot reply without permission to read message history")
        message = self._guild.message(channel, str(reference.get("message_id")))
        if message is None and reference.get("fail_if_not_exists", True):
            raise invalid("message_reference", "REPLIES_UNKNOWN_MESSAGE", "Unknown message")
        return message

    def _known(self, channel: GuildChannel, nonce: str | int) -> DiscordMessage | None:
        posted_at, message = self._nonces.get((channel.id, str(nonce)), (0.0, None))
        return message if monotonic() - posted_at < self._nonce_life else None

    def _edit(self, request: ApiRequest) -> ApiResponse:
        channel = self._api.channel(request)
        message = self._api.message(request, channel)
        if message.author != self._guild.bot:
            raise DiscordError(403, NOT_THE_AUTHOR, "Cannot edit a message authored by another user")
        if channel.archived:
            raise DiscordError(400, ARCHIVED, "Thread is archived")
        content = content_of(request.body, request.form, message.content)
        self._guild.update(message, self.permitted(content, channel))
        return ApiResponse(self._shown(message))

    def _delete(self, request: ApiRequest) -> ApiResponse:
        message = self._api.message(request, self._api.channel(request))
        if message.author != self._guild.bot:
            raise DiscordError(403, MISSING_PERMISSIONS, "Missing Permissions")
        self._guild.delete(message)
        return NO_CONTENT

    def _read(self, request: ApiRequest) -> ApiResponse:
        channel = self._api.channel(request, "read_message_history")
        return ApiResponse(self._shown(self._api.message(request, channel)))

    def _history(self, request: ApiRequest) -> ApiResponse:
        """Newest first. Discord: `before`, `after` and `around` exclude each other."""
        channel, query = self._api.channel(request), request.query
        limit = query.get("limit", "50")
        if not limit.isdecimal() or not 1 <= int(limit) <= MOST_READ:
            raise invalid("limit", "NUMBER_TYPE_MAX", f"int value should be less than or equal to {MOST_READ}.")
        most = int(limit)
        if not channel.is_dm and "read_message_history" not in self._api.permissions:
            return ApiResponse([])
        found = [m for m in self._guild.messages(channel) if self._guild.message(channel, m.id)]
        if after := query.get("after"):
            found = [m for m in found if int(m.id) > int(after)][:most]
        elif before := query.get("before"):
            found = [m for m in found if int(m.id) < int(before)][-most:]
        elif around := query.get("around"):
            nearest = sorted(found, key=lambda m: abs(int(m.id) - int(around)))[:most]
            found = [m for m in found if m in nearest]
        return ApiResponse([self._shown(message) for message in reversed(found[-most:])])

    def _shown(self, message: DiscordMessage) -> Json:
        content = "message_content" in self._api.privileged or self._api.readable(message)
        return self._api.payloads.message(message, content=content)

    def _react(self, request: ApiRequest) -> ApiResponse:
        channel = self._api.channel(request, "read_message_history", "add_reactions")
        message = self._api.message(request, channel)
        self._guild.add_reaction(message, self._guild.bot, _emoji(request))
        return NO_CONTENT

    def _unreact(self, request: ApiRequest) -> ApiResponse:
        message = self._api.message(request, self._api.channel(request))
        self._guild.remove_reaction(message, self._guild.bot, _emoji(request))
        return NO_CONTENT

    def _type(self, request: ApiRequest) -> ApiResponse:
        self._place(request)
        return NO_CONTENT


def _emoji(request: ApiRequest) -> str:
    emoji = request.ids["emoji"]
    if emoji.isascii():
        raise DiscordError(400, UNKNOWN_EMOJI, "Unknown Emoji")
    return emoji
