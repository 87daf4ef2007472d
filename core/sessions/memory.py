"""ADK's memory service over the database: stores an agent's memories of one place.

All users of the place can read the memories. A reset of a session deletes the memories that its runs have saved.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from google.adk.events.event import Event
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions import Session
from google.genai import types
from sqlalchemy.ext.asyncio import AsyncConnection

from core.observability.secret_redaction import RunSecrets
from core.sessions.codec import fold_text, has_word, mask_event, to_folded_column
from core.sessions.writer import StoredSession
from core.store.database import Database
from core.store.schema import memories
from core.store.upsert import insert_or_ignore
from core.store.workers.fencing import FencingToken, lock_session_and_turn

#: The most characters of one stored memory, and of all results of a search.
_MAX_MEMORY_CHARACTERS, _MAX_RESULT_CHARACTERS = 8_000, 12_000

#: The most results of a search, the most (newest) memories with one of the words that are ranked, and the most words of
#: a query.
_MAX_RESULTS, _MAX_CANDIDATES, _MAX_SEARCH_WORDS = 10, 200, 16

#: ADK: the tag around memories that it adds to each prompt.
_ADK_TAG = "PAST_CONVERSATIONS"


@dataclass(frozen=True)
class MemoryService(BaseMemoryService):
    """ADK's memory service over the table `memories`.

    Attributes:
        session: the id of the session whose run saves memories; None outside of a run.
        generation: the session generation in which the run began; None for any, and not to check the fence. After a
            reset of the session, saving raises an error.
        fence: the fencing token of the run's turn. Once another worker has claimed the turn, saving raises an error.
        secrets: the secrets of the run, which are masked in its memories.
        credentials: the credentials of people that the run has used, which are masked too.
    """

    database: Database
    session: str | None = None
    generation: int | None = None
    fence: FencingToken | None = None
    secrets: RunSecrets = field(default_factory=RunSecrets)
    credentials: RunSecrets = field(default_factory=RunSecrets)

    def bind_run(
        self,
        session: str,
        generation: int | None,
        fence: FencingToken | None,
        secrets: RunSecrets | None = None,
        credentials: RunSecrets | None = None,
    ) -> "MemoryService":
        """Return a copy of the service that saves memories for a run of a session."""
        return replace(
            self,
            session=session,
            generation=generation,
            fence=fence,
            secrets=RunSecrets() if secrets is None else secrets,
            credentials=self.credentials if credentials is None else credentials,
        )

    async def add_session_to_memory(self, session: Session) -> None:
        """Save the text of each loaded event of a session as a memory, once per event id.

        Events without text are skipped, and so are thoughts. A text is cut after 8,000 characters.

        Raises:
            SessionResetError: the session was reset.
            TurnLostError: another worker owns the turn.
        """
        run = self
        if isinstance(session, StoredSession):
            run = self.bind_run(session.id, session.generation, session.fence, session.secrets)
        await run._save_entries(session.app_name, session.user_id, session.id, run._to_entries(session.events))

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        await self._save_entries(app_name, user_id, session_id or self.session, self._to_entries(events))

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        texts = [str(self.secrets.mask(_get_text(memory.content))) for memory in memories]
        entries = [
            (memory.id, memory.author or "", text, time.time()) for memory, text in zip(memories, texts, strict=True)
        ]
        await self._save_entries(app_name, user_id, self.session, entries)

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """Return the memories of a place (`user_id`) that match a query, the best match first.

        A memory matches by at least one word, even within a longer word. More words are a better match, and equal
        matches are newest first. Only the 16 longest words of the query count, and only the newest 200 matches are
        compared. Case is ignored. At most 10 memories are returned, with 12,000 characters in all; none for a query
        without a word of three letters or more (two outside of ASCII).
        """
        words = _get_search_words(query)
        if not words:
            return SearchMemoryResponse()
        c = memories.c
        query_matches = (
            sa.select(memories)
            .where(c.app == app_name, c.user_id == user_id)
            .where(sa.or_(*(has_word(memories, word) for word in words)))
            .order_by(c.created_at.desc(), c.id.desc())
            .limit(_MAX_CANDIDATES)
        )
        rows = await self.database.run_with_retries(query_matches, operation="the memories")
        best = sorted(rows, key=lambda row: -sum(word in (row.search_text or row.content.lower()) for word in words))
        results = list[MemoryEntry]()
        remaining = _MAX_RESULT_CHARACTERS
        for row in best[:_MAX_RESULTS]:
            if remaining > 0:
                results.append(_to_memory_entry(row, remaining))
                remaining -= len(row.content)
        return SearchMemoryResponse(memories=results)

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None, **_more: Any) -> None:
        is_memory = (memories.c.app == app_name) & (memories.c.user_id == user_id) & (memories.c.key == memory_id)
        async with self.database.write() as connection:
            await connection.execute(sa.delete(memories).where(is_memory))

    def _to_entries(self, events: Iterable[Event]) -> Iterator[tuple[str | None, str, str, float]]:
        for event in events:
            masked = mask_event(event, self.secrets)
            yield event.id, event.author, _get_text(masked.content), event.timestamp

    async def _save_entries(
        self, app: str, user_id: str, session: str | None, entries: Iterable[tuple[str | None, str, str, float]]
    ) -> None:
        """Store texts (key, author, text, time), cut to `_MAX_MEMORY_CHARACTERS`; skip empty texts and stored keys.

        Nothing is stored if the session was reset, or another worker owns the turn.
        """
        rows = [
            {
                "app": app,
                "user_id": user_id,
                "session": session,
                "key": key or f"{at:.6f} {number}",
                "author": author,
                "content": words[:_MAX_MEMORY_CHARACTERS],
                "search_text": to_folded_column(words[:_MAX_MEMORY_CHARACTERS]),
                "created_at": at,
            }
            for number, (key, author, text, at) in enumerate(entries)
            if (words := str(self.credentials.mask(text))).strip()
        ]

        async def write(connection: AsyncConnection) -> None:
            await self._lock_session(connection)
            await insert_or_ignore(connection, memories, *rows)

        await self.database.write_with_retries(write, operation=f"the memories of session {session}")

    async def _lock_session(self, connection: AsyncConnection) -> None:
        if self.session is not None and self.generation is not None:
            await lock_session_and_turn(connection, self.session, self.generation, self.fence)


def _get_text(content: types.Content | None) -> str:
    parts = (content and content.parts) or ()
    return "\n".join(part.text for part in parts if part.text and not part.thought).replace("\0", "")


def _get_search_words(query: str) -> list[str]:
    words = {fold_text(word.strip(".,;:!?\"'()[]{}<>*_`")) for word in query[:_MAX_MEMORY_CHARACTERS].split()}
    long_words = (word for word in words if len(word) > (2 if word.isascii() else 1))
    return sorted(long_words, key=lambda word: (-len(word), word))[:_MAX_SEARCH_WORDS]


def _to_memory_entry(row: sa.Row[Any], max_characters: int) -> MemoryEntry:
    """Return a stored memory for ADK, without ADK's tag, which would end the section of the prompt."""
    text = row.content if len(row.content) <= max_characters else f"{row.content[:max_characters]}…"
    return MemoryEntry(
        id=row.key,
        author=row.author or None,
        content=types.Content(
            role="user" if row.author == "user" else "model", parts=[types.Part(text=text.replace(_ADK_TAG, "…"))]
        ),
        timestamp=datetime.fromtimestamp(row.created_at, UTC).isoformat(timespec="seconds"),
    )
