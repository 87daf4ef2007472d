"""Structured output: the JSON that an agent with an `output_schema` answers, among other text.

ADK reads the whole text of an answer as JSON. Models write sentences, drafts or code fences around it.
"""

import re
from collections.abc import Callable, Iterator
from json import JSONDecoder
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import LlmResponse
from google.genai import types
from pydantic import TypeAdapter

from core.models.messages import get_response_schema
from core.tools.json_schema import AnswerValidator, SchemaError, UncheckableError

#: Beginning of a JSON object or list, unlike `{name}` and `[name]` in prose.
_JSON_START = re.compile(r'\{\s*["}]|\[\s*(?:["\[\]{\d-]|true|false|null)')

#: Tokens that nest, and JSON strings, whose brackets do not.
_NESTING = re.compile(r'"(?:\\.|[^"\\\n])*"|[\[\]{}]')

#: An empty code fence: ADK removes the fence around a text that has nothing else.
_EMPTY_FENCE = re.compile(r"```\w*\s*```")

_DECODER = JSONDecoder()


def remove_text_around_output(agent: object, response: LlmResponse) -> None:
    """Change the text of a complete answer to the JSON in it, in place, if its agent has an `output_schema`.

    An answer with tool calls stays, and so does one without JSON that fits the schema: ADK refuses it. Partial answers
    stay: the complete answer replaces them.
    """
    if not isinstance(agent, LlmAgent) or not agent.output_schema or response.partial or response.content is None:
        return
    if agent.mode == "task":  # ADK: its texts are for the user, and a tool call has the output
        return
    parts = response.content.parts or []
    if any(part.function_call for part in parts):
        return
    texts = [part for part in parts if part.text and not part.thought]
    found = find_json("".join(part.text or "" for part in texts), agent.output_schema)
    if found is not None:
        texts[0].text = found
        others = set(map(id, texts[1:]))
        response.content.parts = [part for part in parts if id(part) not in others]


def find_json(text: str, schema: Any) -> str | None:
    """Return the last JSON object or list in a text that fits an agent's `output_schema`.

    None if the text has nothing else, apart from a code fence around it. A part of a larger JSON value, or of one that
    is damaged, is not returned.
    """
    fits = _create_check(schema)
    fitting = [span for span in _iterate_json(text) if fits(text[span])]
    if not fitting:
        return None
    around = (text[: fitting[-1].start] + text[fitting[-1].stop :]).strip()
    return text[fitting[-1]] if around and not _EMPTY_FENCE.fullmatch(around) else None


def _iterate_json(text: str) -> Iterator[slice]:
    """Yield the spans of the JSON objects and lists in a text that are not in another one."""
    position = 0
    while (start := _JSON_START.search(text, position)) is not None:
        try:
            _, position = _DECODER.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            position = _find_end(text, start.start())
        else:
            yield slice(start.start(), position)


def _find_end(text: str, start: int) -> int:
    depth = 0
    for token in _NESTING.finditer(text, start):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(token[0], 0)
        if not depth:
            return token.end()
    return len(text)


def _create_check(schema: Any) -> Callable[[str], bool]:
    """Return a function that tells whether a JSON text fits a schema; False too if that cannot be checked."""

    def fits_type(text: str) -> bool:
        try:
            adapter.validate_json(text)
        except Exception:  # an agent's own validators may raise anything
            return False
        return True

    def fits_schema(text: str) -> bool:
        try:
            return not validator.find_errors(_DECODER.decode(text))
        except UncheckableError:
            return False

    if not isinstance(schema, dict | types.Schema):
        adapter = TypeAdapter[Any](schema)
        return fits_type
    try:
        validator = AnswerValidator(get_response_schema(types.GenerateContentConfig(response_schema=schema)))
    except SchemaError:  # ADK does not check an answer against such a schema
        return lambda _text: True
    return fits_schema
