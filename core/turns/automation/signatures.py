"""Signatures of requests to hooks: GitHub's, Slack's and Stripe's, and bearer tokens.

Every comparison takes the same time for a wrong value as for the right one. Of a request, only the signed parts are
trusted: the body and, with Slack and Stripe, the time.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum

#: Seconds between the signed time of a request and now, as Slack and Stripe recommend.
MAX_AGE_SECONDS = 300.0

#: Signatures of one Stripe header that are compared. Stripe sends one for each secret that is valid at the time.
_MAX_SIGNATURES = 10

_UNIX_TIME = re.compile(r"[0-9]{1,12}", re.ASCII)


class SignatureScheme(StrEnum):
    """Scheme by which a sender proves that it knows a hook's secret.

    Attributes:
        GITHUB: HMAC-SHA256 of the body in `X-Hub-Signature-256`
            (docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries).
        SLACK: HMAC-SHA256 of `v0:TIME:BODY` in `X-Slack-Signature`
            (docs.slack.dev/authentication/verifying-requests-from-slack).
        STRIPE: HMAC-SHA256 of `TIME.BODY` in `Stripe-Signature` (docs.stripe.com/webhooks/signature).
        BEARER: the secret itself in `Authorization` (RFC 6750).
    """

    GITHUB = "github"
    SLACK = "slack"
    STRIPE = "stripe"
    BEARER = "bearer"


def verify_request(
    scheme: SignatureScheme, secret: str, headers: Mapping[str, str], body: bytes, *, now: float
) -> str | None:
    """Return the time that the sender has signed, empty if the scheme signs none; None for an invalid request.

    Args:
        headers: a mapping in which case does not matter.
        now: a request is invalid if its signed time is more than `MAX_AGE_SECONDS` before or after this.
    """
    match scheme:
        case SignatureScheme.BEARER:
            kind, _, token = headers.get("Authorization", "").partition(" ")
            is_valid = _matches(secret, [token.strip()]) and kind.lower() == "bearer"
            return "" if is_valid else None
        case SignatureScheme.GITHUB:
            expected = f"sha256={_sign(secret, body)}"
            return "" if _matches(expected, [headers.get("X-Hub-Signature-256", "")]) else None
        case SignatureScheme.SLACK:
            signed_at = headers.get("X-Slack-Request-Timestamp", "")
            expected = f"v0={_sign(secret, b'v0:%b:%b' % (_encode(signed_at), body))}"
            is_valid = _matches(expected, [headers.get("X-Slack-Signature", "")])
        case SignatureScheme.STRIPE:
            pairs = [part.strip().partition("=") for part in headers.get("Stripe-Signature", "").split(",")]
            times = [value for name, _, value in pairs if name == "t"]
            signed_at = times[0] if len(times) == 1 else ""
            signatures = [value for name, _, value in pairs if name == "v1"][:_MAX_SIGNATURES]
            is_valid = _matches(_sign(secret, b"%b.%b" % (_encode(signed_at), body)), signatures)
    is_recent = _UNIX_TIME.fullmatch(signed_at) is not None and abs(now - int(signed_at)) <= MAX_AGE_SECONDS
    return signed_at if is_valid and is_recent else None


def _sign(secret: str, data: bytes) -> str:
    return hmac.new(secret.encode(), data, hashlib.sha256).hexdigest()


def _matches(expected: str, given: Iterable[str]) -> bool:
    """Return whether one of several values is the expected one; all are compared, by digests of one length."""
    wanted = hashlib.sha256(expected.encode()).digest()
    results = [hmac.compare_digest(wanted, hashlib.sha256(_encode(value)).digest()) for value in given]
    return any(results)


def _encode(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")  # aiohttp: bytes of a header that are no UTF-8 are surrogates
