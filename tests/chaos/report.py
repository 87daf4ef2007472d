"""Result of a campaign as a Markdown table."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tests.chaos.campaign import CaseResult
from tests.chaos.crash_points import list_all_points, module_of

_HEAD = "| module | points | come by | cases | reached | answered | apology | unheard | wrong |"


def table(passages: Mapping[str, int], tried: Sequence[CaseResult]) -> str:
    """Return a table with one row per module with reached points."""
    points, come_by = Counter(map(module_of, list_all_points())), Counter(map(module_of, passages))
    lines = [_line(module, points[module], come_by[module], _of(tried, module)) for module in sorted(come_by)]
    total = _line("**all**", sum(points.values()), sum(come_by.values()), tried)
    return "\n".join([_HEAD, "| --- |" + " ---: |" * 8, *lines, total])


def _of(tried: Sequence[CaseResult], module: str) -> list[CaseResult]:
    return [one for one in tried if module_of(one.case[-1].point) == module]


def _line(name: str, points: int, come_by: int, tried: Sequence[CaseResult]) -> str:
    return f"| {' | '.join(map(str, [name, points, come_by, *_figures(tried)]))} |"


def _figures(tried: Sequence[CaseResult]) -> Iterator[int]:
    yield len(tried)
    yield sum(one.reached for one in tried)
    ends = Counter(end for one in tried for end in one.verdict.outcomes.values())
    yield from (ends[end] for end in ("answered", "apology", "unheard"))
    yield sum(bool(one.verdict.findings) for one in tried)
