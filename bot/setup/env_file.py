"""`.env`, as it is read and as it is written: what is not changed stays as it is, to the byte."""

import io
import re
from pathlib import Path

from dotenv import dotenv_values
from dotenv.parser import Binding, parse_stream

from core.errors import SettingsError
from core.store.atomic_write import write_atomically

#: What a file begins with that was not there.
_HEAD = "# Written by `parley init`. What else can be set, and what it means, stands in .env.example.\n"

#: Nobody but who writes it is to read it.
_MODE = 0o600

#: What needs no quotes. Docker's `--env-file` would take them for a part of the value.
_BARE = re.compile(r"[^\s'\"\\$`#][^\s'\"\\$`]*")

#: A setting with its value: what stands before it and behind it is kept.
_SET = re.compile(
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
    """A file of settings that may not be there yet.

    Raises:
        SettingsError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._text = self._read()

    @property
    def values(self) -> dict[str, str]:
        """What stands in it, as the settings read it."""
        found = dotenv_values(stream=io.StringIO(self._text))
        return {name: value for name, value in found.items() if value}

    def put(self, name: str, value: str) -> None:
        """Have it say `NAME=value`, where it said something else or has an example of it, or else at its end.

        Raises:
            SettingsError: it cannot be written, or cannot hold this; it is as it was.
        """
        before = self._read()  # somebody may have an editor open beside
        after = _with(before or _HEAD, name, value if _BARE.fullmatch(value) else _quoted(value))
        if "${" in value or _plain(after) != {**_plain(before), name: value}:
            raise SettingsError(f"{name}: {self.path} cannot hold it: write it there by hand")
        try:
            write_atomically(self.path.resolve(), after.encode(), mode=_MODE)
        except OSError as error:
            raise SettingsError(f"{self.path}: it cannot be written ({error.strerror}); it is as it was") from error
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


def _with(text: str, name: str, written: str) -> str:
    bindings = list(parse_stream(io.StringIO(text)))
    if any(each.key == name for each in bindings):
        return "".join(_set(each, written) if each.key == name else each.original.string for each in bindings)
    example = re.search(rf"^#[^\S\r\n]*{name}=.*$", text, re.MULTILINE)
    at = example.end() if example else len(text)
    before, behind = text[:at], text[at:].removeprefix("\n")
    return f"{before}{'' if before.endswith(chr(10)) or not before else chr(10)}{name}={written}\n{behind}"


def _set(binding: Binding, written: str) -> str:
    found = _SET.fullmatch(binding.original.string)
    assert found is not None, "it was read as a setting"
    return f"{found['head']}={written}{found['rest']}"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _plain(text: str) -> dict[str, str | None]:
    """What stands there, with nothing put in the place of `${NAME}`."""
    return dict(dotenv_values(stream=io.StringIO(text), interpolate=False))
