from collections import Counter
from math import inf
from pathlib import Path

import pytest

from benchmarks.load import run
from benchmarks.load.__main__ import main
from benchmarks.load.messages import KIND_PERCENTAGES, LoadModel, get_file_text, get_files, get_kind
from benchmarks.load.processes import Formation
from benchmarks.load.report import faults, table
from benchmarks.load.run import LoadConfig, LoadResult, LoadRun
from benchmarks.load.timing import Wait, measure_waits
from benchmarks.soak.outcome import Outcome
from benchmarks.soak.script import get_answer_text, judge
from benchmarks.soak.sessions import SoakBotMessage
from benchmarks.soak.users import UserSession
from channels.i18n.messages import PLACEHOLDER, RESET_DONE
from chatrig.models import CallTool, Pause, ReceivedRequest, Say
from chatrig.models import ReceivedToolResult as ToolResult
from tests.benchmarks.test_soak import SilentPlace
from tests.processes.procfile import Foreman


class FixedPlace(SilentPlace):
    """Place of a session with given messages of the bot."""

    def __init__(self, *messages: SoakBotMessage) -> None:
        self._messages = list(messages)

    def list_bot_messages(self) -> list[SoakBotMessage]:
        return self._messages


def final_message(*versions: tuple[float, str]) -> SoakBotMessage:
    return SoakBotMessage(versions, is_finished=True)


def request(*messages: tuple[str, str], results: tuple[ToolResult, ...] = ()) -> ReceivedRequest:
    text = next(text for role, text in reversed(messages) if role == "user")
    return ReceivedRequest("scripted", text, "", messages, (), results, {}, {}, is_streaming=True)


def find_name(kind: str, session: int = 1) -> str:
    """Return the name of a message of this kind, but not the first of the session."""
    return next(name for number in range(1, 1000) if get_kind(name := f"s{session}-{number}") == kind)


def test_the_name_of_a_message_decides_its_kind_at_the_set_frequency() -> None:
    found = Counter(get_kind(f"s{session}-{number}") for session in range(50) for number in range(40))
    assert found == Counter(get_kind(f"s{session}-{number}") for session in range(50) for number in range(40))
    for kind, part in KIND_PERCENTAGES.items():
        assert found[kind] / 2000 == pytest.approx(part / 100, abs=0.03)


def test_the_model_calls_the_needed_tool_and_reads_the_attached_file() -> None:
    model = LoadModel(speed=10.0)
    name = find_name("tool")
    first = model(request(("user", f"Ada: {name}")))
    assert isinstance(first, list)
    assert [type(step) for step in first] == [Pause, CallTool]
    round_ = (("user", f"Ada: {name}"), ("assistant", ""), ("tool", '{"time": "now"}'))
    second_answer = model(request(*round_, results=(ToolResult("1", "current_time", {}),)))
    assert isinstance(second_answer, list)
    assert isinstance(last_step := second_answer[-1], Say)
    assert last_step.text == get_answer_text([name])
    assert model.faults == []
    name = find_name("file")
    assert get_files(name) == {"notes.txt": get_file_text(name)}
    model(request(("user", f"Ada: {name} {get_file_text(name)}")))
    assert model.faults == []
    model(request(("user", f"Ada: {name}")))
    assert model.faults == [f"{name} came without its file"]


def test_messages_from_before_a_reset_must_not_reach_the_model() -> None:
    model = LoadModel()
    history = [("user", "Ada: s1-0"), ("assistant", get_answer_text(["s1-0"])), ("user", f"Ada: {find_name('plain')}")]
    model.record_reset("s2-9")
    model(request(*history))
    assert model.faults == []
    model.record_reset("s1-1")
    model(request(*history))
    assert model.faults == ["s1-0 reached the model after the reset before s1-1"]


def test_users_reset_only_while_no_answer_grows() -> None:
    text = get_answer_text(["s1-0"])
    complete, growing = final_message((1.0, text)), SoakBotMessage(((1.0, text),), is_finished=False)
    assert UserSession(1, "slack", FixedPlace(complete), ["s1-0"]).is_idle
    assert not UserSession(1, "slack", FixedPlace(growing), ["s1-0"]).is_idle, "the model may answer it again"
    assert not UserSession(1, "slack", FixedPlace(complete), ["s1-0", "s1-1"]).is_idle


def test_waits_are_measured_to_the_first_text_and_the_end_by_deploy_phase() -> None:
    text = get_answer_text(["s1-0"])
    messages = [final_message((10.5, PLACEHOLDER), (11.0, text[:9]), (12.0, text)), final_message((13.0, RESET_DONE))]
    sent = {"s1-0": 10.0, "s1-1": 15.0, "s1-2": 25.0}
    session = UserSession(1, "slack", FixedPlace(*messages), list(sent), sent)
    assert measure_waits(session, [(20.0, 22.0)], minute=6.0) == [
        Wait("slack", "other", 1.0, 2.0),
        Wait("slack", "during", inf, inf),
        Wait("slack", "after", inf, inf),
    ]


def test_the_table_shows_platform_seconds_and_faults() -> None:
    outcome = Outcome(1, 1.0, [], frozenset(), frozenset(), [], 0, 0, Counter(deploys=5))
    result = LoadResult(outcome, ["slack s1: 1 resets instead of 0"], [Wait("slack", "during", 0.5, inf)], [3.0])
    assert "| slack, during a deploy | 1 | 2.0 s | 2.0 s | never | never |" in table(result, 4.0)
    assert faults(result) == ["slack s1: 1 resets instead of 0"]
    session = UserSession(3, "discord", FixedPlace(final_message((1.0, RESET_DONE))))
    load_run = LoadRun(
        LoadConfig(),
        LoadModel(),
        Formation(Foreman(run.ROOT / "Procfile", Path(), {}, path=Path()), 1, has_overlap=True),
    )
    assert load_run.find_reset_faults([session]) == ["discord s3: 1 resets instead of 0"]


def test_a_load_without_messages_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = UserSession(3, "discord", FixedPlace(), [])
    outcome = Outcome(1, 1.0, [(silent, judge([], ""))], frozenset(), frozenset(), [], 0, 0, Counter())
    assert faults(LoadResult(outcome, [], [], [])) == [
        "no deploy took place: set EVERY below MINUTES",
        "discord s3: no message was sent",
    ]
    monkeypatch.setenv("BENCH_DATABASE", "mysql")
    with pytest.raises(SystemExit, match="BENCH_DATABASE: use one of postgres, sqlite"):
        main()


@pytest.mark.timeout(240)
async def test_an_overlapping_deploy_loses_doubles_and_cuts_no_reply(tmp_path: Path, python: Path) -> None:
    result = await run.run_load(
        LoadConfig(sessions=10, minutes=0.9, deploy_interval=0.5, pause=0.1), "postgres", tmp_path
    )
    assert faults(result) == [], (tmp_path / "dynos.log").read_text()[-4000:]
    assert (result.outcome.counts["deploys"], result.outcome.counts["releases killed"]) == (1, 1)
    assert {wait.phase for wait in result.waits} > {"during"}
    assert str(python) in (tmp_path / "python").read_text()
