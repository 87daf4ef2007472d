"""The commands of what is kept: a conversation to take along, and what is to be deleted."""

import asyncio
from contextlib import aclosing
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import typer

from bot import output as tables
from bot import settings as configuration
from bot.cli import database as stored
from core.errors import SettingsError, StoreError
from core.privacy import export_attachments as exported
from core.privacy.deletion import Forgetting, Survey, Wish, wipe
from core.privacy.export import Form, pieces
from core.privacy.transcript import runs
from core.store.database import Database
from core.usage.prices import Prices


def export(session: str, files: Path | None, *, as_json: bool) -> None:
    """Print what is stored of a conversation."""

    async def work(database: Database, settings: configuration.Settings) -> None:
        form: Form = "json" if as_json else "md"
        is_empty = True
        with tables.progress("reading it"):
            async with aclosing(pieces(database, session, form, Prices(settings.prices_file))) as told:
                async for piece in told:
                    is_empty = False
                    await asyncio.to_thread(tables.write, piece)
        if is_empty:
            raise StoreError(f"nothing is stored of a conversation {session}")
        if files is not None:
            with tables.progress("writing its files"):
                count = await _write_files(database, session, files)
            typer.echo(f"{count} files are in {files}", err=True)

    stored.done(work)


def forget(*, user: str, session: str, before: datetime | None, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete what is stored of a person, of a conversation, or from before a day."""
    if [bool(user), bool(session), before is not None].count(True) != 1:
        raise SettingsError("forget: say one of --user ID, --session ID and --before DATE")
    if as_json and not (yes or dry_run):
        raise SettingsError("forget: with --json, say --yes or --dry-run")
    at = before.replace(tzinfo=UTC).timestamp() if before is not None else 0.0
    wish = Wish(session=session, person=user, before=at)

    async def work(database: Database, settings: configuration.Settings) -> None:
        forgetting = Forgetting(database, Prices(settings.prices_file))
        with tables.progress("looking for it"):
            survey = await forgetting.survey(wish)
        if not as_json:
            _show(survey)
        if is_meant := not dry_run and (yes or await asyncio.to_thread(typer.confirm, "Delete it for good?")):
            with tables.progress("deleting"):
                await forgetting.forget(wish)
                await wipe(database)
        if as_json:
            tables.dump({**asdict(survey), "is_deleted": is_meant})
        elif is_meant:
            typer.echo("deleted")

    stored.done(work)


def _show(survey: Survey) -> None:
    for each in survey.whole:
        typer.echo(f"all of   {each}")
    for each in survey.parts:
        typer.echo(f"parts of {each}")
    count = len(survey.whole) + len(survey.parts)
    typer.echo(f"{survey.messages} messages and {survey.files} files are in these {count} conversations")


async def _write_files(database: Database, session: str, folder: Path) -> int:
    try:
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        count = 0
        async with aclosing(runs(database, session)) as told:
            async for run in told:
                found = [*(file for message in run.messages for file in message.files), *run.files]
                count += await exported.write(database, session, found, folder)
    except OSError as error:
        raise StoreError(f"{error.filename or folder} cannot be written ({error.strerror})") from error
    return count
