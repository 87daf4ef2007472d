"""Diagnostics of a running bot: problems of workers, turns and platforms, with remedies."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from core.conversations.overview import Overview, WorkerOverview
from core.conversations.turn_report import TurnReport
from core.observability.messages import format_count
from core.usage.prices import format_dollars
from core.usage.spending_limits import SpendingUsage

#: Seconds after which a turn is slow, and after which a message in an idle session should have been claimed.
SLOW_TURN_SECONDS, UNCLAIMED_SECONDS = 60.0, 15.0

#: Age in seconds from which a turn without a live worker is stuck; seconds beyond its time limit for any other turn.
STUCK_GRACE_SECONDS = 30.0

#: Seconds without an event after which a platform counts as disconnected.
SILENT_PLATFORM_SECONDS = 180.0

#: Fraction of a spending limit from which it is reported; settings and values of `usage --by`, by kind of limit.
NEAR_LIMIT_FRACTION = 0.8
_SPENDING_SETTINGS: Mapping[str, tuple[str, str]] = {
    "user": ("DAILY_SPENDING_LIMIT_PER_USER_USD", "user"),
    "channel": ("DAILY_SPENDING_LIMIT_PER_CHANNEL_USD", "channel"),
    "model": ("DAILY_SPENDING_LIMIT_PER_MODEL_USD", "model"),
    "all": ("DAILY_SPENDING_LIMIT_USD", "user"),
}

#: Remedies by the error that turns failed with.
ADVICE: Mapping[str, str] = {
    "ProviderAuthError": "the provider refuses the API key: run `parley check`",
    "ModelNotFoundError": "MODEL or MODELS names an unknown model: run `parley check`",
    "ProviderRateLimitError": "the provider's quota is used up: raise it there, or choose another MODEL",
    "ProviderUnavailableError": "the provider is down or unreachable: see its status page, then run `parley retry ID`",
    "ProviderStreamError": "the provider breaks off its answers: see its status page, then run `parley retry ID`",
    "ProviderTimeoutError": "the model sends nothing for too long: raise MODEL_IDLE_TIMEOUT_SECONDS for a slow model",
    "ProviderRequestError": "the provider refuses the request: see the log lines of the turn",
    "ProviderError": "the model could not answer: see the log lines of the turn",
    "LengthLimitError": "the model thinks up to its length limit: raise max_output_tokens of the agent, or think less",
    "ContentBlockedError": "the provider's safety filter blocked the answer: nothing to fix here",
    "QuestionSchemaError": "ADK refuses the schema of an agent's question: the log lines of the turn name the place",
    "InstructionError": "an agent's instruction has an unknown variable: the error in `parley why ID` names both",
    "OutputSchemaError": "an answer does not fit its agent's output_schema: the error in `parley why ID` names both",
    "StepLimitError": "the agent reached its step limit: `parley why ID` shows its tool calls",
    "SurfaceError": "the platform refuses the reply: check that the bot is a member there and may write",
    "RefusedError": "the platform refuses the reply: check that the bot is a member there and may write",
    "StoreError": "the database was unreachable: check DATABASE_URL and its server",
    "UnreadableRowError": "a stored row cannot be read: use `reset` in the conversation, or `parley forget`",
    "time limit": "the turn took longer than TURN_TIMEOUT_SECONDS: `parley why ID` shows where the time went",
}
_DEFAULT_ADVICE = "see the log lines of the turn"


def get_advice(error: str) -> str:
    """Return the remedy for the error of a failed turn, as it is stored with the turn."""
    return ADVICE.get(error.partition(":")[0], _DEFAULT_ADVICE)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Problem of the running bot, with its remedy.

    Attributes:
        kind: the problem. Of workers: `dead` (none is alive, or a dead one still owns turns). Of turns: `stuck` (no
            live worker has it, or it does not end), `slow` (longer than `SLOW_TURN_SECONDS`), `failing` (failures of
            the last hour, by cause). Others: `waiting` (a message is claimable for `UNCLAIMED_SECONDS`), `disconnected`
            (a platform without events for `SILENT_PLATFORM_SECONDS`), `spending` (a limit that is nearly or fully
            used).
        subject: id of the worker or turn, or name of the platform; `workers` if none is alive, `inbox` for `waiting`.
            For `failing`, the id of the newest failed turn. For `spending`, the `SpendingUsage.key`, or the name of the
            setting if the key is empty.
    """

    kind: str
    subject: str
    line: str
    remedy: str


