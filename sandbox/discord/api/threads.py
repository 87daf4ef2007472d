"""REST routes that start and change threads and forum posts.

Discord: docs.discord.com/developers/topics/threads.
"""

from collections.abc import Callable, Mapping
from typing import Any

from sandbox.discord.api.base import DiscordRestApi
from sandbox.discord.api.message_content import parse_content
from sandbox.discord.api.messages import MessageRoutes
from sandbox.discord.api.requests import (
    INVALID_CHANNEL_TYPE,
    MISSING_PERMISSIONS,
    THREAD_EXISTS,
    ApiRequest,
    ApiResponse,
    DiscordError,
    create_form_error,
)
from sandbox.discord.state.guild import GuildChannel

MAX_NAME_LENGTH = 100
PUBLIC_THREAD, PRIVATE_THREAD = 11, 12
AUTO_ARCHIVE_MINUTES = (60, 1440, 4320, 10080)
_OWNER_FIELDS = {"name", "auto_archive_duration"}


class ThreadRoutes:
    """Routes of threads.

    Args:
        on_update: called after a change of a thread.
    """

    def __init__(self, api: DiscordRestApi, messages: MessageRoutes, on_update: Callable[[GuildChannel], None]) -> None:
        self._api = api
        self._on_update = on_update
        self._messages = messages
        api.add_route("POST /channels/{channel}/messages/{message}/threads", self._start_from_message)
        api.add_route("POST /channels/{channel}/threads", self._start_in_channel)
        api.add_route("PATCH /channels/{channel}", self._update_thread)

    def _start_from_message(self, request: ApiRequest) -> ApiResponse:
        channel = self._api.get_channel(request, "create_public_threads")
        if channel.kind != "text":
            raise DiscordError(400, INVALID_CHANNEL_TYPE, "Cannot execute action on this channel type")
        message = self._api.get_message(request, channel)
        if message.thread is not None:
            raise DiscordError(400, THREAD_EXISTS, "A thread has already been created for this message")
        name, auto_archive = _parse_thread(request.form)
        guild = self._api.guild
        thread = guild.start_thread(channel, name, guild.bot, first_message=message, auto_archive_minutes=auto_archive)
        return self._create_response(thread)

    def _start_in_channel(self, request: ApiRequest) -> ApiResponse:
        """Start a thread without a message, or a forum post with its first message.

        Discord: a thread without a type is private.
        """
        channel = self._api.get_channel(request, "create_public_threads")
        name, auto_archive = _parse_thread(request.form)
        guild = self._api.guild
        if channel.kind != "forum":
            type_ = request.form.get("type", PRIVATE_THREAD)
            if type_ not in (PUBLIC_THREAD, PRIVATE_THREAD):
                raise DiscordError(400, INVALID_CHANNEL_TYPE, "Cannot execute action on this channel type")
            guests = [guild.bot.id] if type_ == PRIVATE_THREAD else []
            return self._create_response(
                guild.start_thread(channel, name, guild.bot, guest_ids=guests, auto_archive_minutes=auto_archive)
            )
        form = request.form.get("message")
        if not isinstance(form, dict):
            raise create_form_error("message", "BASE_TYPE_REQUIRED", "This field is required")
        self._api.check_permissions("send_messages")
        content = self._messages.apply_permissions(parse_content(request.body, form), channel)
        thread = guild.start_thread(channel, name, guild.bot, auto_archive_minutes=auto_archive)
        first = guild.post_message(thread, guild.bot, content, id=thread.id)
        return ApiResponse(self._api.payloads.channel(thread) | {"message": self._api.payloads.message(first)}, 201)

    def _update_thread(self, request: ApiRequest) -> ApiResponse:
        """Rename a thread, archive or reopen it, or set its auto-archive time.

        Discord: any user who may write in a thread may archive and reopen it, unless it is locked. Other changes need
        the thread's owner, and locking needs a permission that the bot lacks.
        """
        thread, form = self._api.get_channel(request, "send_messages_in_threads"), request.form
        is_owner = thread.owner_id == self._api.guild.bot.id
        if (
            not thread.is_thread
            or thread.locked
            or form.keys() - ({"archived"} | (_OWNER_FIELDS if is_owner else set()))
        ):
            raise DiscordError(403, MISSING_PERMISSIONS, "Missing Permissions")
        if "name" in form or "auto_archive_duration" in form:
            current = {"name": thread.name, "auto_archive_duration": thread.auto_archive_minutes}
            thread.name, thread.auto_archive_minutes = _parse_thread(current | form)
        if (archived := form.get("archived")) is not None:
            thread.archived = bool(archived)
        self._on_update(thread)
        return ApiResponse(self._api.payloads.channel(thread))

    def _create_response(self, thread: GuildChannel) -> ApiResponse:
        return ApiResponse(self._api.payloads.channel(thread), 201)


def _parse_thread(form: Mapping[str, Any]) -> tuple[str, int]:
    """Return the name of a thread and its auto-archive time in minutes.

    Raises:
        DiscordError: 50035.
    """
    name, auto_archive = form.get("name"), form.get("auto_archive_duration") or 1440
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME_LENGTH:
        raise create_form_error("name", "BASE_TYPE_BAD_LENGTH", f"Must be between 1 and {MAX_NAME_LENGTH} in length.")
    if auto_archive not in AUTO_ARCHIVE_MINUTES:
        raise create_form_error(
            "auto_archive_duration", "BASE_TYPE_CHOICES", f"Value must be one of {AUTO_ARCHIVE_MINUTES}."
        )
    return name, auto_archive
