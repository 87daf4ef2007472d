"""Report of crash cases as a Markdown table."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tests.chaos.campaign import CaseResult
from tests.chaos.crash_points import list_all_points, module_of

_HEADER = "| module | points | passed points | cases | reached | answered | apology | unreceived | wrong |"


def table(passages: Mapping[str, int], results: Sequence[CaseResult]) -> str:
    """Return a Markdown table with a row per module of the scenario, and a total.

    Args:
        passages: the number of passages of each crash point.
        results: the results of the cases.
    """
    points, passed = Counter(map(module_of, list_all_points())), Counter(map(module_of, passages))
    lines = [_line(module, points[module], passed[module], _select(results, module)) for module in sorted(passed)]
    total = _line("**all**", sum(points.values()), sum(passed.values()), results)
    return "\n".join([_HEADER, "| --- |" + " ---: |" * 8, *lines, total])


def _select(results: Sequence[CaseResult], module: str) -> list[CaseResult]:
    return [result for result in results if module_of(result.case[-1].point) == module]


def _line(name: str, points: int, passed: int, results: Sequence[CaseResult]) -> str:
    return f"| {' | '.join(map(str, [name, points, passed, *_figures(results)]))} |"


def _figures(results: Sequence[CaseResult]) -> Iterator[int]:
    yield len(results)
    yield sum(result.reached for result in results)
    outcomes = Counter(outcome for result in results for outcome in result.verdict.outcomes.values())
    yield from (outcomes[outcome] for outcome in ("answered", "apology", "unreceived"))
    yield sum(bool(result.verdict.findings) for result in results)
