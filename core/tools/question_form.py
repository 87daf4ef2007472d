"""Forms of questions: the fields of a JSON Schema, and checks of people's entries.

An entry is the text that a person has entered in a field; for a chosen option, it is `OPTION_PREFIX` and the option's
position. `validate_form` converts entries to the JSON value that the schema requires. A schema that cannot be shown as
fields becomes one field for JSON or text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from core.inbox_message import storable_text
from core.secret_redaction import MASK
from core.sessions.resume import INPUT_CALL

FieldKind = Literal["text", "integer", "number", "boolean", "choice", "choices", "list", "json", "object", "array"]

#: Reason why an entered value does not fit its field.
Fault = Literal[
    "required", "integer", "number", "minimum", "maximum", "min_length", "max_length", "option", "json", "form"
]

#: A person's entries, by the name of the field: a text, or a list of chosen options.
Entries = Mapping[str, str | Sequence[str]]

#: Prefix of an option's position in the entry of a chosen option.
OPTION_PREFIX = "option:"

#: The most fields of a form, and the most options of a field.
MAX_FIELDS, MAX_OPTIONS = 50, 1000

#: The most characters of a label, a description, and an entered value without a limit of its own.
MAX_LABEL, MAX_DESCRIPTION, MAX_ENTRY = 200, 300, 3000

#: The most references in a row that are followed in a schema.
_MAX_DEPTH = 8

_TRUE_WORDS = frozenset({"yes", "y", "true", "예", "네"})
_FALSE_WORDS = frozenset({"no", "n", "false", "아니요", "아니오"})


@dataclass(frozen=True, slots=True)
class FormOption:
    """Option of a field: the label that people see, and the JSON value of the answer."""

    label: str
    value: Any


@dataclass(frozen=True, slots=True)
class FormField:
    """Field of a form.

    Attributes:
        name: the property of the schema; empty if the form has one value.
        kind: `choice` is one of `options`, `choices` several, `list` one text per line, `json` any JSON value, `object`
            and `array` a JSON value of this type.
        options: the options of a `choice`, `choices` or `boolean`.
        default: JSON value of the answer if nothing is entered; ignored unless `has_default`.
        minimum, maximum: the limits of a number, inclusive; None for no limit.
        min_length, max_length: the limits of a text, in characters; None for no limit.
        is_secret: whether the answer is not shown: the schema has `writeOnly` or the format `password`.
    """

    name: str
    kind: FieldKind = "text"
    label: str = ""
    description: str = ""
    options: tuple[FormOption, ...] = ()
    default: Any = None
    has_default: bool = False
    is_required: bool = True
    minimum: float | None = None
    maximum: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    is_secret: bool = False


@dataclass(frozen=True, slots=True)
class QuestionForm:
    """Form by which a person answers a question.

    Attributes:
        is_object: whether the answer is a JSON object of the fields; otherwise it is the value of the only field.
        problem: why the schema cannot be shown as fields; empty if it can.
        accepts_any_text: whether any message is a valid answer, since a model reads it.
    """

    fields: tuple[FormField, ...]
    is_object: bool = False
    problem: str = ""
    accepts_any_text: bool = False

    @property
    def choice(self) -> FormField | None:
        """The form's only field, if a person chooses one option in it; else None."""
        field_ = self.fields[0] if len(self.fields) == 1 else None
        return field_ if field_ is not None and field_.options and field_.kind in ("choice", "boolean") else None


class EntryError(ValueError):
    """An entered value does not fit its field.

    Attributes:
        fault: the code of the reason, which is the error's text too; callers map it to a message for the user.
        field: the field; None if the text for the whole form is no JSON object.
        limit: the minimum or maximum that the number, or the length of the text, violates; None for other reasons.
    """

    def __init__(self, fault: Fault, field_: FormField | None = None, limit: float | None = None) -> None:
        super().__init__(fault)
        self.fault: Fault = fault
        self.field = field_
        self.limit = limit


class _SchemaError(ValueError):
    """A schema cannot be shown as form fields; the text is the reason."""


@dataclass(slots=True)
class _ResolvedSchema:
    """JSON Schema after its references and combinations were merged into it.

    Attributes:
        schema: the merged schema.
        is_nullable: whether it accepts null.
    """

    schema: dict[str, Any] = field(default_factory=dict)
    is_nullable: bool = False


