"""REST routes of reactions, and of the server's own emojis.

Discord: docs.discord.com/developers/resources/message and docs.discord.com/developers/resources/emoji.
"""

import re

from chatrig.discord.api.base import DiscordRestApi
from chatrig.discord.api.requests import (
    NO_CONTENT,
    UNKNOWN_EMOJI,
    ApiRequest,
    ApiResponse,
    DiscordError,
    create_form_error,
    parse_page,
)
from chatrig.discord.state.messages import DiscordMessage, GuildEvent
from chatrig.discord.state.payloads import Json

_IMAGE_DATA = re.compile(r"data:image/(png|jpeg|gif|webp|avif);base64,\S+")


class ReactionRoutes:
    def __init__(self, api: DiscordRestApi) -> None:
        self._api = api
        self._guild = api.guild
        reactions = "/channels/{channel}/messages/{message}/reactions"
        api.add_route(f"PUT {reactions}/{{emoji}}/@me", self._add_reaction)
        api.add_route(f"DELETE {reactions}/{{emoji}}/@me", self._remove_own_reaction)
        api.add_route(f"DELETE {reactions}/{{emoji}}/{{user}}", self._remove_reaction)
        api.add_route(f"GET {reactions}/{{emoji}}", self._list_reactions)
        api.add_route(f"DELETE {reactions}", self._clear_reactions)
        api.add_route(f"DELETE {reactions}/{{emoji}}", self._clear_reactions)
        api.add_route("GET /guilds/{guild}/emojis", self._list_emojis)
        api.add_route("POST /guilds/{guild}/emojis", self._create_emoji)
        api.add_route("GET /guilds/{guild}/emojis/{emoji}", self._get_emoji)
        api.add_route("PATCH /guilds/{guild}/emojis/{emoji}", self._rename_emoji)
        api.add_route("DELETE /guilds/{guild}/emojis/{emoji}", self._delete_emoji)

    # Reactions

    def _add_reaction(self, request: ApiRequest) -> ApiResponse:
        channel = self._api.get_channel(request, "read_message_history")
        message, emoji = self._api.get_message(request, channel), self._parse_emoji(request)
        # Discord: the permission is for the first reaction with an emoji.
        if channel.is_in_guild and emoji not in message.reactions:
            self._api.check_permissions("add_reactions")
        self._guild.add_reaction(message, self._guild.bot, emoji)
        return NO_CONTENT

    def _remove_own_reaction(self, request: ApiRequest) -> ApiResponse:
        message = self._get_message(request)
        self._guild.remove_reaction(message, self._guild.bot, self._parse_emoji(request))
        return NO_CONTENT

    def _remove_reaction(self, request: ApiRequest) -> ApiResponse:
        message, emoji = self._get_message(request, "manage_messages"), self._parse_emoji(request)
        self._guild.remove_reaction(message, self._api.get_user(request.path_ids["user"]), emoji)
        return NO_CONTENT

    def _list_reactions(self, request: ApiRequest) -> ApiResponse:
        message, emoji = self._get_message(request, "read_message_history"), self._parse_emoji(request)
        # Discord: `type=1` are the burst reactions, of which the simulator has none.
        ids = message.reactions.get(emoji, []) if request.query.get("type", "0") == "0" else []
        users = [self._guild.users[user] for user in parse_page(request.query, sorted(ids, key=int), 100, default=25)]
        return ApiResponse([self._api.payloads.user(user) for user in users])

    def _clear_reactions(self, request: ApiRequest) -> ApiResponse:
        message = self._get_message(request, "manage_messages")
        self._guild.clear_reactions(message, self._parse_emoji(request) if "emoji" in request.path_ids else None)
        return NO_CONTENT

    def _get_message(self, request: ApiRequest, *permissions: str) -> DiscordMessage:
        return self._api.get_message(request, self._api.get_channel(request, *permissions))

    def _parse_emoji(self, request: ApiRequest) -> str:
        """Return the emoji in a request's path: a Unicode emoji, or `name:id`.

        The latter is an emoji of the server.

        Raises:
            DiscordError: 10014, the emoji is unknown.
        """
        emoji = request.path_ids["emoji"]
        name = self._guild.integrations.emojis.get(emoji.rpartition(":")[2])
        if emoji.isascii() and name is None:
            raise DiscordError(400, UNKNOWN_EMOJI, "Unknown Emoji")
        return emoji if name is None else f"{name}:{emoji.rpartition(':')[2]}"

    # Emojis

    def _list_emojis(self, request: ApiRequest) -> ApiResponse:
        self._api.check_guild(request)
        return ApiResponse(self._api.payloads.emojis())

    def _create_emoji(self, request: ApiRequest) -> ApiResponse:
        self._check_permission(request)
        if not _IMAGE_DATA.fullmatch(request.form["image"]):
            raise create_form_error("image", "BASE_TYPE_INVALID_IMAGE_DATA", "Invalid image data")
        emoji_id = self._guild.integrations.add_emoji(request.form["name"])
        self._guild.emit(GuildEvent("GUILD_EMOJIS_UPDATE"))
        return ApiResponse(self._find_emoji(emoji_id), 201)

    def _get_emoji(self, request: ApiRequest) -> ApiResponse:
        self._api.check_guild(request)
        return ApiResponse(self._find_emoji(request.path_ids["emoji"]))

    def _rename_emoji(self, request: ApiRequest) -> ApiResponse:
        self._check_permission(request)
        emoji_id = self._find_emoji(request.path_ids["emoji"])["id"]
        if "name" in request.form:
            self._guild.integrations.emojis[emoji_id] = request.form["name"]
            self._guild.emit(GuildEvent("GUILD_EMOJIS_UPDATE"))
        return ApiResponse(self._find_emoji(emoji_id))

    def _delete_emoji(self, request: ApiRequest) -> ApiResponse:
        self._check_permission(request)
        del self._guild.integrations.emojis[self._find_emoji(request.path_ids["emoji"])["id"]]
        self._guild.emit(GuildEvent("GUILD_EMOJIS_UPDATE"))
        return NO_CONTENT

    def _check_permission(self, request: ApiRequest) -> None:
        self._api.check_guild(request)
        self._api.check_permissions("manage_guild_expressions")

    def _find_emoji(self, emoji_id: str) -> Json:
        found = next((emoji for emoji in self._api.payloads.emojis() if emoji["id"] == emoji_id), None)
        if found is None:
            raise DiscordError(404, UNKNOWN_EMOJI, "Unknown Emoji")
        return found
