"""Route of hooks: signatures, sizes, repeated deliveries, limits, and a database that fails."""

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import sqlalchemy as sa

from bot.monitoring.health import HealthMonitor
from bot.routes import hooks as hook_routes
from bot.routes.hooks import HOOKS_PATH, MAX_READERS, HookRoutes
from bot.server import run_server
from core.store.database import Database
from core.store.schema import inbox
from core.turns.automation import hooks
from core.turns.automation.hooks import Delivery, Hook, HookStore, PayloadFault, get_event_key, read_payload
from core.turns.claims import derive_turn_id
from tests.core.turns.automation.payloads import (
    ALERTMANAGER,
    GITHUB_ISSUE,
    SECRET,
    STRIPE_EVENT,
    encode,
    send_token,
    sign_github,
    sign_slack,
    sign_stripe,
)
from tests.core.turns.automation.test_hook_payload import make_hook
from tests.fixtures.empty_databases import create_tables

JSON_TYPE = {"Content-Type": "application/json"}

#: Status, JSON and headers of a response.
Response = tuple[int, dict[str, Any], Mapping[str, str]]


class HookClient:
    """Sender of requests to hooks, with the database that stores them."""

    def __init__(self, session: aiohttp.ClientSession, url: str, database: Database, health: HealthMonitor) -> None:
        self.session = session
        self.url = url
        self.database = database
        self.health = health

    async def post(self, name: str, body: bytes, headers: Mapping[str, str]) -> Response:
        async with self.session.post(
            f"{self.url}{HOOKS_PATH}{name}", data=body, headers={**JSON_TYPE, **headers}
        ) as response:
            return response.status, await response.json(content_type=None) or {}, response.headers

    async def list_messages(self) -> list[dict[str, Any]]:
        async with self.database.read() as connection:
            return list((await connection.execute(sa.select(inbox.c.message).order_by(inbox.c.id))).scalars())


Connect = Callable[..., Awaitable[HookClient]]


@pytest.fixture
async def connect(tmp_path: Path) -> AsyncIterator[Connect]:
    """Return a function that serves hooks and returns a client."""
    async with AsyncExitStack() as stack:

        async def start(**configured: Hook) -> HookClient:
            return await stack.enter_async_context(run_hooks(tmp_path, configured))

        yield start


@asynccontextmanager
async def run_hooks(folder: Path, configured: Mapping[str, Hook]) -> AsyncIterator[HookClient]:
    database = Database(f"sqlite+aiosqlite:///{folder / 'parley.db'}")
    await create_tables(database)
    health = HealthMonitor()
    try:
        async with run_server(0, [], is_needed=True) as server, aiohttp.ClientSession() as session:
            server.add_routes(HookRoutes(configured, HookStore(database, lambda: None), health).routes)
            yield HookClient(session, f"http://127.0.0.1:{server.port}", database, health)
    finally:
        await database.aclose()


async def test_a_signed_issue_of_github_is_stored_with_the_id_of_its_turn(connect: Connect) -> None:
    hook = make_hook(
        delivery_header="X-GitHub-Delivery", fields=["repository.full_name"], prompt="{{ payload.issue.title }}"
    )
    client = await connect(news=hook)
    body = encode(GITHUB_ISSUE)
    headers = sign_github(body) | {
        "X-GitHub-Event": "issues",
        "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
    }
    status, data, _ = await client.post("news", body, headers)
    key = get_event_key("news", headers["X-GitHub-Delivery"], "", body)
    assert key is not None
    assert (status, data) == (202, {"turn": derive_turn_id(key)})
    (message,) = await client.list_messages()
    assert message["event_key"] == key
    assert message["author"] == "bot:hook:news"
    assert "⟦Spelling error in the README⟧" in message["text"]
    assert message["trigger"]["title"] == "news (full_name: octo-org/octo-repo)"


async def test_an_alert_with_a_token_begins_one_turn_however_often_it_is_sent(connect: Connect) -> None:
    client = await connect(alerts=make_hook(signature="bearer"))
    firing = encode(ALERTMANAGER)
    responses = [await client.post("alerts", firing, send_token()) for _ in range(3)]
    assert {status for status, _, _ in responses} == {202}
    assert len({data["turn"] for _, data, _ in responses}) == 1
    status, data, _ = await client.post("alerts", encode(ALERTMANAGER | {"status": "resolved"}), send_token())
    assert (status, data == responses[0][1]) == (202, False)
    assert len(await client.list_messages()) == 2


