"""What a turn costs in the session service, by the length of the history: `make bench-sessions [LENGTHS="100 2000"]`.

A plain turn of an ADK agent is one `get_session` and two `append_event`s. Each service is measured on a history of
each length, in one run, on files in a temporary folder.
"""

import asyncio
import gc
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from google.adk.events.event import Event
from google.adk.sessions import BaseSessionService
from google.adk.sessions.database_session_service import DatabaseSessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from core.sessions.service import SessionService
from core.store.database import Database
from core.store.migrate import migrate
from core.tokens import TokenCounter

LENGTHS = (100, 2_000)
ROUNDS = 15
WORDS = "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor "
APP, USER, SESSION = "bench", "somebody", "one"

Service = tuple[str, Callable[[Path], Awaitable[BaseSessionService]]]


def event(number: int) -> Event:
    is_user = number % 2 == 0
    role, author = ("user", "user") if is_user else ("model", "agent")
    text = f"{number} " + WORDS * (2 if is_user else 6)
    content = types.Content(role=role, parts=[types.Part(text=text)])
    return Event(invocation_id=f"turn-{number // 2}", author=author, content=content)


async def parley(folder: Path) -> BaseSessionService:
    database = Database(f"sqlite+aiosqlite:///{folder / 'parley.db'}")
    await migrate(database)
    return SessionService(database, TokenCounter(Path(".parley/tiktoken")), agent="agent")


async def adk_sqlite(folder: Path) -> BaseSessionService:
    return SqliteSessionService(str(folder / "adk.db"))


async def adk_database(folder: Path) -> BaseSessionService:
    return DatabaseSessionService(f"sqlite+aiosqlite:///{folder / 'adk-sqlalchemy.db'}")


SERVICES: Sequence[Service] = (
    ("Parley", parley),
    ("ADK SqliteSessionService", adk_sqlite),
    ("ADK DatabaseSessionService", adk_database),
)


async def measure(service: BaseSessionService, lengths: Sequence[int]) -> list[tuple[float, float]]:
    """Median of `ROUNDS` turns, and the longest stall of the event loop meanwhile, in ms, at each length."""
    session = await service.create_session(app_name=APP, user_id=USER, session_id=SESSION)
    stored, figures = 0, []
    for length in lengths:
        while stored < length:
            await service.append_event(session, event(stored))
            stored += 1
        stall = asyncio.create_task(longest_stall(), name="stall")
        times = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            loaded = await service.get_session(app_name=APP, user_id=USER, session_id=SESSION)
            assert loaded is not None
            session = loaded
            for _ in range(2):
                await service.append_event(session, event(stored))
                stored += 1
            times.append(time.perf_counter() - began)
        stall.cancel()
        figures.append((statistics.median(times) * 1000, await stall * 1000))
    return figures


async def longest_stall() -> float:
    """Until cancelled: by how many seconds a sleep of a millisecond overran, at worst."""
    worst, before = 0.0, time.perf_counter()
    try:
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            worst, before = max(worst, now - before - 0.001), now
    except asyncio.CancelledError:
        return worst


async def main(lengths: Sequence[int]) -> None:
    logging.disable(logging.WARNING)  # of each load that cuts
    gc.collect()
    gc.freeze()  # as the bot does when it is ready
    print(f"{'a turn: get + 2 appends':28}" + "".join(f"{length:>10,} events" for length in lengths))
    for name, make in SERVICES:
        with tempfile.TemporaryDirectory() as folder:
            figures = await measure(await make(Path(folder)), lengths)
        print(f"{name:28}" + "".join(f"{turn:>14.1f} ms" for turn, _ in figures))
        print(f"{'  longest stall of the loop':28}" + "".join(f"{stall:>14.1f} ms" for _, stall in figures))


if __name__ == "__main__":
    asyncio.run(main([int(length) for length in sys.argv[1:]] or LENGTHS))
