import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from core.errors import StoreError
from core.inbox.store import InboxStore
from core.store.schema import turns as turns_table
from core.turns import worker
from core.turns.store import TurnStore
from core.turns.turn import CancelReason, Turn
from core.turns.worker import TurnRunner, Worker
from tests.core.conftest import FailingDatabase, create_turn_store
from tests.fixtures import empty_databases as tables
from tests.fixtures.inbox_messages import inbound

SECRET = "password=hunter2"


class WorkerBench:
    """Running worker whose turns end only when the test allows it.

    Attributes:
        begun_turns: the begun turns.
        start_times: the time of each begin.
        ended_texts: the messages of the ended turns.
        cancellations: the arguments of each `CancelledError`.
        max_concurrent: the maximum number of concurrent turns.
        claim_count: the number of claims.
    """

    def __init__(self, database: FailingDatabase, turns: TurnStore, *, limit: int, poll: float) -> None:
        self.database = database
        self.turns = turns
        self.worker = Worker(self.turns, limit=limit, poll=poll)
        self.inbox = InboxStore(database, turns, self.worker)
        self.begun_turns: list[Turn] = []
        self.start_times: list[float] = []
        self.ended_texts: list[str] = []
        self.cancellations: list[object] = []
        self.max_concurrent = 0
        self.claim_count = 0
        self.is_claiming = False
        self.may_end = asyncio.Event()
        self.on_cancel: Callable[[], Awaitable[None]] | None = None
        self._changed = asyncio.Condition()
        turns.claim = self._claim  # type: ignore[method-assign]

    async def _claim(self, limit: int, *, running: Collection[str] = (), triggered_limit: int = 0) -> list[Turn]:
        self.is_claiming = True
        try:
            return await TurnStore.claim(self.turns, limit, running=running)
        finally:
            self.is_claiming = False
            self.claim_count += 1
            await self._notify()

    async def _answer(self, turn: Turn) -> None:
        self.begun_turns.append(turn)
        self.start_times.append(asyncio.get_running_loop().time())
        self.max_concurrent = max(self.max_concurrent, len(self.begun_turns) - len(self.ended_texts))
        await self._notify()
        try:
            await self.may_end.wait()
            if turn.newest_message.text == "break":
                raise ValueError(SECRET)
        except asyncio.CancelledError as stop:
            self.cancellations.append(stop.args)
            await self._notify()
            if self.on_cancel is not None:
                await self.on_cancel()
            raise
        finally:
            await self.turns.end(turn, "failed")
            self.ended_texts.append(turn.newest_message.text)
            await self._notify()

    async def is_handed_back(self) -> bool:
        """Return whether the only turn waits for a new claim, with its attempt refunded."""
        async with self.database.read() as connection:
            row = (await connection.execute(sa.select(turns_table))).one()
        return (row.state, row.owner, row.attempt) == ("queued", None, 1)

    async def wait_until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(20), self._changed:
            await self._changed.wait_for(condition)

    async def wait_for_ends(self, count: int) -> None:
        await self.wait_until(lambda: len(self.ended_texts) == count)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


@asynccontextmanager
async def run_worker(
    tmp_path: Path,
    *,
    limit: int = 100,
    poll: float = 60,
    url: str | None = None,
    seconds: float = 30,
    answer: TurnRunner | None = None,
) -> AsyncIterator[WorkerBench]:
    database = FailingDatabase(url or f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}")
    if url is None:
        await tables.create_tables(database)
    turns = await create_turn_store(database, seconds=seconds)
    bench = WorkerBench(database, turns, limit=limit, poll=poll)
    run = asyncio.create_task(bench.worker.run(answer or bench._answer))
    try:
        yield bench
    finally:
        bench.may_end.set()
        bench.on_cancel = None
        await bench.worker.stop(30)
        await asyncio.wait_for(run, 30)
        await database.aclose()


async def test_a_turn_that_is_cancelled_before_its_first_step_begins_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_worker(tmp_path) as bench:
        claim = bench.turns.claim

        async def claim_and_cancel(
            limit: int, *, running: Collection[str] = (), triggered_limit: int = 0
        ) -> list[Turn]:
            claimed = await claim(limit, running=running)
            for turn in claimed:  # the turn's task exists and has not begun
                asyncio.get_running_loop().call_soon(bench.worker.cancel, turn.id, CancelReason.STOP)
            return claimed

        monkeypatch.setattr(bench.turns, "claim", claim_and_cancel)
        await bench.inbox.accept(inbound())
        await bench.wait_until(lambda: bench.ended_texts)
        assert bench.cancellations == [(CancelReason.STOP,)]