async def test_a_repeated_event_of_stripe_has_its_id_in_the_body(connect: Connect) -> None:
    client = await connect(pay=make_hook(signature="stripe", delivery_field="id"))
    turns = set()
    for seconds, waiting in ((20, 1), (0, 2)):  # Stripe: a repeated event is signed anew
        body = encode(STRIPE_EVENT | {"pending_webhooks": waiting})
        status, data, _ = await client.post("pay", body, sign_stripe(body, time.time() - seconds))
        assert status == 202
        turns.add(data["turn"])
    assert len(turns) == 1 == len(await client.list_messages())


async def test_the_same_body_with_another_signed_time_is_another_delivery(connect: Connect) -> None:
    client = await connect(news=make_hook(signature="slack"))
    now = time.time()
    for at in (now, now - 5, now):
        assert (await client.post("news", b"{}", sign_slack(b"{}", at)))[0] == 202
    assert len(await client.list_messages()) == 2


async def test_a_wrong_signature_stores_nothing_and_is_not_logged(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    client = await connect(news=make_hook(), old=make_hook(signature="stripe"), token=make_hook(signature="bearer"))
    body = b'{"a": "a private text"}'
    for name, headers in (
        ("news", {}),
        ("news", sign_github(body, "another")),
        ("news", sign_github(body + b" ")),
        ("news", send_token()),
        ("old", sign_stripe(body, time.time() - 301)),
        ("token", send_token("a wrong token")),
    ):
        status, data, _ = await client.post(name, body, headers)
        assert (status, list(data)) == (401, ["error"])
    assert await client.list_messages() == []
    logged = "".join(record.getMessage() for record in caplog.records if record.name.startswith("bot"))
    assert "the hook news is not signed" in logged
    assert not any(text in logged for text in ("a private text", "a wrong token", "sha256=", SECRET))


async def test_an_unknown_hook_and_another_method_are_refused(connect: Connect) -> None:
    client = await connect(news=make_hook())
    for path, method, expected in (
        ("other", "POST", 404),
        ("news/", "POST", 404),
        ("NEWS", "POST", 404),
        ("", "POST", 404),
        ("news", "GET", 405),
        ("news", "PUT", 405),
    ):
        async with client.session.request(method, f"{client.url}{HOOKS_PATH}{path}", data=b"{}") as response:
            assert response.status == expected, path


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_ten_megabytes_are_refused_without_a_reset(connect: Connect, *, is_chunked: bool) -> None:
    client = await connect(news=make_hook(max_bytes=1000))
    body = b"[" + b" " * 10_000_000 + b"]"

    async def send() -> AsyncIterator[bytes]:
        for begin in range(0, len(body), 65_536):
            yield body[begin : begin + 65_536]

    headers = JSON_TYPE | sign_github(body)
    data: Any = send() if is_chunked else body
    async with client.session.post(f"{client.url}{HOOKS_PATH}news", data=data, headers=headers) as response:
        assert response.status == 413
        assert "1,000 bytes" in (await response.json())["error"]
    fits = b"[" + b" " * 998 + b"]"
    assert (await client.post("news", fits, sign_github(fits)))[0] == 202
    assert (await client.post("news", fits + b" ", sign_github(fits + b" ")))[0] == 413


async def test_a_body_may_have_a_mebibyte(connect: Connect) -> None:
    client = await connect(news=make_hook())
    for size, expected in ((hooks.MAX_BYTES, 202), (hooks.MAX_BYTES + 1, 413)):
        body = b"[" + b" " * (size - 2) + b"]"
        assert (await client.post("news", body, sign_github(body)))[0] == expected


async def test_a_flood_is_limited_and_repeated_deliveries_are_not(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connect(news=make_hook(per_minute=5))
    reads = Counter[str]()

    async def count_reads(name: str, hook: Hook, body: bytes) -> Delivery | PayloadFault:
        reads[name] += 1
        return await read_payload(name, hook, body)

    monkeypatch.setattr(hook_routes, "read_payload", count_reads)
    bodies = [encode({"n": number}) for number in range(25)]
    responses = await asyncio.gather(*(client.post("news", body, sign_github(body)) for body in bodies))
    statuses = [status for status, _, _ in responses]
    assert (statuses.count(202), statuses.count(429)) == (5, 20)
    for status, _, headers in responses:
        assert status == 202 or 1 <= int(headers["Retry-After"]) <= 60
    assert len(await client.list_messages()) == 5
    assert reads["news"] < 5 + MAX_READERS
    stored = bodies[statuses.index(202)]
    repeated = await asyncio.gather(*(client.post("news", stored, sign_github(stored)) for _ in range(10)))
    assert {(status, data["turn"]) for status, data, _ in repeated} == {
        (202, responses[statuses.index(202)][1]["turn"])
    }


async def test_a_limited_request_costs_no_process(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await connect(news=make_hook(per_minute=1))
    assert (await client.post("news", b"1", sign_github(b"1")))[0] == 202
    monkeypatch.setattr(hooks, "_run_reader", None)
    assert (await client.post("news", b"1", sign_github(b"1")))[0] == 202
    assert (await client.post("news", b"2", sign_github(b"2")))[0] == 429


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"payload=%7B%7D", 415),
        ({"Content-Type": "text/plain"}, b"{}", 415),
        ({"Content-Type": "application/cloudevents+json; charset=utf-8"}, b"{}", 202),
        ({}, b"{", 400),
        ({}, b"\xff", 400),
        ({"X-Delivery": "x" * 201}, b"{}", 400),
        ({"X-Delivery": "x" * 200}, b"{}", 202),
        ({"X-Delivery": "a b"}, b"{}", 400),
        ({"X-Delivery": ""}, b"{}", 202),
    ],
)
async def test_the_form_of_a_request(connect: Connect, headers: dict[str, str], body: bytes, expected: int) -> None:
    client = await connect(news=make_hook(delivery_header="X-Delivery"))
    status, data, _ = await client.post("news", body, sign_github(body) | headers)
    assert (status, list(data)) == (expected, ["turn" if expected == 202 else "error"])
    assert len(await client.list_messages()) == (expected == 202)


