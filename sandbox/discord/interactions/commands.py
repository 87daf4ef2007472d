"""Registry of application commands.

Discord: docs.discord.com/developers/interactions/application-commands.
"""

import re
from collections.abc import Mapping
from typing import Any

from sandbox.discord.api.base import DiscordRestApi
from sandbox.discord.api.requests import ApiRequest, ApiResponse, create_form_error, is_true
from sandbox.discord.state.guild import GuildChannel
from sandbox.discord.state.payloads import Json
from sandbox.discord.state.snowflakes import create_id

SLASH, USER, MESSAGE = 1, 2, 3
#: Discord: limits of commands by type, and of the options and choices of a slash command.
MAX_COMMANDS = {SLASH: 100, USER: 15, MESSAGE: 15}
MAX_OPTIONS, MAX_CHOICES = 25, 25

_NAME_PATTERN = re.compile(r"[-_'\w]{1,32}")


class CommandRegistry:
    """Application commands, and the routes that register them.

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

    def _replace_commands(self, request: ApiRequest) -> ApiResponse:
        """Replace all commands of the server or all global ones; a command of the same name retains its id."""
        self._api.check_guild(request)
        place, commands = request.path_ids.get("guild"), request.body.json
        if not isinstance(commands, list) or len(commands) > sum(MAX_COMMANDS.values()):
            raise create_form_error(
                "_errors", "BASE_TYPE_MAX_LENGTH", f"Must be {sum(MAX_COMMANDS.values())} or fewer in length."
            )
        ids_by_command = {
            (command["type"], command["name"]): command["id"] for command in self.registered.get(place, [])
        }
        registered: dict[tuple[int, str], Json] = {}
        for number, command in enumerate(commands):
            type_, name = command.get("type") or SLASH, str(command.get("name"))
            _check_command(number, type_, command)
            if (type_, name) in registered:
                raise create_form_error(
                    f"{number}.name", "APPLICATION_COMMANDS_DUPLICATE_NAME", "Names must be unique."
                )
            registered[type_, name] = {
                "default_member_permissions": None,
                "description": "",
                "nsfw": False,
                **{field: value for field, value in command.items() if value is not None},
                "id": ids_by_command.get((type_, name)) or create_id(),
                "application_id": self._guild.bot.id,
                "version": create_id(),
                "type": type_,
            } | ({"guild_id": place} if place else {})
        for type_, max_count in MAX_COMMANDS.items():
            if sum(kind == type_ for kind, _ in registered) > max_count:
                raise create_form_error(
                    "_errors", "APPLICATION_COMMAND_TOO_MANY", f"At most {max_count} commands of type {type_}."
                )
        self.registered[place] = list(registered.values())
        return ApiResponse(self.registered[place])

    def _list_commands(self, request: ApiRequest) -> ApiResponse:
        """Return the commands, with localizations if the query has `with_localizations`."""
        self._api.check_guild(request)
        registered = self.registered.get(request.path_ids.get("guild"), [])
        is_whole = is_true(request.query, "with_localizations")
        return ApiResponse(registered if is_whole else [_remove_localizations(command) for command in registered])

    def find_command(self, type_: int, name: str, channel: GuildChannel) -> Json:
        """Return the JSON of a command that is available in a channel.

        Args:
            type_: `SLASH`, `USER` or `MESSAGE`.

        Raises:
            ValueError: the command is not registered, or is not available in the channel.
        """
        everywhere, here = self.registered.get(None, []), self.registered.get(self._guild.id, [])
        usable = [*here, *everywhere] if channel.is_in_guild else everywhere
        for command in usable:
            contexts, installs = command.get("contexts"), command.get("integration_types") or [0]
            fits = (contexts is None or channel.interaction_context in contexts) and (
                channel.has_bot_access or 1 in installs
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
        options: values by name.
        focused: the option that the user is typing, for autocompletion; "" for a complete command.

    Raises:
        ValueError: an option is unknown or missing, or its value is not a choice.
    """
    data: Json = {"id": command["id"], "name": command["name"], "type": SLASH}
    options_by_name = {option["name"]: option for option in command.get("options", ())}
    if unknown := set(options) - set(options_by_name):
        raise ValueError(f"/{command['name']} has no option {min(unknown)}")
    if not focused and (
        lacking := {name for name, option in options_by_name.items() if option.get("required")} - set(options)
    ):
        raise ValueError(f"/{command['name']} needs the option {min(lacking)}")
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


def _check_command(number: int, type_: int, command: Mapping[str, Any]) -> None:
    name, description = str(command.get("name")), command.get("description") or ""
    if type_ == SLASH:
        _check_names(str(number), command)
    elif description:
        message = "Context menu commands cannot have description"
        raise create_form_error(f"{number}.description", "APPLICATION_COMMAND_INVALID_DESCRIPTION", message)
    elif not 1 <= len(name) <= 32:
        raise create_form_error(f"{number}.name", "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 32 in length.")
    options = command.get("options") or []
    if len(options) > MAX_OPTIONS:
        raise create_form_error(
            f"{number}.options", "BASE_TYPE_MAX_LENGTH", f"Must be {MAX_OPTIONS} or fewer in length."
        )
    needed = [bool(option.get("required")) for option in options]
    if sorted(needed, reverse=True) != needed:
        message = "Required options must be placed before non-required options"
        raise create_form_error(f"{number}.options", "APPLICATION_COMMAND_OPTIONS_REQUIRED_INVALID", message)
    for place, option in enumerate(options):
        _check_names(f"{number}.options.{place}", option)
        choices = option.get("choices") or []
        if len(choices) > MAX_CHOICES or (choices and option.get("autocomplete")):
            raise create_form_error(
                f"{number}.options.{place}.choices",
                "BASE_TYPE_MAX_LENGTH",
                "Must be 25 or fewer, and none with autocomplete",
            )


def _check_names(field: str, about: Mapping[str, Any]) -> None:
    """Check the name and description of a command or option in each language."""
    _check_name(f"{field}.name", str(about.get("name")))
    _check_description(f"{field}.description", about.get("description") or "")
    for language, name in (about.get("name_localizations") or {}).items():
        _check_name(f"{field}.name_localizations.{language}", name)
    for language, description in (about.get("description_localizations") or {}).items():
        _check_description(f"{field}.description_localizations.{language}", description)


def _check_name(field: str, name: str) -> None:
    if not _NAME_PATTERN.fullmatch(name) or name != name.lower():
        raise create_form_error(field, "APPLICATION_COMMAND_INVALID_NAME", "Command name is invalid")


def _check_description(field: str, description: str) -> None:
    if not 1 <= len(description) <= 100:
        raise create_form_error(field, "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 100 in length.")
