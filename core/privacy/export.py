"""Export of a session's history as Markdown or JSON, streamed in pieces of text."""

import json
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

import sqlalchemy as sa

from core.observability.messages import format_count
from core.observability.secret_redaction import redact_json_secrets
from core.privacy.export_attachments import ExportedFile
from core.privacy.transcript import TranscriptMessage, TranscriptRun, stream_runs
from core.store.database import Database
from core.store.schema import IS_RUNNING_JOB, inbox, jobs, schedules, sessions, sign_ins, turns
from core.usage.meter import parse_stored_calls
from core.usage.prices import Prices, format_dollars, format_exact_dollars

#: Markdown for people, or JSON for programs.
ExportFormat = Literal["md", "json"]

_HIDDEN = "[hidden]"


@dataclass(frozen=True, slots=True)
class ExportViewer:
    """The person who gets an export in a chat, with their rights to see tool calls.

    Only the people whose messages led to a tool call see its arguments and result. Admins see them in a private export.

    Attributes:
        id: the platform's id of the person.
        is_admin: whether they run the bot.
        is_private: whether nobody else sees the file. If others do, secrets in arguments and results are masked.
    """

    id: str
    is_admin: bool
    is_private: bool

    def redact_run(self, run: TranscriptRun, authors: Collection[str]) -> TranscriptRun:
        """Return a run with only those tool arguments and results that the viewer may see.

        `authors` are the authors of the run's messages. All else in tool calls, and the arguments, hints and answers of
        requests to people, is replaced by `[hidden]`.
        """
        may_see = self.id in authors or (self.is_admin and self.is_private)
        if may_see and self.is_private:
            return run

        def view(value: Any) -> Any:
            return redact_json_secrets(value) if may_see else _HIDDEN

        messages = [
            replace(message, calls=[{**call, **_apply_view(call, view)} for call in message.calls])
            for message in run.messages
        ]
        decisions = [
            {
                **decision,
                **{name: view(decision[name]) for name in ("arguments", "hint", "answer") if decision.get(name)},
            }
            for decision in run.decisions
        ]
        return replace(run, messages=messages, decisions=decisions)


def _apply_view(call: Mapping[str, str], view: Callable[[Any], Any]) -> dict[str, str]:
    found = dict[str, str]()
    for name in ("input", "output"):
        if name in call:
            viewed = view(_parse_json_or_text(call[name]))
            found[name] = viewed if isinstance(viewed, str) else _to_json_text(viewed)
    return found


async def stream_export(
    database: Database,
    session_id: str,
    format_: ExportFormat,
    prices: Prices,
    *,
    max_bytes: int | None = None,
    viewer: ExportViewer | None = None,
) -> AsyncGenerator[str, None]:
    """Yield the history of a session since its last reset, as text, in pieces.

    Its schedules, its running jobs and the sign-ins of its authors follow. Nothing is yielded for a session without
    messages.

    Args:
        prices: the prices of models, for turns whose cost is not stored yet.
        max_bytes: the most bytes of UTF-8 of all runs. The first run that exceeds it and all later ones are left out,
            and the end of the text says so.
        viewer: the person who gets the text: see `ExportViewer`. None shows everything, as to operators.
    """
    writer = _WRITERS[format_](session_id)
    size = 0
    has_begun = False
    authors = dict[str, set[str]]()  # by the id of the run, which another run continues after an approval
    later = {
        "schedules": await _load_schedules(database, session_id, viewer),
        "jobs": await _load_jobs(database, session_id, viewer),
        "sign_ins": await _load_sign_ins(database, session_id, viewer),
    }
    async with aclosing(stream_runs(database, session_id)) as runs:
        async for run in runs:
            if not has_begun:
                yield writer.format_header(await _load_header(database, session_id))
            counted = _add_cost(run, prices)
            if viewer is not None:
                of_run = authors.setdefault(run.id, set())
                of_run |= {id_ for message in run.messages for id_, _, _ in message.parts if id_}
                counted = viewer.redact_run(counted, of_run)
            has_begun = True
            written = writer.format_run(counted)
            size += len(written.encode())
            if max_bytes is not None and size > max_bytes:
                yield writer.format_end(later, is_whole=False)
                return
            yield written
    if has_begun:
        yield writer.format_end(later, is_whole=True)


def _add_cost(run: TranscriptRun, prices: Prices) -> TranscriptRun:
    if run.turn is None or "cost" in run.turn or not (calls := parse_stored_calls(run.turn.get("usage"))):
        return run
    return replace(run, turn={**run.turn, "cost": prices.total_cost(calls)[0]})


async def _load_header(database: Database, session_id: str) -> dict[str, Any]:
    """Return `place`, `model`, `generation` and `agents` of a session; empty if it does not exist."""
    async with database.read() as connection:
        row = (await connection.execute(sa.select(sessions).where(sessions.c.id == session_id))).one_or_none()
        answered = sa.select(turns.c.agent).where(turns.c.session == session_id).distinct()
        agents = sorted(filter(None, (await connection.execute(answered)).scalars()))
    if row is None:
        return {}
    return {"place": row.user_id, "model": row.model, "generation": row.generation, "agents": agents or [row.app]}