def create_form(tool: str, arguments: Mapping[str, Any]) -> QuestionForm:
    """Return the form by which a person answers a question.

    The form of `adk_request_input` is made from its schema, that of `get_user_choice` from its options. Any other call
    has one text field.

    Args:
        tool: the name of the call with the question, as in `core.tools.adk_requests.QuestionRequest`.
        arguments: the arguments of that call.
    """
    if tool == INPUT_CALL:
        schema = arguments.get("response_schema", arguments.get("responseSchema"))
        is_of_workflow = "interruptId" in arguments  # ADK: a model's call has no such argument
        form = replace(schema_to_form(schema), accepts_any_text=not is_of_workflow)
        return replace(form, fields=(FormField("", "json"),)) if form.problem and form.accepts_any_text else form
    options = arguments.get("options")
    if tool == "get_user_choice" and isinstance(options, list) and options:
        return replace(schema_to_form({"enum": options}), accepts_any_text=True)
    return QuestionForm((FormField(""),), accepts_any_text=True)


def schema_to_form(schema: Any) -> QuestionForm:
    """Return the form for a JSON Schema; one text field if it is None, True or empty.

    A schema that cannot be shown as fields becomes one field for JSON, with the reason in `QuestionForm.problem`.
    """
    try:
        root = _to_mapping(schema)
        resolved = _resolve(root, root)
        properties = resolved.schema.get("properties")
        if _get_type(resolved.schema) in ("object", "several", "") and properties:
            return _create_object_form(resolved.schema, root)
        field_ = _create_field("", resolved, root, is_required=not resolved.is_nullable)
        if resolved.is_nullable and field_.kind in ("choice", "boolean"):  # a button is the only way to leave it empty
            field_ = replace(field_, options=(*field_.options, FormOption("None", None)))
        return QuestionForm((field_,))
    except _SchemaError as error:
        is_object = isinstance(schema, Mapping) and _get_type(schema) == "object"
        return QuestionForm((FormField("", "object" if is_object else "json"),), problem=str(error))


def _create_object_form(schema: Mapping[str, Any], root: Mapping[str, Any]) -> QuestionForm:
    """Return the form for an object schema, with one field per property.

    Raises:
        _SchemaError: there are more than `MAX_FIELDS` properties, or one cannot be shown as a field.
    """
    properties = schema["properties"]
    if not isinstance(properties, Mapping):
        raise _SchemaError("its properties are no object")
    if len(properties) > MAX_FIELDS:
        raise _SchemaError(f"it has {len(properties)} fields, and a form at most {MAX_FIELDS}")
    required = schema.get("required")
    names = set(map(str, required)) if isinstance(required, list) else set[str]()
    fields = []
    for name, property_ in properties.items():
        resolved = _resolve(property_, root)
        fields.append(_create_field(str(name), resolved, root, is_required=name in names and not resolved.is_nullable))
    return QuestionForm(tuple(fields), is_object=True)


def _create_field(name: str, resolved: _ResolvedSchema, root: Mapping[str, Any], *, is_required: bool) -> FormField:
    """Return the form field for a schema.

    Args:
        name: the property; empty for a form with one value.
        root: the schema to which references (`#/...`) are relative.

    Raises:
        _SchemaError: the schema cannot be shown as a field.
    """
    schema = resolved.schema
    title = schema.get("title")
    label = title if isinstance(title, str) and title.strip() else name.replace("_", " ").strip().capitalize()
    description = schema.get("description")
    plain = FormField(
        name,
        label=_to_line(label)[:MAX_LABEL],
        description=_to_line(description)[:MAX_DESCRIPTION] if isinstance(description, str) else "",
        default=schema.get("default"),
        has_default=schema.get("default") is not None,
        is_required=is_required,
        is_secret=schema.get("writeOnly") is True or schema.get("format") == "password",
    )
    if options := _list_options(schema, root):
        return replace(plain, kind="choice", options=options)
    match _get_type(schema):
        case "boolean":
            yes_or_no = FormOption("Yes", True), FormOption("No", False)
            field_ = replace(plain, kind="boolean", options=yes_or_no)
        case "integer" | "number" as kind:
            smallest, largest = _to_limit(schema, "minimum"), _to_limit(schema, "maximum")
            field_ = replace(plain, kind=kind, minimum=smallest, maximum=largest)
        case "string" | "":
            lengths = (_to_limit(schema, key) for key in ("minLength", "maxLength"))
            shortest, longest = (None if length is None else int(length) for length in lengths)
            field_ = replace(plain, min_length=shortest, max_length=longest)
        case "array":
            field_ = _create_list_field(plain, _resolve(schema.get("items") or {}, root).schema, root)
        case "object":
            field_ = replace(plain, kind="object")
        case "null" | "several":
            field_ = replace(plain, kind="json")
        case kind:
            raise _SchemaError(f"its type {kind!r} is unknown")
    return field_


