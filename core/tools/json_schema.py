"""JSON Schemas of models and tools: references and combinations, resolved within a budget.

A model, a tool or a server writes a schema, so a `SchemaResolver` resolves each part of it once, and stops at
`MAX_SCHEMAS` parts or `MAX_COMBINATIONS` references in a row. Its work grows with the size of the schema only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

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
    """JSON Schema after its references and combinations were merged into it.

    Attributes:
        keywords: the merged schema, with the keywords of forms only.
        is_nullable: whether it accepts null.
    """

    keywords: Mapping[str, Any] = field(default_factory=dict)
    is_nullable: bool = False


class SchemaResolver:
    """Resolver of the references and combinations in one JSON Schema, each part once.

    Args:
        root: the schema to which references (`#/...`) are relative. It must not change.
    """

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
        found, is_nullable = {key: schema[key] for key in schema.keys() & _MERGED_KEYWORDS}, False
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

        Parts that are no mapping, such as `true`, are left out, and references without a target are ignored.

        Raises:
            SchemaError: the budget is used up.
        """
        parts, pending = dict[int, Mapping[str, Any]](), list(schemas)
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
        """Return the part of the schema at a reference such as `#/$defs/Name`.

        Raises:
            SchemaError: the schema has no such part.
        """
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
