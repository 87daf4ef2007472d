"""Command `chatrig conform`: runs the cases against a bot, and reports the verdicts."""

import argparse
import asyncio
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chatrig.conformance.cases import CASES
from chatrig.conformance.known_bots import KnownBot, install_bot, load_bots
from chatrig.conformance.platforms import PlatformName
from chatrig.conformance.report import write_json, write_junit, write_markdown
from chatrig.conformance.runner import BotCommand, CaseResult, find_group, has_failed, run_suite
from chatrig.testing.process import BotError


def add_parser(commands: Any) -> None:
    """Add the command to the sub-parsers of `chatrig`; its function returns the exit code."""
    bots = load_bots()
    parser = commands.add_parser(
        "conform",
        help="run twenty cases against a bot, judged by what people see",
        description="Run twenty cases against a bot: faults, kills and long answers. The exit code is 1 if an answer "
        "was lost, doubled or cut, 2 if the bot cannot be run.",
    )
    parser.add_argument("--platform", choices=["slack", "discord", "both"], help="default: both")
    parser.add_argument(
        "--case", type=int, nargs="+", action="extend", metavar="N", choices=[case.number for case in CASES]
    )
    parser.add_argument("--echo", action="store_true", help="the bot repeats the words of a question, without a model")
    parser.add_argument(
        "--follow-up", action="store_true", help="the bot claims to answer in threads without a mention"
    )
    parser.add_argument(
        "--jobs", type=_parse_positive, default=max(2, os.cpu_count() or 2), metavar="N", help="cases at a time"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--junit", type=Path, metavar="FILE")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    parser.add_argument("--transcripts", type=Path, metavar="DIR", help="folder for what people saw in each run")
    parser.add_argument(
        "--env",
        type=_parse_variable,
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=VALUE",
        help="variables of the bot; {folder} is a new folder for each run",
    )
    parser.add_argument("--user", help="system user that runs the bot (needs setpriv)")
    parser.add_argument("--bot", choices=sorted(bots), help="a known bot, which is installed in a temporary folder")
    parser.add_argument("command", nargs="*", metavar="CMD", help="the bot's command, after --")
    parser.set_defaults(run=lambda options: run_command(parser, options, bots.get(options.bot)))


def run_command(parser: argparse.ArgumentParser, options: argparse.Namespace, known: KnownBot | None) -> int:
    """Run the command, and return its exit code.

    Args:
        known: the bot of `--bot`; None without this option.
    """
    if bool(options.command) == bool(options.bot):
        parser.error("give the command of the bot after --, or --bot")
    if options.user and shutil.which("setpriv") is None:
        parser.error("--user needs the program setpriv")
    if options.user and find_group(options.user) is None:
        parser.error(f"there is no user {options.user}")
    try:
        results = asyncio.run(_run_until_signal(options, known))
        sys.stdout.write(f"\n{write_markdown(results)}")
        _write_reports(options, results, known.name if known else shlex.join(options.command))
    except (BotError, OSError) as error:
        sys.stderr.write(f"chatrig: {' '.join(str(error).split())}\n")
        return 2
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    return 1 if has_failed(results) else 0


def _write_reports(options: argparse.Namespace, results: Sequence[CaseResult], bot: str) -> None:
    for file, text in (
        (options.markdown, write_markdown(results)),
        (options.json, write_json(results, bot, datetime.now(UTC).date().isoformat())),
        (options.junit, write_junit(results)),
    ):
        if file is not None:
            file.write_text(text)


async def _run_until_signal(options: argparse.Namespace, known: KnownBot | None) -> list[CaseResult]:
    task = asyncio.current_task()
    assert task is not None
    with suppress(NotImplementedError):  # Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    env = dict(options.env)
    if known is None:
        command = BotCommand(options.command, env, options.echo, options.follow_up, options.user)
        return await _run(command, _list_platforms(options, ["slack", "discord"]), options)
    async with install_bot(known) as installed:
        command = BotCommand(installed, {**known.env, **env}, known.is_echo, known.claims_follow_up, options.user)
        return await _run(command, _list_platforms(options, known.platforms), options)


async def _run(command: BotCommand, platforms: Sequence[PlatformName], options: argparse.Namespace) -> list[CaseResult]:
    if options.transcripts is not None:
        options.transcripts.mkdir(parents=True, exist_ok=True)

    def report(result: CaseResult) -> None:
        note = f" ({result.verdict.note})" if result.verdict.note else ""
        sys.stdout.write(f"{result.platform} {result.case.number} {result.case.name}: {result.verdict}{note}\n")
        sys.stdout.flush()
        if options.transcripts is not None:
            for number, text in enumerate(result.transcripts, 1):
                file = options.transcripts / f"{result.platform}-{result.case.number:02}-{number}.txt"
                file.write_text(text)

    numbers = options.case or [case.number for case in CASES]
    return await run_suite(command, platforms, numbers, jobs=options.jobs, report=report)


def _list_platforms(options: argparse.Namespace, supported: Sequence[PlatformName]) -> Sequence[PlatformName]:
    if options.platform in (None, "both"):
        return supported
    chosen: PlatformName = options.platform
    if chosen not in supported:
        raise BotError(f"{options.bot} has no {chosen.title()}")
    return [chosen]


def _parse_variable(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _parse_positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return int(text)
