"""Configuration of hooks, event keys, and the store of deliveries on both databases."""

import asyncio
import time
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import ValidationError

from core.errors import StoreError
from core.messages.inbox_message import AcceptResult, InboxMessage, InboxOutcome
from core.observability.secret_redaction import redact_secrets
from core.store.schema import inbox
from core.turns.automation.hooks import (
    MAX_BYTES,
    MAX_DELIVERY_ID_LENGTH,
    PERIOD_SECONDS,
    Delivery,
    HookStore,
    get_author,
    get_event_key,
    make_message,
)
from core.usage.user_rate_limits import RateLimitDenial
from tests.core.conftest import FailingDatabase
from tests.core.turns.automation.payloads import SECRET
from tests.core.turns.automation.test_hook_payload import make_hook


def make_delivery(key: str, **values: Any) -> InboxMessage:
    hook = make_hook(**values)
    return make_message("news", hook, Delivery("prompt", "title"), event_key=f"hook:news:id:{key}", at=time.time())


@pytest.fixture
def wakes() -> list[bool]:
    return []


@pytest.fixture
def store(database: FailingDatabase, wakes: list[bool]) -> HookStore:
    return HookStore(database, lambda: wakes.append(True))


async def list_rows(database: FailingDatabase) -> list[tuple[str, str, str]]:
    query = sa.select(inbox.c.event_key, inbox.c.kind, inbox.c.outcome).order_by(inbox.c.id)
    async with database.read() as connection:
        return [(key, kind, outcome) for key, kind, outcome in await connection.execute(query)]


@pytest.mark.parametrize(
    ("place", "platform", "target"),
    [
        ("slack:C0123456789", "slack", "C0123456789"),
        ("slack:T0123456789:C0123456789", "slack", "T0123456789:C0123456789"),
        ("discord:123456789012345678", "discord", "123456789012345678"),
    ],
)
def test_a_place_has_a_platform_and_a_target(place: str, platform: str, target: str) -> None:
    hook = make_hook(place=place)
    assert (hook.platform, hook.target) == (platform, target)


@pytest.mark.parametrize(
    "place", ["", "C0123456789", "slack:general", "slack:", "discord:C01", "slack:U012345", "teams:1", "slack:C01:T01"]
)
def test_another_place_is_refused(place: str) -> None:
    with pytest.raises(ValidationError):
        make_hook(place=place)


@pytest.mark.parametrize(
    "values",
    [
        {"max_bytes": MAX_BYTES + 1},
        {"max_bytes": 0},
        {"per_minute": 0},
        {"signature": "none"},
        {"fields": ["a..b"]},
        {"fields": ["a", "b", "c", "d", "e", "f"]},
        {"secret": "UNSET"},
        {"secret": SECRET},
        {"prompt": "{{ payload"},
        {"other": 1},
    ],
)
def test_a_wrong_value_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        make_hook(**values)


def test_the_secret_of_a_hook_is_redacted() -> None:
    hook = make_hook()
    assert hook.secret.get_secret_value() == SECRET
    assert SECRET not in repr(hook)
    assert SECRET not in redact_secrets(f"the token {SECRET} is wrong")


def test_an_event_key_is_that_of_the_delivery_id_or_the_body() -> None:
    assert get_event_key("news", "72d3162e", "", b"a") == get_event_key("news", "72d3162e", "1", b"b")
    assert get_event_key("news", "72d3162e", "", b"a") != get_event_key("other", "72d3162e", "", b"a")
    assert get_event_key("news", "", "", b"a") == get_event_key("news", "", "", b"a")
    keys = {get_event_key("news", "", signed_at, body) for signed_at in ("", "1", "2") for body in (b"a", b"b")}
    assert len(keys) == 6


