"""Validation of answers against a question's JSON Schema, by `jsonschema` within a budget.

A model, a tool or a server writes the schema, and a person the answer. So nothing is fetched, references are checked
once for each value, patterns have a time limit, and whatever the validator raises is an `UncheckableError`.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any

import regex  # type: ignore[import-untyped]  # it comes without types
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend, validator_for
from referencing import Registry

from core.tools.json_schema import SchemaError

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

#: The most errors of one field of which the most relevant is shown.
_MAX_COMPARED_ERRORS = 10

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

    Raises:
        SchemaError: the draft is unknown, or the validator fails at the schema.
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

        Raises:
            UncheckableError: the validator failed, or the budget is used up.
        """
        token = _budget.set(_Budget())
        try:
            errors = dict[str | int | None, list[ValidationError]]()
            for error in self._validator.iter_errors(value):
                errors.setdefault(error.path[0] if error.path else None, []).append(error)
            return [best_match(found[:_MAX_COMPARED_ERRORS]) for found in errors.values()]
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
    """Return a validator class of `jsonschema` with limited keywords."""
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
        for error in (_check_items if is_simple else check)(validator, value, instance, schema) or ():
            budget.spend(4 + len(error.message) // 64)
            yield error

    def iterate_once(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        checked, key = _budget.get().checked, (value, id(instance))
        if key not in checked:
            checked[key] = None
            checked[key] = list(iterate(validator, value, instance, schema))
        if (errors := checked[key]) is None:
            raise UncheckableError("its references do not end")
        yield from map(ValidationError.create_from, errors)  # copies: the callers add to the paths

    return iterate_once if name in _REFERENCES else iterate


def _count(value: Any) -> int:
    return len(value) if isinstance(value, list | Mapping) else 0


def _search(pattern: str, text: str) -> bool | None:
    """Return whether a pattern matches; None beyond the limits of patterns."""
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
    errors, count = list[ValidationError](), 0
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
