"""Fencing tokens: only the worker that claimed a turn last can write for it.

A statement that writes to another table for the turn locks the turn's row as well. If it needs the session's row too,
it locks that row first.
"""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.errors import SessionResetError, TurnLostError
from core.store.schema import sessions, turns


def _is_owned_by(turn: Any, worker: Any, claim: Any) -> sa.ColumnElement[bool]:
    return sa.and_(turns.c.id == turn, turns.c.owner == worker, turns.c.claim_number == claim)


#: SQL condition on `turns` that a fencing token is the turn's last claim; `FencingToken.values` are its parameters.
OWNS_TURN = _is_owned_by(
    sa.bindparam("owned_turn", type_=sa.Text),
    sa.bindparam("owner_worker", type_=sa.Text),
    sa.bindparam("owner_claim", type_=sa.Integer),
)


@dataclass(frozen=True, slots=True)
class FencingToken:
    """Claim of a turn by a worker; writes with this token fail after another claim, which increments the number."""

    turn: str
    worker: str
    claim_number: int

    @property
    def values(self) -> dict[str, Any]:
        """The bind parameters of the SQL condition `OWNS_TURN` for this token."""
        return {"owned_turn": self.turn, "owner_worker": self.worker, "owner_claim": self.claim_number}

    @property
    def owns_turn(self) -> sa.ColumnElement[bool]:
        """SQL condition on `turns` that this token is the turn's last claim."""
        return _is_owned_by(self.turn, self.worker, self.claim_number)

    @property
    def lost_error(self) -> TurnLostError:
        """The error to raise when a write with this token changes no row."""
        return TurnLostError(f"turn {self.turn} belongs to another worker")

    async def check(self, connection: AsyncConnection) -> None:
        """Check without a lock that this token is the turn's last claim; else raise `TurnLostError`."""
        if (await connection.execute(sa.select(turns.c.id).where(self.owns_turn))).first() is None:
            raise self.lost_error


def join_owned_turn(query: sa.Select[Any], is_own: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Return a query of `sessions` joined with a token's turn, to lock both rows.

    The caller adds `FOR UPDATE`, which locks the session's row first. `is_own` is `FencingToken.owns_turn` or
    `OWNS_TURN`.
    """
    return query.join(turns, turns.c.session == sessions.c.id).where(is_own)


async def lock_session_and_turn(
    connection: AsyncConnection, session: str, generation: int, fence: FencingToken | None, **lock_options: Any
) -> None:
    """Lock a session's row against a reset, and its turn's row against another claim.

    The locks last until the caller's transaction ends. Without a `fence`, only the session is locked.

    Args:
        lock_options: the arguments of SQLAlchemy's `with_for_update`.

    Raises:
        SessionResetError: the session has another generation, or does not exist.
        TurnLostError: the turn has been claimed again, or is deleted. It takes precedence.
    """
    locked = sa.select(sessions.c.id).where(sessions.c.id == session, sessions.c.generation == generation)
    if fence is not None:
        locked = join_owned_turn(locked, fence.owns_turn)
    if (await connection.execute(locked.with_for_update(**lock_options))).first() is not None:
        return
    if fence is not None:
        await fence.check(connection)
    raise SessionResetError.of(session, generation)
