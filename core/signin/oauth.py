"""OAuth 2.1 client: authorization URLs, and the token and revocation requests of a `SignInTarget`.

A target's URLs may come from another server's metadata. So they must be HTTPS on public hosts, no redirect is followed,
and time and size of an answer are limited.
"""

import asyncio
import base64
import hashlib
import json
import logging
import math
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote_plus

import aiohttp
from yarl import URL

from core.errors import GrantLostError, SignInError, SignInUnavailableError
from core.messages.identity import clean_name
from core.signin.target import Credential, SignInTarget
from core.tools.public_web import Address, UrlRefusedError, check_url, is_public, open_session, read_body

log = logging.getLogger(__name__)

#: Limits of one request: seconds in total, and bytes of the answer.
TIMEOUT_SECONDS = 10.0
MAX_BYTES = 65_536

#: Errors of a refresh after which only a new sign-in helps: RFC 6749; OpenID Connect and Microsoft; GitHub, Slack.
_LOST_CODES = frozenset({"invalid_grant", "interaction_required", "bad_refresh_token", "invalid_refresh_token"})

#: HTTP statuses below 500 after which the same request may succeed.
_BUSY_STATUSES = frozenset({408, 425, 429})

#: Characters of an access token (RFC 6749, appendix A.12) without the space, and of an error code (A.7).
_TOKEN = re.compile(r"[\x21-\x7e]+")
_ERROR_CODE = re.compile(r"[\x20\x21\x23-\x5b\x5d-\x7e]{1,80}")

#: Claims of an ID token that name a person's account, the best first.
_ACCOUNT_CLAIMS = ("email", "preferred_username", "name")


def new_verifier() -> str:
    """Return a random PKCE code verifier (RFC 7636)."""
    return secrets.token_urlsafe(48)


def check_redirect(target: SignInTarget, parameters: Mapping[str, str]) -> str:
    """Return the code in the parameters of an authorization response; the caller checks `state`.

    Raises:
        SignInError: the response is from another issuer (RFC 9207), reports an error, or has no code. If the target's
            issuer is unknown, it must have the host of the authorization URL.
    """
    host = str(URL(target.authorization_url).origin())
    issuer = parameters.get("iss")
    is_own = issuer == target.issuer if target.issuer else issuer is None or f"{issuer}/".startswith(f"{host}/")
    if not is_own:
        raise SignInError(f"{target.label}: the authorization response is not from {target.issuer or host}")
    if "error" in parameters:
        raise _refusal(target, parameters["error"])
    if not (code := parameters.get("code", "")):
        raise SignInError(f"{target.label}: the authorization response has no code")
    return code


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Response of a server, with its whole body."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes


