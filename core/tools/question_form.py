"""Forms of questions: the fields of a JSON Schema, and checks of people's entries.

An entry is the text that a person has entered in a field; for a chosen option, it is `OPTION_PREFIX` and the option's
position. `validate_form` converts entries to a JSON value, and an `AnswerValidator` checks it. A schema that cannot be
shown as fields or checked, or not within the budgets, becomes one field for JSON or text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any, Literal

from jsonschema.exceptions import ValidationError

from core.messages.identity import INVISIBLE_CHARACTERS
from core.messages.inbox_message import storable_text
from core.models.tool_calls import JsonLimitError, check_json, parse_json
from core.observability.secret_redaction import MASK
from core.sessions.resume import INPUT_CALL
from core.tools.json_schema import AnswerValidator, MergedSchema, SchemaError, SchemaResolver, UncheckableError

FieldKind = Literal["text", "integer", "number", "boolean", "choice", "choices", "list", "json", "object", "array"]

#: Reason why an entry is refused: one of the following, or the keyword of the schema that it violates.
#: `form`: a message is no JSON object. `missing`: fields are required together. `unchecked`: the validator failed.
Fault = (
    Literal["required", "integer", "number", "option", "form", "json", "json_depth", "json_number", "unchecked"] | str
)

#: A person's entries, by the name of the field: a text, or a list of chosen options.
Entries = Mapping[str, str | Sequence[str]]

#: Prefix of an option's position in the entry of a chosen option.
OPTION_PREFIX = "option:"

#: The most fields of a form, and the most options of a field.
MAX_FIELDS, MAX_OPTIONS = 50, 1000

#: The most characters of a label, an option's label, a description, and an entered value without a limit of its own.
MAX_LABEL, MAX_OPTION_LABEL, MAX_DESCRIPTION, MAX_ENTRY = 200, 1000, 300, 3000

#: The most digits of an entered number.
MAX_DIGITS = 30

#: The most characters of a title or description that are cleaned: several fields can share a long one.
_MAX_CLEANED = 2000

_ENCODER, _KEY_ENCODER = json.JSONEncoder(ensure_ascii=False), json.JSONEncoder(sort_keys=True)

_TRUE_WORDS = frozenset({"yes", "y", "true", "예", "네"})
_FALSE_WORDS = frozenset({"no", "n", "false", "아니요", "아니오"})


@dataclass(frozen=True, slots=True)
class FormOption:
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
        min_length, max_length: the limits of a text, in characters. The validator checks them.
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
    min_length: int | None = None
    max_length: int | None = None
    is_secret: bool = False


@dataclass(frozen=True, slots=True)
class QuestionForm:
    """Form by which a person answers a question.

    Attributes:
        is_object: whether the answer is a JSON object of the fields; otherwise it is the value of the only field.
        problem: why the schema cannot be shown as fields; empty if it can.
        validator: checks the answer; None for any.
        accepts_any_text: whether any message is a valid answer, since a model reads it.
    """

    fields: tuple[FormField, ...]
    is_object: bool = False
    problem: str = ""
    validator: AnswerValidator | None = field(default=None, compare=False)
    accepts_any_text: bool = False

    @property
    def choice(self) -> FormField | None:
        """The form's only field, if a person chooses one option in it."""
        field_ = self.fields[0] if len(self.fields) == 1 else None
        return field_ if field_ is not None and field_.options and field_.kind in ("choice", "boolean") else None


class EntryError(ValueError):
    """An entered value does not fit its field, or all values together do not fit the form.

    Attributes:
        fault: the reason, which is the error's text too; callers map it to a message for the user.
        field: the field; None if the error is one of the whole form.
        limit: what the schema requires, such as a minimum, a pattern, or the labels of missing fields; None if that
            says nothing to people.
        place: the path of the value within the field, counted from 1; empty for the field itself.
    """

    def __init__(
        self, fault: Fault, field_: FormField | None = None, limit: float | str | None = None, place: str = ""
    ) -> None:
        super().__init__(fault)
        self.fault: Fault = fault
        self.field = field_
        self.limit = limit
        self.place = place


