"""The reference bot passes all cases; a mutant of it for each verdict is caught."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from chatrig.conformance.cases import CASES
from chatrig.conformance.platforms import PlatformName
from chatrig.conformance.runner import BotCommand, CaseResult, run_suite
from chatrig.conformance.verdicts import Outcome

REFERENCE = Path(__file__).with_name("reference_bot.py")

#: (code of the reference bot, its replacement, platform, case) by the verdict on the mutant.
MUTANTS: dict[Outcome, tuple[str, str, PlatformName, int]] = {
    Outcome.LATE: ("answer = await retry(ask_model, text)", "await asyncio.sleep(35)\n            {}", "slack", 1),
    Outcome.STRAY: ("shown = await self.list_shown(question, place, root)", "shown = []", "discord", 1),
    Outcome.TOLD: ("answer = await retry(ask_model, text)", "answer = 'Sorry, the model failed.'", "slack", 1),
    Outcome.DISORDERED: ("texts = split(answer, self.limit)", "texts = split(answer, self.limit)[::-1]", "discord", 5),
    Outcome.DOUBLED: (
        "await self.edit(place, shown[number][0], text)",
        "{}\n                await self.post(place, root, text)",
        "discord",
        1,
    ),
    Outcome.CUT: ("texts = split(answer, self.limit)", "texts = split(answer, self.limit)[:1]", "slack", 6),
    Outcome.LOST: ("await retry(self.fetch_missed)", "pass", "slack", 19),
}


def create_command(script: Path, platform: PlatformName) -> BotCommand:
    return BotCommand(["python", str(script), platform], {"STORE": "{folder}/store.db"}, claims_follow_up=True)


async def run_cases(
    script: Path, platform: PlatformName, numbers: Sequence[int], *, jobs: int = 5
) -> Sequence[CaseResult]:
    return await run_suite(create_command(script, platform), [platform], numbers, jobs=jobs, report=lambda result: None)


def describe(results: Sequence[CaseResult]) -> str:
    return "\n".join(transcript for result in results for transcript in result.transcripts)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("platform", ["slack", "discord"])
async def test_the_reference_bot_passes_all_cases(platform: PlatformName) -> None:
    results = await run_cases(REFERENCE, platform, [case.number for case in CASES])
    verdicts = {result.case.number: result.verdict.outcome for result in results}
    expected = dict.fromkeys(verdicts, Outcome.OK)
    if platform == "discord":
        expected[14] = Outcome.NOT_APPLICABLE
    failed = [result for result in results if result.verdict.outcome is not expected[result.case.number]]
    assert verdicts == expected, describe(failed)


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_a_mutant_for_each_verdict_is_caught(tmp_path: Path) -> None:
    async def run_mutant(outcome: Outcome) -> Sequence[CaseResult]:
        code, replacement, platform, number = MUTANTS[outcome]
        source = REFERENCE.read_text()
        assert code in source
        script = tmp_path / f"{outcome}.py"
        script.write_text(source.replace(code, replacement.replace("{}", code)))
        return await run_cases(script, platform, [number], jobs=3)

    results = await asyncio.gather(*map(run_mutant, MUTANTS))
    verdicts = {outcome: result for outcome, [result] in zip(MUTANTS, results, strict=True)}
    wrong = {outcome: result for outcome, result in verdicts.items() if result.verdict.outcome is not outcome}
    assert wrong == {}, describe(list(wrong.values()))
