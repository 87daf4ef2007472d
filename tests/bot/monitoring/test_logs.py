"""Log output: no secrets, no forged lines, and the turn's id."""

import io
import json
import logging
import threading
import warnings
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from bot.monitoring import logs
from core.observability.secret_redaction import add_secret, redact_json_secrets
from core.observability.tracing import trace_turn

#: Secret of each kind, and a text that contains it.
SECRETS = {
    "slack bot token": ("xoxb-12345-67890-AbCdEfGh", "{}"),
    "slack user token": ("xoxe.xoxp-1-AbCdEfGhIjKl", "{}"),
    "slack app token": ("xapp-1-A012-345-fedcba", "{}"),
    "slack socket ticket": ("0a1b-2c3d4e5f", "wss://wss-primary.slack.com/link/?ticket={}&app_id=A1"),
    "slack webhook": ("T012/B345/AbCdEfGhIjKl", "https://hooks.slack.com/services/{}"),
    "discord token": ("MTA1NzYyNTg4OTk5OTk5OTk5.GabcDe.abcdefghijklmnopqrstuvwxyz012345", "{}"),
    "discord webhook": ("AbCdEfGhIjKlMnOpQrStUvWxYz", "https://discord.com/api/webhooks/123456789/{}"),
    "bearer header": ("abcdefgh12345678", "Authorization: Bearer {}"),
    "basic header": ("dXNlcjpwYXNzd29yZA==", "Authorization: Basic {}"),
    "database password": ("hunter2-s3cret", "postgresql+asyncpg://parley:{}@db.internal:5432/parley"),
    "database password with an at sign": ("hunt@er2s3cret", "postgres://parley:{}@db.internal/parley"),
    "database keywords": ("hunter2-s3cret", "host=db.internal password={} dbname=parley"),
    "openai key": ("sk-proj-AbCdEfGhIjKlMnOp", "Incorrect API key provided: {}."),
    "anthropic key": ("sk-ant-api03-AbCdEfGhIj", "x-api-key: {}"),
    "gemini key": ("AIzaSyA1234567890abcdefghij", "https://generativelanguage.googleapis.com/v1beta/models?key={}"),
    "any key in an address": ("0123456789abcdef", "https://models.example/v1/chat?key={}&alt=sse"),
    "oauth code": ("1234567890.0987654321.abcdef0123", "GET /slack/oauth_redirect?code={}&state=xyz"),
    "client secret": ("0123456789abcdef0123", "grant_type=x&client_secret={}&redirect_uri=y"),
    "in json": ("0123456789abcdef", '{{"ok": true, "access_token": "{}"}}'),
    "in python": ("0123456789abcdef", "{{'password': '{}', 'user': 'ada'}}"),
    "signing secret": ("8f742231b10e8888abcd99yyyzzz85a5", "verifying with {}"),
    "a setting with signs": ('pa"ss\\wört\n1', "{}"),
    "web token": ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "{}"),
    "github token": ("ghp_AbCdEfGhIjKlMnOpQrSt", "git clone https://{}@github.com/x/y"),
}

REMEMBERED = ("signing secret", "a setting with signs")


def log_message(text: str) -> None:
    logging.getLogger("core").error(text)


def log_argument(text: str) -> None:
    logging.getLogger("core").error("it says %s", text)


def log_exception(text: str) -> None:
    try:
        raise ValueError(text)
    except ValueError:
        logging.getLogger("core").exception("it failed")


def log_cause(text: str) -> None:
    try:
        try:
            raise KeyError(text)
        except KeyError as error:
            raise RuntimeError("later") from error
    except RuntimeError:
        logging.getLogger("core").exception("it failed")


def fail_thread(text: str) -> None:
    def work() -> None:
        raise ValueError(text)

    one = threading.Thread(target=work)
    one.start()
    one.join()


def show_warning(text: str) -> None:
    warnings.warn(text, stacklevel=1)


def log_tool_arguments(text: str) -> None:
    logging.getLogger("core").error("called with %s", redact_json_secrets({"query": text, "nested": [{"text": text}]}))


def log_details(text: str) -> None:
    logging.getLogger("core").error("it failed", extra={"details": text})


PATHS = [
    log_details,
    log_message,
    log_argument,
    log_exception,
    log_cause,
    fail_thread,
    show_warning,
    log_tool_arguments,
]


@pytest.fixture(params=["console", "json"])
def log_output(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level, hook = root.handlers[:], root.level, threading.excepthook
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr("sys.excepthook", None)
    logs.configure_logging("INFO", log_format=request.param)
    yield stream
    logging.captureWarnings(False)
    threading.excepthook = hook
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning", "always::UserWarning")
def test_no_kind_of_secret_is_in_the_log_by_any_path(log_output: io.StringIO) -> None:
    for name in REMEMBERED:
        add_secret(SECRETS[name][0])
    leaks = []
    for path in PATHS:
        for name, (secret, around) in SECRETS.items():
            log_output.seek(0)
            log_output.truncate()
            path(around.format(secret))
            output = log_output.getvalue()
            assert output, (path.__name__, name)
            forms = {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], quote(secret), secret[-6:]}
            if any(form in output for form in forms):
                leaks.append((path.__name__, name, output))
    assert leaks == []


def test_foreign_text_starts_no_log_line_and_controls_no_terminal(log_output: io.StringIO) -> None:
    forged = "x\n2026-11-24 13:00:00,000 CRITICAL bot.app: forged\r\x1b[2J\x9b\u2028\u202e\x7f"
    log_message(forged)
    log_exception(forged)
    log_details(forged)
    output = log_output.getvalue()
    assert not set(output) & set("\r\x1b\x9b\u2028\u202e\x7f")
    entries = [line for line in output.splitlines() if not line.startswith("  ")]
    assert len(entries) == 3
    assert not any(line.startswith("2026-11-24 13:00:00,000 CRITICAL") for line in output.splitlines())
    if entries[0].startswith("{"):
        assert json.loads(entries[0])["message"] == json.loads(entries[2])["details"] == forged
    else:
        assert r"x\n2026-11-24 13:00:00,000 CRITICAL bot.app: forged\r\x1b[2J\x9b\u2028\u202e\x7f" in entries[0]
        assert "  Traceback (most recent call last):\n" in output


def test_a_log_line_names_its_turn_and_json_has_it_as_fields(log_output: io.StringIO) -> None:
    with trace_turn("turn-1", "slack:T1:C1:1.2", "slack", "message"):
        logging.getLogger("core").info("well")
    logging.getLogger("core").info("no turn")
    about, other = log_output.getvalue().splitlines()
    if about.startswith("{"):
        entry = json.loads(about)
        assert (entry["turn"], entry["session"], entry["level"]) == ("turn-1", "slack:T1:C1:1.2", "INFO")
        assert "turn" not in json.loads(other)
    else:
        assert about.endswith("INFO core: well [turn=turn-1 session=slack:T1:C1:1.2]")
        assert other.endswith("INFO core: no turn")
