"""The command: its reports, and bots that cannot be tested."""

import asyncio
import json
import os
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from chatrig.cli import main
from chatrig.conformance.cases import CASES
from chatrig.conformance.known_bots import load_bots
from chatrig.conformance.report import write_json, write_junit, write_markdown
from chatrig.conformance.runner import CaseResult, has_failed
from chatrig.conformance.verdicts import Outcome, Verdict

ECHO_BOT = """
import os
from slack_bolt import App
from slack_bolt.adapter.socket_mode import SocketModeHandler

app = App(token=os.environ["SLACK_BOT_TOKEN"])

@app.event("app_mention")
def answer(event, say):
    say(event["text"], thread_ts=event["ts"])

SocketModeHandler(app, os.environ["SLACK_APP_TOKEN"]).start()
"""


def create_result(number: int, verdict: Verdict) -> CaseResult:
    return CaseResult(CASES[number - 1], "slack", verdict, [verdict], ["what people saw\x1b"])


RESULTS = [
    create_result(1, Verdict(Outcome.OK)),
    create_result(10, Verdict(Outcome.LOST, "no word and no note is visible")),
    create_result(14, Verdict(Outcome.NOT_APPLICABLE, "the platform never delivers an event twice")),
    create_result(15, Verdict(Outcome.LATE, "complete after 59.2 s", 59.2)),
]


def test_the_report_is_a_table_in_markdown() -> None:
    assert "| 15 | socket cut before the question | late 59 s |" in write_markdown(RESULTS)
    assert "- slack, 10: no word and no note is visible" in write_markdown(RESULTS)


def test_the_report_in_json_has_all_runs() -> None:
    report = json.loads(write_json(RESULTS, "python bot.py", "2026-11-28"))
    assert report["results"][1]["verdict"] == "lost"
    assert report["results"][3]["runs"] == ["late 59 s"]


def test_the_report_in_junit_has_failures_with_transcripts_and_skips() -> None:
    [suite] = ElementTree.fromstring(write_junit(RESULTS).partition("\n")[2])
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "1", "1")
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.text == "what people saw"


@pytest.mark.parametrize("outcome", Outcome)
def test_only_lost_doubled_and_cut_fail_the_command(outcome: Outcome) -> None:
    assert has_failed([create_result(1, Verdict(outcome))]) is (outcome in {"lost", "doubled", "cut"})


def test_known_bots_have_pinned_packages() -> None:
    for bot in load_bots().values():
        separator = "@" if bot.language == "node" else "=="
        assert all(separator in package[1:] for package in bot.packages)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give the command of the bot after --, or --bot"),
        (["--bot", "nanobot", "--", "python", "bot.py"], "give the command of the bot after --, or --bot"),
        (["--case", "21", "--", "python"], "invalid choice: 21"),
        (["--platform", "irc", "--", "python"], "invalid choice: 'irc'"),
        (["--env", "X", "--", "python"], "'X' is not NAME=VALUE"),
        (["--jobs", "0", "--", "python"], "'0' is not a number from 1"),
        (["--user", "no-such-user", "--", "python"], "there is no user no-such-user"),
        (["--transcripts", "/dev/null/x", "--", "python"], "Not a directory"),
    ],
)
def test_wrong_arguments_end_in_one_clear_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        exit_code = main(["conform", *arguments])
    except SystemExit as error:
        exit_code = int(error.code or 0)
    assert exit_code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("raise SystemExit('no token')", "the bot exited with code 1 before it connected: no token"),
        ("", "the bot exited with code 0 before it connected, and printed nothing"),
        ("import os; os.fork() and os._exit(0); import time; time.sleep(99)", "did not connect within 5 s"),
        (
            "import signal, time; signal.signal(15, signal.SIG_IGN); print('stays', flush=True); time.sleep(99)",
            "did not connect within 5 s: stays",
        ),
        ("import sys; sys.stdin.read() or sys.exit('no terminal')", "code 1 before it connected: no terminal"),
        ("for _ in range(99999): print('flood')", "code 0 before it connected: flood"),
    ],
)
def test_a_bot_that_does_not_connect_ends_in_one_clear_line(
    script: str, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chatrig.conformance.runner._CONNECT_SECONDS", 5 if "within" in message else 60)
    assert main(["conform", "--platform", "slack", "--case", "1", "2", "--", sys.executable, "-c", script]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("chatrig: ")
    assert message in line


async def test_nothing_runs_on_after_a_signal(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(99)"
    conform = [sys.executable, "-c", "import sys; from chatrig.cli import main; sys.exit(main())", "conform"]
    process = await asyncio.create_subprocess_exec(*conform, "--", sys.executable, "-c", script)
    while not (pid_file.exists() and pid_file.read_text()):  # noqa: ASYNC110 - a file sends no event
        await asyncio.sleep(0.05)
    process.terminate()
    assert await process.wait() == 130
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


def test_a_missing_program_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", "--", "no-such-program"]) == 2
    assert capsys.readouterr().err == (
        "chatrig: the bot cannot be started: no-such-program: No such file or directory\n"
    )


def test_an_echo_bot_needs_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, report, transcripts = tmp_path / "bot.py", tmp_path / "report.json", tmp_path / "transcripts"
    script.write_text(ECHO_BOT)
    options = ["--platform", "slack", "--case", "1", "7", "--echo", "--json", str(report)]
    assert main(["conform", *options, "--transcripts", str(transcripts), "--", "python", str(script)]) == 0
    results = {result["case"]: result["verdict"] for result in json.loads(report.read_text())["results"]}
    assert results == {1: "ok", 7: "n/a"}
    assert "c01w11" in (transcripts / "slack-01-1.txt").read_text()
    assert "| 7 | streamed answer of 200 deltas | n/a |" in capsys.readouterr().out
