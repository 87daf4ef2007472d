"""ADK's state in the database, by its scopes app, user and session."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.sessions.codec import to_json_value
from core.store.schema import state
from core.store.upsert import insert_or_update

#: ADK: prefixes of keys by scope, and of keys that are not stored.
SCOPE_PREFIXES = {"app": "app:", "user": "user:", "session": ""}
TEMPORARY_PREFIX = "temp:"

#: Prefix of the session state keys that only Parley writes and reads. ADK's state has none of them, so that no tool or
#: agent, which may write what a model says, can forge one.
RESERVED_PREFIX = "parley:"


def get_scope_owners(app: str, user_id: str, session_id: str) -> dict[str, str]:
    """Return the column `owner` of the table `state` by scope: `app`, `user` and `session`."""
    return {"app": app, "user": json.dumps([app, user_id]), "session": session_id}


def is_owned_by_user(owner: sa.ColumnElement[str], user_id: str) -> sa.ColumnElement[bool]:
    """Return the SQL condition that state of the scope `user` belongs to a user (a place) of any app."""
    return owner.endswith(f", {json.dumps(user_id)}]", autoescape=True)


def remove_reserved(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return ADK's state, or a change of it, without the keys of `RESERVED_PREFIX`."""
    return {key: value for key, value in values.items() if not key.startswith(RESERVED_PREFIX)}


async def write_state(connection: AsyncConnection, owners: Mapping[str, str], delta: Mapping[str, Any]) -> None:
    """Store the values of changed state keys, in the transaction of `connection`.

    A key with None is stored, not deleted. The keys have ADK's prefixes; `temp:` keys are not stored.
    """
    rows = []
    for key, value in to_json_value(dict(delta)).items():
        scope = next(scope for scope, prefix in SCOPE_PREFIXES.items() if key.startswith(prefix))
        if not key.startswith(TEMPORARY_PREFIX):
            rows.append(
                {"scope": scope, "owner": owners[scope], "key": key.removeprefix(SCOPE_PREFIXES[scope]), "value": value}
            )
    await insert_or_update(connection, state, *rows)


def merge_state(rows: Iterable[tuple[str, str, str]]) -> dict[str, Any]:
    """Return ADK's state from rows of scope, key and JSON text; raise `ValueError` if a value is not JSON."""
    return {SCOPE_PREFIXES[scope] + key: json.loads(value) for scope, key, value in rows}
