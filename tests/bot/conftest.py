from pathlib import Path

import pytest

from bot.settings import Settings


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # a folder without .env
    for name in [*Settings.model_fields, "dyno"]:
        monkeypatch.delenv(name.upper(), raising=False)
