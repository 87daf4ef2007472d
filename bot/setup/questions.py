"""What a set-up is asked for: each setting with where its value is found, and how an answer is tried."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import SecretStr, ValidationError

from bot.settings.access import AccessSection
from bot.settings.agent import DEFAULT_MODEL, AgentSection
from bot.settings.base import SettingsSection
from bot.settings.discord import DiscordSection
from bot.settings.parsing import describe_errors, normalize_database_url
from bot.settings.slack import SlackSection
from bot.setup import Platform
from bot.setup import manifest_command as manifests
from bot.setup import probes as trials
from bot.setup.probes import Finding
from channels.discord import invite
from channels.slack.settings import SlackSettings
from core.errors import ModelNotFoundError, ProviderError, SettingsError
from core.models.provider_registry import make_provider

_Part = TypeVar("_Part", bound=SettingsSection)

#: What stands for an answer that is still to come, so that the others can be looked at.
_TO_COME: Mapping[str, Any] = {"slack_app_token": "xapp-", "slack_signing_secret": "-"}

#: By how a model's name begins: the setting of its key, and where one gets it.
_KEYS: Mapping[str, tuple[str, str]] = {
    "gemini-": ("GOOGLE_API_KEY", "https://aistudio.google.com/apikey"),
    "openai/": ("OPENAI_API_KEY", "https://platform.openai.com/api-keys"),
    "anthropic/": ("ANTHROPIC_API_KEY", "https://platform.claude.com/settings/keys"),
}


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked for one setting.

    Attributes:
        where: where its value is found.
        tries: tries an answer for real.
        what: what is shown to be going on meanwhile.
        default: the answer that is meant if none is given; it is not written.
        is_needed: whether there has to be an answer; if not, it is tried as well that there is none.
        blames: the setting that was asked for before, if an answer may show that it is the wrong one.
    """

    name: str
    where: str
    tries: Callable[[str], Awaitable[list[Finding]]]
    what: str
    default: str = ""
    is_secret: bool = True
    is_needed: bool = True
    blames: str = ""


def slack(*, by_http: bool) -> Iterator[Question]:
    """What Slack takes, by sockets or by requests."""
    yield Question(
        "SLACK_BOT_TOKEN",
        "On your app's page, under OAuth & Permissions: the Bot User OAuth Token. It begins with xoxb-.",
        _slack_bot,
        "asking Slack",
    )
    if by_http:
        yield Question(
            "SLACK_SIGNING_SECRET",
            "On your app's page, under Basic Information, App Credentials: the Signing Secret. Whether it is the right "
            "one is seen when Slack calls for the first time.",
            _slack_secret,
            "looking at it",
        )
    else:
        yield Question(
            "SLACK_APP_TOKEN",
            "On your app's page, under Basic Information, App-Level Tokens: Generate Token and Scopes, with the scope "
            "connections:write. It begins with xapp-.",
            _slack_app,
            "asking Slack",
        )


def discord() -> Question:
    return Question(
        "DISCORD_BOT_TOKEN",
        "On your app's page, under Bot: Reset Token. It is shown once.",
        _discord,
        "asking Discord",
    )


def manifest() -> str:
    """What Slack's app is made from, whichever of its tokens there are.

    Raises:
        SettingsError: another setting is wrong.
    """
    return manifests.manifest(Platform.SLACK, _sound(AccessSection, slack_bot_token=SecretStr("xoxb-"), **_TO_COME))


def invitation(token: str) -> str:
    """The link that invites the bot of this token.

    Raises:
        SettingsError: it is no token, or another setting of Discord's is wrong.
    """
    part = _sound(DiscordSection, discord_bot_token=SecretStr(token))
    return invite.invite_link(invite.application_id_of(token), auto_thread=part.discord_auto_thread)


def model() -> Question:
    return Question(
        "MODEL",
        "Which one answers: gemini-NAME, openai/NAME (or what any server has that speaks OpenAI's API), "
        "anthropic/NAME, or local/smollm2-135m, which needs no key, is tiny, and often wrong.",
        _model,
        "looking for it",
        default=DEFAULT_MODEL,
        is_secret=False,
    )


def access(model: str) -> Iterator[Question]:
    """What that model takes to be asked, the key at the end; it is then asked something."""
    vendor = next((vendor for vendor in _KEYS if model.startswith(vendor)), "")
    if not vendor:
        return
    name, page = _KEYS[vendor]
    own = False
    if vendor == "openai/":
        yield Question(
            "OPENAI_BASE_URL",
            "The address of another server that speaks OpenAI's API; Enter for OpenAI's own.",
            _base_url,
            "looking at it",
            is_secret=False,
            is_needed=False,
        )
        own = _agent().openai_base_url is not None

    async def tries(key: str) -> list[Finding]:
        provider, known_as = make_provider(model, _agent(model=model, **{name.lower(): key}).endpoints)
        try:
            return await trials.model(model, provider, known_as)
        except ModelNotFoundError as error:
            raise SettingsError(f"MODEL={model}: {error}") from error
        except ProviderError as error:
            raise SettingsError(f"{name}: {error}") from error
        finally:
            await provider.aclose()

    where = "What your server takes; Enter for none." if own else f"A key is made at {page}."
    yield Question(name, where, tries, f"asking {model}", is_needed=not own, blames="MODEL")


def database(here: str) -> Question:
    """Args:
    here: the database that there is without an answer.
    """
    return Question(
        "DATABASE_URL",
        f"The address of a PostgreSQL, postgresql://USER:PASSWORD@HOST/NAME; Enter for a file here, {here}.",
        _database,
        "opening the database",
        is_needed=False,
    )


async def _slack_bot(token: str) -> list[Finding]:
    return await trials.slack(replace(_slack(slack_bot_token=token), app_token=""))


async def _slack_app(token: str) -> list[Finding]:
    await trials.slack(_slack(slack_app_token=token))
    return trials.good("Slack: the app may open sockets")


async def _slack_secret(secret: str) -> list[Finding]:
    _slack(slack_signing_secret=secret)
    return []


def _slack(**given: Any) -> SlackSettings:
    login = _sound(SlackSection, **{**_TO_COME, **given}).slack
    assert login is not None, "its first token was asked for first"
    return login


async def _discord(token: str) -> list[Finding]:
    login = _sound(DiscordSection, discord_bot_token=SecretStr(token)).discord
    assert login is not None, "it has its token"
    return await trials.discord(login)


async def _model(name: str) -> list[Finding]:
    """Whether there is such a provider; the model itself is asked when there is a key."""
    try:
        provider, _ = make_provider(name, _agent(model=name).endpoints)
    except SettingsError as error:
        if wrong := [fault for fault in error.faults if fault.startswith("MODEL")]:
            raise SettingsError(*wrong) from None
        return []
    await provider.aclose()
    return []


async def _base_url(url: str) -> list[Finding]:
    _agent(openai_base_url=url or None)
    return []


def _agent(**given: Any) -> AgentSection:
    return _sound(AgentSection, **given)


async def _database(url: str) -> list[Finding]:
    if not url:
        return []
    try:
        return await trials.database(normalize_database_url(url))
    except ValueError as error:
        raise SettingsError(f"DATABASE_URL: {error}") from None


def _sound(kind: type[_Part], **given: Any) -> _Part:
    """Return the settings.

    Raises:
        SettingsError: a line for each fault, as at a start.
    """
    try:
        part = kind(**given)
    except ValidationError as error:
        raise SettingsError(*(line for _name, line in describe_errors(error, kind.model_fields))) from None
    if faults := list(part.find_conflicts()):
        raise SettingsError(*faults)
    return part
