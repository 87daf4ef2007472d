"""Logging: formatters that add the turn's ids, redact secrets and escape controls."""

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

from core.observability.secret_redaction import get_run_secrets, redact_json_secrets, redact_secrets
from core.observability.tracing import get_current_turn, get_trace_id

LogFormat = Literal["console", "json"]

log = logging.getLogger(__name__)

#: Lowest level that is logged of a library.
_LIBRARY_LEVELS = {
    "aiohttp": logging.WARNING,
    "alembic": logging.WARNING,
    "discord": logging.CRITICAL,  # its errors have tracebacks; the bot logs the same without
    "google_adk": logging.CRITICAL,  # its errors quote the vendor; the bot logs the same without
    "google_genai": logging.WARNING,
    "httpx": logging.WARNING,
    "httpx2": logging.WARNING,
    "slack_bolt": logging.ERROR,
}

_LINE_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

#: Names of a record's attributes in JSON.
_JSON_FIELDS = {"asctime": "time", "levelname": "level", "name": "logger"}


#: Control characters, and Unicode's line separators and direction marks.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class RedactingFormatter(logging.Formatter):
    """Formatter of a log entry as one line that ends in the ids of the current turn.

    A traceback follows on indented lines, and so does the record's attribute `details`. Secrets in all are redacted.
    Control characters are escaped, so that text from outside cannot begin a line or control a terminal.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        ids = " ".join(f"{name}={value}" for name, value in _context_ids().items())
        return f"{super().formatMessage(record)} [{ids}]" if ids else super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        line = copy.copy(record)
        line.exc_info = line.exc_text = line.stack_info = None
        below = [self.formatException(record.exc_info)] if record.exc_info else []
        below += [text for text in (record.stack_info, getattr(record, "details", "")) if text]
        lines = [line_ for text in below for line_ in _redact(text).split("\n")]
        return "\n  ".join(_CONTROLS.sub(_escape, each) for each in (_redact(super().format(line)), *lines))


class RedactingJsonFormatter(JsonFormatter):
    """Formatter of a log entry as one line with a JSON object.

    Its keys are `time` (UTC), `level`, `logger` and `message`; `turn` and `session` while a turn runs, `trace` within a
    trace, `exc_info` for an exception, and `details` for that of a failed turn. Secrets are redacted before JSON's
    escapes could hide them.
    """

    def __init__(self) -> None:
        super().__init__(_LINE_FORMAT, rename_fields=_JSON_FIELDS, json_ensure_ascii=False)
        self.converter = time.gmtime
        self.default_time_format = "%Y-%m-%dT%H:%M:%S"
        self.default_msec_format = "%s.%03dZ"

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = _redact({**super().process_log_record(log_data), **_context_ids()})
        return found

    def format(self, record: logging.LogRecord) -> str:
        return _CONTROLS.sub(
            lambda found: f"\\u{ord(found[0]):04x}", super().format(record)
        )  # JSON does not escape all of them


def configure_logging(level: str, file: Path | None = None, log_format: LogFormat = "console") -> None:
    """Configure the log of the process, also for uncaught exceptions and warnings.

    `DEBUG` includes libraries. The file is emptied first; without one, the log goes to standard error.
    """
    handler = logging.StreamHandler() if file is None else logging.FileHandler(file, mode="w")
    handler.setFormatter(RedactingFormatter(_LINE_FORMAT) if log_format == "console" else RedactingJsonFormatter())
    if level.upper() != "DEBUG":
        handler.addFilter(_is_logged)  # on the handler: slack-bolt sets its loggers' levels itself
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_in_thread


def _redact(value: Any) -> Any:
    """Return a text or JSON value of a log entry without secrets of the process and the current run."""
    redacted = redact_secrets(value) if isinstance(value, str) else redact_json_secrets(value)
    return redacted if (secrets := get_run_secrets()) is None else secrets.mask(redacted)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _is_logged(record: logging.LogRecord) -> bool:
    return record.levelno >= _LIBRARY_LEVELS.get(record.name.partition(".")[0], 0)


def _context_ids() -> Mapping[str, str]:
    run = get_current_turn()
    trace = get_trace_id()
    ids = {"turn": run.turn, "session": run.session} if run is not None else {}
    return {**ids, "trace": trace} if trace else ids


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        log.critical("uncaught exception", exc_info=(kind, error, trace))


def _log_uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None:
        _log_uncaught(args.exc_type, args.exc_value, args.exc_traceback)
