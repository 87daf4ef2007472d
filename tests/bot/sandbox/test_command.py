import pytest

from bot import settings as configuration
from bot.sandbox import command as sandbox

LOCAL = configuration.LOCAL_MODEL


@pytest.mark.parametrize(
    ("key", "vendor", "address"),
    [
        ("GOOGLE_API_KEY", "gemini-", "GOOGLE_BASE_URL"),
        ("OPENAI_API_KEY", "openai/", "OPENAI_BASE_URL"),
        ("ANTHROPIC_API_KEY", "anthropic/", "ANTHROPIC_BASE_URL"),
    ],
)
def test_the_models_of_a_vendor_whose_key_is_set_can_be_chosen_on_the_page(
    monkeypatch: pytest.MonkeyPatch, key: str, vendor: str, address: str
) -> None:
    assert sandbox._models(configuration.load()) == [LOCAL]
    monkeypatch.setenv(key, "a key")
    offered = sandbox._models(configuration.load())
    assert LOCAL in offered
    assert len(offered) > 3
    assert all(name.startswith(vendor) and not name.endswith("*") for name in offered if name != LOCAL)
    monkeypatch.setenv(address, "http://127.0.0.1:1/v1")  # whoever is there, he has models of his own
    assert set(sandbox._models(configuration.load())) <= {configuration.DEFAULT_MODEL, LOCAL}
