"""Settings of Slack."""

from collections.abc import Iterator
from functools import partial
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from bot.settings.commands import CommandSection
from bot.settings.parsing import SLACK_APPS, HttpUrl, get_secret_value, validate_prefix
from channels.slack.settings import DEFAULT_PROMPTS, MAX_PROMPTS, DmSessions, Mode, SlackSettings, Streaming

_BotToken = Annotated[SecretStr, AfterValidator(partial(validate_prefix, prefix="xoxb-", page="OAuth & Permissions"))]
_SOCKET_MODE_PAGE = "Basic Information, App-Level Tokens (scope connections:write)"
_AppToken = Annotated[SecretStr, AfterValidator(partial(validate_prefix, prefix="xapp-", page=_SOCKET_MODE_PAGE))]


class SlackSection(CommandSection):
    """Settings of Slack: tokens, API URL, connection mode, sessions and replies."""

    slack_bot_token: _BotToken | None = None
    slack_app_token: _AppToken | None = None
    slack_api_url: Annotated[HttpUrl, AfterValidator(lambda url: f"{url.rstrip('/')}/")] = "https://slack.com/api/"
    slack_streaming: Streaming = "auto"
    slack_dm_sessions: DmSessions = "thread"
    slack_mode: Mode = "socket"
    slack_signing_secret: SecretStr | None = None
    slack_sockets: int = Field(default=1, ge=1, le=2)
    slack_client_id: str = ""
    slack_client_secret: SecretStr | None = None
    slack_allow_external_users: bool = False
    slack_suggested_prompts: str = " | ".join(DEFAULT_PROMPTS)
    slack_allow_bots: bool = False
    secret_key: SecretStr | None = None

    def find_conflicts(self) -> Iterator[str]:
        yield from super().find_conflicts()
        if len(self.prompts) > MAX_PROMPTS:
            yield f"SLACK_SUGGESTED_PROMPTS: Slack shows at most {MAX_PROMPTS}; separate them with |"
        has_several_workspaces = bool(self.slack_client_id)
        if has_several_workspaces != bool(self.slack_client_secret):
            yield (
                "SLACK_CLIENT_ID and SLACK_CLIENT_SECRET belong together: copy both at "
                f"{SLACK_APPS}, your app, under Basic Information"
            )
        if has_several_workspaces and self.slack_bot_token:
            yield "SLACK_BOT_TOKEN is for one workspace and SLACK_CLIENT_ID for several: unset one of them"
        token = "SLACK_BOT_TOKEN" if self.slack_bot_token else "SLACK_CLIENT_ID"
        if not has_several_workspaces and not self.slack_bot_token:
            if self.slack_app_token:
                yield (
                    f"SLACK_BOT_TOKEN is missing (SLACK_APP_TOKEN is set): copy it at {SLACK_APPS}, your app, under "
                    "OAuth & Permissions"
                )
            return
        if self.slack_mode == "socket" and not self.slack_app_token:
            yield (
                f"SLACK_APP_TOKEN is missing ({token} is set): create one at {SLACK_APPS}, your app, under "
                "Basic Information, App-Level Tokens (scope connections:write)"
            )
        if self.slack_mode == "http" and not self.slack_signing_secret:
            yield (
                f"SLACK_SIGNING_SECRET is missing (SLACK_MODE=http): copy it at {SLACK_APPS}, your app, under "
                "Basic Information, App Credentials"
            )

    @property
    def slack(self) -> SlackSettings | None:
        """Settings for the Slack adapter; None without a bot token or client id."""
        if self.slack_bot_token is None and not self.slack_client_id:
            return None
        return SlackSettings(
            bot_token=get_secret_value(self.slack_bot_token) or "",
            app_token=get_secret_value(self.slack_app_token) or "",
            api_url=self.slack_api_url,
            streaming=self.slack_streaming,
            dm_sessions=self.slack_dm_sessions,
            prompts=self.prompts,
            mode=self.slack_mode,
            signing_secret=get_secret_value(self.slack_signing_secret) or "",
            sockets=self.slack_sockets,
            client_id=self.slack_client_id,
            client_secret=get_secret_value(self.slack_client_secret) or "",
            answers_bots=self.slack_allow_bots,
            command_prefix=self.command_prefix,
        )

    @property
    def needs_public_http(self) -> bool:
        """True if Slack or a browser that installs the app sends requests to this process."""
        return self.slack is not None and (self.slack_mode == "http" or bool(self.slack_client_id))

    @property
    def encryption_key(self) -> str:
        """Key that encrypts what the database has of secrets and prompts; empty if it is not set."""
        return get_secret_value(self.secret_key) or ""

    @property
    def token_encryption_key(self) -> str:
        """Key that encrypts the tokens of several workspaces; empty with a single one."""
        return self.encryption_key if self.slack_client_id else ""

    @property
    def prompts(self) -> tuple[str, ...]:
        """Prompts that Slack suggests in direct messages; a single `|` gives none, an empty setting the default."""
        return tuple(prompt.strip() for prompt in self.slack_suggested_prompts.split("|") if prompt.strip())
