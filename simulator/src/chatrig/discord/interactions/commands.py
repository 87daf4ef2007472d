"""Registry of the bot's application commands.

Discord: docs.discord.com/developers/interactions/application-commands.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from chatrig.discord.api.base import DiscordRestApi
from chatrig.discord.api.requests import (
    NO_CONTENT,
    TOO_MANY_COMMANDS,
    UNKNOWN_COMMAND,
    ApiRequest,
    ApiResponse,
    DiscordError,
    create_form_error,
    parse_bool,
)
from chatrig.discord.state.messages import GuildChannel
from chatrig.discord.state.payloads import Json
from chatrig.discord.state.snowflakes import create_id

SLASH, USER, MESSAGE = 1, 2, 3
#: Discord: limits of commands by type, and of the options and choices of a slash command.
MAX_COMMANDS = {SLASH: 100, USER: 15, MESSAGE: 15}
MAX_OPTIONS, MAX_CHOICES = 25, 25

_NAME_PATTERN = re.compile(r"[-_'\w]{1,32}")


class CommandRegistry:
    """The bot's application commands, and the REST routes that register them.

    Attributes:
        registered: the commands as JSON, by server id; None for the global ones.
    """

    def __init__(self, api: DiscordRestApi) -> None:
        self._api = api
        self._guild = api.guild
        self.registered: dict[str | None, list[Json]] = {}
        for place in ("/applications/{application}/commands", "/applications/{application}/guilds/{guild}/commands"):
            api.add_route(f"PUT {place}", self._replace_commands)
            api.add_route(f"GET {place}", self._list_commands)
            api.add_route(f"POST {place}", self._create_command)
            api.add_route(f"GET {place}/{{command}}", self._get_command)
            api.add_route(f"PATCH {place}/{{command}}", self._update_command)
            api.add_route(f"DELETE {place}/{{command}}", self._delete_command)

    def _replace_commands(self, request: ApiRequest) -> ApiResponse:
        """Replace all commands of the server in a request's path, else all global ones.

        A new command of the same type and name has the id of the old one.
        """
        self._api.check_guild(request)
        place, commands = request.path_ids.get("guild"), request.body.json
        if not isinstance(commands, list) or len(commands) > sum(MAX_COMMANDS.values()):
            raise create_form_error(
                "_errors", "BASE_TYPE_MAX_LENGTH", f"Must be {sum(MAX_COMMANDS.values())} or fewer in length."
            )
        registered: dict[tuple[int, str], Json] = {}
        for number, command in enumerate(commands):
            _check_command(str(number), command.get("type") or SLASH, command)
            about = self._create_payload(place, command)
            if _key(about) in registered:
                raise create_form_error(
                    f"{number}.name", "APPLICATION_COMMANDS_DUPLICATE_NAME", "Names must be unique."
                )
            registered[_key(about)] = about
        _check_counts(list(registered.values()))
        self.registered[place] = list(registered.values())
        return ApiResponse(self.registered[place])

    def _create_command(self, request: ApiRequest) -> ApiResponse:
        """Create a command, or replace the one with the same type and name.

        The command is one of the server in the request's path, else a global one. Discord: replies with 200 instead of
        201 if the command existed.
        """
        self._api.check_guild(request)
        place, form = request.path_ids.get("guild"), request.form
        _check_command("", form.get("type") or SLASH, form)
        about = self._create_payload(place, form)
        others = [command for command in self.registered.get(place, []) if command["id"] != about["id"]]
        is_new = len(others) == len(self.registered.get(place, []))
        _check_counts([*others, about])
        self.registered[place] = [*others, about]
        return ApiResponse(about, 201 if is_new else 200)

    def _get_command(self, request: ApiRequest) -> ApiResponse:
        return ApiResponse(self._find_registered(request))

    def _update_command(self, request: ApiRequest) -> ApiResponse:
        """Replace those fields of a command that the request contains."""
        command = self._find_registered(request)
        place, form = request.path_ids.get("guild"), request.form
        changed = {**command, **form, "type": command["type"]}
        _check_command("", command["type"], changed)
        others = [other for other in self.registered[place] if other is not command]
        if _key(changed) in map(_key, others):
            raise create_form_error("name", "APPLICATION_COMMANDS_DUPLICATE_NAME", "Names must be unique.")
        command.update(form | {"version": create_id()})
        return ApiResponse(command)

    def _delete_command(self, request: ApiRequest) -> ApiResponse:
        self.registered[request.path_ids.get("guild")].remove(self._find_registered(request))
        return NO_CONTENT

    def _find_registered(self, request: ApiRequest) -> Json:
        self._api.check_guild(request)
        for command in self.registered.get(request.path_ids.get("guild"), []):
            if command["id"] == request.path_ids["command"]:
                return command
        raise DiscordError(404, UNKNOWN_COMMAND, "Unknown application command")

    def _create_payload(self, place: str | None, command: Mapping[str, Any]) -> Json:
        """Return the JSON of a command as registered, with defaults and a new version.

        A command with the type and name of a registered one has its id.

        Args:
            place: the id of the server; None for a global command.
            command: the command in the request.
        """
        about = {
            "default_member_permissions": None,
            "description": "",
            "nsfw": False,
            **{field: value for field, value in command.items() if value is not None},
            "application_id": self._guild.bot.id,
            "version": create_id(),
            "type": command.get("type") or SLASH,
        } | ({"guild_id": place} if place else {})
        ids = {_key(known): known["id"] for known in self.registered.get(place, [])}
        return {"id": ids.get(_key(about)) or create_id(), **about}

    def _list_commands(self, request: ApiRequest) -> ApiResponse:
        """Return the commands of the server in a request's path, else the global ones.

        Localizations are included if the query has `with_localizations`.
        """
        self._api.check_guild(request)
        registered = self.registered.get(request.path_ids.get("guild"), [])
        is_whole = parse_bool(request.query, "with_localizations")
        return ApiResponse(registered if is_whole else [_remove_localizations(command) for command in registered])

    def find_command(self, type_: int, name: str, channel: GuildChannel) -> Json:
        """Return the JSON of a command that users can run in a channel.

        Args:
            type_: `SLASH`, `USER` or `MESSAGE`.

        Raises:
            ValueError: the command is not registered, or is not available in the channel.
        """
        global_commands, guild_commands = self.registered.get(None, []), self.registered.get(self._guild.id, [])
        usable = [*guild_commands, *global_commands] if channel.is_in_guild else global_commands
        for command in usable:
            contexts, installs = command.get("contexts"), command.get("integration_types") or [0]
            fits = (contexts is None or channel.interaction_context in contexts) and (
                channel.can_have_bot or 1 in installs
            )
            if fits and (command["type"], command["name"]) == (type_, name):
                return command
        raise ValueError(f"there is no command {'/' if type_ == SLASH else ''}{name} in {channel.name}")


def _remove_localizations(about: Any) -> Any:
    if isinstance(about, dict):
        return {
            name: _remove_localizations(part) for name, part in about.items() if not name.endswith("_localizations")
        }
    return [_remove_localizations(part) for part in about] if isinstance(about, list) else about


def create_command_data(command: Json, options: Mapping[str, Any], *, focused: str = "") -> Json:
    """Return the `data` of an interaction with a slash command.

    Args:
        command: the command's JSON.
        options: option values by name.
        focused: the name of the option that the user is typing, for autocompletion; "" for a complete command. Required
            options may then be missing.

    Returns:
        `id`, `name`, `type` and, if there are any, `options`, each with `name`, `type`, `value` and perhaps `focused`.

    Raises:
        ValueError: an option is unknown or missing, or its value is not a choice.
    """
    data: Json = {"id": command["id"], "name": command["name"], "type": SLASH}
    options_by_name = {option["name"]: option for option in command.get("options", ())}
    if unknown := set(options) - set(options_by_name):
        raise ValueError(f"/{command['name']} has no option {min(unknown)}")
    if not focused and (
        missing := {name for name, option in options_by_name.items() if option.get("required")} - set(options)
    ):
        raise ValueError(f"/{command['name']} needs the option {min(missing)}")
    for name, value in options.items():
        choices = [choice["value"] for choice in options_by_name[name].get("choices", ())]
        if choices and value not in choices:
            raise ValueError(f"{value} is not a choice of {name}")
    if options:
        data["options"] = [
            {"name": name, "type": options_by_name[name]["type"], "value": value}
            | ({"focused": True} if name == focused else {})
            for name, value in options.items()
        ]
    return data


def _key(command: Mapping[str, Any]) -> tuple[int, str]:
    return command["type"], command["name"]


def _check_counts(commands: Sequence[Json]) -> None:
    """Check that there are at most `MAX_COMMANDS` commands of each type.

    Raises:
        DiscordError: 30032, there are more.
    """
    for type_, max_count in MAX_COMMANDS.items():
        if sum(command["type"] == type_ for command in commands) > max_count:
            message = f"Maximum number of application commands reached ({max_count})."
            raise DiscordError(400, TOO_MANY_COMMANDS, message)


def _check_command(path: str, type_: int, command: Mapping[str, Any]) -> None:
    """Check the name, description and options of a command.

    Args:
        path: the path of the command in the request; "" if it is the whole request.

    Raises:
        DiscordError: 50035 with the first error.
    """
    name, description = str(command.get("name")), command.get("description") or ""
    if type_ == SLASH:
        _check_names(path, command)
    elif description:
        message = "Context menu commands cannot have description"
        raise create_form_error(_join(path, "description"), "APPLICATION_COMMAND_INVALID_DESCRIPTION", message)
    elif not 1 <= len(name) <= 32:
        raise create_form_error(_join(path, "name"), "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 32 in length.")
    options = command.get("options") or []
    if len(options) > MAX_OPTIONS:
        message = f"Must be {MAX_OPTIONS} or fewer in length."
        raise create_form_error(_join(path, "options"), "BASE_TYPE_MAX_LENGTH", message)
    is_required = [bool(option.get("required")) for option in options]
    if sorted(is_required, reverse=True) != is_required:
        message = "Required options must be placed before non-required options"
        raise create_form_error(_join(path, "options"), "APPLICATION_COMMAND_OPTIONS_REQUIRED_INVALID", message)
    for place, option in enumerate(options):
        _check_names(_join(path, f"options.{place}"), option)
        choices = option.get("choices") or []
        if len(choices) > MAX_CHOICES or (choices and option.get("autocomplete")):
            raise create_form_error(
                _join(path, f"options.{place}.choices"),
                "BASE_TYPE_MAX_LENGTH",
                "Must be 25 or fewer, and none with autocomplete",
            )


def _join(path: str, name: str) -> str:
    return f"{path}.{name}".lstrip(".")


def _check_names(field: str, about: Mapping[str, Any]) -> None:
    """Check the name and description of a command or option in each language.

    Args:
        field: the path of the command or option in the request.
        about: the command or option as JSON.

    Raises:
        DiscordError: 50035 with the first error.
    """
    _check_name(_join(field, "name"), str(about.get("name")))
    _check_description(_join(field, "description"), about.get("description") or "")
    for language, name in (about.get("name_localizations") or {}).items():
        _check_name(_join(field, f"name_localizations.{language}"), name)
    for language, description in (about.get("description_localizations") or {}).items():
        _check_description(_join(field, f"description_localizations.{language}"), description)


def _check_name(field: str, name: str) -> None:
    if not _NAME_PATTERN.fullmatch(name) or name != name.lower():
        raise create_form_error(field, "APPLICATION_COMMAND_INVALID_NAME", "Command name is invalid")


def _check_description(field: str, description: str) -> None:
    if not 1 <= len(description) <= 100:
        raise create_form_error(field, "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 100 in length.")
