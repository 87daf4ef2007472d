"""Transcript of a session: its runs with turns, ratings, requests and files.

Messages are read in pages, so that a long session does not fill the memory.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from core.messages.identity import current_author
from core.models.grounding import find_sources
from core.privacy.export_attachments import ExportedFile, list_message_files, list_tool_files
from core.sessions.codec import SEARCHABLE_ROLES, USER_ROLES, parse_event
from core.sessions.prompt_text import AttributedPrompt
from core.sessions.resume import correction_run_id
from core.store.database import Database
from core.store.errors import name_row
from core.store.schema import artifacts, feedback, human_requests, messages, sessions, turns
from core.tools.secret_answers import mask_answer, mask_paths
from core.usage.meter import UsageMeter

#: The most messages per query.
PAGE_SIZE = 200

_CORRECTION = correction_run_id("")


@dataclass(frozen=True, slots=True)
class TranscriptMessage:
    """Message of a run: text, tool calls or tool results.

    Attributes:
        role: `user`, `assistant`, `tool`, `event`, or `summary`.
        author: `user`, or the name of an agent.
        text: the text of a user, an agent or a summary; else empty.
        parts: author id, display name and text of each part of a prompt; the id is empty for quotes of other messages.
            No parts if the authors are unknown.
        calls: tool calls with `input`, and results with `output`, as in `messages.tool_calls`.
        sources: the URLs of the web pages that an answer is based on.
    """

    at: float
    role: str
    author: str
    text: str
    parts: Sequence[tuple[str, str, str]] = ()
    calls: Sequence[Mapping[str, str]] = ()
    files: Sequence[ExportedFile] = ()
    sources: Sequence[str] = ()

    @property
    def heading(self) -> str:
        """The names of a prompt's authors; `Question` without known names; else `author`."""
        if self.role != "user":
            return self.author
        return ", ".join(dict.fromkeys(name for id_, name, _ in self.parts if id_ and name)) or "Question"


@dataclass(frozen=True, slots=True)
class TranscriptRun:
    """A run of the agent with its messages, or a summary of earlier runs.

    Attributes:
        id: the id of the run, an ADK invocation; a summary has an id of its own.
        turn: columns of the newest turn of the run, by name; None if the turn is deleted, or there was none.
        feedback: the ratings of that turn's answer: columns of `feedback` by name.
        decisions: the approvals and questions of the run's turns: columns of `human_requests` by name.
        files: the files that the tools of the run have saved.
        is_summary: whether this is a model's summary of all messages before; its text is the only message.
    """

    id: str
    messages: Sequence[TranscriptMessage]
    turn: Mapping[str, Any] | None = None
    feedback: Sequence[Mapping[str, Any]] = ()
    decisions: Sequence[Mapping[str, Any]] = ()
    files: Sequence[ExportedFile] = ()
    is_summary: bool = False


#: The id of a run, or of a summary, and its rows of `messages`.
_RunRows = tuple[str, list[sa.Row[Any]]]


@dataclass
class _RunGrouper:
    """Groups rows of `messages`, added oldest first, by their run."""

    rows: list[sa.Row[Any]] = field(default_factory=list)
    run: str = ""

    def add(self, row: sa.Row[Any]) -> _RunRows | None:
        """Add the next row, and return the former run if the row begins a new one.

        Rows with the run id `correction_run_id(run)` belong to `run`.
        """
        of_run = self.run if row.invocation_id == f"{self.run}{_CORRECTION}" else row.invocation_id
        if self.rows and of_run == self.run:
            self.rows.append(row)
            return None
        ended = self.finish()
        self.rows = [row]
        self.run = of_run
        return ended

    def finish(self) -> _RunRows | None:
        return (self.run, self.rows) if self.rows else None


async def stream_runs(database: Database, session_id: str) -> AsyncGenerator[TranscriptRun, None]:
    """Yield the runs and summaries of a session since its last reset, oldest first.

    A run that continued after decisions of people is yielded in several parts with the same `id`, one for each turn;
    the first part has the files. Nothing is yielded for an unknown session.
    """
    groups = _RunGrouper()
    seen = set[str]()
    async for page in _read_pages(database, session_id):
        ended = [group for row in page if (group := groups.add(row))]
        for run in await _load_runs(database, session_id, ended, seen):
            yield run
    for run in await _load_runs(database, session_id, [last] if (last := groups.finish()) else [], seen):
        yield run


async def _read_pages(database: Database, session_id: str) -> AsyncGenerator[Sequence[sa.Row[Any]], None]:
    in_generation = (sessions.c.id == messages.c.session) & (sessions.c.generation == messages.c.generation)
    query = sa.select(messages).join(sessions, in_generation).where(messages.c.session == session_id)
    last = 0
    while True:
        next_rows = query.where(messages.c.id > last).order_by(messages.c.id).limit(PAGE_SIZE)
        async with database.read() as connection:
            page: Sequence[sa.Row[Any]] = list(await connection.execute(next_rows))
        yield page
        if len(page) < PAGE_SIZE:
            return
        last = page[-1].id
        await asyncio.sleep(0)


