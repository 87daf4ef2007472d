"""A conversation to take along: all that is kept of it, as people read it (Markdown) or as programs do (JSON).

It is read and told in pieces, a few messages at a time, however long it is.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import sqlalchemy as sa

from core.exported import File, files_in, made_by
from core.prices import dollars, exact
from core.sessions.reopening import correction_of
from core.sessions.spoken import Spoken
from core.store.database import Database
from core.store.schema import approvals, artifacts, feedback, messages, sessions, turns

#: How it is written: for people, or for programs.
Form = Literal["md", "json"]

#: How many messages are read at once.
PAGE = 200

_CORRECTION = correction_of("")


@dataclass(frozen=True, slots=True)
class Message:
    """One of a run: what was said, or what tools were asked or told.

    Attributes:
        parts: of what people said, who said each part of it (id and name; empty for what stood around it), if known.
    """

    at: float
    role: str
    author: str
    text: str
    parts: Sequence[tuple[str, str, str]] = ()
    calls: Sequence[Mapping[str, str]] = ()
    files: Sequence[File] = ()

    @property
    def by(self) -> str:
        """Who said it, as one reads it."""
        if self.role != "user":
            return self.author
        return ", ".join(dict.fromkeys(name for id_, name, _ in self.parts if id_ and name)) or "Question"


@dataclass(frozen=True, slots=True)
class Run:
    """A question and all that followed from it, or a summary of what came before.

    Attributes:
        turn: the newest of the turns that answered it; None if it is forgotten, or there was none.
        feedback: what readers think of that one's answer.
        decisions: what people were asked for.
        files: what it has made.
        is_summary: whether this is what a model has summed up of all before; its text is the one message.
    """

    id: str
    messages: Sequence[Message]
    turn: Mapping[str, Any] | None = None
    feedback: Sequence[Mapping[str, Any]] = ()
    decisions: Sequence[Mapping[str, Any]] = ()
    files: Sequence[File] = ()
    is_summary: bool = False


#: A run, or a summary, and its messages.
_Group = tuple[str, list[sa.Row[Any]]]


@dataclass
class _Groups:
    """Puts the messages of a run together."""

    rows: list[sa.Row[Any]] = field(default_factory=list)
    run: str = ""

    def take(self, row: sa.Row[Any]) -> _Group | None:
        """Take a message in; the run that has ended with the one before it."""
        of_run = self.run if row.invocation_id == f"{self.run}{_CORRECTION}" else row.invocation_id
        if self.rows and of_run == self.run:
            self.rows.append(row)
            return None
        ended = self.end()
        self.rows, self.run = [row], of_run
        return ended

    def end(self) -> _Group | None:
        return (self.run, self.rows) if self.rows else None


async def runs(database: Database, session_id: str) -> AsyncGenerator[Run, None]:
    """What was said in a session since it was last started over, oldest first.

    Raises:
        StoreError: the database cannot be read.
    """
    groups, seen = _Groups(), dict[str, int]()
    async for page in _pages(database, session_id):
        ended = [group for row in page if (group := groups.take(row))]
        for run in await _whole(database, session_id, ended, seen):
            yield run
    for run in await _whole(database, session_id, [last] if (last := groups.end()) else [], seen):
        yield run


async def _pages(database: Database, session_id: str) -> AsyncGenerator[Sequence[sa.Row[Any]], None]:
    lives = (sessions.c.id == messages.c.session) & (sessions.c.generation == messages.c.generation)
    query = sa.select(messages).join(sessions, lives).where(messages.c.session == session_id)
    last = 0
    while True:
        some = query.where(messages.c.id > last).order_by(messages.c.id).limit(PAGE)
        async with database.read() as connection:
            page: Sequence[sa.Row[Any]] = list(await connection.execute(some))
        yield page
        if len(page) < PAGE:
            return
        last = page[-1].id
        await asyncio.sleep(0)


async def _whole(database: Database, session_id: str, groups: Sequence[_Group], seen: dict[str, int]) -> list[Run]:
    """Runs with what there is to know of them."""
    ids = {run for run, _ in groups if run}
    of_runs = turns.c.origin.in_(ids) | turns.c.run.in_(ids)
    its_turns = sa.select(turns).where(turns.c.session == session_id, of_runs).order_by(turns.c.created_at, turns.c.id)
    async with database.read() as connection:
        found = list(await connection.execute(its_turns)) if ids else []
        of_turns = [row.id for row in found]
        verdicts = sa.select(feedback).where(feedback.c.turn.in_(of_turns)).order_by(feedback.c.given_at)
        asked = sa.select(approvals).where(approvals.c.turn.in_(of_turns)).order_by(approvals.c.asked_at)
        kept = [column for column in artifacts.c if column is not artifacts.c.data]
        saved = [*ids, *map(correction_of, ids)]
        made = sa.select(*kept, sa.func.length(artifacts.c.data).label("size")).where(
            artifacts.c.session == session_id, artifacts.c.run.in_(saved)
        )
        facts = _Facts(
            found,
            list(await connection.execute(verdicts)) if found else [],
            list(await connection.execute(asked)) if found else [],
            list(await connection.execute(made.order_by(artifacts.c.id))) if ids else [],
        )
    return [facts.run(run, rows, seen) for run, rows in groups]


@dataclass(frozen=True, slots=True)
class _Facts:
    """Rows of several runs."""

    turns: Sequence[sa.Row[Any]]
    verdicts: Sequence[sa.Row[Any]]
    asked: Sequence[sa.Row[Any]]
    made: Sequence[sa.Row[Any]]

    def run(self, run: str, rows: Sequence[sa.Row[Any]], seen: dict[str, int]) -> Run:
        """One of them. One that went on when people had decided comes once more, behind."""
        if rows[0].covers is not None:
            text = Message(rows[0].created_at, "summary", rows[0].author, rows[0].content)
            return Run(run, [text], is_summary=True)
        said = [_message(row) for row in rows if row.role != "user" or row.invocation_id == run]  # not our own word
        said = [one for one in said if one.text or one.calls or one.files]
        of_run = [row for row in self.turns if run in (row.origin, row.run)] if run else []
        origins = list(dict.fromkeys(row.origin for row in of_run))
        place = seen.get(run, 0)
        if len(origins) > 1:
            seen[run] = place + 1
        own = [row for row in of_run if row.origin == origins[min(place, len(origins) - 1)]]
        ids = {row.id for row in own}
        saved = [row for row in self.made if row.run in (run, correction_of(run))] if run and not place else []
        return Run(
            run,
            said,
            turn=_of_turn(own[-1]) if own else None,
            feedback=[_without(row, "turn") for row in self.verdicts if row.turn == own[-1].id] if own else (),
            decisions=[_decision(row) for row in self.asked if row.turn in ids],
            files=made_by(saved),
        )


def _message(row: sa.Row[Any]) -> Message:
    spoken = Spoken.of(row.content, row.spoken)
    parts = [(who, spoken.people.get(who, ""), words) for who, words in spoken.parts] if spoken else []
    text = row.content.strip() if row.role in ("user", "assistant") else ""
    return Message(row.created_at, row.role, row.author, text, parts, row.tool_calls or (), files_in(row))


def _of_turn(row: sa.Row[Any]) -> dict[str, Any]:
    names = ("id", "kind", "state", "agent", "model", "attempt", "usage", "cost", "created_at", "finished_at")
    return {name: value for name, value in row._mapping.items() if name in names and value is not None}


def _decision(row: sa.Row[Any]) -> dict[str, Any]:
    names = ("tool", "arguments", "hint", "asked_at", "decision", "decided_by", "decider", "decided_at")
    return {name: row._mapping[name] for name in names if row._mapping[name] is not None}


def _without(row: sa.Row[Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row._mapping.items() if name not in names}


async def pieces(
    database: Database, session_id: str, form: Form, *, most: int | None = None
) -> AsyncGenerator[str, None]:
    """A session as a text, in pieces; no piece if nothing was said in it.

    Args:
        most: bytes after which it is broken off, and says so.

    Raises:
        StoreError: the database cannot be read.
    """
    writer, size, has_begun = _WRITERS[form](session_id), 0, False
    async with aclosing(runs(database, session_id)) as told:
        async for run in told:
            if not has_begun:
                yield writer.begin(await _about(database, session_id))
            has_begun, written = True, writer.run(run)
            size += len(written.encode())
            if most is not None and size > most:
                yield writer.end(is_whole=False)
                return
            yield written
    if has_begun:
        yield writer.end(is_whole=True)


async def _about(database: Database, session_id: str) -> dict[str, Any]:
    async with database.read() as connection:
        row = (await connection.execute(sa.select(sessions).where(sessions.c.id == session_id))).one_or_none()
        answered = sa.select(turns.c.agent).where(turns.c.session == session_id).distinct()
        agents = sorted(filter(None, (await connection.execute(answered)).scalars()))
    if row is None:
        return {}
    return {"place": row.user_id, "model": row.model, "generation": row.generation, "agents": agents or [row.app]}


class _Markdown:
    """For people."""

    def __init__(self, session_id: str) -> None:
        self._session = session_id
        self._are_several = False

    def begin(self, about: Mapping[str, Any]) -> str:
        self._are_several = len(about.get("agents", ())) > 1
        return f"# Conversation `{self._session}`\n"

    def run(self, run: Run) -> str:
        told = [f"\n{piece}\n" for piece in self._pieces(run)]
        return "".join(told)

    def end(self, *, is_whole: bool) -> str:
        return "" if is_whole else "\n*What follows is left out here.*\n"

    def _pieces(self, run: Run) -> Iterator[str]:
        for message in run.messages:
            if run.is_summary:
                yield f"## Summary of what was said before, made by a model, {_moment(message.at)}"
                yield "\n".join(f"> {line}".rstrip() for line in message.text.splitlines())
                continue
            used = [call for call in message.calls if "output" not in call]
            if message.text or used or message.files:
                yield f"## {message.by}{self._agent(run, message)}, {_moment(message.at)}"
            if message.text:
                yield message.text
            yield from (f"*Used `{call['name']}`:* {_code(call.get('input') or '{}')}" for call in used)
            given = (call for call in message.calls if "output" in call)
            yield from (f"*`{call['name']}` gave:* {_code(call['output'] or '{}')}" for call in given)
            yield from (f"*File:* {_file(file)}" for file in message.files)
        yield from (f"*Made the file:* {_file(file)}" for file in run.files)
        for asked in run.decisions:
            by = asked.get("decider") or asked.get("decided_by")
            decided = f"{asked.get('decision') or 'nobody has decided'}{f' by {by}' if by else ''}"
            yield f"*Asked for `{asked['tool']}`:* {_code(_json(asked['arguments']))} *{decided}*"
        if run.feedback:
            verdicts = [str(one["verdict"]) for one in run.feedback]
            counted = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in sorted(set(verdicts)))
            yield f"*Feedback: {counted}*"
        if run.turn and (spent := _spent(run.turn)):
            yield f"*{spent}*"

    def _agent(self, run: Run, message: Message) -> str:
        """Which of the bot's agents it was, where there are several and its name is another one."""
        agent = (run.turn or {}).get("agent")
        is_told = self._are_several and agent and message.role != "user" and agent != message.author
        return f" ({agent})" if is_told else ""


