"""ADK's state by scope: app, user and session."""

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


def get_scope_owners(app: str, user_id: str, session_id: str) -> dict[str, str]:
    """Return the owner of each scope's state, for one session."""
    return {"app": app, "user": json.dumps([app, user_id]), "session": session_id}


def is_owned_by_user(owner: sa.ColumnElement[str], user_id: str) -> sa.ColumnElement[bool]:
    """Return the condition that a user-scoped row belongs to this user, in any app."""
    return owner.endswith(f", {json.dumps(user_id)}]", autoescape=True)


async def write_state(connection: AsyncConnection, owners: Mapping[str, str], delta: Mapping[str, Any]) -> None:
    """Update the state by `delta`, whose keys carry ADK's prefixes; `temp:` keys are not stored."""
    rows = []
    for key, value in to_json_value(dict(delta)).items():
        scope = next(scope for scope, prefix in SCOPE_PREFIXES.items() if key.startswith(prefix))
        if not key.startswith(TEMPORARY_PREFIX):
            rows.append(
                {"scope": scope, "owner": owners[scope], "key": key.removeprefix(SCOPE_PREFIXES[scope]), "value": value}
            )
    await insert_or_update(connection, state, *rows)


def merge_state(rows: Iterable[tuple[str, str, str]]) -> dict[str, Any]:
    """Return the state in these rows (scope, key, value as JSON), its keys with ADK's prefixes.

    Raises:
        ValueError: a value cannot be read.
    """
    return {SCOPE_PREFIXES[scope] + key: json.loads(value) for scope, key, value in rows}
