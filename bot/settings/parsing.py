"""What the values of settings are read as, and what is said of those that are wrong."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

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


def explain(error: ValidationError, fields: Mapping[str, FieldInfo]) -> Iterator[tuple[str, str]]:
    """Yield the field's name and a line for each fault, once each."""
    found = dict.fromkeys(
        (str(fault["loc"][0]), _line(fault, fields)) for fault in error.errors(include_input=False, include_url=False)
    )
    yield from found


def _line(fault: ErrorDetails, fields: Mapping[str, FieldInfo]) -> str:
    name = str(fault["loc"][0])
    kind, context = fault["type"], fault.get("ctx", {})
    limits = (f"{word} {context[limit]}" for limit, word in _LIMITS.items() if limit in context)
    if kind in _EXPECTED:
        default = fields[name].get_default()
        example = f", such as {default}" if isinstance(default, int | float | Decimal) and default else ""
        expected = f"it must be {_EXPECTED[kind]}{'' if isinstance(default, bool) else example}"
    elif kind == "string_pattern_mismatch":
        expected = f"it must be {fields[name].description}"
    elif kind == "literal_error":
        expected = f"it must be {context['expected']}"
    elif kind in _RANGES and (limit := next(limits, None)):
        expected = f"it must be {limit}"
    else:
        expected = fault["msg"].removeprefix("Value error, ")
    return f"{name.upper()}: {expected}"


#: Pydantic's kinds of values that do not parse.
_EXPECTED = {
    "float_parsing": "a number",
    "finite_number": "a number",
    "decimal_parsing": "a number of dollars",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "bool_parsing": "true or false",
}

_RANGES = frozenset({"greater_than", "greater_than_equal", "less_than", "less_than_equal"})

#: Pydantic's limits, in words.
_LIMITS = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}
