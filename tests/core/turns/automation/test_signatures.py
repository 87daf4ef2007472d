"""Signatures of GitHub, Slack and Stripe, and bearer tokens."""

import pytest
from multidict import CIMultiDict

from core.turns.automation.signatures import MAX_AGE_SECONDS, SignatureScheme, verify_request
from tests.core.turns.automation.payloads import (
    SECRET,
    STRIPE_EVENT,
    encode,
    hmac_sha256,
    send_token,
    sign_github,
    sign_slack,
    sign_stripe,
)

NOW = 1_800_000_000.5
BODY = encode(STRIPE_EVENT)

#: docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries#testing-the-webhook-payload-validation
GITHUB_SIGNATURE = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"

#: docs.slack.dev/authentication/verifying-requests-from-slack
SLACK_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
SLACK_TIME = 1531420618
SLACK_SIGNATURE = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&"
    b"channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&"
    b"response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&"
    b"trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)


def verify(
    scheme: str, headers: dict[str, str], body: bytes = BODY, *, secret: str = SECRET, now: float = NOW
) -> str | None:
    return verify_request(SignatureScheme(scheme), secret, CIMultiDict(headers), body, now=now)


def test_the_example_of_github_is_valid() -> None:
    assert verify("github", {"X-Hub-Signature-256": GITHUB_SIGNATURE}, b"Hello, World!") == ""
    assert verify("github", {"X-Hub-Signature-256": GITHUB_SIGNATURE}, b"Hello, World?") is None


def test_the_example_of_slack_is_valid_for_five_minutes() -> None:
    headers = {"X-Slack-Request-Timestamp": str(SLACK_TIME), "X-Slack-Signature": SLACK_SIGNATURE}
    for seconds, is_valid in ((0, True), (300, True), (301, False), (-300, True), (-301, False)):
        found = verify("slack", headers, SLACK_BODY, secret=SLACK_SECRET, now=SLACK_TIME + seconds)
        assert (found == str(SLACK_TIME)) is is_valid, seconds
    assert verify("slack", headers, SLACK_BODY + b"&a", secret=SLACK_SECRET, now=SLACK_TIME) is None


def test_one_of_several_stripe_signatures_is_enough() -> None:
    time = str(int(NOW))
    valid = hmac_sha256(SECRET, f"{time}.".encode() + BODY)
    for signatures in (f"v1={valid}", f"v1={'0' * 64},v1={valid}", f" v1={valid} , v0=zzz"):
        assert verify("stripe", {"stripe-signature": f"t={time},{signatures}"}) == time
    assert verify("stripe", {"Stripe-Signature": f"t={time},v0={valid}"}) is None
    assert verify("stripe", {"Stripe-Signature": f"t={time},t={time},v1={valid}"}) is None
    assert verify("stripe", {"Stripe-Signature": f"t={time}" + f",v1={'0' * 64}" * 10 + f",v1={valid}"}) is None


@pytest.mark.parametrize("sign", [sign_slack, sign_stripe])
def test_an_old_signature_and_one_from_the_future_are_refused(sign: type) -> None:
    scheme = "slack" if sign is sign_slack else "stripe"
    for seconds in (MAX_AGE_SECONDS + 1, -MAX_AGE_SECONDS - 2):
        assert verify(scheme, sign(BODY, NOW - seconds)) is None
    assert verify(scheme, sign(BODY, NOW - MAX_AGE_SECONDS + 1)) is not None


def test_another_secret_or_body_is_refused() -> None:
    for scheme, headers, others in (
        ("github", sign_github(BODY), sign_github(BODY, "another")),
        ("slack", sign_slack(BODY, NOW), sign_slack(BODY, NOW, "another")),
        ("stripe", sign_stripe(BODY, NOW), sign_stripe(BODY, NOW, "another")),
        ("bearer", send_token(), send_token("another")),
    ):
        assert verify(scheme, headers) is not None
        assert verify(scheme, others) is None
        assert verify(scheme, {}) is None
        assert scheme == "bearer" or verify(scheme, headers, BODY + b" ") is None


@pytest.mark.parametrize(
    "value", ["", "bearer", "Bearer", "Bearer ", f"Basic {SECRET}", SECRET, f"Bearer {SECRET}x", "Bearer é\udcff"]
)
def test_only_a_bearer_token_is_accepted(value: str) -> None:
    assert verify("bearer", {"Authorization": value}) is None


def test_the_case_of_bearer_does_not_matter() -> None:
    assert verify("bearer", {"authorization": f"bearer  {SECRET}"}) == ""


@pytest.mark.parametrize(
    "time", ["", "soon", "1e9", "-1", "١٨٠٠٠٠٠٠٠٠", f"{'9' * 5000}", " 1800000000", "1800000000.0"]
)
def test_a_signed_time_that_is_no_number_is_refused(time: str) -> None:
    slack = hmac_sha256(SECRET, f"v0:{time}:".encode() + BODY)
    assert verify("slack", {"X-Slack-Request-Timestamp": time, "X-Slack-Signature": f"v0={slack}"}) is None
    stripe = hmac_sha256(SECRET, f"{time}.".encode() + BODY)
    assert verify("stripe", {"Stripe-Signature": f"t={time},v1={stripe}"}) is None or time.startswith(" ")


@pytest.mark.parametrize("header", ["sha256=", "sha1=abc", "é\udcff", "sha256=" + "0" * 64, "=" * 5000, ",,,=,"])
def test_a_malformed_signature_is_refused(header: str) -> None:
    assert verify("github", {"X-Hub-Signature-256": header}) is None
    assert verify("slack", {"X-Slack-Request-Timestamp": "1800000000", "X-Slack-Signature": header}) is None
    assert verify("stripe", {"Stripe-Signature": header}) is None