class _Json:
    """For programs: one object, a run on each line."""

    def __init__(self, session_id: str) -> None:
        self._session = session_id
        self._comma = ""

    def begin(self, about: Mapping[str, Any]) -> str:
        head = {"format": "parley-conversation", "version": 1, "session": {"id": self._session, **about}}
        return f'{_json(head)[:-1]}, "runs": ['

    def run(self, run: Run) -> str:
        comma, self._comma = self._comma, ","
        if run.is_summary:
            (message,) = run.messages
            return f"{comma}\n{_json({'kind': 'summary', 'at': _iso(message.at), 'text': message.text})}"
        told = {
            "kind": "run",
            "id": run.id,
            "messages": [_as_json(message) for message in run.messages],
            "turn": run.turn and _priced(_dated(run.turn)),
            "feedback": list(map(_dated, run.feedback)),
            "decisions": list(map(_dated, run.decisions)),
            "files": [file.to_json() for file in run.files],
        }
        return f"{comma}\n{_json({name: value for name, value in told.items() if value})}"

    def end(self, *, is_whole: bool) -> str:
        return f'\n], "is_whole": {_json(is_whole)}}}\n'


_WRITERS: Mapping[Form, type[_Markdown | _Json]] = {"md": _Markdown, "json": _Json}


def _as_json(message: Message) -> dict[str, Any]:
    parts = [{"by": id_, "name": name, "text": words} for id_, name, words in message.parts]
    told = {
        "at": _iso(message.at),
        "role": message.role,
        "author": message.author,
        "text": message.text,
        "parts": [{name: value for name, value in part.items() if value} for part in parts],
        "calls": [_call(call) for call in message.calls if "output" not in call],
        "results": [_call(call) for call in message.calls if "output" in call],
        "files": [file.to_json() for file in message.files],
    }
    return {name: value for name, value in told.items() if value}


