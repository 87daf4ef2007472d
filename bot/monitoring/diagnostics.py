"""How a running bot stands: what is slow, stuck, deaf or failing, and what to do about it."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from core.conversations.overview import Overview, WorkerOverview
from core.conversations.turn_report import TurnReport
from core.usage.prices import format_dollars
from core.usage.spending_limits import SpendingUsage

#: Seconds after which a turn is slow, and after which what waits in a free session is.
SLOW, UNTAKEN = 60.0, 15.0

#: Seconds after the limit of a turn, or the end of its worker's lease, after which it is stuck.
GRACE = 30.0

#: Seconds since all was heard after which a platform counts as deaf.
DEAF = 180.0

#: The part of a cap from which on it is told of, the setting of each, and by what its sums are shown.
NEAR = 0.8
_CAPS: Mapping[str, tuple[str, str]] = {
    "person": ("DAILY_SPENDING_LIMIT_PER_USER_USD", "person"),
    "place": ("DAILY_SPENDING_LIMIT_PER_CHANNEL_USD", "place"),
    "model": ("DAILY_SPENDING_LIMIT_PER_MODEL_USD", "model"),
    "all": ("DAILY_SPENDING_LIMIT_USD", "person"),
}

#: What to do about what turns have failed with.
ADVICE: Mapping[str, str] = {
    "ProviderAuthError": "the model's key is refused: `parley check` says which, the settings name where to get one",
    "ModelNotFoundError": "MODEL or MODELS names a model that there is not: `parley check` tries each",
    "ProviderRateLimitError": "the model's quota is used up or too small: raise it there, or choose another MODEL",
    "ProviderUnavailableError": "the provider is down or out of reach: see its status page, then `parley retry ID`",
    "ProviderStreamError": "the provider breaks its answers off: see its status page, then `parley retry ID`",
    "ProviderTimeoutError": "the model sends nothing for too long: raise MODEL_IDLE_TIMEOUT_SECONDS if it is slow",
    "ProviderRequestError": "the provider refuses the request: the log says why, under the id of the turn",
    "ProviderError": "the model could not answer: the log says why, under the id of the turn",
    "ContentBlockedError": "the provider's safety rules withheld the answer: there is nothing to mend here",
    "StepLimitError": "the agent goes in circles: `parley why ID` shows its tools",
    "SurfaceError": "the platform refuses the reply: is the bot still a member there, and may it write?",
    "RefusedError": "the platform refuses the reply: is the bot still a member there, and may it write?",
    "StoreError": "the database was away: see that DATABASE_URL can be reached at all times",
    "DamagedSessionError": "what is stored of that session cannot be read: `reset` in the conversation makes it whole",
    "DamagedTurnError": "what is stored of that turn cannot be read: it has been said, and is to be asked again",
    "time limit": "the turn took longer than TURN_TIMEOUT_SECONDS: `parley why ID` shows where the time went",
}
_ELSE = "the log has the cause, under the id of the turn"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be.

    Attributes:
        kind: `dead`, `stuck`, `slow`, `waiting`, `deaf`, `failing` or `budget`.
        about: the id or the name of what it is about.
        line: what is wrong.
        todo: what to do about it.
    """

    kind: str
    about: str
    line: str
    todo: str


def is_alive(worker: WorkerOverview, holder: str | None) -> bool:
    """Whether a worker is at work.

    Args:
        holder: the process that holds the file, where leases do not end.
    """
    return holder is not None if worker.lease_seconds is None else worker.lease_seconds > 0


def findings(
    seen: Overview,
    *,
    holder: str | None,
    time_limit: float,
    platforms: Collection[str],
    caps: Iterable[SpendingUsage] = (),
) -> Iterator[Finding]:
    """What is not as it should be.

    Args:
        holder: see `is_alive`.
        time_limit: how many seconds a turn may take.
        platforms: the names of those that the bot is to hear.
        caps: those of which much is spent.
    """
    alive = {worker.id for worker in seen.workers if is_alive(worker, holder)}
    if not alive:
        start = "start one (`parley run`); its log says why if it ends at once"
        yield Finding("dead", "workers", "no worker is at work", start)
    for worker in seen.workers:
        if worker.id not in alive and worker.turns:
            gone = f"worker {worker.id} is gone; turns that are its own still: {worker.turns}"
            yield Finding("dead", worker.id, gone, "another worker takes them within seconds; if not, start one")
    for turn in seen.running:
        yield from _turn(turn, seen.at - turn.created_at, alive, time_limit)
    if seen.waiting.free > UNTAKEN:
        since = f"one of them for {seen.waiting.free:.0f} s with none before it"
        line = f"messages that wait: {seen.waiting.messages}, {since}"
        yield Finding(
            "waiting", "inbox", line, "the workers are all busy, or hang: raise MAX_CONCURRENT_TURNS, or add one"
        )
    for channel in seen.channels:
        if alive and channel.name in platforms and channel.heard is not None and channel.heard > DEAF:
            line = f"{channel.name} has heard nothing for {channel.heard:.0f} s"
            yield Finding("deaf", channel.name, line, "see its status page and the log")
    for failure in seen.failures:
        line = f"{failure.cause}: turns that failed in the last hour: {failure.count}; the newest is {failure.newest}"
        yield Finding("failing", failure.newest, line, ADVICE.get(failure.cause, _ELSE))
    for near in caps:
        setting, by = _CAPS[near.kind]
        reached = "is reached" if near.spent >= near.limit else "is nearly reached"
        whose = f", {near.key}" if near.key else ""
        line = f"{setting} {reached}: {format_dollars(near.spent)} of {format_dollars(near.limit)} today{whose}"
        todo = f"raise {setting}, or wait until the day (UTC) is over; `parley usage --by {by}` shows where it went"
        yield Finding("budget", near.key or setting, line, todo)


def _turn(turn: TurnReport, age: float, alive: Collection[str], time_limit: float) -> Iterator[Finding]:
    stop = f"`parley cancel {turn.id}` ends it"
    if turn.cancel is not None and age > SLOW:
        line = f"turn {turn.id} is to be ended ({turn.cancel}), and has not been"
        yield Finding("stuck", turn.id, line, "its worker hangs, or the platform is out of reach: see the log")
    elif turn.owner not in alive and age > GRACE:
        line = f"turn {turn.id} has been {turn.state} for {age:.0f} s, and no worker has it"
        yield Finding("stuck", turn.id, line, "it is taken up as soon as a worker is at work")
    elif age > time_limit + GRACE:
        line = f"turn {turn.id} has been {turn.state} for {age:.0f} s, longer than TURN_TIMEOUT_SECONDS"
        yield Finding("stuck", turn.id, line, f"the platform may be out of reach: see the log; {stop}")
    elif age > SLOW:
        yield Finding("slow", turn.id, f"turn {turn.id} has been {turn.state} for {age:.0f} s", stop)