async def test_a_flood_delays_another_person_by_no_more_than_one_turn(database_url: str, tmp_path: Path) -> None:
    url = database_url if database_url.startswith("postgresql") else None
    async with run_worker(tmp_path, limit=2, url=url) as bench:
        for number in range(50):
            await bench.inbox.accept(inbound("flood", session=f"p:{number}"))
        await bench.wait_until(lambda: len(bench.begun_turns) == 2)
        await bench.inbox.accept(inbound("question", session="q:1", author="grace"))
        bench.may_end.set()
        await bench.wait_until(lambda: len(bench.begun_turns) == 51)
        assert "question" in [turn.newest_message.text for turn in bench.begun_turns[:4]]


async def test_an_end_claims_only_if_the_worker_was_woken_during_the_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "END_CLAIM_SECONDS", 0.0)
    async with run_worker(tmp_path) as bench:
        bench.may_end.set()
        await bench.wait_until(lambda: bench.claim_count == 1)
        for count in range(1, 6):
            await bench.inbox.accept(inbound())
            await bench.wait_for_ends(count)
        assert bench.claim_count == 6, "the first one, and one for each message"
        bench.may_end.clear()
        await bench.inbox.accept(inbound())
        await bench.wait_until(lambda: bench.claim_count == 7)
        await bench.inbox.accept(inbound())
        await bench.wait_until(lambda: bench.claim_count == 8)
        bench.may_end.set()
        await bench.wait_for_ends(7)
        assert bench.claim_count == 9


async def test_turns_of_one_claim_start_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "TURN_SPACING_SECONDS", 0.2)
    async with run_worker(tmp_path) as bench:
        async with bench.worker._claiming:  # until all of them are queued
            for number in range(2):
                await bench.inbox.accept(inbound(session=f"p:{number}"))
        await bench.wait_until(lambda: len(bench.begun_turns) == 2)
        first, second = bench.start_times
        assert second - first > 0.15


async def test_turns_that_end_together_share_one_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "END_CLAIM_SECONDS", 1.0)
    async with run_worker(tmp_path) as bench:
        for number in range(30):
            await bench.inbox.accept(inbound(session=f"p:{number}"))
        await bench.wait_until(lambda: len(bench.begun_turns) == 30)
        claim_count = bench.claim_count
        bench.may_end.set()
        await bench.wait_until(lambda: len(bench.ended_texts) == 30)
        await bench.inbox.accept(inbound(session="p:30"))
        await bench.wait_until(lambda: len(bench.ended_texts) == 31)
        assert bench.claim_count - claim_count <= 4, "claims of the accepted messages, and one of the ends"


async def test_a_claimed_turn_that_is_reset_before_it_starts_ends_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "TURN_SPACING_SECONDS", 0.5)
    async with run_worker(tmp_path) as bench:
        async with bench.worker._claiming:
            await bench.inbox.accept(inbound("first", session="p:a"))
            await bench.inbox.accept(inbound("second", session="p:b"))
        await bench.wait_until(lambda: bench.begun_turns)
        assert len(bench.begun_turns) == 1
        await bench.inbox.reset_session(inbound("reset", session="p:b"))
        await bench.wait_until(lambda: bench.ended_texts)
        assert (bench.ended_texts, bench.cancellations) == (["second"], [(CancelReason.RESET,)])


async def test_a_failed_turn_stops_no_other_and_its_text_is_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_worker(tmp_path) as bench:
        bench.may_end.set()
        await bench.inbox.accept(inbound("break"))
        await bench.wait_until(lambda: bench.begun_turns)
        await bench.inbox.accept(inbound("after"))
        await bench.wait_until(lambda: bench.ended_texts == ["break", "after"])
    assert "ValueError" in caplog.text
    assert SECRET not in caplog.text


async def test_a_claim_is_retried_after_a_database_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with run_worker(tmp_path, poll=0.01) as bench:
        await bench.inbox.accept(inbound())
        await bench.wait_until(lambda: bench.begun_turns)
        bench.database.failures, bench.database.fails_reads = 3, True
        bench.worker.wake()
        await bench.database.recovered.wait()
        await bench.inbox.accept(inbound(session="p:2"))
        await bench.wait_until(lambda: len(bench.begun_turns) == 2)
    assert "turns cannot be claimed" in caplog.text


