"""The ledger: what there is to tell of a turn, to who asked and to operators, out of all the rows that know of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.agents.run_record import Receipt
from core.store.database import Database
from core.store.schema import approvals, inbox, messages, sessions, turns
from core.store.turn_states import State
from core.turns.queries import answered_by
from core.usage.meter import ModelCall, calls_in
from core.usage.prices import Prices

#: How many of the newest turns of a session are looked through for a message.
_LOOK = 200


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a person was asked for, and what was decided.

    Attributes:
        verdict: see `core.tools.approvals.Verdict`; None as long as nobody has decided.
        decider: the name of who has; empty if nobody has, in time.
        decided_at: in seconds since the epoch.
    """

    tool: str
    verdict: str | None
    decider: str
    decided_at: float | None


#: What is counted of models.
_COUNTED = ("input", "output", "thinking", "cached", "cache_write")


@dataclass(frozen=True, slots=True)
class Account:
    """All that is known of a turn.

    Attributes:
        kind, parent, attempt, model, cancel, error: see the table `turns`.
        askers: the authors of what it answers.
        asked: how many messages it answers.
        waited: seconds that the oldest of them had waited when the turn began.
        usage: the tokens, by what they were used for.
        calls: the calls of models, as far as they are known one by one.
        cost: what they have cost by now, in trillionths of a dollar (`core.usage.spending`).
        unpriced: how many tokens have no price that is known, and are not in that.
        receipt: what its run has told; None if it has not ended, or that is forgotten.
        left_out: how many older messages of the conversation were not sent to the model, nor told of by a
            summary, as far as they still stand.
        rulings: what it has asked people for.
        led_by: what was decided for it to begin, where it goes on with what another turn had asked for.
        again: the turns that have answered the same messages once more.
        created_at, finished_at: in seconds since the epoch.
        is_reset: whether its conversation was started over since.
        app: the ADK app that its session is of.
    """

    id: str
    session_id: str
    generation: int
    kind: str
    parent: str | None
    state: State
    attempt: int
    owner: str | None
    model: str | None
    cancel: str | None
    error: str | None
    askers: frozenset[str]
    asked: int
    waited: float
    usage: dict[str, int]
    receipt: Receipt | None
    left_out: int
    rulings: tuple[Ruling, ...]
    led_by: tuple[Ruling, ...]
    again: tuple[str, ...]
    created_at: float
    finished_at: float | None
    is_reset: bool = False
    app: str = ""
    calls: tuple[ModelCall, ...] = ()
    cost: int = 0
    unpriced: int = 0

    @property
    def seconds(self) -> float | None:
        """How long it took from its beginning to its end, over all attempts; None if it has not ended."""
        return None if self.finished_at is None else self.finished_at - self.created_at

    @property
    def channel(self) -> str:
        """The name of the platform's adapter."""
        return self.session_id.partition(":")[0]


class Ledger:
    """Reads it.

    Args:
        prices: what models cost.
    """

    def __init__(self, database: Database, prices: Prices) -> None:
        self._database = database
        self._prices = prices

    async def account(self, turn_id: str) -> Account | None:
        """What is known of a turn; None if it is forgotten.

        Raises:
            StoreError: the database cannot be read.
        """
        async with self._database.read() as connection:
            turn = (await connection.execute(sa.select(turns).where(turns.c.id == turn_id))).one_or_none()
            return None if turn is None else await _account(connection, turn, self._prices)

    async def matching(self, beginning: str, limit: int) -> list[str]:
        """The turns whose ids begin so, the newest first.

        Raises:
            StoreError: the database cannot be read.
        """
        begins = turns.c.id.startswith(beginning, autoescape=True)
        query = sa.select(turns.c.id).where(begins).order_by(turns.c.created_at.desc()).limit(limit)
        async with self._database.read() as connection:
            return list((await connection.execute(query)).scalars())

    async def newest(self, *, session_id: str | None, place: str, author: str | None) -> str | None:
        """The newest turn of a session that answers something that `author` has asked; None for anybody.

        Args:
            session_id: None for all those at `place`.

        Raises:
            StoreError: the database cannot be read.
        """
        here = sessions.c.user_id == place if session_id is None else turns.c.session == session_id
        query = _living().where(here).order_by(turns.c.created_at.desc()).limit(1)
        if author is not None:
            query = query.where(sa.exists().where(inbox.c.turn == turns.c.origin, inbox.c.author == author))
        async with self._database.read() as connection:
            turn_id: str | None = (await connection.execute(query)).scalar_one_or_none()
        return turn_id

    async def of_message(self, session_id: str, message_id: str, event_key: str) -> str | None:
        """The newest turn that answers the message of that key, or of a session, whose reply has that message.

        Raises:
            StoreError: the database cannot be read.
        """
        asked = sa.select(inbox.c.turn).where(inbox.c.event_key == event_key).scalar_subquery()
        newest_first = turns.c.created_at.desc()
        answers = sa.select(turns.c.id).where(turns.c.origin == asked).order_by(newest_first).limit(1)
        shown = (
            _living()
            .where(turns.c.session == session_id)
            .add_columns(turns.c.chunks)
            .order_by(newest_first)
            .limit(_LOOK)
        )
        async with self._database.read() as connection:
            found: str | None = (await connection.execute(answers)).scalar_one_or_none()
            rows = () if found else (await connection.execute(shown)).all()
        return found or next((row.id for row in rows if message_id in (row.chunks or ())), None)


