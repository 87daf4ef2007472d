"""Share of mutants that the tests kill: `make mutants`.

`mutants.json` has 120 mutations, drawn once with a seed, and the verdict of the last run. The tests run once with
coverage contexts; then each mutant runs against the tests that execute its function, until the first failure or for
a minute. A failure counts if the test passes without the mutation.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from coverage import CoverageData

from benchmarks.mutants.mutations import PACKAGES, Candidate, Mutation, apply_mutation, list_candidates

ROOT = Path(__file__).parents[2]
MUTANTS = Path(__file__).with_name("mutants.json")
COVERAGE = ROOT / ".parley" / "mutants.coverage"

COUNT, SEED = 120, 45
MAX_SECONDS = 60

#: More tests than run in that time.
MAX_TESTS = 400

#: Mutants that run at the same time, each in a copy of the repository.
WORKERS = os.cpu_count() or 1

PYTEST = (".venv/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider")


@dataclass(frozen=True)
class Mutant:
    """A drawn mutation and the verdict of its last run: "killed", "survived", or "" before the first."""

    mutation: Mutation
    verdict: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    parser.add_argument("--record", action="store_true", help="run the tests for the coverage, although it exists")
    parser.add_argument("--save", action="store_true", help="write redrawn mutants and verdicts to mutants.json")
    arguments = parser.parse_args()
    candidates = {candidate.mutation: candidate for candidate in list_candidates(ROOT)}
    before = load_mutants() if MUTANTS.exists() else draw_mutants(list(candidates))
    mutants = redraw_missing(before, list(candidates))
    with tempfile.TemporaryDirectory(prefix="parley-mutants-") as folder:
        copies = [_copy_repository(Path(folder) / str(number)) for number in range(WORKERS)]
        if arguments.record or not COVERAGE.exists():
            _record_coverage(copies[0])
        verdicts = asyncio.run(_run_mutants([candidates[mutant.mutation] for mutant in mutants], copies))
    after = [replace(mutant, verdict=verdicts[mutant.mutation]) for mutant in mutants]
    if arguments.save:
        MUTANTS.write_text(json.dumps([asdict(mutant) for mutant in after], indent=1, ensure_ascii=False) + "\n")
    print("\n".join(_write_report(mutants, after)))
    return 1 if count_killed(after) < count_killed(before) else 0


def load_mutants() -> list[Mutant]:
    rows = json.loads(MUTANTS.read_text())
    return [Mutant(Mutation(**row["mutation"]), row["verdict"]) for row in rows]


def draw_mutants(mutations: Sequence[Mutation]) -> list[Mutant]:
    return [Mutant(mutation) for mutation in random.Random(SEED).sample(mutations, COUNT)]


def redraw_missing(mutants: Sequence[Mutant], mutations: Sequence[Mutation]) -> list[Mutant]:
    """Replace each mutation whose source is gone by one of its successor.

    The successor is the same function, else a function of the same name in the package, else any function of the folder
    or of the package.
    """
    existing, drawn = set(mutations), {mutant.mutation for mutant in mutants}
    generator = random.Random(SEED)
    result = []
    for mutant in mutants:
        if mutant.mutation in existing:
            result.append(mutant)
            continue
        candidates = next(filter(None, _list_successors(mutant.mutation, [m for m in mutations if m not in drawn])))
        successor = generator.choice(candidates)
        drawn.add(successor)
        result.append(Mutant(successor))
    return result


def _list_successors(gone: Mutation, mutations: Sequence[Mutation]) -> Iterator[list[Mutation]]:
    package, folder, name = gone.path.partition("/")[0], str(Path(gone.path).parent), gone.function.rpartition(".")[2]
    yield [m for m in mutations if (m.path, m.function) == (gone.path, gone.function)]
    yield [m for m in mutations if m.path.startswith(package + "/") and m.function.rpartition(".")[2] == name]
    yield [m for m in mutations if m.path.startswith(folder + "/")]
    yield [m for m in mutations if m.path.startswith(package + "/")]


def count_killed(mutants: Sequence[Mutant]) -> int:
    return sum(mutant.verdict == "killed" for mutant in mutants)


def _copy_repository(folder: Path) -> Path:
    """Clone the last commit, with an environment of its own."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    (folder / ".parley").mkdir()
    shutil.copytree(ROOT / ".parley" / "tiktoken", folder / ".parley" / "tiktoken")
    uv = shutil.which("uv") or ROOT / ".uv" / "bin" / "uv"
    subprocess.run(["make", "--silent", ".venv/ready", f"UV={uv}"], cwd=folder, check=True)
    return folder


