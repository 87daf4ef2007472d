"""Counters of the database statements that a benchmark causes."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from core.store.database import Database

_WRITES = re.compile(r"(?:^|[()])\s*(INSERT INTO|UPDATE|DELETE FROM)\s+(\w+)", re.I)

#: Counted parts of a writing statement.
_VERBS = {"INSERT INTO": "insert", "UPDATE": "update", "DELETE FROM": "delete"}


@contextmanager
def count_statements(database: Database) -> Iterator[Counter[str]]:
    """Yield a counter of the statements that `database` executes inside the context.

    Keys are `insert TABLE` and so on for writes, joined by ` + ` within one statement, `notify`, `begin`, `commit`, and
    `read` for all others.
    """
    counts: Counter[str] = Counter()
    engine = database.engine.sync_engine

    def count_execution(_connection: Any, _cursor: Any, statement: str, *_kwargs: Any) -> None:
        counts[_kind(statement)] += 1

    def count_begin(connection: sa.Connection) -> None:
        counts["begin"] += not connection.get_execution_options().get("autocommit")

    def count_commit(_connection: Any) -> None:
        counts["commit"] += 1

    sa.event.listen(engine, "before_cursor_execute", count_execution)
    sa.event.listen(engine, "begin", count_begin)
    sa.event.listen(engine, "commit", count_commit)
    try:
        yield counts
    finally:
        sa.event.remove(engine, "before_cursor_execute", count_execution)
        sa.event.remove(engine, "begin", count_begin)
        sa.event.remove(engine, "commit", count_commit)


def select_writes(counts: Mapping[str, float]) -> dict[str, float]:
    """Return the counts of the writing statements, such as `insert turns`, sorted by kind.

    Args:
        counts: the counts or means of all statements, with the keys of `count_statements`.
    """
    return {kind: number for kind, number in sorted(counts.items()) if " " in kind}


def _kind(statement: str) -> str:
    if writes := _WRITES.findall(statement):
        return " + ".join(f"{_VERBS[verb.upper()]} {table}" for verb, table in writes)
    return "notify" if "pg_notify" in statement else "read"
