"""OAuth2 of Discord: sign-in of users by the code grant, and the routes of their tokens.

Discord: docs.discord.com/developers/topics/oauth2. Token routes take forms only, and have errors of RFC 6749.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from time import time
from typing import Any

from aiohttp import web

from chatrig.discord.api.base import DiscordRestApi
from chatrig.discord.api.requests import ApiRequest, ApiResponse
from chatrig.discord.state.messages import DiscordUser
from chatrig.lookup import find_named
from chatrig.oauth.authorization import AuthorizationRequest, CodeStore, read_client_credentials, respond_to_browser

#: Discord: properties of the application in `GET /oauth2/@me`; the specification requires all but `bot_*`.
APPLICATION_KEYS = (
    "id",
    "name",
    "icon",
    "description",
    "type",
    "bot_public",
    "bot_require_code_grant",
    "verify_key",
    "flags",
    "flags_new",
)
#: Discord: `expires_in` of the documented access token.
TOKEN_SECONDS = 604_800
SCOPES = frozenset({"connections", "email", "guilds", "guilds.members.read", "identify", "openid"})
TOKEN_ROUTE, REVOKE_ROUTE = "POST /oauth2/token", "POST /oauth2/token/revoke"
#: Routes that have the client's credentials in place of a token.
CLIENT_ROUTES = frozenset({TOKEN_ROUTE, REVOKE_ROUTE})
#: Routes that accept the token of a user, and check it themselves.
USER_ROUTES = frozenset({"GET /oauth2/@me", "GET /users/@me"})


@dataclass(eq=False, slots=True)
class DiscordGrant:
    """Sign-in that a user approved, with its present tokens; "" before the exchange of the code.

    Attributes:
        expires_at: when the access token expires, in seconds since the epoch.
    """

    request: AuthorizationRequest
    user: DiscordUser
    access_token: str = ""
    refresh_token: str = ""
    expires_at: float = 0.0


class DiscordOAuth:
    """OAuth2 server for the users of the simulator's server, with one app.

    Attributes:
        client_id, client_secret: the app's credentials; the id is that of the application.
        redirect_urls: the app's redirect URLs, one of which a request must have exactly.
    """

    def __init__(self, api: DiscordRestApi, speed: float) -> None:
        self.client_id = api.guild.bot.id
        self.client_secret = secrets.token_urlsafe(24)
        self.redirect_urls: set[str] = set()
        self._guild = api.guild
        self._payloads = api.payloads
        self._speed = speed
        self._codes = CodeStore[DiscordGrant](speed)
        #: Grants whose code was exchanged, and which are not revoked.
        self._grants: list[DiscordGrant] = []
        api.add_route(TOKEN_ROUTE, self._create_token)
        api.add_route(REVOKE_ROUTE, self._revoke_token)
        api.add_route("GET /users/@me", self._get_user)
        api.add_route("GET /oauth2/@me", self._get_authorization)

    def add_page(self, router: web.UrlDispatcher, people: Mapping[str, DiscordUser]) -> None:
        """Add the page for browsers.

        Args:
            people: the users who can sign in, by name.
        """

        async def approve(name: str, url: str) -> str:
            return self.approve(url, find_named("user", name, people, {})) if name else self.deny(url)

        async def handle(request: web.Request) -> web.Response:
            return await respond_to_browser(request, "Discord", people, approve)

        router.add_get("/oauth2/authorize", handle)

    def approve(self, url: str, user: DiscordUser) -> str:
        """Approve the request at an authorization URL as a user; return the redirect of the browser.

        Raises:
            ValueError: the request is invalid.
        """
        request = self._parse_request(url)
        return request.create_redirect(code=self._codes.create_code(DiscordGrant(request, user)))

    def deny(self, url: str) -> str:
        """Deny the request at an authorization URL; return the redirect of the browser.

        Raises:
            ValueError: the request is invalid.
        """
        description = "The resource owner or authorization server denied the request"
        return self._parse_request(url).create_redirect(error="access_denied", error_description=description)

    def _find_grant(self, request: ApiRequest) -> DiscordGrant | None:
        """Return the grant of a request's token; None for a bot token, and for an unknown or expired one."""
        scheme, _, token = request.authorization.partition(" ")
        grants = (grant for grant in self._grants if scheme == "Bearer" and grant.access_token == token)
        return next((grant for grant in grants if grant.expires_at > time()), None)

    def _parse_request(self, url: str) -> AuthorizationRequest:
        """Return the request at an authorization URL.

        Raises:
            ValueError: it is invalid. Discord shows a page about it, and does not redirect.
        """
        request = AuthorizationRequest.parse(url)
        if request.client_id != self.client_id:
            raise ValueError("Unknown Application")
        if request.redirect_uri not in self.redirect_urls:
            raise ValueError(f"Invalid OAuth2 redirect_uri: {request.redirect_uri!r} is not in redirect_urls")
        if not request.scope or not set(request.scope.split()) <= SCOPES:
            raise ValueError(f"Invalid scope: the simulator has {', '.join(sorted(SCOPES))}")
        if request.response_type != "code":
            raise ValueError("Invalid response_type: the simulator has the code grant only")
        if request.challenge and request.challenge_method != "S256":
            raise ValueError("Invalid code_challenge_method: it must be S256")
        return request

    # Routes of the client

    def _create_token(self, request: ApiRequest) -> ApiResponse:
        if error := self._check_client(request):
            return error
        form = request.form
        match form.get("grant_type"):
            case "authorization_code":
                return self._exchange_code(form)
            case "refresh_token":
                token = form.get("refresh_token")
                grant = next((grant for grant in self._grants if token and grant.refresh_token == token), None)
                return _create_error("invalid_grant") if grant is None else self._renew_tokens(grant)
            case _:
                return _create_error("unsupported_grant_type")

    def _exchange_code(self, form: Mapping[str, Any]) -> ApiResponse:
        grant = self._codes.redeem_code(form.get("code", ""))
        if grant is None:
            return _create_error("invalid_grant", 'Invalid "code" in request.')
        if form.get("redirect_uri") != grant.request.redirect_uri:
            return _create_error("invalid_grant", 'Invalid "redirect_uri" in request.')
        if not grant.request.accepts_verifier(form.get("code_verifier", "")):
            return _create_error("invalid_grant", 'Invalid "code_verifier" in request.')
        self._grants.append(grant)
        return self._renew_tokens(grant)

    def _renew_tokens(self, grant: DiscordGrant) -> ApiResponse:
        grant.access_token = secrets.token_urlsafe(22)
        grant.refresh_token = secrets.token_urlsafe(22)
        grant.expires_at = time() + TOKEN_SECONDS / self._speed
        return ApiResponse(
            {
                "token_type": "Bearer",
                "access_token": grant.access_token,
                "expires_in": TOKEN_SECONDS,
                "refresh_token": grant.refresh_token,
                "scope": grant.request.scope,
            }
        )

    def _revoke_token(self, request: ApiRequest) -> ApiResponse:
        """Revoke a token, and with it all tokens of its user.

        Discord: all active tokens of the authorization are revoked, whichever token and hint the request has.
        """
        if error := self._check_client(request):
            return error
        token = request.form.get("token")
        if not token:
            return _create_error("invalid_request", 'Missing "token" in request.')
        users = {grant.user.id for grant in self._grants if token in (grant.access_token, grant.refresh_token)}
        self._grants = [grant for grant in self._grants if grant.user.id not in users]
        return ApiResponse({})

    def _check_client(self, request: ApiRequest) -> ApiResponse | None:
        """Return the error of a request without the client's credentials; None for a correct one."""
        if not request.body.is_form:
            return _create_error("invalid_request", "The content type must be application/x-www-form-urlencoded.")
        if read_client_credentials(request.authorization, request.form) != (self.client_id, self.client_secret):
            return _create_error("invalid_client", status=401)
        return None

    # Routes of the user

    def _get_user(self, request: ApiRequest) -> ApiResponse:
        if request.authorization.startswith("Bot "):
            return ApiResponse(self._payloads.bot_user())
        grant = self._find_grant(request)
        scopes = grant.request.scope.split() if grant else []
        if grant is None or "identify" not in scopes:
            return ApiResponse({"message": "401: Unauthorized", "code": 0}, 401)
        about = self._payloads.user(grant.user) | {
            "mfa_enabled": False,
            "locale": self._guild.locales.get(grant.user.id, "en-US"),
            "premium_type": 0,
            "banner": None,
            "accent_color": None,
        }
        if "email" in scopes:
            about |= {"email": f"{grant.user.name}@example.com", "verified": True}
        return ApiResponse(about)

    def _get_authorization(self, request: ApiRequest) -> ApiResponse:
        grant = self._find_grant(request)
        if grant is None:
            return ApiResponse({"message": "401: Unauthorized", "code": 0}, 401)
        application = self._payloads.application()
        scopes = grant.request.scope.split()
        about = {
            "application": {key: application[key] for key in APPLICATION_KEYS},
            "scopes": scopes,
            "expires": datetime.fromtimestamp(grant.expires_at, UTC).isoformat(),
        }
        if "identify" in scopes:
            about["user"] = self._payloads.user(grant.user)
        return ApiResponse(about)


def _create_error(error: str, description: str = "", *, status: int = 400) -> ApiResponse:
    return ApiResponse({"error": error} | ({"error_description": description} if description else {}), status)
