"""Log of tool calls: calls that had begun when a run was interrupted, and results of ended ones."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import sqlalchemy as sa
from google.adk.events.event_actions import EventActions
from google.genai import types
from pydantic import BaseModel
from pydantic_core import to_jsonable_python
from sqlalchemy.ext.asyncio import AsyncConnection

from core.concurrency.retry import retry_store
from core.sessions.codec import to_json_value
from core.store.database import Database
from core.store.schema import tool_calls, turns
from core.workers.fencing import FencingToken, lock_session

T = TypeVar("T")

#: Key of media in a logged result, which JSON cannot represent.
_MEDIA_KEY = "$media"


@dataclass(frozen=True, slots=True)
class ToolInvocation:
    """One call of a tool in a run.

    Attributes:
        run: the ADK invocation of the call.
        generation: the session's generation. A call of an earlier generation cannot begin.
        fence: fencing token of the turn, if a turn makes the call. Without ownership a call can neither begin nor end.
    """

    session: str
    generation: int
    run: str
    id: str
    tool: str
    arguments: Mapping[str, Any]
    fence: FencingToken | None = None


@dataclass(frozen=True, slots=True)
class ToolCallEntry:
    """Log entry of an earlier call.

    Attributes:
        has_ended: whether the tool returned a result or an error.
        result: the result for the model.
        actions: other effects: state changes, saved artifacts, confirmation requests.
    """

    has_ended: bool
    result: Any = None
    actions: EventActions = field(default_factory=EventActions)


class ToolCallLog:
    """The `tool_calls` table."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(
        self, call: ToolInvocation, may_repeat: Callable[[ToolCallEntry], bool] = lambda _entry: False
    ) -> ToolCallEntry | None:
        """Log the begin of a call before it is made.

        Args:
            may_repeat: whether a call with this entry may be made again.

        Returns:
            None: make the call now. Else the entry of the earlier call, which is not changed.

        Raises:
            SessionResetError: the session was reset.
            TurnLostError: another worker has the turn.
            StoreError: the database cannot be written; do not make the call.
        """
        values = _begin_values(call)

        async def write(connection: AsyncConnection) -> ToolCallEntry | None:
            await lock_session(connection, call.session, call.generation, call.fence, read=True)
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
            ):  # else an earlier try wrote it, and the commit's reply was lost
                actions = EventActions.model_validate(row.actions or {})
                entry = ToolCallEntry(row.state == "ended", _decode_result(row.result), actions)
                if not may_repeat(entry):
                    return entry
                await connection.execute(sa.update(tool_calls).where(_is_row_of(call)).values(**values))
            return None

        return await self._write_with_retry(call, write)

    async def end(self, call: ToolInvocation, result: Any, actions: EventActions) -> None:
        """Log the end of a call; of an unknown call nothing is written.

        Raises:
            TurnLostError: another worker has the turn.
            StoreError: the database cannot be written.
        """
        done = to_json_value(actions.model_dump(exclude_none=True, exclude_defaults=True))
        ended = {"state": "ended", "result": _encode_result(result), "actions": done or None}

        async def write(connection: AsyncConnection) -> None:
            update = sa.update(tool_calls).where(_is_row_of(call), tool_calls.c.state == "begun").values(**ended)
            if call.fence is not None:
                own = sa.select(turns.c.id).where(call.fence.owns_turn).with_for_update(read=True)
                if (await connection.execute(own)).first() is None:
                    raise call.fence.lost_error
            await connection.execute(update)

        await self._write_with_retry(call, write)

    async def _write_with_retry(self, call: ToolInvocation, write: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        async def once() -> T:
            async with self._database.write() as connection:
                return await write(connection)

        return await retry_store(once, what=f"call {call.id} of {call.tool}")


def _is_row_of(call: ToolInvocation) -> sa.ColumnElement[bool]:
    t = tool_calls.c
    return (t.session == call.session) & (t.run == call.run) & (t.id == call.id)


def hash_arguments(arguments: Any) -> str:
    """Return the SHA-256 of arguments that are JSON values."""
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
    """Return a result as JSON, with its media in place."""
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
