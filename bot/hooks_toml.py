"""Parser of `hooks.toml`, which configures the hooks: a table `[NAME]` for each."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress

from dotenv import dotenv_values
from pydantic import ValidationError

from bot.agents_toml import read_agents
from bot.settings import Settings
from bot.settings.parsing import read_toml
from core.errors import SettingsError
from core.observability.messages import describe_invalid_value
from core.turns.automation.hooks import HOOK_NAME, Hook

#: Keys whose values messages do not repeat: one may be a secret by mistake, the other is long.
_HIDDEN_KEYS = ("secret", "prompt")


def read_hooks(settings: Settings) -> Mapping[str, Hook]:
    """Return the hooks of the settings by name; empty without a file of hooks.

    Raises:
        SettingsError: it has a line for each fault.
    """
    file = settings.hooks_path
    if file is None:
        return {}
    tables = read_toml(file, "HOOKS_FILE")
    variables = {name: value for name, value in dotenv_values(".env").items() if value} | os.environ
    hooks = dict[str, Hook]()
    faults = list[str]()
    for name, table in tables.items():
        if HOOK_NAME.fullmatch(name) is None:
            faults.append(f"[{name}] a name: it must have small letters, digits, - and _ only, at most 40")
            continue
        try:
            hooks[name] = Hook.model_validate(table, context=variables)
        except ValidationError as error:
            faults += (f"[{name}] {line}" for line in _describe_errors(error))
        else:
            faults += (f"[{name}] {line}" for line in _find_conflicts(hooks[name], settings))
    if not tables:
        faults.append("it is empty: write a table [NAME] for each hook, or remove the file")
    if faults:
        raise SettingsError(*(f"{file}: {fault}" for fault in faults))
    return hooks


def _describe_errors(error: ValidationError) -> Iterator[str]:
    for fault in error.errors():
        loc = [str(part) for part in fault["loc"]]
        if not loc or loc[0] in _HIDDEN_KEYS:
            fault["input"] = None
        problem = describe_invalid_value(fault, known_keys=Hook.model_fields)
        yield f"{'.'.join(loc)}{': ' if loc else ''}{problem}"


def _find_conflicts(hook: Hook, settings: Settings) -> Iterator[str]:
    if hook.agent and settings.agents_path is None:
        yield f"agent={hook.agent}: there is one agent only: remove agent, or write agents.toml"
    elif hook.agent and settings.agents_path is not None:
        with suppress(SettingsError):  # the check of the agents reports it
            agents = read_agents(settings.agents_path).agents
            if hook.agent not in agents:
                yield f"agent={hook.agent}: it is not in {settings.agents_path}: write one of {', '.join(agents)}"
    if hook.platform == "discord" and settings.discord is None:
        yield f"place={hook.place}: Discord is not set up: set DISCORD_BOT_TOKEN"
    if hook.platform == "slack" and settings.slack is None:
        yield f"place={hook.place}: Slack is not set up: set SLACK_BOT_TOKEN"
    if hook.platform == "slack" and settings.slack_client_id and hook.place.count(":") == 1:
        yield f"place={hook.place}: the app serves several workspaces: write slack:T...:{hook.target}"
