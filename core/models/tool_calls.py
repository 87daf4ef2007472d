"""Tool calls of models: arguments, ids, thought signatures, and code as Markdown.

JSON of a model, a person or a server is parsed by `parse_json`, or checked by `check_json`: within their limits, the
code that reads the values does not fail, and its work is bounded.

Only the vendor that made a thought signature can read it, and other vendors refuse a request with it. ADK stores it as
bytes without an owner. So each signature is stored with a prefix that names its provider, and a signature of another
provider is left out of the request. Gemini's signatures have no prefix: ADK's own Gemini class expects none.
"""

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice
from math import isfinite
from typing import Any, Literal, NoReturn, cast

from google.genai import types

from core.models.provider import Media, ModelMessage, Part, Text, Thought, ToolCall

#: Prefix of the tool's name in a call whose arguments are no JSON object. No such tool exists, so nothing runs, and the
#: model gets an error.
MALFORMED_CALL_PREFIX = "malformed_call_to_"

#: OpenAI: a call's id has at most 40 characters. Anthropic: at most 64.
MAX_ID_LENGTH = 40

#: The most characters of a JSON text, levels of nesting, and values. No vendor's answer has more than 128,000 tokens.
#: pydantic reads at most 200 levels, and an event adds some.
MAX_JSON_CHARACTERS, MAX_JSON_LEVELS, MAX_JSON_VALUES = 500_000, 100, 20_000

#: The most bits of an integer: Python converts no integer of over 4,300 digits to text.
MAX_INTEGER_BITS = 14_284

#: The most characters of a malformed call's arguments that the model and the history get.
_MAX_MALFORMED_CHARACTERS = 10_000

#: Start of the arguments of a malformed call that was over a limit; the reason follows.
_REFUSED = "(refused: "

_MARK = b"parley:"

_UNMARKED = "gemini"

_TICKS = re.compile("`{3,}")


class JsonLimitError(ValueError):
    """A JSON value is over a limit, or has a number that JSON cannot hold; the text is the reason."""

    def __init__(self, limit: Literal["characters", "depth", "values", "number"], reason: str) -> None:
        super().__init__(reason)
        self.limit: Literal["characters", "depth", "values", "number"] = limit


def parse_json(text: str) -> Any:
    """Return the value of a JSON text; control characters in strings are accepted.

    Raises:
        ValueError: the text is not JSON, or over a limit (`JsonLimitError`): see `check_json`.
    """
    if len(text) > MAX_JSON_CHARACTERS:
        raise JsonLimitError("characters", f"it has more than {MAX_JSON_CHARACTERS:,} characters")
    try:
        value = json.loads(text, strict=False, parse_constant=_refuse_constant)
    except RecursionError:
        raise _depth_error() from None
    check_json(value)
    return value


def _refuse_constant(_name: str) -> NoReturn:
    raise _number_error()


def check_json(value: Any, max_values: int = MAX_JSON_VALUES) -> None:
    """Check the limits of a value that was parsed from JSON.

    Raises:
        JsonLimitError: it has over `MAX_JSON_LEVELS` levels or `max_values` values, or a number that is not finite or
            too long.
    """
    level = [value]
    count = 1
    for depth in range(MAX_JSON_LEVELS + 1):
        for item in level:
            if isinstance(item, float) and not isfinite(item):
                raise _number_error()
            if isinstance(item, int) and item.bit_length() > MAX_INTEGER_BITS:
                raise _number_error()
        containers = [item for item in level if isinstance(item, dict | list | tuple)]
        if not containers:
            return
        if depth == MAX_JSON_LEVELS:
            raise _depth_error()
        items = chain.from_iterable(item.values() if isinstance(item, dict) else item for item in containers)
        level = list(islice(items, max_values + 1 - count))
        count += len(level)
        if count > max_values:
            raise JsonLimitError("values", f"it has more than {max_values:,} values")


def _depth_error() -> JsonLimitError:
    return JsonLimitError("depth", f"it has more than {MAX_JSON_LEVELS} levels of nesting")


def _number_error() -> JsonLimitError:
    return JsonLimitError("number", "it has NaN, an infinite number, or an integer of more than 4,300 digits")


def parse_call(call_id: str, name: str, arguments: str, *, is_truncated: bool) -> ToolCall | None:
    """Return the tool call with these arguments, a JSON text; an empty text and `null` are an empty object.

    If they are no JSON object within the limits of `check_json`, it is None after a token limit (`is_truncated`).
    Otherwise the call's name is `MALFORMED_CALL_PREFIX` followed by the tool's name, and its only argument,
    `arguments`, is the text, of which at most 10,000 characters are left.
    """
    read = _parse_object(arguments)
    if read is not None:
        return ToolCall(call_id, name, read)
    raw = {"arguments": arguments[:_MAX_MALFORMED_CHARACTERS]}
    return None if is_truncated else ToolCall(call_id, MALFORMED_CALL_PREFIX + name, raw)


