import pytest

from bot.check import Verdict, check


async def test_a_fault_of_the_databases_url_names_its_setting_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:hidden@h/d?channel_binding=require&timeout=soon")
    lines = [finding.line for finding in await check() if finding.verdict is Verdict.FAIL]
    named = [line for line in lines if "DATABASE_URL" in line]
    assert [line.count("DATABASE_URL:") for line in named] == [1, 1]
    assert "channel_binding" in named[0]
    assert not any("hidden" in line for line in lines)
