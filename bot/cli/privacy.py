"""Commands that export conversations and delete stored data."""

import asyncio
from contextlib import aclosing
from dataclasses import asdict
from datetime import UTC, date, datetime, time
from pathlib import Path

import typer

from bot import output as tables
from bot import settings as configuration
from bot.cli import database as stored
from core.errors import SettingsError, StoreError
from core.observability.messages import format_count
from core.privacy import export_attachments as exported
from core.privacy.deletion import DeletionPreview, DeletionRequest, DeletionResult, DeletionService, wipe
from core.privacy.export import ExportFormat, stream_export
from core.privacy.transcript import stream_runs
from core.privacy.vault import Vault
from core.signin.credentials import CredentialStore
from core.signin.oauth import OAuthClient
from core.store.database import Database
from core.usage.prices import Prices


def export(session: str, files: Path | None, *, as_json: bool) -> None:
    """Print a stored session, and write the files of its users and its agent to a folder."""

    async def work(database: Database, settings: configuration.Settings) -> None:
        form: ExportFormat = "json" if as_json else "md"
        is_empty = True
        with tables.show_progress("reading"):
            async with aclosing(stream_export(database, session, form, Prices(settings.prices_file))) as pieces:
                async for piece in pieces:
                    is_empty = False
                    await asyncio.to_thread(tables.write_text, piece)
        if is_empty:
            raise StoreError(f"no session with the id {session} is stored; `parley sessions` lists the stored ones")
        if files is not None:
            with tables.show_progress("writing files"):
                count = await _write_files(database, session, files)
            tables.print_error(f"Written to {files}: {format_count(count, 'file')}")

    stored.run_with_database(work)


def forget(*, user: str, session: str, before: date | None, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete the stored data of a user or a session, or from before a day (UTC).

    A preview and the numbers of deleted conversations, messages and files are printed. Unless `yes` or `dry_run` is
    set, the operator is asked first; if they decline, nothing is deleted. JSON needs one of the two. If the user
    writes again during the deletion, it raises a `StoreError`.
    """
    if [bool(user), bool(session), before is not None].count(True) != 1:
        raise SettingsError("forget: give one of --user ID, --session ID and --before DATE")
    if as_json and not (yes or dry_run):
        raise SettingsError("forget: --json needs --yes or --dry-run")
    at = datetime.combine(before, time(), UTC).timestamp() if before is not None else 0.0
    request = DeletionRequest(session_id=session, user_id=user, before=at)

    async def work(database: Database, settings: configuration.Settings) -> None:
        delete_sign_ins = None
        if settings.encryption_key:
            vault = Vault(database, settings.encryption_key)
            delete_sign_ins = CredentialStore(database, vault, OAuthClient()).delete_user
        forgetting = DeletionService(database, Prices(settings.prices_file), delete_sign_ins=delete_sign_ins)
        with tables.show_progress("searching"):
            survey = await forgetting.preview(request)
            if not survey and not request.before:
                raise StoreError(await _describe_missing(forgetting, request))
        if not as_json:
            _print_preview(survey)
        deleted: DeletionResult | None = None
        if not dry_run and (yes or await asyncio.to_thread(typer.confirm, "Delete it for good?")):
            with tables.show_progress("deleting"):
                deleted = await forgetting.delete(request)
                await wipe(database)
            if user and (rest := await forgetting.preview(request)):
                ids = ", ".join([*rest.sessions, *rest.partial_sessions])
                raise StoreError(f"not all was deleted: {user} has written again ({ids}); run the command again")
        if as_json:
            counts = asdict(deleted) if deleted is not None else None
            tables.print_json({**asdict(survey), "is_deleted": deleted is not None, "deleted": counts})
        elif deleted is not None:
            _print_deleted(deleted, request)

    stored.run_with_database(work)


async def _describe_missing(service: DeletionService, request: DeletionRequest) -> str:
    if request.session_id:
        missing = f"nothing is stored of a conversation with the id {request.session_id}, so nothing was deleted"
        return f"{missing}; `parley sessions` lists the stored ones"
    missing = f"nothing is stored of a user with the id {request.user_id}, so nothing was deleted"
    return missing + stored.describe_users(await service.find_users(request.user_id))


def _print_preview(preview: DeletionPreview) -> None:
    for session in preview.sessions:
        tables.print_lines(f"all of   {session}")
    for session in preview.partial_sessions:
        tables.print_lines(f"parts of {session}")
    count = len(preview.sessions) + len(preview.partial_sessions)
    tables.print_lines(
        f"in all   {format_count(preview.messages, 'message')} and {format_count(preview.files, 'file')} in "
        f"{format_count(count, 'conversation')}"
    )
    if preview.records:
        rows = format_count(preview.records, "other row")
        tables.print_lines(f"also     {rows} with the user (spending, feedback, sign-ins, decisions)")


def _print_deleted(deleted: DeletionResult, request: DeletionRequest) -> None:
    counts = (
        f"{format_count(deleted.conversations, 'conversation')}, {format_count(deleted.messages, 'message')} and "
        f"{format_count(deleted.files, 'file')}"
    )
    tables.print_lines(f"deleted {counts}")
    if request.user_id:
        changed = f"{format_count(deleted.changed, 'conversation')} ({format_count(deleted.redacted, 'message')})"
        rows = format_count(deleted.records, "other row")
        tables.print_lines(f"removed the user from {changed} and from {rows}; nothing of them is left")
    elif deleted.changed:
        tables.print_lines(f"kept the newer messages of {format_count(deleted.changed, 'conversation')}")
    tables.print_lines("log files are not changed: with LOG_LEVEL=DEBUG they contain conversations")


async def _write_files(database: Database, session: str, folder: Path) -> int:
    try:
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        count = 0
        async with aclosing(stream_runs(database, session)) as runs:
            async for run in runs:
                found = [*(file for message in run.messages for file in message.files), *run.files]
                count += await exported.write_files(database, session, found, folder)
    except OSError as error:
        raise StoreError(f"{error.filename or folder} cannot be written ({error.strerror})") from error
    return count
