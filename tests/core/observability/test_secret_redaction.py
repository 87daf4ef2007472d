import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import StoreError
from core.observability.secret_redaction import (
    MASK,
    MIN_SECRET_LENGTH,
    RunSecrets,
    ValuePath,
    add_secret,
    add_temporary_secret,
    describe_failure,
    format_error,
    get_value,
    redact_secrets,
)
from tests.fixtures.steps import count_steps

SECRET = "hunter2hunter2"


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ('{"Authorization": "Basic %s"}', '{"Authorization": "[redacted]"}'),
        ("Authorization: Basic %s, again", "Authorization: Basic [redacted] again"),
        ("Authorization: token %s", "Authorization: token [redacted]"),
        ("Authorization: %s was refused", "Authorization: [redacted] was refused"),
        ("Proxy-Authorization: Digest %s", "Proxy-Authorization: Digest [redacted]"),
        ("connect(password='two words %s')", "connect(password='[redacted]')"),
        ('{"password": "a\\"b %s"}', '{"password": "[redacted]"}'),
        ("password: %s", "password: [redacted]"),
        ("SECRET_KEY=%s", "SECRET_KEY=[redacted]"),
        (
            '{"body": "{\\"token\\": \\"%s\\", \\"id\\": 1}"}',
            '{"body": "{\\"token\\": \\"[redacted]\\", \\"id\\": 1}"}',
        ),
        ('"{\\"secret\\": \\"a \\\\\\"b %s\\"}"', '"{\\"secret\\": \\"[redacted]\\"}"'),
        ("Cookie: a=1; session=%s", "Cookie: [redacted]"),
        ("X-Auth-Token: %s", "X-Auth-Token: [redacted]"),
        ("Private-Token: %s", "Private-Token: [redacted]"),
        ("postgres://me:a/b%s@host/db", "postgres://[redacted]@host/db"),
        ("postgres://me:a b%s@host/db", "postgres://[redacted]@host/db"),
    ],
)
def test_a_secret_after_its_name_is_redacted_completely(text: str, redacted: str) -> None:
    assert redact_secrets(text.replace("%s", SECRET)) == redacted


@pytest.mark.parametrize(
    "secret",
    [
        "ghr_16C7e42F292c6912E7710c838347Ae178B4a",
        "xwfp-1234567890-abcdef",
        "GOCSPX-abcdefghijklmnopqrstuvwxyz12",
        "1//0gabcdefghijklmnopqrstuvwxyz",
        "mfa.VkO_2G4Qv3T--NO--lWetW_tjND--TOKEN",
        "sk_live_4eC39HqLyjWDarjtT1zdp7dc",
        "hvs.CAESIJ1234567890abcdefghij",
        "npm_abcdefghijklmnopqrstuvwxyz0123456789",
        "pypi-AgEIcHlwaS5vcmcCJGFiY2RlZg",
        "shpat_0123456789abcdef0123456789abcdef",
        "SG.abcdefghijklmnopqrstuv.abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQdGBF\n",
    ],
)
def test_a_secret_with_the_prefix_of_its_vendor_is_redacted(secret: str) -> None:
    assert redact_secrets(f"({secret}") == "([redacted]"


@pytest.mark.parametrize(
    "text",
    [
        "a risk-assessment-report-of-2026",
        "https://example.com:8080/path",
        "https://example.com:8080/users/@me",
        "see https://example.com: ask bob@example.com",
        "the bearer of news",
        "desk-lamp-for-two",
        "password: it must have 8 characters",
        "Cookie: chocolate chip",
        "token: 42",
        '{"tokens": 5, "password": ""}',
    ],
)
def test_plain_words_stay(text: str) -> None:
    assert redact_secrets(text) == text


def test_a_registered_secret_of_any_form_is_redacted() -> None:
    add_secret("correct horse battery")
    add_secret("correct horse")
    assert redact_secrets("<correct horse battery> <correct horse>") == "<[redacted]> <[redacted]>"


def test_a_value_too_short_to_be_a_secret_is_not_remembered() -> None:
    add_secret("abc")
    assert redact_secrets("abcd") == "abcd"


def raise_and_catch(error: Exception, cause: Exception | None = None) -> Exception:
    try:
        raise error from cause
    except Exception as caught:
        return caught


def test_our_own_errors_are_described_with_their_text_and_cause() -> None:
    error = raise_and_catch(StoreError("the database is away"), ValueError("password=hunter2"))
    assert format_error(error) == "StoreError: the database is away (from ValueError)"


def test_a_foreign_error_is_described_by_its_class_and_place_alone() -> None:
    text = format_error(raise_and_catch(ValueError("password=hunter2")))
    assert text.startswith("ValueError, raised at\n")
    assert Path(__file__).name in text
    assert "hunter2" not in text


