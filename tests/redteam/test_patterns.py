"""Regular expressions over foreign text: each takes linear time."""

import importlib
import inspect
import pkgutil
import re
import string
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import regex  # type: ignore[import-untyped]  # it comes without types

import bot
import channels
import core
from channels.discord.text import remove_mentions as without_discord_mention
from channels.replies.tool_status import shorten_plain
from channels.slack.text import make_title
from channels.slack.text import remove_mention as without_slack_mention

#: Module of the local model's process: only it may import the model's runtime.
PROCESSES = frozenset({"core.models.providers.local_server"})

MAX_CHARACTERS = 40_000
MAX_SECONDS = 0.5

#: Patterns over the operator's files.
TRUSTED = frozenset({"bot.setup.env_file._ASSIGNMENT"})

#: Methods that search again after each match.
_SCANS = frozenset({"finditer", "findall", "sub", "subn", "split"})

_GENERIC = ("a", "0", "\u00e9", " ", "\t", "\n", *string.punctuation, "](", "<!--", "a.", "a-", "a ")

#: Length of the trial inputs, and the number of slowest ones that are tried at full length.
_SAMPLE, _WORST = MAX_CHARACTERS // 40, 4

#: CPython has no public parser for patterns.
_parser: Any = importlib.import_module("re._parser")
_compiler: Any = importlib.import_module("re._compiler")
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")


class UsedPattern(NamedTuple):
    """Regular expression, with the names of the methods that the code calls on it."""

    name: str
    pattern: Any
    calls: Collection[str]


def _list_modules() -> Iterator[ModuleType]:
    for package in (bot, channels, core):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            is_script = found.name.endswith("__main__") or found.name in PROCESSES
            if not is_script and ".migrations." not in found.name:
                yield importlib.import_module(found.name)


