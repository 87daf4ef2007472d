"""Validation of request bodies by Discord's published specification.

`request_schemas.json` is derived from it (`python -m chatrig.discord.schema_table`). Discord ignores unknown fields.
The error codes are those that Discord's clients report; the specification does not list them.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from chatrig.discord.api.requests import INVALID_FORM_BODY, INVALID_JSON, DiscordError

SCHEMAS_FILE = Path(__file__).with_name("request_schemas.json")

Schema = Mapping[str, Any]
#: Errors of one value by their path.
Errors = dict[tuple[str, ...], tuple[str, str]]

_SNOWFLAKE = re.compile(r"0|[1-9][0-9]*")
_URI = re.compile(r"(https?|attachment|discord)://\S+")
_TYPES: Mapping[str, tuple[tuple[type, ...], str, str]] = {
    "string": ((str,), "STRING_TYPE_CONVERT", "Could not interpret this as string."),
    "integer": ((int,), "NUMBER_TYPE_COERCE", "Value is not int."),
    "number": ((int, float), "NUMBER_TYPE_COERCE", "Value is not float."),
    "boolean": ((bool,), "BOOLEAN_TYPE_CONVERT", "Must be either true or false."),
    "array": ((list,), "LIST_TYPE_CONVERT", "Only iterables may be used in a ListType"),
    "object": ((dict,), "MODEL_TYPE_CONVERT", "Only dictionaries may be used in a ModelType"),
}


@cache
def load_schemas() -> Mapping[str, Any]:
    """Return the content of `request_schemas.json`.

    Returns:
        `all_routes`: the names of Discord's routes. `routes`: the schema by route of the simulator. `schemas`: the
        schema by name.
    """
    schemas: Mapping[str, Any] = json.loads(SCHEMAS_FILE.read_text())
    return schemas


def normalize_route(route: str) -> str:
    """Return a route with `{}` in place of each placeholder, such as `{channel}`.

    Discord's specification has other names for the placeholders.
    """
    return re.sub(r"\{\w+\}", "{}", route)


def list_unmodelled_routes(modelled: Iterable[str]) -> list[str]:
    """Return Discord's routes that are not among the modelled ones.

    They are named as in `all_routes`. To compare, the names of placeholders are ignored, and `@original` counts as one.
    """
    known = set(map(normalize_route, modelled))
    routes: list[str] = load_schemas()["all_routes"]
    return [route for route in routes if normalize_route(route.replace("@original", "{message}")) not in known]


def check_body(route: str, body: Any) -> None:
    """Check the JSON body of a request by the schema of its route.

    A route without a schema accepts any body.

    Raises:
        DiscordError: 50035 with the errors of all fields; 50109, the body is not an object.
    """
    schema = load_schemas()["routes"].get(normalize_route(route))
    errors = {} if schema is None else _check(body, schema, ())
    if () in errors and "object" in (schema or {}).get("type", ("object",)):
        raise DiscordError(400, INVALID_JSON, "The request body contains invalid JSON.")
    if errors:
        raise DiscordError(400, INVALID_FORM_BODY, "Invalid Form Body", _nest(errors))


def _nest(errors: Errors) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for path, (code, message) in errors.items():
        place = nested
        for name in path:
            place = place.setdefault(name, {})
        place["_errors"] = [{"code": code, "message": message}]
    return nested


def _check(value: Any, schema: Schema, path: tuple[str, ...]) -> Errors:
    if (name := schema.get("ref")) is not None:
        return _check(value, load_schemas()["schemas"][name], path)
    if (branches := schema.get("any")) is not None:
        return _check_union(value, branches, path)
    types: Sequence[str] = schema.get("type", ())
    if value is None:
        return {} if not types or "null" in types else {path: ("BASE_TYPE_REQUIRED", "This field is required")}
    return (
        _check_type(value, types, path)
        or _check_choice(value, schema, path)
        or _check_size(value, schema, path)
        or _check_parts(value, schema, path)
    )


def _check_type(value: Any, types: Sequence[str], path: tuple[str, ...]) -> Errors:
    if "snowflake" in types:
        # discord.py sends some ids as numbers, and Discord accepts them.
        is_id = not isinstance(value, bool) and _SNOWFLAKE.fullmatch(str(value))
        return {} if is_id else {path: ("NUMBER_TYPE_COERCE", f'Value "{value}" is not snowflake.')}
    if "integer" in types and isinstance(value, float) and value.is_integer():
        # discord.py sends the hours of a poll as 1.0; JSON Schema counts that as an integer.
        return {}
    expected = [_TYPES[name] for name in types if name != "null"]
    for classes, *_ in expected:
        if isinstance(value, classes) and (not isinstance(value, bool) or bool in classes):
            return {}
    return {path: expected[0][1:]} if expected else {}


def _check_choice(value: Any, schema: Schema, path: tuple[str, ...]) -> Errors:
    if "enum" not in schema or value in schema["enum"]:
        return {}
    choices = ", ".join(map(repr, schema["enum"]))
    return {path: ("BASE_TYPE_CHOICES", f"Value must be one of ({choices}).")}


def _check_size(value: Any, schema: Schema, path: tuple[str, ...]) -> Errors:
    if isinstance(value, str | list):
        minimum, maximum = (schema.get(f"{word}Length", schema.get(f"{word}Items")) for word in ("min", "max"))
        if len(value) < (minimum or 0) or (maximum is not None and len(value) > maximum):
            if not minimum:
                return {path: ("BASE_TYPE_MAX_LENGTH", f"Must be {maximum} or fewer in length.")}
            message = f"Must be {minimum} or more in length." if maximum is None else ""
            return {path: ("BASE_TYPE_BAD_LENGTH", message or f"Must be between {minimum} and {maximum} in length.")}
    if isinstance(value, str) and schema.get("format") == "uri" and value and not _URI.fullmatch(value):
        return {path: ("URL_TYPE_INVALID_URL", "Not a well formed URL.")}
    if isinstance(value, int | float):
        if value < schema.get("minimum", value):
            return {path: ("NUMBER_TYPE_MIN", f"int value should be greater than or equal to {schema['minimum']}.")}
        if value > schema.get("maximum", value):
            return {path: ("NUMBER_TYPE_MAX", f"int value should be less than or equal to {schema['maximum']}.")}
    return {}


def _check_parts(value: Any, schema: Schema, path: tuple[str, ...]) -> Errors:
    errors: Errors = {}
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            errors |= _check(item, schema["items"], (*path, str(number)))
    if isinstance(value, dict):
        for name in schema.get("required", ()):
            if name not in value:
                errors[*path, name] = ("BASE_TYPE_REQUIRED", "This field is required")
        for name, about in schema.get("properties", {}).items():
            if name in value:
                errors |= _check(value[name], about, (*path, name))
    return errors


def _check_union(value: Any, branches: Sequence[Schema], path: tuple[str, ...]) -> Errors:
    """Return the errors of a value that must match one of several schemas.

    The value's `type` selects the schema if each has its own. Otherwise there are no errors if one schema matches; else
    they are those of the schema whose errors lie deepest in the value.

    Args:
        branches: the schemas.
        path: the path of the value in the body.
    """
    objects = [resolved for branch in branches if "object" in (resolved := _resolve(branch)).get("type", ())]
    kinds = [_resolve(about.get("properties", {}).get("type", {})).get("enum") for about in objects]
    if isinstance(value, dict) and len(objects) > 1 and all(kinds):
        for about, kind in zip(objects, kinds, strict=True):
            if value.get("type") in (kind or ()):
                return _check(value, about, path)
        choices = sorted({number for kind in kinds for number in kind or ()})
        return {(*path, "type"): ("BASE_TYPE_CHOICES", f"Value must be one of {tuple(choices)}.")}
    matching = [branch for branch in branches if value is None or branch.get("type") != ["null"]]
    results = [_check(value, branch, path) for branch in matching]
    if not all(results):
        return {}
    # The alternative that fits best: its errors lie deepest.
    return max(results, key=lambda errors: max(map(len, errors)))


def _resolve(schema: Schema) -> Schema:
    return load_schemas()["schemas"][schema["ref"]] if "ref" in schema else schema