async def test_a_failing_template_is_the_hooks_fault(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    client = await connect(news=make_hook(prompt="{{ payload.a + 1 }}"))
    body = encode({"a": "a private text"})
    status, data, _ = await client.post("news", body, sign_github(body))
    assert (status, data) == (422, {"error": "The template fails at line 1 (TypeError)."})
    assert "line 1 (TypeError)" in caplog.text
    assert "a private text" not in caplog.text
    assert await client.list_messages() == []


async def test_a_request_that_cannot_be_stored_is_to_be_sent_again(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connect(news=make_hook())
    monkeypatch.setattr(hook_routes, "RESPONSE_TIMEOUT_SECONDS", 0.5)
    async with client.database.write():  # SQLite: other writes wait
        status, _, headers = await client.post("news", b"{}", sign_github(b"{}"))
    assert (status, "Retry-After" in headers) == (503, True)
    monkeypatch.undo()
    assert (await client.post("news", b"{}", sign_github(b"{}")))[0] == 202
    await client.database.aclose()
    assert (await client.post("news", b"1", sign_github(b"1")))[0] == 503


async def test_a_stopping_bot_refuses_requests(connect: Connect) -> None:
    client = await connect(news=make_hook())
    client.health.mark_stopping()
    status, _, headers = await client.post("news", b"{}", sign_github(b"{}"))
    assert (status, "Retry-After" in headers) == (503, True)
    assert await client.list_messages() == []


async def test_an_event_key_has_no_part_of_the_payload_in_the_response(connect: Connect) -> None:
    client = await connect(news=make_hook())
    body = json.dumps({"a": "b"}).encode()
    _, data, headers = await client.post("news", body, sign_github(body))
    assert list(data) == ["turn"]
    assert len(data["turn"]) == 10
    assert headers["Content-Type"].startswith("application/json")
