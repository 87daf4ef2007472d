"""From what `MODEL` says to the provider that serves it."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from importlib import import_module
from typing import cast

from core.errors import ProviderSilentError, ProviderStalledError, SettingsError
from core.models.provider import Failed, Message, Provider, ProviderEvent, Request, Text

_KNOWN = "gemini-NAME, openai/NAME, anthropic/NAME or local/NAME"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where the vendors are, and the keys to them."""

    google_api_key: str | None = field(default=None, repr=False)
    google_base_url: str | None = None
    openai_api_key: str | None = field(default=None, repr=False)
    openai_base_url: str | None = None
    anthropic_api_key: str | None = field(default=None, repr=False)
    anthropic_base_url: str | None = None


def make_provider(model: str, endpoints: Endpoints) -> tuple[Provider, str]:
    """The provider for `model`, a value of `MODEL`, and the name that the model has there.

    A vendor's SDK is imported here, when its models are asked for. Nothing is sent yet: see `probe`.

    Raises:
        SettingsError: `MODEL` names no provider that there is, or something is missing for it.
    """
    if model.startswith("gemini-"):
        return _gemini(model, endpoints), model
    vendor, _, name = model.partition("/")
    makers: dict[str, Callable[[str, Endpoints], Provider]] = {
        "openai": _openai,
        "anthropic": _anthropic,
        "local": _local,
    }
    if vendor not in makers or not name.strip():
        raise SettingsError(f"MODEL={model}: there is no such provider; it is {_KNOWN}")
    return makers[vendor](name, endpoints), name


async def probe(provider: Provider, model: str, seconds: float = 30.0) -> None:
    """Ask the model something, for real, and hang up at its first sign of life.

    Raises:
        ProviderError: the model cannot answer; which of its kinds says why.
    """
    request = Request(model, [Message("user", (Text("Answer with the one word: ok"),))])
    events = cast(AsyncGenerator[ProviderEvent, None], provider.stream(request))
    try:
        async with asyncio.timeout(seconds), aclosing(events):
            event = await anext(events, None)
    except TimeoutError:
        raise ProviderSilentError(f"{provider.name} said nothing for {seconds:g} seconds") from None
    if isinstance(event, Failed):
        raise event.error
    if event is None:
        raise ProviderStalledError(f"{provider.name} ended its stream without saying that it was done")


def _gemini(_name: str, endpoints: Endpoints) -> Provider:
    from core.models.providers.gemini import GeminiProvider  # noqa: PLC0415 - only when it is chosen

    if not endpoints.google_api_key:
        raise SettingsError("GOOGLE_API_KEY is not set: get a key at https://aistudio.google.com/apikey")
    return GeminiProvider(endpoints.google_api_key, endpoints.google_base_url)


def _openai(_name: str, endpoints: Endpoints) -> Provider:
    if not endpoints.openai_api_key and not endpoints.openai_base_url:
        raise SettingsError(
            "OPENAI_API_KEY is not set: get a key at https://platform.openai.com/api-keys, "
            "or set OPENAI_BASE_URL to a server that needs none"
        )
    _need("openai")
    from core.models.providers.openai import OpenAIProvider  # noqa: PLC0415 - an extra

    return OpenAIProvider(endpoints.openai_api_key or "no-key", endpoints.openai_base_url)


def _anthropic(_name: str, endpoints: Endpoints) -> Provider:
    if not endpoints.anthropic_api_key:
        raise SettingsError("ANTHROPIC_API_KEY is not set: get a key at https://platform.claude.com/settings/keys")
    _need("anthropic")
    from core.models.providers.anthropic import AnthropicProvider  # noqa: PLC0415 - an extra

    return AnthropicProvider(endpoints.anthropic_api_key, endpoints.anthropic_base_url)


def _local(name: str, _endpoints: Endpoints) -> Provider:
    _need("openai")
    from core.models.providers.local import LocalProvider  # noqa: PLC0415 - it needs an extra

    return LocalProvider(name)


def _need(package: str) -> None:
    """An SDK that is an extra, under the same name."""
    try:
        import_module(package)
    except ImportError:
        raise SettingsError(
            f"MODEL: the package `{package}` is not installed; "
            f"`pip install 'parley[{package}]'` or `uv sync --extra {package}`"
        ) from None
