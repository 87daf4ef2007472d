"""Process that runs the bot and kills itself at a crash point."""

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.chaos import crash_points as points

LOG, PASSAGES = "bot.log", "passages.json"


@dataclass(frozen=True, slots=True)
class Crash:
    """SIGKILL of a process at its n-th passage of a crash point.

    Attributes:
        point: the crash point, as `path:line:column moment`.
        passage: n; 1 for the first passage.
    """

    point: str
    passage: int

    def __str__(self) -> str:
        return f"{self.point} #{self.passage}"


def run_process(folder: str, settings: Mapping[str, str], crash: tuple[str, int] | None) -> None:
    """Run the bot in `folder` until it exits or crashes. Never returns.

    Its output goes to the file `LOG`. At exit it writes the number of passages of each crash point to `PASSAGES`.

    Args:
        settings: environment variables of the bot.
        crash: the fields of a `Crash`; None for no crash.
    """
    code = 1
    passages: Counter[str] = Counter()
    planned_crash = Crash(*crash) if crash else None

    def on_point(point: str) -> None:
        passages[point] += 1
        if planned_crash is not None and planned_crash.point == point and planned_crash.passage == passages[point]:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        os.chdir(folder)
        log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(settings)
        sys.argv = ["parley", "run"]
        points.set_callback(on_point)
        from bot.cli import main as cli  # noqa: PLC0415 - after the hook that instruments it

        cli.main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        Path(PASSAGES).write_text(json.dumps(passages))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
