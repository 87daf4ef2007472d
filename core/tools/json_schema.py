"""JSON Schemas of models and tools: resolved and validated within a budget.

A model, a tool or a server writes a schema, so a `SchemaResolver` resolves each part of it once, and stops at
`MAX_SCHEMAS` parts or `MAX_COMBINATIONS` references in a row. Its work grows with the size of the schema only. An
`AnswerValidator` checks people's answers by `jsonschema`: it fetches nothing, checks a reference once for each value,
limits the work and the time of patterns, and whatever `jsonschema` raises is an `UncheckableError`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from itertools import islice
from typing import Any

import regex  # type: ignore[import-untyped]  # it comes without types
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend, validator_for
from referencing import Registry

#: The most parts of a schema that are resolved, each once. 5,000 take the event loop about 20 ms.
MAX_SCHEMAS = 5_000

#: The most references and combinations that are followed in a row.
MAX_COMBINATIONS = 32

#: The keywords by which a schema refers to others or combines them.
_COMBINING_KEYWORDS = frozenset({"$ref", "allOf", "anyOf", "oneOf"})

#: The keywords of a merged schema: those that a form shows or checks. All others are dropped, so that merging is cheap.
_MERGED_KEYWORDS = _COMBINING_KEYWORDS | {
    *("type", "enum", "const", "default", "nullable", "title", "description", "format", "writeOnly"),
    *("minLength", "maxLength", "properties", "required", "items"),
}

_MAX_REFERENCE_CHARACTERS = 200


class SchemaError(ValueError):
    """A schema cannot be resolved, or not be shown as form fields; the text is the reason."""


@dataclass(frozen=True, slots=True)
class MergedSchema:
    """JSON Schema after its references and combinations were merged into it, with the keywords of forms only."""

    keywords: Mapping[str, Any] = field(default_factory=dict)
    is_nullable: bool = False


class SchemaResolver:
    """Resolver of the references and combinations in one JSON Schema, which must not change; each part once."""

    def __init__(self, root: Any) -> None:
        self._root = root
        # by the part's id; with the part itself, so that the id stays its own
        self._merged = dict[int, tuple[Any, MergedSchema | None]]()
        self._references = dict[str, Any]()
        self._depth = 0
        self._visits = 0

    def merge(self, schema: Any) -> MergedSchema:
        """Return a part of the schema with its references and combinations merged into it.

        Alternatives (`anyOf`, `oneOf`) stay, unless there is only one besides null.

        Raises:
            SchemaError: a reference has no target, references do not end, or the budget is used up.
        """
        if (known := self._merged.get(id(schema))) is None:
            if self._depth == MAX_COMBINATIONS:
                raise SchemaError("its references do not end")
            self._count_visit()
            self._merged[id(schema)] = known = schema, None
            self._depth += 1
            merged = self._merge(to_mapping(schema))
            self._depth -= 1
            self._merged[id(schema)] = known = schema, merged
        if known[1] is None:
            raise SchemaError("its references do not end")
        return known[1]

    def _merge(self, schema: Mapping[str, Any]) -> MergedSchema:
        found = {key: schema[key] for key in schema.keys() & _MERGED_KEYWORDS}
        is_nullable = False
        if not _COMBINING_KEYWORDS.isdisjoint(found):
            parts = [self._find_reference(found.pop("$ref"))] if "$ref" in found else []
            parts += _to_list(found.pop("allOf", None))
            for key in ("anyOf", "oneOf"):
                if isinstance(found.get(key), list):
                    alternatives = [alternative for alternative in found[key] if not _is_null(alternative)]
                    is_nullable = is_nullable or len(alternatives) < len(found[key])
                    found[key] = alternatives
                    if len(alternatives) == 1:
                        del found[key]
                        parts += alternatives
            merged = [self.merge(part) for part in parts]
            is_nullable = is_nullable or any(part.is_nullable for part in merged)
            found = _combine([found, *(part.keywords for part in merged)])
        if isinstance(types := found.get("type"), list):
            named = [type_ for type_ in types if not _is_null_type(type_)]
            is_nullable = is_nullable or len(named) < len(types)
            found["type"] = named[0] if len(named) == 1 else "several"
        values = found.get("enum")
        has_null = isinstance(values, list) and None in values
        return MergedSchema(found, is_nullable or has_null or found.get("nullable") is True)

    def list_parts(self, schemas: Iterable[Any]) -> list[Mapping[str, Any]]:
        """Return parts of the schema, and the parts that they refer to or combine, each once.

        Parts that are no mapping, such as `true`, are left out, and references without a target are ignored. Raises a
        `SchemaError` if the budget is used up.
        """
        parts = dict[int, Mapping[str, Any]]()
        pending = list(schemas)
        while pending:
            schema = pending.pop()
            if not isinstance(schema, Mapping) or id(schema) in parts:
                continue
            self._count_visit()
            parts[id(schema)] = schema
            for key in schema.keys() & _COMBINING_KEYWORDS:
                if key != "$ref":
                    pending += _to_list(schema[key])
                    continue
                with suppress(SchemaError):
                    pending.append(self._find_reference(schema[key]))
        return list(parts.values())

    def _find_reference(self, reference: Any) -> Any:
        if not isinstance(reference, str):
            raise SchemaError("its reference is no text")
        if reference not in self._references:
            target: Any = self._root
            for name in reference.removeprefix("#").split("/")[1:]:
                key = name.replace("~1", "/").replace("~0", "~")
                if not isinstance(target, Mapping) or key not in target:
                    raise SchemaError(f"its reference {reference[:_MAX_REFERENCE_CHARACTERS]!r} leads nowhere")
                target = target[key]
            self._references[reference] = target
        return self._references[reference]

    def _count_visit(self) -> None:
        self._visits += 1
        if self._visits > MAX_SCHEMAS:
            raise SchemaError(f"it combines more than {MAX_SCHEMAS:,} schemas")


def _combine(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the keywords of all parts: the first of each, but all properties and all required names."""
    combined = dict[str, Any]()
    for part in reversed(parts):
        combined |= part
    properties = {id(part["properties"]): part["properties"] for part in parts if "properties" in part}
    if len(properties) > 1 and all(isinstance(part, Mapping) for part in properties.values()):
        schemas = dict[str, dict[int, Any]]()
        for part in properties.values():
            for name, schema in part.items():
                schemas.setdefault(name, {})[id(schema)] = schema
        combined["properties"] = {
            name: {"allOf": [*found.values()]} if len(found) > 1 else next(iter(found.values()))
            for name, found in schemas.items()
        }
    required = {id(part["required"]): part["required"] for part in parts if "required" in part}
    if len(required) > 1:
        combined["required"] = [name for names in required.values() for name in _to_list(names)]
    return combined


