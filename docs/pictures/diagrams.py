"""Diagrams that are drawn from the code; `make docs-pictures` writes them, and a test compares the files."""

import asyncio
from collections import defaultdict
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
    LINE,
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
from tests.fixtures.import_graph import package_imports, reduce_transitively

HERE = Path(__file__).parent


def message_path() -> str:
    """Draw the path of a message."""
    nodes = {
        "platform": Node(75, 125, "Slack\nor Discord"),
        "hear": Node(235, 45, "hear:\nis it for the bot?"),
        "inbox": Node(430, 45, "inbox:\none row"),
        "ack": Node(640, 45, "acknowledge\nto Slack"),
        "turn": Node(640, 205, "turn:\nrun the agent"),
        "planner": Node(430, 205, "planner:\ncut into messages"),
        "surface": Node(220, 205, "surface:\npost, edit, delete"),
    }
    arrows = [
        Arrow("platform", "hear", "event"),
        Arrow("hear", "inbox", "yes"),
        Arrow("inbox", "ack", "then"),
        Arrow("inbox", "turn"),
        Arrow("turn", "planner"),
        Arrow("planner", "surface"),
        Arrow("surface", "platform"),
    ]
    return diagram(730, 250, nodes, arrows)


#: Pixels between two levels of the picture of the packages; and the left edge and the width of each column.
_LEVEL = 62
_COLUMNS = {"channels": (0, 690), "bot": (350, 560), "core": (630, 500), "sandbox": (1090, 130)}


def packages() -> str:
    """Draw the packages and their imports, without imports that a longer path implies."""
    edges = package_imports()
    rows = defaultdict[tuple[int, str], list[str]](list)
    for name in sorted(edges):
        rows[_level(edges, name), name.partition("/")[0]].append(name)
    height = _LEVEL * (1 + max(level for level, _ in rows))
    nodes = {
        name: Node(left + width * (place + 1) / (len(names) + 1), height - _LEVEL * (level + 0.4), name)
        for (level, top), names in rows.items()
        for left, width in [_COLUMNS[top]]
        for place, name in enumerate(names)
    }
    arrows = [
        Arrow(name, target)
        for name, targets in sorted(reduce_transitively(edges).items())
        for target in sorted(targets)
    ]
    return diagram(sum(_COLUMNS["sandbox"]), height + 10, nodes, arrows)


def _level(edges: Mapping[str, set[str]], name: str) -> int:
    """Return the number of packages on the longest import path."""
    return max((1 + _level(edges, target) for target in edges[name]), default=0)


#: Positions of the states of a turn, and bends of its transitions, in pixels.
_STATES = {
    "queued": (170, 350),
    "running": (170, 180),
    "answered": (540, 180),
    "done": (780, 180),
    "failed": (540, 45),
    "cancelled": (540, 350),
}
_BENDS = {("running", "queued"): 60, ("queued", "running"): 60}


def turn() -> str:
    """Draw the states of a turn: `TRANSITIONS`."""
    nodes = {state: Node(*position, state, is_end=state in ENDED_STATES) for state, position in _STATES.items()}
    steps = [
        Arrow(source, target, "\n".join(wrap(when, 16)), _BENDS.get((source, target), 0))
        for (source, target), when in TRANSITIONS.items()
    ]
    begin = Arrow("begin", "running", "claimed")
    return diagram(840, 390, {"begin": Node(20, 180), **nodes}, [begin, *steps])


def approval() -> str:
    """Draw the states of an approval."""
    nodes = {
        "begin": Node(20, 150),
        "open": Node(330, 150, "open"),
        "approved": Node(700, 50, "approved"),
        "denied": Node(700, 250, "denied"),
        "gone": Node(330, 300, "gone", is_end=True),
        "on": Node(850, 150, "the run goes on", is_end=True),
    }
    arrows = [
        Arrow("begin", "open", "the turn that asks is answered"),
        Arrow("open", "approved", "a press", 45),
        Arrow("approved", "open", "a stop, before the run goes on", 15),
        Arrow("open", "denied", "a press, or nobody in time", 25),
        Arrow("denied", "open", "a stop, before the run goes on", 40),
        Arrow("open", "gone", "a reset, a deletion,\nthe question edited"),
        Arrow("approved", "on"),
        Arrow("denied", "on"),
    ]
    return diagram(935, 330, nodes, arrows)


#: Deltas of an answer, and the size of a message in the diagram.
_PIECES = (
    "Move the branch **back by",
    " one commit** and leave the files as they are:\n\n```sh\ngit reset --soft HEAD~1\ngit sta",
    "tus\ngit commit --all --message 'Fix the build'\ngit push\n```\n\nIf it is pushed, `git revert HEAD` undoes it.",
)
_SMALL = MessageLimits(chunk_size=94, measure=len)
_COLUMN, _CHARACTERS = 300, 38