def _record_coverage(folder: Path) -> None:
    options = [
        "-n",
        "auto",
        "--dist",
        "worksteal",
        "-m",
        "not long",
        "--cov",
        "--cov-context=test",
        "--cov-report=term:skip-covered",
    ]
    subprocess.run([*PYTEST, *options], cwd=folder, check=False)
    shutil.copy(folder / ".coverage", COVERAGE)


async def _run_mutants(candidates: Sequence[Candidate], copies: Sequence[Path]) -> dict[Mutation, str]:
    data = CoverageData(str(COVERAGE))
    data.read()
    waiting = iter(candidates)
    verdicts = dict[Mutation, str]()

    async def work(folder: Path) -> None:
        for candidate in waiting:
            tests = list_tests(data, candidate)
            verdicts[candidate.mutation] = verdict = await _run_mutant(candidate, folder, tests)
            mutation = candidate.mutation
            print(f"{len(verdicts):3} {verdict:8} {mutation.path} {mutation.function}", flush=True)
            print(f"      {mutation.before!r} -> {mutation.after!r}", file=sys.stderr, flush=True)

    async with asyncio.TaskGroup() as group:
        for folder in copies:
            group.create_task(work(folder))
    return verdicts


def list_tests(data: CoverageData, candidate: Candidate) -> list[str]:
    """Return the ids of the tests that execute a candidate's function: those of its own folder first, then scenarios.

    A function that no other test executes has the acceptance tests, which start processes.
    """
    body = candidate.function.body
    lines = range(body[0].lineno, (body[-1].end_lineno or 0) + 1)
    contexts = data.contexts_by_lineno(candidate.mutation.path)
    tests = {name.partition("|")[0] for line in lines for name in contexts.get(line, ()) if name}
    if not tests:
        return ["tests/acceptance"]
    folders = Path("tests", candidate.mutation.path).with_suffix("").parts

    def rank(test: str) -> tuple[float, str]:
        parts = Path(test.partition("::")[0].replace("test_", "")).with_suffix("").parts
        common = sum(a == b for a, b in zip(folders, parts, strict=False))
        return -max(common, 1.5 * (parts[1] == "scenarios")), test

    return sorted(tests, key=rank)[:MAX_TESTS]


async def _run_mutant(candidate: Candidate, folder: Path, tests: Sequence[str]) -> str:
    path = folder / candidate.mutation.path
    source = path.read_text()
    path.write_text(apply_mutation(candidate, source))
    try:
        failed = await _find_failure(folder, tests)
    finally:
        path.write_text(source)
    return "survived" if not failed or await _find_failure(folder, failed) else "killed"


async def _find_failure(folder: Path, tests: Sequence[str]) -> list[str]:
    """Run tests until the first failure; return its test, or all tests if they cannot be collected."""
    names, log = folder / ".parley" / "tests", folder / ".parley" / "log"
    names.write_text("\n".join(tests))
    options = ["-x", "-m", "not local_model", "--timeout=40", "--tb=no", "-rfE", f"@{names}"]
    with log.open("w") as output:
        process = await asyncio.create_subprocess_exec(*PYTEST, *options, cwd=folder, stdout=output, stderr=output)
        try:
            async with asyncio.timeout(MAX_SECONDS):
                code = await process.wait()
        except TimeoutError:
            process.terminate()
            await process.wait()
            return []
    if code in {0, 5}:
        return []
    marks = ("FAILED ", "ERROR ")
    lines = [line for line in log.read_text().splitlines() if line.startswith(marks)]
    return [line.removeprefix("FAILED ").removeprefix("ERROR ").partition(" - ")[0] for line in lines] or [tests[0]]


def _write_report(before: Sequence[Mutant], after: Sequence[Mutant]) -> Iterator[str]:
    yield "\n| Package | Mutants | Killed | Survived |\n| --- | --- | --- | --- |"
    for package in (*PACKAGES, ""):
        verdicts = Counter(mutant.verdict for mutant in after if mutant.mutation.path.startswith(package))
        counts = [verdicts.total(), verdicts["killed"], verdicts["survived"]]
        yield f"| {package or 'all'} | {' | '.join(map(str, counts))} |"
    for old, new in zip(before, after, strict=True):
        if new.verdict != "killed":
            mutation = new.mutation
            note = " (was killed)" if old.verdict == "killed" else ""
            yield f"{new.verdict}{note}: {mutation.path} {mutation.function}: {mutation.before} -> {mutation.after}"


if __name__ == "__main__":
    sys.exit(main())
