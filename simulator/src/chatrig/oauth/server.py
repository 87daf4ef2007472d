"""OAuth 2.1 authorization server for tests, with resources and an MCP server that need its tokens.

Discovery by RFC 8414 and RFC 9728, registration by RFC 7591 and client-metadata documents, PKCE by RFC 7636, `iss` by
RFC 9207, resources by RFC 8707, revocation by RFC 7009.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from aiohttp import web

from chatrig.lookup import find_named
from chatrig.oauth import mcp
from chatrig.oauth.authorization import AuthorizationRequest, CodeStore, read_client_credentials, respond_to_browser
from chatrig.oauth.clients import AUTH_METHODS, ClientRegistry, OAuthClient, OAuthError
from chatrig.oauth.faults import OAuthFaults
from chatrig.oauth.grants import CalendarEvent, GrantStore, OAuthGrant, OAuthUser

SCOPES = ("calendar", "profile")
MCP_PATH = "/mcp"
#: Protected resources by path: the identifier (RFC 8707) without the server's address.
RESOURCES: Mapping[str, str] = {"/me": "", "/calendar": "", MCP_PATH: MCP_PATH}
_USERS = ("ada", "grace", "linus")
_MEETING_AT = datetime(2030, 1, 7, 9, tzinfo=UTC)
_PRM_PATH = "/.well-known/oauth-protected-resource"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class OAuthRequestRecord:
    """Record of one request to the provider or to a resource.

    Attributes:
        received_at: seconds on the monotonic clock.
        status: the HTTP status; 0 for a lost response.
    """

    method: str
    path: str
    received_at: float
    status: int


class OAuthServer:
    """Local authorization server with protected resources, as an async context manager.

    Attributes:
        url: the issuer, and the resource identifier of `/me` and `/calendar`; set when the context is entered.
        users: users by name; `ada`, `grace` and `linus` exist from the start, with one event each.
        requests: records of all requests, in order.
        faults: faults that tests inject.
        client_documents: client-metadata documents by URL, for clients whose URL is not on this machine.
    """

    def __init__(self, *, port: int = 0, speed: float = 1.0) -> None:
        """Create a provider, which starts when its context is entered.

        Args:
            port: the port of the server; 0 for any free one.
            speed: factor by which authorization codes expire sooner than after ten minutes.
        """
        self._port = port
        self.url = ""
        self.users: dict[str, OAuthUser] = {}
        self.requests: list[OAuthRequestRecord] = []
        self._registry = ClientRegistry()
        self.client_documents = self._registry.documents
        self._store = GrantStore()
        self.faults = OAuthFaults(self._store)
        self._codes = CodeStore[OAuthGrant](speed)
        self._used_codes: dict[str, OAuthGrant] = {}
        for name in _USERS:
            self.add_user(name, [CalendarEvent(f"Meeting of {name}", _MEETING_AT)])

    async def __aenter__(self) -> "OAuthServer":
        app = web.Application(middlewares=[self._record_request])
        app.router.add_get("/.well-known/oauth-authorization-server", self._describe_server)
        for resource in set(RESOURCES.values()):
            app.router.add_get(_PRM_PATH + resource, self._describe_resource)
        app.router.add_get("/authorize", self._handle_authorize)
        app.router.add_post("/register", self._handle_register)
        app.router.add_post("/token", self._handle_token)
        app.router.add_post("/revoke", self._handle_revoke)
        app.router.add_get("/me", self._get_user)
        app.router.add_get("/calendar", self._list_events)
        app.router.add_post(MCP_PATH, self._handle_mcp)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self._port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self._port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    # The provider

    @property
    def mcp_url(self) -> str:
        """The address of the MCP server, which has the tools `whoami` and `list_events`."""
        return self.url + MCP_PATH

    @property
    def clients(self) -> Mapping[str, OAuthClient]:
        """Registered clients by id."""
        return self._registry.clients

    @property
    def grants(self) -> list[OAuthGrant]:
        """Grants whose code was exchanged, in order, the revoked ones too."""
        return self._store.grants

    def add_user(self, name: str, events: Iterable[CalendarEvent] = ()) -> OAuthUser:
        """Add a user.

        Raises:
            ValueError: the name exists.
        """
        if name in self.users:
            raise ValueError(f"there is a user {name} already")
        user = OAuthUser(f"user-{len(self.users) + 1}", name, f"{name}@example.com", list(events))
        self.users[name] = user
        return user

    def register_client(self, *redirect_uris: str, auth_method: str = "client_secret_basic") -> OAuthClient:
        """Register a client; one with the `auth_method` `none` is public, without a secret."""
        return self._registry.add_client(redirect_uris, auth_method=auth_method)

    async def sign_in(self, user: OAuthUser | str, url: str, *, scopes: Iterable[str] | None = None) -> str:
        """Sign in as a user, and approve the request at an authorization URL.

        Args:
            url: the address with the query that the client wrote; the part before the query is not checked.
            scopes: the scopes that the user grants; None for the requested ones.

        Returns:
            The redirect of the browser, with `code`, `state` and `iss`; with `error` for an invalid request. The code
            is valid once, for ten minutes.

        Raises:
            ValueError: client, redirect URI or user is unknown, so that there is no redirect.
        """
        account = user if isinstance(user, OAuthUser) else find_named("user", user, self.users, {})
        request = await self._parse_request(url)
        try:
            requested = self._check_request(request)
        except OAuthError as error:
            return request.create_redirect(**error.body(), iss=self.url)
        grant = OAuthGrant(request, account, set(requested if scopes is None else scopes))
        return request.create_redirect(code=self._codes.create_code(grant), iss=self.url)

    async def deny(self, url: str) -> str:
        """Deny the request at an authorization URL; return the redirect of the browser, with `error` and `iss`.

        Raises:
            ValueError: client or redirect URI is unknown, so that there is no redirect.
        """
        request = await self._parse_request(url)
        error = OAuthError("access_denied", "The user denied the request.")
        return request.create_redirect(**error.body(), iss=self.url)

    async def _parse_request(self, url: str) -> AuthorizationRequest:
        request = AuthorizationRequest.parse(url)
        try:
            client = await self._registry.find_client(request.client_id)
        except OAuthError as error:
            raise ValueError(str(error)) from None
        if request.redirect_uri not in client.redirect_uris:
            raise ValueError(f"the client has no redirect URI {request.redirect_uri!r}")
        return request

    def _check_request(self, request: AuthorizationRequest) -> set[str]:
        """Return the requested scopes, all scopes by default.

        Raises:
            OAuthError: the request is invalid.
        """
        if request.response_type != "code":
            raise OAuthError("unsupported_response_type", "response_type must be code.")
        if not request.challenge or request.challenge_method != "S256":
            raise OAuthError("invalid_request", "PKCE with the method S256 is required.")
        scopes = set(request.scope.split() or SCOPES)
        if not scopes <= set(SCOPES):
            raise OAuthError("invalid_scope", f"The scopes are {' and '.join(SCOPES)}.")
        if request.resource and request.resource.rstrip("/") not in (self.url, self.mcp_url):
            raise OAuthError("invalid_target", "The resource is unknown.")
        return scopes

    # HTTP

    @web.middleware
    async def _record_request(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        received_at = monotonic()
        fault = self.faults.take(request.path)
        if fault is not None and fault.kind == "delay":
            await asyncio.sleep(fault.seconds)
        response: web.StreamResponse
        try:
            if fault is not None and fault.kind == "fail":
                error = OAuthError(fault.error, "A fault of the simulator.", fault.status)
                is_unauthorized = request.path in RESOURCES and fault.status == 401
                response = (
                    self._challenge(request, {"error": "invalid_token"}) if is_unauthorized else _create_error(error)
                )
            else:
                response = await handler(request)
        except OAuthError as error:
            response = _create_error(error)
        except web.HTTPException as error:
            self.requests.append(OAuthRequestRecord(request.method, request.path, received_at, error.status))
            raise
        is_lost = fault is not None and fault.kind == "lose_response"
        status = 0 if is_lost else response.status
        self.requests.append(OAuthRequestRecord(request.method, request.path, received_at, status))
        if is_lost and request.transport is not None:
            request.transport.abort()
        return response

    async def _describe_server(self, _: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "registration_endpoint": f"{self.url}/register",
                "revocation_endpoint": f"{self.url}/revoke",
                "scopes_supported": SCOPES,
                "response_types_supported": ["code"],
                "response_modes_supported": ["query"],
                "grant_types_supported": ["authorization_code", "refresh_token"],
                "token_endpoint_auth_methods_supported": AUTH_METHODS,
                "revocation_endpoint_auth_methods_supported": AUTH_METHODS,
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
                "client_id_metadata_document_supported": True,
            }
        )

    async def _describe_resource(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "resource": self.url + request.path.removeprefix(_PRM_PATH),
                "authorization_servers": [self.url],
                "scopes_supported": SCOPES,
                "bearer_methods_supported": ["header"],
            }
        )

    async def _handle_authorize(self, request: web.Request) -> web.Response:
        async def approve(user: str, url: str) -> str:
            return await (self.sign_in(user, url) if user else self.deny(url))

        return await respond_to_browser(request, "the local provider", self.users, approve)

    async def _handle_register(self, request: web.Request) -> web.Response:
        try:
            metadata = await request.json()
        except ValueError:
            raise OAuthError("invalid_client_metadata", "The metadata must be JSON.") from None
        return web.json_response(self._registry.register_client(metadata), status=201)

    async def _handle_token(self, request: web.Request) -> web.Response:
        form = await _read_form(request)
        client = await self._authenticate_client(request, form)
        match form.get("grant_type"):
            case "authorization_code":
                tokens = self._exchange_code(client, form)
            case "refresh_token":
                tokens = self._store.refresh_tokens(client.id, form.get("refresh_token", ""))
            case _:
                raise OAuthError("unsupported_grant_type", "grant_type is unknown.")
        return web.json_response(tokens, headers={"Cache-Control": "no-store"})

    def _exchange_code(self, client: OAuthClient, form: Mapping[str, str]) -> Mapping[str, Any]:
        """Exchange an authorization code for tokens.

        Raises:
            OAuthError: `invalid_grant` or `invalid_target`. If the code was used before, its grant is revoked.
        """
        code = form.get("code", "")
        grant = self._codes.redeem_code(code)
        if grant is None:
            if code in self._used_codes:
                self._used_codes[code].revoke()
            raise OAuthError("invalid_grant", "The code is unknown, used or expired.")
        request = grant.request
        if request.client_id != client.id or request.redirect_uri != form.get("redirect_uri"):
            raise OAuthError("invalid_grant", "The code belongs to another client or redirect URI.")
        if not request.accepts_verifier(form.get("code_verifier", "")):
            raise OAuthError("invalid_grant", "code_verifier is wrong.")
        if form.get("resource", request.resource) != request.resource:
            raise OAuthError("invalid_target", "The code belongs to another resource.")
        self._used_codes[code] = grant
        return self._store.issue_tokens(grant)

    async def _handle_revoke(self, request: web.Request) -> web.Response:
        form = await _read_form(request)
        client = await self._authenticate_client(request, form)
        if not form.get("token"):
            raise OAuthError("invalid_request", "token is missing.")
        self._store.revoke_token(client.id, form["token"])
        return web.Response()

    async def _authenticate_client(self, request: web.Request, form: Mapping[str, str]) -> OAuthClient:
        authorization = request.headers.get("Authorization", "")
        client_id, secret = read_client_credentials(authorization, form)
        client = await self._registry.find_client(client_id)
        method = "client_secret_basic" if authorization else "client_secret_post" if secret else "none"
        if (method, secret) != (client.auth_method, client.secret):
            raise OAuthError("invalid_client", f"The client must authenticate by {client.auth_method}.", 401)
        return client

    # Resources

    def _authorize(self, request: web.Request, scope: str = "") -> OAuthGrant | web.Response:
        """Return the grant of a request's token, or the refusal of the request.

        Args:
            scope: the required scope; "" for none.
        """
        needed = {"scope": scope} if scope else {}
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer":
            return self._challenge(request, needed)
        grant = self._store.find_grant(token)
        resource = self.url + RESOURCES[request.path]
        if grant is None or grant.request.resource.rstrip("/") not in ("", resource):
            return self._challenge(request, {"error": "invalid_token", **needed})
        if scope and scope not in grant.scopes:
            return self._challenge(request, {"error": "insufficient_scope", **needed}, status=403)
        return grant

    def _challenge(self, request: web.Request, parameters: Mapping[str, str], *, status: int = 401) -> web.Response:
        """Return the refusal of a request to a resource, with `WWW-Authenticate` (RFC 6750, RFC 9728)."""
        metadata = {"resource_metadata": f"{self.url}{_PRM_PATH}{RESOURCES[request.path]}"}
        value = ", ".join(f'{name}="{text}"' for name, text in {**parameters, **metadata}.items())
        body = {"error": parameters.get("error", "invalid_request")}
        return web.json_response(body, status=status, headers={"WWW-Authenticate": f"Bearer {value}"})

    async def _get_user(self, request: web.Request) -> web.Response:
        grant = self._authorize(request, "profile")
        return grant if isinstance(grant, web.Response) else web.json_response(mcp.describe_user(grant.user))

    async def _list_events(self, request: web.Request) -> web.Response:
        grant = self._authorize(request, "calendar")
        return grant if isinstance(grant, web.Response) else web.json_response(mcp.list_events(grant.user))

    async def _handle_mcp(self, request: web.Request) -> web.Response:
        try:
            message = await request.json()
        except ValueError:
            return web.json_response(mcp.create_error(None, mcp.PARSE_ERROR, "The body is no JSON."), status=400)
        grant = self._authorize(request, mcp.find_scope(message))
        if isinstance(grant, web.Response):
            return grant
        response = mcp.respond_to_message(message, grant.user)
        return web.Response(status=202) if response is None else web.json_response(response)


async def _read_form(request: web.Request) -> dict[str, str]:
    return {name: value for name, value in (await request.post()).items() if isinstance(value, str)}


def _create_error(error: OAuthError) -> web.Response:
    headers = {"Cache-Control": "no-store"}
    if error.code == "invalid_client" and error.status == 401:
        headers["WWW-Authenticate"] = "Basic"
    return web.json_response(error.body(), status=error.status, headers=headers)
