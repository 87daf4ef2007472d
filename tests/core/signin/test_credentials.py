"""Stored credentials: refreshes by several workers, deletion, and rows that were changed by others."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from aiohttp import web

from core.errors import SignInUnavailableError, StoreError
from core.privacy.vault import Vault
from core.signin import credentials as credentials_module
from core.signin.credentials import CredentialStore, SignInState
from core.signin.target import Credential, CredentialKind, Person, SignInTarget
from core.store.database import Database
from core.store.schema import sign_ins, vault
from tests.core.conftest import FailingDatabase, count_rows
from tests.core.signin.conftest import Provider, TokenServer

KEY = "thirty-two characters, or more..."
ADA, GRACE = Person("slack", "T1", "U0ADA"), Person("slack", "T1", "U0GRACE")
API_KEY = SignInTarget(credential_key="weather", kind=CredentialKind.API_KEY, label="Weather")


@pytest.fixture(autouse=True)
def _short_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials_module, "POLL_SECONDS", 0.02)


def create_store(database: Database, provider: Provider, key: str = KEY) -> CredentialStore:
    return CredentialStore(database, Vault(database, key), provider.oauth)


@pytest.fixture
def store(database: Database, provider: Provider) -> CredentialStore:
    return create_store(database, provider)


@pytest.fixture
async def other_worker(database_url: str, database: Database, provider: Provider) -> AsyncIterator[CredentialStore]:
    """Yield the store of another process, with its own connections."""
    assert database.engine.url
    own = Database(database_url)
    yield create_store(own, provider)
    await own.aclose()


async def save(
    database: Database, store: CredentialStore, person: Person, target: SignInTarget, credential: Credential
) -> None:
    async with database.write() as connection:
        await store.save(connection, person, "app", target, credential)


async def sign_in(
    database: Database, store: CredentialStore, provider: Provider, person: Person = ADA, **changes: Any
) -> tuple[SignInTarget, Credential]:
    """Sign a person in at the provider with a new client, and store the credential."""
    target = provider.create_target(**changes)
    credential = await provider.sign_in(target, {ADA: "ada", GRACE: "grace"}.get(person, "linus"))
    await save(database, store, person, target, credential)
    return target, credential


async def expire(
    database: Database, store: CredentialStore, target: SignInTarget, credential: Credential, seconds: float = -1
) -> Credential:
    """Store a credential of Ada that expires in some seconds."""
    expired = replace(credential, expires_at=time.time() + seconds)
    await save(database, store, ADA, target, expired)
    return expired


async def set_columns(database: Database, **values: Any) -> None:
    async with database.write() as connection:
        await connection.execute(sa.update(sign_ins).values(**values))


# Owners


async def test_a_credential_is_given_only_to_its_owner(
    database: FailingDatabase, store: CredentialStore, provider: Provider
) -> None:
    target, _ = await sign_in(database, store, provider)
    credential = await store.get(ADA, "app", target)
    assert credential is not None
    assert await provider.get_user(credential) == "ada"
    assert credential.refresh_token == ""
    for other in (GRACE, replace(ADA, workspace="T2"), replace(ADA, platform="discord"), replace(ADA, id="")):
        assert await store.get(other, "app", target) is None
        assert await store.refresh(other, "app", target, rejected=credential.secret) is None
        assert list(await store.list(other)) == []
    assert await store.get(ADA, "another app", target) is None
    for changes in (
        {"token_url": "https://evil.example/token"},
        {"client_id": "another"},
        {"scopes": ("calendar", "profile", "mail")},
        {"resource": "https://api.example"},
        {"credential_key": "other"},
    ):
        assert await store.get(ADA, "app", replace(target, **changes)) is None


async def test_a_new_sign_in_replaces_the_earlier_one(
    database: FailingDatabase, store: CredentialStore, provider: Provider
) -> None:
    target, _ = await sign_in(database, store, provider)
    await store.get(ADA, "app", target)
    (first,) = await store.list(ADA)
    await save(database, store, ADA, target, Credential(secret="new", account="ada@example.com", scopes=("profile",)))
    (second,) = await store.list(ADA)
    assert second.id == first.id
    assert (second.account, second.scopes, second.used_at) == ("ada@example.com", ("profile",), None)
    assert await store.get(ADA, "app", target) == Credential(
        secret="new", account="ada@example.com", scopes=("profile",)
    )
    assert await count_rows(database, vault) == 1


async def test_a_failed_transaction_stores_nothing(
    database: FailingDatabase, store: CredentialStore, provider: Provider
) -> None:
    async def fail() -> None:
        async with database.write() as connection:
            await store.save(connection, ADA, "app", API_KEY, Credential(secret="key"))
            raise StoreError("the decision is not stored")

    with pytest.raises(StoreError):
        await fail()
    assert await count_rows(database, sign_ins) == 0
    assert await count_rows(database, vault) == 0


async def test_lists_have_no_secrets(database: FailingDatabase, store: CredentialStore, provider: Provider) -> None:
    target, credential = await sign_in(database, store, provider)
    await sign_in(database, store, provider, GRACE)
    (of_ada,) = await store.list(ADA)
    assert (of_ada.person, of_ada.label, of_ada.app, of_ada.state) == (ADA, "Calendar", "app", SignInState.ACTIVE)
    assert of_ada.created_at == pytest.approx(time.time(), abs=60)
    everybody = await store.list_all()
    assert [one.person for one in everybody] == [ADA, GRACE]
    secrets = (credential.secret, credential.refresh_token, target.client_secret)
    assert not any(secret in f"{everybody} {credential} {target}" for secret in secrets)
    async with database.read() as connection:
        rows = [(await connection.execute(sa.select(table))).all() for table in (sign_ins, vault)]
    assert not any(secret in str(rows) for secret in secrets)


async def test_a_use_is_stored_at_most_once_a_minute(database: FailingDatabase, store: CredentialStore) -> None:
    await save(database, store, ADA, API_KEY, Credential(secret="key"))
    times = list[float | None]()
    for age in (0, 30, 90):
        if age:
            await set_columns(database, used_at=time.time() - age)
        assert await store.get(ADA, "app", API_KEY) is not None
        times.append((await store.list(ADA))[0].used_at)
    now = time.time()
    assert times == [pytest.approx(now, abs=10), pytest.approx(now - 30, abs=10), pytest.approx(now, abs=10)]


# Rows that were changed by others


async def test_a_ciphertext_of_another_person_is_refused(
    database: FailingDatabase, store: CredentialStore, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    target, _ = await sign_in(database, store, provider)
    await save(database, store, GRACE, target, Credential(secret="of Grace"))
    async with database.write() as connection:
        of_ada = await connection.scalar(sa.select(vault.c.ciphertext).where(vault.c.name.contains("U0ADA")))
        await connection.execute(sa.update(vault).where(vault.c.name.contains("U0GRACE")).values(ciphertext=of_ada))
    assert await store.get(GRACE, "app", target) is None
    assert await store.get(ADA, "app", target) is not None
    assert "stored under another name" in caplog.text


async def test_a_row_of_another_target_or_person_is_refused(
    database: FailingDatabase, store: CredentialStore, provider: Provider
) -> None:
    target, _ = await sign_in(database, store, provider)
    other = replace(target, token_url="https://evil.example/token")
    await set_columns(database, fingerprint=other.fingerprint)
    assert await store.get(ADA, "app", other) is None
    await set_columns(database, fingerprint=target.fingerprint, person=GRACE.id)
    assert await store.get(GRACE, "app", target) is None


async def test_another_key_means_not_signed_in(
    database: FailingDatabase, provider: Provider, store: CredentialStore, caplog: pytest.LogCaptureFixture
) -> None:
    target, _ = await sign_in(database, store, provider)
    other = create_store(database, provider, "another key of thirty-two characters")
    for _ in range(3):
        assert await other.get(ADA, "app", target) is None
    assert await other.refresh(ADA, "app", target, rejected="x") is None
    assert caplog.text.count("cannot be read") == 1
    assert len(await other.list(ADA)) == 1
    await save(database, other, ADA, target, Credential(secret="new"))
    assert await other.get(ADA, "app", target) == Credential(secret="new")


async def test_an_unreadable_sign_in_can_be_deleted(
    database: FailingDatabase, provider: Provider, store: CredentialStore
) -> None:
    await sign_in(database, store, provider)
    other = create_store(database, provider, "another key of thirty-two characters")
    (listed,) = await other.list(ADA)
    assert await other.delete(ADA, listed.id) == listed
    assert await count_rows(database, vault) == 0
    assert provider.count_requests("/revoke") == 0


# Refresh


@pytest.mark.parametrize("seconds", [-10, 5])
async def test_a_token_that_expires_soon_is_refreshed(
    database: FailingDatabase, store: CredentialStore, provider: Provider, seconds: float
) -> None:
    target, first = await sign_in(database, store, provider)
    await expire(database, store, target, first, seconds)
    renewed = await store.get(ADA, "app", target)
    assert renewed is not None
    assert renewed.secret != first.secret
    assert renewed.refresh_token == ""
    assert await provider.get_user(renewed) == "ada"
    assert await store.get(ADA, "app", target) == renewed
    provider.server.faults.expire_access_tokens()
    again = await store.refresh(ADA, "app", target, rejected=renewed.secret)
    assert again is not None
    assert await provider.get_user(again) == "ada", "the rotated refresh token was stored"
    assert (await store.list(ADA))[0].state == SignInState.ACTIVE


async def test_two_workers_send_one_refresh_request(
    database: FailingDatabase, store: CredentialStore, other_worker: CredentialStore, provider: Provider
) -> None:
    target, first = await sign_in(database, store, provider)
    await expire(database, store, target, first)
    before = provider.count_requests("/token")
    provider.server.faults.delay("/token", 0.3)
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(worker.get(ADA, "app", target)) for worker in (store, other_worker) * 3]
        calls += [
            group.create_task(worker.refresh(ADA, "app", target, rejected=first.secret))
            for worker in (store, other_worker)
        ]
    renewed = {call.result() for call in calls}
    assert len(renewed) == 1
    (credential,) = renewed
    assert credential is not None
    assert await provider.get_user(credential) == "ada"
    assert provider.count_requests("/token") == before + 1


async def test_a_rejected_token_is_refreshed_once(
    database: FailingDatabase, store: CredentialStore, provider: Provider
) -> None:
    target, first = await sign_in(database, store, provider)
    second = await store.refresh(ADA, "app", target, rejected=first.secret)
    third = await store.refresh(ADA, "app", target, rejected=first.secret)
    assert second == third != first
    assert provider.count_requests("/token") == 2


async def test_a_revoked_grant_is_lost_until_the_next_sign_in(
    database: FailingDatabase, store: CredentialStore, provider: Provider
) -> None:
    target, first = await sign_in(database, store, provider)
    await expire(database, store, target, first)
    provider.server.faults.revoke_grants()
    assert await store.get(ADA, "app", target) is None
    assert await store.refresh(ADA, "app", target, rejected=first.secret) is None
    assert (await store.list(ADA))[0].state == SignInState.LOST
    assert await count_rows(database, vault) == 0
    assert provider.count_requests("/token") == 2
    await save(database, store, ADA, target, await provider.sign_in(target))
    assert await store.get(ADA, "app", target) is not None
    assert (await store.list(ADA))[0].state == SignInState.ACTIVE


async def test_a_provider_that_is_down_loses_nothing(
    database: FailingDatabase, store: CredentialStore, provider: Provider
) -> None:
    target, first = await sign_in(database, store, provider)
    valid = await expire(database, store, target, first, 5)
    provider.server.faults.fail("/token", 3)
    assert await store.get(ADA, "app", target) == replace(valid, refresh_token="")
    with pytest.raises(SignInUnavailableError):
        await store.refresh(ADA, "app", target, rejected=first.secret)
    await expire(database, store, target, first)
    with pytest.raises(SignInUnavailableError):
        await store.get(ADA, "app", target)
    assert (await store.list(ADA))[0].state == SignInState.ACTIVE
    assert await store.get(ADA, "app", target) is not None


async def test_a_token_without_refresh_token_is_used_until_it_expires(
    database: FailingDatabase, store: CredentialStore, provider: Provider
) -> None:
    target, first = await sign_in(database, store, provider)
    alone = replace(first, refresh_token="")
    kept = await expire(database, store, target, alone, 5)
    assert await store.get(ADA, "app", target) == kept
    await expire(database, store, target, alone)
    assert await store.get(ADA, "app", target) is None
    assert (await store.list(ADA))[0].state == SignInState.LOST
    assert provider.count_requests("/token") == 1


async def test_a_rejected_api_key_is_lost(database: FailingDatabase, store: CredentialStore) -> None:
    await save(database, store, ADA, API_KEY, Credential(secret="key"))
    assert await store.refresh(ADA, "app", API_KEY, rejected="another") == Credential(secret="key")
    assert await store.refresh(ADA, "app", API_KEY, rejected="key") is None
    assert await store.get(ADA, "app", API_KEY) is None


async def test_a_changed_client_secret_is_used(
    database: FailingDatabase, store: CredentialStore, provider: Provider
) -> None:
    target, first = await sign_in(database, store, provider)
    await expire(database, store, replace(target, client_secret="former"), first)
    assert await store.get(ADA, "app", target) is not None
    async with database.write() as connection:
        await connection.execute(sa.update(sign_ins).values(used_at=None))
    provider.server.faults.expire_access_tokens()
    without = replace(target, client_secret="")
    current = await store.get(ADA, "app", without)
    assert current is not None
    assert await store.refresh(ADA, "app", without, rejected=current.secret) is not None


async def test_the_refresh_of_a_dead_worker_is_taken_over(
    database: FailingDatabase, store: CredentialStore, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, first = await sign_in(database, store, provider)
    await expire(database, store, target, first)
    await set_columns(database, state="refreshing", refresh_started_at=time.time())
    monkeypatch.setattr(credentials_module, "WAIT_SECONDS", 0.1)
    with pytest.raises(SignInUnavailableError, match="another worker"):
        await store.get(ADA, "app", target)
    assert provider.count_requests("/token") == 1
    await set_columns(database, refresh_started_at=time.time() - 31)
    renewed = await store.get(ADA, "app", target)
    assert renewed is not None
    assert await provider.get_user(renewed) == "ada"


async def test_a_cancelled_caller_does_not_lose_the_rotated_token(
    database: FailingDatabase, store: CredentialStore, provider: Provider
) -> None:
    target, first = await sign_in(database, store, provider)
    await expire(database, store, target, first)
    provider.server.faults.delay("/token", 0.2)
    call = asyncio.create_task(store.get(ADA, "app", target))
    await wait_for_state(store, SignInState.REFRESHING)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await store.aclose()
    assert (await store.list(ADA))[0].state == SignInState.ACTIVE
    renewed = await store.get(ADA, "app", target)
    assert renewed is not None
    assert await provider.get_user(renewed) == "ada"
    assert provider.count_requests("/token") == 2


async def test_a_short_outage_of_the_database_does_not_lose_the_rotated_token(
    database: FailingDatabase, store: CredentialStore, token_server: TokenServer
) -> None:
    async def answer(_: web.Request) -> web.Response:
        database.failures = 2
        return web.Response(text=json.dumps({"access_token": "new", "refresh_token": "rotated"}))

    token_server.handler = answer
    target = token_server.create_target()
    await expire(database, store, target, Credential(secret="old", refresh_token="first"))
    assert await store.get(ADA, "app", target) == Credential(secret="new", scopes=("read",))


# Deletion


async def wait_for_state(store: CredentialStore, state: SignInState) -> None:
    async with asyncio.timeout(10):
        while (await store.list(ADA))[0].state != state:  # noqa: ASYNC110 - another connection writes it
            await asyncio.sleep(0.01)


async def test_a_deleted_sign_in_is_revoked(
    database: FailingDatabase, store: CredentialStore, provider: Provider
) -> None:
    target, credential = await sign_in(database, store, provider)
    (listed,) = await store.list(ADA)
    assert await store.delete(GRACE, listed.id) is None
    assert await store.delete(replace(ADA, workspace="T2"), listed.id) is None
    assert await store.delete(ADA, "unknown") is None
    assert await store.get(ADA, "app", target) is not None
    (used,) = await store.list(ADA)
    assert await store.delete(ADA, listed.id) == used
    assert await store.get(ADA, "app", target) is None
    assert await provider.get_user(credential) == "401"
    assert await count_rows(database, vault) == 0
    assert await store.delete(ADA, listed.id) is None


async def test_a_sign_in_is_deleted_even_if_it_cannot_be_revoked(
    database: FailingDatabase, store: CredentialStore, provider: Provider
) -> None:
    await sign_in(database, store, provider)
    await sign_in(database, store, provider, GRACE)
    provider.server.faults.fail("/revoke", 5)
    assert [one.person for one in await store.delete_person(ADA)] == [ADA]
    assert [one.person for one in await store.list_all()] == [GRACE]
    assert await count_rows(database, vault) == 1


async def test_a_user_is_deleted_in_every_workspace(
    database: FailingDatabase, store: CredentialStore, provider: Provider
) -> None:
    target, _ = await sign_in(database, store, provider)
    await save(database, store, replace(ADA, workspace="T2"), target, Credential(secret="x"))
    await save(database, store, replace(ADA, id="U0ADA2"), API_KEY, Credential(secret="key"))
    assert len(await store.delete_user("U0ADA")) == 2
    assert [one.person.id for one in await store.list_all()] == ["U0ADA2"]


async def test_a_refresh_does_not_restore_a_deleted_sign_in(
    database: FailingDatabase, store: CredentialStore, other_worker: CredentialStore, provider: Provider
) -> None:
    target, first = await sign_in(database, store, provider)
    await expire(database, store, target, first)
    provider.server.faults.delay("/token", 0.3)
    refresh = asyncio.create_task(store.get(ADA, "app", target))
    await wait_for_state(store, SignInState.REFRESHING)
    (listed,) = await other_worker.list(ADA)
    assert await other_worker.delete(ADA, listed.id) is not None
    assert await refresh is None
    assert await count_rows(database, sign_ins) == 0
    assert await count_rows(database, vault) == 0
    assert provider.server.grants[0].is_revoked, "the new tokens are revoked too"


async def test_a_refresh_that_ends_after_a_deletion_stores_nothing(
    database: FailingDatabase, store: CredentialStore, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, first = await sign_in(database, store, provider)
    await expire(database, store, target, first)
    refresh = provider.oauth.refresh

    async def refresh_and_delete(*args: Any) -> Credential:
        renewed = await refresh(*args)
        assert len(await store.delete_person(ADA)) == 1
        return renewed

    monkeypatch.setattr(provider.oauth, "refresh", refresh_and_delete)
    assert await store.get(ADA, "app", target) is None
    assert await count_rows(database, vault) == 0
    assert provider.server.grants[0].is_revoked


async def test_a_refresh_does_not_replace_a_new_sign_in(
    database: FailingDatabase, store: CredentialStore, other_worker: CredentialStore, provider: Provider
) -> None:
    target, first = await sign_in(database, store, provider)
    await expire(database, store, target, first)
    provider.server.faults.delay("/token", 0.3)
    refresh = asyncio.create_task(store.get(ADA, "app", target))
    await wait_for_state(store, SignInState.REFRESHING)
    await save(database, store, ADA, target, Credential(secret="of the new sign-in"))
    assert await refresh == Credential(secret="of the new sign-in")
    assert await other_worker.get(ADA, "app", target) == Credential(secret="of the new sign-in")
    assert provider.count_requests("/revoke") == 0
