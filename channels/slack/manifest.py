"""Slack app manifest: the events, commands and scopes that the code uses.

Slack: docs.slack.dev/reference/app-manifest.
"""

from collections.abc import Sequence
from typing import Any

from channels.commands.handlers import ARGUMENT_PLACEHOLDERS, COMMAND_DESCRIPTIONS
from channels.commands.syntax import CommandName, CommandSyntax
from channels.slack.client.auth import OPTIONAL_SCOPES, SCOPES
from channels.slack.client.http_mode import EVENTS_PATH
from channels.slack.client.oauth import REDIRECT_PATH
from channels.slack.client.openid import OPENID_SCOPE
from channels.slack.interactions.commands import SLASH_COMMANDS
from channels.slack.interactions.shortcuts import SHORTCUT_DESCRIPTIONS, SHORTCUTS, make_command_syntax
from core.signin.browser import IDENTITY_PATH

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

#: A user's account or profile changed; an account of a user who left the workspace is deactivated.
USER_CHANGED = "user_change"

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
        USER_CHANGED,
    }
)


def manifest(
    *,
    prompts: Sequence[str],
    address: str = "",
    oauth_address: str = "",
    sign_in_address: str = "",
    command_prefix: str = "",
) -> dict[str, Any]:
    """Return the app manifest as a JSON object, from which Slack creates the app.

    Args:
        address: the public URL of the bot's HTTP server (`https://...`) for HTTP mode; empty for Socket Mode.
        oauth_address: the public URL of the same server for OAuth in several workspaces; empty for one workspace.
        sign_in_address: the public URL of the same server for Sign in with Slack; empty without it.
    """
    url = f"{address}{EVENTS_PATH}" if address else ""
    agent_view: dict[str, Any] = {"agent_description": APP_DESCRIPTION}
    if prompts:
        agent_view["suggested_prompts"] = [{"title": prompt, "message": prompt} for prompt in prompts]
    oauth: dict[str, Any] = {"scopes": {"bot": sorted(SCOPES | OPTIONAL_SCOPES)}}
    redirects = [f"{oauth_address}{REDIRECT_PATH}"] if oauth_address else []
    if sign_in_address:
        oauth["scopes"]["user"] = [OPENID_SCOPE]
        redirects.append(f"{sign_in_address}{IDENTITY_PATH}")
    if redirects:
        oauth["redirect_urls"] = redirects
    subscriptions: dict[str, Any] = {"bot_events": sorted(EVENTS)}
    interactivity: dict[str, Any] = {"is_enabled": True}
    if url:
        subscriptions["request_url"] = url
        interactivity["request_url"] = url
    syntax = make_command_syntax(command_prefix)
    return {
        "display_information": {"name": APP_NAME, "description": APP_DESCRIPTION},
        "features": {
            "agent_view": agent_view,
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
            "slash_commands": [_slash_command(name, syntax, url) for name in SLASH_COMMANDS.values()],
        },
        "oauth_config": oauth,
        "settings": {
            "event_subscriptions": subscriptions,
            "interactivity": interactivity,
            "org_deploy_enabled": False,
            "socket_mode_enabled": not url,
            "token_rotation_enabled": False,
        },
    }


def _slash_command(name: CommandName, syntax: CommandSyntax, url: str) -> dict[str, Any]:
    description = COMMAND_DESCRIPTIONS[name]
    command: dict[str, Any] = {
        "command": syntax.format_slash_command(name),
        "description": f"{description[0].upper()}{description[1:]}",
    }
    if placeholder := ARGUMENT_PLACEHOLDERS.get(name):
        command["usage_hint"] = f"[{placeholder}]"
    command["should_escape"] = False
    if url:
        command["url"] = url
    return command