def to_mapping(schema: Any) -> Mapping[str, Any]:
    """Return a JSON Schema as a mapping, empty for None and True; else raise `SchemaError`."""
    if schema is None or schema is True:
        return {}
    if not isinstance(schema, Mapping):
        raise SchemaError("it is no JSON Schema")
    return schema


def _to_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_null(schema: Any) -> bool:
    return isinstance(schema, Mapping) and _is_null_type(schema.get("type"))


def _is_null_type(type_: Any) -> bool:
    return isinstance(type_, str) and type_.lower() == "null"


#: The most work of one validation: about a check of one keyword, an item or an error. 50,000 take about 300 ms.
MAX_WORK = 50_000

#: Time limit of all patterns of one validation; those beyond it are left out.
PATTERN_SECONDS = 0.05

#: The most characters of a pattern; longer ones are left out, since they cannot be compiled in a limited time.
MAX_PATTERN = 1000

_Check = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]

#: Keywords with values in them, which are compared with each instance: their work grows with the whole of their value.
_COMPARED_KEYWORDS = frozenset({"const", "required", "dependentRequired", "dependencies"})

#: The keywords of an alternative that is an option.
_OPTION_KEYWORDS = frozenset({"const", "title", "description", "type"})

_UNKNOWN_DRAFT: Any = None

#: The most errors of an `allOf`, and the most of one field of which the most relevant is shown.
_MAX_ERRORS = 10

_ENCODER = json.JSONEncoder(sort_keys=True)

_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})


class UncheckableError(ValueError):
    """The validator failed at a schema or an answer, or the budget is used up."""


@dataclass(slots=True)
class _Budget:
    """Rest of the budget of one validation.

    Attributes:
        checked: the errors of a reference for a value, by the reference and the id of the value; None while they are
            checked.
        sizes: the work on the value of a keyword, by its id.
        keys: the keys of the values of an `enum`, by its id.
    """

    work: int = MAX_WORK
    pattern_seconds: float = PATTERN_SECONDS
    checked: dict[tuple[Any, int], list[ValidationError] | None] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    keys: dict[int, set[str]] = field(default_factory=dict)

    def spend(self, work: int) -> None:
        self.work -= work
        if self.work < 0:
            raise UncheckableError("it takes too long to check")

    def measure(self, keyword: str, value: Any) -> int:
        if keyword not in _COMPARED_KEYWORDS:
            return _count(value) if keyword != "enum" else 0
        if id(value) not in self.sizes:
            self.sizes[id(value)] = len(repr(value)) // 16
        return self.sizes[id(value)]


