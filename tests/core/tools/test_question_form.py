"""Forms for questions: fields by JSON schema, checks of entries, answers as text."""

import json
from contextlib import suppress
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr, TypeAdapter

from core.observability.secret_redaction import MASK
from core.tools.question_form import (
    MAX_FIELDS,
    MAX_OPTIONS,
    OPTION_PREFIX,
    EntryError,
    FormField,
    QuestionForm,
    create_form,
    describe_answer,
    parse_answer,
    schema_to_form,
    to_entry,
    validate_entry,
    validate_form,
)
from tests.fixtures.steps import count_steps

names = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)
scalars = st.one_of(names.filter(str.strip), st.integers(-1000, 1000), st.booleans())

#: JSON values of any kind, as an agent may give them for a schema.
any_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
keywords = st.sampled_from(
    ["type", "enum", "properties", "required", "items", "$ref", "anyOf", "oneOf", "allOf", "const", "default", "title"]
)
wild_schemas = st.recursive(
    any_json,
    lambda inner: st.dictionaries(keywords, st.one_of(inner, st.lists(inner, max_size=3)), max_size=5),
    max_leaves=12,
)

#: Schemas of one field, with a strategy for values that fit.
FITTING: list[tuple[dict[str, Any], st.SearchStrategy[Any]]] = [
    ({"type": "string"}, names.map(lambda text: " ".join(text.split())).filter(bool)),
    ({"type": "integer", "minimum": -5, "maximum": 5}, st.integers(-5, 5)),
    ({"type": "number"}, st.floats(-1e6, 1e6)),
    ({"type": "boolean"}, st.booleans()),
    ({"enum": ["S", "M", 3, None]}, st.sampled_from(["S", "M", 3])),
    ({"oneOf": [{"const": 1, "title": "One"}, {"const": 2}]}, st.sampled_from([1, 2])),
    ({"type": "array", "items": {"enum": ["a", "b"]}}, st.lists(st.sampled_from(["a", "b"]), min_size=1, unique=True)),
    ({"type": "object"}, st.dictionaries(st.sampled_from("ab"), st.integers(), min_size=1)),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, st.integers(1 - 10**30, 10**30 - 1)),
]


@given(wild_schemas)
@example({"anyOf": True})
def test_any_schema_has_a_form(schema: Any) -> None:
    form = schema_to_form(schema)
    assert 1 <= len(form.fields) <= MAX_FIELDS
    assert not form.problem or [field.kind for field in form.fields] in (["json"], ["object"])
    for field in form.fields:
        assert len(field.options) <= MAX_OPTIONS
        to_entry(field, field.default)


@given(st.data())
def test_a_value_that_fits_survives_its_entry(data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(FITTING), min_size=1, max_size=6))
    properties = {f"f{i}": schema for i, (schema, _) in enumerate(chosen)}
    value = {f"f{i}": data.draw(fitting) for i, (_, fitting) in enumerate(chosen)}
    form = schema_to_form({"type": "object", "properties": properties, "required": list(properties)})
    assert form.problem == ""
    entries = {field.name: to_entry(field, value[field.name]) for field in form.fields}
    assert validate_form(form, entries) == (value, {})
    assert len(describe_answer(form, value)) == len(chosen)


@given(st.lists(scalars, min_size=1, max_size=200, unique_by=json.dumps), st.data())
def test_each_option_is_chosen_by_its_position(options: list[Any], data: st.DataObject) -> None:
    choice = schema_to_form({"enum": options}).choice
    assert choice is not None
    position = data.draw(st.integers(0, len(options) - 1))
    assert validate_entry(choice, f"{OPTION_PREFIX}{position}") == options[position]


#: Keywords of a validator, with values that fit and that do not.
limits = st.dictionaries(
    st.sampled_from(
        [
            *("$schema", "$id", "$ref", "type", "nullable", "minimum", "multipleOf", "maxLength", "pattern", "format"),
            *("const", "enum", "items", "prefixItems", "contains", "uniqueItems", "required", "properties"),
            *("patternProperties", "additionalProperties", "minProperties", "dependentRequired", "not", "allOf"),
            *("oneOf", "if", "then"),
        ]
    ),
    st.one_of(
        st.sampled_from(
            ["integer", "string", "NULL", "date", "regex", "(a+)+$", "(", "#", "#/x", "https://x/y", 0, 0.1]
        ),
        st.sampled_from([10**400, ["a", "a"], [{"const": 1}, {"$ref": "#"}], {"a": ["b"]}, {"(a+)+$": {"type": "x"}}]),
        any_json,
        st.lists(wild_schemas, max_size=3),
    ),
    max_size=6,
)


