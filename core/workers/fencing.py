"""Fences: what belongs to a turn is written only by the worker that has it, by the claim with which it runs it.

What is written elsewhere than in the turn's own row takes hold of that row in the same statement. PostgreSQL: who
claims the turn comes before or after, and whoever had to wait for him looks again. Who needs the session's row as well
takes hold of that one first.
"""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.errors import SessionResetError, TurnLostError
from core.store.schema import sessions, turns


def _is(turn: Any, worker: Any, claim: Any) -> sa.ColumnElement[bool]:
    return sa.and_(turns.c.id == turn, turns.c.owner == worker, turns.c.claims == claim)


#: Whether a turn is that of the fence whose `values` are given.
OWNS_TURN = _is(
    sa.bindparam("the_turn", type_=sa.Text),
    sa.bindparam("the_worker", type_=sa.Text),
    sa.bindparam("the_claim", type_=sa.Integer),
)


@dataclass(frozen=True, slots=True)
class FencingToken:
    """Whose a turn was when its run began. Once another worker has it, or the same one by another claim, nothing
    that shows this fence is written.

    Attributes:
        turn: its id.
        worker: who runs it.
        claim: by the how-manieth claim.
    """

    turn: str
    worker: str
    claim_number: int

    @property
    def values(self) -> dict[str, Any]:
        """For the parameters of `IS_OWN`."""
        return {"the_turn": self.turn, "the_worker": self.worker, "the_claim": self.claim_number}

    @property
    def owns_turn(self) -> sa.ColumnElement[bool]:
        """`IS_OWN`, with its values."""
        return _is(self.turn, self.worker, self.claim_number)

    @property
    def lost_error(self) -> TurnLostError:
        """For what it has kept from being written."""
        return TurnLostError(f"turn {self.turn} is another worker's")

    async def check(self, connection: AsyncConnection) -> None:
        """See whether it was this that kept something from being written.

        Raises:
            TurnLostError: it was.
        """
        if (await connection.execute(sa.select(turns.c.id).where(self.owns_turn))).first() is None:
            raise self.lost_error


def join_owned_turn(life: sa.Select[Any], is_own: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """The same of `sessions`, where a turn is one's own. Who locks the session locks the turn behind it."""
    return life.join(turns, turns.c.session == sessions.c.id).where(is_own)


async def lock_session(
    connection: AsyncConnection, session: str, generation: int, fence: FencingToken | None, **how: Any
) -> None:
    """Keep a reset of the session out until the transaction ends, and who would take the turn.

    Args:
        how: for the lock, as `with_for_update` has it.

    Raises:
        SessionResetError: the session is of another generation.
        TurnLostError: another worker has the turn.
    """
    lives = sa.select(sessions.c.id).where(sessions.c.id == session, sessions.c.generation == generation)
    if fence is not None:
        lives = join_owned_turn(lives, fence.owns_turn)
    if (await connection.execute(lives.with_for_update(**how))).first() is not None:
        return
    if fence is not None:
        await fence.check(connection)
    raise SessionResetError.of(session, generation)
