"""The command line: `python -m bot COMMAND`, or `parley COMMAND`."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bot.sandbox import command as sandbox
from bot.setup import manifest_command as manifests
from core.agents.config import folder_of
from core.concurrency import gc_tuning as garbage
from core.errors import OverdueError, ParleyError, SettingsError
from core.models.lazy_import import Late
from core.secret_redaction import redact
from core.store.turn_states import State
from core.usage import By

if TYPE_CHECKING:
    from bot import app
    from bot import output as tables
    from bot import settings as configuration
    from bot.cli import operations as operator
    from bot.cli import privacy as keeping
    from bot.cli import usage as usages
    from bot.monitoring import logs
    from bot.setup import check
    from bot.setup import wizard as interview
    from core.models import tokens
    from core.store import database as databases
    from core.store import lock
    from core.store import migrate as migrations
else:  # each by the commands alone that need it
    app, check, logs = Late("bot.app"), Late("bot.setup.check"), Late("bot.monitoring.logs")
    interview, tables = Late("bot.setup.wizard"), Late("bot.output")
    configuration, usages, tokens = Late("bot.settings"), Late("bot.cli.usage"), Late("core.models.tokens")
    keeping, operator = Late("bot.cli.privacy"), Late("bot.cli.operations")
    databases, lock, migrations = Late("core.store.database"), Late("core.store.lock"), Late("core.store.migrate")

cli = typer.Typer(
    help="Any Google ADK agent becomes a teammate in Slack and Discord.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Limit = Annotated[int, typer.Option(min=1, help="No more than so many, the newest.")]
Wait = Annotated[float, typer.Option(min=0, help="Seconds to wait until a worker has done it.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="A turn: its id, or how it begins.")]

#: Seconds that the threads of tools have to return when all else has ended.
THREADS_TIMEOUT = 3.0

if TYPE_CHECKING:
    Work = Callable[[configuration.Settings, asyncio.Event], Awaitable[None]]


def _print_version(is_asked: bool) -> None:
    if is_asked:
        _say(f"parley {version('parley')}")
        raise typer.Exit


@cli.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take the options that precede a command."""


@cli.command()
def run() -> None:
    """Run the bot on every platform whose tokens are set; without any, start the sandbox."""
    settings = configuration.load()
    if settings.slack is not None or settings.discord is not None:
        garbage.hold()
        _run(app.run, settings)
    elif "DYNO" in os.environ:
        raise SettingsError(f"{configuration.NO_TOKENS}: see README.md on how to get them")
    else:
        _say(f"{configuration.NO_TOKENS}: starting the sandbox, a Slack and a Discord on this machine.")
        _run_sandbox(settings)


@cli.command(name="sandbox")
def run_sandbox(
    terminal: Annotated[bool, typer.Option(help="Speak in the terminal instead of on a page.")] = False,
    agent: Annotated[str, typer.Option(help="An agent of your own, started again whenever it changes.")] = "",
    port: Annotated[int, typer.Option(help="Where the page is, on this machine.")] = sandbox.PORT,
) -> None:
    """Run a Slack and a Discord on this machine and the bot in both; you speak as their users."""
    if agent:
        os.environ["AGENT"] = agent
    _run_sandbox(configuration.load(), terminal=terminal, port=port)