def _call(call: Mapping[str, str]) -> dict[str, Any]:
    name, given = ("result", call["output"]) if "output" in call else ("arguments", call.get("input"))
    return {"id": call.get("id"), "tool": call.get("name"), name: _read(given)}


def _read(text: str | None) -> Any:
    try:
        return json.loads(text or "{}")
    except ValueError:
        return text


def _dated(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _iso(value) if name.endswith("_at") and value else value for name, value in values.items()}


def _priced(turn: Mapping[str, Any]) -> dict[str, Any]:
    """With the cost as programs read it everywhere."""
    told = {name: value for name, value in turn.items() if name != "cost"}
    return {**told, "dollars": exact(turn["cost"])} if "cost" in turn else told


def _spent(turn: Mapping[str, Any]) -> str:
    usage = turn.get("usage") or {}
    tokens = sum(usage.get(name) or 0 for name in ("input", "output", "thinking"))
    cost = f", {dollars(turn['cost'])}" if turn.get("cost") else ""
    return f"{tokens:,} tokens{cost}" if tokens or cost else ""


def _code(text: str) -> str:
    """In a code span that nothing in it closes."""
    ticks = "`"
    while ticks in text:
        ticks += "`"
    room = " " if len(ticks) > 1 else ""
    return f"{ticks}{room}{' '.join(text.splitlines())}{room}{ticks}"


def _file(file: File) -> str:
    size = f", {file.size:,} bytes" if file.size else ""
    return f"{_code(file.name)} ({file.kind}{size})"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def _moment(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"
