"""The program is killed at its awaits, and nothing of what people said is lost, doubled or half done.

Here at some of them, chosen by chance; `make chaos` does it at all.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from sandbox.postgres import PostgresSandbox
from tests.chaos import campaign, databases
from tests.chaos.campaign import Tried
from tests.chaos.report import table
from tests.chaos.stage import Stage
from tests.chaos.zygote import Zygote

#: How many cases, on each of the databases: with one death, and with two.
ONCE, TWICE = 24, 8
SEED = 5


@pytest.mark.timeout(300)
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_whatever_await_the_process_dies_at_each_message_has_one_end(
    database: str, request: pytest.FixtureRequest, record_property: Callable[[str, object], None], tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        if database == "postgres":
            server: PostgresSandbox = request.getfixturevalue("postgres_server")
            lend = databases.postgres(server)
        else:
            lend = await databases.sqlite(tmp_path)
        stage = Stage(await stack.enter_async_context(Zygote()), lend, tmp_path)
        plan = await campaign.plan(stage)
        cases = [*campaign.sample(plan.once, ONCE, SEED), *campaign.sample(plan.twice, TWICE, SEED)]
        tried: list[Tried] = await campaign.try_all(stage, cases)
    record_property("table", table(plan.passages, tried))
    assert "\n".join(one.report for one in tried if one.report) == ""
    assert sum(not one.outcome.reached for one in tried) <= len(cases) / 10
