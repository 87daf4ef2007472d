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

#: On each of the databases.
CRASHES = 30
SEED = 5


@pytest.mark.timeout(300)
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_whatever_await_the_process_dies_at_each_message_has_one_end(
    database: str, request: pytest.FixtureRequest, record_property: Callable[[str, object], None], tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        if database == "postgres":
            server: PostgresSandbox = request.getfixturevalue("postgres_server")
            make = await databases.postgres(server)
        else:
            make = await databases.sqlite(tmp_path)
        stage = Stage(await stack.enter_async_context(Zygote()), make, tmp_path)
        passages = await campaign.count(stage)
        crashes = campaign.sample(campaign.crashes(passages), CRASHES, SEED)
        tried: list[Tried] = await campaign.try_all(stage, crashes)
    record_property("table", table(passages, tried))
    assert "\n".join(one.report for one in tried if one.report) == ""
    assert sum(not one.outcome.reached for one in tried) <= CRASHES / 10
