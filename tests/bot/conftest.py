from pathlib import Path

import pytest

from bot.monitoring import logs
from bot.settings import Settings


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # a folder without .env
    for name in [*Settings.model_fields, "dyno"]:
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def command_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Return the URL of a database, which does not exist yet, for commands that run in this process."""
    url = f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}"
    monkeypatch.setenv("DATABASE_URL", url)
    monkeypatch.setattr(logs, "configure_logging", lambda *_, **__: None)  # it would change the logs of other tests
    return url