def _create_list_field(plain: FormField, items: Mapping[str, Any], root: Mapping[str, Any]) -> FormField:
    """Return `plain` as the field of an array schema: options, lines of text, or JSON.

    Args:
        plain: the field with the label and the other keywords of the array schema, but without its kind.
        items: the items' schema, with references to `root`: options if it has any, lines if it is a string or untyped.
    """
    if options := _list_options(items, root):
        return replace(plain, kind="choices", options=options)
    return replace(plain, kind="list" if _get_type(items) in ("string", "") else "array")


def _list_options(schema: Mapping[str, Any], root: Mapping[str, Any]) -> tuple[FormOption, ...]:
    """Return the options of a schema: its `enum`, `const`, or alternatives of `const`.

    Null is left out; empty if an alternative lacks `const`. Malformed or over `MAX_OPTIONS` ones raise `_SchemaError`.
    """
    values = schema.get("enum")
    if values is not None:
        if not isinstance(values, list) or not values:
            raise _SchemaError("its enum is no list of values")
        found = [FormOption(_to_label(value), value) for value in values if value is not None]
    elif alternatives := next((schema[key] for key in ("oneOf", "anyOf") if schema.get(key)), None):
        if not isinstance(alternatives, list):
            raise _SchemaError("its alternatives are no list of schemas")
        constants = [_resolve(alternative, root).schema for alternative in alternatives]
        if not all("const" in const for const in constants):
            return ()
        found = [FormOption(_to_label(const.get("title") or const["const"]), const["const"]) for const in constants]
    else:
        found = [FormOption(_to_label(schema["const"]), schema["const"])] if "const" in schema else []
    if len(found) > MAX_OPTIONS:
        raise _SchemaError(f"it has {len(found)} options, and a menu at most {MAX_OPTIONS}")
    return tuple(found)


def _resolve(schema: Any, root: Mapping[str, Any], depth: int = 0) -> _ResolvedSchema:
    """Return a schema with its references and combinations merged into it.

    Args:
        root: the schema to which references (`#/...`) are relative.
        depth: the number of references that led to `schema`.

    Raises:
        _SchemaError: a reference has no target, or more than `_MAX_DEPTH` follow each other.
    """
    if depth > _MAX_DEPTH:
        raise _SchemaError("its references do not end")
    found, is_nullable = _to_mapping(schema), False
    if "$ref" in found:
        target = _resolve(_find_reference(str(found["$ref"]), root), root, depth + 1)
        others = {key: value for key, value in found.items() if key != "$ref"}
        return _ResolvedSchema({**target.schema, **others}, target.is_nullable)
    if isinstance(found.get("allOf"), list) and found["allOf"]:
        for part in found.pop("allOf"):
            resolved = _resolve(part, root, depth + 1)
            found, is_nullable = {**resolved.schema, **found}, is_nullable or resolved.is_nullable
    for key in ("anyOf", "oneOf"):
        if isinstance(found.get(key), list):
            alternatives = [alternative for alternative in found[key] if not _is_null(alternative)]
            is_nullable = is_nullable or len(alternatives) < len(found[key])
            found[key] = alternatives
            if len(alternatives) == 1:
                alternative = _resolve(alternatives[0], root, depth + 1)
                del found[key]
                found = {**alternative.schema, **found}
    if isinstance(types := found.get("type"), list):
        named = [type_ for type_ in types if str(type_).lower() != "null"]
        is_nullable = is_nullable or len(named) < len(types)
        found["type"] = named[0] if len(named) == 1 else "several"
    values = found.get("enum")
    has_null = isinstance(values, list) and None in values
    return _ResolvedSchema(found, is_nullable or has_null or found.get("nullable") is True)


def _find_reference(reference: str, root: Mapping[str, Any]) -> Any:
    """Return the part of the schema `root` at `#/$defs/...`, or raise `_SchemaError`."""
    target: Any = root
    for name in reference.removeprefix("#").split("/")[1:]:
        key = name.replace("~1", "/").replace("~0", "~")
        if not isinstance(target, Mapping) or key not in target:
            raise _SchemaError(f"its reference {reference[:MAX_LABEL]!r} leads nowhere")
        target = target[key]
    return target


def _to_mapping(schema: Any) -> dict[str, Any]:
    """Return a JSON Schema as a dict, {} for None and True; else raise `_SchemaError`."""
    if schema is None or schema is True:
        return {}
    if not isinstance(schema, Mapping):
        raise _SchemaError("it is no JSON Schema")
    return dict(schema)


