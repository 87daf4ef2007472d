"""Editor of `.env` that leaves every other byte of the file unchanged."""

import io
import re
from pathlib import Path

from dotenv import dotenv_values
from dotenv.parser import Binding, parse_stream

from core.errors import SettingsError
from core.store.atomic_write import write_atomically

#: First line of a new `.env`.
_HEADER = "# Written by `parley init`. See .env.example for all settings.\n"

#: Only the owner may read and write the file.
_FILE_MODE = 0o600

#: A value without quotes: Docker's `--env-file` takes quotes as part of the value.
_UNQUOTED = re.compile(r"[^\s'\"\\$`#][^\s'\"\\$`]*")

#: A setting with its value; the text before and after it stays.
_ASSIGNMENT = re.compile(
    r"""
    (?P<head> \s* (?:export[^\S\r\n]+)? [^=\#\s]+ ) [^\S\r\n]*
    (?: = [^\S\r\n]*
        (?: '(?:\\.|[^'\\])*' | "(?:\\.|[^"\\])*" | [^\r\n]*? (?= [^\S\r\n]+\# | [^\S\r\n]* (?:[\r\n]|\Z) ) )
    )?
    (?P<rest> .* )
    """,
    re.VERBOSE | re.DOTALL,
)


class EnvFile:
    """Editor of a `.env` file, which may not exist yet.

    Raises:
        SettingsError: the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._text = self._read()

    @property
    def values(self) -> dict[str, str]:
        """Values by setting name, as the settings parse them, without empty ones.

        The file was last read at the creation of this object, or by `set_value`.
        """
        found = dotenv_values(stream=io.StringIO(self._text))
        return {name: value for name, value in found.items() if value}

    def set_value(self, name: str, value: str) -> None:
        """Write `NAME=value` to the file.

        The line replaces an old value, or comes after the commented example of the setting, or at the end.

        Raises:
            SettingsError: the file cannot be written, or cannot contain this value; the file is unchanged.
        """
        before = self._read()  # it may have been edited meanwhile
        after = _with_value(before or _HEADER, name, value if _UNQUOTED.fullmatch(value) else _quote(value))
        if "${" in value or _parse_values(after) != {**_parse_values(before), name: value}:
            raise SettingsError(f"{name}: {self.path} cannot contain this value: edit the file by hand")
        try:
            write_atomically(self.path.resolve(), after.encode(), mode=_FILE_MODE)
        except OSError as error:
            raise SettingsError(f"{self.path}: it cannot be written ({error.strerror}); it is unchanged") from error
        self._text = after

    def _read(self) -> str:
        try:
            return self.path.read_bytes().decode()
        except FileNotFoundError:
            return ""
        except UnicodeDecodeError:
            raise SettingsError(f"{self.path}: it is not UTF-8 text: save it as UTF-8") from None
        except OSError as error:
            raise SettingsError(f"{self.path}: it cannot be read ({error.strerror})") from None


def _with_value(text: str, name: str, assignment: str) -> str:
    bindings = list(parse_stream(io.StringIO(text)))
    if any(binding.key == name for binding in bindings):
        return "".join(
            _replace_value(binding, assignment) if binding.key == name else binding.original.string
            for binding in bindings
        )
    example = re.search(rf"^#[^\S\r\n]*{name}=.*$", text, re.MULTILINE)
    at = example.end() if example else len(text)
    before = text[:at]
    after = text[at:].removeprefix("\n")
    return f"{before}{'' if before.endswith(chr(10)) or not before else chr(10)}{name}={assignment}\n{after}"


def _replace_value(binding: Binding, assignment: str) -> str:
    found = _ASSIGNMENT.fullmatch(binding.original.string)
    assert found is not None, "dotenv parsed it as a setting"
    return f"{found['head']}={assignment}{found['rest']}"


def _quote(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _parse_values(text: str) -> dict[str, str | None]:
    """Return the values in the text of a `.env` file, without expanding `${NAME}`."""
    return dict(dotenv_values(stream=io.StringIO(text), interpolate=False))
