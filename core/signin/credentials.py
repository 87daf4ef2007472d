"""Credentials that people gave for tools: one row of `sign_ins` each, with its secrets in the vault.

One worker at a time refreshes a credential: it claims the row, and writes the new tokens only while it has the claim.
So a rotated refresh token is used once, and a sign-in that is deleted or replaced meanwhile stays so.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.concurrency.tasks import BackgroundTasks
from core.errors import GrantLostError, SettingsError, SignInUnavailableError, StoreError
from core.observability.secret_redaction import format_error
from core.privacy.vault import Vault
from core.signin.oauth import TIMEOUT_SECONDS, OAuthClient
from core.signin.pending import PENDING_PREFIX
from core.signin.target import Credential, Person, SignInTarget
from core.store.database import Database
from core.store.schema import sign_ins, vault
from core.store.upsert import build_insert

log = logging.getLogger(__name__)

#: Seconds before its expiry from which an access token is refreshed.
REFRESH_MARGIN_SECONDS = 10.0

#: Seconds after which another worker takes over the refresh of a worker that died.
CLAIM_SECONDS = 30.0

#: Seconds for which a refresh waits for that of another worker, and between two looks at its result.
WAIT_SECONDS, POLL_SECONDS = CLAIM_SECONDS + 5.0, 0.2

#: Seconds between two writes of `used_at`.
USED_SECONDS = 60.0


class SignInState(StrEnum):
    ACTIVE = "active"
    REFRESHING = "refreshing"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """Sign-in of a person, without its secrets.

    Attributes:
        account: the name of the person's account at the service; empty if unknown.
        app: the ADK app whose tools use it.
    """

    id: str
    person: Person
    app: str
    label: str
    account: str
    scopes: tuple[str, ...]
    state: SignInState
    created_at: float
    used_at: float | None


@dataclass(frozen=True, slots=True)
class _Key:
    """The columns by which a credential is found."""

    person: Person
    app: str
    target: SignInTarget

    @property
    def columns(self) -> dict[str, str]:
        return {
            "platform": self.person.platform,
            "workspace": self.person.workspace,
            "person": self.person.id,
            "app": self.app,
            "credential_key": self.target.credential_key,
            "fingerprint": self.target.fingerprint,
        }


@dataclass(frozen=True, slots=True)
class _Stored:
    """Row of an active sign-in with its secrets; `target` has the client's secret."""

    row: sa.Row[Any]
    target: SignInTarget
    credential: Credential