@pytest.mark.parametrize("delivery_id", ["x" * (MAX_DELIVERY_ID_LENGTH + 1), "a b", "a\0", "é", "\udcff", "a\n"])
def test_a_malformed_delivery_id_has_no_event_key(delivery_id: str) -> None:
    assert get_event_key("news", delivery_id, "", b"") is None
    assert get_event_key("news", "x" * MAX_DELIVERY_ID_LENGTH, "", b"") is not None


def test_an_id_cannot_imitate_the_digest_of_a_body() -> None:
    key = get_event_key("news", "", "", b"a")
    assert key is not None
    assert get_event_key("news", key.removeprefix("hook:news:"), "", b"b") != key


def test_a_hook_acts_as_a_bot_without_rights() -> None:
    message = make_delivery("1", agent="clerk")
    assert message.is_bot
    assert message.author == get_author("news") == "bot:hook:news"
    assert message.actor_or_author.roles == ()
    assert message.trigger is not None
    assert (message.trigger.kind, message.trigger.id, message.trigger.agent) == ("hook", "news", "clerk")
    assert message.trigger.target == "C0123456789"


async def test_a_delivery_is_stored_once(database: FailingDatabase, store: HookStore, wakes: list[bool]) -> None:
    hook = make_hook()
    assert await store.check("news", hook, "hook:news:id:1") is AcceptResult.NEXT
    assert await store.append("news", hook, make_delivery("1")) is AcceptResult.NEXT
    assert await store.append("news", hook, make_delivery("1")) is AcceptResult.DUPLICATE
    assert await store.check("news", hook, "hook:news:id:1") is AcceptResult.DUPLICATE
    assert await list_rows(database) == [("hook:news:id:1", "hook", InboxOutcome.PENDING)]
    assert wakes == [True]


async def test_a_repeated_delivery_is_never_limited(database: FailingDatabase, store: HookStore) -> None:
    hook = make_hook(per_minute=2)
    for key in ("1", "2"):
        assert await store.append("news", hook, make_delivery(key)) is AcceptResult.NEXT
    for _ in range(3):
        assert await store.append("news", hook, make_delivery("1")) is AcceptResult.DUPLICATE
        assert await store.check("news", hook, "hook:news:id:2") is AcceptResult.DUPLICATE
    denial = await store.append("news", hook, make_delivery("3"))
    assert isinstance(denial, RateLimitDenial)
    assert 0 < denial.until - time.time() <= PERIOD_SECONDS
    assert isinstance(await store.check("news", hook, "hook:news:id:3"), RateLimitDenial)
    assert len(await list_rows(database)) == 2


async def test_the_limit_counts_a_minute_of_one_hook(database: FailingDatabase, store: HookStore) -> None:
    hook = make_hook(per_minute=1)
    assert await store.append("news", hook, make_delivery("1")) is AcceptResult.NEXT
    async with database.write() as connection:
        await connection.execute(sa.update(inbox).values(sent_at=time.time() - PERIOD_SECONDS - 1))
    assert await store.append("news", hook, make_delivery("2")) is AcceptResult.NEXT
    assert await store.check("other", hook, "hook:other:id:1") is AcceptResult.NEXT


async def test_deliveries_at_the_same_time_do_not_pass_the_limit_together(
    database: FailingDatabase, store: HookStore
) -> None:
    hook = make_hook(per_minute=3)
    results = await asyncio.gather(*(store.append("news", hook, make_delivery(f"{n}")) for n in range(10)))
    assert sum(result is AcceptResult.NEXT for result in results) == 3
    assert len(await list_rows(database)) == 3
    repeated = await asyncio.gather(*(store.append("news", make_hook(), make_delivery("same")) for _ in range(5)))
    assert sorted(result is AcceptResult.DUPLICATE for result in repeated) == [False, True, True, True, True]


async def test_a_failing_database_stores_nothing(
    database: FailingDatabase, store: HookStore, wakes: list[bool]
) -> None:
    database.failures = 1
    with pytest.raises(StoreError):
        await store.append("news", make_hook(), make_delivery("1"))
    assert (await list_rows(database), wakes) == ([], [])
