"""What the values of settings are read as, and what is said of those that are wrong."""

from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr, ValidationError
from pydantic_core import ErrorDetails
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from core.errors import SettingsError

SLACK_APPS = "https://api.slack.com/apps"


def address(value: str | None) -> str | None:
    try:
        parts = urlsplit(value or "http://unset")
        is_sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_sound = False
    if not is_sound:
        raise ValueError("it must be an http:// or https:// URL")
    return value


def begins(value: SecretStr | None, prefix: str, where: str) -> SecretStr | None:
    if value is not None and not value.get_secret_value().startswith(prefix):
        raise ValueError(f"it must begin with {prefix}; copy it at {SLACK_APPS}, your app, under {where}")
    return value


def ids(value: object, what: str) -> object:
    if not isinstance(value, str):
        return value
    parts = [part.strip() for part in value.split(",") if part.strip()]
    if not all(part.isdecimal() for part in parts):
        raise ValueError(f"it must be {what}")
    return tuple(int(part) for part in parts)


def several(value: object) -> object:
    """Names with commas in between."""
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{file} is not UTF-8 text") from None
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({error.strerror})") from None


def revealed(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret else None


def with_driver(value: str) -> str:
    """Heroku says `postgres://`; SQLAlchemy wants to be told the driver."""
    for prefix in ("postgres://", "postgresql://"):
        if value.startswith(prefix):
            value = f"postgresql+asyncpg://{value.removeprefix(prefix)}"
    if value.startswith("sqlite://"):
        value = f"sqlite+aiosqlite://{value.removeprefix('sqlite://')}"
    if value and not value.startswith(("postgresql+asyncpg://", "sqlite+aiosqlite://")):
        raise ValueError("it must be a postgresql:// or sqlite:/// URL")
    if value:
        try:
            url = make_url(value)
        except (ArgumentError, ValueError):
            raise ValueError("it is not a URL") from None
        if "sslmode" in url.query:  # libpq's name for what asyncpg calls `ssl`
            query = {"ssl" if name == "sslmode" else name: word for name, word in url.query.items()}
            value = url.set(query=query).render_as_string(hide_password=False)
    return value


def told(error: ValidationError) -> SettingsError:
    """What pydantic has found, a line a fault, each with the variable's name."""
    return SettingsError(*map(_line, error.errors(include_input=False)))


def _line(fault: ErrorDetails) -> str:
    variable = str(fault["loc"][0]).upper() if fault["loc"] else ""
    said = fault["msg"].removeprefix("Value error, ")
    return f"{variable}: {said}" if variable else said
