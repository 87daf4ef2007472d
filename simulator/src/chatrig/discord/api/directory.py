"""REST routes of the bot, its application, the server, its members and stickers.

Discord: docs.discord.com/developers/resources.
"""

from chatrig.discord.api.base import DiscordRestApi
from chatrig.discord.api.requests import (
    CANNOT_MESSAGE_USER,
    MISSING_ACCESS,
    UNKNOWN_GUILD,
    UNKNOWN_MEMBER,
    UNKNOWN_STICKER,
    ApiRequest,
    ApiResponse,
    DiscordError,
    create_form_error,
    parse_bool,
    parse_limit,
    parse_page,
    parse_snowflake,
)
from chatrig.discord.state.messages import DiscordUser

MAX_MEMBERS = 1000


class DirectoryRoutes:
    """REST routes that read the bot, the server, its members and stickers.

    The routes that open a DM and rename members are here, too.
    """

    def __init__(self, api: DiscordRestApi) -> None:
        self._api = api
        self._guild = api.guild
        self._payloads = api.payloads
        api.add_route("GET /applications/@me", lambda _: ApiResponse(self._payloads.application()))
        api.add_route("GET /oauth2/applications/@me", lambda _: ApiResponse(self._payloads.application()))
        api.add_route(
            "GET /users/{user}",
            lambda request: ApiResponse(self._payloads.user(api.get_user(request.path_ids["user"]))),
        )
        api.add_route("GET /users/@me/guilds", self._list_guilds)
        api.add_route("POST /users/@me/channels", self._open_dm)
        api.add_route("GET /guilds/{guild}", self._get_guild)
        api.add_route("GET /guilds/{guild}/roles", self._list_roles)
        members = "/guilds/{guild}/members"
        api.add_route(f"GET {members}", self._list_members)
        api.add_route(f"GET {members}/search", self._search_members)
        api.add_route(f"GET {members}/{{user}}", self._get_member)
        api.add_route(f"PATCH {members}/@me", self._update_own_member)
        api.add_route(f"PATCH {members}/{{user}}", self._update_member)
        api.add_route("GET /guilds/{guild}/stickers", self._list_stickers)
        api.add_route("GET /stickers/{sticker}", self._get_sticker)

    def _list_guilds(self, request: ApiRequest) -> ApiResponse:
        """Return a page of the bot's servers: the simulator's server, or an empty list.

        The list is empty if the bot is not in the server, or `before` or `after` exclude the server.
        """
        query = request.query
        is_behind = int(self._guild.id) > parse_snowflake("after", query.get("after", "0"))
        is_ahead = "before" not in query or int(self._guild.id) < parse_snowflake("before", query["before"])
        guilds = self._payloads.bot_guilds(with_counts=parse_bool(query, "with_counts"))
        return ApiResponse(guilds if is_behind and is_ahead else [])

    def _open_dm(self, request: ApiRequest) -> ApiResponse:
        user = self._api.get_user(str(request.form.get("recipient_id")))
        if user.is_bot:
            raise DiscordError(400, CANNOT_MESSAGE_USER, "Cannot send messages to this user")
        return ApiResponse(self._payloads.channel(self._guild.open_dm(user)))

    def _get_guild(self, request: ApiRequest) -> ApiResponse:
        # Discord: the server itself is unknown to a removed bot (discord-api-docs #5840).
        if not self._guild.has_bot:
            raise DiscordError(404, UNKNOWN_GUILD, "Unknown Guild")
        self._api.check_guild(request)
        about = self._payloads.guild()
        if parse_bool(request.query, "with_counts"):
            about |= self._payloads.guild_counts()
        return ApiResponse(about)

    def _list_roles(self, request: ApiRequest) -> ApiResponse:
        self._api.check_guild(request)
        return ApiResponse(self._payloads.guild()["roles"])

    # Members

    def _list_members(self, request: ApiRequest) -> ApiResponse:
        """Return a page of the server's members, ordered by their ids: see `parse_page`.

        By default the page has one member.

        Raises:
            DiscordError: 50001, the privileged intent for members is disabled; 50035, the limit is invalid.
        """
        self._api.check_guild(request)
        if "guild_members" not in self._api.privileged_intents:
            raise DiscordError(403, MISSING_ACCESS, "Missing Access")
        ids = [user.id for user in self._guild.list_members()]
        page = parse_page(request.query, ids, MAX_MEMBERS, default=1)
        return ApiResponse([self._payloads.member(self._guild.users[user]) for user in page])

    def _search_members(self, request: ApiRequest) -> ApiResponse:
        """Return the members whose user name, display name or nickname starts with a text.

        The text is `query` in the query; case does not matter. At most `limit` members are returned, by default one.

        Raises:
            DiscordError: 50035, the text is missing or the limit is invalid.
        """
        self._api.check_guild(request)
        text = request.query.get("query", "").casefold()
        if not text:
            raise create_form_error("query", "BASE_TYPE_REQUIRED", "This field is required")
        limit = parse_limit(request.query, MAX_MEMBERS, default=1)
        found = [
            user
            for user in self._guild.list_members()
            if any(
                name.casefold().startswith(text)
                for name in (user.name, user.display_name, self._guild.nicknames.get(user.id, ""))
            )
        ]
        return ApiResponse([self._payloads.member(user) for user in found[:limit]])

    def _get_member(self, request: ApiRequest) -> ApiResponse:
        return ApiResponse(self._payloads.member(self._find_member(request)))

    def _update_own_member(self, request: ApiRequest) -> ApiResponse:
        self._api.check_guild(request)
        return self._rename_member(request, self._guild.bot, "change_nickname")

    def _update_member(self, request: ApiRequest) -> ApiResponse:
        return self._rename_member(request, self._find_member(request), "manage_nicknames")

    def _rename_member(self, request: ApiRequest, user: DiscordUser, permission: str) -> ApiResponse:
        for name, value in request.form.items():
            if name != "nick" and value is not None:
                raise create_form_error(name, "SIMULATOR_NOT_MODELLED", "The simulator does not model this field.")
        if "nick" in request.form:
            self._api.check_permissions(permission)
            self._guild.set_nickname(user, request.form["nick"])
        return ApiResponse(self._payloads.member(user))

    def _find_member(self, request: ApiRequest) -> DiscordUser:
        self._api.check_guild(request)
        user = self._guild.users.get(request.path_ids["user"])
        if user is None or user.id in self._guild.roles.absent_user_ids:
            raise DiscordError(404, UNKNOWN_MEMBER, "Unknown Member")
        return user

    # Stickers

    def _list_stickers(self, request: ApiRequest) -> ApiResponse:
        self._api.check_guild(request)
        return ApiResponse([self._payloads.sticker(key) for key in self._guild.integrations.stickers])

    def _get_sticker(self, request: ApiRequest) -> ApiResponse:
        key = request.path_ids["sticker"]
        if key not in self._guild.integrations.stickers:
            raise DiscordError(404, UNKNOWN_STICKER, "Unknown Sticker")
        return ApiResponse(self._payloads.sticker(key))
