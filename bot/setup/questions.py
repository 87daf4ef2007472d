"""Questions of the set-up wizard, with instructions and a check of the answer."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import SecretStr, ValidationError

from bot.settings.agent import DEFAULT_MODEL, AgentSection
from bot.settings.base import SettingsSection
from bot.settings.discord import DiscordSection
from bot.settings.parsing import describe_errors
from bot.settings.sign_in import SignInSection
from bot.settings.slack import SlackSection
from bot.setup import SetupPlatform
from bot.setup import manifest_command as manifests
from bot.setup import probes as trials
from bot.setup.probes import CheckResult
from channels.discord import invite
from channels.slack.settings import SlackSettings
from core.errors import ModelNotFoundError, ProviderError, SettingsError
from core.models.provider_registry import make_provider
from core.models.vendors import KEY_SETTINGS, split_model
from core.signin.browser import IDENTITY_PATH
from core.store.engine_options import normalize_database_url

_Section = TypeVar("_Section", bound=SettingsSection)

#: Placeholders for later answers, so that the earlier ones can be validated.
_PLACEHOLDERS: Mapping[str, Any] = {"slack_app_token": "xapp-", "slack_signing_secret": "-"}


@dataclass(frozen=True, slots=True)
class SetupQuestion:
    """Question of the wizard for the value of one setting.

    Attributes:
        check: checks an answer against the service and returns the results; raises `SettingsError` for a wrong answer.
        progress: text of the spinner during the check.
        default: answer if none is given; it is not written to `.env`.
        is_required: whether an answer is required; if not, an empty answer is checked too.
        earlier_setting: setting of an earlier question whose answer may be the cause of a failure here; empty if none.
    """

    name: str
    instructions: str
    check: Callable[[str], Awaitable[list[CheckResult]]]
    progress: str
    default: str = ""
    is_secret: bool = True
    is_required: bool = True
    earlier_setting: str = ""


def slack_questions(*, by_http: bool) -> Iterator[SetupQuestion]:
    """Yield the questions for the bot token, and the signing secret (HTTP) or app token (Socket Mode)."""
    yield SetupQuestion(
        "SLACK_BOT_TOKEN",
        "On your app's page, under OAuth & Permissions: copy the Bot User OAuth Token (xoxb-...).",
        _check_bot_token,
        "asking Slack",
    )
    if by_http:
        yield SetupQuestion(
            "SLACK_SIGNING_SECRET",
            "On your app's page, under Basic Information, App Credentials: copy the Signing Secret. Slack's first "
            "request will show whether it is right.",
            _check_signing_secret,
            "checking",
        )
    else:
        yield SetupQuestion(
            "SLACK_APP_TOKEN",
            "On your app's page, under Basic Information, App-Level Tokens: generate a token with the scope "
            "connections:write (xapp-...).",
            _check_app_token,
            "asking Slack",
        )


def discord_question() -> SetupQuestion:
    return SetupQuestion(
        "DISCORD_BOT_TOKEN",
        "On your app's page, under Bot: choose Reset Token and copy it. Discord shows it once.",
        _check_discord_token,
        "asking Discord",
    )


def slack_sign_in_questions() -> Iterator[SetupQuestion]:
    """Yield the questions for Sign in with Slack, if `PUBLIC_URL` and `SECRET_KEY` are set."""
    settings = _validate_section(SignInSection)
    if not (settings.public_url and settings.encryption_key):
        return
    yield SetupQuestion(
        "SLACK_SIGN_IN_CLIENT_ID",
        "To let people connect their accounts: on your app's page, under Basic Information, App Credentials: copy the "
        "Client ID; Enter for none.",
        _accept,
        "checking",
        is_secret=False,
        is_required=False,
    )
    if _validate_section(SignInSection).slack_sign_in_client_id:
        yield SetupQuestion(
            "SLACK_SIGN_IN_CLIENT_SECRET",
            "In the same place: copy the Client Secret. Then paste the output of `parley manifest slack` as the app's "
            "App Manifest.",
            lambda secret: _check_sign_in("slack", slack_sign_in_client_secret=SecretStr(secret)),
            "asking Slack",
        )


def discord_sign_in_questions() -> Iterator[SetupQuestion]:
    """Yield the question for the sign-in with Discord, if `PUBLIC_URL` and `SECRET_KEY` are set."""
    settings = _validate_section(SignInSection)
    if settings.public_url and settings.encryption_key:
        yield SetupQuestion(
            "DISCORD_CLIENT_SECRET",
            "To let people connect their accounts: on your app's page, under OAuth2: add the redirect "
            f"{settings.public_url}{IDENTITY_PATH}, and copy the Client Secret; Enter for none.",
            lambda secret: _check_sign_in("discord", discord_client_secret=SecretStr(secret)),
            "asking Discord",
            is_required=False,
        )


def slack_manifest() -> str:
    """Return the manifest of the Slack app as JSON, before its tokens exist."""
    return manifests.format_manifest(
        SetupPlatform.SLACK, _validate_section(SignInSection, slack_bot_token=SecretStr("xoxb-"), **_PLACEHOLDERS)
    )


def discord_invite_link(token: str) -> str:
    """Return the link that invites the Discord bot with this token to a server."""
    part = _validate_section(DiscordSection, discord_bot_token=SecretStr(token))
    return invite.invite_link(invite.application_id_of(token), auto_thread=part.discord_auto_thread)


def model_question() -> SetupQuestion:
    return SetupQuestion(
        "MODEL",
        "The model: gemini-NAME, openai/NAME (also of any server with OpenAI's API), anthropic/NAME, or "
        "local/smollm2-135m, which needs no key but is tiny and often wrong.",
        _check_model_name,
        "checking the name",
        default=DEFAULT_MODEL,
        is_secret=False,
    )


def model_access_questions(model: str) -> Iterator[SetupQuestion]:
    """Yield the questions for the base URL (only for OpenAI) and the API key of a model.

    The answer for the base URL must be in `.env` before the next question is taken: with a base URL, the key is not
    required. The key is the last question; its check sends a short request to the model. There are no questions if the
    model's vendor is unknown or needs no API key, such as `local`.
    """
    vendor, _ = split_model(model)
    if vendor not in KEY_SETTINGS:
        return
    name, page = KEY_SETTINGS[vendor]
    has_own_server = False
    if vendor == "openai":
        yield SetupQuestion(
            "OPENAI_BASE_URL",
            "Base URL of another server with OpenAI's API; Enter for OpenAI's own.",
            _check_base_url,
            "checking",
            is_secret=False,
            is_required=False,
        )
        has_own_server = _agent_settings().openai_base_url is not None

    async def try_key(key: str) -> list[CheckResult]:
        provider, provider_model = make_provider(model, _agent_settings(model=model, **{name.lower(): key}).endpoints)
        try:
            return await trials.check_model(model, provider, provider_model)
        except ModelNotFoundError as error:
            raise SettingsError(f"MODEL={model}: {error}") from error
        except ProviderError as error:
            raise SettingsError(f"{name}: {error}") from error
        finally:
            await provider.aclose()

    hint = "The key of your server; Enter for none." if has_own_server else f"Create a key at {page}."
    yield SetupQuestion(name, hint, try_key, f"asking {model}", is_required=not has_own_server, earlier_setting="MODEL")


def database_question(default_path: str) -> SetupQuestion:
    """Return the question for the database's URL; without an answer, the file is used."""
    return SetupQuestion(
        "DATABASE_URL",
        f"URL of a PostgreSQL database, postgresql://USER:PASSWORD@HOST/NAME; Enter for the file {default_path}.",
        _check_database_url,
        "opening the database",
        is_required=False,
    )


