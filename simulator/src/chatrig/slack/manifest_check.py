"""Validation of an app manifest by Slack's rules.

Slack: docs.slack.dev/reference/app-manifest. It does not document that a built-in command makes a manifest invalid;
several users report it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from chatrig.slack.api.assistant import MAX_PROMPTS
from chatrig.slack.catalog import EVENT_SCOPES

#: Known built-in commands of Slack.
BUILT_IN_COMMANDS = frozenset(
    {
        "/archive",
        "/away",
        "/call",
        "/collapse",
        "/dm",
        "/dnd",
        "/expand",
        "/feed",
        "/invite",
        "/join",
        "/leave",
        "/me",
        "/msg",
        "/mute",
        "/open",
        "/pro",
        "/remind",
        "/remove",
        "/rename",
        "/search",
        "/shortcuts",
        "/shrug",
        "/status",
        "/topic",
        "/who",
    }
)

_MAX_NAME_CHARS, _MAX_DESCRIPTION_CHARS, _MAX_COMMAND_CHARS, _MAX_SHORTCUT_CHARS, _MAX_AGENT_DESCRIPTION_CHARS = (
    35,
    140,
    32,
    24,
    300,
)


def check_manifest(manifest: Mapping[str, Any]) -> None:
    """Check that Slack would accept an app manifest.

    All sections but `display_information` are optional (`Manifest` of slackapi/node-slack-sdk, packages/web-api).

    Args:
        manifest: the manifest as parsed JSON.

    Raises:
        ValueError: Slack would reject the manifest; the message lists all errors.
        KeyError: an item lacks a required field, such as `command` of a slash command.
    """
    if errors := list(_find_errors(manifest)):
        raise ValueError("; ".join(errors))


def get_bot_scopes(manifest: Mapping[str, Any]) -> Sequence[str]:
    """Return the bot's scopes in a manifest; an empty sequence without any."""
    scopes: Sequence[str] = manifest.get("oauth_config", {}).get("scopes", {}).get("bot", ())
    return scopes


def _find_errors(manifest: Mapping[str, Any]) -> Iterator[str]:
    display, features = manifest.get("display_information", {}), manifest.get("features", {})
    yield from _check_length("name", display.get("name", ""), _MAX_NAME_CHARS)
    yield from _check_length("description", display.get("description", ""), _MAX_DESCRIPTION_CHARS)
    for command in features.get("slash_commands", ()):
        if command["command"] in BUILT_IN_COMMANDS or not command["command"].startswith("/"):
            yield f"{command['command']}: the slash command has an invalid name"
        yield from _check_length(command["command"], command["command"], _MAX_COMMAND_CHARS)
    for shortcut in features.get("shortcuts", ()):
        yield from _check_length("shortcut", shortcut["name"], _MAX_SHORTCUT_CHARS)
    agent, assistant = features.get("agent_view"), features.get("assistant_view")
    bot = get_bot_scopes(manifest)
    if agent is not None:
        yield from _check_length("agent_description", agent["agent_description"], _MAX_AGENT_DESCRIPTION_CHARS)
        if len(agent.get("suggested_prompts", ())) > MAX_PROMPTS:
            yield f"no more than {MAX_PROMPTS} suggested prompts"
    if assistant is not None:
        yield from _check_length(
            "assistant_description", assistant["assistant_description"], _MAX_AGENT_DESCRIPTION_CHARS
        )
    if (agent is None and assistant is None) == ("assistant:write" in bot):
        yield "assistant:write is for agents only, and agents need it"
    settings = manifest.get("settings", {})
    subscriptions = settings.get("event_subscriptions")
    if subscriptions is not None and not settings.get("socket_mode_enabled") and "request_url" not in subscriptions:
        yield "without Socket Mode, events need a request_url"
    for event in (subscriptions or {}).get("bot_events", ()):
        if event not in EVENT_SCOPES:
            yield f"{event} is not known"
        elif (scopes := EVENT_SCOPES[event]) and not set(scopes) & set(bot):
            yield f"{event} needs {' or '.join(scopes)}"


def _check_length(name: str, text: str, max_chars: int) -> Iterator[str]:
    if len(text) > max_chars:
        yield f"{name}: must be less than {max_chars + 1} characters"
