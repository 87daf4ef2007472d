"""Whether what is set is any good: each trial asks for real, and tells what it has found."""

from collections.abc import Awaitable
from dataclasses import dataclass
from enum import Enum

from sqlalchemy.engine import make_url

from channels.discord.client import auth as discord_login
from channels.discord.settings import DiscordSettings
from channels.slack.client import auth as slack_login
from channels.slack.settings import SlackSettings
from core.errors import ParleyError, SettingsError, StoreError
from core.models.provider import Provider
from core.models.provider_registry import probe_model
from core.privacy.vault import Vault
from core.secret_redaction import redact_secrets
from core.store.database import Database
from core.store.migrate import list_pending


class Verdict(Enum):
    """What to make of a finding; a `NOTE` tells of something that could be had and is not."""

    OK = "ok"
    NOTE = "note"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of trying a setting; the line has no secret, for one may be in the wrong setting."""

    verdict: Verdict
    line: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "line", redact_secrets(self.line))

    def __str__(self) -> str:
        return f"{self.verdict.value:4} {self.line}"


def good(line: str) -> list[Finding]:
    return [Finding(Verdict.OK, line)]


def faults(error: SettingsError) -> list[Finding]:
    return [Finding(Verdict.FAIL, fault) for fault in error.faults]


async def found(trial: Awaitable[list[Finding]]) -> list[Finding]:
    """What a trial has shown, faults for what it raises included."""
    try:
        return await trial
    except SettingsError as error:
        return faults(error)
    except ParleyError as error:
        return [Finding(Verdict.FAIL, str(error))]


async def slack(login: SlackSettings) -> list[Finding]:
    """The tokens, those that there are.

    Raises:
        SettingsError: a line for each that Slack does not take, or for scopes that are missing.
    """
    who = await slack_login.verify(slack_login.make_web_client(login), login.app_token)
    return good(f"Slack: {who}")


async def discord(login: DiscordSettings) -> list[Finding]:
    """The token, what the bot may hear, and where it is.

    Raises:
        SettingsError: Discord does not take it, or cannot be reached.
    """
    standing = await discord_login.verify_token(login)
    return [
        *good(f"Discord: {standing.summary}"),
        *(Finding(Verdict.NOTE, f"Discord: {line}") for line in standing.warnings),
        *(Finding(Verdict.FAIL, line) for line in standing.faults),
    ]


async def database(url: str, vault_key: str = "") -> list[Finding]:
    """The database, and whether the key opens what is kept in it.

    Raises:
        SettingsError: it cannot be used, or the key opens nothing.
    """
    where = make_url(url).render_as_string(hide_password=True)
    try:
        opened = Database(url)
        try:
            missing = await list_pending(opened)
            if vault_key and not missing:
                await Vault(opened, vault_key).count_decryptable()
        finally:
            await opened.aclose()
    except StoreError as error:
        raise SettingsError(f"DATABASE_URL: {where}: {error}") from error
    on_start = "its tables are made or updated at the next start"
    remedy = on_start if opened.file is not None else f"{len(missing)} migrations to apply: run `parley migrate`"
    return good(f"database: {where}" + (f"; {remedy}" if missing else ""))


async def model(name: str, provider: Provider, known_as: str) -> list[Finding]:
    """A model, by a question.

    Args:
        name: what `MODEL` calls it, and `known_as` its provider.

    Raises:
        ProviderError: it cannot answer; which of its kinds says why.
    """
    await probe_model(provider, known_as)
    return good(f"model: {name} answers")
