"""Inbox entries that are no messages: commands, presses, submitted forms.

An entry is stored before the platform gets its acknowledgement, and ends when a worker has handled it. A platform
delivers most of them once: if a worker dies, another worker handles its entries.
"""

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Literal

import sqlalchemy as sa
from pydantic import TypeAdapter

from core.concurrency.tasks import run_every
from core.errors import StoreError
from core.messages.inbox_message import InboxMessage, InboxOutcome
from core.observability.secret_redaction import format_error
from core.privacy.vault import Cipher
from core.store.database import Database
from core.store.schema import IS_PENDING, inbox
from core.store.upsert import build_insert
from core.store.workers.lease import Lease
from core.turns.queries import message_columns, session_generation

log = logging.getLogger(__name__)

#: Seconds between two queries for the entries of dead workers.
POLL_SECONDS = 3.0

#: Seconds after which the entry of a dead worker is dropped.
MAX_AGE_SECONDS = 1_800.0


#: A `form` is a request to open a form, which is answered at once and not stored.
EntryKind = Literal["command", "press", "menu", "form", "prompt", "answer"]


@dataclass(frozen=True, slots=True)
class InboxEntry:
    """An act of a person that is no message, or a command in a message.

    Attributes:
        kind: `command`, `press` of a button, or `menu` entry. Of submitted forms, `prompt` is a text for the agent, and
            `answer` answers a question of the agent.
        message: the author, the place and the time, mostly without text. Its session id is empty if it is unknown, and
            its `actor` None until the author is identified.
        values: the input (JSON): of a command its `name` and `argument`; of a press the `button`; of a prompt its
            `text` and what the adapter needs to show it; of a menu entry its `action`, the id of the `message`, its
            event `key` and perhaps the ids of its `files`; of an answer the id of the agent's `question`, the `page` of
            its form and the `entries`.
        surface: what the adapter needs to answer it, such as its token (JSON); empty for an entry that is a message.
        until: `stop` and `reset` do not affect messages that were sent later; infinite for no limit.
        is_private: whether only the author sees the result.
    """

    kind: EntryKind
    message: InboxMessage
    values: Mapping[str, Any]
    surface: Mapping[str, Any] = field(default_factory=dict)
    locale: str = ""
    name: str = ""
    until: float = inf
    is_private: bool = True

    @property
    def event_key(self) -> str:
        """The same for each delivery of the entry; of a prompt, another one than that of the message it becomes."""
        return f"prompt:{self.message.event_key}" if self.kind == "prompt" else self.message.event_key

    @property
    def is_message(self) -> bool:
        """True for a command in a message, which everybody sees, and so its result."""
        return self.kind == "command" and not self.surface

    def to_json(self) -> dict[str, Any]:
        """Return the entry as JSON: a delayed `stop` must not affect messages that were sent after it."""
        entry = replace(self, until=self.message.sent_at)
        data: dict[str, Any] = _ENTRY_ADAPTER.dump_python(entry, by_alias=True)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "InboxEntry":
        """Return the entry in a result of `to_json`, or in an interaction of version 0.1.0."""
        if "context" in data:
            context = {"text": "", **data["context"], "session_id": data["context"]["session_id"] or ""}
            moved = {name: context.pop(name) for name in ("locale", "until", "is_private")}
            data = {name: data[name] for name in ("kind", "values", "surface", "name")} | moved | {"message": context}
        return _ENTRY_ADAPTER.validate_python(data)


_ENTRY_ADAPTER = TypeAdapter(InboxEntry)


class EntryStore:
    """Store of the entries that workers handle beside the turns: rows of `inbox` with the outcome `pending`.

    A worker handles the entries that it appends, and those of dead workers.
    """

    def __init__(self, database: Database, lease: Lease) -> None:
        self._database = database
        self._lease = lease

    async def append(self, entry: InboxEntry, cipher: Cipher) -> bool:
        """Store an entry that this worker has to handle, and return whether it is new."""
        message = entry.message
        generation = session_generation(message.session_id)
        row = message_columns(message, generation) | {
            "event_key": entry.event_key,
            "kind": entry.values["name"] if entry.kind == "command" else entry.kind,
            "outcome": InboxOutcome.PENDING,
            "payload": cipher.encrypt(json.dumps(entry.to_json())),
            "owner": self._lease.worker_id,
        }
        async with self._database.write() as connection:
            new = build_insert(connection.dialect.name, inbox).values(row).on_conflict_do_nothing()
            return (await connection.execute(new.returning(inbox.c.id))).first() is not None

    @asynccontextmanager
    async def handle(self, entry: InboxEntry) -> AsyncIterator[None]:
        """End an entry after the block, also if the block raises an error.

        If the block is cancelled, the entry stays pending. Another worker handles it once this one is dead. A failure
        of the database is logged: another worker may then handle the entry again.
        """
        outcome = InboxOutcome.COMMAND if entry.is_message else InboxOutcome.HANDLED
        try:
            yield
        except Exception:
            await self._end(entry.event_key, outcome)
            raise
        await self._end(entry.event_key, outcome)

    async def _end(self, event_key: str, outcome: InboxOutcome) -> None:
        try:
            async with self._database.write() as connection:
                await connection.execute(_end(IS_PENDING & (inbox.c.event_key == event_key), outcome))
        except StoreError as error:
            log.warning("a handled entry cannot be ended: %s", format_error(error))

    async def run_abandoned(self, platform: str, cipher: Cipher, run: Callable[[InboxEntry], Awaitable[None]]) -> None:
        """Handle the entries of dead workers every `POLL_SECONDS`, until cancelled.

        `run` has to handle each entry in a block of `handle`. Entries that are older than `MAX_AGE_SECONDS`, or cannot
        be decrypted, are ended instead. Errors are logged.
        """

        async def run_all() -> None:
            async with aclosing(self._claim_abandoned(platform)) as claimed:
                async for key, payload in claimed:
                    if text := cipher.decrypt(payload):
                        await run(InboxEntry.from_json(json.loads(text)))
                        continue
                    log.warning("an entry of the inbox cannot be read and is dropped")
                    await self._end(key, InboxOutcome.HANDLED)

        await run_every(POLL_SECONDS, run_all, failure="an entry of a dead worker cannot be handled")

    async def _claim_abandoned(self, platform: str) -> AsyncGenerator[tuple[str, str], None]:
        on_platform = inbox.c.place.startswith(f"{platform}:", autoescape=True)
        abandoned = (
            IS_PENDING & inbox.c.payload.is_not(None) & on_platform & self._lease.has_no_live_worker(inbox.c.owner)
        )
        query = sa.select(inbox.c.event_key, inbox.c.payload).where(abandoned).order_by(inbox.c.id)
        async with self._database.read() as connection:
            found = (await connection.execute(query)).all()
        for row in found:
            is_this = abandoned & (inbox.c.event_key == row.event_key)
            is_late = inbox.c.accepted_at < self._database.now - MAX_AGE_SECONDS
            async with self._database.write() as connection:
                expired = await connection.execute(_end(is_this & is_late, InboxOutcome.HANDLED))
                claim = sa.update(inbox).where(is_this).values(owner=self._lease.worker_id)
                if expired.rowcount or not (await connection.execute(claim)).rowcount:
                    continue
            yield row.event_key, row.payload


def _end(condition: sa.ColumnElement[bool], outcome: InboxOutcome) -> sa.Update:
    values: dict[str, Any] = {"outcome": outcome, "payload": None, "owner": None}
    return sa.update(inbox).where(condition).values(values)
