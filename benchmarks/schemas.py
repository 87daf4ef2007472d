"""Benchmark of hostile JSON of a model: `make bench-schemas [WIDTH=12]`.

The first table compares the form of a schema with a resolver that resolves each part again for each use. `WIDTH` is the
largest width for that resolver, whose time grows with the fourth power. *check* validates a filled form. The second
table has the parts of an approval for the largest arguments that a model may send.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from core.models.tool_calls import MAX_JSON_LEVELS, MAX_JSON_VALUES, parse_json
from core.observability.secret_redaction import ValuePath
from core.tools.adk_confirmations import find_secret_paths
from core.tools.question_form import MAX_FIELDS, schema_to_form, validate_form
from core.tools.shown_arguments import show_arguments

WIDTHS = (2, 5, 8, 12, 25, 100, 500)

MAX_WIDTH = 12


def create_bomb(width: int) -> dict[str, Any]:
    """Return a schema of `MAX_FIELDS` fields, each with `width**4` combinations."""

    def refer(name: str) -> dict[str, Any]:
        return {"allOf": [{"$ref": f"#/{name}"} for _ in range(width)]}

    definitions = {"a": refer("b"), "b": refer("c"), "c": refer("d"), "d": {"allOf": [{} for _ in range(width)]}}
    return {**definitions, "properties": {f"f{i}": {"$ref": "#/a"} for i in range(MAX_FIELDS)}}


def resolve_each_use(schema: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema merged with all that it refers to and combines; each part is resolved for each use."""
    if "$ref" in schema:
        return resolve_each_use(root[schema["$ref"].removeprefix("#/")], root)
    found = dict(schema)
    for part in found.pop("allOf", ()):
        found = {**resolve_each_use(part, root), **found}
    return found


def resolve_fields(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [resolve_each_use(field, schema) for field in schema["properties"].values()]


def measure(call: Callable[[], object]) -> float:
    """Return the shortest of three CPU times of a call, in ms."""
    times = []
    for _ in range(3):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return 1000 * min(times)


def create_arguments() -> dict[str, Any]:
    """Return arguments with most of the values and levels that a model may send, by the kind of their values."""
    count = MAX_JSON_VALUES - MAX_JSON_LEVELS - 10
    deep: Any = [0] * count
    for _ in range(MAX_JSON_LEVELS - 2):
        deep = [deep]
    return {"numbers": [0] * count, "texts": ["ab"] * count, "deep": deep, "one text": "x y " * 120_000}


def main(max_width: int) -> None:
    """Print both tables.

    Args:
        max_width: the largest width for the resolver that resolves each use.
    """
    print(f"{'schema: width':16}{'bytes':>10}{'each use, ms':>16}{'form, ms':>12}{'check, ms':>12}")
    for width in WIDTHS:
        schema = create_bomb(width)
        each_use = f"{measure(partial(resolve_fields, schema)):.1f}" if width <= max_width else "-"
        form = measure(partial(schema_to_form, schema))
        entries = {f"f{i}": f"text {i}" for i in range(MAX_FIELDS)}
        check = measure(partial(validate_form, schema_to_form(schema), entries))
        print(f"{width:<16}{len(json.dumps(schema)):>10,}{each_use:>16}{form:>12.1f}{check:>12.1f}")
    print(f"\n{'arguments':16}{'bytes':>10}{'parse, ms':>16}{'secrets, ms':>12}{'show, ms':>12}")
    parameters = {"properties": {"a": {}, "pin": {"format": "password"}}}
    for name, value in create_arguments().items():
        arguments = {"a": value, "pin": "1234"}
        text = json.dumps(arguments)
        parse = measure(partial(parse_json, text))
        secrets = measure(partial(find_secret_paths, parameters, arguments))
        show = measure(partial(show_arguments, arguments, frozenset[ValuePath]({("pin",)})))
        print(f"{name:16}{len(text):>10,}{parse:>16.1f}{secrets:>12.1f}{show:>12.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else MAX_WIDTH)
