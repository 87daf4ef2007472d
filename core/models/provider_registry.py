"""Creation of the provider for a value of `MODEL`, and a test call to a model."""

from core.errors import SettingsError
from core.models.provider import ModelMessage, ModelRequest, Provider, Text
from core.models.providers.coalescing import ProviderStream
from core.models.vendors import VendorSettings, find_model_fault, split_model


def make_provider(model: str, endpoints: VendorSettings) -> tuple[Provider, str]:
    """Return the provider for a value of `MODEL`, and the model's name at that vendor; nothing is sent.

    Raises:
        SettingsError: `MODEL` names no known provider, or a setting is missing for it.
    """
    if (fault := find_model_fault(model, endpoints)) is not None:
        raise SettingsError(fault)
    vendor, name = split_model(model)
    provider: Provider
    match vendor:
        case "gemini":
            from core.models.providers.gemini import GeminiProvider  # noqa: PLC0415

            provider = GeminiProvider(endpoints.google_api_key or "", endpoints.google_base_url)
        case "openai":
            from core.models.providers.openai import OpenAIProvider  # noqa: PLC0415

            provider = OpenAIProvider(endpoints.openai_api_key or "no-key", endpoints.openai_base_url)
        case "anthropic":
            from core.models.providers.anthropic import AnthropicProvider  # noqa: PLC0415

            provider = AnthropicProvider(endpoints.anthropic_api_key or "", endpoints.anthropic_base_url)
        case _:
            from core.models.providers.local import LocalProvider  # noqa: PLC0415

            provider = LocalProvider(name)
    return provider, name


#: The most seconds until the first event of a test call.
PROBE_SECONDS = 30.0


async def probe_model(provider: Provider, model: str, seconds: float = PROBE_SECONDS) -> None:
    """Send a short request to a model, by its name at the vendor, and wait for the first event.

    Raises:
        ProviderError: the call failed, or no event came in time.
    """
    request = ModelRequest(model, [ModelMessage("user", (Text("Answer with the one word: ok"),))])
    async with ProviderStream(provider, request, seconds) as events:
        await events.read()
