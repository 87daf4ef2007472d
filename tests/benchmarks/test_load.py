from pathlib import Path

import pytest

from benchmarks.load import run
from benchmarks.load.report import faults
from benchmarks.load.run import LoadConfig


@pytest.mark.timeout(240)
async def test_an_overlapping_deploy_loses_doubles_and_cuts_no_reply(tmp_path: Path, python: Path) -> None:
    result = await run.run_load(
        LoadConfig(sessions=10, minutes=0.9, deploy_interval=0.5, pause=0.1), "postgres", tmp_path
    )
    assert faults(result) == [], (tmp_path / "dynos.log").read_text()[-4000:]
    assert (result.outcome.counts["deploys"], result.outcome.counts["releases killed"]) == (1, 1)
    assert {wait.phase for wait in result.waits} > {"during"}
    assert str(python) in (tmp_path / "python").read_text()
