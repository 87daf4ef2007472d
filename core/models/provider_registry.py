"""From what `MODEL` says to the provider that serves it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
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
    if (fault := find_fault(model, endpoints)) is not None:
        raise SettingsError(fault)
    vendor, name = _split(model)
    return _MAKERS[vendor](name, endpoints), name


def find_fault(model: str, endpoints: Endpoints) -> str | None:
    """Return what is missing for `model`, a value of `MODEL`, as far as the settings show. No SDK is imported."""
    vendor, name = _split(model)
    if vendor not in _MAKERS or not name.strip():
        return f"MODEL={model}: there is no such provider; it is {_KNOWN}"
    if vendor == "gemini" and not endpoints.google_api_key:
        return "GOOGLE_API_KEY is not set: get a key at https://aistudio.google.com/apikey"
    if vendor == "openai" and not endpoints.openai_api_key and not endpoints.openai_base_url:
        return (
            "OPENAI_API_KEY is not set: get a key at https://platform.openai.com/api-keys, "
            "or set OPENAI_BASE_URL to a server that needs none"
        )
    if vendor == "anthropic" and not endpoints.anthropic_api_key:
        return "ANTHROPIC_API_KEY is not set: get a key at https://platform.claude.com/settings/keys"
    return None


def lacks_key(model: str, endpoints: Endpoints) -> bool:
    """Return whether the model's provider is known and only its key is missing."""
    fault = find_fault(model, endpoints)
    return fault is not None and not fault.startswith("MODEL=")


def can_call_tools(model: str) -> bool:
    """Return whether the model of this full name can call tools."""
    return _split(model)[0] != "local"


def _split(model: str) -> tuple[str, str]:
    """Return the vendor and the name that the model has there."""
    if model.startswith("gemini-"):
        return "gemini", model
    vendor, _, name = model.partition("/")
    return ("", name) if vendor == "gemini" else (vendor, name)


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

    return GeminiProvider(endpoints.google_api_key or "", endpoints.google_base_url)


def _openai(_name: str, endpoints: Endpoints) -> Provider:
    from core.models.providers.openai import OpenAIProvider  # noqa: PLC0415 - only when it is chosen

    return OpenAIProvider(endpoints.openai_api_key or "no-key", endpoints.openai_base_url)


def _anthropic(_name: str, endpoints: Endpoints) -> Provider:
    from core.models.providers.anthropic import AnthropicProvider  # noqa: PLC0415 - only when it is chosen

    return AnthropicProvider(endpoints.anthropic_api_key or "", endpoints.anthropic_base_url)


def _local(name: str, _endpoints: Endpoints) -> Provider:
    from core.models.providers.local import LocalProvider  # noqa: PLC0415 - only when it is chosen

    return LocalProvider(name)


_MAKERS: Mapping[str, Callable[[str, Endpoints], Provider]] = {
    "gemini": _gemini,
    "openai": _openai,
    "anthropic": _anthropic,
    "local": _local,
}