async def _check_bot_token(token: str) -> list[CheckResult]:
    return await trials.check_slack(replace(_slack_settings(slack_bot_token=token), app_token=""))


async def _check_app_token(token: str) -> list[CheckResult]:
    await trials.check_slack(_slack_settings(slack_app_token=token))
    return trials.make_success("Slack: the app can use Socket Mode")


async def _accept(_answer: str) -> list[CheckResult]:
    return []


async def _check_sign_in(platform: str, **given: SecretStr) -> list[CheckResult]:
    return await trials.check_sign_in(_validate_section(SignInSection, **given), [platform])


async def _check_signing_secret(secret: str) -> list[CheckResult]:
    _slack_settings(slack_signing_secret=secret)
    return []


def _slack_settings(**given: Any) -> SlackSettings:
    login = _validate_section(SlackSection, **{**_PLACEHOLDERS, **given}).slack
    assert login is not None, "the bot token is set"
    return login


async def _check_discord_token(token: str) -> list[CheckResult]:
    login = _validate_section(DiscordSection, discord_bot_token=SecretStr(token)).discord
    assert login is not None, "the token is set"
    return await trials.check_discord(login)


async def _check_model_name(name: str) -> list[CheckResult]:
    """Check only that the provider exists; the model itself is checked with its API key."""
    try:
        provider, _ = make_provider(name, _agent_settings(model=name).endpoints)
    except SettingsError as error:
        if faults := [fault for fault in error.faults if fault.startswith("MODEL")]:
            raise SettingsError(*faults) from None
        return []
    await provider.aclose()
    return []


async def _check_base_url(url: str) -> list[CheckResult]:
    _agent_settings(openai_base_url=url or None)
    return []


def _agent_settings(**given: Any) -> AgentSection:
    return _validate_section(AgentSection, **given)


async def _check_database_url(url: str) -> list[CheckResult]:
    if not url:
        return []
    try:
        return await trials.check_database(normalize_database_url(url))
    except ValueError as error:
        raise SettingsError(f"DATABASE_URL: {error}") from None


def _validate_section(kind: type[_Section], **given: Any) -> _Section:
    """Return a section of the settings with the given values, the rest as configured.

    A `SettingsError` has a line for each fault, as at the start of the bot.
    """
    try:
        part = kind(**given)
    except ValidationError as error:
        raise SettingsError(*(line for _name, line in describe_errors(error, kind.model_fields))) from None
    if faults := list(part.find_conflicts()):
        raise SettingsError(*faults)
    return part
