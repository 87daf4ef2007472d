"""Slack app manifest: the events, commands and scopes that the code needs, no more and no less.

Slack: docs.slack.dev/reference/app-manifest.
"""

from collections.abc import Sequence
from typing import Any

from channels.commands.handlers import ARGUMENTS
from channels.commands.handlers import COMMANDS as DESCRIPTIONS
from channels.slack.client.auth import SCOPES, WISHES
from channels.slack.client.http_mode import PATH
from channels.slack.client.oauth import REDIRECT_PATH
from channels.slack.events.parser import STOPPED
from channels.slack.interactions.commands import COMMANDS
from channels.slack.interactions.shortcuts import ABOUT, SHORTCUTS

NAME = "Parley"
ABOUT_APP = "An agent that answers in threads and direct messages."

#: Somebody opens the messages with the bot.
OPENED = "app_home_opened"

#: The app was taken out of a workspace; and tokens are good no more, for that or for another reason.
UNINSTALLED, REVOKED = "app_uninstalled", "tokens_revoked"

EVENTS = frozenset(
    {
        "app_mention",
        "message.channels",
        "message.groups",
        "message.im",
        "message.mpim",
        OPENED,
        STOPPED,
        UNINSTALLED,
        REVOKED,
    }
)


def manifest(*, prompts: Sequence[str], address: str = "", back: str = "") -> dict[str, Any]:
    """What the app is made from.

    Args:
        prompts: what is suggested to say to the bot.
        address: where the bot's HTTP server is reached (`https://...`), if Slack is to call it instead of being
            listened to by a socket.
        back: the same, if the app is to be installed in several workspaces: who has done so comes back there.
    """
    url = f"{address}{PATH}" if address else ""
    redirect = {"redirect_urls": [f"{back}{REDIRECT_PATH}"]} if back else {}
    suggested = [{"title": prompt, "message": prompt} for prompt in prompts]
    return {
        "display_information": {"name": NAME, "description": ABOUT_APP},
        "features": {
            "agent_view": {"agent_description": ABOUT_APP, **({"suggested_prompts": suggested} if suggested else {})},
            "app_home": {
                "home_tab_enabled": False,
                "messages_tab_enabled": True,
                "messages_tab_read_only_enabled": False,
            },
            "bot_user": {"display_name": NAME, "always_online": True},
            "shortcuts": [
                {"name": name, "type": "message", "callback_id": id_, "description": ABOUT[id_]}
                for id_, name in SHORTCUTS.items()
            ],
            "slash_commands": [
                {
                    "command": written,
                    "description": f"{DESCRIPTIONS[name][0].upper()}{DESCRIPTIONS[name][1:]}",
                    **({"usage_hint": f"[{ARGUMENTS[name]}]"} if name in ARGUMENTS else {}),
                    "should_escape": False,
                    **({"url": url} if url else {}),
                }
                for written, name in COMMANDS.items()
            ],
        },
        "oauth_config": {"scopes": {"bot": sorted(SCOPES | WISHES)}, **redirect},
        "settings": {
            "event_subscriptions": {"bot_events": sorted(EVENTS), **({"request_url": url} if url else {})},
            "interactivity": {"is_enabled": True, **({"request_url": url} if url else {})},
            "org_deploy_enabled": False,
            "socket_mode_enabled": not url,
            "token_rotation_enabled": False,
        },
    }
