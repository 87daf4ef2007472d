"""Benchmark of the chunk planner: `make bench-planner [SIZE=100000]`.

Compares the CPU time per delta of one planner that receives all deltas with that of a new planner for each plan.
"""

import sys
import time
from collections.abc import Callable

from channels.base import Priority
from channels.discord.text import DiscordMarkdown, utf16_size
from channels.markdown.dialect import MessageLimits
from channels.replies.chunk_planner import ChunkPlanner
from channels.slack.text import SlackMarkdown, utf8_size

MAX_CHARS = 100_000
DELTA_CHARS = 4
DELTAS_PER_PLAN = 100

PLATFORMS = {
    "Slack": MessageLimits(chunk_size=3_500, measure=utf8_size, status_reserve=102, dialect=SlackMarkdown()),
    "Discord": MessageLimits(chunk_size=2_000, measure=utf16_size, status_reserve=170, dialect=DiscordMarkdown()),
}

SECTION = """\
## Section {n}: the parts of **every** reply

A paragraph with *emphasis*, `inline code`, a [link](https://example.com/pages/{n}) and more words, because
paragraphs of a model are about this long. It mentions <@U{n}> and has one more sentence, which adds nothing new to it.

1. A list with `code` in its first item
2. and a **strong** second item
   - with a nested one

```python
def section_{n}(text: str) -> int:
    return len(text) + {n}
```

| name | value | remark |
|------|------:|--------|
| a{n} | {n} | the first row of the table |
| b{n} | {n} | the second row of the table |

"""


def plan_incrementally(limits: MessageLimits, text: str) -> int:
    """Feed the text to one planner in deltas, and return the final number of chunks.

    It plans after the first delta of `DELTA_CHARS` characters, after each further `DELTAS_PER_PLAN`, and at the end.
    """
    planner = ChunkPlanner(limits)
    for number, start in enumerate(range(0, len(text), DELTA_CHARS)):
        planner.feed(text[start : start + DELTA_CHARS])
        if number % DELTAS_PER_PLAN == 0:
            planner.plan(Priority.STREAM_UPDATE)
    return len(planner.plan(Priority.FINAL).chunks)


def plan_from_scratch(limits: MessageLimits, text: str) -> int:
    """Plan prefixes of a text with new planners; return the whole text's chunk count.

    The prefixes are those after which `plan_incrementally` plans.
    """
    for number, start in enumerate(range(0, len(text), DELTA_CHARS)):
        if number % DELTAS_PER_PLAN == 0:
            planner = ChunkPlanner(limits)
            planner.feed(text[: start + DELTA_CHARS])
            planner.plan(Priority.STREAM_UPDATE)
    planner = ChunkPlanner(limits)
    planner.feed(text)
    return len(planner.plan(Priority.FINAL).chunks)


def measure_cpu(plan_all: Callable[[MessageLimits, str], int], limits: MessageLimits, text: str) -> tuple[float, int]:
    """Call `plan_all`; return the CPU seconds of the call, and the number of chunks.

    Args:
        plan_all: `plan_incrementally` or `plan_from_scratch`.
    """
    began = time.process_time()
    chunks = plan_all(limits, text)
    return time.process_time() - began, chunks


def main(max_chars: int) -> None:
    sections = "".join(SECTION.format(n=number) for number in range(max_chars // 500 + 1))
    print(
        f"deltas of {DELTA_CHARS} characters, a plan every {DELTAS_PER_PLAN}; CPU with a reused and a rebuilt planner"
    )
    print(f"{'':10}{'characters':>12}{'chunks':>8}{'reused':>10}{'per delta':>12}{'rebuilt':>10}{'per delta':>12}")
    for name, limits in PLATFORMS.items():
        for size in (max_chars // 4, max_chars // 2, max_chars):
            text = sections[:size]
            incremental_seconds, chunks = measure_cpu(plan_incrementally, limits, text)
            scratch_seconds, scratch_chunks = measure_cpu(plan_from_scratch, limits, text)
            assert chunks == scratch_chunks
            deltas = size / DELTA_CHARS
            costs = (f"{cpu:>8.2f} s{cpu / deltas * 1e6:>9.1f} µs" for cpu in (incremental_seconds, scratch_seconds))
            print(f"{name:10}{size:>12,}{chunks:>8}{''.join(costs)}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else MAX_CHARS)
