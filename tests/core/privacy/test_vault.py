import asyncio

import pytest
import sqlalchemy as sa

from core.errors import SettingsError, StoreError
from core.privacy.vault import Vault
from core.store.database import Database
from core.store.schema import vault as table

KEY = "thirty-two characters, or more..."


@pytest.fixture
def vault(database: Database) -> Vault:
    return Vault(database, KEY)


async def list_ciphertexts(database: Database) -> list[str]:
    async with database.read() as connection:
        return [str(one) for one in (await connection.scalars(sa.select(table.c.ciphertext))).all()]


async def test_a_stored_secret_is_read_only_with_the_key(database: Database, vault: Vault) -> None:
    assert await vault.get("a") is None
    await vault.put("a", {"token": "xoxb-first"})
    await vault.put("a", {"token": "xoxb-second"})
    assert await Vault(database, KEY).get("a") == {"token": "xoxb-second"}
    (ciphertext,) = await list_ciphertexts(database)
    assert "xoxb" not in ciphertext
    assert await vault.count_decryptable() == 1
    await vault.remove("a")
    await vault.remove("a")
    assert await vault.get("a") is None
    assert await vault.count_decryptable() == 0


async def test_a_wrong_key_and_a_moved_secret_are_errors(database: Database, vault: Vault) -> None:
    await vault.put("a", {})
    with pytest.raises(SettingsError, match="SECRET_KEY: the tokens in the database"):
        await Vault(database, "another key").get("a")
    with pytest.raises(SettingsError, match="SECRET_KEY"):
        await Vault(database, "another key").count_decryptable()
    async with database.write() as connection:
        await connection.execute(sa.update(table).values(name="b"))
    with pytest.raises(SettingsError, match="under another name"):
        await vault.get("b")


async def test_of_any_number_of_callers_one_reserves_a_name(vault: Vault) -> None:
    added = await asyncio.gather(*(vault.reserve("state", seconds=60) for _ in range(5)))
    assert sorted(added) == [False, False, False, False, True]


def test_a_token_expires_and_needs_its_key(vault: Vault, database: Database) -> None:
    token = vault.create_token("state")
    assert vault.read_token(token, max_age=60) == "state"
    assert vault.read_token(token, max_age=-1) is None
    for forged in (token[:-5] + "AAAA=", "stäte", ""):
        assert vault.read_token(forged, max_age=60) is None
    assert Vault(database, "another key").read_token(token, max_age=60) is None


async def test_an_expired_entry_is_not_found_and_the_next_entry_deletes_it(database: Database, vault: Vault) -> None:
    assert await vault.reserve("old", seconds=-1)
    assert await vault.get("old") is None
    assert await Vault(database, "another key, which has nothing to read").count_decryptable() == 0
    assert await vault.reserve("old", seconds=60)
    assert len(await list_ciphertexts(database)) == 1


async def test_an_unavailable_database_is_an_error(tmp_path: object) -> None:
    away = Database("postgresql+asyncpg://nobody@127.0.0.1:1/nothing")
    try:
        with pytest.raises(StoreError):
            await Vault(away, KEY).get("a")
    finally:
        await away.aclose()


async def test_an_expected_value_is_taken_once(vault: Vault) -> None:
    await vault.put("a", {"token": "one"}, seconds=60)
    assert await vault.take("a", lambda value: value["token"] == "two") is None
    assert await vault.take("b", lambda _: True) is None
    taken = await asyncio.gather(*(vault.take("a", lambda value: value["token"] == "one") for _ in range(5)))
    assert sorted(taken, key=bool) == [None, None, None, None, {"token": "one"}]
    assert await vault.get("a") is None


async def test_a_value_with_a_time_expires_and_a_new_time_replaces_it(database: Database, vault: Vault) -> None:
    await vault.put("a", {"token": "one"}, seconds=-1)
    assert await vault.get("a") is None
    assert await vault.take("a", lambda _: True) is None
    await vault.put("b", {}, seconds=60)
    assert len(await list_ciphertexts(database)) == 1
    await vault.put("b", {"token": "two"}, seconds=-1)
    assert await vault.get("b") is None