def create_form(tool: str, arguments: Mapping[str, Any]) -> QuestionForm:
    """Return the form by which a person answers the call `tool` with a question.

    It is made from the schema of `adk_request_input` or the options of `get_user_choice`. Any other call has one text
    field.
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
        check_json(schema)
        form = replace(_FormBuilder(schema).build(), validator=AnswerValidator(True if schema is None else schema))
        _find_errors(form, _create_sample(form))
        return form
    except (SchemaError, JsonLimitError, UncheckableError) as error:
        is_object = isinstance(schema, Mapping) and _get_type(schema) == "object"
        return QuestionForm((FormField("", "object" if is_object else "json"),), problem=str(error))


def _create_sample(form: QuestionForm) -> Any:
    """Return an answer by which a validator fails if it fails at the schemas of the fields."""
    samples = {"integer": 0, "number": 0, "choices": [], "list": [""], "object": {}, "array": []}
    values = {
        field_.name: field_.options[0].value if field_.kind in ("choice", "boolean") else samples.get(field_.kind, "")
        for field_ in form.fields
    }
    return values if form.is_object else values[form.fields[0].name]


class _FormBuilder:
    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._resolver = SchemaResolver(schema)
        self._options = dict[int, tuple[FormOption, ...]]()  # by the id of the list in the schema

    def build(self) -> QuestionForm:
        merged = self._resolver.merge(self._schema)
        if _get_type(merged.keywords) in ("object", "several", "") and merged.keywords.get("properties"):
            return self._build_object_form(merged.keywords)
        field_ = self._create_field("", merged, is_required=not merged.is_nullable)
        if merged.is_nullable and field_.kind in ("choice", "boolean"):  # a button is the only way to leave it empty
            field_ = replace(field_, options=(*field_.options, FormOption("None", None)))
        return QuestionForm((field_,))

    def _build_object_form(self, schema: Mapping[str, Any]) -> QuestionForm:
        properties = schema["properties"]
        if not isinstance(properties, Mapping):
            raise SchemaError("its properties are no object")
        if len(properties) > MAX_FIELDS:
            raise SchemaError(f"it has {len(properties)} fields, and a form at most {MAX_FIELDS}")
        required = schema.get("required")
        names = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set[str]()
        fields = []
        for name, property_ in properties.items():
            merged = self._resolver.merge(property_)
            field_ = self._create_field(str(name), merged, is_required=name in names and not merged.is_nullable)
            if name in names and merged.is_nullable:
                field_ = replace(field_, has_default=True)  # null, unless the schema has another default
            fields.append(field_)
        return QuestionForm(tuple(fields), is_object=True)

    def _create_field(self, name: str, merged: MergedSchema, *, is_required: bool) -> FormField:
        schema = merged.keywords
        label = _to_short_line(schema.get("title"), MAX_LABEL)
        plain = FormField(
            name,
            label=label or _to_short_line(name.replace("_", " ").strip().capitalize(), MAX_LABEL),
            description=_to_short_line(schema.get("description"), MAX_DESCRIPTION),
            default=schema.get("default"),
            has_default=schema.get("default") is not None,
            is_required=is_required,
            is_secret=schema.get("writeOnly") is True or schema.get("format") == "password",
        )
        if options := self._list_options(schema):
            return replace(plain, kind="choice", options=options)
        match _get_type(schema):
            case "boolean":
                yes_or_no = FormOption("Yes", True), FormOption("No", False)
                field_ = replace(plain, kind="boolean", options=yes_or_no)
            case "integer" | "number" as kind:
                field_ = replace(plain, kind=kind)
            case "string" | "":
                field_ = replace(plain, min_length=schema.get("minLength"), max_length=schema.get("maxLength"))
            case "array":
                field_ = self._create_list_field(plain, schema.get("items"))
            case "object":
                field_ = replace(plain, kind="object")
            case "null" | "several":
                field_ = replace(plain, kind="json")
            case kind:
                raise SchemaError(f"its type {kind[:MAX_LABEL]!r} is unknown")
        return field_

    def _create_list_field(self, plain: FormField, schema: Any) -> FormField:
        items = self._resolver.merge(schema or None).keywords
        if options := self._list_options(items):
            return replace(plain, kind="choices", options=options)
        return replace(plain, kind="list" if _get_type(items) in ("string", "") else "array")

    def _list_options(self, schema: Mapping[str, Any]) -> tuple[FormOption, ...]:
        key = "enum" if schema.get("enum") is not None else next(filter(schema.get, ("oneOf", "anyOf")), None)
        if key is None:
            return (FormOption(_to_label(schema["const"]), schema["const"]),) if "const" in schema else ()
        values = schema[key]
        if not isinstance(values, list) or not values:
            raise SchemaError(f"its {key} is no list of values")
        if id(values) not in self._options:
            options = self._make_enum_options(values) if key == "enum" else self._make_alternative_options(values)
            self._options[id(values)] = tuple(options)
        return self._options[id(values)]

    @staticmethod
    def _make_enum_options(values: Sequence[Any]) -> Iterable[FormOption]:
        found = [value for value in values if value is not None]
        _check_option_count(found)
        return [FormOption(_to_label(value), value) for value in found]

    def _make_alternative_options(self, alternatives: Sequence[Any]) -> Iterable[FormOption]:
        constants = [self._resolver.merge(alternative).keywords for alternative in alternatives]
        if not all("const" in const for const in constants):
            return ()
        _check_option_count(constants)
        options = dict[str, FormOption]()
        keys = dict[int, str]()
        labels = dict[int, str]()
        for const in constants:
            value = const["const"]
            title = const.get("title") or const["const"]
            if id(value) not in keys:  # by id: alternatives can share a long value
                keys[id(value)] = _to_key(value)
            if id(title) not in labels:
                labels[id(title)] = _to_label(title)
            option = FormOption(labels[id(title)], value)
            if options.setdefault(keys[id(value)], option).label != option.label:
                raise SchemaError("two of its options have one value")
        return options.values()


def _check_option_count(options: Sequence[Any]) -> None:
    if len(options) > MAX_OPTIONS:
        raise SchemaError(f"it has {len(options)} options, and a menu at most {MAX_OPTIONS}")


def _get_type(schema: Mapping[str, Any]) -> str:
    if "type" not in schema and (schema.get("anyOf") or schema.get("oneOf")):
        return "several"
    type_ = schema.get("type") or ""
    return type_.lower() if isinstance(type_, str) else type(type_).__name__


def _to_key(value: Any) -> str:
    """Return a JSON value as text by which it is compared: `1`, `1.0` and `true` differ."""
    return _KEY_ENCODER.encode(value)


def _to_label(value: Any) -> str:
    return _to_option_text(value)[:MAX_OPTION_LABEL] or "-"


def _to_option_text(value: Any) -> str:
    return _to_line(_to_text(value))


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else _ENCODER.encode(value)


def _to_line(text: str) -> str:
    if text.isascii() and text.isprintable():
        return " ".join(text.split())
    return " ".join(INVISIBLE_CHARACTERS.sub(" ", storable_text(text)).split())


def _to_short_line(text: Any, max_characters: int) -> str:
    return _to_line(text[:_MAX_CLEANED])[:max_characters] if isinstance(text, str) else ""


def validate_form(form: QuestionForm, entries: Entries) -> tuple[Any, dict[str | None, EntryError]]:
    """Return the JSON value of a person's entries in a form, and the errors in them by field name.

    The value is complete only without errors. The error of the whole form is under None, and only if no field has one.

    Args:
        entries: what `validate_entry` takes, by field name; a missing entry is a blank one. A blank optional entry
            becomes the default; without a default, the answer lacks the field, and ADK passes None for it.
    """
    only = form.fields[0]
    values = dict[str, Any]()
    errors = dict[str | None, EntryError]()
    for field_ in form.fields:
        entry = entries.get(field_.name, "")
        is_blank = not "".join(entry).strip()
        try:
            if field_.is_required or not is_blank:
                values[field_.name] = validate_entry(field_, entry)
            elif field_.has_default:
                values[field_.name] = field_.default
        except EntryError as error:
            errors[field_.name] = error
    if form.is_object or not errors:
        try:
            found = _find_errors(form, values if form.is_object else values.get(only.name))
        except UncheckableError:
            found = {None: EntryError("unchecked")} if form.is_object else {only.name: EntryError("unchecked", only)}
        whole = found.pop(None, None)
        errors = found | errors
        if whole is not None and not errors:
            errors[None] = whole
    right = {name: value for name, value in values.items() if name not in errors}
    return right if form.is_object else right.get(only.name), errors


def _find_errors(form: QuestionForm, value: Any) -> dict[str | None, EntryError]:
    fields = {field_.name: field_ for field_ in form.fields}
    errors = dict[str | None, EntryError]()
    for error in form.validator.find_errors(value) if form.validator else ():
        path = [part + 1 if isinstance(part, int) else part for part in error.absolute_path]
        name = (str(path.pop(0)) if path else None) if form.is_object else form.fields[0].name
        field_ = None if name is None else fields.get(name)
        fault, limit = _explain(form, error)
        place = ".".join(map(str, path))
        errors.setdefault(name if field_ else None, EntryError(fault, field_, limit, place))
    return errors


def _explain(form: QuestionForm, error: ValidationError) -> tuple[Fault, float | str | None]:
    instance: Any = error.instance
    match error.validator, error.validator_value:
        case "required", list(names):
            missing = names
        case (("dependentRequired" | "dependencies"), dict(dependencies)):
            missing = [name for key, names in dependencies.items() if key in instance for name in names]
        case "type", list(types):
            return "type", ", ".join(map(str, types))
        case keyword, (str() | int() | float()) as limit:
            return str(keyword), limit
        case keyword, _:
            return str(keyword), None
    labels: dict[Any, str] = {} if error.absolute_path else {field_.name: field_.label for field_ in form.fields}
    return "missing", ", ".join(labels.get(name, str(name)) for name in missing if name not in instance)


def validate_entry(field_: FormField, entry: str | Sequence[str]) -> Any:
    """Return the JSON value of a person's entry in a field; `validate_form` checks the value against the schema.

    A blank entry in an optional field becomes an empty list for `choices`, and an empty text for others.

    Args:
        entry: the entered text; for an option, `OPTION_PREFIX` and its position, or its label or value in any case.
            Several options are a list, or the lines of a text.

    Raises:
        EntryError: the entry has no value for the field.
    """
    if field_.kind == "choices":
        lines = [line.strip() for part in ([entry] if isinstance(entry, str) else entry) for line in part.split("\n")]
        chosen = _find_options(field_, [line for line in lines if line])
        if not chosen and field_.is_required:
            raise EntryError("required", field_)
        return chosen
    text = storable_text(entry if isinstance(entry, str) else "\n".join(entry)).strip()
    if not text:
        if field_.is_required and field_.min_length != 0:
            raise EntryError("required", field_)
        return ""
    return _parse_entry(field_, text)


def _parse_entry(field_: FormField, text: str) -> Any:
    match field_.kind:
        case "choice" | "boolean":
            return _find_options(field_, [text])[0]
        case "integer" | "number":
            return _to_number(field_, text)
        case "list":
            return [line.strip() for line in text.split("\n") if line.strip()]
        case "json" | "object" | "array":
            return _to_json(field_, text)
    if len(text) > MAX_ENTRY:
        raise EntryError("maxLength", field_, MAX_ENTRY)
    return text


def parse_answer(form: QuestionForm, text: str) -> Any:
    """Return the JSON value of a message that answers a question.

    For a form with several fields the message has to be a JSON object. If the form `accepts_any_text`, a message that
    does not fit is returned unchanged.

    Raises:
        EntryError: the message does not fit the form, and the form does not accept any text.
    """
    try:
        entries = {form.fields[0].name: text} if len(form.fields) == 1 else _parse_object(form, text)
        value, errors = validate_form(form, entries)
        if errors:
            raise next(iter(errors.values()))
        return value
    except EntryError:
        if form.accepts_any_text:
            return text
        raise


def _parse_object(form: QuestionForm, text: str) -> Entries:
    try:
        given = parse_json(text)
    except ValueError as error:
        raise EntryError(_get_json_fault(error) or "form") from error
    if not isinstance(given, dict):
        raise EntryError("form")
    return {field_.name: to_entry(field_, given[field_.name]) for field_ in form.fields if field_.name in given}


def to_entry(field_: FormField, value: Any) -> str | list[str]:
    """Return the entry for a JSON value: the text, or texts of options, for which `validate_entry` returns it."""
    if value is None:
        return ""
    match field_.kind:
        case "choices":
            positions = _index_options(field_)
            return [_to_option_entry(positions, entry) for entry in value] if isinstance(value, list) else []
        case "choice" | "boolean":
            return _to_option_entry(_index_options(field_), value)
        case "list" if isinstance(value, list):
            return "\n".join(map(str, value))
    return _to_text(value)


def _index_options(field_: FormField) -> dict[str, int]:
    return {_to_key(option.value): i for i, option in reversed([*enumerate(field_.options)])}


def _to_option_entry(positions: Mapping[str, int], value: Any) -> str:
    position = positions.get(_to_key(value))
    return str(value) if position is None else f"{OPTION_PREFIX}{position}"


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
    if field_.is_secret:
        return MASK
    if field_.options:
        positions = _index_options(field_)
        chosen = value if field_.kind == "choices" and isinstance(value, list) else [value]
        return ", ".join(_describe_option(field_, positions, entry) for entry in chosen)
    if field_.kind == "list" and isinstance(value, list):
        return ", ".join(map(str, value))
    return _to_text(value)


def _describe_option(field_: FormField, positions: Mapping[str, int], value: Any) -> str:
    if (position := positions.get(_to_key(value))) is not None:
        return field_.options[position].label
    return _to_text(value)


def _find_options(field_: FormField, texts: Sequence[str]) -> list[Any]:
    """Return the JSON values of options, or raise `EntryError`; a label has precedence over a value."""
    values = list[Any]()
    options = dict[str, FormOption]()
    for text in texts:
        position = text.removeprefix(OPTION_PREFIX)
        folded = _to_line(text).casefold()
        if text.startswith(OPTION_PREFIX) and position.isascii() and position.isdigit():
            index = int(position[:9])
            option = field_.options[index] if index < len(field_.options) else None
        elif field_.kind == "boolean" and folded in _TRUE_WORDS | _FALSE_WORDS:
            option = FormOption(folded, folded in _TRUE_WORDS)
        else:
            options = options or _index_texts(field_)
            option = options.get(folded)
        if option is None:
            raise EntryError("option", field_)
        values.append(option.value)
    return values


def _index_texts(field_: FormField) -> dict[str, FormOption]:
    options = field_.options[::-1]
    values = {_to_option_text(option.value).casefold(): option for option in options}
    return values | {option.label.casefold(): option for option in options}


def _to_number(field_: FormField, text: str) -> int | float:
    try:
        number = Decimal(text)
        if not number.is_finite() or len(number.as_tuple().digits) > MAX_DIGITS or not isfinite(float(number)):
            raise InvalidOperation
        return int(text) if field_.kind == "integer" else float(number)
    except (InvalidOperation, ValueError) as error:
        raise EntryError("integer" if field_.kind == "integer" else "number", field_) from error


def _to_json(field_: FormField, text: str) -> Any:
    try:
        value = parse_json(text)
    except ValueError as error:
        fault = _get_json_fault(error)
        if not field_.name and field_.kind == "json" and not (fault and text.startswith(("{", "["))):
            return text
        raise EntryError(fault or "json", field_) from error
    expected = {"object": dict, "array": list}.get(field_.kind, object)
    if not isinstance(value, expected):
        raise EntryError("json", field_)
    return value


def _get_json_fault(error: ValueError) -> Fault | None:
    limit = error.limit if isinstance(error, JsonLimitError) else None
    return limit and ("json_number" if limit == "number" else "json_depth")