async def _load_runs(
    database: Database, session_id: str, groups: Sequence[_RunRows], seen: set[str]
) -> list[TranscriptRun]:
    """Return runs of a session with their turns, ratings, requests and files.

    The files of the runs in `seen` were returned before, and are left out; the ids of these runs are added to it.
    """
    ids = {run for run, _ in groups if run}
    is_of_runs = turns.c.origin.in_(ids) | turns.c.run.in_(ids)
    its_turns = (
        sa.select(turns).where(turns.c.session == session_id, is_of_runs).order_by(turns.c.created_at, turns.c.id)
    )
    async with database.read() as connection:
        found = list(await connection.execute(its_turns)) if ids else []
        turn_ids = [row.id for row in found]
        verdicts = sa.select(feedback).where(feedback.c.turn.in_(turn_ids)).order_by(feedback.c.rated_at)
        requests = (
            sa.select(human_requests).where(human_requests.c.turn.in_(turn_ids)).order_by(human_requests.c.requested_at)
        )
        columns = [column for column in artifacts.c if column is not artifacts.c.data]
        saved = [*ids, *map(correction_run_id, ids)]
        files_query = sa.select(*columns, sa.func.length(artifacts.c.data).label("size")).where(
            artifacts.c.session == session_id, artifacts.c.run.in_(saved)
        )
        related = _RelatedRows(
            found,
            list(await connection.execute(verdicts)) if found else [],
            list(await connection.execute(requests)) if found else [],
            list(await connection.execute(files_query.order_by(artifacts.c.id))) if ids else [],
        )
    return [run for id_, rows in groups for run in related.build_runs(id_, rows, seen)]


@dataclass(frozen=True, slots=True)
class _RelatedRows:
    """Rows of `turns`, `feedback`, `human_requests` and `artifacts` of several runs."""

    turns: Sequence[sa.Row[Any]]
    feedback: Sequence[sa.Row[Any]]
    approvals: Sequence[sa.Row[Any]]
    artifacts: Sequence[sa.Row[Any]]

    def build_runs(self, run: str, rows: Sequence[sa.Row[Any]], seen: set[str]) -> list[TranscriptRun]:
        """Return the rows of a run as one or more parts, or a summary as one.

        A run has one part, and one more for each turn that continued it after decisions of people. The first part has
        the files of the run, unless `seen` has the run's id. Without an id (empty), there is one part, without turn and
        files.
        """
        if rows[0].summarized_id is not None:
            text = TranscriptMessage(rows[0].created_at, "summary", rows[0].author, rows[0].content)
            return [TranscriptRun(run, [text], is_summary=True)]
        of_run = [row for row in self.turns if run in (row.origin, row.run)] if run else []
        starts = {row.origin: row.created_at for row in reversed(of_run)}  # of the first turn of each origin
        origins = sorted(starts, key=lambda origin: starts[origin])

        def find_origin(row: sa.Row[Any]) -> str:
            earlier = [origin for origin in origins if starts[origin] <= row.created_at]
            return next(reversed(earlier or origins[:1]), "")

        built = []
        for origin, part in groupby(rows, find_origin):
            own = [row for row in of_run if row.origin == origin]
            built.append(self._build_run(run, list(part), own, is_first=run not in seen))
            seen.add(run)
        return built

    def _build_run(
        self, run: str, rows: Sequence[sa.Row[Any]], own: Sequence[sa.Row[Any]], *, is_first: bool
    ) -> TranscriptRun:
        entries = [_to_message(row) for row in rows if row.role != "user" or row.invocation_id == run]  # no corrections
        entries = [entry for entry in entries if entry.text or entry.calls or entry.files]
        ids = {row.id for row in own}
        runs = (run, correction_run_id(run))
        saved = [row for row in self.artifacts if row.run in runs] if run and is_first else []
        return TranscriptRun(
            run,
            entries,
            turn=_turn_values(own[-1], rows) if own else None,
            feedback=[_omit(row, "turn") for row in self.feedback if row.turn == own[-1].id] if own else (),
            decisions=[_decision_values(row) for row in self.approvals if row.turn in ids],
            files=list_tool_files(saved),
        )


def _to_message(row: sa.Row[Any]) -> TranscriptMessage:
    with name_row("messages", row.id):
        event = parse_event(row.event, row.id)
        prompt = AttributedPrompt.from_json(row.content, row.attribution)
        parts = [(author, prompt.names.get(author, ""), text) for author, text in prompt.parts] if prompt else []
        role = "user" if row.role in USER_ROLES else row.role
        content = row.content.strip() if row.role in SEARCHABLE_ROLES else ""
        name = current_author(row.author)
        calls = list(map(dict, row.tool_calls or ()))
        sources = [source.url for source in find_sources(event)] if event and row.role == "assistant" else []
        files = list_message_files(row.id, event)
        return TranscriptMessage(row.created_at, role, name, content, parts, calls, files, sources)


def _turn_values(row: sa.Row[Any], message_rows: Sequence[sa.Row[Any]]) -> dict[str, Any]:
    names = ("id", "kind", "state", "agent", "model", "attempt", "usage", "cost", "created_at", "finished_at")
    values = {name: value for name, value in row._mapping.items() if name in names and value is not None}
    if row.finished_at is None:  # its usage is stored at its end, the answers of its models already
        meter = UsageMeter(row.id, row.usage, started_at=row.created_at)
        meter.add_stored_answers(event for row in message_rows if (event := parse_event(row.event, row.id)) is not None)
        values["usage"] = meter.to_json()
    return values


def _decision_values(row: sa.Row[Any]) -> dict[str, Any]:
    """Return the columns of an approval or question for an export; secrets are masked."""
    names = (
        "kind",
        "tool",
        "arguments",
        "hint",
        "requested_at",
        "decision",
        "decided_by",
        "decided_by_name",
        "decided_at",
        "answer",
    )
    values = {
        **row._mapping,
        "arguments": mask_paths(row.arguments, row.secret_paths),
        "answer": mask_answer(row.tool, row.arguments, row.answer),
    }
    return {name: values[name] for name in names if values[name] is not None}


def _omit(row: sa.Row[Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row._mapping.items() if name not in names}