class OAuthClient:
    """Client of authorization servers.

    Args:
        allows_private_hosts: whether URLs of this machine are allowed, by HTTP too: for the simulator.
    """

    def __init__(self, *, allows_private_hosts: bool = False) -> None:
        self._is_allowed = _is_public_or_loopback if allows_private_hosts else is_public
        self._allows_http = allows_private_hosts

    def create_authorization_url(
        self, target: SignInTarget, *, redirect_uri: str, state: str, verifier: str, nonce: str = ""
    ) -> str:
        """Return the URL to which the person's browser goes.

        Google: only `access_type=offline` and `prompt=consent` give a refresh token at each sign-in. ADK sends both to
        all servers too. Values in the target's URL have precedence.

        Raises:
            SignInError: the target's authorization URL is not allowed.
        """
        try:
            url = self._parse_url(target.authorization_url)
        except UrlRefusedError as error:
            raise SignInError(f"{target.label}: the authorization URL is refused: {error}") from error
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        optional = {
            "scope": " ".join(dict.fromkeys((*target.scopes, *target.added_scopes))),
            "nonce": nonce,
            "resource": target.resource,
            "audience": target.audience,
        }
        query = {
            "response_type": "code",
            "client_id": target.client_id,
            "redirect_uri": redirect_uri,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            **{name: value for name, value in optional.items() if value},
        }
        own = {"access_type": "offline", "prompt": "consent"}
        return str(url.extend_query({k: v for k, v in own.items() if k not in url.query}).update_query(query))

    async def exchange_code(self, target: SignInTarget, *, code: str, redirect_uri: str, verifier: str) -> Credential:
        """Exchange an authorization code for tokens.

        Raises:
            SignInError: the server refuses the code or the client, or its answer is wrong.
            SignInUnavailableError: the server cannot answer now; the code may be used up.
        """
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        return _read_credential(target, await self._request_tokens(target, form), Credential(secret=""))

    async def refresh(self, target: SignInTarget, credential: Credential) -> Credential:
        """Return new tokens for a refresh token; scopes, account and refresh token stay if the answer has none.

        Raises:
            GrantLostError: the server does not accept the refresh token any more.
            SignInUnavailableError: the tokens cannot be refreshed now: nothing is lost.
        """
        form = {"grant_type": "refresh_token", "refresh_token": credential.refresh_token}
        try:
            return _read_credential(target, await self._request_tokens(target, form), credential)
        except SignInError as error:
            if error.code in _LOST_CODES:
                raise GrantLostError(str(error), code=error.code) from error
            raise SignInUnavailableError(str(error)) from error

    async def revoke(self, target: SignInTarget, credential: Credential) -> None:
        """Revoke a grant by its refresh token, or else its access token (RFC 7009); a failure is logged."""
        if not target.revocation_url:
            return
        kind, token = "refresh_token", credential.refresh_token
        if not token:
            kind, token = "access_token", credential.secret
        try:
            status, _ = await self._post(target, target.revocation_url, {"token": token, "token_type_hint": kind})
        except (SignInError, SignInUnavailableError) as error:
            log.warning("a deleted sign-in was not revoked: %s", error)
            return
        if status != 200:
            log.warning("a deleted sign-in was not revoked: %s answered HTTP %d", target.label, status)

    async def _request_tokens(self, target: SignInTarget, form: Mapping[str, str]) -> Mapping[str, Any]:
        """Return the JSON object of a token response.

        GitHub: errors have HTTP 200.
        """
        resource = {"resource": target.resource} if target.resource else {}
        status, body = await self._post(target, target.token_url, {**form, **resource})
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if isinstance(answer, dict) and answer.get("error"):
            raise _refusal(target, answer["error"])
        if not isinstance(answer, dict) or status != 200:
            raise SignInError(f"{target.label}: the token response is wrong (HTTP {status})")
        return answer

    async def _post(self, target: SignInTarget, address: str, form: Mapping[str, str]) -> tuple[int, bytes]:
        """Send a form with the client's authentication; return the status, which is no redirect, and the body."""
        headers, credentials = _authenticate(target)
        response = await self.request("POST", address, target.label, headers=headers, data={**form, **credentials})
        if 300 <= response.status < 400:
            raise SignInError(f"{target.label}: the answer is a redirect (HTTP {response.status})")
        return response.status, response.body

    async def request(self, method: str, address: str, label: str, **options: Any) -> HttpAnswer:
        """Send a request to a URL of another server's choice, and follow no redirect.

        Args:
            label: the name of the service, for errors.
            options: those of `aiohttp.ClientSession.request`.

        Raises:
            SignInError: the URL is not allowed, or the answer is too long.
            SignInUnavailableError: the server cannot answer now.
        """
        try:
            url = self._parse_url(address)
            async with (
                asyncio.timeout(TIMEOUT_SECONDS),
                open_session(self._is_allowed) as session,
                session.request(method, url, allow_redirects=False, **options) as response,
            ):
                body = await read_body(response, MAX_BYTES + 1)
        except UrlRefusedError as error:
            raise SignInError(f"{label}: the URL is refused: {error}") from error
        except TimeoutError as error:
            raise SignInUnavailableError(f"{label}: no answer within {TIMEOUT_SECONDS:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if isinstance(error.__cause__, UrlRefusedError):
                raise SignInError(f"{label}: the URL is refused: {error.__cause__}") from error
            raise SignInUnavailableError(f"{label}: no answer ({type(error).__name__})") from error
        if response.status >= 500 or response.status in _BUSY_STATUSES:
            raise SignInUnavailableError(f"{label} answered HTTP {response.status}")
        if len(body) > MAX_BYTES:
            raise SignInError(f"{label}: the answer is too long (HTTP {response.status})")
        return HttpAnswer(response.status, tuple(response.headers.items()), body)

    def check_url(self, address: str, label: str) -> None:
        """Raise `SignInError` if a URL of another server's choice is not allowed; its host is not resolved."""
        try:
            self._parse_url(address)
        except UrlRefusedError as error:
            raise SignInError(f"{label}: the URL is refused: {error}") from error

    def _parse_url(self, address: str) -> URL:
        """Return a URL of a target, or raise `UrlRefusedError`.

        A host with other characters than ASCII may look like another one; RFC 6749 allows no fragment.
        """
        if not address.isascii() or not address.isprintable() or set(address) & set(" \\#"):
            raise UrlRefusedError("it has a character that is not allowed")
        try:
            url = URL(address)
        except ValueError as error:
            raise UrlRefusedError("it is not a URL") from error
        check_url(url, self._is_allowed)
        if url.scheme != "https" and not (self._allows_http and _is_loopback(url.host or "")):
            raise UrlRefusedError("it is not HTTPS")
        return url


def _is_public_or_loopback(address: Address) -> bool:
    return address.is_loopback or is_public(address)


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def _authenticate(target: SignInTarget) -> tuple[dict[str, str], dict[str, str]]:
    """Return the headers of a request to a target, and the parameters with the client's authentication.

    RFC 6749, section 2.3.1: id and secret are form-encoded before Basic authentication.
    """
    headers = {"Accept": "application/json"}
    if not target.client_secret:
        return headers, {"client_id": target.client_id}
    if target.token_auth_method == "client_secret_post":  # noqa: S105 - a method, not a secret
        return headers, {"client_id": target.client_id, "client_secret": target.client_secret}
    basic = aiohttp.encode_basic_auth(quote_plus(target.client_id), quote_plus(target.client_secret))
    return {**headers, "Authorization": basic}, {}


def _refusal(target: SignInTarget, error: object) -> SignInError:
    """Return the error for OAuth's `error`; a description is left out, since it may quote a secret."""
    code = error if isinstance(error, str) and _ERROR_CODE.fullmatch(error) else "unknown"
    return SignInError(f"{target.label} refused the sign-in: {code}", code=code)


def _read_credential(target: SignInTarget, answer: Mapping[str, Any], before: Credential) -> Credential:
    """Return the credential in a token response; what it lacks is that of `before`.

    Raises:
        SignInError: the response has no access token, or one that is no bearer token.
    """
    token, kind, refresh_token = (answer.get(name) for name in ("access_token", "token_type", "refresh_token"))
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise SignInError(f"{target.label}: the token response has no access token")
    if kind is not None and str(kind).lower() != "bearer":
        raise SignInError(f"{target.label}: the access token is no bearer token")
    return replace(
        before,
        secret=token,
        refresh_token=refresh_token if isinstance(refresh_token, str) and refresh_token else before.refresh_token,
        expires_at=_read_expiry(answer.get("expires_in")),
        scopes=_read_scopes(answer.get("scope")) or before.scopes or (*target.scopes, *target.added_scopes),
        account=_read_account(answer.get("id_token")) or before.account,
    )


def _read_expiry(seconds: object) -> float | None:
    """Return the time at which a token expires.

    Some servers send the seconds as text, and 0 for a token that does not expire.
    """
    with suppress(TypeError, ValueError, OverflowError):
        lifetime = float(seconds)  # type: ignore[arg-type]  # of other types, it raises `TypeError`
        if lifetime > 0 and math.isfinite(lifetime):
            return time.time() + lifetime
    return None


def _read_scopes(scopes: object) -> tuple[str, ...]:
    """Return granted scopes; GitHub separates them by commas."""
    return tuple(scopes.replace(",", " ").split()) if isinstance(scopes, str) else ()


def _read_account(id_token: object) -> str:
    """Return the name of the account in an ID token, for people.

    Its signature is not checked: it came from the token endpoint (OpenID Connect Core, section 3.1.3.7).
    """
    try:
        payload = str(id_token).split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return next(clean_name(str(claims[name])) for name in _ACCOUNT_CLAIMS if claims.get(name))
    except (ValueError, LookupError, AttributeError, RecursionError, StopIteration):
        return ""
