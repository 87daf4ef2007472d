"""REST routes of threads and forum posts: start, change, list, and their members.

Discord: docs.discord.com/developers/topics/threads.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from chatrig.discord.api.base import DiscordRestApi
from chatrig.discord.api.message_content import parse_content
from chatrig.discord.api.messages import MessageRoutes
from chatrig.discord.api.requests import (
    INVALID_CHANNEL_TYPE,
    MISSING_ACCESS,
    MISSING_PERMISSIONS,
    NO_CONTENT,
    THREAD_ARCHIVED,
    THREAD_EXISTS,
    UNKNOWN_MEMBER,
    ApiRequest,
    ApiResponse,
    DiscordError,
    create_form_error,
    parse_bool,
    parse_limit,
    parse_page,
    parse_snowflake,
    parse_timestamp,
)
from chatrig.discord.state.messages import GuildChannel
from chatrig.discord.state.payloads import Json

MAX_NAME_LENGTH, MAX_THREADS = 100, 100
PUBLIC_THREAD, PRIVATE_THREAD = 11, 12
AUTO_ARCHIVE_MINUTES = (60, 1440, 4320, 10080)
_OWNER_FIELDS = {"name", "auto_archive_duration"}


class ThreadRoutes:
    """REST routes of threads and forum posts."""

    def __init__(self, api: DiscordRestApi, messages: MessageRoutes) -> None:
        self._api = api
        self._guild = api.guild
        self._messages = messages
        api.add_route("POST /channels/{channel}/messages/{message}/threads", self._start_from_message)
        api.add_route("POST /channels/{channel}/threads", self._start_in_channel)
        members = "/channels/{channel}/thread-members"
        api.add_route(f"GET {members}", self._list_members)
        api.add_route(f"GET {members}/{{user}}", self._get_member)
        for user in ("@me", "{user}"):
            api.add_route(f"PUT {members}/{user}", self._add_member)
            api.add_route(f"DELETE {members}/{user}", self._remove_member)
        api.add_route("GET /guilds/{guild}/threads/active", self._list_active_threads)
        api.add_route("GET /channels/{channel}/threads/archived/public", self._list_archived_threads)
        api.add_route("GET /channels/{channel}/threads/archived/private", self._list_private_threads)
        api.add_route("GET /channels/{channel}/users/@me/threads/archived/private", self._list_joined_threads)

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
        channel = self._api.get_channel(request)
        name, auto_archive = _parse_thread(request.form)
        guild = self._api.guild
        if channel.kind != "forum":
            type_ = request.form.get("type", PRIVATE_THREAD)
            kind = "create_private_threads" if type_ == PRIVATE_THREAD else "create_public_threads"
            self._api.check_permissions(kind)
            if type_ not in (PUBLIC_THREAD, PRIVATE_THREAD):
                raise DiscordError(400, INVALID_CHANNEL_TYPE, "Cannot execute action on this channel type")
            guests = [guild.bot.id] if type_ == PRIVATE_THREAD else []
            return self._create_response(
                guild.start_thread(channel, name, guild.bot, member_ids=guests, auto_archive_minutes=auto_archive)
            )
        form = request.form.get("message")
        if not isinstance(form, dict):
            raise create_form_error("message", "BASE_TYPE_REQUIRED", "This field is required")
        self._api.check_permissions("send_messages")
        content = self._messages.apply_permissions(parse_content(request.body, form), channel)
        thread = guild.start_thread(channel, name, guild.bot, auto_archive_minutes=auto_archive)
        first = guild.post_message(thread, guild.bot, content, id=thread.id)
        return ApiResponse(self._api.payloads.channel(thread) | {"message": self._api.payloads.message(first)}, 201)

    def update_thread(self, request: ApiRequest, thread: GuildChannel) -> ApiResponse:
        """Rename a thread, archive or reopen it, lock it, or set its auto-archive time.

        `THREAD_UPDATE` is published, also without a change. The response has the thread's JSON.

        Discord: any user who may write in a thread may archive and reopen it, unless it is locked. Locking takes the
        permission to manage threads; other changes take that permission or the thread's owner.

        Raises:
            DiscordError: 50013, the bot lacks a permission; 50035, a value is invalid.
        """
        form, api = request.form, self._api
        api.check_permissions("send_messages_in_threads")
        if "manage_threads" in api.permissions:
            allowed = _OWNER_FIELDS | {"archived", "locked"}
        else:
            allowed = {"archived"} | (_OWNER_FIELDS if thread.owner_id == api.guild.bot.id else set())
        if (thread.locked and "locked" not in allowed) or form.keys() - allowed:
            raise DiscordError(403, MISSING_PERMISSIONS, "Missing Permissions")
        if "name" in form or "auto_archive_duration" in form:
            current = {"name": thread.name, "auto_archive_duration": thread.auto_archive_minutes}
            thread.name, thread.auto_archive_minutes = _parse_thread(current | form)
        if (locked := form.get("locked")) is not None:
            thread.locked = bool(locked)
        archived = thread.archived if form.get("archived") is None else bool(form["archived"])
        self._guild.publish_thread(thread, is_reopened=self._guild.set_archived(thread, archived))
        return ApiResponse(api.payloads.channel(thread))

    # Members

    def _list_members(self, request: ApiRequest) -> ApiResponse:
        """Return the members of a thread; with `with_member` in the query, a page of them.

        Raises:
            DiscordError: 50001, the privileged intent for members is disabled.
        """
        thread = self._get_thread(request)
        if "guild_members" not in self._api.privileged_intents:
            raise DiscordError(403, MISSING_ACCESS, "Missing Access")
        ids: Sequence[str] = sorted(thread.thread_members, key=int)
        if with_member := parse_bool(request.query, "with_member"):
            ids = parse_page(request.query, ids, 100, default=100)
        return ApiResponse([self._member_payload(thread, user, with_member=with_member) for user in ids])

    def _get_member(self, request: ApiRequest) -> ApiResponse:
        thread, user = self._get_thread(request), self._get_user_id(request)
        if user not in thread.thread_members:
            raise DiscordError(404, UNKNOWN_MEMBER, "Unknown Member")
        with_member = parse_bool(request.query, "with_member")
        return ApiResponse(self._member_payload(thread, user, with_member=with_member))

    def _add_member(self, request: ApiRequest) -> ApiResponse:
        thread, user = self._get_open_thread(request), self._get_user_id(request)
        if user != self._guild.bot.id:
            self._api.check_permissions("send_messages_in_threads")
        self._guild.add_thread_members(thread, user)
        return NO_CONTENT

    def _remove_member(self, request: ApiRequest) -> ApiResponse:
        thread, user = self._get_open_thread(request), self._get_user_id(request)
        bot = self._guild.bot.id
        if user != bot and not (thread.is_private and thread.owner_id == bot):
            self._api.check_permissions("manage_threads")
        self._guild.remove_thread_member(thread, user)
        return NO_CONTENT

    def _get_thread(self, request: ApiRequest) -> GuildChannel:
        thread = self._api.get_channel(request)
        if not thread.is_thread:
            raise DiscordError(400, INVALID_CHANNEL_TYPE, "Cannot execute action on this channel type")
        return thread

    def _get_open_thread(self, request: ApiRequest) -> GuildChannel:
        thread = self._get_thread(request)
        if thread.archived:
            raise DiscordError(400, THREAD_ARCHIVED, "Thread is archived")
        return thread

    def _get_user_id(self, request: ApiRequest) -> str:
        user = request.path_ids.get("user", "@me")
        return self._guild.bot.id if user == "@me" else self._api.get_user(user).id

    def _member_payload(self, thread: GuildChannel, user: str, *, with_member: bool) -> Json:
        about = self._api.payloads.thread_member(thread, user)
        return about | ({"member": self._api.payloads.member(self._guild.users[user])} if with_member else {})

    # Lists

    def _list_active_threads(self, request: ApiRequest) -> ApiResponse:
        self._api.check_guild(request)
        bot = self._guild.bot.id
        return self._threads_response([t for t in self._guild.list_active_threads() if t.is_visible_to(bot)], None)

    def _list_archived_threads(self, request: ApiRequest) -> ApiResponse:
        """Return a page of a channel's public archived threads, the last archived first."""
        return self._list_threads(request, is_private=False)

    def _list_private_threads(self, request: ApiRequest) -> ApiResponse:
        """Return a page of a channel's private archived threads, the last archived first."""
        self._api.get_channel(request, "manage_threads")
        return self._list_threads(request, is_private=True)

    def _list_threads(self, request: ApiRequest, *, is_private: bool) -> ApiResponse:
        channel = self._api.get_channel(request, "read_message_history")
        threads = self._find_archived_threads(channel, is_private=is_private)
        threads.sort(key=lambda thread: thread.archived_at, reverse=True)
        if before := request.query.get("before"):
            time = parse_timestamp("before", before)
            threads = [thread for thread in threads if thread.archived_at < time]
        return self._threads_response(threads, parse_limit(request.query, MAX_THREADS, default=MAX_THREADS))

    def _list_joined_threads(self, request: ApiRequest) -> ApiResponse:
        """Return a page of the private archived threads that the bot joined.

        The last created thread comes first.
        """
        channel, bot = self._api.get_channel(request, "read_message_history"), self._guild.bot.id
        threads = self._find_archived_threads(channel, is_private=True)
        newest = sorted((t for t in threads if bot in t.thread_members), key=lambda t: int(t.id), reverse=True)
        if before := request.query.get("before"):
            end = parse_snowflake("before", before)
            newest = [thread for thread in newest if int(thread.id) < end]
        return self._threads_response(newest, parse_limit(request.query, MAX_THREADS, default=MAX_THREADS))

    def _find_archived_threads(self, channel: GuildChannel, *, is_private: bool) -> list[GuildChannel]:
        threads = (thread for thread in self._guild.channels.values() if thread.parent is channel)
        return [thread for thread in threads if thread.archived and thread.is_private == is_private]

    def _threads_response(self, threads: Sequence[GuildChannel], limit: int | None) -> ApiResponse:
        payloads, bot, shown = self._api.payloads, self._guild.bot.id, threads[:limit]
        return ApiResponse(
            {
                "threads": [payloads.channel(thread) for thread in shown],
                "members": [payloads.thread_member(thread, bot) for thread in shown if bot in thread.thread_members],
                "has_more": len(shown) < len(threads),
            }
        )

    def _create_response(self, thread: GuildChannel) -> ApiResponse:
        return ApiResponse(self._api.payloads.channel(thread), 201)


def _parse_thread(form: Mapping[str, Any]) -> tuple[str, int]:
    """Return the name of a thread and its auto-archive time in minutes.

    A form without the time has 1440 minutes (a day).

    Raises:
        DiscordError: 50035, the name or the time is invalid.
    """
    name, auto_archive = form.get("name"), form.get("auto_archive_duration") or 1440
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME_LENGTH:
        raise create_form_error("name", "BASE_TYPE_BAD_LENGTH", f"Must be between 1 and {MAX_NAME_LENGTH} in length.")
    if auto_archive not in AUTO_ARCHIVE_MINUTES:
        raise create_form_error(
            "auto_archive_duration", "BASE_TYPE_CHOICES", f"Value must be one of {AUTO_ARCHIVE_MINUTES}."
        )
    return name, auto_archive