def _list_patterns(value: object) -> Iterator[Any]:
    """Yield the compiled patterns in the value of a module's attribute.

    Collections are searched, too.
    """
    if isinstance(value, (re.Pattern, regex.Pattern)):
        yield value
    elif isinstance(value, (Mapping, tuple, list, set, frozenset)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _list_patterns(item)


def _list_used_patterns() -> list[UsedPattern]:
    names: dict[int, str] = {}
    usage: dict[int, tuple[Any, set[str]]] = {}
    for module in _list_modules():
        for name, value in vars(module).items():
            for number, pattern in enumerate(_list_patterns(value)):
                names.setdefault(id(pattern), f"{module.__name__}.{name}" + (f"[{number}]" if number else ""))
                calls = re.findall(rf"\b{name}\.(\w+)\(", inspect.getsource(module))
                usage.setdefault(id(pattern), (pattern, set()))[1].update(calls)
    return [
        UsedPattern(names[key], pattern, calls or {"finditer", "fullmatch"}) for key, (pattern, calls) in usage.items()
    ]


def _create_sample(items: Iterable[tuple[Any, Any]]) -> tuple[str, list[tuple[str, str]]]:
    """Return a matching text of a parsed pattern, and samples of its parts.

    Args:
        items: the (code, argument) pairs of `re._parser`.

    Returns:
        The text, and (prefix, matching text) of each part.
    """
    pieces, parts = list[str](), list[tuple[str, str]]()
    for code, argument in items:
        piece, inner = _create_part_sample(str(code), argument)
        parts += [("".join(pieces) + head, part) for head, part in inner]
        pieces.append(piece)
    starts = range(len(pieces))
    runs = [(start, stop) for start in starts for stop in range(start + 1, len(pieces) + 1)]
    parts += [("".join(pieces[:start]), "".join(pieces[start:stop])) for start, stop in runs]
    return "".join(pieces), parts


def _create_part_sample(code: str, argument: Any) -> tuple[str, list[tuple[str, str]]]:
    match code:
        case "LITERAL":
            return chr(argument), []
        case "NOT_LITERAL" | "ANY" | "IN":
            fits = [char for char in "-" + string.printable if code == "ANY" or _is_match(code, argument, char)]
            return (fits or ["\u200b"])[0], [("", char) for char in (fits[:1] + fits[-1:])]
        case "SUBPATTERN":
            return _create_sample(argument[-1])
        case "ATOMIC_GROUP":
            return _create_sample(argument)
        case "ASSERT":
            return "", _create_sample(argument[1])[1]
        case "BRANCH":
            sampled = [_create_sample(branch) for branch in argument[1]]
            return sampled[0][0], [part for _, parts in sampled for part in parts]
        case _ if code in _REPEATS:
            text, parts = _create_sample(argument[2])
            return text * max(1, min(argument[0], 30)), [("", text), *parts]
        case _:
            return "", []


def _is_match(code: str, argument: Any, char: str) -> bool:
    if code != "IN":
        return chr(argument) != char
    one = _parser.parse("")
    one.data = [(_parser.IN, argument)]
    return _compiler.compile(one).match(char) is not None


def _create_inputs(pattern: Any, length: int) -> Iterator[str]:
    """Yield texts of this length that may make a pattern slow.

    Each has a prefix, a repeated matching part, and an end that does not match.
    """
    parts = dict.fromkeys(("", unit) for unit in _GENERIC)
    if isinstance(pattern, re.Pattern):
        found = _create_sample(_parser.parse(pattern.pattern, pattern.flags))[1]
        parts |= dict.fromkeys(part for head, unit in found if unit for part in (("", unit), (head, unit)))
    for head, unit in parts:
        for end in ("", "\x00"):
            yield head + _repeat_text(unit, length - len(head) - len(end)) + end
        if len(unit) > 1 and not head:
            yield from (_repeat_text(unit + sign, length) for sign in " -.a")
    for head in dict.fromkeys(head for head, _ in parts):
        yield from (head + _repeat_text(sign, length - len(head) - 1) + "\x00" for sign in _GENERIC)
    for sign in _GENERIC:
        yield from (
            _repeat_text(sign, length // 2) + _repeat_text("a", length // 2 - 1) + end for end in (sign[0], "\x00")
        )


def _repeat_text(unit: str, length: int) -> str:
    return (unit * (length // len(unit) + 1))[:length]


def _measure_cpu(usage: UsedPattern, text: str) -> float:
    subject: Any = text.encode() if isinstance(usage.pattern.pattern, bytes) else text
    began = time.process_time()
    for call in usage.calls:
        if call in _SCANS:
            list(usage.pattern.finditer(subject))
        else:
            getattr(usage.pattern, call)(subject)
    return time.process_time() - began


USED_PATTERNS = _list_used_patterns()


@pytest.mark.parametrize(
    "usage", [pytest.param(usage, id=usage.name) for usage in USED_PATTERNS if usage.name not in TRUSTED]
)
def test_each_regular_expression_runs_in_linear_time(usage: UsedPattern) -> None:
    timed = list[tuple[float, int]]()
    for number, text in enumerate(_create_inputs(usage.pattern, _SAMPLE)):
        timed.append((_measure_cpu(usage, text), number))
        assert timed[-1][0] < MAX_SECONDS, ascii(text[:100])
    worst = {number for _, number in sorted(timed)[-_WORST:]}
    for number, text in enumerate(_create_inputs(usage.pattern, MAX_CHARACTERS)):
        if number in worst:
            assert _measure_cpu(usage, text) < MAX_SECONDS, ascii(text[:100])


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda text: without_slack_mention(text, "U1"), id="slack mention"),
        pytest.param(lambda text: without_discord_mention(text, 1), id="discord mention"),
        pytest.param(make_title, id="slack title"),
        pytest.param(lambda text: shorten_plain(text, 100), id="name in an answer"),
    ],
)
@pytest.mark.parametrize("unit", [*_GENERIC, "<@U1|", "<@1", "<@U1> ", "<@1> ", "<@U", "a://"])
def test_reading_a_message_takes_linear_time(read: Callable[[str], object], unit: str) -> None:
    for end in ("", "\x00"):
        began = time.process_time()
        read(_repeat_text(unit, MAX_CHARACTERS - 1) + end)
        assert time.process_time() - began < MAX_SECONDS
