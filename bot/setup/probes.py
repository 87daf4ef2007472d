"""Checks of the tokens, the database and the models against their services."""

import asyncio
import os
from collections.abc import Awaitable, Collection
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum

from google.adk.agents import LlmAgent
from google.adk.models import LlmRequest
from google.genai import types
from sqlalchemy.engine import make_url

from bot.routes.sign_in import make_identities
from bot.settings.discord import DISCORD_APPS
from bot.settings.parsing import SLACK_APPS
from bot.settings.sign_in import SignInSection
from channels.discord.client import auth as discord_login
from channels.discord.settings import DiscordSettings
from channels.slack.client import auth as slack_login
from channels.slack.settings import SlackSettings
from core.errors import ParleyError, SettingsError, SignInError, SignInUnavailableError, StoreError
from core.models.provider import Provider
from core.models.provider_registry import PROBE_SECONDS, probe_model
from core.models.vendors import find_full_name
from core.observability.messages import format_count
from core.observability.secret_redaction import describe_failure, redact_secrets
from core.privacy.vault import Vault
from core.signin.browser import IDENTITY_PATH, IdentityProvider
from core.signin.oauth import new_verifier
from core.store.database import Database, find_sqlite_file
from core.store.engine_options import engine_options
from core.store.migrate import list_pending

#: Errors of platforms for a wrong code of a right client.
_CODE_ERRORS = frozenset({"bad_redirect_uri", "invalid_code", "invalid_grant"})

#: Settings of the client of a platform's sign-in, and the page to copy them from, by the name of the platform.
_CLIENT_HINTS = {
    "Slack": f"Copy SLACK_SIGN_IN_CLIENT_ID and SLACK_SIGN_IN_CLIENT_SECRET at {SLACK_APPS}, your app, under Basic "
    "Information, App Credentials",
    "Discord": f"Copy DISCORD_CLIENT_SECRET at {DISCORD_APPS}, your app, under OAuth2",
}

#: Seconds that a connection to the bot's own port may take.
PORT_TIMEOUT_SECONDS = 2.0


class CheckVerdict(Enum):
    """Verdict of a check: success, suggestion (`NOTE`) or failure."""

    OK = "ok"
    NOTE = "note"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Verdict of a check and a line about it, in which secrets are redacted.

    A secret may be in the line because it is in the wrong setting.
    """

    verdict: CheckVerdict
    line: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "line", redact_secrets(self.line))

    def __str__(self) -> str:
        return f"{self.verdict.value:4} {self.line}"

    def to_json(self) -> dict[str, str]:
        return {"verdict": self.verdict.value.lower(), "line": self.line}


def make_success(line: str) -> list[CheckResult]:
    return [CheckResult(CheckVerdict.OK, line)]


def to_failures(error: SettingsError) -> list[CheckResult]:
    """Return a failed check result for each fault of an error."""
    return [CheckResult(CheckVerdict.FAIL, fault) for fault in error.faults]


async def run_check(trial: Awaitable[list[CheckResult]]) -> list[CheckResult]:
    """Await a check; a `ParleyError` becomes a failed result, a `SettingsError` one for each fault."""
    try:
        return await trial
    except SettingsError as error:
        return to_failures(error)
    except ParleyError as error:
        return [CheckResult(CheckVerdict.FAIL, str(error))]


async def check_slack(login: SlackSettings) -> list[CheckResult]:
    """Check the Slack tokens that are set, by calls of Slack's API."""
    login_name = await slack_login.verify_tokens(slack_login.make_web_client(login), login.app_token)
    return make_success(f"Slack: {login_name}")


async def check_discord(login: DiscordSettings) -> list[CheckResult]:
    """Check Discord's token, intents and servers by calls of its API."""
    report = await discord_login.verify_token(login)
    return [
        *make_success(f"Discord: {report.summary}"),
        *(CheckResult(CheckVerdict.NOTE, f"Discord: {line}") for line in report.warnings),
        *(CheckResult(CheckVerdict.FAIL, line) for line in report.faults),
    ]


async def check_sign_in(
    settings: SignInSection, platforms: Collection[str] = ("slack", "discord")
) -> list[CheckResult]:
    """Check the clients with which platforms tell who uses a browser, by a code that they must refuse."""
    results = [
        CheckResult(CheckVerdict.FAIL, f"sign-in on {name.capitalize()} is off: set {' and '.join(missing)}")
        for name, missing in settings.find_missing_sign_in_settings()
        if missing and name in platforms
    ]
    for name, identity in make_identities(settings).items():
        if name in platforms:
            results.append(await _check_identity(identity, f"{settings.public_url}"))
    return results


