"""Authorization requests of a browser, the page on which a test chooses the user, and the codes that result.

Slack, Discord and `OAuthServer` share them: RFC 6749 (the code grant), RFC 7636 (PKCE).
"""

import secrets
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from time import monotonic
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit

from aiohttp import web

#: Of Slack; RFC 6749 recommends it as the maximum.
CODE_LIFETIME_SECONDS = 600.0
#: The parameter of an authorization URL that names the user who signs in; empty to deny the request.
USER_PARAMETER = "simulator_user"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """Parameters with which an app sends a browser to an authorization endpoint; "" for a missing one.

    Attributes:
        challenge: `code_challenge` of PKCE.
        challenge_method: `code_challenge_method` of PKCE.
    """

    client_id: str
    redirect_uri: str
    response_type: str
    scope: str
    state: str
    nonce: str
    challenge: str
    challenge_method: str
    resource: str

    @classmethod
    def parse(cls, url: str) -> "AuthorizationRequest":
        query = dict(parse_qsl(urlsplit(url).query))
        return cls(
            client_id=query.get("client_id", ""),
            redirect_uri=query.get("redirect_uri", ""),
            response_type=query.get("response_type", ""),
            scope=query.get("scope", ""),
            state=query.get("state", ""),
            nonce=query.get("nonce", ""),
            challenge=query.get("code_challenge", ""),
            challenge_method=query.get("code_challenge_method", ""),
            resource=query.get("resource", ""),
        )

    def create_redirect(self, **parameters: str) -> str:
        """Return the URL to which the browser goes back: the redirect URI with parameters and `state`."""
        query = urlencode({**parameters, "state": self.state} if self.state else parameters)
        return f"{self.redirect_uri}{'&' if urlsplit(self.redirect_uri).query else '?'}{query}"

    def accepts_verifier(self, verifier: str) -> bool:
        """Return whether a `code_verifier` belongs to the challenge; without a challenge, only an empty one does."""
        if not self.challenge:
            return not verifier
        return secrets.compare_digest(create_challenge(verifier), self.challenge)


def create_challenge(verifier: str) -> str:
    """Return the PKCE challenge S256 of a code verifier."""
    return urlsafe_b64encode(sha256(verifier.encode()).digest()).decode().rstrip("=")


class CodeStore(Generic[T]):
    """Authorization codes, each valid once.

    Args:
        speed: factor by which codes expire sooner than after `CODE_LIFETIME_SECONDS`.
    """

    def __init__(self, speed: float = 1.0) -> None:
        self._lifetime = CODE_LIFETIME_SECONDS / speed
        self._values: dict[str, tuple[T, float]] = {}

    def create_code(self, value: T) -> str:
        code = secrets.token_urlsafe(24)
        self._values[code] = (value, monotonic() + self._lifetime)
        return code

    def redeem_code(self, code: str) -> T | None:
        """Return the value of a code, and invalidate the code; None for an unknown, used or expired one."""
        value, expires_at = self._values.pop(code, (None, 0.0))
        return value if expires_at >= monotonic() else None


def read_client_credentials(authorization: str, values: Mapping[str, Any]) -> tuple[str, str]:
    """Return the client id and the client secret of a request; "" if missing.

    Args:
        authorization: the header `Authorization`; HTTP basic auth has precedence over the arguments.
        values: the arguments of the request by name.
    """
    scheme, _, encoded = authorization.partition(" ")
    if scheme != "Basic":
        return str(values.get("client_id", "")), str(values.get("client_secret", ""))
    try:
        client_id, _, client_secret = b64decode(encoded).decode().partition(":")
    except ValueError:
        return "", ""
    return unquote_plus(client_id), unquote_plus(client_secret)


async def respond_to_browser(
    request: web.Request, provider: str, users: Iterable[str], approve: Callable[[str, str], Awaitable[str]]
) -> web.Response:
    """Respond to a browser at an authorization endpoint.

    The response is a page with a link for each user and one to deny the request, or the redirect once the URL has
    `USER_PARAMETER`. A request that must not be redirected is HTTP 400.

    Args:
        provider: the name of the service that the users sign in with.
        users: the names of the users.
        approve: returns the redirect for a user's name ("" to deny) and the authorization URL; raises `ValueError` for
            a request that must not be redirected.
    """
    if USER_PARAMETER not in request.query:
        choices = {user: user for user in users} | {"": "Deny"}
        links = (
            f'<li><a href="{escape(str(request.url.update_query({USER_PARAMETER: user})))}">{escape(label)}</a></li>'
            for user, label in choices.items()
        )
        client = escape(request.query.get("client_id", ""))
        page = (
            '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>Sign in with {provider}</title><body style='font: 16px/1.6 system-ui; margin: 10vh auto; "
            f"width: 24rem'><h1>Sign in with {provider}</h1><p>The client {client} asks for it. Choose the user:</p>"
            f"<ul>{''.join(links)}</ul></html>"
        )
        return web.Response(text=page, content_type="text/html", headers={"Referrer-Policy": "no-referrer"})
    url = str(request.url.without_query_params(USER_PARAMETER))
    try:
        location = await approve(request.query[USER_PARAMETER], url)
    except ValueError as error:
        return web.Response(status=400, text=str(error))
    return web.Response(status=302, headers={"Location": location, "Referrer-Policy": "no-referrer"})