def test_a_failure_has_the_text_and_the_traceback_of_a_foreign_error() -> None:
    line, attributes = describe_failure(raise_and_catch(ValueError("password=hunter2"), KeyError("token=hunter2")))
    assert line == "ValueError: password=[redacted]"
    assert "KeyError: 'token=[redacted]" in attributes["details"]
    assert Path(__file__).name in attributes["details"]
    assert attributes["details"].endswith(line)


def test_a_failure_with_an_error_of_ours_has_no_traceback() -> None:
    error = raise_and_catch(StoreError("the database is away"), ValueError("password=hunter2"))
    assert describe_failure(error) == (format_error(error), {})


@pytest.mark.parametrize(
    "word",
    [
        "x",
        "x-",
        "a.",
        "token",
        "eyJ",
        "://",
        '"token": "',
        "secret=",
        "-----BEGIN A PRIVATE KEY-----",
        "://:",
        "token='",
        "cookie: a=",
    ],
)
def test_redaction_takes_linear_time_on_repeated_text(word: str) -> None:
    def measure_seconds(size: int) -> float:
        began = time.thread_time()
        redact_secrets(word * (size // len(word)))
        return time.thread_time() - began

    assert measure_seconds(200_000) < 40 * max(measure_seconds(20_000), 0.005)


def test_a_known_secret_inside_a_longer_one_leaves_none_of_it_visible() -> None:
    add_secret("xoxb-1")
    add_secret("sk-abcdefghijkl!and-more")
    assert redact_secrets("xoxb-12345-67890-AbCdEf, sk-abcdefghijkl!and-more.") == "[redacted], [redacted]."


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
JSON = st.recursive(SCALARS, lambda part: st.lists(part) | st.dictionaries(st.text(max_size=5), part), max_leaves=20)


def has_text(value: Any, text: str) -> bool:
    """Return whether a text or a key in a JSON value contains a text."""
    match value:
        case str():
            return text in value
        case dict():
            return any(has_text(part, text) for part in (*value, *value.values()))
        case list():
            return any(has_text(part, text) for part in value)
    return False


#: Secrets of characters that the mask does not have.
SECRETS = st.text("XYZ9\"'\\\n é/", min_size=MIN_SECRET_LENGTH, max_size=12).filter(str.strip)


@given(SECRETS, st.text(max_size=8), JSON)
def test_no_copy_of_a_secret_of_a_run_stays(secret: str, around: str, value: Any) -> None:
    secrets = RunSecrets()
    secrets.add({"answer": [secret]})
    copies = [secret, f"{around}{secret}{around}", {secret: secret}, json.dumps({"a": secret}), repr(secret), value]
    masked = secrets.mask(copies)
    assert masked[0] == MASK
    assert not has_text(masked, secret)
    assert MASK in masked[3]
    restored = RunSecrets()
    restored.update(json.loads(json.dumps(secrets.to_json())))
    assert restored.mask(copies) == masked


@given(JSON)
def test_a_run_without_secrets_changes_nothing(value: Any) -> None:
    secrets = RunSecrets()
    assert secrets.is_empty
    assert secrets.mask(value) == value
    assert list(secrets.find_paths(value)) == []


@given(JSON, st.data())
def test_the_values_at_secret_paths_are_masked_whatever_they_are(value: Any, data: st.DataObject) -> None:
    paths, pending = list[ValuePath](), list[tuple[ValuePath, Any]]([((), value)])
    while pending:
        path, part = pending.pop()
        paths.append(path)
        items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
        pending += [((*path, key), item) for key, item in items]
    chosen = data.draw(st.sampled_from(paths))
    masked = RunSecrets().mask(value, {chosen})
    assert get_value(masked, chosen) == (None if get_value(value, chosen) is None else MASK)


def test_the_secrets_of_a_long_answer_are_added_at_once() -> None:
    def add(count: int) -> RunSecrets:
        secrets = RunSecrets()
        secrets.add_call("c", [f"secret {i}" for i in range(count)], [(i,) for i in range(count)])
        return secrets

    assert add(20).mask("secret 19, secret 7") == f"{MASK}, {MASK}"
    assert count_steps(lambda: add(400)) < 3 * count_steps(lambda: add(200))  # and not 4 or 8 times as many


def test_temporary_secrets_are_redacted_until_many_others_follow() -> None:
    add_temporary_secret("the first token")
    assert redact_secrets("it is the first token.") == "it is [redacted]."
    for number in range(4096):
        add_temporary_secret(f"token-{number}-of-many")
    assert redact_secrets("it is the first token.") == "it is the first token."
    assert redact_secrets("it is token-4095-of-many.") == "it is [redacted]."
