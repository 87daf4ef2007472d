"""Diagrams from the code: `python -m docs.pictures.diagrams`.

A test compares the files with the code.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from textwrap import wrap

from channels.base import Priority
from channels.markdown.dialect import MessageLimits
from channels.rate_limits.limiter import RateLimiter
from channels.replies.chunk_planner import ChunkPlanner
from channels.slack.client.rate_limits import TIER_3
from core.store.turn_states import ENDED_STATES, TRANSITIONS
from docs.pictures.drawing import (
    BLUE,
    GREEN,
    GREY,
    INK,
    LINE_HEIGHT,
    PALE,
    RED,
    Arrow,
    Node,
    box,
    diagram,
    line,
    svg,
    text,
)
from tests.fixtures.clock import FastLoop

HERE = Path(__file__).parent


def draw_message_path() -> str:
    """Draw the path of a message."""
    nodes = {
        "platform": Node(75, 125, "Slack\nor Discord"),
        "parse": Node(235, 45, "parse:\nis it for the bot?"),
        "inbox": Node(430, 45, "inbox:\none row"),
        "ack": Node(640, 45, "acknowledge\nto Slack"),
        "turn": Node(640, 205, "turn:\nrun the agent"),
        "planner": Node(430, 205, "planner:\ncut into messages"),
        "surface": Node(220, 205, "surface:\npost, edit, delete"),
    }
    arrows = [
        Arrow("platform", "parse", "event"),
        Arrow("parse", "inbox", "yes"),
        Arrow("inbox", "ack", "then"),
        Arrow("inbox", "turn"),
        Arrow("turn", "planner"),
        Arrow("planner", "surface"),
        Arrow("surface", "platform"),
    ]
    return diagram(730, 250, nodes, arrows)


#: Positions of the states of a turn, and bends of its transitions, in pixels.
_STATE_POSITIONS = {
    "queued": (170, 350),
    "running": (170, 180),
    "answered": (540, 180),
    "done": (780, 180),
    "failed": (540, 45),
    "cancelled": (540, 350),
}
_STATE_BENDS = {("running", "queued"): 60, ("queued", "running"): 60}


def draw_turn_states() -> str:
    """Draw the states of a turn and their `TRANSITIONS`."""
    nodes = {
        state: Node(*position, state, is_end=state in ENDED_STATES) for state, position in _STATE_POSITIONS.items()
    }
    steps = [
        Arrow(source, target, "\n".join(wrap(when, 16)), _STATE_BENDS.get((source, target), 0))
        for (source, target), when in TRANSITIONS.items()
    ]
    begin = Arrow("begin", "running", "claimed")
    return diagram(840, 390, {"begin": Node(20, 180), **nodes}, [begin, *steps])


def draw_approval_states() -> str:
    """Draw the states of a request for approval."""
    nodes = {
        "begin": Node(20, 150),
        "open": Node(330, 150, "open"),
        "approved": Node(700, 50, "approved"),
        "denied": Node(700, 250, "denied"),
        "removed": Node(330, 300, "removed", is_end=True),
        "resumed": Node(850, 150, "the run resumes", is_end=True),
    }
    arrows = [
        Arrow("begin", "open", "the asking turn is answered"),
        Arrow("open", "approved", "a click", 45),
        Arrow("approved", "open", "a stop, before the run resumes", 15),
        Arrow("open", "denied", "a click, or a timeout", 25),
        Arrow("denied", "open", "a stop, before the run resumes", 40),
        Arrow("open", "removed", "a reset, a deletion,\nan edit of the question"),
        Arrow("approved", "resumed"),
        Arrow("denied", "resumed"),
    ]
    return diagram(935, 330, nodes, arrows)


#: Diagram of a reply's chunks: the deltas of the answer, and the limits of a message.
_DELTAS = (
    "Move the branch **back by",
    " one commit** and leave the files as they are:\n\n```sh\ngit reset --soft HEAD~1\ngit sta",
    "tus\ngit commit --all --message 'Fix the build'\ngit push\n```\n\nIf it is pushed, `git revert HEAD` undoes it.",
)
_SMALL_LIMITS = MessageLimits(chunk_size=94, measure=len)
_COLUMN_WIDTH, _LINE_CHARACTERS = 300, 38


def draw_reply_chunks() -> str:
    """Draw the chunks of a reply at three times, as the planner splits it."""
    planner, parts, bottom = ChunkPlanner(_SMALL_LIMITS), list[str](), 0.0
    for number, delta in enumerate(_DELTAS):
        left, top = 12.0 + _COLUMN_WIDTH * number, 44.0
        planner.feed(delta)
        is_last = number == len(_DELTAS) - 1
        plan = planner.plan(Priority.FINAL if is_last else Priority.STREAM_UPDATE)
        title = "at the end" if is_last else f"after {len(planner.text)} characters"
        parts.append(text(left, 26, title, weight="bold"))
        for chunk in plan.chunks:
            lines = [row for line in chunk.text.split("\n") for row in wrap(line, _LINE_CHARACTERS) or [""]]
            grows = plan.is_growing and chunk is plan.chunks[-1]
            height = LINE_HEIGHT * len(lines) + 12
            parts.append(box(left, top, _COLUMN_WIDTH - 22, height, fill="#fbfcfe", stroke=BLUE if grows else PALE))
            parts += [
                text(left + 9, top + LINE_HEIGHT * (row + 1), words, size=11, font="ui-monospace, monospace")
                for row, words in enumerate(lines)
            ]
            span = f"{chunk.start} to {chunk.end}, {'grows' if grows else 'final'}"
            parts.append(text(left + 2, top + height + 15, span, size=11, colour=BLUE if grows else GREY))
            top += height + 28
        bottom = max(bottom, top)
    return svg(_COLUMN_WIDTH * len(_DELTAS), bottom, parts)


#: Diagram of a rate limit: the start of each reply, and the duration of a reply and of a call.
_START_SECONDS, _REPLY_SECONDS, _CALL_SECONDS = (0.0, 3.0, 6.0, 9.0, 12.0, 15.0), 25.0, 0.1


def simulate_edits() -> list[list[tuple[float, Priority]]]:
    """Run replies that share Slack's rate limit of edits, on a simulated clock.

    Returns:
        For each reply, the time in seconds and the priority of each edit.
    """

    async def main() -> list[list[tuple[float, Priority]]]:
        limiter, start = RateLimiter(TIER_3), _now()
        sent: list[list[tuple[float, Priority]]] = [[] for _ in _START_SECONDS]

        async def edit(number: int, priority: Priority, since: float) -> None:
            await limiter.acquire(priority, since)
            sent[number].append((_now() - start, priority))
            await asyncio.sleep(_CALL_SECONDS)
            limiter.complete()

        async def grow(number: int) -> None:
            since = _now()
            while True:
                await edit(number, Priority.STREAM_UPDATE, since)
                since = _now()

        async def reply(number: int) -> None:
            await asyncio.sleep(_START_SECONDS[number])
            with limiter.track_reply(_now()), limiter.reserve():
                await _run_for(_REPLY_SECONDS, grow(number))
                await edit(number, Priority.FINAL, _now())

        await asyncio.gather(*(reply(number) for number in range(len(_START_SECONDS))))
        return sent

    with asyncio.Runner(loop_factory=FastLoop) as runner:
        return runner.run(main())


async def _run_for(seconds: float, awaitable: Awaitable[None]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await awaitable


def _now() -> float:
    return asyncio.get_running_loop().time()


def draw_rate_limit() -> str:
    """Draw six replies that share one rate limit, and the used and reserved calls."""
    sent, left, right, row_height, plot_height = simulate_edits(), 90.0, 30.0, 26.0, 150.0
    until, width = 50.0, 800.0
    top = 76 + row_height * len(sent)
    base = top + plot_height

    def x(seconds: float) -> float:
        return left + (width - left - right) * seconds / until

    def y(count: float) -> float:
        return base - plot_height * count / TIER_3.calls

    parts = [text(left, 26, "Edits while text streams (lines), and final edits (dots)", weight="bold")]
    for number, reply in enumerate(sent):
        at = 52 + row_height * number
        parts.append(text(left - 12, at + 4, f"reply {number + 1}", anchor="end"))
        parts.append(line(x(_START_SECONDS[number]), at, x(_START_SECONDS[number] + _REPLY_SECONDS), at, width=8))
        for seconds, priority in reply:
            if priority is Priority.FINAL:
                parts.append(f'<circle cx="{x(seconds):.1f}" cy="{at:.1f}" r="5.5" fill="{GREEN}"/>')
            else:
                parts.append(line(x(seconds), at - 7, x(seconds), at + 7, colour=BLUE, width=1.5))
    edit_times = sorted(seconds for reply in sent for seconds, _ in reply)
    reservations = sorted([*((at, 1) for at in _START_SECONDS), *((reply[-1][0], -1) for reply in sent)])
    parts.append(
        text(
            left,
            top - 8,
            "Of 50 edits a minute: used (blue), and with those reserved for final edits (red)",
            weight="bold",
        )
    )
    used = _sum_steps([(at, 1) for at in edit_times])
    used_or_reserved = _sum_steps([(at, 1) for at in edit_times] + reservations)
    for counts, colour in ((used_or_reserved, RED), (used, BLUE)):
        steps = "".join(f"H{x(at):.1f}V{y(count):.1f}" for at, count in counts)
        path = f"M{x(0):.1f} {base:.1f}{steps}H{x(until):.1f}"
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
    parts.append(line(x(0), y(TIER_3.calls), x(until), y(TIER_3.calls), colour=INK, dashes="5 4"))
    for count in (0, 10, 20, 30, 40, 50):
        parts.append(text(left - 12, y(count) + 4, str(count), anchor="end"))
    for seconds in range(0, int(until) + 1, 10):
        parts.append(line(x(seconds), base, x(seconds), base + 5, colour=GREY))
        parts.append(text(x(seconds), base + 20, f"{seconds} s", anchor="middle"))
    parts.append(line(x(0), base, x(until), base, colour=GREY))
    return svg(width, base + 34, parts)


def _sum_steps(steps: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """Return the time of each step, in order, with the sum of all steps until then."""
    count, sums = 0, []
    for at, step in sorted(steps):
        count += step
        sums.append((at, count))
    return sums


#: Functions that draw the diagrams, by file name.
DIAGRAMS: Mapping[str, Callable[[], str]] = {
    "path-of-a-message.svg": draw_message_path,
    "turn-states.svg": draw_turn_states,
    "approval-states.svg": draw_approval_states,
    "reply-messages.svg": draw_reply_chunks,
    "rate-limit-calls.svg": draw_rate_limit,
}


def main() -> None:
    for name, draw in DIAGRAMS.items():
        (HERE / name).write_text(draw())


if __name__ == "__main__":
    main()
