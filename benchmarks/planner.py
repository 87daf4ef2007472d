"""Cost of planning per delta, incremental and complete: `make bench-planner [SIZE=100000]`."""

import sys
import time
from collections.abc import Callable

from channels.base import Priority
from channels.discord.text import DiscordMarkdown
from channels.discord.text import utf16_size as utf16
from channels.markdown.dialect import MessageLimits
from channels.replies.chunk_planner import Planner
from channels.slack.text import SlackMarkdown
from channels.slack.text import size as utf8

SIZE = 100_000
DELTA = 4
DELTAS_A_PLAN = 100

PLATFORMS = {
    "Slack": MessageLimits(chunk_size=3_500, measure=utf8, status_reserve=102, dialect=SlackMarkdown()),
    "Discord": MessageLimits(chunk_size=2_000, measure=utf16, status_reserve=170, dialect=DiscordMarkdown()),
}

SECTION = """\
## Section {n}: what **every** reply is made of

A paragraph with *emphasis*, `inline code`, a [link](https://example.com/pages/{n}) and a few more words, so that
it is as long as paragraphs of a model are; it mentions <@U{n}> and goes on for a while before it comes to its end.

1. A list, whose first item has `code` in it
2. and whose second item is **strong**
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


def kept(limits: MessageLimits, text: str) -> int:
    """Feed one planner with all deltas, and return the number of chunks."""
    planner = Planner(limits)
    for number, start in enumerate(range(0, len(text), DELTA)):
        planner.feed(text[start : start + DELTA])
        if number % DELTAS_A_PLAN == 0:
            planner.plan(Priority.STREAM_UPDATE)
    return len(planner.plan(Priority.FINAL).chunks)


def anew(limits: MessageLimits, text: str) -> int:
    """Plan the complete text with a new planner at each delta."""
    for number, start in enumerate(range(0, len(text), DELTA)):
        if number % DELTAS_A_PLAN == 0:
            planner = Planner(limits)
            planner.feed(text[: start + DELTA])
            planner.plan(Priority.STREAM_UPDATE)
    planner = Planner(limits)
    planner.feed(text)
    return len(planner.plan(Priority.FINAL).chunks)


def seconds(way: Callable[[MessageLimits, str], int], limits: MessageLimits, text: str) -> tuple[float, int]:
    began = time.process_time()
    chunks = way(limits, text)
    return time.process_time() - began, chunks


def main(longest: int) -> None:
    sections = "".join(SECTION.format(n=number) for number in range(longest // 500 + 1))
    print(f"deltas of {DELTA} characters, a plan every {DELTAS_A_PLAN}")
    print(f"{'':10}{'characters':>12}{'chunks':>8}{'fed':>10}{'a delta':>12}{'anew':>10}{'a delta':>12}")
    for name, limits in PLATFORMS.items():
        for size in (longest // 4, longest // 2, longest):
            text = sections[:size]
            fed, chunks = seconds(kept, limits, text)
            again, same = seconds(anew, limits, text)
            assert chunks == same
            deltas = size / DELTA
            costs = f"{fed:>8.2f} s{fed / deltas * 1e6:>9.1f} µs{again:>8.2f} s{again / deltas * 1e6:>9.1f} µs"
            print(f"{name:10}{size:>12,}{chunks:>8}{costs}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else SIZE)
