"""Parsers of the values of settings, and error messages for malformed values."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import NoDecode

from core.errors import SettingsError
from core.observability.messages import describe_invalid_value

#: Prefixes of secrets that reveal nothing but their kind.
SECRET_PREFIX = re.compile(r"xox[a-z]-|xapp-|sk-ant-|sk-|AIza")

SLACK_APPS = "https://api.slack.com/apps"


def validate_http_url(value: str) -> str:
    """Return an http(s) URL with a host unchanged; raise a `ValueError` for any other value."""
    try:
        parts = urlsplit(value)
        is_sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_sound = False
    if not is_sound:
        raise ValueError("it must be an http:// or https:// URL")
    return value


def is_loopback(url: str) -> bool:
    """Return whether only this machine can reach a URL."""
    return urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")


def validate_prefix(value: SecretStr, *, prefix: str, page: str) -> SecretStr:
    """Return a Slack token unchanged; without its prefix, a `ValueError` names the page that has it."""
    if not value.get_secret_value().startswith(prefix):
        raise ValueError(f"it must begin with {prefix}; copy it at {SLACK_APPS}, your app, under {page}")
    return value


def parse_ids(value: object, description: str) -> object:
    """Return a comma-separated text as a tuple of integers; any other value unchanged.

    Args:
        description: text after "it must be" in the `ValueError` for a part with other characters than digits.
    """
    if not isinstance(value, str):
        return value
    parts = [part.strip() for part in value.split(",") if part.strip()]
    if not all(part.isdecimal() for part in parts):
        raise ValueError(f"it must be {description}")
    return tuple(int(part) for part in parts)


def split_commas(value: object) -> object:
    """Return a comma-separated text as a tuple of texts without empty ones; any other value unchanged."""
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


#: Validator of a setting with several values.
SPLIT_COMMAS = BeforeValidator(split_commas)

#: Settings that are comma-separated names, and http(s) URLs.
Names = Annotated[tuple[str, ...], NoDecode, SPLIT_COMMAS]
HttpUrl = Annotated[str, AfterValidator(validate_http_url)]


def read_utf8(file: Path) -> str:
    """Return the text of a file; raise a `ValueError` if it cannot be read or is not UTF-8."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{file} is not UTF-8 text") from None
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({error.strerror})") from None


def read_toml(file: Path, setting: str) -> dict[str, Any]:
    """Return the tables of a TOML file; the `SettingsError` about a file that cannot be read names its setting."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{setting}={file}: it cannot be read ({error.strerror})") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file}: it is not TOML: {_find_error_position(error)}") from None
    except ValueError:
        raise SettingsError(f"{file}: it is not UTF-8 text: save it as UTF-8") from None


def _find_error_position(error: tomllib.TOMLDecodeError) -> str:
    found = re.search(r"\(at (line \d+, column \d+|end of document)\)", str(error))
    return found[1] if found else "look at its brackets and quotation marks"


def validate_text_file(file: Path) -> Path:
    """Return the path of a text file unchanged; raise a `ValueError` if it has no text."""
    if not read_utf8(file).strip():
        raise ValueError(f"{file} is empty")
    return file


def get_secret_value(secret: SecretStr | None) -> str | None:
    """Return the text of a secret; None if it is unset or empty."""
    return secret.get_secret_value() if secret else None


def describe_errors(error: ValidationError, fields: Mapping[str, FieldInfo]) -> Iterator[tuple[str, str]]:
    """Yield a pair of field name and error line for each distinct error of pydantic.

    The line is for operators: it names the setting, the expected value and the value. Of a secret it has only the kind,
    such as `xoxb-`; of a URL, no user and password.
    """
    found = dict.fromkeys((str(fault["loc"][0]), _describe_error(fault, fields)) for fault in error.errors())
    yield from found


def _describe_error(fault: ErrorDetails, fields: Mapping[str, FieldInfo]) -> str:
    name = str(fault["loc"][0])
    value = str(fault["input"])
    field = fields[name]
    if "SecretStr" in repr(field.annotation):
        kind = SECRET_PREFIX.match(value)
        fault["input"] = f"{kind[0] if kind else ''}…"
    elif name.endswith("_url") and "@" in value:
        fault["input"] = f"…@{value.rpartition('@')[2]}"  # without user and password, perhaps malformed
    default = field.get_default()
    is_number = isinstance(default, int | float | Decimal) and not isinstance(default, bool)
    line = describe_invalid_value(fault, rule=field.description, example=default if is_number else None)
    return f"{name.upper()}: {line}"
