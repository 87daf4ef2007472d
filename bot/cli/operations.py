"""Commands of operators: status, turns, sessions, schedules, connections, why, retry, cancel, usage.

They work while the bot runs, on SQLite too: each reads the database, or stores a request for a turn in it. Workers look
for such requests every few seconds.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime

import typer

from bot import output as tables
from bot import settings as configuration
from bot.cli import database as stored
from bot.cli import turn_view
from bot.monitoring.diagnostics import NEAR_LIMIT_FRACTION, find_problems, is_alive
from core.conversations.overview import get_overview
from core.conversations.overview import list_sessions as load_sessions
from core.conversations.service import ConversationService
from core.conversations.turn_report import TurnReport, TurnReports
from core.errors import ParleyError
from core.inbox.store import InboxStore
from core.observability.messages import format_count
from core.privacy.prompts import PromptStore
from core.privacy.vault import Vault
from core.sessions.agent_routing import AgentRouter
from core.signin.credentials import CredentialStore, SignIn
from core.signin.oauth import OAuthClient
from core.store.database import Database
from core.store.lock import get_lock_holder
from core.store.turn_states import ENDED_STATES, State
from core.store.workers.lease import Lease
from core.turns.automation.schedules import Schedule, ScheduleStore
from core.turns.cancel import StopTurnResult
from core.turns.rerun import RerunDenial
from core.turns.store import TurnStore
from core.turns.worker import Worker
from core.usage import SpendingDimension
from core.usage.prices import Prices, format_dollars, format_exact_dollars
from core.usage.spending_ledger import LAST_DAY, SpendingStore, SpendingSum
from core.usage.spending_limits import SpendingLimiter

#: Id of a turn, or its beginning.
_TURN_ID = re.compile(r"[0-9a-f]{1,10}")

#: Most turns that an ambiguous id lists, and seconds between two polls of a request's result.
_MAX_CANDIDATES, _POLL_SECONDS = 5, 0.3


_USAGE_COLUMNS = ("calls", "input", "cached", "cache write", "output", "cost")


class UnknownIdError(ParleyError):
    """No turn, or more than one turn, has the id or id prefix that the user typed."""


@dataclass(frozen=True, slots=True)
class RequestResult:
    """Result of a request to the workers to retry or cancel a turn.

    Attributes:
        newest: id of the newest rerun of the turn, or of the turn itself.
        has_worker: whether a worker is alive that will carry out the request.
    """

    turn: str
    newest: str
    is_done: bool
    has_worker: bool


def status(*, as_json: bool) -> None:
    """Print workers, running turns, platforms, queue, open approvals and problems.

    The exit code is 1 if there are problems. JSON has the fields of `Overview`, the problems in `findings`, and whether
    there are none in `is_well`.
    """

    async def work(database: Database, settings: configuration.Settings) -> int:
        prices = Prices(settings.prices_file)
        overview = await get_overview(database, prices)
        holder = get_lock_holder(database)
        names = [name for name in ("slack", "discord") if getattr(settings, name) is not None]
        limits = await SpendingLimiter(
            database, prices, SpendingStore(database, prices), settings.spending_limits
        ).list_nearly_spent(NEAR_LIMIT_FRACTION)
        problems = find_problems(
            overview, holder=holder, time_limit=settings.turn_timeout_seconds, platforms=names, limits=limits
        )
        findings = list(problems)
        if as_json:
            workers = [{**asdict(worker), "is_alive": is_alive(worker, holder)} for worker in overview.workers]
            running = [turn_view.to_json(turn) for turn in overview.running]
            extra = {"running": running, "workers": workers, "findings": findings, "is_well": not findings}
            tables.print_json({**asdict(overview), **extra})
            return bool(findings)
        tables.print_table(
            "Workers",
            ["id", "state", "lease", "turns"],
            [
                [
                    worker.id,
                    "alive" if is_alive(worker, holder) else "gone",
                    f"process {holder}"
                    if worker.lease_seconds is None and holder
                    else tables.format_duration(worker.lease_seconds),
                    worker.turns,
                ]
                for worker in overview.workers
            ],
        )
        tables.print_table(
            "Running",
            ["turn", "state", "since", "attempt", "worker", "session"],
            [
                [t.id, t.state, tables.format_duration(overview.at - t.created_at), t.attempt, t.owner or "", t.session]
                for t in overview.running
            ],
        )
        tables.print_table(
            "Platforms",
            ["name", "received until"],
            [[platform.name, _format_age(platform.watermark_age_seconds)] for platform in overview.platforms],
        )
        waiting = (
            f"for up to {tables.format_duration(overview.queue.oldest_seconds)}" if overview.queue.messages else ""
        )
        tables.print_lines(
            f"Queued: {format_count(overview.queue.messages, 'message')} {waiting}".rstrip(),
            f"Open approvals: {overview.undecided}",
        )
        for finding in findings:
            tables.print_lines(f"{finding.kind.upper():8} {finding.line}", f"         {finding.remedy}")
        if not findings:
            tables.print_lines("No problems.")
        return bool(findings)

    _run_command(work, "reading")


def print_turns(
    *,
    state: State | None,
    session: str | None,
    user: str | None,
    since: float | None,
    limit: int,
    as_json: bool,
) -> None:
    """Print the newest turns as a table, or as JSON.

    `session` is the beginning of an id, and `user` the platform's id of an author.
    """

    async def work(database: Database, settings: configuration.Settings) -> int:
        reports = _make_reports(database, settings)
        found = await reports.list(limit=limit, state=state, session=session, author=user, since=since)
        if user is not None and not found:
            await stored.verify_user(database, user)
        if as_json:
            tables.print_json([turn_view.to_json(report) for report in found])
        else:
            turn_view.print_reports(found)
        return 0

    _run_command(work, "reading turns")


def print_sessions(
    *,
    beginning: str,
    user: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Print sessions as a table or as JSON, those with the newest messages first.

    `beginning` is that of an id, and `user` the platform's id of an author.
    """

    async def work(database: Database, _settings: configuration.Settings) -> int:
        found = await load_sessions(database, limit=limit, beginning=beginning, author=user)
        if user is not None and not found:
            await stored.verify_user(database, user)
        if as_json:
            tables.print_json(found)
            return 0
        columns = ["session", "last message (UTC)", "users", "messages", "model", "turn", "queued"]
        tables.print_table(
            "Sessions",
            columns,
            [
                [
                    s.id,
                    tables.format_time(s.last_message_at),
                    s.people,
                    s.messages,
                    s.model or "",
                    s.running or "",
                    s.queued,
                ]
                for s in found
            ],
        )
        return 0

    _run_command(work, "reading sessions")


