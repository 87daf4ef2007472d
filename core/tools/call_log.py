"""Log of tool calls, so that a resumed run makes no call twice.

The table `tool_calls` has a row for each call, with its start, and its result once it has ended.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from google.adk.events.event_actions import EventActions
from google.genai import types
from pydantic import BaseModel
from pydantic_core import to_jsonable_python
from sqlalchemy.ext.asyncio import AsyncConnection

from core.sessions.codec import to_json_value
from core.store.database import Database
from core.store.schema import tool_calls, turns
from core.store.workers.fencing import lock_session_and_turn
from core.turns.automation.jobs import ToolInvocation

#: Key in a logged result for a file, which is no JSON value; the value is the JSON of its ADK part.
_MEDIA_KEY = "$media"


@dataclass(frozen=True, slots=True)
class ToolCallEntry:
    """Logged tool call that an earlier attempt at the run began.

    `result` is None also if the call has not ended. `actions` are its other effects: state changes, saved artifacts,
    confirmation requests.
    """

    has_ended: bool
    result: Any = None
    actions: EventActions = field(default_factory=EventActions)


class ToolCallLog:
    """Store of the tool calls of runs; failures of the database are retried for at most 90 s."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(
        self, call: ToolInvocation, may_repeat: Callable[[ToolCallEntry], bool] = lambda _entry: False
    ) -> ToolCallEntry | None:
        """Store the start of a tool call, unless an earlier attempt began the same call.

        None if the call is to be made now, and its start is stored. Otherwise the stored earlier call, which stays
        unchanged. The same call has the same run, id, tool and arguments. If the tool or the arguments of the stored
        call differ, or `may_repeat` allows it, the new call replaces the stored one.

        Raises:
            SessionResetError: the session was reset.
            TurnLostError: another worker owns the turn.
            StoreError: the database cannot be written; the call must not be made.
        """
        values = _begin_values(call)

        async def write(connection: AsyncConnection) -> ToolCallEntry | None:
            await lock_session_and_turn(connection, call.session, call.generation, call.fence, read=True)
            row = (await connection.execute(sa.select(tool_calls).where(_is_row_of(call)))).one_or_none()
            if row is None:
                key = {"session": call.session, "run": call.run, "id": call.id}
                await connection.execute(sa.insert(tool_calls).values(**key, **values))
            elif (row.tool, row.arguments_hash) != (
                values["tool"],
                values["arguments_hash"],
            ):  # another call, to which the model gave the same id
                await connection.execute(sa.update(tool_calls).where(_is_row_of(call)).values(**values))
            elif (
                row.started_at != values["started_at"]
            ):  # else an earlier try of this transaction wrote the row, and the commit's reply was lost
                actions = EventActions.model_validate(row.actions or {})
                entry = ToolCallEntry(row.state == "ended", _decode_result(row.result), actions)
                if not may_repeat(entry):
                    return entry
                await connection.execute(sa.update(tool_calls).where(_is_row_of(call)).values(**values))
            return None

        return await self._database.write_with_retries(write, operation=_describe(call))

    async def end(self, call: ToolInvocation, result: Any, actions: EventActions) -> None:
        """Store the result of a call, with its files; do nothing for one that has not begun, or has ended.

        Raises:
            TurnLostError: another worker owns the turn.
        """
        done = to_json_value(actions.model_dump(exclude_none=True, exclude_defaults=True))
        ended = {"state": "ended", "result": _encode_result(result), "actions": done or None}

        async def write(connection: AsyncConnection) -> None:
            update = sa.update(tool_calls).where(_is_row_of(call), tool_calls.c.state == "begun").values(**ended)
            if call.fence is not None:
                owned_turn = sa.select(turns.c.id).where(call.fence.owns_turn).with_for_update(read=True)
                if (await connection.execute(owned_turn)).first() is None:
                    raise call.fence.lost_error
            await connection.execute(update)

        await self._database.write_with_retries(write, operation=_describe(call))


def _describe(call: ToolInvocation) -> str:
    return f"call {call.id} of {call.tool}"


def _is_row_of(call: ToolInvocation) -> sa.ColumnElement[bool]:
    t = tool_calls.c
    return (t.session == call.session) & (t.run == call.run) & (t.id == call.id)


def hash_arguments(arguments: Any) -> str:
    """Return the SHA-256 of JSON values, written with sorted keys, in hexadecimal."""
    canonical = json.dumps(arguments, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _begin_values(call: ToolInvocation) -> dict[str, Any]:
    arguments = to_json_value(call.arguments)
    return {
        "tool": call.tool,
        "arguments": arguments,
        "arguments_hash": hash_arguments(arguments),
        "state": "begun",
        "result": None,
        "actions": None,
        "started_at": time.time(),
    }


def _encode_result(value: Any) -> Any:
    """Return a result as JSON; a file becomes `{"$media": JSON}`, and a key that begins so gets a `$` at its end."""
    match value:
        case types.Part():
            return {_MEDIA_KEY: value.model_dump_json(exclude_none=True)}
        case BaseModel():
            return to_jsonable_python(value, by_alias=False)
        case Mapping():
            return {
                f"{key}$" if str(key).startswith(_MEDIA_KEY) else key: _encode_result(item)
                for key, item in value.items()
            }
        case list() | tuple():
            return [_encode_result(item) for item in value]
        case _:
            return value


def _decode_result(value: Any) -> Any:
    """Return the tool result that was encoded; pydantic objects stay dicts, and tuples stay lists."""
    match value:
        case {"$media": str(part)}:
            return types.Part.model_validate_json(part)
        case dict():
            return {
                key[:-1] if key.startswith(_MEDIA_KEY) else key: _decode_result(item) for key, item in value.items()
            }
        case list():
            return [_decode_result(item) for item in value]
        case _:
            return value
