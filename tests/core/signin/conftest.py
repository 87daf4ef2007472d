"""Fixtures of sign-in: the local OAuth provider, its clients, and people who sign in."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import aiohttp
import pytest
from aiohttp import web

from chatrig.oauth import OAuthServer
from core.signin.oauth import OAuthClient, check_redirect, new_verifier
from core.signin.target import Credential, CredentialKind, SignInTarget

CALLBACK = "https://bot.example/sign-in/callback"


@dataclass(frozen=True)
class Provider:
    """The local OAuth provider, and the client that signs people in."""

    server: OAuthServer
    oauth: OAuthClient

    def create_target(self, *, auth_method: str = "client_secret_basic", **changes: Any) -> SignInTarget:
        """Return a target with a new client of the provider."""
        client = self.server.register_client(CALLBACK, auth_method=auth_method)
        values: dict[str, Any] = {
            "credential_key": "calendar",
            "kind": CredentialKind.OAUTH,
            "label": "Calendar",
            "authorization_url": f"{self.server.url}/authorize",
            "token_url": f"{self.server.url}/token",
            "revocation_url": f"{self.server.url}/revoke",
            "issuer": self.server.url,
            "client_id": client.id,
            "client_secret": client.secret,
            "scopes": ("calendar", "profile"),
            "token_auth_method": auth_method,
        }
        return SignInTarget(**{**values, **changes})

    async def sign_in(self, target: SignInTarget, user: str = "ada", *, redirect_uri: str = CALLBACK) -> Credential:
        verifier = new_verifier()
        url = self.oauth.create_authorization_url(target, redirect_uri=redirect_uri, state="s", verifier=verifier)
        code = check_redirect(target, read_query(await self.server.sign_in(user, url)))
        return await self.oauth.exchange_code(target, code=code, redirect_uri=redirect_uri, verifier=verifier)

    async def get_user(self, credential: Credential) -> str:
        """Return the name of the user whose access token a credential has; the HTTP status if it is not valid."""
        headers = {"Authorization": f"Bearer {credential.secret}"}
        async with aiohttp.ClientSession(headers=headers) as session, session.get(f"{self.server.url}/me") as response:
            return str((await response.json())["name"]) if response.status == 200 else str(response.status)

    def count_requests(self, path: str) -> int:
        return sum(request.path == path for request in self.server.requests)


@pytest.fixture
def provider(async_oauth_server: OAuthServer) -> Provider:
    return Provider(async_oauth_server, OAuthClient(allows_private_hosts=True))


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class TokenServer:
    """Server of one handler, at any path, for answers that the provider does not give."""

    url: str
    handler: Handler
    requests: int = 0

    def create_target(self, **changes: Any) -> SignInTarget:
        values: dict[str, Any] = {
            "credential_key": "key",
            "kind": CredentialKind.OAUTH,
            "label": "Odd service",
            "authorization_url": f"{self.url}/authorize",
            "token_url": f"{self.url}/token",
            "client_id": "client",
            "scopes": ("read",),
        }
        return SignInTarget(**{**values, **changes})

    def answer(self, body: str, **options: Any) -> None:
        async def respond(_: web.Request) -> web.Response:
            return web.Response(text=body, **{"content_type": "application/json", **options})

        self.handler = respond


@pytest.fixture
async def token_server() -> AsyncIterator[TokenServer]:
    async def handle(request: web.Request) -> web.StreamResponse:
        server.requests += 1
        return await server.handler(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server = TokenServer(f"http://127.0.0.1:{runner.addresses[0][1]}", lambda _: _fail())
    yield server
    await runner.cleanup()


async def _fail() -> web.Response:
    return web.Response(status=500)


def read_query(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))
