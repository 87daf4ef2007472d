"""Turn reports: messages, model calls, tool calls, decisions and cost of a turn.

The chat ("Why this answer?"), the terminal (`parley why`, `turns`, `status`) and the simulator's inspector show them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from core.agents.run_record import RunRecord
from core.sessions.codec import SEARCHABLE_ROLES
from core.store.database import Database
from core.store.schema import human_requests, inbox, messages, sessions, turns
from core.store.turn_states import State
from core.usage.meter import ModelCall, parse_stored_calls
from core.usage.prices import Prices
from core.usage.spending_ledger import get_latest_names

#: The most turns of a session, newest first, whose replies are searched for a message.
_MAX_TURNS_SEARCHED = 200

#: The columns of `turns` that a report has as they are.
_COLUMNS = (
    *("id", "session", "generation", "kind", "parent", "state", "attempt", "owner", "model", "error"),
    *("created_at", "finished_at"),
)

_TOKENS = ("input", "output", "thinking", "cached", "cache_write")


@dataclass(frozen=True, slots=True)
class ApprovalRecord:
    """Approval or question of a turn to a person, with the decision: a `core.tools.human_requests.Verdict`."""

    tool: str
    verdict: str | None
    decider: str
    decided_at: float | None


@dataclass(frozen=True, slots=True)
class TurnReport:
    """Report of a turn: its messages, model calls, tools, decisions and cost.

    Attributes:
        cancel: the reason of the cancellation; None if the turn was not cancelled.
        authors: by author id, the last known name of each author of the turn's messages; empty if unknown.
        messages: the number of messages that the turn answers.
        chunks: the number of messages that show the reply.
        wait_seconds: seconds from the acceptance of the oldest message, of the request for the rerun, or of the last
            decision, to the start of the turn.
        duration_seconds: seconds between start and end, over all attempts; None if the turn has not ended.
        tokens: the number of tokens read, written and used for thinking.
        usage: the number of tokens by kind: `input`, `output`, `thinking`, `cached`, `cache_write`.
        cost: the cost in trillionths of a dollar.
        unpriced: the number of tokens of models without a known price; they are not in the cost.
        run_record: steps, tool calls and timings of the run; None until the answer or the end is stored, and if the
            record is deleted.
        omitted_messages: the number of stored older messages that the model got neither as they are nor in a summary;
            None where they are not counted (`TurnReports.list`).
        approvals: the requests of the turn to people.
        decided_requests: the requests whose decisions started the turn.
        reruns: the ids of later turns that answer the same messages, oldest first.
        is_reset: whether the session was reset or deleted after the start of the turn.
        app: the ADK app of the session; empty if the session is deleted.
    """

    id: str
    session: str
    generation: int
    kind: str
    parent: str | None
    state: State
    attempt: int
    owner: str | None
    model: str | None
    cancel: str | None
    error: str | None
    authors: Mapping[str, str]
    messages: int
    chunks: int
    wait_seconds: float
    duration_seconds: float | None
    tokens: int
    usage: Mapping[str, int]
    calls: tuple[ModelCall, ...]
    cost: int
    unpriced: int
    run_record: RunRecord | None
    omitted_messages: int | None
    approvals: tuple[ApprovalRecord, ...]
    decided_requests: tuple[ApprovalRecord, ...]
    reruns: tuple[str, ...]
    created_at: float
    finished_at: float | None
    is_reset: bool
    app: str

    @property
    def known_cost(self) -> int | None:
        """The cost in trillionths of a dollar; None without a model call, and if no call has a known price."""
        return self.cost if self.cost or (self.calls and not self.unpriced) else None


class TurnReports:
    """Queries for turns, and for the reports on them; `prices` are for turns whose cost is not stored yet."""

    def __init__(self, database: Database, prices: Prices) -> None:
        self._database = database
        self.prices = prices

    async def get(self, turn_id: str) -> TurnReport | None:
        async with self._database.read() as connection:
            rows = (await connection.execute(sa.select(turns).where(turns.c.id == turn_id))).all()
            for report in await load_reports(connection, rows, self.prices):
                return replace(report, omitted_messages=await _count_omitted_messages(connection, report))
        return None

    async def list(
        self,
        *,
        limit: int,
        state: State | None = None,
        session: str | None = None,
        author: str | None = None,
        since: float | None = None,
    ) -> list[TurnReport]:
        """Return reports of at most `limit` turns, the newest first.

        `session` is the beginning of a session's id, `author` the platform's id of an author of the turn's messages,
        and `since` the earliest start of a turn.
        """
        query = sa.select(turns).order_by(turns.c.created_at.desc()).limit(limit)
        if state is not None:
            query = query.where(turns.c.state == state)
        if session is not None:
            query = query.where(turns.c.session.startswith(session, autoescape=True))
        if author is not None:
            query = query.where(_is_by(author))
        if since is not None:
            query = query.where(turns.c.created_at >= since)
        async with self._database.read() as connection:
            return await load_reports(connection, (await connection.execute(query)).all(), self.prices)

    async def find_turn_ids(self, beginning: str, limit: int) -> Sequence[str]:
        """Return at most `limit` turn ids that begin with a text, the newest turn first."""
        begins = turns.c.id.startswith(beginning, autoescape=True)
        query = sa.select(turns.c.id).where(begins).order_by(turns.c.created_at.desc()).limit(limit)
        async with self._database.read() as connection:
            return (await connection.execute(query)).scalars().all()

    async def find_newest_turn(self, *, session_id: str | None, place: str, author: str | None) -> str | None:
        """Return the id of the newest turn of a session or place since the last reset.

        Args:
            session_id: the id of the session; None for all sessions at `place`, as `InboxMessage.place`.
            author: only turns that answer a message of the author with this platform id.
        """
        in_scope = sessions.c.user_id == place if session_id is None else turns.c.session == session_id
        query = _select_current_turns().where(in_scope).order_by(turns.c.created_at.desc()).limit(1)
        if author is not None:
            query = query.where(_is_by(author))
        async with self._database.read() as connection:
            turn_id: str | None = (await connection.execute(query)).scalar_one_or_none()
        return turn_id

    async def find_turn_of_message(
        self, session_id: str, message_id: str, event_key: str, file_prefixes: Sequence[str] = ()
    ) -> str | None:
        """Return the id of the newest turn that answers a message or has sent the message.

        If no turn answers the message, the replies of the session's `_MAX_TURNS_SEARCHED` newest turns since the last
        reset are searched for the message.

        Args:
            message_id: the platform's id of the message, which identifies a message of the bot.
            event_key: the event key of the message, which identifies a message of a user.
            file_prefixes: the beginnings of the ids in `turns.chunks` of the files that the message has.
        """
        answering_turn = sa.select(inbox.c.turn).where(inbox.c.event_key == event_key).scalar_subquery()
        newest_first = turns.c.created_at.desc()
        answers = sa.select(turns.c.id).where(turns.c.origin == answering_turn).order_by(newest_first).limit(1)
        newest_turns = (
            _select_current_turns()
            .where(turns.c.session == session_id)
            .add_columns(turns.c.chunks)
            .order_by(newest_first)
            .limit(_MAX_TURNS_SEARCHED)
        )
        async with self._database.read() as connection:
            found: str | None = (await connection.execute(answers)).scalar_one_or_none()
            rows = () if found else (await connection.execute(newest_turns)).all()
        prefixes = tuple(file_prefixes)
        shown_ids = ((row.id, id_) for row in rows for id_ in row.chunks or ())
        return found or next((turn for turn, id_ in shown_ids if id_ == message_id or id_.startswith(prefixes)), None)


def _is_by(author: str) -> sa.ColumnElement[bool]:
    return sa.exists().where(inbox.c.turn == turns.c.origin, inbox.c.author == author)


def _select_current_turns() -> sa.Select[Any]:
    """Return the query of the ids of all turns since their session's last reset."""
    in_generation = (sessions.c.id == turns.c.session) & (sessions.c.generation == turns.c.generation)
    return sa.select(turns.c.id).join(sessions, in_generation)


