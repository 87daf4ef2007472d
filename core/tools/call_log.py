"""The journal of tool calls: which had begun when a run broke off, and what came of those that ended."""

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

#: The key under which the journal has a piece of media, which JSON knows nothing of.
_MEDIA_KEY = "$media"


@dataclass(frozen=True, slots=True)
class ToolInvocation:
    """One call of a tool.

    Attributes:
        run: the ADK invocation that makes it.
        generation: the session's; a call of a generation that a reset has ended is not begun.
        fence: the turn whose run makes it, if one does. A call of one that another worker has is neither begun nor
            ended.
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
    """What the journal has of a call that had begun before.

    Attributes:
        ended: whether the tool came to its end, with a result or an error.
        result: what the model was to be told.
        actions: what it did besides: changed the state, saved artifacts, asked a person.
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
        """Write that `call` is being made, before it is.

        Args:
            may_repeat: whether a call with this entry is made again.

        Returns:
            None: the call is to be made now. Else the entry of the earlier call; nothing is written.

        Raises:
            SessionResetError: the session has been reset.
            TurnLostError: another worker has the turn.
            StoreError: it cannot be written, so the call must not be made.
        """
        begun = _begin_values(call)

        async def write(connection: AsyncConnection) -> ToolCallEntry | None:
            await lock_session(connection, call.session, call.generation, call.fence, read=True)
            row = (await connection.execute(sa.select(tool_calls).where(_is_row_of(call)))).one_or_none()
            if row is None:
                key = {"session": call.session, "run": call.run, "id": call.id}
                await connection.execute(sa.insert(tool_calls).values(**key, **begun))
            elif (row.tool, row.arguments_hash) != (
                begun["tool"],
                begun["arguments_hash"],
            ):  # another call, to which a model gave the id
                await connection.execute(sa.update(tool_calls).where(_is_row_of(call)).values(**begun))
            elif (
                row.started_at != begun["started_at"]
            ):  # else it was written, and only the database's word on it was lost
                actions = EventActions.model_validate(row.actions or {})
                entry = ToolCallEntry(row.state == "ended", _decode_result(row.result), actions)
                if not may_repeat(entry):
                    return entry
                await connection.execute(sa.update(tool_calls).where(_is_row_of(call)).values(**begun))
            return None

        return await self._write_with_retry(call, write)

    async def end(self, call: ToolInvocation, result: Any, actions: EventActions) -> None:
        """Write what came of a call. One that was not begun, or was reset meanwhile, has no end.

        Raises:
            TurnLostError: another worker has the turn.
            StoreError: it cannot be written.
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
    """The SHA-256 of a call's arguments, which are JSON."""
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
    """A result as JSON, with the media in it where they were."""
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
