from pathlib import Path

import pytest

from benchmarks.soak import run
from benchmarks.soak.report import faults
from benchmarks.soak.run import SoakConfig
from benchmarks.soak.script import (
    get_answer_text,
    judge,
)

NAMES = ("s1-0", "s1-1", "s1-2")


def join_chunks(*answers: str) -> str:
    """Return answers as joined text with line breaks, as after a split into chunks."""
    return "\n".join(answers).replace("w1", "\nw1")


def test_no_answer_means_lost_and_two_answers_mean_doubled() -> None:
    verdict = judge(NAMES, join_chunks(get_answer_text(["s1-0"]), get_answer_text(["s1-2"]), get_answer_text(["s1-2"])))
    assert (verdict.lost, verdict.doubled) == (("s1-1",), ("s1-2",))


@pytest.mark.parametrize(
    "text",
    [
        get_answer_text(["s1-0"])[:-9],
        get_answer_text(["s1-0"]) + "_Thinking_",
        "«s1-0» other «end»",
        get_answer_text(["s1-0"]) + get_answer_text(["s2-0"]),
    ],
)
def test_cut_and_additional_texts_are_wrong(text: str) -> None:
    assert len(judge(NAMES[:1], text).wrong) == 1


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("python")
async def test_a_soak_with_faults_loses_doubles_and_cuts_no_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "PAUSE_SECONDS", (1.0, 1.5))  # on an overloaded machine a faster message may be overtaken
    outcome = await run.run_soak(
        SoakConfig(messages=80, sessions=20, concurrent_users=6, messages_per_fault=12), tmp_path
    )
    assert faults(outcome) == []
    assert outcome.counts.total() >= 2
