"""What streaming costs the process, with the wire's deltas merged and as they come: `make bench-deltas`.

Many models speak at once, in this process, so that what is measured is ADK and Parley and no vendor's client.
"""

import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

from benchmarks.sessions import longest_stall
from core.agent import AgentConfig, make_app
from core.models.adapter import ModelAdapter
from core.models.merging import Merging
from core.models.provider import Done, Provider, ProviderEvent, Request, Text
from core.runtime import AgentRuntime, warm_up
from core.sessions.service import SessionService
from core.store.database import Database
from core.store.migrate import migrate
from core.tokens import TokenCounter

STREAMS = 200
TOKENS_A_SECOND = 40
SECONDS = 10.0


class Speaker:
    """A model that says words at an even pace."""

    name = "speaker"

    async def stream(self, _request: Request) -> AsyncIterator[ProviderEvent]:
        began = time.perf_counter()
        for number in range(int(SECONDS * TOKENS_A_SECOND)):
            due = began + number / TOKENS_A_SECOND
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            yield Text(f"word{number} ")
        yield Done()

    async def aclose(self) -> None:
        return


async def measure(provider: Provider, streams: int) -> tuple[float, float, float, int]:
    """Wall and CPU seconds, the longest stall of the loop in ms, and how many deltas came through."""
    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite+aiosqlite:///{Path(folder) / 'bench.db'}")
        await migrate(database)
        sessions = SessionService(database, TokenCounter(Path(".parley/tiktoken")))
        app = make_app(AgentConfig(), model=ModelAdapter(model="speaker", provider=provider))
        runtime = AgentRuntime(app, sessions)
        names = [f"session-{number}" for number in range(streams)]
        for name in names:
            await sessions.create_session(app_name=app.name, user_id="bench", session_id=name)
        gc.collect()
        gc.freeze()
        stall = asyncio.create_task(longest_stall(), name="stall")
        wall, cpu = time.perf_counter(), time.process_time()
        deltas = sum(await asyncio.gather(*(listen(runtime, name) for name in names)))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        stall.cancel()
        worst = await stall * 1000
        await runtime.aclose()
        await database.aclose()
    return wall, cpu, worst, deltas


async def listen(runtime: AgentRuntime, session: str) -> int:
    deltas = 0
    async with aclosing(runtime.stream(user_id="bench", session_id=session, text="Speak.")) as events:
        async for event in events:
            deltas += event.type == "text_delta"
            if event.error is not None:
                raise event.error
    return deltas


async def main(streams: int) -> None:
    await warm_up()
    print(f"{streams} streams of {TOKENS_A_SECOND} tokens a second, {SECONDS:g} s")
    print(f"{'':12}{'wall':>10}{'CPU':>10}{'cores':>8}{'worst stall':>14}{'deltas':>10}")
    for name, provider in (("as they come", Speaker()), ("merged", Merging(Speaker()))):
        wall, cpu, worst, deltas = await measure(provider, streams)
        print(f"{name:12}{wall:>8.1f} s{cpu:>8.1f} s{cpu / wall:>8.2f}{worst:>11.0f} ms{deltas:>10,}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else STREAMS))