@given(limits, st.sampled_from(["", "7", "1" * 401, "1,000", "a" * 40 + "!", '{"a": 1e300}', "[1, 1.0, true]", "x"]))
def test_any_schema_and_any_text_are_an_answer_or_an_error(schema: Any, text: str) -> None:
    for given_schema in (schema, {"properties": {"a": schema}}, {"allOf": [schema, {"properties": {"b": schema}}]}):
        form = create_form("adk_request_input", {"interruptId": "1", "response_schema": given_schema})
        with suppress(EntryError):
            parse_answer(form, text)
        validate_form(form, {field.name: text for field in form.fields})


@given(st.text(max_size=30))
def test_a_text_is_an_answer_or_has_an_error(text: str) -> None:
    for schema, _ in FITTING:
        with suppress(EntryError):
            parse_answer(schema_to_form(schema), text)


class Color(BaseModel):
    name: Literal["red", "blue"] = "red"


class Order(BaseModel):
    count: int = Field(default=1, ge=1, le=9, description="How many")
    note: str | None = None
    color: Color
    tags: list[str]


def test_a_pydantic_model_becomes_fields_with_labels_and_defaults() -> None:
    form = schema_to_form(TypeAdapter(Order).json_schema())
    assert [(field.name, field.kind, field.label, field.is_required) for field in form.fields] == [
        ("count", "integer", "Count", False),
        ("note", "text", "Note", False),
        ("color", "object", "Color", True),
        ("tags", "list", "Tags", True),
    ]
    assert (form.fields[0].default, form.fields[0].description) == (1, "How many")
    value, errors = validate_form(form, {"count": "10", "color": "{}", "tags": "a\n b \n"})
    assert value == {"color": {}, "tags": ["a", "b"]}
    assert [(name, error.fault, error.limit) for name, error in errors.items()] == [("count", "maximum", 9)]


def test_an_empty_field_has_its_default_and_is_not_described() -> None:
    note = {"type": "string", "title": "Note", "default": ""}
    form = schema_to_form({"type": "object", "properties": {"count": {"type": "integer", "default": 1}, "note": note}})
    value, errors = validate_form(form, {"count": "", "note": ""})
    assert (value, errors) == ({"count": 1, "note": ""}, {})
    assert describe_answer(form, value) == [("Count", "1")]


@pytest.mark.parametrize(
    "schema",
    [
        7,
        {"$ref": "#/nowhere"},
        {"type": "string", "enum": "S"},
        {"type": "secret"},
        {"$ref": "#/a", "a": {"$ref": "#/a"}},
        {"enum": list(range(MAX_OPTIONS + 1))},
    ],
    ids=["no schema", "reference", "enum", "type", "circle", "options"],
)
def test_a_schema_that_is_no_form_takes_any_text(schema: Any) -> None:
    form = schema_to_form(schema)
    assert form.problem
    assert parse_answer(form, "two shirts") == "two shirts"
    assert parse_answer(form, '{"shirts": 2}') == {"shirts": 2}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {f"f{i}": {} for i in range(MAX_FIELDS + 1)}},
        {"type": "object", "properties": ["shirts"]},
        {"type": "object"},
    ],
    ids=["fields", "properties", "no properties"],
)
def test_an_object_that_is_no_form_takes_a_json_object(schema: Any) -> None:
    arguments = {"interruptId": "1", "response_schema": schema}
    form = create_form("adk_request_input", arguments)
    assert parse_answer(form, '{"shirts": 2}') == {"shirts": 2}
    for text in ("two shirts", "[2]"):
        with pytest.raises(EntryError):
            parse_answer(form, text)
    of_model = create_form("adk_request_input", {"response_schema": schema})
    assert parse_answer(of_model, "two shirts") == "two shirts"


