"""ADK's artifact service over the database: stores the files that runs create."""

import asyncio
import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from google.adk.artifacts import BaseArtifactService
from google.adk.artifacts.base_artifact_service import ArtifactVersion, ensure_part
from google.genai import types
from sqlalchemy.ext.asyncio import AsyncConnection

from core.errors import ToolError
from core.messages.identity import to_one_line
from core.models.media import UNKNOWN_TYPE, fit_file_name, identify_file
from core.observability.secret_redaction import RunSecrets
from core.sessions import state as scopes
from core.sessions.codec import to_json_value
from core.sessions.lifecycle import lock_session_row
from core.store.database import Database
from core.store.schema import artifacts, turns
from core.store.workers.fencing import FencingToken, lock_session_and_turn

#: ADK: prefix of the names of artifacts that belong to the user instead of the session.
_USER_PREFIX = "user:"

#: Key in the custom metadata of an artifact that was saved from an ADK event: a file that a model or a tool returned.
FROM_EVENT_KEY = "parley_from_event"


@dataclass(frozen=True, slots=True)
class GeneratedFile:
    """File that a run has saved as an artifact, with the name that the reply shows.

    Attributes:
        name: without folders and without ADK's prefix `user:`.
        alt: the alternative text of a picture.
    """

    name: str
    data: bytes
    mime_type: str
    alt: str = ""


