import stat
from pathlib import Path

import pytest

from bot.settings import DEFAULT_MODEL, LOCAL_MODEL, load_settings
from bot.simulator.model_keys import save_key
from chatrig.models import ScriptedAnthropic, ScriptedGemini, ScriptedOpenAI
from core.errors import ParleyError, SettingsError
from core.observability.secret_redaction import redact_secrets

COMMENTED = "# mine\nLOG_LEVEL=DEBUG\n"


def write_env(text: str) -> None:
    Path(".env").write_text(text)


def read_env() -> str:
    return Path(".env").read_text() if Path(".env").exists() else ""


def get_env_mode() -> int:
    return stat.S_IMODE(Path(".env").stat().st_mode)


@pytest.mark.parametrize(
    ("kind", "key", "prefix", "written"),
    [
        (ScriptedGemini, "AIza-good", "GOOGLE", {"GOOGLE_API_KEY": "AIza-good"}),
        (ScriptedOpenAI, "sk-good", "OPENAI", {"OPENAI_API_KEY": "sk-good", "MODEL": "openai/gpt-5-mini"}),
        (
            ScriptedAnthropic,
            "sk-ant-good",
            "ANTHROPIC",
            {"ANTHROPIC_API_KEY": "sk-ant-good", "MODEL": "anthropic/claude-haiku-4-5"},
        ),
    ],
)
async def test_a_key_is_recognized_tried_and_stored(
    monkeypatch: pytest.MonkeyPatch,
    kind: type[ScriptedGemini | ScriptedOpenAI | ScriptedAnthropic],
    key: str,
    prefix: str,
    written: dict[str, str],
) -> None:
    write_env(COMMENTED)
    async with kind(lambda _: "ok", api_key=key) as server:
        monkeypatch.setenv(f"{prefix}_BASE_URL", server.base_url)
        with pytest.raises(ParleyError, match="key") as refusal:
            await save_key(f"{key}-bad")
        assert f"{key}-bad" not in str(refusal.value)
        assert read_env() == COMMENTED
        saved = await save_key(f" {key}\n")
    assert saved.settings == written
    assert saved.model == load_settings().simulator_model == written.get("MODEL", DEFAULT_MODEL)
    assert saved.models[0] == saved.model
    assert LOCAL_MODEL in saved.models
    assert read_env().startswith(COMMENTED)
    assert get_env_mode() == 0o600
    assert key not in redact_secrets(f"the key is {key}")


async def test_a_key_of_another_form_needs_its_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ScriptedOpenAI(lambda _: "ok") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("MODEL", "openai/own")
        with pytest.raises(SettingsError, match="choose it in the list"):
            await save_key("a-gateways-key")
        saved = await save_key("a-gateways-key", "openai")
        assert [request["model"] for request in server.requests] == ["own"]
    assert saved.settings == {"OPENAI_API_KEY": "a-gateways-key"}


async def test_an_unreachable_provider_is_reported_and_nothing_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_BASE_URL", "http://127.0.0.1:1")
    with pytest.raises(SettingsError, match="GOOGLE_API_KEY: gemini cannot be reached"):
        await save_key("AIza-good")
    assert read_env() == ""


@pytest.mark.parametrize("key", ["", "  ", "two words", "sk-\nsk-", "k" * 501, "schlüssel"])
async def test_a_text_that_is_no_key_is_not_sent(key: str) -> None:
    with pytest.raises(SettingsError, match="not an API key"):
        await save_key(key, "openai")
