"""Sign-ins of people in exports, deletions, retention, and the check of `SECRET_KEY`."""

import json
import time
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from chatrig.oauth import OAuthServer
from core.errors import SettingsError
from core.inbox.store import InboxStore
from core.privacy.deletion import DeletionRequest, DeletionService
from core.privacy.export import ExportFormat, ExportViewer, stream_export
from core.privacy.known_users import find_users
from core.privacy.retention import CleanupService, RetentionService
from core.privacy.vault import Vault
from core.signin.credentials import CredentialStore
from core.signin.oauth import OAuthClient
from core.signin.target import Credential, CredentialKind, Person, SignInTarget
from core.store.schema import messages, vault
from core.turns.store import TurnStore
from core.usage.prices import Prices
from tests.core.conftest import FailingDatabase, complete_turn, count_rows
from tests.fixtures.inbox_messages import inbound

SESSION = "slack:T1:C1:1"
KEY, OTHER_KEY = "thirty-two characters, or more...", "another key of thirty-two characters"
ADA, GRACE = Person("slack", "T1", "U0ADA"), Person("slack", "T1", "U0GRACE")
TARGET = SignInTarget(
    credential_key="k", kind=CredentialKind.OAUTH, label="Calendar", client_id="c", client_secret="client secret"
)
CREDENTIAL = Credential(
    secret="the token", refresh_token="the refresh token", scopes=("read", "write"), account="ada@example.com"
)


@pytest.fixture
async def store(database: FailingDatabase, inbox: InboxStore, turns: TurnStore) -> CredentialStore:
    """Return a store with sign-ins of Ada and Grace, who both wrote in a session, and of others with Ada's id."""
    for author in (ADA.id, GRACE.id):
        await inbox.accept(inbound("hello", session=SESSION, author=author))
        (turn,) = await turns.claim(1)
        await complete_turn(turns, turn)
    store = CredentialStore(database, Vault(database, KEY), OAuthClient())
    async with database.write() as connection:
        for person in (ADA, GRACE, replace(ADA, workspace="T12"), replace(ADA, platform="discord", workspace="")):
            await store.save(connection, person, "app", TARGET, CREDENTIAL)
    return store


async def export(database: FailingDatabase, format_: ExportFormat, viewer: ExportViewer | None = None) -> str:
    row: dict[str, Any] = {"session": SESSION, "generation": 1, "role": "user", "author": "user", "content": "hello"}
    row |= {"created_at": 1.0, "tool_calls": [], "invocation_id": "run", "tokens": 1}
    async with database.write() as connection:
        await connection.execute(sa.delete(messages))
        await connection.execute(sa.insert(messages).values(row))
    return "".join([piece async for piece in stream_export(database, SESSION, format_, Prices(), viewer=viewer)])


async def test_an_export_has_the_sign_ins_of_its_reader_without_secrets(
    store: CredentialStore, database: FailingDatabase
) -> None:
    everything = json.loads(await export(database, "json"))["sign_ins"]
    assert [one["person"] for one in everything] == [ADA.id, GRACE.id]
    own = json.loads(await export(database, "json", ExportViewer(ADA.id, is_admin=True, is_private=True)))
    (listed,) = await store.list(ADA)
    assert [one["id"] for one in own["sign_ins"]] == [listed.id]
    assert own["sign_ins"][0]["scopes"] == ["read", "write"]
    text = await export(database, "md")
    assert "`Calendar` as `ada@example.com` (`read write`)" in text
    assert not any(secret in f"{everything}{text}" for secret in ("the token", "the refresh token", "client secret"))


async def test_an_export_that_others_see_has_no_sign_ins(store: CredentialStore, database: FailingDatabase) -> None:
    viewer = ExportViewer(ADA.id, is_admin=True, is_private=False)
    assert json.loads(await export(database, "json", viewer))["sign_ins"] == []
    assert "Calendar" not in await export(database, "md", viewer)


@pytest.mark.parametrize("has_key", [True, False])
async def test_forgetting_a_person_deletes_their_sign_ins(
    store: CredentialStore, database: FailingDatabase, has_key: bool
) -> None:
    await Vault(database, KEY).put(f"sign-in-request:{ADA}/{SESSION}/run/call", TARGET.to_json())
    service = DeletionService(database, Prices(), delete_sign_ins=store.delete_user if has_key else None)
    assert (await service.preview(DeletionRequest(user_id=ADA.id))).records == 3
    await service.delete(DeletionRequest(user_id=ADA.id))
    assert [one.person for one in await store.list_all()] == [GRACE]
    assert await store.get(GRACE, "app", TARGET) is not None
    assert await count_rows(database, vault) == 1
    assert not await service.preview(DeletionRequest(user_id=ADA.id))


async def test_forgetting_a_person_revokes_their_grants(
    database: FailingDatabase, inbox: InboxStore, async_oauth_server: OAuthServer
) -> None:
    revocation_url = f"{async_oauth_server.url}/revoke"
    store = CredentialStore(database, Vault(database, KEY), OAuthClient(allows_private_hosts=True))
    async with database.write() as connection:
        await store.save(connection, ADA, "app", replace(TARGET, revocation_url=revocation_url), CREDENTIAL)
    service = DeletionService(database, Prices(), delete_sign_ins=store.delete_user)
    await service.delete(DeletionRequest(user_id=ADA.id))
    assert [request.path for request in async_oauth_server.requests] == ["/revoke"]


async def test_a_person_with_only_a_sign_in_is_known(store: CredentialStore, database: FailingDatabase) -> None:
    await DeletionService(database, Prices()).delete(DeletionRequest(session_id=SESSION))
    async with database.read() as connection:
        assert [user.id for user in await find_users(connection, "slack:u0ada")] == [ADA.id]


async def test_retention_and_other_deletions_keep_sign_ins(store: CredentialStore, database: FailingDatabase) -> None:
    await DeletionService(database, Prices()).delete(DeletionRequest(session_id=SESSION))
    await DeletionService(database, Prices()).delete(DeletionRequest(before=time.time() + 1000))
    await RetentionService(database, Prices(), days=-1).delete_expired()
    await CleanupService(database, days=-1).delete_batch()
    assert len(await store.list_all()) == await count_rows(database, vault) == 4


async def test_the_check_of_the_key_decrypts_sign_ins(store: CredentialStore, database: FailingDatabase) -> None:
    assert await Vault(database, KEY).count_decryptable() == 4
    with pytest.raises(SettingsError, match="SECRET_KEY"):
        await Vault(database, OTHER_KEY).count_decryptable()
    assert await Vault(database, OTHER_KEY).count_decryptable(prefix="slack:") == 0
