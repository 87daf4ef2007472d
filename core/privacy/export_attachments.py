"""Files of a session for an export: files of messages, and artifacts of tools.

People and models choose the names of files. An exported file gets a safe name without a path.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from google.adk.events.event import Event
from google.genai import types

from core.models.media import guess_suffix
from core.sessions.codec import BLOB_PREFIX
from core.store.database import Database
from core.store.schema import artifacts, blobs

#: The most characters of a name that are kept.
_MAX_NAME_LENGTH = 80

_UNSAFE_CHARACTERS = re.compile(r"[^\w.\- ]+")


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """File of a session in an export, with the place of its bytes in the database.

    Attributes:
        name: the file name in the export: unique in the session, and without a path.
        kind: the MIME type.
        size: the size in bytes; 0 if it is unknown.
        title: the name of the artifact that a tool has saved; empty for a file of a message.
        digest: the SHA-256 of a file of a message whose bytes are in `blobs`; else empty.
        artifact: the id of the row in `artifacts` for a file of a tool; else 0.
        data: the bytes of a small file of a message; else empty.
    """

    name: str
    kind: str
    size: int
    title: str = ""
    digest: str = ""
    artifact: int = 0
    data: bytes = b""

    def to_json(self) -> dict[str, Any]:
        values = {"name": self.name, "title": self.title, "kind": self.kind, "size": self.size, "sha256": self.digest}
        return {name: value for name, value in values.items() if value}


def safe_name(title: str) -> str:
    """Return the last part of a path-like title, safe as a file name; `file` if nothing stays.

    Letters, digits, `_`, `.`, `-` and spaces stay; each run of other characters becomes one `_`. Only the last 80
    characters stay.
    """
    last = re.split(r"[/\\]", title)[-1]
    plain = _UNSAFE_CHARACTERS.sub("_", last).strip(" .")
    return plain[-_MAX_NAME_LENGTH:].lstrip(" .-") or "file"


def list_message_files(id_: int, event: Event | None) -> list[ExportedFile]:
    """Return the files in the ADK event of the `messages` row with this id."""
    if event is None or event.content is None:
        return []
    media: list[types.Blob | types.FunctionResponseBlob] = []
    for part in event.content.parts or ():
        inner = (item.inline_data for item in (part.function_response and part.function_response.parts) or ())
        media += [blob for blob in (part.inline_data, *inner) if blob is not None and blob.data]
    found = []
    for number, blob in enumerate(media, 1):
        kind = blob.mime_type or "application/octet-stream"
        data = blob.data or b""
        digest = data.removeprefix(BLOB_PREFIX).decode() if data.startswith(BLOB_PREFIX) else ""
        name = f"{id_}-{number}{guess_suffix(kind)}"
        found.append(ExportedFile(name, kind, 0 if digest else len(data), digest=digest, data=b"" if digest else data))
    return found


def list_tool_files(rows: Iterable[Any]) -> list[ExportedFile]:
    """Return the files of `artifacts` rows, which need the number of bytes as `size`."""
    return [
        ExportedFile(
            f"made-{row.id}-{safe_name(row.name)}",
            row.mime_type or "application/octet-stream",
            row.size or 0,
            title=row.name,
            artifact=row.id,
        )
        for row in rows
    ]


async def write_files(database: Database, session_id: str, files: Sequence[ExportedFile], folder: Path) -> int:
    """Write the files of a session into an existing folder, readable by their owner only.

    Files whose bytes are no longer stored are left out, and not counted in the result.

    Raises:
        FileExistsError: the folder has a file with the same name.
        OSError: another reason prevents the write. Files that were written before stay, also after other errors.
    """
    written = 0
    for file in files:
        data = await _load_data(database, session_id, file)
        if data is not None:
            await asyncio.to_thread(_write_file, folder / file.name, data)
            written += 1
    return written


def _write_file(path: Path, data: bytes) -> None:
    """Create a file that only its owner can read; fail if a file or link of that name exists."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(data)


async def _load_data(database: Database, session_id: str, file: ExportedFile) -> bytes | None:
    if file.data:
        return file.data
    if file.artifact:
        query = sa.select(artifacts.c.data).where(artifacts.c.id == file.artifact)
    else:
        query = sa.select(blobs.c.data).where(blobs.c.session == session_id, blobs.c.hash == file.digest)
    async with database.read() as connection:
        data: bytes | None = (await connection.execute(query)).scalar_one_or_none()
    return data
