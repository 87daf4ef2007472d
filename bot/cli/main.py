"""Command line: `parley COMMAND`; without a command, `parley run`."""

import asyncio
import os
import sys
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from bot.cli.dates import parse_day, parse_since
from bot.setup import SetupPlatform
from core.concurrency import gc_tuning as garbage
from core.errors import ParleyError, SettingsError
from core.store.turn_states import State
from core.usage import SpendingDimension


class CommandGroup(TyperGroup):
    """Group of commands whose messages about wrong options have no text of pydantic, by which Typer parses them."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            from pydantic import ValidationError

            from core.observability.messages import describe_invalid_value

            if isinstance(error.__cause__, ValidationError):
                default = getattr(error.param, "default", None)
                example = default if isinstance(default, int | float) else None
                error.message = describe_invalid_value(error.__cause__.errors()[0], example=example)
            raise


cli = typer.Typer(
    cls=CommandGroup,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Limit = Annotated[int, typer.Option(min=1, max=1_000_000, help="Most rows to print, newest first.")]
Wait = Annotated[float, typer.Option(min=0, help="Seconds to wait for a worker.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="Id of a turn, or its first characters.")]

#: Default port of the simulator page.
SIMULATOR_PORT = 4000


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from bot import output as tables

        tables.print_lines(f"parley {version('parley')}")
        raise typer.Exit


@cli.callback()
def options(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Run a Google ADK agent as a bot in Slack and Discord. Without a command: the same as `run`."""
    if context.invoked_subcommand is None:
        run()


@cli.command()
def run() -> None:
    """Run the bot on every platform with tokens; without tokens, start the simulator."""
    from bot import output as tables
    from bot.cli import process
    from bot.settings import NO_TOKENS, load_settings

    settings = load_settings()
    if settings.slack is not None or settings.discord is not None:
        garbage.disable_gc()
        from bot import app

        process.run_until_stopped(app.run_bot, settings)
    elif "DYNO" in os.environ:
        raise SettingsError(f"{NO_TOKENS}: README.md explains how to get them")
    else:
        tables.print_lines(f"{NO_TOKENS}: starting the simulator, a local Slack and Discord.")
        process.run_simulator(settings, port=SIMULATOR_PORT)


@cli.command(name="simulator")
@cli.command(name="sandbox", hidden=True)  # the former name
def run_simulator(
    context: typer.Context,
    *,
    terminal: Annotated[bool, typer.Option(help="Chat in the terminal instead of the web page.")] = False,
    tour: Annotated[bool, typer.Option("--tour", help="Begin with the scripted tour, which needs no key.")] = False,
    agent: Annotated[
        str, typer.Option(help="Folder or module of your own agent; restarts when files of a folder change.")
    ] = "",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the web page.")] = SIMULATOR_PORT,
) -> None:
    """Run a local Slack and Discord with the bot in both; you chat as their users."""
    from bot import output as tables
    from bot.cli import process
    from bot.settings import load_settings

    if context.info_name == "sandbox":
        tables.print_lines("`parley sandbox` is now `parley simulator`.")
    if agent:
        os.environ["AGENT"] = agent
    process.run_simulator(load_settings(), terminal=terminal, is_tour=tour, port=port)


