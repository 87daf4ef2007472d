"""What the command line understands of a bot's database: see `operations` and `privacy`, which run it.

Neither is imported before one of the commands is given.
"""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from core.models.lazy_import import Late
from core.store.turn_states import State

if TYPE_CHECKING:
    from bot.cli import operations as operator
    from bot.cli import privacy as keeping
else:
    keeping, operator = Late("bot.cli.privacy"), Late("bot.cli.operations")

commands = typer.Typer()

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Limit = Annotated[int, typer.Option(min=1, help="No more than so many, the newest.")]
Wait = Annotated[float, typer.Option(min=0, help="Seconds to wait until a worker has done it.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="A turn: its id, or how it begins.")]


@commands.command()
def export(
    session: Annotated[str, typer.Argument(help="The conversation's id.")],
    files: Annotated[Path | None, typer.Option(help="A folder that its files are written into.")] = None,
    as_json: Json = False,
) -> None:
    """Print what is stored of a conversation."""
    keeping.export(session, files, as_json=as_json)


@commands.command()
def forget(
    *,
    user: Annotated[str, typer.Option(help="What this person has said, by the platform's id.")] = "",
    session: Annotated[str, typer.Option(help="A conversation, by its id.")] = "",
    before: Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d"], help="What is older (UTC).")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what it would take.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines, which are not asked.")] = False,
) -> None:
    """Delete what is stored of a person, of a conversation, or from before a day."""
    keeping.forget(user=user, session=session, before=before, dry_run=dry_run, yes=yes, as_json=as_json)


@commands.command()
def status(as_json: Json = False) -> None:
    """Show the workers, what runs and waits, and what is slow, stuck, deaf, failing or near a cap: exit code 1."""
    operator.status(as_json=as_json)


@commands.command()
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


@commands.command()
def sessions(
    beginning: Annotated[str, typer.Option("--session", help="How the id of the session begins.")] = "",
    person: Annotated[str | None, typer.Option(help="The platform's id of somebody who has spoken there.")] = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """List the sessions that were spoken in last."""
    operator.list_sessions(beginning=beginning, person=person, limit=limit, as_json=as_json)


@commands.command()
def why(turn: Id, as_json: Json = False) -> None:
    """Show what a turn was made of, by its id, as an apology shows it, or by how that begins."""
    operator.why(turn, as_json=as_json)


@commands.command()
def retry(turn: Id, wait: Wait = 10.0, as_json: Json = False) -> None:
    """Have a turn that failed tried again, as the button does: it goes on with what is stored."""
    operator.retry(turn, wait, as_json=as_json)


@commands.command()
def cancel(turn: Id, wait: Wait = 10.0, as_json: Json = False) -> None:
    """Have a turn ended that has not ended, as the button does: what was said so far stays."""
    operator.cancel(turn, wait, as_json=as_json)