@dataclass(frozen=True)
class ArtifactService(BaseArtifactService):
    """ADK's artifact service over the table `artifacts`.

    Attributes:
        run_id: the id of the run that saves artifacts; None outside of a run.
        generation: the session generation in which the run began; None for any, and not to check the fence.
        fence: the fencing token of the run's turn.
        credentials: texts that no file may have.
    """

    database: Database
    run_id: str | None = None
    generation: int | None = None
    fence: FencingToken | None = None
    credentials: RunSecrets | None = None

    def bind_run(
        self,
        run_id: str,
        generation: int | None,
        fence: FencingToken | None = None,
        credentials: RunSecrets | None = None,
    ) -> "ArtifactService":
        """Return a copy of the service that stores artifacts with the id of a run.

        Saves and deletions of the copy raise `SessionResetError` after a reset of the session, and `TurnLostError` once
        another worker has claimed the turn. Without a `generation`, neither is checked.
        """
        return replace(self, run_id=run_id, generation=generation, fence=fence, credentials=credentials)

    async def list_generated_files(self, session_id: str, origin: str) -> list[GeneratedFile]:
        """Return the newest version of each file that a turn (`Turn.origin`) and its reruns saved.

        The files are in the order in which they were saved; of files with the same bytes, the first is returned. A turn
        that continues the run of another turn has its own files only.
        """
        origin_turns = sa.select(turns.c.id).where(turns.c.origin == origin)
        is_generated = (artifacts.c.session == session_id) & artifacts.c.turn.in_(origin_turns)
        query = sa.select(artifacts).where(is_generated).order_by(artifacts.c.id)
        rows = await self.database.run_with_retries(query, operation=f"the files of turn {origin}")
        newest = {row.name: row for row in rows}
        current = [row for row in rows if row is newest[row.name] and row.data is not None]
        contents = {hashlib.sha256(row.data).digest(): row for row in reversed(current)}  # a tool saves and returns it
        unique = [row for row in current if row in contents.values()]
        return await asyncio.to_thread(list, map(_to_generated_file, unique))

    async def save_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        artifact: types.Part | dict[str, Any],
        session_id: str | None = None,
        custom_metadata: dict[str, Any] | None = None,
    ) -> int:
        """Save the next version of a file, and return the version's number, from 0.

        The value of `alt` in `custom_metadata` is the alternative text of a picture.

        Raises:
            SessionResetError: the session was reset.
            TurnLostError: another worker owns the turn.
            ToolError: the file has a credential of a person.
        """
        scope = _get_scope(app_name, user_id, filename, session_id)
        part = ensure_part(artifact)
        data = part.inline_data.data if part.inline_data else part.text.encode() if part.text else None
        blob = part.inline_data and part.inline_data.model_copy(update={"data": None})
        metadata = part.model_copy(update={"inline_data": blob, "text": None})
        about = to_json_value(custom_metadata or {})
        texts = json.dumps([filename, about, metadata.model_dump(mode="json")]).encode()
        if self.credentials is not None and any(self.credentials.is_in(text) for text in (texts, data or b"")):
            raise ToolError(f"{filename} is not saved: it has a credential of a person")
        values = {
            **scope,
            "name": filename,
            "session": session_id,
            "run": self.run_id,
            "turn": self.fence and self.fence.turn,
            "mime_type": part.inline_data.mime_type if part.inline_data else "text/plain" if part.text else None,
            "is_text": bool(part.text),
            "part": metadata.model_dump_json(exclude_none=True),
            "data": data,
            "custom_metadata": about,
            "created_at": time.time(),
        }

        async def save(connection: AsyncConnection) -> int:
            await self._lock_session(connection, session_id)
            newest = sa.select(sa.func.max(artifacts.c.version)).where(_matches(scope, filename))
            version: int | None = (await connection.execute(newest)).scalar()
            number = 0 if version is None else version + 1
            await connection.execute(sa.insert(artifacts).values(**values, version=number))
            return number

        return await self.database.write_with_retries(save, operation=f"artifact of session {session_id}")

    async def _lock_session(self, connection: AsyncConnection, session_id: str | None) -> None:
        """Lock session and turn: no two transactions may save the same version number."""
        if session_id is not None and self.generation is not None:
            await lock_session_and_turn(connection, session_id, self.generation, self.fence)
        else:
            await lock_session_row(connection, session_id)

    async def load_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> types.Part | None:
        row = await self._find_row(app_name, user_id, filename, session_id, version)
        if row is None:
            return None
        part = types.Part.model_validate_json(row.part)
        if row.is_text:
            return part.model_copy(update={"text": row.data.decode()})
        if row.data is not None:
            blob = (part.inline_data or types.Blob()).model_copy(update={"mime_type": row.mime_type, "data": row.data})
            return part.model_copy(update={"inline_data": blob})
        return part

    async def list_artifact_keys(self, *, app_name: str, user_id: str, session_id: str | None = None) -> list[str]:
        owners = scopes.get_scope_owners(app_name, user_id, session_id or "")
        conditions = [artifacts.c.owner == owners["user"]]
        if session_id is not None:
            conditions.append((artifacts.c.scope == "session") & (artifacts.c.owner == session_id))
        query = sa.select(artifacts.c.name).where(sa.or_(*conditions)).distinct().order_by(artifacts.c.name)
        async with self.database.read() as connection:
            return list((await connection.execute(query)).scalars())

    async def delete_artifact(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> None:
        condition = _matches(_get_scope(app_name, user_id, filename, session_id), filename)
        async with self.database.write() as connection:
            await self._lock_session(connection, session_id)
            await connection.execute(sa.delete(artifacts).where(condition))

    async def list_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[int]:
        versions = await self.list_artifact_versions(
            app_name=app_name, user_id=user_id, filename=filename, session_id=session_id
        )
        return [version.version for version in versions]

    async def list_artifact_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[ArtifactVersion]:
        scope = _get_scope(app_name, user_id, filename, session_id)
        query = sa.select(artifacts).where(_matches(scope, filename)).order_by(artifacts.c.version)
        async with self.database.read() as connection:
            return [_to_version(row) for row in await connection.execute(query)]

    async def get_artifact_version(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> ArtifactVersion | None:
        row = await self._find_row(app_name, user_id, filename, session_id, version)
        return None if row is None else _to_version(row)

    async def _find_row(
        self, app_name: str, user_id: str, filename: str, session_id: str | None, version: int | None
    ) -> sa.Row[Any] | None:
        query = sa.select(artifacts).where(_matches(_get_scope(app_name, user_id, filename, session_id), filename))
        if version is not None:
            query = query.where(artifacts.c.version == version)
        async with self.database.read() as connection:
            return (await connection.execute(query.order_by(artifacts.c.version.desc()).limit(1))).first()


def _get_scope(app: str, user_id: str, name: str, session_id: str | None) -> dict[str, str]:
    """Return the columns `scope` and `owner` of an artifact, by column name.

    ADK's rule: an artifact without a session or with the prefix `user:` belongs to the user, any other one to the
    session.
    """
    scope = "user" if session_id is None or name.startswith(_USER_PREFIX) else "session"
    return {"scope": scope, "owner": scopes.get_scope_owners(app, user_id, session_id or "")[scope]}


def _matches(scope: Mapping[str, str], name: str) -> sa.ColumnElement[bool]:
    return sa.and_(*(artifacts.c[key] == value for key, value in scope.items()), artifacts.c.name == name)


def _to_version(row: sa.Row[Any]) -> ArtifactVersion:
    return ArtifactVersion(
        version=row.version,
        canonical_uri=f"parley://{row.scope}/{row.owner}/{row.name}/{row.version}",
        custom_metadata=row.custom_metadata,
        create_time=row.created_at,
        mime_type=row.mime_type,
    )


def _to_generated_file(row: sa.Row[Any]) -> GeneratedFile:
    alt = row.custom_metadata.get("alt") if isinstance(row.custom_metadata, dict) else None
    kind = identify_file(row.data, row.mime_type or UNKNOWN_TYPE)
    name = to_one_line(row.name.removeprefix(_USER_PREFIX).rpartition("/")[2] or row.name) or "file"
    return GeneratedFile(fit_file_name(name, kind), row.data, kind, alt if isinstance(alt, str) else "")
