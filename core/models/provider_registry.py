"""From what `MODEL` says to the provider that serves it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import cast

from core.errors import ProviderSilentError, ProviderStalledError, SettingsError
from core.models.provider import Failed, Message, Provider, ProviderEvent, Request, Text
from core.models.vendors import Endpoints, find_fault, split_model


def make_provider(model: str, endpoints: Endpoints) -> tuple[Provider, str]:
    """The provider for `model`, a value of `MODEL`, and the name that the model has there.

    A vendor's SDK is imported here, when its models are asked for. Nothing is sent yet: see `probe`.

    Raises:
        SettingsError: `MODEL` names no provider that there is, or something is missing for it.
    """
    if (fault := find_fault(model, endpoints)) is not None:
        raise SettingsError(fault)
    vendor, name = split_model(model)
    return _MAKERS[vendor](name, endpoints), name


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
