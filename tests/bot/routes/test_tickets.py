"""Route of tickets: keys, sizes, repeated requests, floods, and a database that fails."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import sqlalchemy as sa

from bot.monitoring.health import HealthMonitor
from bot.routes import tickets
from bot.routes.tickets import MAX_FAILURES, TicketRoutes
from bot.server import MAX_REQUEST_BYTES, run_server
from core.concurrency import event_loop
from core.errors import StoreError
from core.sessions.lifecycle import begin_generation, new_session_row
from core.store.database import Database
from core.store.schema import inbox, sessions
from core.turns.automation.jobs import FinishResult, JobStore, ToolInvocation, get_event_key, new_job_id, new_key
from core.turns.automation.tickets import TICKETS_PATH
from core.turns.claims import derive_turn_id
from tests.fixtures.empty_databases import create_tables
from tests.fixtures.inbox_messages import inbound

SESSION = "place:1"

#: Status and JSON of a response.
Response = tuple[int, dict[str, Any]]


class TicketClient:
    """Sender of results, with the store of one ticket."""

    def __init__(self, session: aiohttp.ClientSession, url: str, database: Database, health: HealthMonitor) -> None:
        self.session = session
        self.url = url
        self.database = database
        self.health = health
        self.store = JobStore(database)
        self.id = new_job_id()
        self.key = new_key()

    async def post(
        self, body: bytes = b'{"stars": 5}', *, id_: str = "", key: str | None = None, **headers: str
    ) -> Response:
        sent = {"Content-Type": "application/json", "Authorization": f"Bearer {self.key if key is None else key}"}
        async with self.session.post(
            f"{self.url}{TICKETS_PATH}{id_ or self.id}", data=body, headers=sent | headers
        ) as response:
            return response.status, await response.json(content_type=None) or {}

    async def list_messages(self) -> list[Mapping[str, Any]]:
        async with self.database.read() as connection:
            return list((await connection.execute(sa.select(inbox.c.message).order_by(inbox.c.id))).scalars())


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[TicketClient]:
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}")
    await create_tables(database)
    health = HealthMonitor()
    try:
        async with run_server(0, [], is_needed=True) as server, aiohttp.ClientSession() as session:
            client = TicketClient(session, f"http://127.0.0.1:{server.port}", database, health)
            server.add_routes(TicketRoutes(client.store, health).routes)
            async with database.write() as connection:
                await connection.execute(sa.insert(sessions).values(new_session_row(SESSION, "parley", "place")))
            call = ToolInvocation(SESSION, 1, "run", "call_1", "count", {})
            await client.store.create(client.id, call, inbound(session=SESSION), key=client.key)
            yield client
    finally:
        await database.aclose()


async def test_a_result_is_stored_once_with_the_id_of_its_turn(client: TicketClient) -> None:
    accepted = (202, {"turn": derive_turn_id(get_event_key(client.id))})
    assert await asyncio.gather(*(client.post() for _ in range(5))) == [accepted] * 5
    (message,) = await client.list_messages()
    assert '> {"stars": 5}' in message["text"]
    assert (await client.post(key="plt_other"))[0] == 401


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer ", "Basic {key}", "{key}", "Bearer {key}x"])
async def test_a_wrong_key_is_refused_and_stores_nothing(client: TicketClient, authorization: str) -> None:
    status, data = await client.post(Authorization=authorization.format(key=client.key))
    assert (status, list(data)) == (401, ["error"])
    assert await client.list_messages() == []


async def test_an_error_is_the_result_of_a_job_that_failed(client: TicketClient) -> None:
    await client.post(b'{"error": "sold out"}')
    (message,) = await client.list_messages()
    assert message["trigger"]["outcome"] == "failed"
    assert "> sold out" in message["text"]


async def test_an_unknown_ticket_and_another_method_are_refused(client: TicketClient) -> None:
    assert (await client.post(id_="0123456789"))[0] == 404
    for path in ("", "x", f"{client.id}/x", "%0a"):
        async with client.session.post(f"{client.url}{TICKETS_PATH}{path}") as response:
            assert response.status == 404
    async with client.session.get(f"{client.url}{TICKETS_PATH}{client.id}") as response:
        assert response.status == 405


async def test_the_ticket_of_a_reset_or_cancelled_conversation_is_gone(client: TicketClient) -> None:
    async with client.database.write() as connection:
        await begin_generation(connection, SESSION)
    assert (await client.post())[0] == 410
    assert await client.list_messages() == []


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"\xff", {}, 400),
        (b"[" * 100_000, {}, 400),
        (b"1" * 10_000, {}, 400),
        (b"{}", {"Content-Type": "text/plain"}, 415),
        (gzip.compress(b"{}", mtime=0), {"Content-Encoding": "gzip"}, 415),
        (b"null", {}, 202),
        (b'"x"', {"Content-Type": "application/json; charset=utf-8"}, 202),
    ],
)
async def test_the_form_of_a_request(client: TicketClient, body: bytes, headers: dict[str, str], status: int) -> None:
    assert (await client.post(body, **headers))[0] == status
    assert len(await client.list_messages()) == (status == 202)


@pytest.mark.parametrize("has_length", [True, False])
async def test_ten_megabytes_are_refused_without_a_reset(client: TicketClient, has_length: bool) -> None:
    size = 10 * MAX_REQUEST_BYTES

    async def stream() -> AsyncIterator[bytes]:
        for _ in range(size // 2**16):
            yield b" " * 2**16

    assert (await client.post(b" " * size if has_length else stream()))[0] == 413  # type: ignore[arg-type]
    assert (await client.post())[0] == 202


async def test_a_flood_of_wrong_keys_does_not_keep_the_right_one_out(
    client: TicketClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    statuses = [(await client.post(key="wrong"))[0] for _ in range(MAX_FAILURES // 2)]
    statuses += [(await client.post(id_="0123456789"))[0] for _ in range(MAX_FAILURES // 2)]
    assert set(statuses) == {401, 404}
    assert (await client.post(key="wrong"))[0] == 429
    assert (await client.post())[0] == 202
    now = event_loop.now()
    monkeypatch.setattr(event_loop, "now", lambda: now + tickets.PERIOD_SECONDS)
    assert (await client.post(key="wrong"))[0] == 401


async def test_a_result_that_cannot_be_stored_is_to_be_sent_again(
    client: TicketClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any, **__: Any) -> FinishResult:
        raise StoreError("down")

    async def hang(*_: Any, **__: Any) -> FinishResult:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(tickets, "RESPONSE_TIMEOUT_SECONDS", 0.1)
    for finish in (fail, hang):
        with monkeypatch.context() as patch:
            patch.setattr(client.store, "finish", finish)
            assert (await client.post())[0] == 503
    client.health.mark_stopping()
    assert (await client.post())[0] == 503


async def test_neither_key_nor_result_is_logged(client: TicketClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    await client.post(b'"a secret result"')
    await client.post(b'"a secret result"', key="plt_wrong_but_secret")
    assert "secret" not in caplog.text
    assert client.key not in caplog.text
