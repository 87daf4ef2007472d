"""`parley manifest`: a Slack manifest or Discord invitation link for the settings."""

import json
from urllib.parse import quote

from bot.settings.sign_in import SignInSection
from bot.setup import SetupPlatform
from core.errors import SettingsError

#: Slack's page that makes an app. Slack reads the manifest from the parameter `manifest_json`:
#: github.com/slackapi/python-slack-sdk/issues/1019.
CREATE_APP_URL = "https://api.slack.com/apps?new_app=1"

#: Characters that need no escape in a query (RFC 3986), so that the link is shorter.
_UNESCAPED = ":,/@"

#: Placeholder for the public URL of the bot's HTTP server.
EXAMPLE_URL = "https://your-bot.example.com"


def format_manifest(platform: SetupPlatform, settings: SignInSection) -> str:
    """Return a Slack app's manifest as JSON text, or a Discord bot's invitation link."""
    match platform:
        case SetupPlatform.SLACK:
            from channels.slack import manifest as slack  # noqa: PLC0415 - imports one platform only

            public_url = settings.public_url or EXAMPLE_URL
            address = public_url if settings.slack_mode == "http" else ""
            oauth_address = public_url if settings.slack_client_id else ""
            sign_in_address = public_url if settings.slack_sign_in_client_id else ""
            manifest = slack.manifest(
                prompts=settings.prompts,
                address=address,
                oauth_address=oauth_address,
                sign_in_address=sign_in_address,
                command_prefix=settings.command_prefix,
            )
            return json.dumps(manifest, indent=2)
        case SetupPlatform.DISCORD:
            from channels.discord import invite  # noqa: PLC0415 - imports one platform only

            if settings.discord is None:
                raise SettingsError(
                    "DISCORD_BOT_TOKEN is not set: the link contains the bot's id, which is in the token"
                )
            token = settings.discord.bot_token
            auto_thread = settings.discord.auto_thread
            return invite.invite_link(invite.application_id_of(token), auto_thread=auto_thread)


def format_create_link(manifest: str) -> str:
    """Return the link to Slack's page that creates an app from a manifest."""
    compact = json.dumps(json.loads(manifest), separators=(",", ":"))
    return f"{CREATE_APP_URL}&manifest_json={quote(compact, safe=_UNESCAPED)}"