def _is_null(schema: Any) -> bool:
    return isinstance(schema, Mapping) and str(schema.get("type")).lower() == "null"


def _get_type(schema: Mapping[str, Any]) -> str:
    """Return the type of a merged schema in lower case; empty if it has none.

    It is `several` for several types, and for alternatives without a type: a person enters these as JSON.
    """
    if "type" not in schema and (schema.get("anyOf") or schema.get("oneOf")):
        return "several"
    return str(schema.get("type") or "").lower()


def _to_limit(schema: Mapping[str, Any], key: str) -> float | None:
    """Return the number in a schema's keyword, such as `minimum`; None without one."""
    value = schema.get(key)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return value if is_number else None


def _to_label(value: Any) -> str:
    return _to_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)) or "-"


def _to_line(text: Any) -> str:
    """Return the `storable_text` of a value as one line, with single spaces."""
    return " ".join(storable_text(str(text)).split())


def validate_form(form: QuestionForm, entries: Entries) -> tuple[Any, dict[str, EntryError]]:
    """Return the JSON value of a person's entries in a form, and the errors in them.

    Args:
        entries: what `validate_entry` takes, by field name; a missing entry is an empty one. An empty optional entry
            becomes the default; without a default, the answer lacks the field, and ADK passes None for it.

    Returns:
        A tuple of the answer, which is complete only without errors, and the errors by field name. The answer is a dict
        by field name if `form.is_object`; otherwise it is the value of the only field, or None.
    """
    values, errors = dict[str, Any](), dict[str, EntryError]()
    for field_ in form.fields:
        try:
            entry = entries.get(field_.name, "")
            if entry or field_.is_required:
                values[field_.name] = validate_entry(field_, entry)
            elif field_.has_default:
                values[field_.name] = field_.default
        except EntryError as error:
            errors[field_.name] = error
    if form.is_object:
        return values, errors
    return values.get(form.fields[0].name), errors


def validate_entry(field_: FormField, entry: str | Sequence[str]) -> Any:
    """Return the JSON value of a person's entry in a field.

    Args:
        entry: the entered text; for an option, `OPTION_PREFIX` and its position, or its label or value in any case.
            Several options are a list, or the lines of a text.

    Returns:
        The value, of the JSON type of the field's kind. An empty entry in an optional field becomes an empty list for
        `choices`, and an empty text for any other kind.

    Raises:
        EntryError: the entry does not fit the field.
    """
    if field_.kind == "choices":
        return _find_options(field_, entry)
    text = storable_text(entry if isinstance(entry, str) else "\n".join(entry)).strip()
    if not text:
        if field_.is_required and field_.min_length != 0:
            raise EntryError("required", field_)
        return ""
    return _parse_entry(field_, text)


def _find_options(field_: FormField, entry: str | Sequence[str]) -> list[Any]:
    """Return the JSON values of the options in an entry, or raise `EntryError`.

    Each line of a text is an option. An empty entry in an optional field has none.
    """
    entered = [part for line in ([entry] if isinstance(entry, str) else entry) for part in line.split("\n")]
    chosen = [_find_option(field_, part.strip()) for part in entered if part.strip()]
    if not chosen and field_.is_required:
        raise EntryError("required", field_)
    return chosen


def _parse_entry(field_: FormField, text: str) -> Any:
    """Return the JSON value of a text by the kind of its field, or raise `EntryError`.

    It is an option's value, a number, a list of lines, parsed JSON, or the text.
    """
    match field_.kind:
        case "choice" | "boolean":
            return _find_option(field_, text)
        case "integer" | "number":
            return _to_number(field_, text)
        case "list":
            return [line.strip() for line in text.split("\n") if line.strip()]
        case "json" | "object" | "array":
            return _to_json(field_, text)
    return _check_length(field_, text)


def parse_answer(form: QuestionForm, text: str) -> Any:
    """Return the JSON value of a message that answers a question.

    For a form with several fields the message has to be a JSON object.

    Returns:
        A dict by field name if `form.is_object`; otherwise the value of the only field. If the form `accepts_any_text`,
        a message that does not fit is returned unchanged.

    Raises:
        EntryError: the message does not fit the form, and the form does not accept any text.
    """
    try:
        if not form.is_object:
            return validate_entry(form.fields[0], text)
        if len(form.fields) == 1:
            return {form.fields[0].name: validate_entry(form.fields[0], text)}
        return _parse_object(form, text)
    except EntryError:
        if form.accepts_any_text:
            return text
        raise