async def _load_schedules(database: Database, session_id: str, viewer: ExportViewer | None) -> list[dict[str, Any]]:
    """Return the open schedules of a session; in a chat only those of the viewer."""
    query = sa.select(schedules).where(schedules.c.session == session_id).order_by(schedules.c.created_at)
    if viewer is not None:
        query = query.where(schedules.c.author == viewer.id)
    names = ("id", "author", "state", "is_plain", "is_direct", "time_zone", "rule", "next_at", "created_at")
    async with database.read() as connection:
        rows = (await connection.execute(query)).all()
    return [
        {
            **{name: row._mapping[name] for name in names},
            "starts": row.starts_at,
            "text": (row.message or {}).get("text"),
        }
        for row in rows
    ]


async def _load_jobs(database: Database, session_id: str, viewer: ExportViewer | None) -> list[dict[str, Any]]:
    """Return the running background jobs of a session; in a chat only those of the viewer."""
    query = sa.select(jobs).where(jobs.c.session == session_id, IS_RUNNING_JOB).order_by(jobs.c.created_at)
    if viewer is not None:
        query = query.where(jobs.c.author == viewer.id)
    async with database.read() as connection:
        rows = (await connection.execute(query)).all()
    names = ("id", "author", "tool", "created_at")
    return [{**{name: row._mapping[name] for name in names}, "call": (row.message or {}).get("text")} for row in rows]


async def _load_sign_ins(database: Database, session_id: str, viewer: ExportViewer | None) -> list[dict[str, Any]]:
    """Return the sign-ins of a session's authors on its platform, without secrets; in a chat only the viewer's own.

    An export that others see has none.
    """
    if viewer is not None and not viewer.is_private:
        return []
    authors = sa.select(inbox.c.author).where(inbox.c.session == session_id)
    is_shown = sign_ins.c.person.in_(authors) if viewer is None else sign_ins.c.person == viewer.id
    async with database.read() as connection:
        rows = (await connection.execute(sa.select(sign_ins).where(is_shown).order_by(sign_ins.c.created_at))).all()
    names = ("id", "person", "app", "label", "account", "scopes", "state", "created_at", "used_at")
    return [
        {name: row._mapping[name] for name in names}
        for row in rows
        if session_id.startswith(":".join(filter(None, (row.platform, row.workspace))) + ":")
    ]


class _MarkdownWriter:
    """Writer of an export as Markdown, for people."""

    def __init__(self, session_id: str) -> None:
        self._session = session_id
        self._has_several_agents = False

    def format_header(self, about: Mapping[str, Any]) -> str:
        self._has_several_agents = len(about.get("agents", ())) > 1
        return f"# Conversation `{self._session}`\n"

    def format_run(self, run: TranscriptRun) -> str:
        return "".join(f"\n{paragraph}\n" for paragraph in self._list_paragraphs(run))

    def format_end(self, later: Mapping[str, Sequence[Mapping[str, Any]]], *, is_whole: bool) -> str:
        text = "" if is_whole else "\n*The rest is left out: the export reached its size limit.*\n"
        schedule_lines = [f"- {_format_schedule(schedule)}" for schedule in later["schedules"]]
        job_lines = [f"- {_format_time(job['created_at'])}: {_format_code(job['call'] or '')}" for job in later["jobs"]]
        sign_in_lines = [f"- {_format_sign_in(sign_in)}" for sign_in in later["sign_ins"]]
        lists = (("Schedules", schedule_lines), ("Background jobs", job_lines), ("Sign-ins", sign_in_lines))
        for title, lines in lists:
            text += "\n".join([f"\n## {title}", "", *lines, ""]) if lines else ""
        return text

    def _list_paragraphs(self, run: TranscriptRun) -> Iterator[str]:
        for message in run.messages:
            if run.is_summary:
                yield f"## Summary of the earlier messages, written by a model, {_format_time(message.at)}"
                yield "\n".join(f"> {line}".rstrip() for line in message.text.splitlines())
                continue
            used = [call for call in message.calls if "output" not in call]
            if message.text or used or message.files:
                yield f"## {message.heading}{self._format_agent(run, message)}, {_format_time(message.at)}"
            if message.text:
                yield message.text
            yield from (f"*Used `{call['name']}`:* {_format_code(call.get('input') or '{}')}" for call in used)
            given = (call for call in message.calls if "output" in call)
            yield from (f"*`{call['name']}` gave:* {_format_code(call['output'] or '{}')}" for call in given)
            yield from (f"*File:* {_format_file(file)}" for file in message.files)
            yield from (f"*Source:* <{url}>" for url in message.sources)
        yield from (f"*Made the file:* {_format_file(file)}" for file in run.files)
        for request in run.decisions:
            by = request.get("decided_by_name") or request.get("decided_by")
            decided = f"{request.get('decision') or 'nobody has decided'}{f' by {by}' if by else ''}"
            yield f"*Asked for `{request['tool']}`:* {_format_code(_to_json_text(request['arguments']))} *{decided}*"
        if run.feedback:
            verdicts = [str(rating["rating"]) for rating in run.feedback]
            counted = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in sorted(set(verdicts)))
            yield f"*Feedback: {counted}*"
        if run.turn and (spent := _summarize_usage(run.turn)):
            yield f"*{spent}*"

    def _format_agent(self, run: TranscriptRun, message: TranscriptMessage) -> str:
        """Return the agent of a run's turn in brackets, if several agents answered in the session."""
        agent = (run.turn or {}).get("agent")
        is_named = self._has_several_agents and agent and message.role != "user" and agent != message.author
        return f" ({agent})" if is_named else ""