async def _check_identity(identity: IdentityProvider, public_url: str) -> CheckResult:
    redirect_uri = public_url + IDENTITY_PATH
    line = f"sign-in on {identity.label}"
    try:
        await identity.fetch_person({"code": "check"}, redirect_uri=redirect_uri, verifier=new_verifier(), nonce="")
    except SignInError as error:
        if error.code in _CODE_ERRORS:
            return CheckResult(CheckVerdict.OK, f"{line}: the app must have the redirect URL {redirect_uri}")
        return CheckResult(CheckVerdict.FAIL, f"{line}: {error}. {_CLIENT_HINTS[identity.label]}.")
    except SignInUnavailableError as error:
        return CheckResult(CheckVerdict.FAIL, f"{line}: {error}; try again.")
    return CheckResult(CheckVerdict.FAIL, f"{line}: {identity.label} accepts any code")


async def find_port_warnings(port: int, host: str | None) -> list[str]:
    """Return a line for each reason why other programs cannot send requests to the bot.

    On Heroku, a command runs in a dyno of its own, so that no port of the bot can be asked.
    """
    if "DYNO" in os.environ:
        return ["only the process type `web` has a port: `heroku ps:scale web=1 worker=0`"]
    if not port:
        return ["PORT=0 takes any free port, of this machine only: set one that the senders know"]
    local = ("127.0.0.1", "localhost", "::1")
    lines = [f"LISTEN_HOST={host}: only this machine, or a proxy on it, can send requests"] if host in local else []
    target = host if host and host not in ("0.0.0.0", "::") else "127.0.0.1"  # noqa: S104 - compared, not bound
    try:
        async with asyncio.timeout(PORT_TIMEOUT_SECONDS):
            _, writer = await asyncio.open_connection(target, port)
    except (OSError, TimeoutError):
        return [*lines, f"nothing listens at PORT={port} of this machine: start the bot with `parley run`"]
    writer.close()
    return lines


async def check_database(url: str, encryption_key: str = "") -> list[CheckResult]:
    """Check that the database opens, and that the key decrypts its stored tokens.

    A missing SQLite file is not created: only its folder, or the nearest one above it that exists, is checked. The
    tokens are not checked if the key is empty, or migrations are still to apply.
    """
    parsed = make_url(url)
    address = parsed.render_as_string(hide_password=True)
    on_start = "its tables are created or updated at the next start"
    file = find_sqlite_file(parsed)
    if file is not None and not file.exists():
        engine_options(parsed, connections=1)  # raises an error for a wrong parameter
        folder = next(parent for parent in file.absolute().parents if parent.exists())
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise SettingsError(f"DATABASE_URL: {address}: {folder} cannot be written to: name a file elsewhere")
        return make_success(f"database: {address}; {on_start}")
    try:
        opened = Database(url)
        try:
            missing = await list_pending(opened)
            if encryption_key and not missing:
                await Vault(opened, encryption_key).count_decryptable()
        finally:
            await opened.aclose()
    except StoreError as error:
        raise SettingsError(f"DATABASE_URL: {address}: {error}") from error
    to_apply = f"{format_count(len(missing), 'migration')} to apply: run `parley migrate`"
    remedy = on_start if opened.file is not None else to_apply
    return make_success(f"database: {address}" + (f"; {remedy}" if missing else ""))


async def check_model(name: str, provider: Provider, provider_model: str) -> list[CheckResult]:
    """Check a model by one short request; the provider stays open.

    Raises:
        ProviderError: the model cannot answer.
    """
    await probe_model(provider, provider_model)
    return make_success(f"model: {name} answers")


async def check_external_model(agent: LlmAgent) -> CheckResult:
    """Check the model of an agent that is no `ModelAdapter`: its name, and one short request.

    A vendor's bare name, such as `gpt-4o`, is a failure: ADK calls it without the settings, retries and fallbacks of
    Parley. Any exception of the model is a failure too.
    """
    model = agent.canonical_model
    line = f"the agent {agent.name}: the model {model.model}"
    if isinstance(agent.model, str) and (full_name := find_full_name(agent.model)) is not None:
        return CheckResult(CheckVerdict.FAIL, f"{line} is called by ADK, not by Parley: write {full_name}")
    request = LlmRequest(model=model.model, contents=[types.UserContent("Answer with the one word: ok")])
    try:
        async with asyncio.timeout(PROBE_SECONDS), aclosing(model.generate_content_async(request)) as responses:
            response = await anext(responses, None)
    except Exception as error:  # a model of a user's agent may raise anything
        fault: str | None = describe_failure(error)[0].splitlines()[0]
    else:
        fault = "it sent nothing" if response is None else response.error_code
    if fault:
        return CheckResult(CheckVerdict.FAIL, f"{line} cannot answer: {fault}")
    return CheckResult(CheckVerdict.OK, f"model: {model.model} answers")
