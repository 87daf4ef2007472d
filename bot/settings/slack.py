"""Slack's settings."""

from collections.abc import Iterator

from pydantic import Field, SecretStr, field_validator

from bot.settings.base import Part
from bot.settings.parsing import SLACK_APPS, address, begins, revealed
from channels.slack.settings import MOST_PROMPTS, PROMPTS, Direct, Mode, SlackSettings, Streaming
from core.privacy.vault import SHORTEST_KEY, is_weak


class SlackPart(Part):
    """How Slack is reached, and what is done there alone."""

    slack_bot_token: SecretStr | None = None
    slack_app_token: SecretStr | None = None
    slack_api_url: str = "https://slack.com/api/"
    slack_streaming: Streaming = "auto"
    slack_dm: Direct = "thread"
    slack_mode: Mode = "socket"
    slack_signing_secret: SecretStr | None = None
    slack_sockets: int = Field(default=1, ge=1, le=2)
    slack_client_id: str = ""
    slack_client_secret: SecretStr | None = None
    slack_external: bool = False
    suggested_prompts: str = " | ".join(PROMPTS)
    answer_bots: bool = False
    bot_loop_limit: int = Field(default=5, gt=0)
    secret_key: SecretStr | None = None

    @field_validator("slack_bot_token")
    @classmethod
    def _is_bot_token(cls, value: SecretStr | None) -> SecretStr | None:
        return begins(value, "xoxb-", "OAuth & Permissions")

    @field_validator("slack_app_token")
    @classmethod
    def _is_app_token(cls, value: SecretStr | None) -> SecretStr | None:
        return begins(value, "xapp-", "Basic Information, App-Level Tokens (scope connections:write)")

    @field_validator("slack_api_url")
    @classmethod
    def _is_slack_address(cls, value: str | None) -> str | None:
        return address(value)

    @field_validator("slack_api_url")
    @classmethod
    def _ends_in_slash(cls, value: str) -> str:
        return value if value.endswith("/") else f"{value}/"

    def faults(self) -> Iterator[str]:
        """Yield what is missing or doubled among Slack's tokens and keys."""
        yield from super().faults()
        if len(self.prompts) > MOST_PROMPTS:
            yield f"SUGGESTED_PROMPTS: Slack shows {MOST_PROMPTS} at the most, with | in between"
        several = bool(self.slack_client_id)
        if several != bool(self.slack_client_secret):
            yield (
                "SLACK_CLIENT_ID and SLACK_CLIENT_SECRET belong together: copy both at "
                f"{SLACK_APPS}, your app, under Basic Information"
            )
        if several and self.slack_bot_token:
            yield "SLACK_BOT_TOKEN is for one workspace, and SLACK_CLIENT_ID for several: unset one of them"
        if several and is_weak(revealed(self.secret_key) or ""):
            yield (
                "SECRET_KEY: the tokens of workspaces are encrypted with it, so it must not be easy to guess: set "
                f"{SHORTEST_KEY} random characters or more (`openssl rand -hex 32`), and keep them"
            )
        token = "SLACK_BOT_TOKEN" if self.slack_bot_token else "SLACK_CLIENT_ID"
        if not several and not self.slack_bot_token:
            if self.slack_app_token:
                yield (
                    f"SLACK_BOT_TOKEN is missing beside SLACK_APP_TOKEN: copy it at {SLACK_APPS}, your app, under "
                    "OAuth & Permissions"
                )
            return
        if self.slack_mode == "socket" and not self.slack_app_token:
            yield (
                f"SLACK_APP_TOKEN is missing beside {token}: make one at {SLACK_APPS}, your app, under "
                "Basic Information, App-Level Tokens (scope connections:write)"
            )
        if self.slack_mode == "http" and not self.slack_signing_secret:
            yield (
                f"SLACK_SIGNING_SECRET is missing beside SLACK_MODE=http: copy it at {SLACK_APPS}, your app, under "
                "Basic Information, App Credentials"
            )

    @property
    def slack(self) -> SlackSettings | None:
        if self.slack_bot_token is None and not self.slack_client_id:
            return None
        return SlackSettings(
            bot_token=revealed(self.slack_bot_token) or "",
            app_token=revealed(self.slack_app_token) or "",
            api_url=self.slack_api_url,
            streaming=self.slack_streaming,
            direct=self.slack_dm,
            prompts=self.prompts,
            mode=self.slack_mode,
            signing_secret=revealed(self.slack_signing_secret) or "",
            sockets=self.slack_sockets,
            external=self.slack_external,
            client_id=self.slack_client_id,
            client_secret=revealed(self.slack_client_secret) or "",
            answers_bots=self.answer_bots,
            bot_loop_limit=self.bot_loop_limit,
        )

    @property
    def is_called(self) -> bool:
        """Whether Slack, or who installs the app, calls the process."""
        return self.slack is not None and (self.slack_mode == "http" or bool(self.slack_client_id))

    @property
    def vault_key(self) -> str:
        """What the tokens of several workspaces are encrypted with; empty where there is one."""
        return revealed(self.secret_key) or "" if self.slack_client_id else ""

    @property
    def prompts(self) -> tuple[str, ...]:
        """What is suggested to say to the bot."""
        return tuple(prompt.strip() for prompt in self.suggested_prompts.split("|") if prompt.strip())