def print_schedules(*, deleted: str, as_json: bool) -> None:
    """Print the open schedules as a table or as JSON, the next one first; or delete one by its id."""

    async def work(database: Database, _settings: configuration.Settings) -> int:
        store = ScheduleStore(database, wake=lambda: None)  # this process fires nothing
        if deleted:
            if not isinstance(await store.delete(deleted), Schedule):
                raise UnknownIdError(f"there is no schedule {deleted[:40]}: `parley schedules` lists them")
            tables.print_lines(f"deleted the schedule {deleted}")
            return 0
        found = await store.list_all()
        if as_json:
            tables.print_json([_schedule_to_json(schedule) for schedule in found])
            return 0
        columns = ["id", "state", "next (UTC)", "repeats", "user", "place", "title"]
        rows = [
            [
                schedule.id,
                schedule.state,
                tables.format_time(schedule.next_at) if schedule.next_at else "",
                schedule.rule or "once",
                schedule.message.author,
                "direct message" if schedule.is_direct else schedule.message.place,
                schedule.title,
            ]
            for schedule in found
        ]
        tables.print_table("Schedules", columns, rows)
        return 0

    _run_command(work, "reading schedules")


def print_connections(*, disconnected: str, as_json: bool) -> None:
    """Print the connected accounts as a table or as JSON, the oldest first; or delete one by its id."""

    async def work(database: Database, settings: configuration.Settings) -> int:
        store = CredentialStore(database, Vault(database, settings.encryption_key), OAuthClient())
        found = await store.list_all()
        if disconnected:
            person = next((sign_in.person for sign_in in found if sign_in.id == disconnected), None)
            if person is None or await store.delete(person, disconnected) is None:
                raise UnknownIdError(f"there is no connection {disconnected[:40]}: `parley connections` lists them")
            tables.print_lines(f"disconnected {disconnected}")
            return 0
        if as_json:
            tables.print_json([_sign_in_to_json(sign_in) for sign_in in found])
            return 0
        columns = ["id", "state", "service", "account", "user", "platform", "agent", "since (UTC)", "used (UTC)"]
        rows = [
            [
                sign_in.id,
                sign_in.state,
                sign_in.label,
                sign_in.account,
                sign_in.person.id,
                sign_in.person.platform,
                sign_in.app,
                tables.format_time(sign_in.created_at),
                tables.format_time(sign_in.used_at) if sign_in.used_at else "",
            ]
            for sign_in in found
        ]
        tables.print_table("Connections", columns, rows)
        return 0

    _run_command(work, "reading connections")


