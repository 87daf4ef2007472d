"""Client of the simulator's inspector."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import pytest

from bot.simulator import inspector
from core.conversations.turn_report import TurnReports
from core.errors import StoreError
from core.store.database import Database
from core.tools.human_requests import Verdict
from core.usage.prices import Prices
from tests.fixtures.empty_databases import create_tables
from tests.fixtures.inspector_page import run_inspector_page


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}")
    await create_tables(database)
    yield database
    await database.aclose()


def test_each_decision_is_the_title_of_a_turn() -> None:
    assert inspector._DECISIONS.keys() == set(get_args(Verdict))


async def test_updates_go_on_after_a_failed_poll(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    list_reports, failures = TurnReports.list, [StoreError("the database is locked")]
    is_polled_again = asyncio.Event()

    async def fail_once(reports: TurnReports, **arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        is_polled_again.set()
        return await list_reports(reports, **arguments)

    monkeypatch.setattr(inspector, "IDLE_POLL_SECONDS", 0.01)
    monkeypatch.setattr(TurnReports, "list", fail_once)
    async with run_inspector_page(database, Prices()) as (plugin, received):
        await asyncio.wait_for(is_polled_again.wait(), 30)
        plugin.send_models(["openai/a"], uses_default=True, replaced=[])
        assert (await asyncio.wait_for(received.get(), 30))["agent_models"]["names"] == ["openai/a"]
    assert "the turns for the simulator's page cannot be read: StoreError" in caplog.text
