"""Slack app manifest: the events, commands and scopes that the code uses.

Slack: docs.slack.dev/reference/app-manifest.
"""

from collections.abc import Sequence
from typing import Any

from channels.commands.handlers import ARGUMENT_PLACEHOLDERS, COMMAND_DESCRIPTIONS
from channels.slack.client.auth import OPTIONAL_SCOPES, SCOPES
from channels.slack.client.http_mode import EVENTS_PATH
from channels.slack.client.oauth import REDIRECT_PATH
from channels.slack.interactions.commands import SLASH_COMMANDS
from channels.slack.interactions.shortcuts import SHORTCUT_DESCRIPTIONS, SHORTCUTS, make_command_syntax

APP_NAME = "Parley"
APP_DESCRIPTION = "An agent that answers in threads and direct messages."

#: A user opens the direct messages with the bot.
HOME_OPENED = "app_home_opened"

#: A user opens another channel or object while the app is visible.
CONTEXT_CHANGED = "app_context_changed"

#: A user pressed Slack's own stop button of a thread.
SESSION_STOPPED = "agent_session_stopped"

#: The app was removed from a workspace; tokens were revoked, for that or for another reason.
APP_UNINSTALLED, TOKENS_REVOKED = "app_uninstalled", "tokens_revoked"

EVENTS = frozenset(
    {
        "app_mention",
        "message.channels",
        "message.groups",
        "message.im",
        "message.mpim",
        CONTEXT_CHANGED,
        HOME_OPENED,
        SESSION_STOPPED,
        APP_UNINSTALLED,
        TOKENS_REVOKED,
    }
)


def manifest(
    *, prompts: Sequence[str], address: str = "", oauth_address: str = "", command_prefix: str = ""
) -> dict[str, Any]:
    """Return the app manifest as a JSON object, from which Slack creates the app.

    Args:
        address: the public URL of the bot's HTTP server (`https://...`) for HTTP mode; empty for Socket Mode.
        oauth_address: the public URL of the same server for OAuth in several workspaces; empty for one workspace.
    """
    url = f"{address}{EVENTS_PATH}" if address else ""
    syntax = make_command_syntax(command_prefix)
    redirect = {"redirect_urls": [f"{oauth_address}{REDIRECT_PATH}"]} if oauth_address else {}
    suggested_prompts = [{"title": prompt, "message": prompt} for prompt in prompts]
    return {
        "display_information": {"name": APP_NAME, "description": APP_DESCRIPTION},
        "features": {
            "agent_view": {
                "agent_description": APP_DESCRIPTION,
                **({"suggested_prompts": suggested_prompts} if suggested_prompts else {}),
            },
            "app_home": {
                "home_tab_enabled": False,
                "messages_tab_enabled": True,
                "messages_tab_read_only_enabled": False,
            },
            "bot_user": {"display_name": APP_NAME, "always_online": True},
            "shortcuts": [
                {"name": name, "type": "message", "callback_id": id_, "description": SHORTCUT_DESCRIPTIONS[id_]}
                for id_, name in SHORTCUTS.items()
            ],
            "slash_commands": [
                {
                    "command": syntax.format_slash_command(name),
                    "description": f"{COMMAND_DESCRIPTIONS[name][0].upper()}{COMMAND_DESCRIPTIONS[name][1:]}",
                    **({"usage_hint": f"[{ARGUMENT_PLACEHOLDERS[name]}]"} if name in ARGUMENT_PLACEHOLDERS else {}),
                    "should_escape": False,
                    **({"url": url} if url else {}),
                }
                for name in SLASH_COMMANDS.values()
            ],
        },
        "oauth_config": {"scopes": {"bot": sorted(SCOPES | OPTIONAL_SCOPES)}, **redirect},
        "settings": {
            "event_subscriptions": {"bot_events": sorted(EVENTS), **({"request_url": url} if url else {})},
            "interactivity": {"is_enabled": True, **({"request_url": url} if url else {})},
            "org_deploy_enabled": False,
            "socket_mode_enabled": not url,
            "token_rotation_enabled": False,
        },
    }
