"""One-time work of the bot, shared by all tests of a process and its forks."""

from collections.abc import Callable
from functools import cache
from typing import Any

from sqlalchemy.engine import Dialect
from sqlalchemy.sql.elements import ClauseElement

from channels.i18n import messages as words
from core.store.fast_path import PreparedStatement, Statement
from core.usage import prices
from tests.fixtures import certificates


def share_one_time_work(patch: Callable[[Any, str, Any], None] = setattr) -> None:
    """Patch the bot's modules so that slow one-time work is done once per process.

    Shared are certificates, prices, compiled statements and the registered locales.

    Args:
        patch: replaces an attribute of a module or class.
    """
    compile_for, known = Statement.compile_for, dict[tuple[Statement, str], PreparedStatement]()
    compiled = ClauseElement._compile_w_cache
    caches = dict[str, tuple[Dialect, dict[Any, Any]]]()

    def compile_once(self: Statement, dialect: Dialect) -> PreparedStatement:
        key = (self, dialect.name)
        if key not in known:
            known[key] = compile_for(self, dialect)
        return known[key]

    def compile_with_shared_cache(self: ClauseElement, dialect: Dialect, **how: Any) -> Any:
        """Compile a statement with a cache for all engines: each test has its own engine."""
        dialect, how["compiled_cache"] = caches.setdefault(dialect.name, (dialect, {}))
        return compiled(self, dialect, **how)

    read, read_once = prices._read_file, cache(prices._read_file)
    certificates.share_tls_contexts(patch)
    patch(prices, "_read_file", lambda file: (read_once if file == prices._DEFAULT_FILE else read)(file))
    patch(words, "find_language", cache(words.find_language))
    patch(Statement, "compile_for", compile_once)
    patch(ClauseElement, "_compile_w_cache", compile_with_shared_cache)
