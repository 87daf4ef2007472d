"""Tool calls of models: arguments, ids, thought signatures, and code as Markdown.

Only the vendor that made a thought signature can read it, and other vendors refuse a request with it. ADK stores it as
bytes without an owner. So each signature is stored with a prefix that names its provider, and a signature of another
provider is left out of the request. Gemini's signatures have no prefix: ADK's own Gemini class expects none.
"""

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from google.genai import types

from core.models.provider import Media, ModelMessage, Part, Text, Thought, ToolCall

#: Prefix of the tool's name in a call whose arguments are no JSON object. No such tool exists, so nothing runs, and the
#: model gets an error.
MALFORMED_CALL_PREFIX = "malformed_call_to_"

#: OpenAI: a call's id has at most 40 characters. Anthropic: at most 64.
MAX_ID_LENGTH = 40

_MARK = b"parley:"

_UNMARKED = "gemini"

_TICKS = re.compile("`{3,}")


def parse_call(call_id: str, name: str, arguments: str, *, is_truncated: bool) -> ToolCall | None:
    """Return the tool call with these arguments, a JSON text.

    If they are no JSON object, and `is_truncated` is False, the call's name is `MALFORMED_CALL_PREFIX` followed by the
    tool's name. Its only argument, `arguments`, is then the text.

    Args:
        call_id: the id of the call.
        name: the name of the tool.
        arguments: the arguments as JSON; an empty text is an empty object.
        is_truncated: whether a token limit ended the answer.

    Returns:
        The call; None if `is_truncated` and the arguments are no JSON object.
    """
    read = _parse_object(arguments)
    if read is not None:
        return ToolCall(call_id, name, read)
    return None if is_truncated else ToolCall(call_id, MALFORMED_CALL_PREFIX + name, {"arguments": arguments})


def _parse_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a text contains; None if it is no JSON object.

    An empty text is an empty object.
    """
    with suppress(ValueError):
        arguments = json.loads(text.strip() or "{}", strict=False)
        if isinstance(arguments, dict):
            return cast(dict[str, Any], arguments)
    return None


def mark_signature(signature: bytes | None, provider: str) -> bytes | None:
    """Return a thought signature with a prefix that names its provider, for storage.

    None for None. Gemini's signatures get no prefix.
    """
    return signature if signature is None or provider == _UNMARKED else _prefix(provider) + signature


def keep_own_signatures(messages: Iterable[ModelMessage], provider: str) -> list[ModelMessage]:
    """Return messages with only those thought signatures that one provider made.

    The prefixes of `mark_signature` are removed. Thoughts, and texts without characters, are dropped if they have no
    such signature: no vendor accepts another's thoughts or needs its own unsigned ones. Messages that become empty are
    dropped too.
    """
    own_messages = (
        replace(message, parts=tuple(own for part in message.parts for own in _own_part(part, provider)))
        for message in messages
    )
    return [message for message in own_messages if message.parts]


def _own_part(part: Part, provider: str) -> Iterable[Part]:
    """Return a part in a tuple, without the signature of another provider.

    The tuple is empty for a thought, or a text without characters, that then has no signature: the provider would
    refuse it.

    Args:
        provider: the name of the provider that gets the message.
    """
    if not isinstance(part, Text | Thought | Media | ToolCall):
        return (part,)
    signature = _own_signature(part.signature, provider)
    if signature is None and (isinstance(part, Thought) or (isinstance(part, Text) and not part.text)):
        return ()
    return (replace(part, signature=signature),)


def _own_signature(signature: bytes | None, provider: str) -> bytes | None:
    """Return a thought signature without its prefix; None if another provider made it."""
    if signature is None:
        return None
    if provider == _UNMARKED:
        return None if signature.startswith(_MARK) else signature
    prefix = _prefix(provider)
    return signature.removeprefix(prefix) if signature.startswith(prefix) else None


def _prefix(provider: str) -> bytes:
    return _MARK + provider.encode() + b":"


def unique_id(call_id: str | None, tool_name: str, used_ids: set[str]) -> str:
    """Return a tool call's id that is not in `used_ids`, and add it to `used_ids`.

    It is `call_id`, or `call_` and the tool's name without one. If that is in `used_ids`, a number from 2 on is
    appended to its first 34 characters: `call_t_2`.
    """
    base = call_id or f"call_{tool_name}"
    number, unique = 1, base
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
    """Return the text of a part; for code that the vendor ran, a Markdown code block.

    The output of such code is a code block too: see `fence_code`. For any other part without text, it is empty.
    """
    if part.executable_code is not None:
        return fence_code(part.executable_code.code or "", "python")
    if part.code_execution_result is not None:
        return fence_code(part.code_execution_result.output or "")
    return part.text or ""


def fence_code(code: str, language: str = "") -> str:
    """Return code as a Markdown code block, with a fence longer than any in the code.

    A line feed is before and after the block. White space at the end of the code is left out.
    """
    fence = "`" * (max(map(len, _TICKS.findall(code)), default=2) + 1)
    return f"\n{fence}{language}\n{code.rstrip()}\n{fence}\n"
