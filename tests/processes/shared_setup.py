"""Shared one-time work of the bot, for all tests of a process and its forks."""

from collections.abc import Callable
from functools import cache
from typing import Any

from sqlalchemy.engine import Dialect
from sqlalchemy.sql.elements import ClauseElement

from channels.i18n import messages as words
from core.usage import prices
from tests.fixtures import certificates


def share_one_time_work(patch: Callable[[Any, str, Any], None] = setattr) -> None:
    """Patch the bot's modules so that slow one-time work is done once per process.

    They share certificates, prices, compiled statements and the registered locales.

    Args:
        patch: replaces an attribute of a module or class.
    """
    compile_with_cache = ClauseElement._compile_w_cache
    caches = dict[str, tuple[Dialect, dict[Any, Any]]]()

    def compile_with_shared_cache(self: ClauseElement, dialect: Dialect, **kwargs: Any) -> Any:
        """Compile a statement with a cache for all engines: each test has its own engine."""
        dialect, kwargs["compiled_cache"] = caches.setdefault(dialect.name, (dialect, {}))
        return compile_with_cache(self, dialect, **kwargs)

    read, read_once = prices._read_file, cache(prices._read_file)
    certificates.share_tls_contexts(patch)
    patch(prices, "_read_file", lambda file: (read_once if file == prices._DEFAULT_FILE else read)(file))
    patch(words, "find_language", cache(words.find_language))
    patch(ClauseElement, "_compile_w_cache", compile_with_shared_cache)
