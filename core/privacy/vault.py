"""Vault: secrets in the database, encrypted by the operator's `SECRET_KEY`."""

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import sqlalchemy as sa
from cryptography.fernet import Fernet, InvalidToken
from sqlalchemy.ext.asyncio import AsyncConnection

from core.errors import SettingsError
from core.store.database import Database
from core.store.schema import vault
from core.store.upsert import build_insert, insert_or_update

#: The fewest characters of a key, and the fewest different characters in it: a random hexadecimal key has more than 8.
MIN_KEY_LENGTH, MIN_DISTINCT_CHARACTERS = 32, 8


def is_weak(key: str) -> bool:
    """Return whether a key has too few characters, or too few different ones."""
    return len(key) < MIN_KEY_LENGTH or len(set(key)) < MIN_DISTINCT_CHARACTERS


class Cipher:
    """Encryption of texts by a secret key (Fernet: AES-128-CBC with HMAC-SHA256).

    Args:
        key: a secret text that all workers have and the database does not.
    """

    def __init__(self, key: str) -> None:
        self._fernet = Fernet(base64.urlsafe_b64encode(hashlib.sha256(key.encode()).digest()))

    def encrypt(self, text: str) -> str:
        return self._fernet.encrypt(text.encode()).decode()

    def decrypt(self, ciphertext: str, *, max_age: int | None = None) -> str:
        """Return the text of a result of `encrypt` that is at most `max_age` seconds old.

        The text is empty if `ciphertext` is forged, encrypted with another key, too old, or of an empty text.
        """
        try:
            return self._fernet.decrypt(ciphertext.encode(), ttl=max_age).decode()
        except InvalidToken:
            return ""


class Vault:
    """Store of encrypted JSON objects by name, in the table `vault`.

    The name is encrypted together with the value: a value that was copied to another name in the database is refused
    with a `SettingsError`, like one that was encrypted with another key.

    Args:
        key: the secret text from which the encryption key is derived.
    """

    def __init__(self, database: Database, key: str) -> None:
        self._database = database
        self._cipher = Cipher(key)

    async def put(
        self,
        name: str,
        value: Mapping[str, Any],
        *,
        seconds: float | None = None,
        connection: AsyncConnection | None = None,
    ) -> None:
        """Encrypt and store a value under a name; it replaces an earlier value.

        A new value never expires. A name that `reserve` has stored keeps its expiry, even one that has passed: then
        `get` returns None.

        Args:
            seconds: until the value expires, which replaces an earlier expiry; expired rows are deleted first.
            connection: a connection in the caller's transaction; None for a transaction of its own.
        """
        row: dict[str, Any] = {"name": name, "ciphertext": self._encrypt(name, value)}
        async with self._database.write() if connection is None else nullcontext(connection) as writer:
            if seconds is not None:
                row["expires_at"] = await self._delete_expired(writer) + seconds
            await insert_or_update(writer, vault, row)

    async def reserve(self, name: str, *, seconds: float) -> bool:
        """Store a name with an empty value for some seconds; return whether the name is new.

        Of concurrent callers with the same name, only one gets True. Expired rows are deleted first.
        """
        async with self._database.write() as connection:
            expires_at = await self._delete_expired(connection) + seconds
            row = {"name": name, "ciphertext": self._encrypt(name, {}), "expires_at": expires_at}
            insert = build_insert(connection.dialect.name, vault).on_conflict_do_nothing().returning(vault.c.name)
            return (await connection.execute(insert, row)).first() is not None

    async def get(self, name: str) -> Mapping[str, Any] | None:
        """Return the decrypted value of a name; it is empty after `reserve`."""
        async with self._database.read() as connection:
            sealed = await connection.scalar(sa.select(vault.c.ciphertext).where(self._is_named(name)))
        return None if sealed is None else self.decrypt(name, sealed)

    async def count(self, prefix: str) -> int:
        """Return the number of values that have not expired and whose name begins with a text."""
        is_counted = vault.c.name.startswith(prefix, autoescape=True) & self._is_unexpired
        async with self._database.read() as connection:
            return await connection.scalar(sa.select(sa.func.count()).where(is_counted)) or 0

    async def take(self, name: str, is_expected: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any] | None:
        """Delete and return the value of a name if it is the expected one; else change nothing.

        Of concurrent callers, only one gets the value.
        """
        async with self._database.read() as connection:
            sealed = await connection.scalar(sa.select(vault.c.ciphertext).where(self._is_named(name)))
        value = None if sealed is None else self.decrypt(name, sealed)
        if value is None or not is_expected(value):
            return None
        async with self._database.write() as connection:
            is_same = self._is_named(name) & (vault.c.ciphertext == sealed)
            deleted = await connection.execute(sa.delete(vault).where(is_same).returning(vault.c.name))
            return None if deleted.first() is None else value

    async def remove(self, name: str) -> None:
        async with self._database.write() as connection:
            await connection.execute(sa.delete(vault).where(vault.c.name == name))

    async def count_decryptable(self, *, prefix: str = "") -> int:
        """Decrypt all values that have not expired, and return their number; this checks the key.

        Args:
            prefix: decrypt only the values whose names begin with it.
        """
        query = sa.select(vault.c.name, vault.c.ciphertext)
        is_checked = self._is_unexpired & vault.c.name.startswith(prefix, autoescape=True)
        async with self._database.read() as connection:
            rows = (await connection.execute(query.where(is_checked))).all()
        for name, sealed in rows:
            self.decrypt(name, sealed)
        return len(rows)

    async def _delete_expired(self, connection: AsyncConnection) -> float:
        """Delete the expired rows, and return the time of the database."""
        now = await connection.scalar(sa.select(self._database.now))
        assert now is not None, "a database has a clock"
        await connection.execute(sa.delete(vault).where(vault.c.expires_at < now))
        return float(now)

    @property
    def _is_unexpired(self) -> sa.ColumnElement[bool]:
        return vault.c.expires_at.is_(None) | (vault.c.expires_at >= self._database.now)

    def _is_named(self, name: str) -> sa.ColumnElement[bool]:
        return (vault.c.name == name) & self._is_unexpired

    def create_token(self, text: str) -> str:
        """Return a text as an encrypted token, which `read_token` can read."""
        return self._cipher.encrypt(text)

    def read_token(self, token: str, *, max_age: int) -> str | None:
        """Return the text of a token; None if it is forged, older than `max_age` seconds, of another key, or empty."""
        return self._cipher.decrypt(token, max_age=max_age) or None

    def _encrypt(self, name: str, value: Mapping[str, Any]) -> str:
        return self._cipher.encrypt(json.dumps([name, value]))

    def decrypt(self, name: str, sealed: str) -> Mapping[str, Any]:
        """Return the value of a name from the ciphertext in its row."""
        if not (text := self._cipher.decrypt(sealed)):
            raise SettingsError(
                "SECRET_KEY: the tokens in the database were encrypted with another key; set that key again"
            )
        stored_name, value = json.loads(text)
        if stored_name != name:
            raise SettingsError(f"DATABASE_URL: the value of {name} in the vault was stored under another name")
        found: Mapping[str, Any] = value
        return found
