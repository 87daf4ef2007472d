import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from core.inbox.store import InboxStore
from core.messages.inbox_message import AcceptResult, InboxOutcome
from core.sessions.agent_routing import AgentRouter
from core.store.database import Database
from core.store.schema import inbox as table
from core.store.workers.lease import Lease
from core.turns.queries import record_message
from core.turns.rerun import RerunDenial
from core.turns.store import TurnStore
from core.turns.worker import Worker
from core.usage.user_rate_limits import (
    CommandLimiter,
    DenialNoticeStore,
    RateLimit,
    RateLimitDenial,
    UserRateLimiter,
)
from tests.core.conftest import count_rows
from tests.fixtures.inbox_messages import inbound

Workers = Callable[[UserRateLimiter], InboxStore]


@pytest.fixture
async def workers(database: Database, tmp_path: Path) -> Workers:
    lease = Lease(database)
    await lease.acquire()
    turns = TurnStore(database, lease, AgentRouter("parley"))

    def make(rates: UserRateLimiter) -> InboxStore:
        return InboxStore(database, turns, Worker(turns), rates=rates)

    return make


async def test_concurrent_workers_share_a_persons_limit_and_lose_no_message(
    workers: Workers, database: Database
) -> None:
    two = [workers(UserRateLimiter(user=RateLimit(5, 3600))) for _ in range(2)]
    messages = [inbound(session=f"place:{n}", author="ada", sent_at=time.time()) for n in range(12)]
    came = await asyncio.gather(*(two[n % 2].accept(message) for n, message in enumerate(messages)))
    accepted = [n for n, became in enumerate(came) if not isinstance(became, RateLimitDenial)]
    assert len(accepted) == 5
    (until,) = {round(became.until, -1) for became in came if isinstance(became, RateLimitDenial)}
    assert until == pytest.approx(time.time() + 3600, abs=20)
    # each delivery of a message has the same result
    for n, message in enumerate(messages):
        redelivered = await two[0].accept(message)
        assert redelivered is AcceptResult.DUPLICATE if n in accepted else isinstance(redelivered, RateLimitDenial)
    assert await count_rows(database, table) == 5
    assert await two[0].accept(inbound(session="place:1", author="grace")) is not AcceptResult.DUPLICATE


async def test_a_flood_over_the_limit_adds_no_rows(workers: Workers, database: Database) -> None:
    inbox = workers(UserRateLimiter(user=RateLimit(3, 60), channel=RateLimit(10, 60)))
    for _ in range(3):
        assert not isinstance(await inbox.accept(inbound(sent_at=time.time())), RateLimitDenial)
    count = await count_rows(database, table)
    for n in range(100):
        assert isinstance(await inbox.accept(inbound(session=f"place:{n}", sent_at=time.time())), RateLimitDenial)
    assert await count_rows(database, table) == count


async def test_a_denied_message_is_denied_again_when_there_is_room(workers: Workers) -> None:
    inbox, now = workers(UserRateLimiter(user=RateLimit(2, 60))), time.time()
    first, denied = [inbound(sent_at=now - 300 + n) for n in range(2)], inbound(sent_at=now - 298)
    for message in first:
        assert not isinstance(await inbox.accept(message), RateLimitDenial)
    for _ in range(2):
        assert await inbox.accept(denied) == RateLimitDenial(now - 240)
        assert await inbox.accept(inbound(sent_at=time.time())) is AcceptResult.WAITING
    assert await inbox.accept(denied) == RateLimitDenial(now - 240)


async def test_people_share_the_limit_of_a_place_and_commands_do_not_count(workers: Workers) -> None:
    inbox = workers(UserRateLimiter(channel=RateLimit(2, 60)))
    async with inbox._database.write() as connection:
        assert await record_message(connection, inbound(session="place:1"), InboxOutcome.COMMAND, kind="status")
    assert await inbox.accept(inbound(session="place:1", author="ada")) is AcceptResult.NEXT
    assert await inbox.accept(inbound(session="place:2", author="grace")) is AcceptResult.NEXT
    assert isinstance(await inbox.accept(inbound(session="place:3", author="linus")), RateLimitDenial)
    assert await inbox.accept(inbound(session="elsewhere:1", author="linus")) is AcceptResult.NEXT
    assert await inbox.request_rerun("unknown", author="ada", kind="retry") is RerunDenial.EXPIRED


@pytest.mark.parametrize(
    ("text", "rate"), [("20/h", RateLimit(20, 3600)), (" 3 / m", RateLimit(3, 60)), ("1/d", RateLimit(1, 86400))]
)
def test_a_rate_limit_is_a_number_and_a_unit(text: str, rate: RateLimit) -> None:
    assert RateLimit.parse(text) == rate


@pytest.mark.parametrize("text", ["", "20", "h", "0/h", "-1/h", "20/y", "2.5/h", "20 per hour"])
def test_invalid_rate_limits_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="such as 20/h"):
        RateLimit.parse(text)


async def test_counting_a_places_messages_uses_an_index(database: Database) -> None:
    if not database.is_sqlite:
        return
    counted = sa.select(table.c.sent_at).where(table.c.place == "p", table.c.sent_at > 1.0)
    newest = counted.order_by(table.c.sent_at.desc()).compile(dialect=database.engine.dialect)
    async with database.read() as connection:
        steps = await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {newest}", ("p", 1.0))
        assert ["ix_inbox_place (place=? AND sent_at>?)" in row.detail for row in steps] == [True]


async def test_one_worker_notifies_a_person_once_per_period(database: Database) -> None:
    workers = [DenialNoticeStore(database) for _ in range(3)]
    claims = await asyncio.gather(*(worker.claim_notice("slack:U1", "access") for worker in workers for _ in range(3)))
    assert sorted(claims) == [False] * 8 + [True]
    assert await workers[0].claim_notice("slack:U2", "access")
    assert await workers[0].claim_notice("slack:U1", "rate", until=time.time() - 1)
    assert await workers[1].claim_notice("slack:U1", "rate", until=time.time() + 60)
    assert not await workers[2].claim_notice("slack:U1", "rate")


async def test_a_late_delivery_of_a_denied_message_brings_no_second_notice(database: Database) -> None:
    notices, now = DenialNoticeStore(database), time.time()
    assert await notices.claim_notice("slack:U1", "rate", sent_at=now - 300, until=now - 240)
    assert not await notices.claim_notice("slack:U1", "rate", sent_at=now - 300, until=now - 240)
    assert await notices.claim_notice("slack:U1", "rate", sent_at=now, until=now + 60)


def test_each_person_has_a_window_of_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_020.0
    monkeypatch.setattr(time, "time", lambda: now)
    limiter = CommandLimiter(RateLimit(2, 60))
    assert [limiter.consume("slack:U1") for _ in range(3)] == [None, None, RateLimitDenial(1_080.0)]
    assert limiter.consume("slack:U2") is None
    now = 1_079.0
    assert limiter.consume("slack:U1") == RateLimitDenial(1_080.0)
    now = 1_080.0
    assert limiter.consume("slack:U1") is None
