"""Secret values in answers: marked by the schema at any depth, whatever the schema is."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr

from core.observability.secret_redaction import MASK, MAX_JSON_DEPTH
from core.sessions.resume import INPUT_CALL
from core.tools.secret_answers import find_answer_paths, has_secret_fields, list_message_secrets, mask_answer


class Card(BaseModel):
    owner: str
    pin: SecretStr | None = None
    codes: list[SecretStr] = Field(default_factory=list)
    by_name: dict[str, SecretStr] = Field(default_factory=dict)


class Account(BaseModel):
    user: str
    card: Card
    others: list[Card] = Field(default_factory=list)


ACCOUNT = {"response_schema": Account.model_json_schema()}


def test_secret_values_are_masked_at_any_depth_and_all_others_stay() -> None:
    card = {"owner": "ada", "pin": "123", "codes": ["a", "b"], "by_name": {"first": "c"}}
    answer = {"user": "ada", "card": card, "others": [{"owner": "linus", "pin": None}, card]}
    masked = {"owner": "ada", "pin": MASK, "codes": [MASK, MASK], "by_name": {"first": MASK}}
    others = [{"owner": "linus", "pin": None}, masked]
    assert mask_answer(INPUT_CALL, ACCOUNT, answer) == {"user": "ada", "card": masked, "others": others}


@pytest.mark.parametrize("answer", ["it is a", 7, ["a"], {"user": "ada", "card": {"owner": "ada"}}, None, ""])
def test_an_answer_that_does_not_fit_a_secret_form_is_masked(answer: Any) -> None:
    expected = answer if isinstance(answer, dict) or answer is None else MASK
    assert mask_answer(INPUT_CALL, ACCOUNT, answer) == expected


@pytest.mark.parametrize("name", ["response_schema", "responseSchema"])
def test_a_message_that_answers_a_secret_question_is_secret_as_a_whole(name: str) -> None:
    arguments = {name: ACCOUNT["response_schema"]}
    answer = {"user": "ada", "card": {"owner": "ada", "pin": "123"}}
    text = json.dumps(answer)
    assert list_message_secrets(INPUT_CALL, arguments, text, answer) == [text, "123"]
    assert list_message_secrets(INPUT_CALL, {name: {"type": "string"}}, text, answer) == []
    assert not has_secret_fields("get_user_choice", arguments)


KEYWORDS = st.sampled_from(
    ["properties", "items", "prefixItems", "allOf", "anyOf", "$ref", "additionalProperties", "format", "writeOnly", "a"]
)
SCHEMAS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["password", "#", "#/a", "#/properties/a", "string"]),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(KEYWORDS, part, max_size=4),
    max_leaves=20,
)
ANSWERS = st.recursive(st.none() | st.text(max_size=3), lambda part: st.lists(part) | st.dictionaries(KEYWORDS, part))


@given(SCHEMAS, ANSWERS)
def test_any_schema_and_any_answer_can_be_read(schema: Any, answer: Any) -> None:
    arguments = {"response_schema": schema}
    masked = mask_answer(INPUT_CALL, arguments, answer)
    if not has_secret_fields(INPUT_CALL, arguments):
        assert masked == answer
    assert len(find_answer_paths(INPUT_CALL, arguments, answer)) <= len(json.dumps(answer))


@pytest.mark.parametrize("depth", [MAX_JSON_DEPTH - 10, MAX_JSON_DEPTH + 10, 100_000])
def test_deep_answers_and_schemas_end_in_a_mask(depth: int) -> None:
    answer: Any = "secret"
    schema: Any = {"format": "password"}
    for _ in range(depth):
        answer = [answer]
        schema = {"items": schema}
    endless = {"items": {"$ref": "#"}, "$defs": {"a": {"writeOnly": True}}}
    for arguments in ({"response_schema": schema}, {"response_schema": endless}):
        masked = mask_answer(INPUT_CALL, arguments, answer)
        while isinstance(masked, list):
            (masked,) = masked
        assert masked == MASK