@pytest.mark.parametrize("is_away", [True, False])
async def test_a_turn_that_the_database_interrupts_counts_no_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_away: bool
) -> None:
    end, failures = TurnStore.end, iter(range(4))

    async def end_or_fail(self: TurnStore, *args: Any, **kwargs: Any) -> None:
        if next(failures, None) is not None:
            error = StoreError("out of reach")
            error.retryable = is_away
            raise error
        await end(self, *args, **kwargs)

    monkeypatch.setattr(TurnStore, "end", end_or_fail)
    async with run_worker(tmp_path, poll=0.01) as bench:
        bench.may_end.set()
        await bench.inbox.accept(inbound("hello"))
        await bench.wait_until(lambda: bench.ended_texts)
        assert [(turn.claim_number, turn.attempt) for turn in bench.begun_turns] == [
            (claim, 1) for claim in range(1, 6)
        ]


async def test_an_unexpected_error_of_a_claim_does_not_end_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    claim, faults = TurnStore.claim, iter([RuntimeError("nobody foresaw it")])

    async def claim_or_fail(self: TurnStore, *args: Any, **kwargs: Any) -> list[Turn]:
        if error := next(faults, None):
            raise error
        return await claim(self, *args, **kwargs)

    monkeypatch.setattr(TurnStore, "claim", claim_or_fail)
    async with run_worker(tmp_path, poll=0.01) as bench:
        await bench.inbox.accept(inbound())
        await bench.wait_until(lambda: bench.begun_turns)
    assert "RuntimeError" in caplog.text


async def test_messages_of_other_processes_are_found_without_a_notification(tmp_path: Path) -> None:
    async with run_worker(tmp_path, poll=0.01) as bench:
        deaf = Worker(bench.turns)
        await InboxStore(bench.database, bench.turns, deaf).accept(inbound())
        await bench.wait_until(lambda: bench.begun_turns)


async def test_a_reset_ends_the_running_turn_with_its_reason_and_only_once(tmp_path: Path) -> None:
    async with run_worker(tmp_path) as bench:
        word = asyncio.Event()

        async def wait_for_word() -> None:
            await word.wait()

        bench.on_cancel = wait_for_word
        await bench.inbox.accept(inbound("running"))
        await bench.wait_until(lambda: bench.begun_turns)
        await bench.inbox.reset_session(inbound("reset"))
        await bench.wait_until(lambda: bench.cancellations)
        await bench.inbox.reset_session(inbound("reset again"))
        stopping = asyncio.create_task(bench.worker.stop(0.01))
        await asyncio.sleep(0.02)
        word.set()
        await stopping
        await bench.wait_until(lambda: bench.ended_texts)
        assert bench.cancellations == [(CancelReason.RESET,)]
        assert bench.ended_texts == ["running"]


async def test_a_turn_claimed_after_the_grace_period_is_handed_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, claimed, go_on = TurnStore.claim, asyncio.Event(), asyncio.Event()

    async def claim_slowly(self: TurnStore, limit: int, *, running: Collection[str] = ()) -> list[Turn]:
        if turns := await claim(self, limit, running=running):
            claimed.set()
            await go_on.wait()
        return turns

    monkeypatch.setattr(TurnStore, "claim", claim_slowly)
    async with run_worker(tmp_path) as bench:
        await bench.inbox.accept(inbound("claimed late"))
        await claimed.wait()
        stopping = asyncio.create_task(bench.worker.stop(0.01))
        await asyncio.sleep(0.05)
        assert not stopping.done()
        go_on.set()
        await stopping
        assert bench.begun_turns == []
        assert await bench.is_handed_back()


async def test_a_turn_that_backs_off_at_a_stop_is_handed_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "BACKOFF_SECONDS", 60.0)
    async with run_worker(tmp_path) as bench:
        bench.may_end.set()
        with monkeypatch.context() as outage:
            outage.setattr(TurnStore, "end", raise_store_error)
            await bench.inbox.accept(inbound("hello"))
            await bench.wait_until(lambda: bench.begun_turns)
            await bench.worker.stop(5)
        assert await bench.is_handed_back()


@pytest.mark.parametrize("reason", [CancelReason.SHUTDOWN, CancelReason.STOP])
async def test_a_turn_that_neither_ends_nor_hands_itself_back_is_handed_back_by_a_stop(
    tmp_path: Path, reason: CancelReason
) -> None:
    started = asyncio.Event()

    async def answer_forever(_turn: Turn) -> None:
        started.set()
        await asyncio.Event().wait()

    async with run_worker(tmp_path, answer=answer_forever) as bench:
        await bench.inbox.accept(inbound())
        await started.wait()
        stopping = asyncio.create_task(bench.worker.stop(0.01 if reason == CancelReason.SHUTDOWN else 5))
        await asyncio.sleep(0)
        if reason == CancelReason.STOP:
            (turn_id,) = bench.worker._running
            bench.worker.cancel(turn_id, CancelReason.STOP)
        await stopping
        assert await bench.is_handed_back()


