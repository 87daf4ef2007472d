from collections import Counter
from math import inf
from pathlib import Path

import pytest

from benchmarks.load import run
from benchmarks.load.__main__ import main
from benchmarks.load.processes import Formation
from benchmarks.load.questions import KINDS, Speaker, kind, paper, papers
from benchmarks.load.report import faults, table
from benchmarks.load.run import Load, Result, Run
from benchmarks.load.timing import Wait, waits
from benchmarks.soak.outcome import Outcome
from benchmarks.soak.script import answer, judge
from benchmarks.soak.sessions import Told
from benchmarks.soak.users import Session
from channels.i18n.messages import PLACEHOLDER, RESET_DONE
from sandbox.models import CallTool, Pause, ReceivedRequest, Say
from sandbox.models import ToolOutcome as ToolResult
from sandbox.procfile import Foreman
from tests.benchmarks.test_soak import Silent


class Shown(Silent):
    """Session in which the bot has sent these messages."""

    def __init__(self, *told: Told) -> None:
        self._told = list(told)

    def told(self) -> list[Told]:
        return self._told


def grows(*versions: tuple[float, str]) -> Told:
    return Told(versions, is_finished=True)


def asked(*messages: tuple[str, str], results: tuple[ToolResult, ...] = ()) -> ReceivedRequest:
    text = next(text for role, text in reversed(messages) if role == "user")
    return ReceivedRequest("scripted", text, "", messages, (), results, {}, {}, is_streaming=True)


def named(wanted: str, session: int = 1) -> str:
    """Return the name of a message of that kind that is not the first of the session."""
    return next(name for number in range(1, 1000) if kind(name := f"s{session}-{number}") == wanted)


def test_the_name_of_a_message_decides_its_kind_at_the_set_frequency() -> None:
    found = Counter(kind(f"s{session}-{number}") for session in range(50) for number in range(40))
    assert found == Counter(kind(f"s{session}-{number}") for session in range(50) for number in range(40))
    for one, part in KINDS.items():
        assert found[one] / 2000 == pytest.approx(part / 100, abs=0.03)


def test_the_model_calls_the_needed_tool_and_reads_the_attached_file() -> None:
    speaker = Speaker(speed=10.0)
    name = named("tool")
    first = speaker(asked(("user", f"Ada: {name}")))
    assert isinstance(first, list)
    assert [type(step) for step in first] == [Pause, CallTool]
    round_ = (("user", f"Ada: {name}"), ("assistant", ""), ("tool", '{"time": "now"}'))
    then = speaker(asked(*round_, results=(ToolResult("1", "current_time", {}),)))
    assert isinstance(then, list)
    assert isinstance(said := then[-1], Say)
    assert said.text == answer([name])
    assert speaker.faults == []
    name = named("file")
    assert papers(name) == {"notes.txt": paper(name)}
    speaker(asked(("user", f"Ada: {name} {paper(name)}")))
    assert speaker.faults == []
    speaker(asked(("user", f"Ada: {name}")))
    assert speaker.faults == [f"{name} came without its file"]


def test_messages_from_before_a_reset_must_not_reach_the_model() -> None:
    speaker = Speaker()
    history = [("user", "Ada: s1-0"), ("assistant", answer(["s1-0"])), ("user", f"Ada: {named('plain')}")]
    speaker.starts_over("s2-9")
    speaker(asked(*history))
    assert speaker.faults == []
    speaker.starts_over("s1-1")
    speaker(asked(*history))
    assert speaker.faults == ["s1-0 is known still, though all was started over before s1-1"]


def test_users_reset_only_while_no_answer_grows() -> None:
    text = answer(["s1-0"])
    stands, grows_still = grows((1.0, text)), Told(((1.0, text),), is_finished=False)
    assert Session(1, "slack", Shown(stands), ["s1-0"]).is_at_rest
    assert not Session(1, "slack", Shown(grows_still), ["s1-0"]).is_at_rest, "it may be given anew"
    assert not Session(1, "slack", Shown(stands), ["s1-0", "s1-1"]).is_at_rest


def test_waits_are_measured_to_the_first_text_and_the_end_by_deploy_phase() -> None:
    text = answer(["s1-0"])
    told = [grows((10.5, PLACEHOLDER), (11.0, text[:9]), (12.0, text)), grows((13.0, RESET_DONE))]
    said = {"s1-0": 10.0, "s1-1": 15.0, "s1-2": 25.0}
    session = Session(1, "slack", Shown(*told), list(said), said)
    assert waits(session, [(20.0, 22.0)], minute=6.0) == [
        Wait("slack", "before", 1.0, 2.0),
        Wait("slack", "during", inf, inf),
        Wait("slack", "after", inf, inf),
    ]


def test_the_table_shows_platform_seconds_and_faults() -> None:
    outcome = Outcome(1, 1.0, [], frozenset(), frozenset(), [], 0, 0, Counter(deploys=5))
    result = Result(outcome, ["slack s1: started over"], [Wait("slack", "during", 0.5, inf)], [3.0])
    assert "| slack, during a deploy | 1 | 2.0 s | 2.0 s | never | never |" in table(result, 4.0)
    assert faults(result) == ["slack s1: started over"]
    session = Session(3, "discord", Shown(grows((1.0, RESET_DONE))))
    talk = Run(Load(), Speaker(), Formation(Foreman(run.ROOT / "Procfile", Path(), {}, path=Path()), 1, overlaps=True))
    assert talk.deaf([session]) == ["discord s3: started over 1 times in the place of 0"]


def test_a_load_without_messages_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = Session(3, "discord", Shown(), [])
    outcome = Outcome(1, 1.0, [(silent, judge([], ""))], frozenset(), frozenset(), [], 0, 0, Counter())
    assert faults(Result(outcome, [], [], [])) == [
        "no deploy was made: EVERY is to be less than MINUTES",
        "discord s3: nothing was said",
    ]
    monkeypatch.setenv("BENCH_DATABASE", "mysql")
    with pytest.raises(SystemExit, match="BENCH_DATABASE: it is one of postgres, sqlite"):
        main()


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_an_overlapping_deploy_loses_doubles_and_cuts_no_reply(tmp_path: Path, python: Path) -> None:
    result = await run.load(Load(sessions=10, minutes=0.9, every=0.5, pause=0.1), "postgres", tmp_path)
    assert faults(result) == [], (tmp_path / "dynos.log").read_text()[-4000:]
    assert (result.outcome.made["deploys"], result.outcome.made["releases broken off"]) == (1, 1)
    assert {wait.phase for wait in result.waits} > {"during"}
    assert str(python) in (tmp_path / "python").read_text()