def _parse_object(form: QuestionForm, text: str) -> Any:
    """Return the answer in a JSON object, a dict by field name, or raise `EntryError`."""
    try:
        given = json.loads(text)
    except ValueError as error:
        raise EntryError("form") from error
    if not isinstance(given, dict):
        raise EntryError("form")
    entries = {field_.name: to_entry(field_, given[field_.name]) for field_ in form.fields if field_.name in given}
    value, errors = validate_form(form, entries)
    if errors:
        raise next(iter(errors.values()))
    return value


def to_entry(field_: FormField, value: Any) -> str | list[str]:
    """Return the entry for a JSON value: the text for which `validate_entry` returns it.

    The text of an option is `OPTION_PREFIX` and its position. The entry of `choices` is a list of such texts, or an
    empty one if the value is no list. None becomes an empty text.
    """
    if value is None:
        return ""
    positions = {json.dumps(option.value): f"{OPTION_PREFIX}{i}" for i, option in enumerate(field_.options)}
    match field_.kind:
        case "choices":
            return [positions.get(json.dumps(entry), str(entry)) for entry in value] if isinstance(value, list) else []
        case "choice" | "boolean":
            return positions.get(json.dumps(value), str(value))
        case "list" if isinstance(value, list):
            return "\n".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def describe_answer(form: QuestionForm, value: Any) -> list[tuple[str, str]]:
    """Return the label and the text of each field of an answer, in their order.

    Without `form.is_object`: one pair, with an empty label. Else empty fields are left out. Secret values are masked.
    """
    if not form.is_object:
        return [("", _describe_value(form.fields[0], value))]
    given = value if isinstance(value, Mapping) else {}
    described = [
        (field_.label, _describe_value(field_, given[field_.name])) for field_ in form.fields if field_.name in given
    ]
    return [(label, text) for label, text in described if text]


def _describe_value(field_: FormField, value: Any) -> str:
    """Return a field's value as people read it; a mask for a secret one."""
    if field_.is_secret:
        return MASK
    if field_.kind == "choices" and isinstance(value, list):
        return ", ".join(_describe_value(replace(field_, kind="choice"), entry) for entry in value)
    label = next((option.label for option in field_.options if option.value == value), None)
    if label is not None:
        return label
    if field_.kind == "list" and isinstance(value, list):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _find_option(field_: FormField, text: str) -> Any:
    """Return the JSON value of an option, regardless of case, or raise `EntryError`.

    Args:
        text: `OPTION_PREFIX` and a position; a label or value; a word in `_TRUE_WORDS` or `_FALSE_WORDS` for `boolean`.
    """
    position = text.removeprefix(OPTION_PREFIX)
    if text.startswith(OPTION_PREFIX) and position.isascii() and position.isdigit():
        if int(position) < len(field_.options):
            return field_.options[int(position)].value
        raise EntryError("option", field_)
    folded = _to_line(text).casefold()
    if field_.kind == "boolean" and folded in _TRUE_WORDS | _FALSE_WORDS:
        return folded in _TRUE_WORDS
    for option in field_.options:
        if folded in (option.label.casefold(), _to_label(option.value).casefold()):
            return option.value
    raise EntryError("option", field_)


def _to_number(field_: FormField, text: str) -> int | float:
    """Return the int or float in a text; raise `EntryError` if the field forbids it."""
    number: int | float
    try:
        number = int(text) if field_.kind == "integer" else float(text.replace(",", "."))
    except ValueError as error:
        raise EntryError("integer" if field_.kind == "integer" else "number", field_) from error
    if not math.isfinite(number):
        raise EntryError("number", field_)
    if field_.minimum is not None and number < field_.minimum:
        raise EntryError("minimum", field_, field_.minimum)
    if field_.maximum is not None and number > field_.maximum:
        raise EntryError("maximum", field_, field_.maximum)
    return number


def _to_json(field_: FormField, text: str) -> Any:
    """Return the JSON value of a text, or raise `EntryError`.

    It is a dict for `object`, a list for `array`. Text that is no JSON is returned for a `json` field without a name.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        if field_.name or field_.kind != "json":
            raise EntryError("json", field_) from error
        return text
    expected = {"object": dict, "array": list}.get(field_.kind, object)
    if not isinstance(value, expected):
        raise EntryError("json", field_)
    return value


def _check_length(field_: FormField, text: str) -> str:
    """Return a text unchanged; raise `EntryError` if the field forbids its length."""
    if field_.min_length is not None and len(text) < field_.min_length:
        raise EntryError("min_length", field_, field_.min_length)
    longest = min(field_.max_length or MAX_ENTRY, MAX_ENTRY)
    if len(text) > longest:
        raise EntryError("max_length", field_, longest)
    return text
