"""The program is killed at its awaits, and nothing of what people said is lost, doubled or half done.

Here at some of them, chosen by chance; `make chaos` does it at all.
"""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.postgres import PostgresSandbox
from tests.chaos import campaign, databases
from tests.chaos.campaign import Tried
from tests.chaos.report import table
from tests.chaos.stage import MOULD, LendDatabase, Stage
from tests.chaos.verdict import judge
from tests.conftest import zygote_of
from tests.zygote import Zygote

#: How many cases, on each of the databases: with one death, and with two.
ONCE, TWICE = 25, 5
SEED = 5

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]  # on a machine that is at its limits


@pytest.fixture(scope="module")
def zygote(pytestconfig: pytest.Config) -> Iterator[Zygote]:
    with zygote_of(pytestconfig, MOULD) as process:
        yield process


@pytest.fixture(params=["sqlite", "postgres"])
async def lend(request: pytest.FixtureRequest, zygote: Zygote, tmp_path: Path) -> LendDatabase:
    if request.param == "sqlite":
        return await databases.sqlite(tmp_path)
    server: PostgresSandbox = request.getfixturevalue("postgres_server")
    await asyncio.to_thread(zygote.warm, await databases.rehearsed(server))
    return await databases.postgres(server)


async def test_whatever_await_the_process_dies_at_each_message_has_one_end(
    zygote: Zygote, lend: LendDatabase, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    stage = Stage(zygote, lend, tmp_path)
    plan = await campaign.plan(stage)
    cases = [*campaign.sample(plan.once, ONCE, SEED), *campaign.sample(plan.twice, TWICE, SEED)]
    tried: list[Tried] = []
    await campaign.try_all(stage, cases, tried.append)
    record_property("table", table(plan.passages, tried))
    assert "\n".join(one.report for one in tried if one.report) == ""
    assert sum(not one.reached for one in tried) <= len(cases) / 10


async def test_a_turn_that_may_not_be_tried_again_ends_with_an_apology_and_the_next_one_is_answered(
    zygote: Zygote, tmp_path: Path
) -> None:
    stage = Stage(zygote, await databases.sqlite(tmp_path), tmp_path, TURN_MAX_ATTEMPTS="1")
    outcome = await stage.play(campaign.midst(await campaign.count(stage)))
    verdict = judge(outcome.evidence)
    assert verdict.findings == []
    assert set(verdict.ends.values()) == {"answered", "apology"}
