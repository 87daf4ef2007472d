"""Logs: one line an entry on the standard error, without secrets."""

import logging

from core.secrets import redact

#: Libraries of which only what goes wrong is of interest, from this level on.
_QUIET = {
    "alembic": logging.WARNING,
    "google_adk": logging.WARNING,
    "google_genai": logging.WARNING,
    "httpx": logging.WARNING,
    "httpx2": logging.WARNING,
    "slack_bolt": logging.ERROR,
}


class RedactingFormatter(logging.Formatter):
    """Redacts the whole entry, what was raised included."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


def configure(level: str) -> None:
    """Log from `level` on; on DEBUG, everything that the libraries say as well."""
    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    if level.upper() != "DEBUG":
        handler.addFilter(_is_of_interest)  # on the handler: slack-bolt sets its loggers' levels itself
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _is_of_interest(record: logging.LogRecord) -> bool:
    return record.levelno >= _QUIET.get(record.name.partition(".")[0], 0)