async def test_a_turn_that_has_rested_while_a_stop_waits_for_others_is_handed_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "BACKOFF_SECONDS", 0.05)
    async with run_worker(tmp_path) as bench:
        async with bench.worker._claiming:
            for text in ("works on", "fails"):
                await bench.inbox.accept(inbound(text, session=f"p:{text}"))
        await bench.wait_until(lambda: len(bench.begun_turns) == 2)
        stopping = asyncio.create_task(bench.worker.stop(0.3))
        await asyncio.sleep(0)
        with monkeypatch.context() as outage:
            outage.setattr(TurnStore, "end", raise_store_error)
            (run,) = [run for run in bench.worker._running.values() if run.turn.newest_message.text == "fails"]
            run.task.cancel()
            await asyncio.wait([run.task])
        await stopping
        owners = sa.select(turns_table.c.owner).where(turns_table.c.session == "p:fails")
        async with bench.database.read() as connection:
            assert (await connection.execute(owners)).scalars().all() == [None]


async def test_a_turn_cancelled_while_a_stop_hands_it_back_is_handed_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "BACKOFF_SECONDS", 5.0)
    hand_back = TurnStore.hand_back
    async with run_worker(tmp_path) as bench:
        bench.may_end.set()

        async def cancel_and_hand_back(self: TurnStore, turn: Turn, reason: str = "") -> None:
            bench.worker.cancel(turn.id, CancelReason.STOP)
            await hand_back(self, turn, reason)

        with monkeypatch.context() as outage:
            outage.setattr(TurnStore, "end", raise_store_error)
            outage.setattr(TurnStore, "hand_back", cancel_and_hand_back)
            await bench.inbox.accept(inbound("hello"))
            await bench.wait_until(lambda: bench.begun_turns)
            await bench.worker.stop(5)
        assert await bench.is_handed_back()


async def raise_store_error(*_args: Any, **_kwargs: Any) -> None:
    raise StoreError("out of reach")


async def test_a_turn_that_keeps_failing_is_retried_with_growing_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "BACKOFF_SECONDS", 0.02)

    async def fail_to_end(self: TurnStore, *_args: Any, **_kwargs: Any) -> None:
        error = StoreError("a row that cannot be read")
        error.retryable = False
        raise error

    end = TurnStore.end
    monkeypatch.setattr(TurnStore, "end", fail_to_end)
    async with run_worker(tmp_path, poll=0.005) as bench:
        bench.may_end.set()
        await bench.inbox.accept(inbound("hello"))
        await bench.wait_until(lambda: len(bench.begun_turns) == 5)
        monkeypatch.setattr(TurnStore, "end", end)
        await bench.wait_until(lambda: bench.ended_texts)
        pauses = [later - now for now, later in pairwise(bench.start_times)]
        assert all(pause >= least for pause, least in zip(pauses, (0.02, 0.04, 0.08, 0.16), strict=False))


async def test_a_turn_of_another_worker_ends_silently(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "CANCEL_CHECK_SECONDS", 0.01)
    is_shared = database_url.startswith("postgresql")
    async with run_worker(tmp_path, url=database_url if is_shared else None, seconds=0.3) as bench:
        bench.may_end = asyncio.Event()
        await bench.inbox.accept(inbound())
        await bench.wait_until(lambda: bench.begun_turns)
        if is_shared:  # the lease is not renewed: the worker hangs
            await asyncio.sleep(0.3)
        else:
            await bench.turns._lease.release()
        other = await create_turn_store(bench.database)
        (claimed,) = await other.claim(1)
        assert claimed.attempt == 2
        await bench.worker.stop(5)
        assert bench.cancellations == [(CancelReason.LEASE_LOST,)]
        await other.end(claimed, "failed")


async def test_workers_on_one_database_notify_each_other_at_once(postgres: str, tmp_path: Path) -> None:
    """Check that a PostgreSQL notification reaches the other worker without a poll."""
    async with run_worker(tmp_path, url=postgres) as one, run_worker(tmp_path, url=postgres, limit=0) as other:
        await other.inbox.accept(inbound("for the other one"))
        await one.wait_until(lambda: one.begun_turns)
        await other.inbox.reset_session(inbound("reset"))
        await one.wait_until(lambda: one.cancellations)
        assert one.cancellations == [(CancelReason.RESET,)]
