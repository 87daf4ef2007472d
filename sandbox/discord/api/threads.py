"""Threads over REST: from a message, in a channel, and the posts of a forum.

Discord: docs.discord.com/developers/topics/threads.
"""

from collections.abc import Callable

from sandbox.discord.api.base import DiscordRestApi
from sandbox.discord.api.message_content import content_of
from sandbox.discord.api.messages import MessageRoutes
from sandbox.discord.api.requests import (
    MISSING_PERMISSIONS,
    NOT_IN_SUCH_A_CHANNEL,
    THREAD_EXISTS,
    ApiRequest,
    ApiResponse,
    DiscordError,
    invalid,
)
from sandbox.discord.state.guild import GuildChannel

NAME = 100
AUTO_ARCHIVE = (60, 1440, 4320, 10080)


class ThreadRoutes:
    def __init__(self, api: DiscordRestApi, chat: MessageRoutes, on_change: Callable[[GuildChannel], None]) -> None:
        self._api = api
        self._on_change = on_change
        self._chat = chat
        api.add("POST /channels/{channel}/messages/{message}/threads", self._from_message)
        api.add("POST /channels/{channel}/threads", self._in_channel)
        api.add("PATCH /channels/{channel}", self._change)

    def _from_message(self, request: ApiRequest) -> ApiResponse:
        channel = self._api.channel(request, "create_public_threads")
        if channel.kind != "text":
            raise DiscordError(400, NOT_IN_SUCH_A_CHANNEL, "Cannot execute action on this channel type")
        message = self._api.message(request, channel)
        if message.thread is not None:
            raise DiscordError(400, THREAD_EXISTS, "A thread has already been created for this message")
        name, auto_archive = _about(request)
        guild = self._api.guild
        thread = guild.start_thread(channel, name, guild.bot, root=message, auto_archive=auto_archive)
        return self._created(thread)

    def _in_channel(self, request: ApiRequest) -> ApiResponse:
        """A thread of no message, or a forum's post with its first message."""
        channel = self._api.channel(request, "create_public_threads")
        name, auto_archive = _about(request)
        guild = self._api.guild
        if channel.kind != "forum":
            return self._created(guild.start_thread(channel, name, guild.bot, auto_archive=auto_archive))
        form = request.form.get("message")
        if not isinstance(form, dict):
            raise invalid("message", "BASE_TYPE_REQUIRED", "This field is required")
        self._api.check("send_messages")
        content = self._chat.permitted(content_of(request.body, form), channel)
        thread = guild.start_thread(channel, name, guild.bot, auto_archive=auto_archive)
        first = guild.post(thread, guild.bot, content, id=thread.id)
        return ApiResponse(self._api.payloads.channel(thread) | {"message": self._api.payloads.message(first)}, 201)

    def _change(self, request: ApiRequest) -> ApiResponse:
        """Archive a thread, or open it again. Discord: who may write in it may do so, unless it is locked."""
        thread = self._api.channel(request, "send_messages_in_threads")
        if not thread.is_thread or thread.locked:
            raise DiscordError(403, MISSING_PERMISSIONS, "Missing Permissions")
        archived = request.form.get("archived")
        if archived is not None:
            thread.archived = bool(archived)
            self._on_change(thread)
        return ApiResponse(self._api.payloads.channel(thread))

    def _created(self, thread: GuildChannel) -> ApiResponse:
        return ApiResponse(self._api.payloads.channel(thread), 201)


def _about(request: ApiRequest) -> tuple[str, int]:
    """The name of a new thread, and after how many minutes it is archived."""
    name, auto_archive = request.form.get("name"), request.form.get("auto_archive_duration") or 1440
    if not isinstance(name, str) or not 1 <= len(name) <= NAME:
        raise invalid("name", "BASE_TYPE_BAD_LENGTH", f"Must be between 1 and {NAME} in length.")
    if auto_archive not in AUTO_ARCHIVE:
        raise invalid("auto_archive_duration", "BASE_TYPE_CHOICES", f"Value must be one of {AUTO_ARCHIVE}.")
    return name, auto_archive
