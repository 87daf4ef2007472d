"""The command line: `python -m bot COMMAND`, or `parley COMMAND`."""

import asyncio
import os
import sys
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from bot.setup import Platform
from core.concurrency import gc_tuning as garbage
from core.errors import ParleyError, SettingsError
from core.secret_redaction import redact_secrets
from core.store.turn_states import State
from core.usage import SpendingDimension

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

#: Default port of the sandbox page.
SANDBOX_PORT = 4000


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"parley {version('parley')}")
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
    from bot.cli import process
    from bot.settings import NO_TOKENS, load_settings

    settings = load_settings()
    if settings.slack is not None or settings.discord is not None:
        garbage.disable_gc()
        from bot import app

        process.run(app.run, settings)
    elif "DYNO" in os.environ:
        raise SettingsError(f"{NO_TOKENS}: see README.md on how to get them")
    else:
        process.say(f"{NO_TOKENS}: starting the sandbox, a Slack and a Discord on this machine.")
        process.run_sandbox(settings, port=SANDBOX_PORT)


@cli.command(name="sandbox")
def run_sandbox(
    terminal: Annotated[bool, typer.Option(help="Speak in the terminal instead of on a page.")] = False,
    agent: Annotated[str, typer.Option(help="An agent of your own, started again whenever it changes.")] = "",
    port: Annotated[int, typer.Option(help="Where the page is, on this machine.")] = SANDBOX_PORT,
) -> None:
    """Run a Slack and a Discord on this machine and the bot in both; you speak as their users."""
    from bot.cli import process
    from bot.settings import load_settings

    if agent:
        os.environ["AGENT"] = agent
    process.run_sandbox(load_settings(), terminal=terminal, port=port)


@cli.command(name="check")
def check_settings(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """Try every setting for real and say what to do about what fails."""
    from bot.setup import check

    raise typer.Exit(code=not asyncio.run(check.shown(as_json=as_json)))


@cli.command()
def init(
    platform: Annotated[Platform | None, typer.Option(help="Where the bot is to be.")] = None,
) -> None:
    """Ask for what is needed, one thing at a time, try each answer at once, and keep it in .env."""
    from bot import output as tables
    from bot.monitoring import logs
    from bot.setup import check, wizard

    logs.configure("ERROR")
    try:
        wizard.interview(platform)
        tables.heading("All of it, once more")
        is_well = asyncio.run(check.shown())
    except (EOFError, KeyboardInterrupt):
        tables.say("", "Stopped. What was written stays; `parley init` goes on from there.")
        raise typer.Exit(code=130) from None
    first = "" if is_well else "mend what begins with FAIL, in .env or by `parley init`, then "
    tables.prose("", f"Next: {first}`make run`, or `parley run`.")
    raise typer.Exit(code=not is_well)


@cli.command(name="migrate")
def run_migrations() -> None:
    """Bring the database to the schema that this version works with."""
    from bot import output as tables
    from bot.cli import process
    from bot.settings import Settings, load_settings
    from core.store.database import Database
    from core.store.lock import hold_database_lock
    from core.store.migrate import migrate

    async def work(settings: Settings, _stop: asyncio.Event) -> None:
        database = Database(settings.database_address)
        try:
            with hold_database_lock(database), tables.progress("migrating the database"):
                applied = await migrate(database)
        finally:
            await database.aclose()
        process.say(f"applied {', '.join(applied)}" if applied else "nothing to do")

    process.run(work, load_settings())


@cli.command(name="manifest")
def print_manifest(platform: Platform) -> None:
    """Print what a platform is to be asked for: the manifest that Slack's app is made from, or Discord's invitation."""
    from bot.settings import load_settings
    from bot.setup.manifest_command import manifest

    typer.echo(manifest(platform, load_settings()))


@cli.command()
def usage(
    by: Annotated[SpendingDimension, typer.Option(help="For each of which it is told.")] = "person",
    since: Annotated[str, typer.Option(help="From this day on (UTC); by default, the first of this month.")] = "",
    until: Annotated[str, typer.Option(help="To this day.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Print what the models have cost, by person, place, model or day."""
    from bot import output as tables
    from bot.cli import process
    from bot.cli import usage as usages
    from bot.settings import Settings, load_settings

    async def work(settings: Settings, _stop: asyncio.Event) -> None:
        with tables.progress("counting"):
            await usages.usage(settings, by, since=since, until=until, as_json=as_json)

    process.run(work, load_settings())


@cli.command()
def warm() -> None:
    """Fetch what the bot must not fetch while it runs: the vocabulary that tokens are counted with."""
    from bot import output as tables
    from bot.settings import load_settings
    from core.models import tokens

    with tables.progress("fetching the vocabulary"):
        file = tokens.fetch_vocabulary(load_settings().vocabulary_dir)
    typer.echo(f"tokens are counted with {file}")


def main() -> None:
    """Run a command; a fault that Parley knows ends it with one line each, and without a stack trace."""
    sys.path.insert(0, os.getcwd())  # `TOOLS` may name a module here, as it may with `python -m bot`
    try:
        cli()
    except SettingsError as error:
        for fault in error.faults:
            typer.echo(redact_secrets(fault), err=True)
        sys.exit(2)
    except ParleyError as error:
        typer.echo(redact_secrets(str(error)), err=True)
        sys.exit(1)


@cli.command()
def export(
    session: Annotated[str, typer.Argument(help="The conversation's id.")],
    files: Annotated[Path | None, typer.Option(help="A folder that its files are written into.")] = None,
    as_json: Json = False,
) -> None:
    """Print what is stored of a conversation."""
    from bot.cli import privacy

    privacy.export(session, files, as_json=as_json)


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
    from bot.cli import privacy

    privacy.forget(user=user, session=session, before=before, dry_run=dry_run, yes=yes, as_json=as_json)


@cli.command()
def status(as_json: Json = False) -> None:
    """Show the workers, what runs and waits, and what is slow, stuck, deaf, failing or near a cap: exit code 1."""
    from bot.cli import operations

    operations.status(as_json=as_json)


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
    from bot.cli import operations

    operations.list_turns(state=state, session=session, person=person, since=since, limit=limit, as_json=as_json)


@cli.command()
def sessions(
    beginning: Annotated[str, typer.Option("--session", help="How the id of the session begins.")] = "",
    person: Annotated[str | None, typer.Option(help="The platform's id of somebody who has spoken there.")] = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """List the sessions that were spoken in last."""
    from bot.cli import operations

    operations.list_sessions(beginning=beginning, person=person, limit=limit, as_json=as_json)


@cli.command()
def why(turn: Id, as_json: Json = False) -> None:
    """Show what a turn was made of, by its id, as an apology shows it, or by how that begins."""
    from bot.cli import operations

    operations.why(turn, as_json=as_json)


@cli.command()
def retry(turn: Id, wait: Wait = 10.0, as_json: Json = False) -> None:
    """Have a turn that failed tried again, as the button does: it goes on with what is stored."""
    from bot.cli import operations

    operations.retry(turn, wait, as_json=as_json)


@cli.command()
def cancel(turn: Id, wait: Wait = 10.0, as_json: Json = False) -> None:
    """Have a turn ended that has not ended, as the button does: what was said so far stays."""
    from bot.cli import operations

    operations.cancel(turn, wait, as_json=as_json)
