"""Logs: one line an entry, without secrets."""

import logging
from pathlib import Path

from core.secrets import redact

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


class RedactingFormatter(logging.Formatter):
    """Redacts the whole entry, what was raised included."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


def configure(level: str, file: Path | None = None) -> None:
    """Log from `level` on; on DEBUG, everything that the libraries say as well.

    Args:
        file: where to, if not to the standard error.
    """
    handler = logging.StreamHandler() if file is None else logging.FileHandler(file, mode="w")
    handler.setFormatter(RedactingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    if level.upper() != "DEBUG":
        handler.addFilter(_is_of_interest)  # on the handler: slack-bolt sets its loggers' levels itself
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _is_of_interest(record: logging.LogRecord) -> bool:
    return record.levelno >= _QUIET.get(record.name.partition(".")[0], 0)
