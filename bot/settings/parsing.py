"""Parsers of the values of settings, and error messages for malformed values."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import NoDecode
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

SLACK_APPS = "https://api.slack.com/apps"


def validate_http_url(value: str) -> str:
    """Return a URL unchanged.

    Raises:
        ValueError: the value is no http(s) URL with a host.
    """
    try:
        parts = urlsplit(value)
        is_sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_sound = False
    if not is_sound:
        raise ValueError("it must be an http:// or https:// URL")
    return value


def validate_prefix(value: SecretStr, *, prefix: str, page: str) -> SecretStr:
    """Return a Slack token unchanged.

    Args:
        page: the page of the app's settings that has the token, for the error.

    Raises:
        ValueError: the token does not begin with `prefix`.
    """
    if not value.get_secret_value().startswith(prefix):
        raise ValueError(f"it must begin with {prefix}; copy it at {SLACK_APPS}, your app, under {page}")
    return value


def parse_ids(value: object, description: str) -> object:
    """Return a comma-separated text as a tuple of integers; any other value unchanged.

    Parts are stripped of spaces, and empty ones are left out.

    Args:
        description: text after "it must be" in the error message.

    Raises:
        ValueError: a part of the text has other characters than digits.
    """
    if not isinstance(value, str):
        return value
    parts = [part.strip() for part in value.split(",") if part.strip()]
    if not all(part.isdecimal() for part in parts):
        raise ValueError(f"it must be {description}")
    return tuple(int(part) for part in parts)


def split_commas(value: object) -> object:
    """Return a comma-separated text as a tuple of texts; any other value unchanged.

    Parts are stripped of spaces, and empty ones are left out.
    """
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


#: Validator of a setting with several values.
SPLIT_COMMAS = BeforeValidator(split_commas)

#: Settings that are comma-separated names, and http(s) URLs.
Names = Annotated[tuple[str, ...], NoDecode, SPLIT_COMMAS]
HttpUrl = Annotated[str, AfterValidator(validate_http_url)]


def read_utf8(file: Path) -> str:
    """Return the text of a file.

    Raises:
        ValueError: the file cannot be read, or is not UTF-8.
    """
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{file} is not UTF-8 text") from None
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({error.strerror})") from None


def validate_text_file(file: Path) -> Path:
    """Return the path of a text file unchanged.

    Raises:
        ValueError: the file cannot be read, is not UTF-8 or has only whitespace.
    """
    if not read_utf8(file).strip():
        raise ValueError(f"{file} is empty")
    return file


def get_secret_value(secret: SecretStr | None) -> str | None:
    """Return the text of a secret; None if it is unset or empty."""
    return secret.get_secret_value() if secret else None


def normalize_database_url(value: str) -> str:
    """Return a database's URL with its async driver; an empty one unchanged.

    Heroku's `postgres://` is accepted. The parameter `sslmode` becomes `ssl`, as asyncpg calls it.

    Raises:
        ValueError: the value is no URL of PostgreSQL or SQLite.
    """
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


def describe_errors(error: ValidationError, fields: Mapping[str, FieldInfo]) -> Iterator[tuple[str, str]]:
    """Yield a pair of field name and error line for each distinct error of pydantic.

    Args:
        fields: the fields of the settings, for their defaults and descriptions.

    Returns:
        The key of the field in `fields`, and a line for operators that names the setting and the expected value.
    """
    found = dict.fromkeys(
        (str(fault["loc"][0]), _describe_error(fault, fields))
        for fault in error.errors(include_input=False, include_url=False)
    )
    yield from found


def _describe_error(fault: ErrorDetails, fields: Mapping[str, FieldInfo]) -> str:
    name = str(fault["loc"][0])
    kind, context = fault["type"], fault.get("ctx", {})
    limits = (f"{word} {context[limit]}" for limit, word in _LIMIT_WORDS.items() if limit in context)
    if kind in _EXPECTED_TYPES:
        default = fields[name].get_default()
        example = f", such as {default}" if isinstance(default, int | float | Decimal) and default else ""
        expected = f"it must be {_EXPECTED_TYPES[kind]}{'' if isinstance(default, bool) else example}"
    elif kind == "string_pattern_mismatch":
        expected = f"it must be {fields[name].description}"
    elif kind == "literal_error":
        expected = f"it must be {context['expected']}"
    elif kind in _RANGE_ERRORS and (limit := next(limits, None)):
        expected = f"it must be {limit}"
    else:
        expected = fault["msg"].removeprefix("Value error, ")
    return f"{name.upper()}: {expected}"


#: Pydantic's error types of values that do not parse, and the expected type.
_EXPECTED_TYPES = {
    "float_parsing": "a number",
    "finite_number": "a number",
    "decimal_parsing": "a number of dollars",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "bool_parsing": "true or false",
}

_RANGE_ERRORS = frozenset({"greater_than", "greater_than_equal", "less_than", "less_than_equal"})

#: Pydantic's limits as words.
_LIMIT_WORDS = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}