def why(turn: str, *, as_json: bool) -> None:
    """Print the report of a turn (see `TurnReport`), given by its id or id prefix."""

    async def work(database: Database, settings: configuration.Settings) -> int:
        report = await _find_report(_make_reports(database, settings), turn)
        if as_json:
            tables.print_json(turn_view.to_json(report))
        else:
            turn_view.print_report(report)
        return 0

    _run_command(work, "reading")


def print_prompts(turn: str, *, as_json: bool) -> None:
    """Print the prompts of a turn's model calls; a `ParleyError` says why there are none."""

    async def work(database: Database, settings: configuration.Settings) -> int:
        report = await _find_report(_make_reports(database, settings), turn)
        stored_prompts = await PromptStore(database, settings.encryption_key).list(report.id)
        prompts = [prompt for prompt in stored_prompts if prompt is not None]
        if stored_prompts and not prompts:
            reason = "they were older than KEEP_PROMPTS_DAYS, or data of their conversation was deleted or reset"
            raise ParleyError(f"the prompts of turn {report.id} are deleted: {reason}")
        if not prompts and report.finished_at is not None and not report.calls:
            raise ParleyError(f"turn {report.id} has no prompts: it called no model")
        if not prompts:
            reason = "KEEP_PROMPTS_DAYS was off when it ran, or its log says why they could not be stored"
            raise ParleyError(f"no prompts of turn {report.id} are stored: {reason}")
        if as_json:
            tables.print_json(prompts)
        else:
            turn_view.print_prompts(report.id, prompts)
        return 0

    _run_command(work, "reading")


def retry(turn: str, wait: float, *, as_json: bool) -> None:
    """Request a retry of a failed turn, like the Retry button, and print the result.

    The request is stored in the database, and a worker carries it out. If none does so within `wait` seconds, the
    output says that the retry is requested. The same holds, without a wait, if no worker is alive.
    """

    async def work(database: Database, settings: configuration.Settings) -> int:
        reports = _make_reports(database, settings)
        report = await _find_report(reports, turn)
        inbox, _ = _make_services(database, report)
        result = await inbox.request_rerun(report.id, author=None, kind="retry")
        if isinstance(result, RerunDenial):
            if report.state != "failed":
                raise ParleyError(f"turn {report.id} is {report.state}: only failed turns can be retried")
            newer = f": `parley why {report.reruns[-1]}`" if report.reruns else ""
            raise ParleyError(f"turn {report.id} was already retried, or its session was reset{newer}")
        done = await _wait_for_result(database, reports, report, wait, is_done=lambda now: bool(now.reruns))
        return _print_result(done, "is being retried", as_json=as_json)

    _run_command(work, "retrying")


def cancel(turn: str, wait: float, *, as_json: bool) -> None:
    """Request a turn's cancellation, like the Stop button, and print the result.

    The text that the reply shows so far stays. The request is stored, and waited for, like that of `retry`.
    """

    async def work(database: Database, settings: configuration.Settings) -> int:
        reports = _make_reports(database, settings)
        report = await _find_report(reports, turn)
        _, conversations = _make_services(database, report)
        if await conversations.stop_turn(report.id, None) is not StopTurnResult.STOPPED:
            raise ParleyError(f"turn {report.id} is {report.state}: only active turns can be cancelled")
        done = await _wait_for_result(database, reports, report, wait, is_done=lambda now: now.state in ENDED_STATES)
        return _print_result(done, "is cancelled", as_json=as_json)

    _run_command(work, "cancelling")


def usage(by: SpendingDimension, *, since: date | None, until: date | None, as_json: bool) -> None:
    """Print model calls, tokens and cost between two days (UTC), both included.

    `since` is the first of this month by default. Only the table has a total.
    """
    begin = (since or datetime.now(UTC).date().replace(day=1)).isoformat()
    end = until.isoformat() if until else LAST_DAY

    async def work(database: Database, settings: configuration.Settings) -> int:
        spending = SpendingStore(database, Prices(settings.prices_file))
        rows = await spending.sum_spending(by, since=begin, until=end)
        (total,) = await spending.sum_spending(since=begin, until=end)
        if as_json:
            tables.print_json([_sum_to_json(row, by) for row in rows])
            return 0
        lines = [_sum_row(tables.format_user(row.name, row.key) or "nobody", row) for row in rows]
        title = f"Usage since {begin} (UTC)"
        summed = _sum_row("total", total)
        tables.print_table(title, [by, *_USAGE_COLUMNS], lines, right_aligned=_USAGE_COLUMNS, total=summed)
        if total.unpriced:
            tables.print_lines(f"Tokens without a price, which are not in the cost: {total.unpriced:,}")
        return 0

    _run_command(work, "counting")


