"""Route table of the REST API, and the checks of permissions that routes share."""

import re
from collections.abc import Callable
from functools import cached_property

from chatrig.discord.api.request_schemas import list_unmodelled_routes
from chatrig.discord.api.requests import (
    MISSING_ACCESS,
    MISSING_PERMISSIONS,
    NON_TEXT_CHANNEL,
    THREAD_LOCKED,
    UNKNOWN_CHANNEL,
    UNKNOWN_GUILD,
    UNKNOWN_MESSAGE,
    UNKNOWN_USER,
    ApiRequest,
    ApiResponse,
    DiscordError,
    parse_snowflake,
)
from chatrig.discord.state.guild import Guild
from chatrig.discord.state.messages import DiscordMessage, DiscordUser, GuildChannel
from chatrig.discord.state.payloads import DiscordPayloads
from chatrig.discord.state.permissions import PERMISSIONS

#: Ids in paths that are snowflakes; others are tokens, codes, emojis and numbers.
_SNOWFLAKES = {"application", "channel", "command", "guild", "interaction", "message", "sticker", "user"}

Handler = Callable[[ApiRequest], ApiResponse]


class DiscordRestApi:
    """Route table of the REST API, with lookups of the objects in a request's path.

    Routes are named as Discord documents them: `GET /channels/{channel}`. Lookups raise Discord's errors.

    Attributes:
        routes: handlers by route.
        permissions: names of the bot's permissions, which it has in every channel.
        privileged_intents: names of the privileged intents that are enabled.
    """

    def __init__(self, guild: Guild, payloads: DiscordPayloads, permissions: set[str], privileged: set[str]) -> None:
        self.guild = guild
        self.payloads = payloads
        self.permissions = permissions
        self.privileged_intents = privileged
        self.routes: dict[str, Handler] = {}

    def add_route(self, route: str, handler: Handler) -> None:
        self.routes[route] = handler

    def match_route(self, method: str, path: str) -> tuple[str, dict[str, str]] | None:
        """Return the route of a request, and the ids in its path.

        Args:
            path: the path without `/api/v10` and query.

        Returns:
            The route, such as `GET /channels/{channel}`, and the ids by their names in it (`channel`). None if Discord
            or the simulator has no such route.
        """
        for pattern, route in self._patterns:
            if match := pattern.fullmatch(f"{method} {path}"):
                return (route, match.groupdict()) if route in self.routes else None
        return None

    @cached_property
    def _patterns(self) -> list[tuple[re.Pattern[str], str]]:
        """Pairs of a pattern and a route for all routes, the more literal ones first.

        Discord's routes that are not modelled are included, so that their words do not match ids of other routes.
        """
        routes = [*self.routes, *list_unmodelled_routes(self.routes)]
        routes.sort(key=lambda route: [part.startswith("{") for part in route.split("/")])
        return [(re.compile(_create_pattern(route)), route) for route in routes]

    # Objects of a request

    def get_channel(self, request: ApiRequest, *permissions: str) -> GuildChannel:
        """Return the channel in a request's path, if the bot sees it and has permissions.

        Args:
            permissions: names of the permissions that the bot needs in a server's channel.

        Raises:
            DiscordError: 10003 (unknown), 50001 (not visible) or 50013 (lacks a permission).
        """
        channel = self.guild.channels.get(request.path_ids["channel"])
        if channel is None:
            raise DiscordError(404, UNKNOWN_CHANNEL, "Unknown Channel")
        if not self.can_view(channel):
            raise DiscordError(403, MISSING_ACCESS, "Missing Access")
        if not channel.is_dm:
            self.check_permissions(*permissions)
        return channel

    def get_writable_channel(self, request: ApiRequest) -> GuildChannel:
        """Return the channel in a request's path, if the bot may post in it.

        Raises:
            DiscordError: 10003 (unknown), 50001 (not visible), 50008 (not a text channel), 50013 (lacks a permission)
                or 160005 (locked thread).
        """
        channel = self.get_channel(request)
        if channel.kind == "forum":
            raise DiscordError(400, NON_TEXT_CHANNEL, "Cannot send messages in a non-text channel")
        if not channel.is_dm:
            self.check_permissions("send_messages_in_threads" if channel.is_thread else "send_messages")
        if channel.locked:
            raise DiscordError(400, THREAD_LOCKED, "This thread is locked")
        return channel

    def can_view(self, channel: GuildChannel) -> bool:
        """Return whether the bot is in a channel and, except in DMs, may view channels."""
        is_visible = self.guild.is_visible(channel, self.guild.bot.id)
        return is_visible and (channel.is_dm or "view_channel" in self.permissions)

    def check_permissions(self, *permissions: str) -> None:
        """Check that the bot has permissions; those that the simulator does not know pass.

        Raises:
            DiscordError: 50001, the bot was removed from the server; 50013, it lacks one of the permissions.
        """
        if not self.guild.has_bot:
            raise DiscordError(403, MISSING_ACCESS, "Missing Access")
        if any(permission in PERMISSIONS and permission not in self.permissions for permission in permissions):
            raise DiscordError(403, MISSING_PERMISSIONS, "Missing Permissions")

    def get_message(self, request: ApiRequest, channel: GuildChannel) -> DiscordMessage:
        """Return the message in a request's path.

        Raises:
            DiscordError: 10008, the message does not exist in the channel, or is deleted or ephemeral.
        """
        message = self.guild.find_message(channel, request.path_ids["message"])
        if message is None:
            raise DiscordError(404, UNKNOWN_MESSAGE, "Unknown Message")
        return message

    def get_user(self, user_id: str) -> DiscordUser:
        """Return the user with this id.

        Raises:
            DiscordError: 10013, the user does not exist.
        """
        user = self.guild.users.get(user_id)
        if user is None:
            raise DiscordError(404, UNKNOWN_USER, "Unknown User")
        return user

    @staticmethod
    def check_ids(request: ApiRequest) -> None:
        """Check that the snowflakes in a request's path are numbers.

        The message id may also be `@original`.

        Raises:
            DiscordError: 50035, an id is no number.
        """
        for name, value in request.path_ids.items():
            if name in _SNOWFLAKES and (name, value) != ("message", "@original"):
                parse_snowflake(f"{name}_id", value)

    def check_guild(self, request: ApiRequest) -> None:
        """Check that a request's path names the simulator's server, if it names one, and the bot is in it.

        Discord: a removed bot gets "Missing Access" for members (discord-api-docs #1716). Here, it gets this error for
        all objects of the server.

        Raises:
            DiscordError: 10004, the path names another server; 50001, the bot was removed from the server.
        """
        guild_id = request.path_ids.get("guild")
        if guild_id not in (None, self.guild.id):
            raise DiscordError(404, UNKNOWN_GUILD, "Unknown Guild")
        if guild_id is not None and not self.guild.has_bot:
            raise DiscordError(403, MISSING_ACCESS, "Missing Access")

    def is_readable(self, message: DiscordMessage) -> bool:
        """Return whether the bot may read a message without the message content intent.

        Discord: its own messages, DMs, and messages that mention it. A mention counts if it pings the bot's user.
        """
        bot = self.guild.bot
        return message.author == bot or message.channel.is_dm or bot.id in message.mentions.users


def _create_pattern(route: str) -> str:
    parts = re.split(r"\{(\w+)\}", route)
    return "".join(f"(?P<{p}>[^/]+)" if i % 2 else re.escape(p) for i, p in enumerate(parts))
