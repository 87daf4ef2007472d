import pytest

from bot import settings as configuration
from bot.manifest import Platform, manifest
from channels.discord.invite import link
from core.errors import SettingsError


def test_discords_link_goes_by_the_settings_that_the_bot_runs_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISCORD_BOT_TOKEN", "MTIzNDU2Nzg5MDEyMzQ1Njc4.Gabcde.abc")
    assert manifest(Platform.DISCORD, configuration.load()) == link(123456789012345678, auto_thread=False)
    monkeypatch.setenv("DISCORD_AUTO_THREAD", "1")
    assert manifest(Platform.DISCORD, configuration.load()) == link(123456789012345678, auto_thread=True)


def test_without_the_token_it_is_told_what_is_missing() -> None:
    with pytest.raises(SettingsError, match="DISCORD_BOT_TOKEN is not set"):
        manifest(Platform.DISCORD, configuration.load())
