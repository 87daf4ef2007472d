"""REST routes of the bot, its application, the server, its channels and members.

Discord: docs.discord.com/developers/resources.
"""

from sandbox.discord.api.base import DiscordRestApi
from sandbox.discord.api.requests import (
    CANNOT_MESSAGE_USER,
    UNKNOWN_MEMBER,
    ApiRequest,
    ApiResponse,
    DiscordError,
    is_true,
)


class DirectoryRoutes:
    """Read routes, and the route that opens a DM."""

    def __init__(self, api: DiscordRestApi) -> None:
        self._api = api
        self._guild = api.guild
        self._payloads = api.payloads
        api.add_route("GET /users/@me", lambda _: ApiResponse(self._payloads.bot_user()))
        api.add_route("GET /applications/@me", lambda _: ApiResponse(self._payloads.application()))
        api.add_route("GET /oauth2/applications/@me", lambda _: ApiResponse(self._payloads.application()))
        api.add_route(
            "GET /users/{user}",
            lambda request: ApiResponse(self._payloads.user(api.get_user(request.path_ids["user"]))),
        )
        api.add_route("GET /users/@me/guilds", self._list_guilds)
        api.add_route("POST /users/@me/channels", self._open_dm)
        api.add_route(
            "GET /channels/{channel}", lambda request: ApiResponse(self._payloads.channel(api.get_channel(request)))
        )
        api.add_route("GET /guilds/{guild}", self._get_guild)
        api.add_route("GET /guilds/{guild}/channels", self._list_channels)
        api.add_route("GET /guilds/{guild}/roles", self._list_roles)
        api.add_route("GET /guilds/{guild}/members/{user}", self._get_member)
        api.add_route("GET /guilds/{guild}/threads/active", self._list_active_threads)

    def _list_guilds(self, request: ApiRequest) -> ApiResponse:
        """Return one page of the bot's servers: the sandbox's server, or nothing."""
        query = request.query
        is_behind = int(self._guild.id) > int(query.get("after", "0"))
        is_ahead = "before" not in query or int(self._guild.id) < int(query["before"])
        guilds = self._payloads.bot_guilds(with_counts=is_true(query, "with_counts"))
        return ApiResponse(guilds if is_behind and is_ahead else [])

    def _open_dm(self, request: ApiRequest) -> ApiResponse:
        user = self._api.get_user(str(request.form.get("recipient_id")))
        if user.is_bot:
            raise DiscordError(400, CANNOT_MESSAGE_USER, "Cannot send messages to this user")
        return ApiResponse(self._payloads.channel(self._guild.open_dm(user)))

    def _get_guild(self, request: ApiRequest) -> ApiResponse:
        self._api.check_guild(request)
        about = self._payloads.guild()
        if is_true(request.query, "with_counts"):
            about |= self._payloads.guild_counts()
        return ApiResponse(about)

    def _list_roles(self, request: ApiRequest) -> ApiResponse:
        self._api.check_guild(request)
        return ApiResponse(self._payloads.guild()["roles"])

    def _list_channels(self, request: ApiRequest) -> ApiResponse:
        self._api.check_guild(request)
        return ApiResponse(
            [self._payloads.channel(c) for c in self._guild.channels.values() if c.is_in_guild and not c.is_thread]
        )

    def _get_member(self, request: ApiRequest) -> ApiResponse:
        self._api.check_guild(request)
        user = self._guild.users.get(request.path_ids["user"])
        if user is None or user.id in self._guild.roles.absent_user_ids:
            raise DiscordError(404, UNKNOWN_MEMBER, "Unknown Member")
        return ApiResponse(self._payloads.member(user))

    def _list_active_threads(self, request: ApiRequest) -> ApiResponse:
        self._api.check_guild(request)
        bot = self._guild.bot.id
        threads = [thread for thread in self._guild.list_active_threads() if thread.is_visible_to(bot)]
        return ApiResponse(
            {
                "threads": [self._payloads.channel(thread) for thread in threads],
                "members": [self._payloads.thread_member(t, bot) for t in threads if bot in t.participants],
                "has_more": False,
            }
        )