def _run_command(work: Callable[[Database, configuration.Settings], Awaitable[int]], progress: str) -> None:
    """Run `work` with the database and the settings; exit with the code it returns."""
    with tables.show_progress(progress):
        code = stored.run_with_database(work)
    raise typer.Exit(code=code)


def _make_reports(database: Database, settings: configuration.Settings) -> TurnReports:
    return TurnReports(database, Prices(settings.prices_file))


async def _find_report(reports: TurnReports, given: str) -> TurnReport:
    """Return the report of a turn by its id or id prefix, perhaps copied with `turn`, backticks or brackets."""
    id_ = given.strip().strip("()`").removeprefix("turn").strip(" `").lower()
    if not _TURN_ID.fullmatch(id_):
        raise UnknownIdError(
            f"{given[:40]!r} is not the id of a turn: ids have up to 10 of 0-9 and a-f; `parley turns` lists them"
        )
    found = await reports.find_turn_ids(id_, _MAX_CANDIDATES)
    if len(found) > 1 and id_ not in found:
        raise UnknownIdError(f"several turns begin with {id_}: {', '.join(found)}; write more characters")
    report = await reports.get(id_ if id_ in found else found[0]) if found else None
    if report is None:
        raise UnknownIdError(f"there is no turn {id_}: `parley turns` lists the stored ones (see TURN_RETENTION_DAYS)")
    return report


def _schedule_to_json(schedule: Schedule) -> dict[str, object]:
    message = schedule.message
    values = {name: value for name, value in asdict(schedule).items() if name not in ("message", "speakers")}
    return {
        **values,
        "user": message.author,
        "session": message.session_id,
        "place": message.place,
        "text": message.text,
    }


def _sign_in_to_json(sign_in: SignIn) -> dict[str, object]:
    person = sign_in.person
    values = {name: value for name, value in asdict(sign_in).items() if name != "person"}
    return {**values, "user": person.id, "platform": person.platform, "workspace": person.workspace}


def _make_services(database: Database, report: TurnReport) -> tuple[InboxStore, ConversationService]:
    """Return the services that request a retry or cancellation; the process of a command runs no turns."""
    turns = TurnStore(database, Lease(database), AgentRouter(report.app))
    worker = Worker(turns)
    return InboxStore(database, turns, worker), ConversationService(database, turns, worker, budget=0)


async def _wait_for_result(
    database: Database,
    reports: TurnReports,
    report: TurnReport,
    seconds: float,
    *,
    is_done: Callable[[TurnReport], bool],
) -> RequestResult:
    """Wait until a worker has carried out a request; without a live worker, return at once."""
    until = time.monotonic() + seconds
    overview = await get_overview(database, reports.prices)
    has_worker = any(is_alive(worker, get_lock_holder(database)) for worker in overview.workers)
    while has_worker:
        now = await reports.get(report.id)
        if now is not None and is_done(now):
            return RequestResult(now.id, now.reruns[-1] if now.reruns else now.id, is_done=True, has_worker=True)
        if time.monotonic() >= until:
            break
        await asyncio.sleep(_POLL_SECONDS)
    return RequestResult(report.id, report.id, is_done=False, has_worker=has_worker)


def _print_result(result: RequestResult, outcome: str, *, as_json: bool) -> int:
    if as_json:
        tables.print_json(result)
    elif result.is_done:
        tables.print_lines(f"turn {result.turn} {outcome}: `parley why {result.newest}`")
    else:
        outlook = (
            "a worker will carry it out soon"
            if result.has_worker
            else "no worker is alive: the next one will carry it out"
        )
        tables.print_lines(f"turn {result.turn}: requested; {outlook}")
    return 0


def _format_age(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{tables.format_duration(max(0.0, seconds))} ago"


def _sum_to_json(spent: SpendingSum, by: SpendingDimension) -> dict[str, str | int]:
    name = {"name": spent.name} if by == "user" else {}
    tokens = {name: getattr(spent, name) for name in ("input", "cached", "cache_write", "output", "unpriced")}
    return {by: spent.key, **name, "calls": spent.calls, **tokens, "dollars": format_exact_dollars(spent.cost)}


def _sum_row(label: str, spent: SpendingSum) -> list[object]:
    return [label, spent.calls, spent.input, spent.cached, spent.cache_write, spent.output, format_dollars(spent.cost)]