@pytest.mark.parametrize(
    ("field", "entry", "fault"),
    [
        (FormField("a"), " ", "required"),
        (FormField("a", "integer"), "1.5", "integer"),
        (FormField("a", "number"), "nan", "number"),
        (FormField("a", "choice"), "XL", "option"),
        (FormField("a", "choice"), f"{OPTION_PREFIX}5", "option"),
        (FormField("a", "choices"), f"{OPTION_PREFIX}{'1' * 5000}", "option"),
        (FormField("a", "integer"), "1" * 5000, "integer"),
        (FormField("a", "integer"), "1,000", "integer"),
        (FormField("a", "integer"), "1.000", "integer"),
        (FormField("a", "integer"), "1" * 31, "integer"),
        (FormField("a", "number"), "1,000", "number"),
        (FormField("a", "number"), "1.000,5", "number"),
        (FormField("a", "number"), "12,5", "number"),
        (FormField("a", "number"), "0." + "1" * 31, "number"),
        (FormField("a", "number"), "1" * 401, "number"),
        (FormField("a"), "x" * 3001, "maxLength"),
        (FormField("a", "number"), "1e999", "number"),
        (FormField("a", "json"), "{", "json"),
        (FormField("", "array"), "a, b", "json"),
        (FormField("a", "json"), "[" * 1400 + "]" * 1400, "json_depth"),
        (FormField("", "json"), "[" * 101 + "]" * 101, "json_depth"),
        (FormField("a", "json"), "NaN", "json_number"),
        (FormField("", "json"), "[Infinity]", "json_number"),
    ],
)
def test_an_entry_that_does_not_fit_says_why(field: FormField, entry: str, fault: str) -> None:
    with pytest.raises(EntryError) as raised:
        validate_entry(field, entry)
    assert raised.value.fault == fault


@pytest.mark.parametrize(
    ("schema", "entry", "fault", "limit"),
    [
        ({"type": "integer", "minimum": 2}, "1", "minimum", 2),
        ({"type": "number", "minimum": 10**400}, "1", "minimum", 10**400),
        ({"type": "integer", "exclusiveMaximum": 2}, "2", "exclusiveMaximum", 2),
        ({"type": "number", "multipleOf": 0.01}, "19.995", "multipleOf", 0.01),
        ({"type": "string", "minLength": 3}, "ab", "minLength", 3),
        ({"type": "string", "maxLength": 3}, "abcd", "maxLength", 3),
        ({"type": "STRING", "maxLength": 3, "enum": None}, "abcd", "maxLength", 3),
        ({"type": "string", "pattern": "^[A-Z]+$"}, "ab", "pattern", "^[A-Z]+$"),
        ({"type": "string", "format": "date"}, "2026-02-30", "format", "date"),
        ({"type": "array", "items": {"type": "string"}, "maxItems": 1}, "a\nb", "maxItems", 1),
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, "a\na", "uniqueItems", True),
        ({"type": ["integer", "array"]}, '"a"', "type", "integer, array"),
        ({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}, "0", "minimum", 1),
        ({"allOf": [{"type": "integer", "minimum": 1}, {"minimum": 5}]}, "3", "minimum", 5),
        ({"allOf": [{"type": "integer", "minimum": 5}, {"minimum": 1}]}, "3", "minimum", 5),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer", "minimum": 5}}, "minimum": 1}, "3", "minimum", 5),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "minimum": 3}, "2", "minimum", 3),
    ],
)
def test_a_value_that_violates_the_schema_says_its_limit(schema: Any, entry: str, fault: str, limit: Any) -> None:
    _, errors = validate_form(schema_to_form(schema), {"": entry})
    assert {name: (error.fault, error.limit) for name, error in errors.items()} == {"": (fault, limit)}


def test_a_model_takes_any_message_and_a_workflow_only_one_that_fits() -> None:
    def ask(**kwargs: Any) -> QuestionForm:
        return create_form("adk_request_input", {"response_schema": {"enum": ["S", "M"]}, **kwargs})

    assert parse_answer(ask(), "what is the difference?") == "what is the difference?"
    assert parse_answer(ask(interruptId="i"), "m") == "M"
    with pytest.raises(EntryError):
        parse_answer(ask(interruptId="i"), "what is the difference?")