def messages() -> str:
    """Draw the chunks of a reply at three times, as the planner splits it."""
    planner, parts, bottom = ChunkPlanner(_SMALL), list[str](), 0.0
    for number, piece in enumerate(_PIECES):
        left, top = 12.0 + _COLUMN * number, 44.0
        planner.feed(piece)
        is_last = number == len(_PIECES) - 1
        plan = planner.plan(Priority.FINAL if is_last else Priority.STREAM_UPDATE)
        moment = "and at its end" if is_last else f"after {len(planner.text)} characters"
        parts.append(text(left, 26, moment, weight="bold"))
        for chunk in plan.chunks:
            lines = [row for line in chunk.text.split("\n") for row in wrap(line, _CHARACTERS) or [""]]
            grows = plan.is_growing and chunk is plan.chunks[-1]
            height = LINE * len(lines) + 12
            parts.append(box(left, top, _COLUMN - 22, height, fill="#fbfcfe", stroke=BLUE if grows else PALE))
            parts += [
                text(left + 9, top + LINE * (row + 1), words, size=11, font="ui-monospace, monospace")
                for row, words in enumerate(lines)
            ]
            span = f"{chunk.start} to {chunk.end}, {'grows' if grows else 'stays'}"
            parts.append(text(left + 2, top + height + 15, span, size=11, colour=BLUE if grows else GREY))
            top += height + 28
        bottom = max(bottom, top)
    return svg(_COLUMN * len(_PIECES), bottom, parts)


#: Start times of the replies, duration of a reply, and duration of a call, in seconds.
_BEGINNINGS, _LASTS, _CALL = (0.0, 3.0, 6.0, 9.0, 12.0, 15.0), 25.0, 0.1


def calls() -> list[list[tuple[float, Priority]]]:
    """Draw the calls of replies that share Slack's rate limit of edits."""

    async def main() -> list[list[tuple[float, Priority]]]:
        budget, start = RateLimiter(TIER_3), _now()
        sent: list[list[tuple[float, Priority]]] = [[] for _ in _BEGINNINGS]

        async def edit(number: int, priority: Priority, since: float) -> None:
            await budget.acquire(priority, since)
            sent[number].append((_now() - start, priority))
            await asyncio.sleep(_CALL)
            budget.complete()

        async def grow(number: int) -> None:
            since = _now()
            while True:
                await edit(number, Priority.STREAM_UPDATE, since)
                since = _now()

        async def reply(number: int) -> None:
            await asyncio.sleep(_BEGINNINGS[number])
            with budget.track_reply(_now()), budget.reserve():
                await _run_for(_LASTS, grow(number))
                await edit(number, Priority.FINAL, _now())

        await asyncio.gather(*(reply(number) for number in range(len(_BEGINNINGS))))
        return sent

    with asyncio.Runner(loop_factory=FastLoop) as runner:
        return runner.run(main())


async def _run_for(seconds: float, what: Awaitable[None]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await what


def _now() -> float:
    return asyncio.get_running_loop().time()


def budget() -> str:
    """Draw six replies that share one rate limit, and its use."""
    sent, left, right, lane, high = calls(), 90.0, 30.0, 26.0, 150.0
    until, width = 50.0, 800.0
    top = 60 + lane * len(sent)
    base = top + high

    def x(seconds: float) -> float:
        return left + (width - left - right) * seconds / until

    def y(count: float) -> float:
        return base - high * count / TIER_3.calls

    parts = [text(left, 26, "Edits that show more (lines) and the final text (dots)", weight="bold")]
    for number, reply in enumerate(sent):
        at = 52 + lane * number
        parts.append(text(left - 12, at + 4, f"reply {number + 1}", anchor="end"))
        parts.append(line(x(_BEGINNINGS[number]), at, x(_BEGINNINGS[number] + _LASTS), at, width=8))
        for seconds, priority in reply:
            if priority is Priority.FINAL:
                parts.append(f'<circle cx="{x(seconds):.1f}" cy="{at:.1f}" r="5.5" fill="{GREEN}"/>')
            else:
                parts.append(line(x(seconds), at - 7, x(seconds), at + 7, colour=BLUE, width=1.5))
    every = sorted(seconds for reply in sent for seconds, _ in reply)
    kept = sorted([*((at, 1) for at in _BEGINNINGS), *((reply[-1][0], -1) for reply in sent)])
    parts.append(text(left, top - 8, "Of the 50 edits of a minute: used, and kept back for the ends", weight="bold"))
    used = _stairs([(at, 1) for at in every])
    free = _stairs([(at, 1) for at in every] + kept)
    for stairs, colour in ((free, RED), (used, BLUE)):
        steps = "".join(f"H{x(at):.1f}V{y(count):.1f}" for at, count in stairs)
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


def _stairs(steps: list[tuple[float, int]]) -> list[tuple[float, int]]:
    count, stairs = 0, []
    for at, step in sorted(steps):
        count += step
        stairs.append((at, count))
    return stairs


#: Functions that draw the diagrams, by file name.
DIAGRAMS: Mapping[str, Callable[[], str]] = {
    "path-of-a-message.svg": message_path,
    "packages.svg": packages,
    "turn-states.svg": turn,
    "approval-states.svg": approval,
    "reply-messages.svg": messages,
    "budget-calls.svg": budget,
}


def main() -> None:
    for name, draw in DIAGRAMS.items():
        (HERE / name).write_text(draw())


if __name__ == "__main__":
    main()
