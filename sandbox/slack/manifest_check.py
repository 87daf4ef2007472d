"""Validation of an app manifest by Slack's rules.

Slack: docs.slack.dev/reference/app-manifest. It does not document that a built-in command makes a manifest invalid;
several users report it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from sandbox.slack.api.assistant import MAX_PROMPTS
from sandbox.slack.catalog import EVENT_SCOPES

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

    Args:
        manifest: the manifest as parsed JSON.

    Raises:
        ValueError: Slack would reject the manifest; the message lists all errors.
        KeyError: a section or field that the check needs is missing, such as `features` or `settings`.
    """
    if errors := list(_find_errors(manifest)):
        raise ValueError("; ".join(errors))


def _find_errors(manifest: Mapping[str, Any]) -> Iterator[str]:
    display, features = manifest.get("display_information", {}), manifest["features"]
    yield from _check_length("name", display.get("name", ""), _MAX_NAME_CHARS)
    yield from _check_length("description", display.get("description", ""), _MAX_DESCRIPTION_CHARS)
    for command in features.get("slash_commands", ()):
        if command["command"] in BUILT_IN_COMMANDS or not command["command"].startswith("/"):
            yield f"{command['command']}: the slash command has an invalid name"
        yield from _check_length(command["command"], command["command"], _MAX_COMMAND_CHARS)
    for shortcut in features.get("shortcuts", ()):
        yield from _check_length("shortcut", shortcut["name"], _MAX_SHORTCUT_CHARS)
    agent, assistant = features.get("agent_view"), features.get("assistant_view")
    bot = manifest["oauth_config"]["scopes"]["bot"]
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
    settings = manifest["settings"]
    if not settings["socket_mode_enabled"] and "request_url" not in settings["event_subscriptions"]:
        yield "without Socket Mode, events need a request_url"
    for event in manifest["settings"]["event_subscriptions"]["bot_events"]:
        if event not in EVENT_SCOPES:
            yield f"{event} is not known"
        elif (scopes := EVENT_SCOPES[event]) and not set(scopes) & set(bot):
            yield f"{event} needs {' or '.join(scopes)}"


def _check_length(name: str, text: str, max_chars: int) -> Iterator[str]:
    if len(text) > max_chars:
        yield f"{name}: must be less than {max_chars + 1} characters"