def _parse_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object in a text; some servers send it as a text in JSON, or `null` for an empty one."""
    with suppress(ValueError):
        arguments = parse_json(text.strip() or "{}")
        if isinstance(arguments, str):
            arguments = parse_json(arguments.strip() or "{}")
        if arguments is None:
            return {}
        if isinstance(arguments, dict):
            return cast(dict[str, Any], arguments)
    return None


def refuse_malformed_arguments(call: types.FunctionCall) -> None:
    """Make a call with arguments over the limits of `check_json` a malformed one, in place: see `parse_call`."""
    try:
        check_json(call.args or {})
    except JsonLimitError as error:
        call.name = f"{MALFORMED_CALL_PREFIX}{call.name or ''}"
        call.args = {"arguments": f"{_REFUSED}{error})"}


def explain_malformed_call(call_name: str, arguments: Mapping[str, Any]) -> str:
    """Return the error for the model about a malformed call, with the fault of its arguments: see `parse_call`."""
    tool = call_name.removeprefix(MALFORMED_CALL_PREFIX)
    text = str(arguments.get("arguments", ""))
    if text.startswith(_REFUSED):
        fault = text.removeprefix(_REFUSED).removesuffix(")")
    else:
        try:
            parse_json(text)
            fault = "it is no JSON object"
        except json.JSONDecodeError as error:
            fault = f"{error.msg} at character {error.pos}"
        except ValueError as error:
            fault = str(error)
    return f"{tool} was not called: its arguments are no valid JSON object ({fault}). Call it again with valid JSON."


def mark_signature(signature: bytes | None, provider: str) -> bytes | None:
    """Return a thought signature for storage, with a prefix that names its provider; Gemini's get none."""
    return signature if signature is None or provider == _UNMARKED else _prefix(provider) + signature


def read_signature(signature: bytes | None) -> str:
    """Return the readable texts in a stored thought signature, one a line; empty if only its vendor can read it."""
    values: list[Any] = []
    with suppress(ValueError, RecursionError):
        values = [json.loads((signature or b"").removeprefix(_MARK).partition(b":")[2])]
    texts = list[str]()
    while values:
        value = values.pop()
        texts += [value] if isinstance(value, str) else []
        values += value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return "\n".join(texts)


def keep_own_signatures(messages: Iterable[ModelMessage], provider: str) -> list[ModelMessage]:
    """Return messages with only those thought signatures that one provider made, without their prefixes.

    Thoughts, and texts without characters, are dropped if they have no such signature: no vendor accepts another's
    thoughts or needs its own unsigned ones. Messages that become empty are dropped too.
    """
    own_messages = (
        replace(message, parts=tuple(own for part in message.parts for own in _own_part(part, provider)))
        for message in messages
    )
    return [message for message in own_messages if message.parts]


def _own_part(part: Part, provider: str) -> Iterable[Part]:
    if not isinstance(part, Text | Thought | Media | ToolCall):
        return (part,)
    signature = _own_signature(part.signature, provider)
    if signature is None and (isinstance(part, Thought) or (isinstance(part, Text) and not part.text)):
        return ()
    return (replace(part, signature=signature),)


def _own_signature(signature: bytes | None, provider: str) -> bytes | None:
    if signature is None:
        return None
    if provider == _UNMARKED:
        return None if signature.startswith(_MARK) else signature
    prefix = _prefix(provider)
    return signature.removeprefix(prefix) if signature.startswith(prefix) else None


def _prefix(provider: str) -> bytes:
    return _MARK + provider.encode() + b":"


def unique_id(call_id: str | None, tool_name: str, used_ids: set[str]) -> str:
    """Return a call id that is not in `used_ids`, and add it there; a taken one gets a number (`call_t_2`)."""
    base = call_id or f"call_{tool_name}"
    number = 1
    unique = base
    while unique in used_ids:
        number += 1
        unique = f"{base[: MAX_ID_LENGTH - 6]}_{number}"
    used_ids.add(unique)
    return unique


def format_value(value: Any) -> str:
    """Return a JSON value as Markdown: a string unchanged, any other as a code block."""
    return (
        value if isinstance(value, str) else fence_code(json.dumps(value, ensure_ascii=False, indent=2), "json").strip()
    )


def part_text(part: "types.Part") -> str:
    """Return the text of a part; code that the vendor ran, and its output, are Markdown code blocks."""
    if part.executable_code is not None:
        return fence_code(part.executable_code.code or "", "python")
    if part.code_execution_result is not None:
        return fence_code(part.code_execution_result.output or "")
    return part.text or ""


def fence_code(code: str, language: str = "") -> str:
    """Return code as a Markdown block between line feeds, with a fence longer than any in the code."""
    fence = "`" * (max(map(len, _TICKS.findall(code)), default=2) + 1)
    return f"\n{fence}{language}\n{code.rstrip()}\n{fence}\n"
