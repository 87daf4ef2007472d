import asyncio

import pytest

from chatrig.models import Fail, Say, ScriptedAnthropic, ScriptedGemini, ScriptedOpenAI, Stall, Think
from core.errors import (
    ModelNotFoundError,
    ProviderAuthError,
    ProviderStreamError,
    ProviderUnavailableError,
    SettingsError,
)
from core.models.provider_registry import make_provider, probe_model
from core.models.vendors import VendorSettings
from tests.core.models.conftest import ConnectedProvider, connect_provider

KEYS = VendorSettings(google_api_key="secret-google", openai_api_key="secret-openai", anthropic_api_key="secret-claude")


@pytest.mark.parametrize(
    ("model", "vendor", "name"),
    [
        ("gemini-2.5-flash", "gemini", "gemini-2.5-flash"),
        ("openai/gpt-5-mini", "openai", "gpt-5-mini"),
        ("openai/meta-llama/Llama-3", "openai", "meta-llama/Llama-3"),
        ("anthropic/claude-sonnet-4-5", "anthropic", "claude-sonnet-4-5"),
        ("local/smollm2-135m", "local", "smollm2-135m"),
    ],
)
async def test_a_model_names_its_provider(model: str, vendor: str, name: str) -> None:
    provider, found = make_provider(model, KEYS)
    assert (provider.name, found) == (vendor, name)
    await provider.aclose()


@pytest.mark.parametrize(
    "model", ["", "gpt-5", "openai/", "openai/ ", "anthropic/", "/gpt-5", "claude-5", "nobody/model"]
)
def test_an_unknown_provider_is_a_settings_error_with_the_known_ones(model: str) -> None:
    with pytest.raises(SettingsError) as raised:
        make_provider(model, KEYS)
    [fault] = raised.value.faults
    assert fault.startswith(f"MODEL={model}:")
    assert all(known in fault for known in ("gemini-NAME", "openai/NAME", "anthropic/NAME", "local/NAME"))


@pytest.mark.parametrize(
    ("model", "variable", "source"),
    [
        ("gemini-2.5-flash", "GOOGLE_API_KEY", "https://aistudio.google.com/apikey"),
        ("openai/gpt-5", "OPENAI_API_KEY", "https://platform.openai.com/api-keys"),
        ("anthropic/claude-x", "ANTHROPIC_API_KEY", "https://platform.claude.com/settings/keys"),
    ],
)
def test_a_missing_key_is_named_with_where_to_get_it(model: str, variable: str, source: str) -> None:
    with pytest.raises(SettingsError) as raised:
        make_provider(model, VendorSettings())
    [fault] = raised.value.faults
    assert fault.startswith(variable)
    assert source in fault


@pytest.mark.parametrize(
    ("server_type", "model", "vendor", "key"),
    [
        (ScriptedOpenAI, "openai/m", "openai", ""),
        (ScriptedGemini, "gemini-2.5-flash", "google", "k"),
        (ScriptedAnthropic, "anthropic/claude-x", "anthropic", "k"),
    ],
)
async def test_a_vendors_address_is_a_setting_and_an_own_server_needs_no_key(
    server_type: type[ScriptedOpenAI | ScriptedGemini | ScriptedAnthropic], model: str, vendor: str, key: str
) -> None:
    async with server_type(["ok"], api_key=key or None) as server:
        settings = {f"{vendor}_api_key": key, f"{vendor}_base_url": server.base_url}
        provider, name = make_provider(model, VendorSettings(**settings))
        await probe_model(provider, name)
        await provider.aclose()
    assert [request.model for request in server.received] == [name]


def test_keys_are_not_shown() -> None:
    assert "secret" not in repr(KEYS)


async def test_a_probe_ends_after_the_first_event(wire: ConnectedProvider) -> None:
    wire.server.add_responses([Think("Hm."), Stall()])
    await probe_model(wire.provider, "the-model")
    await wire.server.wait_for_disconnects(1)


async def test_a_probe_of_a_silent_model_times_out(wire: ConnectedProvider) -> None:
    wire.server.add_responses([Stall()])
    async with asyncio.timeout(30):
        with pytest.raises(ProviderStreamError, match="sent nothing for"):
            await probe_model(wire.provider, "the-model", seconds=0.2)
    await wire.server.wait_for_disconnects(1)


async def test_a_probe_raises_the_providers_error(vendor: str) -> None:
    async with connect_provider(vendor, api_key="another") as wire:
        with pytest.raises(ProviderAuthError):
            await probe_model(wire.provider, "the-model")
    async with connect_provider(vendor, models=["another"]) as wire:
        with pytest.raises(ModelNotFoundError, match="the-model"):
            await probe_model(wire.provider, "the-model")
    async with connect_provider(vendor, [Fail(503)]) as wire:
        with pytest.raises(ProviderUnavailableError):
            await probe_model(wire.provider, "the-model")
    async with connect_provider(vendor, [Say("ok")]) as wire:
        await probe_model(wire.provider, "the-model")
