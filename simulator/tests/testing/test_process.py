"""Processes of bots that behave badly: each ends in one clear line, and nothing is left running."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chatrig import Bot, BotError
from chatrig.slack import SlackSimulator

CONNECT = """
from slack_bolt import App
from slack_bolt.adapter.socket_mode import SocketModeHandler
SocketModeHandler(App(token=os.environ["SLACK_BOT_TOKEN"]), os.environ["SLACK_APP_TOKEN"]).start()
"""


@pytest.fixture
async def slack() -> AsyncIterator[SlackSimulator]:
    async with SlackSimulator() as simulator:
        yield simulator


def create_bot(slack: SlackSimulator, script: str, *, connect_seconds: float = 60, **env: str) -> Bot:
    return Bot("python", "-c", script, platforms=[slack], connect_seconds=connect_seconds, env=env)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/status").read_text().split("State:")[1].split()[0]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("raise SystemExit('no token')", "the bot exited with code 1 before it connected: no token"),
        ("", "the bot exited with code 0 before it connected, and printed nothing"),
        (
            "import os; os.kill(os.getpid(), 11)",
            "the bot exited with code -11 before it connected, and printed nothing",
        ),
        ("import time; time.sleep(600)", "the bot did not connect within 1 s, and printed nothing"),
        ("import sys; sys.stdin.read() or print('no terminal'); sys.exit(3)", "with code 3 .* connected: no terminal"),
        ("import time\nwhile True: print('flood')", "the bot did not connect within 1 s: f?l?o?o?d?"),
        (
            "import signal, time; signal.signal(15, signal.SIG_IGN); print('stays', flush=True); time.sleep(600)",
            "the bot did not connect within 1 s: stays",
        ),
    ],
)
async def test_a_bot_that_does_not_connect_is_stopped_with_one_line(
    slack: SlackSimulator, script: str, message: str
) -> None:
    bot = create_bot(slack, script, connect_seconds=1 if "within" in message else 60)
    with pytest.raises(BotError, match=message) as raised:
        await bot.start()
    assert "\n" not in str(raised.value)
    assert bot.exit_code is not None


async def test_a_missing_program_is_named(slack: SlackSimulator) -> None:
    with pytest.raises(BotError, match=r"the bot cannot be started: no-such-program x: No such file"):
        await Bot("no-such-program", "x", platforms=[slack]).start()


async def test_processes_that_a_bot_started_end_with_it(slack: SlackSimulator) -> None:
    child = (
        f"import subprocess; print('child', subprocess.Popen([{sys.executable!r}, '-c', 'input()']).pid, flush=True)"
    )
    async with create_bot(slack, f"import os\n{child}\n{CONNECT}", PYTHONUNBUFFERED="1") as bot:
        pid = int(bot.output.split("child ")[1].split()[0])
    assert bot.exit_code in (-15, 0)
    assert not is_running(pid)


DAEMON = """
import os, sys, time
if os.fork():
    while not os.path.exists(sys.argv[1]): time.sleep(0.05)
    os._exit(0)
os.setsid()
os.close(1)
os.close(2)
with open(sys.argv[1] + ".new", "w") as file: file.write(str(os.getpid()))
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(600)
"""


async def test_a_daemon_that_a_bot_becomes_ends_with_it(slack: SlackSimulator, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    with pytest.raises(BotError, match="exited with code 0 before it connected"):
        await Bot("python", "-c", DAEMON, str(file), platforms=[slack]).start()
    async with asyncio.timeout(10):
        while is_running(int(file.read_text())):  # noqa: ASYNC110 - it is no child of this process
            await asyncio.sleep(0.01)


async def test_a_bot_gets_no_variable_of_the_shell_with_a_token(
    slack: SlackSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-17653672481-19874698323-pdFZKVeTuE8sk7oOcBrzbqgy")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-proj-of-the-shell")
    async with create_bot(slack, f"import os; print(*os.environ.items())\n{CONNECT}", GREETING="hi") as bot:
        assert "xoxb-1765" not in bot.output
        assert "of-the-shell" not in bot.output
        assert slack.bot_token in bot.output
        assert "('GREETING', 'hi')" in bot.output


async def test_two_bots_on_two_simulators_run_in_one_process(slack: SlackSimulator) -> None:
    async with SlackSimulator() as other:
        scripts = [create_bot(simulator, f"import os\n{CONNECT}") for simulator in (slack, other)]
        await asyncio.gather(*(bot.start() for bot in scripts))
        assert (slack.connection_count, other.connection_count) == (1, 1)
        await asyncio.gather(*(bot.stop() for bot in scripts))


async def test_the_sitecustomize_of_the_environment_runs_too(slack: SlackSimulator, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('own module')")
    async with create_bot(slack, f"import os\n{CONNECT}", PYTHONPATH=str(tmp_path)) as bot:
        assert "own module" in bot.output
