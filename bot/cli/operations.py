"""What operators do about a bot, whether it runs or not: on the database that the settings name.

On SQLite, the process that runs holds the file, but keeps nobody from reading, or from asking for something in a short
transaction: it looks for what was asked every few seconds.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import typer

from bot import output as tables
from bot import settings as configuration
from bot.cli import database as stored
from bot.cli import turn_view
from bot.monitoring.diagnostics import NEAR, findings, is_alive
from core.conversations.overview import get_overview
from core.conversations.overview import list_sessions as load_sessions
from core.conversations.service import ConversationService
from core.conversations.turn_report import TurnReport, TurnReports
from core.errors import ParleyError
from core.inbox.store import InboxStore
from core.sessions.routing import AgentRouter
from core.store.database import Database
from core.store.lock import get_lock_holder
from core.store.turn_states import ENDED_STATES, State
from core.turns.cancel import StopTurnResult
from core.turns.rerun import RerunDenied
from core.turns.store import TurnStore
from core.turns.turn import Turn
from core.turns.worker import Worker
from core.usage.prices import Prices
from core.usage.spending import SpendingStore
from core.usage.spending_limits import SpendingLimiter
from core.workers.lease import Lease

#: What an id of a turn consists of.
_ID = re.compile(r"[0-9a-f]{1,10}")

#: How a span of time is written, and its seconds.
_SPAN = re.compile(r"(?P<count>\d+(?:\.\d+)?)(?P<unit>[smhd])")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}

#: How many turns are named where an id may mean several, and seconds between two looks at what becomes of one.
_NAMED, _LOOK = 5, 0.3


class UnknownIdError(ParleyError):
    """There is no such turn, or there are several."""


@dataclass(frozen=True, slots=True)
class AskedFor:
    """What became of what a worker was asked for.

    Attributes:
        newest: the turn that stands for it now.
        is_done: whether the worker has done it.
        has_worker: whether there is one that does it as soon as it can.
    """

    turn: str
    newest: str
    is_done: bool
    has_worker: bool


def status(*, as_json: bool) -> None:
    """Show the workers, what runs and waits, and what is slow, stuck, deaf, failing or near a cap: exit code 1."""

    async def work(database: Database, settings: configuration.Settings) -> int:
        prices = Prices(settings.prices_file)
        seen, by = await get_overview(database, prices), get_lock_holder(database)
        names = [name for name in ("slack", "discord") if getattr(settings, name) is not None]
        caps = await SpendingLimiter(
            database, prices, SpendingStore(database, prices), settings.spending_limits
        ).list_nearly_spent(NEAR)
        told = findings(seen, holder=by, time_limit=settings.turn_timeout_seconds, platforms=names, caps=caps)
        wrong = list(told)
        if as_json:
            workers = [{**asdict(worker), "is_alive": is_alive(worker, by)} for worker in seen.workers]
            running = [turn_view.as_json(turn) for turn in seen.running]
            told_of = {"running": running, "workers": workers, "findings": wrong, "is_well": not wrong}
            tables.dump({**asdict(seen), **told_of})
            return bool(wrong)
        tables.show(
            "Workers",
            ["id", "state", "lease", "turns"],
            [
                [
                    worker.id,
                    "at work" if is_alive(worker, by) else "gone",
                    f"process {by}" if worker.lease_seconds is None and by else tables.span(worker.lease_seconds),
                    worker.turns,
                ]
                for worker in seen.workers
            ],
        )
        tables.show(
            "Running",
            ["turn", "state", "since", "attempt", "worker", "session"],
            [
                [t.id, t.state, tables.span(seen.at - t.created_at), t.attempt, t.owner or "", t.session]
                for t in seen.running
            ],
        )
        tables.show("Channels", ["name", "all heard until"], [[c.name, _ago(c.heard)] for c in seen.channels])
        waiting = f"for up to {tables.span(seen.waiting.oldest)}" if seen.waiting.messages else ""
        tables.say(
            f"Waiting: {seen.waiting.messages} messages {waiting}".rstrip(),
            f"To be decided: {seen.undecided}",
        )
        for finding in wrong:
            tables.say(f"{finding.kind.upper():8} {finding.line}", f"         {finding.todo}")
        if not wrong:
            tables.say("All is well.")
        return bool(wrong)

    _run(work, "reading")


def list_turns(
    *,
    state: State | None,
    session: str | None,
    person: str | None,
    since: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """List the newest turns."""
    from_ = _moment(since) if since is not None else None

    async def work(database: Database, settings: configuration.Settings) -> int:
        reports = _reports(database, settings)
        found = await reports.list(limit=limit, state=state, session=session, person=person, since=from_)
        if as_json:
            tables.dump([turn_view.as_json(report) for report in found])
        else:
            turn_view.show_list(found)
        return 0

    _run(work, "reading turns")


def list_sessions(
    *,
    beginning: str,
    person: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """List the sessions that were spoken in last."""

    async def work(database: Database, _settings: configuration.Settings) -> int:
        found = await load_sessions(database, limit=limit, beginning=beginning, person=person)
        if as_json:
            tables.dump(found)
            return 0
        columns = ["session", "spoken in (UTC)", "people", "messages", "model", "turn", "waiting"]
        tables.show(
            "Sessions",
            columns,
            [
                [
                    s.id,
                    tables.short(s.spoken_at),
                    s.people,
                    s.messages,
                    s.model or "",
                    s.running or "",
                    s.waiting,
                ]
                for s in found
            ],
        )
        return 0

    _run(work, "reading sessions")


def why(turn: str, *, as_json: bool) -> None:
    """Show what a turn was made of, by its id, as an apology shows it, or by how that begins."""

    async def work(database: Database, settings: configuration.Settings) -> int:
        report = await _find(_reports(database, settings), turn)
        if as_json:
            tables.dump(turn_view.as_json(report))
        else:
            turn_view.show(report)
        return 0

    _run(work, "reading")


def retry(turn: str, wait: float, *, as_json: bool) -> None:
    """Have a turn that failed tried again, as the button does: it goes on with what is stored."""

    async def work(database: Database, settings: configuration.Settings) -> int:
        reports = _reports(database, settings)
        report = await _find(reports, turn)
        inbox, _ = _hands(database, report)
        asked = await inbox.request_rerun(report.id, author=None, kind="retry")
        if isinstance(asked, RerunDenied):
            if report.state != "failed":
                raise ParleyError(f"turn {report.id} is {report.state}: only what failed is tried again")
            newer = f": `parley why {report.reruns[-1]}`" if report.reruns else ""
            raise ParleyError(f"turn {report.id} was tried again before, or its conversation was started over{newer}")
        done = await _waited(database, reports, report, wait, is_done=lambda now: bool(now.reruns))
        return _tell(done, "is being tried again", as_json=as_json)

    _run(work, "trying again")


def cancel(turn: str, wait: float, *, as_json: bool) -> None:
    """Have a turn ended that has not ended, as the button does: what was said so far stays."""

    async def work(database: Database, settings: configuration.Settings) -> int:
        reports = _reports(database, settings)
        report = await _find(reports, turn)
        _, conversations = _hands(database, report)
        if await conversations.stop_turn(report.id, None) is not StopTurnResult.STOPPED:
            raise ParleyError(f"turn {report.id} is {report.state}: there is nothing to end")
        done = await _waited(database, reports, report, wait, is_done=lambda now: now.state in ENDED_STATES)
        return _tell(done, "is ended", as_json=as_json)

    _run(work, "ending")


def _run(work: Callable[[Database, configuration.Settings], Awaitable[int]], what: str) -> None:
    """Do `work` on the database; its result is the exit code."""
    with tables.progress(what):
        code = stored.done(work)
    raise typer.Exit(code=code)


def _reports(database: Database, settings: configuration.Settings) -> TurnReports:
    return TurnReports(database, Prices(settings.prices_file))


async def _find(reports: TurnReports, given: str) -> TurnReport:
    """Return the turn of an id, or of the beginning of one.

    Raises:
        UnknownIdError: there is none, or there are several.
    """
    id_ = given.strip().strip("()`").removeprefix("turn").strip(" `").lower()
    if not _ID.fullmatch(id_):
        raise UnknownIdError(
            f"{tables.plain(given)[:40]!r} is no id of a turn: it has up to 10 of 0-9 and a-f, as an apology shows it; "
            "`parley turns` lists them"
        )
    found = await reports.find_turn_ids(id_, _NAMED)
    if len(found) > 1 and id_ not in found:
        raise UnknownIdError(f"several turns begin with {id_}: {', '.join(found)}; write more of it")
    report = await reports.get(id_ if id_ in found else found[0]) if found else None
    if report is None:
        raise UnknownIdError(f"there is no turn {id_}: `parley turns` lists the stored ones (see TURN_RETENTION_DAYS)")
    return report


def _hands(database: Database, report: TurnReport) -> tuple[InboxStore, ConversationService]:
    """What buttons go through, for one who runs no turns himself."""
    turns = TurnStore(database, Lease(database), AgentRouter(report.app))
    worker = Worker(turns, _never)
    return InboxStore(database, turns, worker), ConversationService(database, turns, worker, budget=0)


async def _never(turn: Turn) -> None:
    raise AssertionError(f"turn {turn.id} is not for an operator to run")


async def _waited(
    database: Database,
    reports: TurnReports,
    report: TurnReport,
    seconds: float,
    *,
    is_done: Callable[[TurnReport], bool],
) -> AskedFor:
    """Wait until a worker has done what was asked for."""
    until = time.monotonic() + seconds
    seen = await get_overview(database, reports.prices)
    works = any(is_alive(worker, get_lock_holder(database)) for worker in seen.workers)
    while works:
        now = await reports.get(report.id)
        if now is not None and is_done(now):
            return AskedFor(now.id, now.reruns[-1] if now.reruns else now.id, is_done=True, has_worker=True)
        if time.monotonic() >= until:
            break
        await asyncio.sleep(_LOOK)
    return AskedFor(report.id, report.id, is_done=False, has_worker=works)


def _tell(asked: AskedFor, what: str, *, as_json: bool) -> int:
    """Say what became of it; the exit code."""
    if as_json:
        tables.dump(asked)
    elif asked.is_done:
        tables.say(f"turn {asked.turn} {what}: `parley why {asked.newest}`")
    else:
        who = (
            "a worker does it as soon as it can" if asked.has_worker else "no worker is at work: it is done when one is"
        )
        tables.say(f"turn {asked.turn}: it is asked for; {who}")
    return 0


def _ago(seconds: float | None) -> str:
    return "not known" if seconds is None else f"{tables.span(max(0.0, seconds))} ago"


def _moment(written: str) -> float:
    """Seconds since the epoch."""
    if (found := _SPAN.fullmatch(written.strip())) is not None:
        return time.time() - float(found["count"]) * _UNITS[found["unit"]]
    try:
        at = datetime.fromisoformat(written.strip())
    except ValueError:
        raise typer.BadParameter("it is a span (30m, 2h, 7d) or a date (2026-11-22)", param_hint="--since") from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