def test_a_secret_answer_is_not_described() -> None:
    class Account(BaseModel):
        name: str
        key: SecretStr

    form = schema_to_form(Account.model_json_schema())
    assert describe_answer(form, {"name": "Ada", "key": "hunter2"}) == [("Name", "Ada"), ("Key", MASK)]
    assert describe_answer(schema_to_form({"type": "string", "format": "password"}), "hunter2") == [("", MASK)]


#: Numbers of any length, and those that JSON cannot hold, as limits, options and defaults.
numbers = st.sampled_from([10**400, -(10**400), 10**4299, 10**5000, float("inf"), float("nan"), 1e308])
keywords_of_numbers = st.sampled_from(["minimum", "maximum", "minLength", "maxLength", "default", "const", "title"])


@given(
    st.sampled_from(["integer", "number", "string", "array", ""]),
    st.dictionaries(keywords_of_numbers, numbers),
    st.lists(numbers, min_size=1, max_size=3),
    st.sampled_from(["7", "x", "1" * 500, "[1]", "1e400", "-0"]),
)
def test_a_schema_with_numbers_of_any_length_has_a_form(
    type_: str, limits: dict[str, Any], options: list[Any], text: str
) -> None:
    for schema in ({"type": type_, **limits}, {"enum": options}, {"properties": {"a": {"type": type_, **limits}}}):
        form = create_form("adk_request_input", {"response_schema": schema})
        answer = parse_answer(form, text)
        describe_answer(form, answer)
        for field in form.fields:
            to_entry(field, field.default)


@pytest.mark.parametrize(
    "values", [[1, True, 1.0], [False, 0, 0.0, "0", "false"], [[1], [True], {"a": 1}, {"a": True}]]
)
def test_options_that_python_takes_for_equal_are_different_choices(values: list[Any]) -> None:
    labels = [f"choice {i}" for i in range(len(values))]
    choice = {"oneOf": [{"const": value, "title": label} for value, label in zip(values, labels, strict=True)]}
    form = schema_to_form(choice)
    several = schema_to_form({"type": "array", "items": choice})
    for i, label in enumerate(labels):
        answer = parse_answer(form, f"{OPTION_PREFIX}{i}")
        assert json.dumps(answer) == json.dumps(values[i])
        assert describe_answer(form, answer) == [("", label)]
        assert describe_answer(several, [answer]) == [("", label)]
        assert to_entry(form.fields[0], answer) == f"{OPTION_PREFIX}{i}"
        assert to_entry(several.fields[0], [answer]) == [f"{OPTION_PREFIX}{i}"]


def test_a_text_chooses_the_option_with_this_label_before_one_with_this_value() -> None:
    form = schema_to_form({"oneOf": [{"const": "A", "title": "B"}, {"const": "B", "title": "A"}]})
    assert [parse_answer(form, text) for text in ("a", "b")] == ["B", "A"]
    form = schema_to_form({"oneOf": [{"const": "small", "title": "S"}, {"const": "medium", "title": "M"}]})
    assert [parse_answer(form, text) for text in ("small", "m")] == ["small", "medium"]


def test_two_labels_of_one_value_are_no_options() -> None:
    form = schema_to_form({"oneOf": [{"const": 1, "title": "Delete"}, {"const": 1, "title": "Keep"}]})
    assert (form.choice, form.problem) == (None, "two of its options have one value")
    assert schema_to_form({"enum": ["S", "S"]}).choice


def test_labels_have_no_invisible_characters() -> None:
    label = "\u202eyned\u200b now\u2066"
    form = schema_to_form({"properties": {label: {"title": label, "description": label, "enum": [label]}}})
    (field,) = form.fields
    assert (field.label, field.description, field.options[0].label) == ("yned now",) * 3
    assert field.options[0].value == label
    assert parse_answer(form, label) == {label: label}


def test_each_line_chooses_an_option_in_linear_time() -> None:
    schema = {
        "type": "array",
        "items": {"oneOf": [{"const": f"value {i}", "title": f"{i}"} for i in range(MAX_OPTIONS)]},
    }
    form = schema_to_form(schema)
    text = "\n".join(["value 999"] * 300)
    assert count_steps(lambda: parse_answer(form, text)) < 50_000