class CredentialStore:
    """Store of the credentials of people; refreshes access tokens, and revokes deleted ones.

    A credential that was encrypted with another `SECRET_KEY`, or copied to another row, counts as missing.
    """

    def __init__(self, database: Database, vault: Vault, oauth: OAuthClient) -> None:
        self._database = database
        self._vault = vault
        self._oauth = oauth
        self._refreshes = BackgroundTasks()
        self._has_logged_unreadable = False

    async def save(
        self, connection: AsyncConnection, person: Person, app: str, target: SignInTarget, credential: Credential
    ) -> None:
        """Store a credential in the caller's transaction, in place of an earlier one for the target."""
        key = _Key(person, app, target).columns
        values = {
            "kind": target.kind,
            "label": target.label,
            "account": credential.account,
            "scopes": list(credential.scopes),
            "state": SignInState.ACTIVE,
            "refresh_started_at": None,
            "created_at": self._database.now,
            "used_at": None,
            "expires_at": credential.expires_at,
        }
        insert = build_insert(connection.dialect.name, sign_ins).values(id=secrets.token_hex(8), **key, **values)
        replaced = {name: insert.excluded[name] for name in values}
        upsert = insert.on_conflict_do_update(index_elements=list(key), set_=replaced).returning(sign_ins)
        row = (await connection.execute(upsert)).one()
        await self._put(connection, row, target, credential)

    async def get(self, person: Person, app: str, target: SignInTarget) -> Credential | None:
        """Return a person's credential for a target, without the refresh token; refresh it if it expires soon.

        Raises:
            SignInUnavailableError: the access token has expired, and cannot be refreshed now.
        """
        key = _Key(person, app, target)
        if (stored := await self._load(key)) is None:
            return None
        credential: Credential | None = stored.credential
        expires_at = stored.credential.expires_at
        if expires_at is not None and expires_at < time.time() + REFRESH_MARGIN_SECONDS:
            is_valid = expires_at > time.time()
            if stored.credential.refresh_token or not is_valid:
                try:
                    credential = await self._refresh(key, stored)
                except SignInUnavailableError:
                    if not is_valid:
                        raise
        if credential is None:
            return None
        await self._save_use(stored.row)
        return replace(credential, refresh_token="")

    async def refresh(self, person: Person, app: str, target: SignInTarget, *, rejected: str) -> Credential | None:
        """Return a credential in place of one that the service has rejected, or None: then it is lost.

        Args:
            rejected: the `secret` of the rejected one; if another one is stored, that is the result.

        Raises:
            SignInUnavailableError: it cannot be refreshed now.
        """
        key = _Key(person, app, target)
        if (stored := await self._load(key)) is None:
            return None
        is_rejected = stored.credential.secret == rejected
        credential = await self._refresh(key, stored) if is_rejected else stored.credential
        return None if credential is None else replace(credential, refresh_token="")

    async def list(self, person: Person) -> Sequence[SignIn]:
        return await self._list(_is_of(person))

    async def list_all(self) -> Sequence[SignIn]:
        return await self._list(sa.true())

    async def delete(self, person: Person, id_: str) -> SignIn | None:
        """Delete a person's sign-in by its id, and revoke it at the service as far as that is possible."""
        deleted = await self._delete(_is_of(person) & (sign_ins.c.id == id_))
        return deleted[0] if deleted else None

    async def delete_person(self, person: Person) -> Sequence[SignIn]:
        """Delete all sign-ins of a person as `delete` does, and the targets of those that have begun."""
        async with self._database.write() as connection:
            begun = vault.c.name.startswith(f"{PENDING_PREFIX}{person}/", autoescape=True)
            await connection.execute(sa.delete(vault).where(begun))
        return await self._delete(_is_of(person))

    async def delete_user(self, user_id: str) -> Sequence[SignIn]:
        """Delete all sign-ins of a user's platform id, on any platform and in any workspace, as `delete` does."""
        return await self._delete(sign_ins.c.person == user_id)

    async def aclose(self) -> None:
        """Wait for the refreshes that run, whose refresh tokens may be used up already."""
        await self._refreshes.drain(TIMEOUT_SECONDS)

    async def _list(self, condition: sa.ColumnElement[bool]) -> Sequence[SignIn]:
        async with self._database.read() as connection:
            query = sa.select(sign_ins).where(condition).order_by(sign_ins.c.created_at, sign_ins.c.id)
            return [_to_sign_in(row) for row in await connection.execute(query)]

    async def _delete(self, condition: sa.ColumnElement[bool]) -> Sequence[SignIn]:
        async with self._database.write() as connection:
            deleted = await delete_sign_ins(connection, condition)
        found = [stored for row, sealed in deleted if (stored := self._open(row, sealed)) is not None]
        await asyncio.gather(*(self._oauth.revoke(stored.target, stored.credential) for stored in found))
        return [_to_sign_in(row) for row, _ in deleted]

    async def _load(self, key: _Key) -> _Stored | None:
        """Return the stored credential of a key, unless it is lost, unreadable, or was given for another target."""
        is_key = sa.and_(*(sign_ins.c[name] == value for name, value in key.columns.items()))
        async with self._database.read() as connection:
            query = sa.select(sign_ins).where(is_key, sign_ins.c.state != SignInState.LOST)
            row = (await connection.execute(query)).one_or_none()
            if row is None:
                return None
            sealed = await connection.scalar(sa.select(vault.c.ciphertext).where(vault.c.name == _vault_name(row)))
        stored = self._open(row, sealed)
        if stored is None or stored.target.fingerprint != key.target.fingerprint:
            return None
        client_secret = key.target.client_secret or stored.target.client_secret  # the operator may have changed it
        return replace(stored, target=replace(stored.target, client_secret=client_secret))

    def _open(self, row: sa.Row[Any], sealed: str | None) -> _Stored | None:
        if sealed is None:
            return None
        try:
            value = self._vault.decrypt(_vault_name(row), sealed)
        except SettingsError as error:
            if not self._has_logged_unreadable:
                log.error("sign-ins of people cannot be read, so that they are asked again: %s", error)
            self._has_logged_unreadable = True
            return None
        return _Stored(row, SignInTarget.from_json(value["target"]), Credential.from_json(value["credential"]))

    async def _put(
        self, connection: AsyncConnection, row: sa.Row[Any], target: SignInTarget, credential: Credential
    ) -> None:
        value = {"target": target.to_json(), "credential": credential.to_json()}
        await self._vault.put(_vault_name(row), value, connection=connection)

    async def _save_use(self, row: sa.Row[Any]) -> None:
        """Store the time of this use, at most once a minute; a failure is only logged."""
        if row.used_at is None or row.used_at < time.time() - USED_SECONDS:
            update = sa.update(sign_ins).where(sign_ins.c.id == row.id).values(used_at=self._database.now)
            try:
                await self._database.run(update.returning(sign_ins.c.id))
            except StoreError as error:
                log.warning("the last use of a sign-in cannot be stored: %s", format_error(error))

    # Refresh

    async def _refresh(self, key: _Key, stale: _Stored) -> Credential | None:
        """Refresh a credential, or wait for another worker that does; None if it is lost or deleted.

        It runs on if the caller is cancelled: the service may have used up the refresh token already.
        """
        task = asyncio.create_task(self._claim_and_refresh(key, stale), name="refresh of a sign-in")
        self._refreshes.add(task)
        return await asyncio.shield(task)

    async def _claim_and_refresh(self, key: _Key, stale: _Stored) -> Credential | None:
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            claimed_at = await self._claim(stale.row.id)
            current = await self._load(key)
            if current is None or current.credential.secret != stale.credential.secret:
                if claimed_at is not None:
                    await self._end_claim(stale.row, claimed_at, SignInState.ACTIVE)
                return None if current is None else current.credential
            if claimed_at is not None:
                return await self._refresh_claimed(key, current, claimed_at)
            if time.monotonic() > deadline:
                raise SignInUnavailableError(f"{stale.target.label}: another worker does not end its refresh")
            await asyncio.sleep(POLL_SECONDS)

    async def _claim(self, id_: str) -> float | None:
        """Claim the refresh of a sign-in; return the time of the claim, which identifies it."""
        now = self._database.now
        is_dead = (sign_ins.c.state == SignInState.REFRESHING) & (sign_ins.c.refresh_started_at < now - CLAIM_SECONDS)
        is_free = (sign_ins.c.state == SignInState.ACTIVE) | is_dead
        claim = sa.update(sign_ins).where(sign_ins.c.id == id_, is_free)
        claim = claim.values(state=SignInState.REFRESHING, refresh_started_at=now)
        rows = await self._database.run(claim.returning(sign_ins.c.refresh_started_at))
        return rows[0].refresh_started_at if rows else None

    async def _refresh_claimed(self, key: _Key, current: _Stored, claimed_at: float) -> Credential | None:
        label = current.target.label
        try:
            if not current.credential.refresh_token:
                raise GrantLostError(f"{label}: there is no refresh token")
            renewed = await self._oauth.refresh(current.target, current.credential)
        except GrantLostError as error:
            log.info("a sign-in is lost: %s", error)
            await self._end_claim(current.row, claimed_at, SignInState.LOST)
            return None
        except SignInUnavailableError as error:
            log.warning("a sign-in cannot be refreshed now: %s", error)
            await self._end_claim(current.row, claimed_at, SignInState.ACTIVE)
            raise
        await self._end_claim(current.row, claimed_at, SignInState.ACTIVE, replace(current, credential=renewed))
        stored = await self._load(key)
        if stored is None:  # deleted meanwhile: the deletion could revoke only the former tokens
            await self._oauth.revoke(current.target, renewed)
        return None if stored is None else stored.credential

    async def _end_claim(
        self, row: sa.Row[Any], claimed_at: float, state: SignInState, renewed: _Stored | None = None
    ) -> None:
        """End a claim, and store the renewed credential; nothing is written if the claim is over.

        A lost credential is removed from the vault.
        """

        async def write(connection: AsyncConnection) -> None:
            update = sa.update(sign_ins).where(
                sign_ins.c.id == row.id,
                sign_ins.c.state == SignInState.REFRESHING,
                sign_ins.c.refresh_started_at == claimed_at,
            )
            values: dict[str, Any] = {"state": state, "refresh_started_at": None}
            if renewed is not None:
                values["expires_at"] = renewed.credential.expires_at
                values["scopes"] = list(renewed.credential.scopes)
            if not (await connection.execute(update.values(values))).rowcount:
                return
            if renewed is not None:
                await self._put(connection, row, renewed.target, renewed.credential)
            if state is SignInState.LOST:
                await connection.execute(sa.delete(vault).where(vault.c.name == _vault_name(row)))

        await self._database.write_with_retries(write, operation="the end of a sign-in's refresh")


