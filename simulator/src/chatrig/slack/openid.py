"""Sign in with Slack: authorization of people, ID tokens and `openid.connect.*`.

Slack: docs.slack.dev/authentication/sign-in-with-slack, and the pages of both methods.
"""

import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from time import time
from typing import Any

from aiohttp import web

from chatrig.lookup import find_named
from chatrig.oauth.authorization import AuthorizationRequest, CodeStore, respond_to_browser
from chatrig.slack.api.base import WebApi
from chatrig.slack.api.requests import Arguments, SlackError
from chatrig.slack.oauth import OAuthMethods
from chatrig.slack.state.payloads import TEAM_DOMAIN, create_images
from chatrig.slack.state.workspace import Workspace, WorkspaceUser

ISSUER = "https://slack.com"
SCOPES = frozenset({"openid", "email", "profile"})
#: Slack: the difference of `exp` and `iat` in the documented ID token.
ID_TOKEN_SECONDS = 300
_EMAIL_VERIFIED_AT = 1_700_000_000


@dataclass(frozen=True, slots=True)
class SlackSignIn:
    """Sign-in that a user approved.

    Attributes:
        scopes: the requested scopes.
        approved_at: seconds since the epoch.
    """

    request: AuthorizationRequest
    workspace: Workspace
    user: WorkspaceUser
    scopes: frozenset[str]
    approved_at: int

    def claims(self) -> dict[str, Any]:
        """Return the claims about the user that the scopes allow, as in `openid.connect.userInfo`."""
        user, team = self.user, self.workspace
        claims: dict[str, Any] = {
            "sub": user.id,
            f"{ISSUER}/user_id": user.id,
            f"{ISSUER}/team_id": user.team_id or team.team_id,
        }
        if "email" in self.scopes:
            claims |= {"email": user.email, "email_verified": True, "date_email_verified": _EMAIL_VERIFIED_AT}
        if "profile" in self.scopes:
            first, _, last = user.real_name.partition(" ")
            images = create_images(f"avatar_{user.name}", 24, 32, 48, 72, 192, 512)
            claims |= {"name": user.real_name, "given_name": first, "family_name": last, "locale": user.locale}
            claims |= {"picture": images["image_72"]} | {f"{ISSUER}/user_{key}": url for key, url in images.items()}
            claims |= {f"{ISSUER}/team_name": team.name, f"{ISSUER}/team_domain": TEAM_DOMAIN}
            claims |= {f"{ISSUER}/team_image_default": True}
        return claims