class _JsonWriter:
    """Writer of an export as one JSON object, with a line per run, for programs."""

    def __init__(self, session_id: str) -> None:
        self._session = session_id
        self._comma = ""

    def format_header(self, about: Mapping[str, Any]) -> str:
        head = {"format": "parley-conversation", "version": 1, "session": {"id": self._session, **about}}
        return f'{_to_json_text(head)[:-1]}, "runs": ['

    def format_run(self, run: TranscriptRun) -> str:
        comma = self._comma
        self._comma = ","
        if run.is_summary:
            (message,) = run.messages
            return f"{comma}\n{_to_json_text({'kind': 'summary', 'at': _format_iso(message.at), 'text': message.text})}"
        values = {
            "kind": "run",
            "id": run.id,
            "messages": [_message_to_json(message) for message in run.messages],
            "turn": run.turn and _format_cost(_format_times(run.turn)),
            "feedback": list(map(_format_times, run.feedback)),
            "decisions": list(map(_format_times, run.decisions)),
            "files": [file.to_json() for file in run.files],
        }
        return f"{comma}\n{_to_json_text({name: value for name, value in values.items() if value})}"

    def format_end(self, later: Mapping[str, Sequence[Mapping[str, Any]]], *, is_whole: bool) -> str:
        listed = {name: list(map(_format_times, items)) for name, items in later.items()}
        return f"\n], {_to_json_text({**listed, 'is_whole': is_whole})[1:-1]}}}\n"


_WRITERS: Mapping[ExportFormat, type[_MarkdownWriter | _JsonWriter]] = {"md": _MarkdownWriter, "json": _JsonWriter}


def _message_to_json(message: TranscriptMessage) -> dict[str, Any]:
    parts = [{"by": id_, "name": name, "text": words} for id_, name, words in message.parts]
    values = {
        "at": _format_iso(message.at),
        "role": message.role,
        "author": message.author,
        "text": message.text,
        "parts": [{name: value for name, value in part.items() if value} for part in parts],
        "calls": [_call_to_json(call) for call in message.calls if "output" not in call],
        "results": [_call_to_json(call) for call in message.calls if "output" in call],
        "files": [file.to_json() for file in message.files],
        "sources": list(message.sources),
    }
    return {name: value for name, value in values.items() if value}


def _call_to_json(call: Mapping[str, str]) -> dict[str, Any]:
    name, given = ("result", call["output"]) if "output" in call else ("arguments", call.get("input"))
    return {"id": call.get("id"), "tool": call.get("name"), name: _parse_json_or_text(given)}


def _parse_json_or_text(text: str | None) -> Any:
    try:
        return json.loads(text or "{}")
    except ValueError:
        return text


def _format_times(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _format_iso(value) if name.endswith("_at") and value else value for name, value in values.items()}


def _format_cost(turn: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: value for name, value in turn.items() if name != "cost"}
    return {**values, "dollars": format_exact_dollars(turn["cost"])} if "cost" in turn else values


def _summarize_usage(turn: Mapping[str, Any]) -> str:
    usage = turn.get("usage") or {}
    tokens = sum(usage.get(name) or 0 for name in ("input", "output", "thinking"))
    cost = f", {format_dollars(turn['cost'])}" if turn.get("cost") else ""
    return f"{format_count(tokens, 'token')}{cost}" if tokens or cost else ""


def _format_schedule(schedule: Mapping[str, Any]) -> str:
    due = _format_time(schedule["next_at"]) if schedule["next_at"] else schedule["state"]
    rule = f", repeated by {_format_code(schedule['rule'])}" if schedule["rule"] else ""
    return f"{due}{rule}: {_format_code(schedule['text'])}"


def _format_sign_in(sign_in: Mapping[str, Any]) -> str:
    account = f" as {_format_code(sign_in['account'])}" if sign_in["account"] else ""
    scopes = f" ({_format_code(' '.join(sign_in['scopes']))})" if sign_in["scopes"] else ""
    return f"{_format_time(sign_in['created_at'])}: {_format_code(sign_in['label'])}{account}{scopes}"


def _format_code(text: str) -> str:
    """Return a text as a Markdown code span on one line, with more backticks than it has in a row."""
    ticks = "`"
    while ticks in text:
        ticks += "`"
    room = " " if len(ticks) > 1 else ""
    return f"{ticks}{room}{' '.join(text.splitlines())}{room}{ticks}"


def _format_file(file: ExportedFile) -> str:
    size = f", {format_count(file.size, 'byte')}" if file.size else ""
    return f"{_format_code(file.name)} ({file.kind}{size})"


def _to_json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _format_iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def _format_time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"