_budget: ContextVar[_Budget] = ContextVar("validation_budget")


class AnswerValidator:
    """Validator of answers against one JSON Schema, of the draft that its `$schema` names.

    Raises a `SchemaError` if the draft is unknown, or the validator fails at the schema.
    """

    def __init__(self, schema: Any) -> None:
        draft: Any = Draft202012Validator
        try:
            if isinstance(schema, Mapping) and isinstance(schema.get("$schema"), str):
                draft = validator_for({"$schema": schema["$schema"]}, default=_UNKNOWN_DRAFT)
            if draft is not _UNKNOWN_DRAFT:
                self._validator = _extend(draft)(
                    _normalize(schema), registry=Registry(), format_checker=draft.FORMAT_CHECKER
                )
        except Exception as error:  # anything, as in `find_errors`
            raise SchemaError(f"it cannot be read ({type(error).__name__})") from error
        if draft is _UNKNOWN_DRAFT:
            raise SchemaError("its $schema is unknown")

    def find_errors(self, value: Any) -> list[ValidationError]:
        """Return the most relevant error of each field or item of a value, and of the whole value.

        Raises an `UncheckableError` if the validator failed, or the budget is used up.
        """
        token = _budget.set(_Budget())
        try:
            errors = dict[str | int | None, list[ValidationError]]()
            for error in self._validator.iter_errors(value):
                errors.setdefault(error.path[0] if error.path else None, []).append(error)
            return [best_match(found[:_MAX_ERRORS]) for found in errors.values()]
        except UncheckableError:
            raise
        except Exception as error:  # anything, also a RecursionError
            raise UncheckableError(f"it cannot be checked ({type(error).__name__})") from error
        finally:
            _budget.reset(token)


def _normalize(schema: Any) -> Any:
    """Return a copy with types in lower case (Gemini's are in upper case), without null, `$schema` and `$id`.

    jsonschema: a nested `$schema` replaces the validator by one without limits. Without `$id`, a reference has one
    target. Options become an `enum`: it is faster, and options that are equal, such as 1 and 1.0, do not exclude each
    other.
    """
    if isinstance(schema, list):
        return [True if part == {} else _normalize(part) for part in schema]  # jsonschema is slow at {}
    if not isinstance(schema, Mapping):
        return schema
    copy = dict[str, Any]()
    for key, value in schema.items():
        match key, value:
            case (("const" | "default" | "examples"), _):
                copy[key] = value
            case _, None:
                pass
            case "enum", _:
                copy[key] = value
            case "type", str():
                copy[key] = value.lower()
            case (("anyOf" | "oneOf"), list()) if all(map(_is_option, value)):
                copy[key] = [{"enum": [part["const"] for part in value]}]
            case "type", list():
                copy[key] = [name.lower() if isinstance(name, str) else name for name in value]
            case (("$schema" | "$id"), str()):
                pass
            case _:
                copy[key] = _normalize(value)
    return copy


def _is_option(schema: Any) -> bool:
    return isinstance(schema, Mapping) and "const" in schema and schema.keys() <= _OPTION_KEYWORDS


@cache
def _extend(draft: Any) -> Any:
    keywords = {
        **draft.VALIDATORS,
        **{name: check for name, check in _OWN_KEYWORDS.items() if name in draft.VALIDATORS},
    }
    return extend(draft, {name: _limit(name, check) for name, check in keywords.items()})  # type: ignore[no-untyped-call]  # so in its types


