"""What Slack takes for a manifest, as far as an app may trip over it.

Slack: docs.slack.dev/reference/app-manifest. That a built-in command makes Slack refuse the whole is not published, but
reported by several.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from sandbox.slack.api.assistant import MOST_PROMPTS
from sandbox.slack.events.dispatcher import EVENT_SCOPES

#: Slack's own commands, as far as they are known.
BUILT_IN = frozenset(
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

_NAME, _ABOUT, _COMMAND, _SHORTCUT, _AGENT = 35, 140, 32, 24, 300


def check_manifest(manifest: Mapping[str, Any]) -> None:
    """See whether Slack would take it.

    Raises:
        ValueError: with all that is wrong.
    """
    if faults := list(_faults(manifest)):
        raise ValueError("; ".join(faults))


def _faults(manifest: Mapping[str, Any]) -> Iterator[str]:
    shown, features = manifest.get("display_information", {}), manifest["features"]
    yield from _too_long("name", shown.get("name", ""), _NAME)
    yield from _too_long("description", shown.get("description", ""), _ABOUT)
    for command in features.get("slash_commands", ()):
        if command["command"] in BUILT_IN or not command["command"].startswith("/"):
            yield f"{command['command']}: the slash command has an invalid name"
        yield from _too_long(command["command"], command["command"], _COMMAND)
    for shortcut in features.get("shortcuts", ()):
        yield from _too_long("shortcut", shortcut["name"], _SHORTCUT)
    agent = features.get("agent_view")
    bot = manifest["oauth_config"]["scopes"]["bot"]
    if agent is not None:
        yield from _too_long("agent_description", agent["agent_description"], _AGENT)
        if len(agent.get("suggested_prompts", ())) > MOST_PROMPTS:
            yield f"no more than {MOST_PROMPTS} suggested prompts"
    if (agent is None) == ("assistant:write" in bot):
        yield "assistant:write is for agents, and needed by them"
    settings = manifest["settings"]
    if not settings["socket_mode_enabled"] and "request_url" not in settings["event_subscriptions"]:
        yield "without Socket Mode, events need a request_url"
    for event in manifest["settings"]["event_subscriptions"]["bot_events"]:
        if event not in EVENT_SCOPES:
            yield f"{event} is not known"
        elif (scope := EVENT_SCOPES[event]) is not None and scope not in bot:
            yield f"{event} needs {scope}"


def _too_long(what: str, text: str, most: int) -> Iterator[str]:
    if len(text) > most:
        yield f"{what}: must be less than {most + 1} characters"
