"""Keys of model vendors that users paste into the simulator, stored in `.env`."""

from dataclasses import dataclass
from pathlib import Path

from bot.settings import DEFAULT_MODEL, LOCAL_MODEL, Settings, load_settings
from bot.setup.env_file import EnvFile
from bot.setup.questions import model_access_questions
from core.errors import SettingsError
from core.models.vendors import KEY_SETTINGS, split_model
from core.observability.secret_redaction import add_secret
from core.usage.prices import Prices

#: Models with which a new key is tried, by vendor; `MODEL` is used instead if it is of the vendor.
_MODELS = {"gemini": DEFAULT_MODEL, "openai": "openai/gpt-5-mini", "anthropic": "anthropic/claude-haiku-4-5"}

#: Vendors by the prefix of their keys; the first prefix that fits counts.
_PREFIXES = {"sk-ant-": "anthropic", "sk-": "openai", "AIza": "gemini", "AQ.": "gemini"}

#: Most characters of a key; the vendors' keys have fewer than 200.
_MAX_KEY_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class SavedKey:
    """API key that is stored in `.env`.

    Attributes:
        settings: the values that were written to `.env`, by setting name.
        model: full name of the model that answered with the key.
        models: full names of the models that can be used now, `model` first.
    """

    settings: dict[str, str]
    model: str
    models: list[str]


async def save_key(key: str, vendor: str = "", env_file: Path = Path(".env")) -> SavedKey:
    """Try an API key with a short request to a model; store it if the model answers.

    `MODEL` is written too if the configured model is of another vendor. Without a vendor, the key's prefix names it.

    Raises:
        SettingsError: the key is not recognized, is refused, cannot be tried or cannot be stored; nothing has changed.
    """
    key = key.strip()
    if not key or len(key) > _MAX_KEY_CHARACTERS or not key.isascii() or any(sign.isspace() for sign in key):
        raise SettingsError("This is not an API key: paste the key alone, without spaces")
    add_secret(key)
    vendor = vendor or next((name for prefix, name in _PREFIXES.items() if key.startswith(prefix)), "")
    if vendor not in _MODELS:
        raise SettingsError("The key's provider is not recognized: choose it in the list")
    configured = load_settings().model
    model = configured if split_model(configured)[0] == vendor else _MODELS[vendor]
    *_, question = model_access_questions(model)
    await question.check(key)
    values = {KEY_SETTINGS[vendor][0]: key}
    if model != configured:
        values["MODEL"] = model
    file = EnvFile(env_file)
    for name, value in values.items():
        file.set_value(name, value)
    return SavedKey(values, model, list(dict.fromkeys([model, *list_models(load_settings())])))


def list_models(settings: Settings) -> list[str]:
    """Return the full names of the models that the API keys can use, the simulator's model first."""
    vendors = {
        "gemini-": settings.google_api_key is not None and settings.google_base_url is None,
        "openai/": settings.openai_api_key is not None and settings.openai_base_url is None,
        "anthropic/": settings.anthropic_api_key is not None and settings.anthropic_base_url is None,
    }
    prefixes = tuple(prefix for prefix, is_usable in vendors.items() if is_usable)
    keyed = [DEFAULT_MODEL] if settings.google_api_key is not None else []
    keyed += [name for name in Prices(settings.prices_file).names if name.startswith(prefixes)]
    return list(dict.fromkeys([settings.simulator_model, *settings.models, *keyed, LOCAL_MODEL]))