@cli.command(name="check")
def check_settings(
    *,
    live: Annotated[
        bool, typer.Option("--live", help="Post, edit, stream, upload, react and delete in one private place.")
    ] = False,
    places: Annotated[
        list[str] | None,
        typer.Option("--in", metavar="PLATFORM:ID", help="Place for --live: slack:C..., slack:U..., discord:ID."),
    ] = None,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --live: write the shapes of all calls, without values.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check every setting against its service; exit code 1 if there are failures.

    Each failure is printed with its remedy.
    """
    if live:
        from bot.monitoring import logs
        from bot.setup.live import command

        logs.configure_logging("ERROR")
        raise typer.Exit(code=command.print_live_checks(places or (), record, as_json=as_json))
    if places or record:
        raise SettingsError("--in and --record belong to --live: write `parley check --live`")
    from bot.setup import check

    raise typer.Exit(code=not asyncio.run(check.print_checks(as_json=as_json)))


@cli.command()
def init(
    platform: Annotated[SetupPlatform | None, typer.Option(help="Platform to set up; without it, init asks.")] = None,
) -> None:
    """Ask for the required settings, check each answer, and write it to .env."""
    from bot import output as tables
    from bot.monitoring import logs
    from bot.setup import check, wizard

    logs.configure_logging("ERROR")
    if not wizard.run_wizard(platform):
        raise typer.Exit(code=130)
    tables.print_heading("Checking all settings")
    is_well = asyncio.run(check.print_checks())
    first = "" if is_well else "fix the lines that begin with FAIL, in .env or with `parley init`, then "
    tables.print_wrapped("", f"Next: {first}run `make run` or `parley run`.")
    raise typer.Exit(code=not is_well)


@cli.command(name="migrate")
def run_migrations() -> None:
    """Migrate the database to the schema of this version."""
    from bot import output as tables
    from bot.cli import process
    from bot.settings import Settings, load_settings
    from core.store.database import Database
    from core.store.lock import hold_database_lock
    from core.store.migrate import migrate

    async def work(settings: Settings, _stop: asyncio.Event) -> None:
        database = Database(settings.database_address)
        try:
            with hold_database_lock(database), tables.show_progress("migrating the database"):
                applied = await migrate(database)
        finally:
            await database.aclose()
        tables.print_lines(f"applied {', '.join(applied)}" if applied else "nothing to do")

    process.run_until_stopped(work, load_settings())


@cli.command(name="manifest")
def print_manifest(platform: SetupPlatform) -> None:
    """Print the manifest of the Slack app, or the invitation link of the Discord bot."""
    from bot import output as tables
    from bot.settings import load_settings
    from bot.setup.manifest_command import format_manifest

    tables.print_lines(format_manifest(platform, load_settings()))


@cli.command()
def usage(
    by: Annotated[SpendingDimension, typer.Option(help="Group by.")] = "user",
    since: Annotated[
        date | None,
        typer.Option(parser=parse_day, metavar="DAY", help="First day (UTC); default: the first of this month."),
    ] = None,
    until: Annotated[
        date | None, typer.Option(parser=parse_day, metavar="DAY", help="Last day (UTC); default: today.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print spending by user, channel, model or day."""
    from bot.cli import operations

    operations.usage(by, since=since, until=until, as_json=as_json)


@cli.command()
def warm() -> None:
    """Download the tokenizer's vocabulary, so that tokens are counted exactly."""
    from bot import output as tables
    from bot.settings import load_settings
    from core.models import tokens

    with tables.show_progress("fetching the vocabulary"):
        file = tokens.fetch_vocabulary(load_settings().vocabulary_dir)
    tables.print_lines(f"tokens are counted with {file}")


def main() -> None:
    """Run the command of the command line, and print errors without a traceback.

    The exit code is 2 after a `SettingsError`, of which each fault is a line, and 1 after any other `ParleyError`.
    """
    sys.path.insert(0, os.getcwd())  # `TOOLS` may name a module here, as it may with `python -m bot`
    try:
        cli()
    except ParleyError as error:
        from bot import output as tables

        tables.print_error(str(error))
        sys.exit(2 if isinstance(error, SettingsError) else 1)


@cli.command()
def export(
    session: Annotated[str, typer.Argument(help="Id of the session.")],
    files: Annotated[Path | None, typer.Option(help="Folder to write its files to.")] = None,
    as_json: Json = False,
) -> None:
    """Print the stored session, with all its messages."""
    from bot.cli import privacy

    privacy.export(session, files, as_json=as_json)


@cli.command()
def forget(
    *,
    user: Annotated[str, typer.Option(help="Data of this user, by platform id; a name lists ids.")] = "",
    session: Annotated[str, typer.Option(help="Data of this session, by id.")] = "",
    before: Annotated[
        date | None, typer.Option(parser=parse_day, metavar="DAY", help="Data from before this day (UTC).")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; needs --yes or --dry-run.")] = False,
) -> None:
    """Delete the stored data of a user or a session, or from before a day.

    Give exactly one of --user, --session and --before.
    """
    from bot.cli import privacy

    privacy.forget(user=user, session=session, before=before, dry_run=dry_run, yes=yes, as_json=as_json)


@cli.command()
def status(as_json: Json = False) -> None:
    """Show workers, running and queued turns, and problems; exit code 1 for problems."""
    from bot.cli import operations

    operations.status(as_json=as_json)


@cli.command()
def turns(
    *,
    state: Annotated[State | None, typer.Option(help="Only turns in this state.")] = None,
    session: Annotated[str | None, typer.Option(help="Only sessions whose id begins with this.")] = None,
    user: Annotated[str | None, typer.Option(help="Only turns of this user, by platform id; a name lists ids.")] = None,
    since: Annotated[
        float | None,
        typer.Option(parser=parse_since, metavar="TIME", help="2h, 30m, 7d, or a date: 2026-11-22, 2026-11-22T10:00."),
    ] = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """List the newest turns."""
    from bot.cli import operations

    operations.print_turns(state=state, session=session, user=user, since=since, limit=limit, as_json=as_json)


@cli.command()
def sessions(
    beginning: Annotated[str, typer.Option("--session", help="Only sessions whose id begins with this.")] = "",
    user: Annotated[
        str | None, typer.Option(help="Only sessions with messages of this user, by platform id; a name lists ids.")
    ] = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """List the sessions with the newest messages."""
    from bot.cli import operations

    operations.print_sessions(beginning=beginning, user=user, limit=limit, as_json=as_json)


@cli.command()
def schedules(
    deleted: Annotated[str, typer.Option("--delete", metavar="ID", help="Delete this schedule instead.")] = "",
    as_json: Json = False,
) -> None:
    """List the open schedules, the next one first."""
    from bot.cli import operations

    operations.print_schedules(deleted=deleted, as_json=as_json)


@cli.command()
def connections(
    disconnected: Annotated[
        str, typer.Option("--disconnect", metavar="ID", help="Delete this account, and revoke its access.")
    ] = "",
    as_json: Json = False,
) -> None:
    """List the accounts that people have connected, the oldest first."""
    from bot.cli import operations

    operations.print_connections(disconnected=disconnected, as_json=as_json)


@cli.command()
def why(
    turn: Id,
    *,
    prompt: Annotated[
        bool, typer.Option("--prompt", help="Show the prompts of its model calls instead: see KEEP_PROMPTS_DAYS.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the report of a turn: model calls, tools, cost and timings."""
    from bot.cli import operations

    if prompt:
        operations.print_prompts(turn, as_json=as_json)
    else:
        operations.why(turn, as_json=as_json)


@cli.command()
def retry(turn: Id, wait: Wait = 10.0, as_json: Json = False) -> None:
    """Retry a failed turn, like the Retry button."""
    from bot.cli import operations

    operations.retry(turn, wait, as_json=as_json)


@cli.command()
def cancel(turn: Id, wait: Wait = 10.0, as_json: Json = False) -> None:
    """Cancel a turn, like the Stop button; the text so far stays."""
    from bot.cli import operations

    operations.cancel(turn, wait, as_json=as_json)
