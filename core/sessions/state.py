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
    """Return the owners of the `app`, `user` and `session` state, by scope.

    These are the values of the column `owner`.
    """
    return {"app": app, "user": json.dumps([app, user_id]), "session": session_id}


def is_owned_by_user(owner: sa.ColumnElement[str], user_id: str) -> sa.ColumnElement[bool]:
    """Return the SQL condition that user-scoped state belongs to a user, in any app."""
    return owner.endswith(f", {json.dumps(user_id)}]", autoescape=True)


async def write_state(connection: AsyncConnection, owners: Mapping[str, str], delta: Mapping[str, Any]) -> None:
    """Overwrite the keys of `delta` in the stored state.

    Args:
        owners: the result of `get_scope_owners`.
        delta: values by key, with ADK's prefixes; `temp:` keys are not stored.
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
    """Return the state in rows, its keys with ADK's prefixes.

    Args:
        rows: scope, key without prefix, and JSON value of each.

    Raises:
        ValueError: a value is no JSON.
    """
    return {SCOPE_PREFIXES[scope] + key: json.loads(value) for scope, key, value in rows}