async def load_reports(connection: AsyncConnection, rows: Sequence[sa.Row[Any]], prices: Prices) -> list[TurnReport]:
    """Return the reports of `turns` rows, in their order; `omitted_messages` is None."""
    if not rows:
        return []
    ids = [row.id for row in rows]
    origins = [row.origin for row in rows]
    inbox_rows = sa.select(inbox.c.turn, inbox.c.author, inbox.c.accepted_at).where(inbox.c.turn.in_([*ids, *origins]))
    accepted = _group_by_first_column(await connection.execute(inbox_rows))
    session_rows = sa.select(sessions.c.id, sessions.c.generation, sessions.c.app)
    session_rows = session_rows.where(sessions.c.id.in_([row.session for row in rows]))
    found_sessions = {row.id: row for row in await connection.execute(session_rows)}
    c = human_requests.c
    asking_ids = [*ids, *(row.parent for row in rows if row.kind == "decision")]
    decided = sa.select(c.turn, c.tool, c.decision, c.decided_by_name, c.decided_at).where(c.turn.in_(asking_ids))
    decisions = _group_by_first_column(await connection.execute(decided.order_by(c.requested_at, c.id)))
    rerun_rows = sa.select(turns.c.origin, turns.c.id, turns.c.created_at).where(turns.c.origin.in_(origins))
    reruns = _group_by_first_column(await connection.execute(rerun_rows.order_by(turns.c.created_at)))
    people = {_ledger_key(row.session, message.author) for row in rows for message in accepted.get(row.origin, ())}
    names = await get_latest_names(connection, people)

    def build_report(row: sa.Row[Any]) -> TurnReport:
        answered = accepted.get(row.origin, [])
        session = found_sessions.get(row.session)
        requested_at = min((message.accepted_at for message in accepted.get(row.id, ())), default=row.created_at)
        usage = row.usage or {}
        calls = parse_stored_calls(row.usage)
        cost, unpriced = prices.total_cost(calls)
        return TurnReport(
            **{name: getattr(row, name) for name in _COLUMNS},
            cancel=row.cancel_reason,
            authors={message.author: names.get(_ledger_key(row.session, message.author), "") for message in answered},
            messages=len(answered),
            chunks=len(row.chunks or ()),
            wait_seconds=max(0.0, row.created_at - requested_at),
            duration_seconds=None if row.finished_at is None else row.finished_at - row.created_at,
            tokens=sum(int(usage.get(name, 0)) for name in ("input", "output", "thinking")),
            usage={name: int(usage[name]) for name in _TOKENS if name in usage},
            calls=tuple(calls),
            cost=cost if row.cost is None else row.cost,
            unpriced=unpriced,
            run_record=RunRecord.from_json(row.run_record),
            omitted_messages=None,
            approvals=_to_approval_records(decisions.get(row.id, ())),
            decided_requests=_to_approval_records(decisions.get(row.parent, ())) if row.kind == "decision" else (),
            reruns=tuple(
                rerun.id for rerun in reruns[row.origin] if rerun.id != row.id and rerun.created_at > row.created_at
            ),
            is_reset=session is None or session.generation != row.generation,
            app=session.app if session is not None else "",
        )

    return [build_report(row) for row in rows]


