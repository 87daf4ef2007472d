"""Steering: gives a running turn the messages that its author sends meanwhile.

A run reads the messages before a model call. The worker claims them first, under the turn's fencing token, as rows of
`inbox` with the kind `steering`. Then it stores each as an ADK event of the run, with an id from the row. If the worker
dies between the two, the next attempt finds the row without an event, and reads it.

A message that no model call of the run can read any more waits for a turn of its own.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import sqlalchemy as sa

from core.messages.inbox_message import InboxMessage
from core.sessions.codec import STEERING_PREFIX
from core.store.database import Database, Rows
from core.store.schema import human_requests, inbox, messages, sessions, turns
from core.store.workers.fencing import OWNS_TURN, join_owned_turn
from core.turns.queries import is_waiting, list_readable_messages, parse_inbox_message
from core.turns.store import TurnStore
from core.turns.turn import Turn
from core.turns.worker import Worker

#: The most messages that a run reads before one model call.
MAX_MESSAGES = 20


class SteeringMessage(NamedTuple):
    """Message for a running turn, with the id of its row in `inbox`."""

    id: int
    message: InboxMessage

    @property
    def event_id(self) -> str:
        """The id of the ADK event with the message."""
        return f"{STEERING_PREFIX}{self.id}"


#: Returns whether a running turn may read a message of its author.
MayRead = Callable[[InboxMessage], bool]


class SteeringQueue:
    """Messages that a turn, which this worker runs, has not read yet.

    The database is read only if a message may wait: see `Worker.take_wake`.

    Args:
        may_read: after a message for which it returns False, later ones wait too.
    """

    def __init__(
        self,
        database: Database,
        turn_store: TurnStore,
        worker: Worker,
        turn: Turn,
        may_read: MayRead,
    ) -> None:
        self._database = database
        self._turn_store = turn_store
        self._worker = worker
        self._turn = turn
        self._may_read = may_read
        self._may_have_unread = turn.is_resumed or turn.kind == "retry"
        self._may_have_waiting = turn.is_resumed or turn.may_have_followers
        self._taking = asyncio.Lock()

    async def take(self) -> list[SteeringMessage]:
        """Claim the waiting messages of the turn's author, and return them, oldest first, each once.

        Messages that an earlier attempt has claimed, and whose events it has not stored, come first.

        Raises:
            StoreError: the database cannot be used.
            UnreadableRowError: a claimed message cannot be read.
        """
        async with self._taking:
            taken = list[SteeringMessage]()
            if self._may_have_unread:
                taken += _parse(await self._read(_SELECT_UNREAD))
                self._may_have_unread = False
            if self._worker.take_wake(self._turn.session_id) or self._may_have_waiting:
                waiting = await self._read(_SELECT_WAITING)
                ids = [row.id for row in takewhile(self._may_claim, waiting)]
                taken += await self._claim(ids) if ids else []
                self._may_have_waiting = len(waiting) == MAX_MESSAGES
            return taken

    def _may_claim(self, row: sa.Row[Any]) -> bool:
        """Return whether the run may read a waiting row; one that cannot be read waits for a turn that says so."""
        return any(map(self._may_read, list_readable_messages([row.message])))

    async def _read(self, query: sa.Select[Any]) -> Rows:
        turn = self._turn
        return await self._database.run_with_retries(
            query,
            operation=f"turn {turn.id}",
            in_session=turn.session_id,
            in_generation=turn.generation,
            author=turn.newest_message.author,
            origin=turn.origin,
        )

    async def _claim(self, ids: Sequence[int]) -> list[SteeringMessage]:
        """Give the messages that still wait to the turn, unless it was cancelled or lost; return them, oldest first."""
        turn = self._turn
        rows = await self._database.run_with_retries(
            _CLAIM,
            operation=f"turn {turn.id}",
            **self._turn_store.fencing_token(turn).values,
            in_generation=turn.generation,
            origin=turn.origin,
            ids=ids,
        )
        claimed = {found.id: found for found in _parse(rows)}
        return [claimed[id_] for id_ in ids if id_ in claimed]


def _parse(rows: Rows) -> list[SteeringMessage]:
    parsed = ((row.id, parse_inbox_message(row.message, row.id)) for row in rows)
    return [SteeringMessage(id_, message) for id_, message in parsed if message is not None]


_GENERATION = sa.bindparam("in_generation", type_=sa.Integer)
_ORIGIN = sa.bindparam("origin", type_=sa.Text)
_SELECT = (
    sa.select(inbox.c.id, inbox.c.message)
    .where(inbox.c.session == sa.bindparam("in_session", type_=sa.Text), inbox.c.generation == _GENERATION)
    .order_by(inbox.c.sent_at, inbox.c.id)
)
_IS_CLAIMED = (inbox.c.turn == _ORIGIN) & (inbox.c.kind == "steering") & inbox.c.outcome.is_(None)
_EVENT_ID = sa.literal(STEERING_PREFIX) + sa.cast(inbox.c.id, sa.Text)
_SELECT_UNREAD = _SELECT.where(
    _IS_CLAIMED, ~sa.exists().where(messages.c.session == inbox.c.session, messages.c.event_id == _EVENT_ID)
)
_SELECT_WAITING = _SELECT.where(
    is_waiting(inbox),
    inbox.c.kind == "message",
    inbox.c.author == sa.bindparam("author", type_=sa.Text),
    ~sa.exists().where(  # the message may be the answer
        human_requests.c.session == inbox.c.session,
        human_requests.c.kind == "question",
        human_requests.c.decision.is_(None),
    ),
).limit(MAX_MESSAGES)

# locks the session before the turn, against a deletion or a stop at the same time
_LOCKED = (
    join_owned_turn(sa.select(sessions.c.id).where(sessions.c.generation == _GENERATION), OWNS_TURN)
    .where(turns.c.state == "running", turns.c.cancel_reason.is_(None))
    .with_for_update()
    .cte("locked")
)
# returns messages that it has claimed before, too: the answer to the first commit may have been lost
_CLAIM = (
    sa.update(inbox)
    .where(inbox.c.session == _LOCKED.c.id, inbox.c.id.in_(sa.bindparam("ids", expanding=True)))
    .where(is_waiting(inbox) | _IS_CLAIMED)
    .values(turn=_ORIGIN, kind="steering")
    .returning(inbox.c.id, inbox.c.message)
)