async def delete_sign_ins(
    connection: AsyncConnection, condition: sa.ColumnElement[bool]
) -> Sequence[tuple[sa.Row[Any], str | None]]:
    """Delete matching sign-ins and their secrets; return each row with the ciphertext of its secrets."""
    rows = (await connection.execute(sa.delete(sign_ins).where(condition).returning(sign_ins))).all()
    names = [_vault_name(row) for row in rows]
    remove = sa.delete(vault).where(vault.c.name.in_(names)).returning(vault.c.name, vault.c.ciphertext)
    sealed = {row.name: row.ciphertext for row in await connection.execute(remove)}
    return [(row, sealed.get(name)) for row, name in zip(rows, names, strict=True)]


def _is_of(person: Person) -> sa.ColumnElement[bool]:
    return (
        (sign_ins.c.platform == person.platform)
        & (sign_ins.c.workspace == person.workspace)
        & (sign_ins.c.person == person.id)
    )


def _vault_name(row: sa.Row[Any]) -> str:
    """Return the name of a sign-in's secrets, which the vault binds to its person."""
    return f"sign-in:{Person(row.platform, row.workspace, row.person)}/{row.id}"


def _to_sign_in(row: sa.Row[Any]) -> SignIn:
    return SignIn(
        id=row.id,
        person=Person(row.platform, row.workspace, row.person),
        app=row.app,
        label=row.label,
        account=row.account,
        scopes=tuple(row.scopes),
        state=SignInState(row.state),
        created_at=row.created_at,
        used_at=row.used_at,
    )