def _group_by_first_column(rows: Iterable[sa.Row[Any]]) -> dict[str, list[sa.Row[Any]]]:
    found = dict[str, list[sa.Row[Any]]]()
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return found


def _ledger_key(session: str, author: str) -> str:
    """Return the `spending.author` of an author (`slack:U1`); a session id begins with the platform's name."""
    return f"{session.partition(':')[0]}:{author}"


def _to_approval_records(rows: Iterable[sa.Row[Any]]) -> tuple[ApprovalRecord, ...]:
    return tuple(ApprovalRecord(row.tool, row.decision, row.decided_by_name or "", row.decided_at) for row in rows)


async def _count_omitted_messages(connection: AsyncConnection, report: TurnReport) -> int:
    """Return the number of earlier messages that the model did not get in a turn.

    These are messages with text of the session, neither sent to the model nor covered by its summary. 0 if no limit of
    the history applied, or the run record is deleted.
    """
    history = report.run_record.history if report.run_record is not None else None
    if history is None or not history.limit:
        return 0
    has_text = messages.c.role.in_(SEARCHABLE_ROLES) & (messages.c.content != "")
    in_session = (messages.c.session == report.session) & (messages.c.generation == report.generation)
    since = (messages.c.id > history.summarized_id) & (messages.c.id <= history.newest_id)
    query = sa.select(sa.func.count()).where(in_session, has_text, since)
    return max(0, (await connection.execute(query)).scalar_one() - history.messages)
