"""Process of a long command: signals, logging, file access, and its end."""

import asyncio
import os
import signal
import stat
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from bot import output as tables
from bot.monitoring import logs
from bot.settings import Settings, find_unknown_settings
from core.agents.config import find_agent_folder
from core.errors import ParleyError, SettingsError, ShutdownTimeoutError

#: Seconds that the threads of tools have to return when all else has ended.
THREADS_TIMEOUT_SECONDS = 3.0

Work = Callable[[Settings, asyncio.Event], Awaitable[None]]


def run_simulator(settings: Settings, *, terminal: bool = False, is_tour: bool = False, port: int) -> None:
    """Run the simulator, with its web page, until the user stops it.

    The user can chat in the terminal, too, if `terminal` is set or standard input is a pipe or a regular file. The bot
    restarts when a file of the agent in `AGENT` changes. The database and the log of an earlier simulator's bot are
    replaced. It must be the last call of a process: see `run_until_stopped`, which ends the process.
    """
    from bot.simulator import command as simulator  # noqa: PLC0415 - the bot itself does without

    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"DATA_DIR={settings.data_dir}: it cannot be written to ({error.strerror})") from error
    for unknown in find_unknown_settings():
        tables.print_lines(f"note: {unknown}")
    agent = settings.agent if settings.agent and find_agent_folder(settings.agent) is not None else ""
    in_terminal = terminal or simulator.has_piped_input()
    work = partial(
        simulator.run_local_platforms,
        terminal=in_terminal,
        agent=agent,
        is_tour=is_tour,
        port=port,
        echo=tables.print_lines,
    )
    run_until_stopped(work, settings, log_file=settings.data_dir / "simulator.log")  # the terminal shows the chat


def run_until_stopped(work: Work, settings: Settings, log_file: Path | None = None) -> None:
    """Run `work` in an event loop until it ends or a signal stops it.

    SIGTERM and the first Ctrl-C set a stop event. A second Ctrl-C exits with code 130. A `ShutdownTimeoutError` is
    printed, and exits at once with code 1; other errors of `work` are raised. This must be the last call of a process:
    if it still runs `THREADS_TIMEOUT_SECONDS` after the end of `work`, it exits without waiting for threads.

    Before `work`, logging is configured, and the data folder is made private to the user. New files are private, too
    (umask 077).
    """

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def on_interrupt() -> None:
            stop.set()
            loop.remove_signal_handler(signal.SIGINT)

        loop.add_signal_handler(signal.SIGINT, on_interrupt)
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        code = 1
        try:
            await work(settings, stop)
            code = 0
        except ShutdownTimeoutError as error:  # exits without waiting for other threads
            tables.print_error(str(error))
            sys.stderr.flush()
            os._exit(code)
        finally:
            _exit_after_timeout(code)

    os.umask(0o077)  # the database and the logs are private to this user
    _restrict_access(settings.data_dir)
    logs.configure_logging(settings.log_level, log_file, settings.log_format)
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if log_file is not None and not isinstance(error, ParleyError):
            tables.print_error(f"Stopped by an error, {type(error).__name__}: its lines are in {log_file}.")
        raise


def _restrict_access(folder: Path) -> None:
    """Remove other users' access to the data folder and its databases and logs.

    Files of other owners, symbolic links and folders with the sticky bit (`/tmp`) stay unchanged.
    """
    for path in (folder, *folder.glob("*.db*"), *folder.glob("*.log")):
        with suppress(OSError):
            status = path.lstat()
            is_shared = status.st_mode & stat.S_ISVTX or stat.S_ISLNK(status.st_mode)
            if status.st_uid == os.getuid() and not is_shared:
                path.chmod(stat.S_IMODE(status.st_mode) & 0o700)


def _exit_after_timeout(code: int) -> None:
    """Exit after `THREADS_TIMEOUT_SECONDS`; a background thread waits.

    A tool's thread may never return, and Python waits for all threads at its end.
    """
    timer = threading.Timer(THREADS_TIMEOUT_SECONDS, os._exit, [code])
    timer.daemon = True
    timer.start()