def _limit(name: str, check: _Check) -> _Check:
    """Return the check of a keyword within the budget; a reference is checked once for each value."""

    def iterate(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if instance is None and schema.get("nullable") is True:  # OpenAPI
            return
        budget = _budget.get()
        budget.spend(1 + budget.measure(name, value) + _count(instance))
        is_simple = name == "items" and isinstance(value, Mapping) and "prefixItems" not in schema
        errors = (_check_items if is_simple else check)(validator, value, instance, schema) or ()
        for error in islice(errors, _MAX_ERRORS if name == "allOf" else None):
            budget.spend(4 + len(error.message) // 64)
            yield error

    def iterate_once(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        checked = _budget.get().checked
        key = (value, id(instance))
        is_first = key not in checked
        if is_first:
            checked[key] = None
            checked[key] = list(iterate(validator, value, instance, schema))
        if (errors := checked[key]) is None:
            raise UncheckableError("its references do not end")
        # copies, since the callers add to the paths; of errors that are known already, one is enough
        yield from map(ValidationError.create_from, errors if is_first else errors[:1])

    return iterate_once if name in _REFERENCES else iterate


def _count(value: Any) -> int:
    return len(value) if isinstance(value, list | Mapping) else 0


def _search(pattern: str, text: str) -> bool | None:
    budget = _budget.get()
    if len(pattern) > MAX_PATTERN:
        return None
    budget.spend(len(pattern))
    compiled = regex.compile(pattern)
    if budget.pattern_seconds <= 0:
        return None
    start = time.monotonic()
    try:
        return compiled.search(text, timeout=budget.pattern_seconds) is not None
    except TimeoutError:
        return None
    finally:
        budget.pattern_seconds -= time.monotonic() - start


def _check_pattern(validator: Any, pattern: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and _search(pattern, instance) is False:
        yield ValidationError("it does not match")


def _check_pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, part in patterns.items():
        for name, value in instance.items():
            if _search(pattern, name):
                yield from validator.descend(value, part, path=name, schema_path=pattern)


def _check_additional(validator: Any, part: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Check `additionalProperties`; jsonschema runs the patterns of `patternProperties` without a limit."""
    if not validator.is_type(instance, "object"):
        return
    patterns = schema.get("patternProperties", {})
    matching = {name: True for name in instance if any(_search(pattern, name) is not False for pattern in patterns)}
    known = {"properties": {**schema.get("properties", {}), **matching}}
    yield from Draft202012Validator.VALIDATORS["additionalProperties"](validator, part, instance, known)


def _check_items(validator: Any, part: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Check all items by one validator; jsonschema creates one for each."""
    if validator.is_type(instance, "array"):
        of_item = validator.evolve(schema=part)
        for i, item in enumerate(instance):
            for error in of_item.iter_errors(item):
                error.path.appendleft(i)
                yield error


def _check_one(validator: Any, parts: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Check `oneOf` up to the second match; jsonschema tries all, and describes them."""
    errors = list[ValidationError]()
    count = 0
    for part in parts:
        found = list(validator.descend(instance, part))
        errors += found
        count += not found
        if count > 1:
            yield ValidationError("it matches several")
            return
    if not count:
        yield ValidationError("it matches none", context=errors)


def _check_multiple(validator: Any, divisor: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Check `multipleOf` exactly: for jsonschema, 19.99 is no multiple of 0.01, and long numbers are an error."""
    if validator.is_type(instance, "number") and (_to_fraction(instance) / _to_fraction(divisor)).denominator != 1:
        yield ValidationError("it is no multiple")


def _to_fraction(number: Any) -> Fraction:
    return Fraction(repr(number)) if isinstance(number, float) else Fraction(number)


def _check_enum(validator: Any, values: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Check `enum` by keys; jsonschema compares the instance with each value."""
    keys = _budget.get().keys
    if id(values) not in keys:
        keys[id(values)] = set(map(_to_key, values))
    if _to_key(instance) not in keys[id(values)]:
        yield ValidationError("it is none of the values")


def _check_unique(validator: Any, is_unique: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Check `uniqueItems` by keys; jsonschema compares each pair."""
    if is_unique is True and validator.is_type(instance, "array") and len({*map(_to_key, instance)}) < len(instance):
        yield ValidationError("it has equal items")


def _to_key(value: Any) -> str:
    """Return a JSON value as text by which it is compared: 1 and 1.0 are equal, 1 and true are not."""
    return _ENCODER.encode(int(value) if isinstance(value, float) and value.is_integer() else value)


def _check_nothing(*_: Any) -> Iterator[ValidationError]:
    yield from ()


_OWN_KEYWORDS: Mapping[str, _Check] = {
    "pattern": _check_pattern,
    "patternProperties": _check_pattern_properties,
    "additionalProperties": _check_additional,
    "multipleOf": _check_multiple,
    "uniqueItems": _check_unique,
    "enum": _check_enum,
    "oneOf": _check_one,
    # jsonschema runs the patterns of `patternProperties` without a limit for them
    "unevaluatedProperties": _check_nothing,
    "unevaluatedItems": _check_nothing,
}