class OpenIDMethods:
    """OpenID Connect provider for the people of the workspaces that have one app.

    Args:
        app: the app's credentials and redirect URLs.
        speed: factor by which codes expire sooner.
    """

    def __init__(self, app: OAuthMethods, speed: float) -> None:
        self._app = app
        self._codes = CodeStore[SlackSignIn](speed)
        self._sign_ins: dict[str, SlackSignIn] = {}
        self._key: Any = None

    def add_routes(self, router: web.UrlDispatcher, api: WebApi, people: Mapping[str, WorkspaceUser]) -> None:
        """Add the pages of a workspace's server for browsers and clients, and the methods of its Web API.

        Args:
            people: the users who can sign in, by name.
        """

        async def approve(name: str, url: str) -> str:
            return self.approve(url, api.workspace, find_named("user", name, people, {})) if name else self.deny(url)

        async def handle_authorize(request: web.Request) -> web.Response:
            return await respond_to_browser(request, "Slack", people, approve)

        async def handle_keys(_: web.Request) -> web.Response:
            key = {**self._load_key().as_dict(private=False), "use": "sig", "alg": "RS256"}
            return web.json_response({"keys": [key]})

        async def handle_configuration(request: web.Request) -> web.Response:
            return web.json_response(_describe_provider(f"{request.url.origin()}/"))

        router.add_get("/openid/connect/authorize", handle_authorize)
        router.add_get("/openid/connect/keys", handle_keys)
        router.add_get("/.well-known/openid-configuration", handle_configuration)
        api.register("openid.connect.token", self._exchange_code, token_kinds=())
        api.register("openid.connect.userInfo", lambda values: self._get_user_info(api, values), token_kinds=())

    def approve(self, url: str, workspace: Workspace, user: WorkspaceUser) -> str:
        """Approve the request at an authorization URL as a user; return the redirect of the browser.

        Raises:
            ValueError: the request is invalid, or `joserfc` is not installed.
        """
        self._load_key()
        request = self._parse_request(url)
        scopes = frozenset(request.scope.replace(",", " ").split())
        code = self._codes.create_code(SlackSignIn(request, workspace, user, scopes, int(time())))
        return request.create_redirect(code=code)

    def deny(self, url: str) -> str:
        """Deny the request at an authorization URL; return the redirect of the browser.

        Raises:
            ValueError: the request is invalid.
        """
        return self._parse_request(url).create_redirect(error="access_denied")

    def _parse_request(self, url: str) -> AuthorizationRequest:
        """Return the request at an authorization URL.

        Raises:
            ValueError: it is invalid. Slack shows a page about it, and does not redirect.
        """
        request = AuthorizationRequest.parse(url)
        scopes = set(request.scope.replace(",", " ").split())
        if request.client_id != self._app.client_id:
            raise ValueError("invalid_client_id")
        if request.redirect_uri not in self._app.redirect_urls:
            raise ValueError(f"bad_redirect_uri: {request.redirect_uri!r} is not in redirect_urls of the app")
        if "openid" not in scopes or not scopes <= SCOPES:
            raise ValueError("invalid_scope: openid is required, email and profile are allowed")
        if request.response_type != "code":
            raise ValueError("unsupported_response_type: it must be code")
        if request.challenge and request.challenge_method != "S256":
            raise ValueError("invalid_code_challenge_method: it must be S256")
        return request

    def _exchange_code(self, values: Arguments) -> dict[str, Any]:
        client_id, client_secret = values.text("client_id"), values.text("client_secret")
        if client_id != self._app.client_id:
            raise SlackError("invalid_client_id")
        if client_secret != self._app.client_secret:
            raise SlackError("bad_client_secret")
        match values.text("grant_type"):
            case "" | "authorization_code":
                pass
            case "refresh_token":  # tokens of the simulator do not expire, as without token rotation
                raise SlackError("invalid_refresh_token")
            case _:
                raise SlackError("invalid_grant_type")
        sign_in = self._codes.redeem_code(values.text("code"))
        if sign_in is None:
            raise SlackError("invalid_code")
        if values.text("redirect_uri") != sign_in.request.redirect_uri:
            raise SlackError("bad_redirect_uri")
        if not sign_in.request.accepts_verifier(values.text("code_verifier")):
            raise SlackError("invalid_code_verifier")
        token = f"xoxp-{secrets.token_hex(24)}"
        self._sign_ins[token] = sign_in
        id_token = self._create_id_token(sign_in, token)
        return {"access_token": token, "token_type": "Bearer", "id_token": id_token}

    def _get_user_info(self, api: WebApi, values: Arguments) -> dict[str, Any]:
        if not (token := values.text("token")):
            raise SlackError("not_authed")
        if api.token_kind(token) is not None:
            raise SlackError("not_allowed_token_type")
        if token not in self._sign_ins:
            raise SlackError("invalid_auth")
        return self._sign_ins[token].claims()

    def _create_id_token(self, sign_in: SlackSignIn, token: str) -> str:
        issued_at = int(time())
        at_hash = urlsafe_b64encode(sha256(token.encode()).digest()[:16]).decode().rstrip("=")
        claims = {
            "iss": ISSUER,
            "aud": self._app.client_id,
            "exp": issued_at + ID_TOKEN_SECONDS,
            "iat": issued_at,
            "auth_time": sign_in.approved_at,
            "nonce": sign_in.request.nonce,
            "at_hash": at_hash,
            **sign_in.claims(),
        }
        header = {"alg": "RS256", "typ": "JWT", "kid": self._key.kid}
        encoded: str = import_module("joserfc.jwt").encode(header, claims, self._key)
        return encoded

    def _load_key(self) -> Any:
        """Return the RSA key that signs ID tokens; create it on first use.

        Raises:
            ValueError: `joserfc` is not installed.
        """
        if self._key is None:
            try:
                jwk = import_module("joserfc.jwk")
            except ImportError:
                raise ValueError("Sign in with Slack needs joserfc: install chatrig[oauth]") from None
            self._key = jwk.RSAKey.generate_key(2048, auto_kid=True)
        return self._key


def _describe_provider(url: str) -> dict[str, Any]:
    """Return the configuration (OpenID Connect Discovery) of a server at `url`; the issuer is Slack."""
    return {
        "issuer": ISSUER,
        "authorization_endpoint": f"{url}openid/connect/authorize",
        "token_endpoint": f"{url}api/openid.connect.token",
        "userinfo_endpoint": f"{url}api/openid.connect.userInfo",
        "jwks_uri": f"{url}openid/connect/keys",
        "scopes_supported": ["openid", "profile", "email"],
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256"],
        "claims_supported": ["sub", "auth_time", "iss"],
        "claims_parameter_supported": False,
        "request_parameter_supported": False,
        "request_uri_parameter_supported": True,
        "token_endpoint_auth_methods_supported": ["client_secret_post", "client_secret_basic"],
    }