@cli.command(name="check")
def check_settings(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """Try every setting for real and say what to do about what fails."""
    raise typer.Exit(code=not asyncio.run(check.shown(as_json=as_json)))


@cli.command()
def init(
    platform: Annotated[manifests.Platform | None, typer.Option(help="Where the bot is to be.")] = None,
) -> None:
    """Ask for what is needed, one thing at a time, try each answer at once, and keep it in .env."""
    logs.configure("ERROR")
    try:
        interview.interview(platform)
        tables.heading("All of it, once more")
        is_well = asyncio.run(check.shown())
    except (EOFError, KeyboardInterrupt):
        tables.say("", "Stopped. What was written stays; `parley init` goes on from there.")
        raise typer.Exit(code=130) from None
    first = "" if is_well else "mend what begins with FAIL, in .env or by `parley init`, then "
    tables.prose("", f"Next: {first}`make run`, or `parley run`.")
    raise typer.Exit(code=not is_well)


@cli.command()
def migrate() -> None:
    """Bring the database to the schema that this version works with."""

    async def work(settings: configuration.Settings, _stop: asyncio.Event) -> None:
        database = databases.Database(settings.database)
        try:
            with lock.held(database), tables.progress("migrating the database"):
                applied = await migrations.migrate(database)
        finally:
            await database.aclose()
        _say(f"applied {', '.join(applied)}" if applied else "nothing to do")

    _run(work, configuration.load())


@cli.command()
def manifest(platform: manifests.Platform) -> None:
    """Print what a platform is to be asked for: the manifest that Slack's app is made from, or Discord's invitation."""
    _say(manifests.manifest(platform, configuration.load()))


@cli.command()
def usage(
    by: Annotated[By, typer.Option(help="For each of which it is told.")] = "person",
    since: Annotated[str, typer.Option(help="From this day on (UTC); by default, the first of this month.")] = "",
    until: Annotated[str, typer.Option(help="To this day.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Print what the models have cost, by person, place, model or day."""

    async def work(settings: configuration.Settings, _stop: asyncio.Event) -> None:
        with tables.progress("counting"):
            spent = await usages.usage(settings, by, since=since, until=until, as_json=as_json)
        _say(spent)

    _run(work, configuration.load())


@cli.command()
def warm() -> None:
    """Fetch what the bot must not fetch while it runs: the vocabulary that tokens are counted with."""
    with tables.progress("fetching the vocabulary"):
        file = tokens.warm(configuration.load().vocabulary_dir)
    _say(f"tokens are counted with {file}")


def main() -> None:
    """Run a command; a fault that Parley knows ends it with one line each, and without a stack trace."""
    sys.path.insert(0, os.getcwd())  # `TOOLS` may name a module here, as it may with `python -m bot`
    try:
        cli()
    except SettingsError as error:
        for fault in error.faults:
            _complain(fault)
        sys.exit(2)
    except ParleyError as error:
        _complain(str(error))
        sys.exit(1)


def _run_sandbox(settings: configuration.Settings, *, terminal: bool = False, port: int = sandbox.PORT) -> None:
    """Run the sandbox in the terminal if that is asked for, and where lines come in; else on a page.

    An agent that is a folder is watched for changes.
    """
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"DATA_DIR={settings.data_dir}: it cannot be written to ({error.strerror})") from error
    for line in configuration.unknown_names():
        _say(f"note: {line}")
    agent = settings.agent if settings.agent and folder_of(settings.agent) is not None else ""
    in_terminal = terminal or sandbox.speaks_in_lines()
    work = partial(sandbox.run, terminal=in_terminal, agent=agent, port=port, say=_say)
    _run(work, settings, log_file=settings.data_dir / "sandbox.log")  # the terminal is for the talk


def _run(work: Work, settings: configuration.Settings, log_file: Path | None = None) -> None:
    """Run `work` with a stop that SIGTERM and the first Ctrl-C set; a second Ctrl-C ends the process at once."""

    async def main() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()

        def on_interrupt() -> None:
            stop.set()
            loop.remove_signal_handler(signal.SIGINT)

        loop.add_signal_handler(signal.SIGINT, on_interrupt)
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        code = 1
        try:
            await work(settings, stop)
            code = 0
        except OverdueError as error:  # it has used up its time: nor are threads waited for, or what is cancelled
            _complain(str(error))
            sys.stderr.flush()
            os._exit(code)
        finally:
            _end_soon(code)

    os.umask(0o077)  # of the database, its log and ours: other users of the machine have no business there
    _restrict_access(settings.data_dir)
    logs.configure(settings.log_level, log_file, settings.log_format)
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(130)


def _restrict_access(folder: Path) -> None:
    """Make the data folder and its files, as far as they are this user's, private to them: older ones may not be."""
    for path in (folder, *folder.glob("*.db*"), *folder.glob("*.log")):
        with suppress(OSError):
            status = path.lstat()
            is_shared = status.st_mode & stat.S_ISVTX or stat.S_ISLNK(status.st_mode)
            if status.st_uid == os.getuid() and not is_shared:
                path.chmod(stat.S_IMODE(status.st_mode) & 0o700)


def _end_soon(code: int) -> None:
    """Python ends when its threads have; that of a tool that never returns is not waited for."""
    timer = threading.Timer(THREADS_TIMEOUT, os._exit, [code])
    timer.daemon = True
    timer.start()


def _say(line: str) -> None:
    typer.echo(line)


def _complain(line: str) -> None:
    typer.echo(redact(line), err=True)


@cli.command()
def export(
    session: Annotated[str, typer.Argument(help="The conversation's id.")],
    files: Annotated[Path | None, typer.Option(help="A folder that its files are written into.")] = None,
    as_json: Json = False,
) -> None:
    """Print what is stored of a conversation."""
    keeping.export(session, files, as_json=as_json)


@cli.command()
def forget(
    *,
    user: Annotated[str, typer.Option(help="Data of this user, by platform id (not a name).")] = "",
    session: Annotated[str, typer.Option(help="A conversation, by its id.")] = "",
    before: Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d"], help="What is older (UTC).")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what it would take.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines, which are not asked.")] = False,
) -> None:
    """Delete what is stored of a person, of a conversation, or from before a day."""
    keeping.forget(user=user, session=session, before=before, dry_run=dry_run, yes=yes, as_json=as_json)


@cli.command()
def status(as_json: Json = False) -> None:
    """Show the workers, what runs and waits, and what is slow, stuck, deaf, failing or near a cap: exit code 1."""
    operator.status(as_json=as_json)


@cli.command()
def turns(
    *,
    state: Annotated[State | None, typer.Option(help="Those that are at this.")] = None,
    session: Annotated[str | None, typer.Option(help="How the id of the session begins.")] = None,
    person: Annotated[str | None, typer.Option(help="The platform's id of who has asked.")] = None,
    since: Annotated[str | None, typer.Option(help="2h, 30m, 7d, or a date: 2026-11-22, 2026-11-22T10:00.")] = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """List the newest turns."""
    operator.list_turns(state=state, session=session, person=person, since=since, limit=limit, as_json=as_json)


@cli.command()
def sessions(
    beginning: Annotated[str, typer.Option("--session", help="How the id of the session begins.")] = "",
    person: Annotated[str | None, typer.Option(help="The platform's id of somebody who has spoken there.")] = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """List the sessions that were spoken in last."""
    operator.list_sessions(beginning=beginning, person=person, limit=limit, as_json=as_json)


@cli.command()
def why(turn: Id, as_json: Json = False) -> None:
    """Show what a turn was made of, by its id, as an apology shows it, or by how that begins."""
    operator.why(turn, as_json=as_json)


@cli.command()
def retry(turn: Id, wait: Wait = 10.0, as_json: Json = False) -> None:
    """Have a turn that failed tried again, as the button does: it goes on with what is stored."""
    operator.retry(turn, wait, as_json=as_json)


@cli.command()
def cancel(turn: Id, wait: Wait = 10.0, as_json: Json = False) -> None:
    """Have a turn ended that has not ended, as the button does: what was said so far stays."""
    operator.cancel(turn, wait, as_json=as_json)