def _living() -> sa.Select[Any]:
    """The turns of sessions since they were last started over."""
    lives = (sessions.c.id == turns.c.session) & (sessions.c.generation == turns.c.generation)
    return sa.select(turns.c.id).join(sessions, lives)


async def _account(connection: AsyncConnection, turn: sa.Row[Any], prices: Prices) -> Account:
    asked = await answered_by(connection, turn.origin)
    of_it = sa.select(sessions.c.generation, sessions.c.app).where(sessions.c.id == turn.session)
    session = (await connection.execute(of_it)).one_or_none()
    receipt, calls = Receipt.from_json(turn.receipt), calls_in(turn.usage)
    cost, unpriced = prices.bill(calls)
    again = sa.select(turns.c.id).where(turns.c.origin == turn.origin, turns.c.id != turn.id)
    again = again.where(turns.c.created_at > turn.created_at).order_by(turns.c.created_at)
    led_by = await _rulings(connection, turn.parent) if turn.kind == "approval" and turn.parent else ()
    return Account(
        id=turn.id,
        session_id=turn.session,
        generation=turn.generation,
        kind=turn.kind,
        parent=turn.parent,
        state=turn.state,
        attempt=turn.attempt,
        owner=turn.owner,
        model=turn.model,
        cancel=turn.cancel,
        error=turn.error,
        askers=frozenset(row.author for row in asked),
        asked=len(asked),
        waited=max(0.0, turn.created_at - min((row.accepted_at for row in asked), default=turn.created_at)),
        usage={name: int(turn.usage[name]) for name in _COUNTED if name in (turn.usage or {})},
        calls=tuple(calls),
        cost=cost if turn.cost is None else turn.cost,
        unpriced=unpriced,
        receipt=receipt,
        left_out=await _left_out(connection, turn, receipt),
        rulings=await _rulings(connection, turn.id),
        led_by=led_by,
        again=tuple((await connection.execute(again)).scalars()),
        created_at=turn.created_at,
        finished_at=turn.finished_at,
        is_reset=session is None or session.generation != turn.generation,
        app=session.app if session is not None else "",
    )


async def _rulings(connection: AsyncConnection, turn_id: str) -> tuple[Ruling, ...]:
    query = sa.select(approvals).where(approvals.c.turn == turn_id).order_by(approvals.c.asked_at, approvals.c.id)
    rows: Sequence[sa.Row[Any]] = (await connection.execute(query)).all()
    return tuple(Ruling(row.tool, row.decision, row.decider or "", row.decided_at) for row in rows)


async def _left_out(connection: AsyncConnection, turn: sa.Row[Any], receipt: Receipt | None) -> int:
    if receipt is None or receipt.history is None or not receipt.history.bound:
        return 0
    said = messages.c.role.in_(("user", "assistant")) & (messages.c.content != "")
    here = (messages.c.session == turn.session) & (messages.c.generation == turn.generation)
    since = (messages.c.id > receipt.history.covers) & (messages.c.id <= receipt.history.until)
    query = sa.select(sa.func.count()).where(here, said, since)
    return max(0, (await connection.execute(query)).scalar_one() - receipt.history.messages)
