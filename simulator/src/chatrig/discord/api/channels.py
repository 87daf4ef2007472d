"""REST routes of channels and their invites.

Discord: docs.discord.com/developers/resources/channel and docs.discord.com/developers/resources/invite.
"""

import re
from collections.abc import Mapping
from typing import Any

from chatrig.discord.api.base import DiscordRestApi
from chatrig.discord.api.requests import (
    DM_CHANNEL,
    INVALID_CHANNEL_TYPE,
    NO_CONTENT,
    UNKNOWN_INVITE,
    ApiRequest,
    ApiResponse,
    DiscordError,
    create_form_error,
    parse_bool,
)
from chatrig.discord.api.threads import ThreadRoutes
from chatrig.discord.state.integrations import Invite
from chatrig.discord.state.messages import GuildChannel, GuildEvent
from chatrig.discord.state.snowflakes import create_id

TEXT, ANNOUNCEMENT, FORUM = 0, 5, 15
_FIELDS = {"name", "topic", "nsfw", "rate_limit_per_user"}


class ChannelRoutes:
    def __init__(self, api: DiscordRestApi, threads: ThreadRoutes) -> None:
        self._api = api
        self._guild = api.guild
        self._payloads = api.payloads
        self._threads = threads
        api.add_route("GET /guilds/{guild}/channels", self._list_channels)
        api.add_route("POST /guilds/{guild}/channels", self._create_channel)
        api.add_route("GET /channels/{channel}", self._get_channel)
        api.add_route("PATCH /channels/{channel}", self._update_channel)
        api.add_route("DELETE /channels/{channel}", self._delete_channel)
        api.add_route("POST /channels/{channel}/typing", self._start_typing)
        api.add_route("POST /channels/{channel}/invites", self._create_invite)
        api.add_route("GET /channels/{channel}/invites", self._list_invites)
        api.add_route("GET /guilds/{guild}/invites", self._list_invites)
        api.add_route("GET /invites/{code}", self._get_invite)
        api.add_route("DELETE /invites/{code}", self._delete_invite)

    def _list_channels(self, request: ApiRequest) -> ApiResponse:
        self._api.check_guild(request)
        channels = [c for c in self._guild.channels.values() if c.is_in_guild and not c.is_thread]
        return ApiResponse([self._payloads.channel(channel) for channel in channels])

    def _get_channel(self, request: ApiRequest) -> ApiResponse:
        return ApiResponse(self._payloads.channel(self._api.get_channel(request)))

    def _create_channel(self, request: ApiRequest) -> ApiResponse:
        """Create a text, announcement or forum channel that all users see."""
        self._api.check_guild(request)
        self._api.check_permissions("manage_channels")
        form = request.form
        type_ = form.get("type") or TEXT
        if type_ not in (TEXT, ANNOUNCEMENT, FORUM):
            raise _create_unsupported_error("type")
        _check_fields(form, _FIELDS | {"type"})
        name = _convert_name(form["name"], type_)
        channel = GuildChannel(create_id(), name, "forum" if type_ == FORUM else "text")
        channel.is_announcement = type_ == ANNOUNCEMENT
        _apply_fields(channel, form)
        self._guild.register(channel)
        self._guild.emit(GuildEvent("CHANNEL_CREATE", channel))
        return ApiResponse(self._payloads.channel(channel), 201)

    def _update_channel(self, request: ApiRequest) -> ApiResponse:
        channel = self._api.get_channel(request)
        if channel.is_thread:
            return self._threads.update_thread(request, channel)
        if channel.is_dm:
            raise DiscordError(400, DM_CHANNEL, "Cannot execute action on a DM channel")
        self._api.check_permissions("manage_channels")
        _check_fields(request.form, _FIELDS)
        if request.form.get("name") == "":
            raise create_form_error("name", "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 100 in length.")
        _apply_fields(channel, request.form)
        if "name" in request.form:
            channel.name = _convert_name(request.form["name"], FORUM if channel.kind == "forum" else TEXT)
        self._guild.emit(GuildEvent("CHANNEL_UPDATE", channel))
        return ApiResponse(self._payloads.channel(channel))

    def _delete_channel(self, request: ApiRequest) -> ApiResponse:
        """Delete a channel or thread.

        A DM is not deleted: Discord closes it, and opens it again with the next message.
        """
        channel = self._api.get_channel(request)
        about = self._payloads.channel(channel)
        if not channel.is_dm:
            self._api.check_permissions("manage_threads" if channel.is_thread else "manage_channels")
            self._guild.remove_channel(channel)
        return ApiResponse(about)

    def _start_typing(self, request: ApiRequest) -> ApiResponse:
        channel = self._api.get_writable_channel(request)
        self._guild.emit(GuildEvent("TYPING_START", channel, self._guild.bot))
        return NO_CONTENT

    # Invites

    def _create_invite(self, request: ApiRequest) -> ApiResponse:
        channel = self._api.get_channel(request, "create_instant_invite")
        if not channel.is_in_guild or channel.is_thread:
            raise DiscordError(400, INVALID_CHANNEL_TYPE, "Cannot execute action on this channel type")
        invite = self._guild.integrations.add_invite(channel.id, request.form)
        self._guild.emit(GuildEvent("INVITE_CREATE", channel, subject=invite.code))
        return ApiResponse(self._payloads.invite(invite))

    def _list_invites(self, request: ApiRequest) -> ApiResponse:
        """Return the invites of the channel in a request's path.

        If the path has no channel, return all invites of the server.
        """
        self._api.check_guild(request)
        self._api.check_permissions("manage_channels")
        channel_id = self._api.get_channel(request).id if "channel" in request.path_ids else None
        invites = self._guild.integrations.invites.values()
        found = [invite for invite in invites if channel_id in (None, invite.channel_id)]
        return ApiResponse([self._payloads.invite(invite) for invite in found])

    def _get_invite(self, request: ApiRequest) -> ApiResponse:
        invite = self._find_invite(request)
        return ApiResponse(self._payloads.invite(invite, with_counts=parse_bool(request.query, "with_counts")))

    def _delete_invite(self, request: ApiRequest) -> ApiResponse:
        invite = self._find_invite(request)
        self._api.check_permissions("manage_channels")
        about = self._payloads.invite(invite)
        del self._guild.integrations.invites[invite.code]
        self._guild.emit(GuildEvent("INVITE_DELETE", self._guild.channels[invite.channel_id], subject=invite.code))
        return ApiResponse(about)

    def _find_invite(self, request: ApiRequest) -> Invite:
        invite = self._guild.integrations.invites.get(request.path_ids["code"])
        if invite is None:
            raise DiscordError(404, UNKNOWN_INVITE, "Unknown Invite")
        return invite


def _check_fields(form: Mapping[str, Any], known: set[str]) -> None:
    for name, value in form.items():
        if name not in known and value not in (None, [], 0, False):
            raise _create_unsupported_error(name)


def _create_unsupported_error(field: str) -> DiscordError:
    return create_form_error(field, "SIMULATOR_NOT_MODELLED", "The simulator does not model this value.")


def _apply_fields(channel: GuildChannel, form: Mapping[str, Any]) -> None:
    channel.topic = form.get("topic", channel.topic)
    channel.is_nsfw = bool(form.get("nsfw", channel.is_nsfw))
    channel.slow_mode_seconds = form.get("rate_limit_per_user", channel.slow_mode_seconds) or 0


def _convert_name(name: str, type_: int) -> str:
    """Return a channel name as Discord stores it.

    A forum's name stays. Other names are in lower case, with `-` in place of spaces.
    """
    return name if type_ == FORUM else re.sub(r"\s+", "-", name.strip()).lower()