def is_alive(worker: WorkerOverview, holder: str | None) -> bool:
    """Return whether a worker's lease has not ended; with SQLite, whether any process locks the file.

    Args:
        holder: id of the process that locks the SQLite file; None if no process does, or with PostgreSQL.
    """
    return holder is not None if worker.lease_seconds is None else worker.lease_seconds > 0


def find_problems(
    overview: Overview,
    *,
    holder: str | None,
    time_limit: float,
    platforms: Collection[str],
    limits: Iterable[SpendingUsage] = (),
) -> Iterator[Diagnosis]:
    """Yield the problems of a running bot: see `Diagnosis.kind`.

    Args:
        holder: see `is_alive`.
        time_limit: seconds that a turn may take.
        platforms: names of the configured platforms; others are not checked.
        limits: spending limits that are nearly or fully used.
    """
    alive = {worker.id for worker in overview.workers if is_alive(worker, holder)}
    if not alive:
        start = "start one with `parley run`; if it ends at once, see its log"
        yield Diagnosis("dead", "workers", "no worker is alive", start)
    for worker in overview.workers:
        if worker.id not in alive and worker.turns:
            line = f"worker {worker.id} is gone and still owns {format_count(worker.turns, 'turn')}"
            yield Diagnosis("dead", worker.id, line, "another worker takes them over within seconds; if not, start one")
    for turn in overview.running:
        yield from _check_turn(turn, overview.at - turn.created_at, alive, time_limit)
    if overview.queue.claimable_seconds > UNCLAIMED_SECONDS:
        age = f"{overview.queue.claimable_seconds:.0f} s"
        queued = format_count(overview.queue.messages, "queued message")
        line = f"{queued}; the oldest that a worker could claim waits for {age}"
        yield Diagnosis(
            "waiting", "inbox", line, "all workers are busy or hang: raise MAX_CONCURRENT_TURNS, or add a worker"
        )
    for platform in overview.platforms:
        if (
            alive
            and platform.name in platforms
            and platform.watermark_age_seconds is not None
            and platform.watermark_age_seconds > SILENT_PLATFORM_SECONDS
        ):
            line = f"{platform.name} has received nothing for {platform.watermark_age_seconds:.0f} s"
            yield Diagnosis("disconnected", platform.name, line, "see the platform's status page and the log")
    for failure in overview.failures:
        failed = format_count(failure.count, "turn")
        line = f"{failed} failed in the last hour with {failure.cause}; the newest is {failure.newest}"
        yield Diagnosis("failing", failure.newest, line, get_advice(failure.cause))
    for limit in limits:
        setting, by = _SPENDING_SETTINGS[limit.kind]
        reached = "is reached" if limit.spent >= limit.limit else "is nearly reached"
        subject = f", {limit.key}" if limit.key else ""
        line = f"{setting} {reached}: {format_dollars(limit.spent)} of {format_dollars(limit.limit)} today{subject}"
        remedy = f"raise {setting}, or wait for the next day (UTC); `parley usage --by {by}` shows the spending"
        yield Diagnosis("spending", limit.key or setting, line, remedy)


def _check_turn(turn: TurnReport, age: float, alive: Collection[str], time_limit: float) -> Iterator[Diagnosis]:
    stop = f"`parley cancel {turn.id}` cancels it"
    if turn.cancel is not None and age > SLOW_TURN_SECONDS:
        line = f"turn {turn.id} was cancelled ({turn.cancel}) but has not ended"
        yield Diagnosis("stuck", turn.id, line, "its worker hangs, or the platform is unreachable: see the log")
    elif turn.owner not in alive and age > STUCK_GRACE_SECONDS:
        line = f"turn {turn.id} has been {turn.state} for {age:.0f} s, and no worker owns it"
        yield Diagnosis("stuck", turn.id, line, "the next worker that starts takes it over")
    elif age > time_limit + STUCK_GRACE_SECONDS:
        line = f"turn {turn.id} has been {turn.state} for {age:.0f} s, longer than TURN_TIMEOUT_SECONDS"
        yield Diagnosis("stuck", turn.id, line, f"the platform may be unreachable: see the log; {stop}")
    elif age > SLOW_TURN_SECONDS:
        yield Diagnosis("slow", turn.id, f"turn {turn.id} has been {turn.state} for {age:.0f} s", stop)
