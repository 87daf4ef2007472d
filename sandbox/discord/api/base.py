"""The routes of the REST API, and what the bot may do where."""

import re
from collections.abc import Callable

from sandbox.discord.api.requests import (
    MISSING_ACCESS,
    MISSING_PERMISSIONS,
    UNKNOWN_CHANNEL,
    UNKNOWN_GUILD,
    UNKNOWN_MESSAGE,
    UNKNOWN_USER,
    ApiRequest,
    ApiResponse,
    DiscordError,
)
from sandbox.discord.state.guild import DiscordMessage, DiscordUser, Guild, GuildChannel
from sandbox.discord.state.payloads import DiscordPayloads
from sandbox.discord.state.permissions import PERMISSIONS

Handler = Callable[[ApiRequest], ApiResponse]


class DiscordRestApi:
    """Routes are named as Discord documents them: `GET /channels/{channel}`.

    Attributes:
        routes: those that there are.
        permissions: what the bot may do everywhere.
        privileged: which privileged intents are on.
    """

    def __init__(self, guild: Guild, payloads: DiscordPayloads, permissions: set[str], privileged: set[str]) -> None:
        self.guild = guild
        self.payloads = payloads
        self.permissions = permissions
        self.privileged_intents = privileged
        self.routes: dict[str, Handler] = {}
        self._patterns: list[tuple[re.Pattern[str], str]] = []

    def add_route(self, route: str, handler: Handler) -> None:
        self.routes[route] = handler
        parts = re.split(r"\{(\w+)\}", route)
        pattern = "".join(f"(?P<{p}>[^/]+)" if i % 2 else re.escape(p) for i, p in enumerate(parts))
        self._patterns.append((re.compile(pattern), route))

    def match_route(self, method: str, path: str) -> tuple[str, dict[str, str]] | None:
        """The route of a request, and the ids in its path."""
        for pattern, route in self._patterns:
            if found := pattern.fullmatch(f"{method} {path}"):
                return route, found.groupdict()
        return None

    # What a request names

    def get_channel(self, request: ApiRequest, *permissions: str) -> GuildChannel:
        """The channel that the path names, if the bot has these permissions there.

        Raises:
            DiscordError: 10003, 50001 or 50013.
        """
        channel = self.guild.channels.get(request.path_ids["channel"])
        if channel is None:
            raise DiscordError(404, UNKNOWN_CHANNEL, "Unknown Channel")
        if not channel.is_visible_to(self.guild.bot.id) or not (channel.is_dm or "view_channel" in self.permissions):
            raise DiscordError(403, MISSING_ACCESS, "Missing Access")
        if not channel.is_dm:
            self.check_permissions(*permissions)
        return channel

    def check_permissions(self, *permissions: str) -> None:
        """Raises DiscordError (50013), if the bot lacks one of them."""
        if any(permission in PERMISSIONS and permission not in self.permissions for permission in permissions):
            raise DiscordError(403, MISSING_PERMISSIONS, "Missing Permissions")

    def get_message(self, request: ApiRequest, channel: GuildChannel) -> DiscordMessage:
        """Raises DiscordError (10008), if there is none."""
        message = self.guild.find_message(channel, request.path_ids["message"])
        if message is None:
            raise DiscordError(404, UNKNOWN_MESSAGE, "Unknown Message")
        return message

    def get_user(self, user_id: str) -> DiscordUser:
        """Raises DiscordError (10013), if there is none."""
        user = self.guild.users.get(user_id)
        if user is None:
            raise DiscordError(404, UNKNOWN_USER, "Unknown User")
        return user

    def check_guild(self, request: ApiRequest) -> None:
        """Raises DiscordError (10004), if the path names another server."""
        if request.path_ids.get("guild", self.guild.id) != self.guild.id:
            raise DiscordError(404, UNKNOWN_GUILD, "Unknown Guild")

    def is_readable(self, message: DiscordMessage) -> bool:
        """Whether the bot may read it though the message content intent is off.

        Discord: its own, direct messages, and what mentions it.
        """
        bot = self.guild.bot
        return message.author == bot or message.channel.is_dm or bot.id in message.mentions.users
