"""Logging: one line per entry with the turn's ids, without secrets and control characters."""

import copy
import logging
import re
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from pythonjsonlogger.json import JsonFormatter

from core.observability.tracing import get_current_turn, get_trace_id
from core.secret_redaction import mask_json, redact_secrets

Format = Literal["console", "json"]

log = logging.getLogger(__name__)

#: Libraries of which only what goes wrong is of interest, from this level on.
_QUIET = {
    "aiohttp": logging.WARNING,
    "alembic": logging.WARNING,
    "discord": logging.CRITICAL,  # its errors come with stack traces; ours say the same without
    "google_adk": logging.CRITICAL,  # its errors come with the vendor's own words; ours say the same without
    "google_genai": logging.WARNING,
    "httpx": logging.WARNING,
    "httpx2": logging.WARNING,
    "slack_bolt": logging.ERROR,
}

_PLAIN = "%(asctime)s %(levelname)s %(name)s: %(message)s"

#: What an entry in JSON has of what Python knows of it, and what it is called there.
_FIELDS = {"asctime": "time", "levelname": "level", "name": "logger"}


#: Control characters, and those by which Unicode breaks lines or turns their direction.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class RedactingFormatter(logging.Formatter):
    """Formats an entry as one line that ends in the turn's ids, with an indented traceback below.

    Both are redacted, and control characters are escaped, so that text from outside neither begins a line nor drives a
    terminal.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        ids = " ".join(f"{name}={value}" for name, value in _ids().items())
        return f"{super().formatMessage(record)} [{ids}]" if ids else super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        line = copy.copy(record)
        line.exc_info = line.exc_text = line.stack_info = None
        below = [self.formatException(record.exc_info)] if record.exc_info else []
        below += [record.stack_info] if record.stack_info else []
        lines = [each for text in below for each in redact_secrets(text).split("\n")]
        return "\n  ".join(_CONTROLS.sub(_escaped, each) for each in (redact_secrets(super().format(line)), *lines))


class RedactingJsonFormatter(JsonFormatter):
    """An object a line, redacted before it is written: what JSON escapes looks like no secret any more."""

    def __init__(self) -> None:
        super().__init__(_PLAIN, rename_fields=_FIELDS, json_ensure_ascii=False)
        self.converter = time.gmtime
        self.default_time_format, self.default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = mask_json({**super().process_log_record(log_data), **_ids()})
        return found

    def format(self, record: logging.LogRecord) -> str:
        return _CONTROLS.sub(
            lambda found: f"\\u{ord(found[0]):04x}", super().format(record)
        )  # JSON leaves some as they are


def configure(level: str, file: Path | None = None, style: Format = "console") -> None:
    """Log from `level` on; on DEBUG, everything that the libraries say as well. What nobody has caught, and what
    Python warns of, is logged as everything else.

    Args:
        file: where to, if not to the standard error.
        style: lines to be read, or JSON.
    """
    handler = logging.StreamHandler() if file is None else logging.FileHandler(file, mode="w")
    handler.setFormatter(RedactingFormatter(_PLAIN) if style == "console" else RedactingJsonFormatter())
    if level.upper() != "DEBUG":
        handler.addFilter(_is_of_interest)  # on the handler: slack-bolt sets its loggers' levels itself
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _is_of_interest(record: logging.LogRecord) -> bool:
    return record.levelno >= _QUIET.get(record.name.partition(".")[0], 0)


def _ids() -> Mapping[str, str]:
    """What an entry is about, as far as that is known where it is written."""
    run, trace = get_current_turn(), get_trace_id()
    ids = {"turn": run.turn, "session": run.session} if run is not None else {}
    return {**ids, "trace": trace} if trace else ids


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        log.critical("this was not to happen", exc_info=(kind, error, trace))


def _uncaught_in_thread(told: threading.ExceptHookArgs) -> None:
    if told.exc_value is not None:
        _uncaught(told.exc_type, told.exc_value, told.exc_traceback)
