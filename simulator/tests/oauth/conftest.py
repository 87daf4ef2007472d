"""Local provider, and a client of Authlib."""

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import aiohttp
import pytest
from authlib.integrations.httpx_client import AsyncOAuth2Client

from chatrig.oauth import OAuthServer

REDIRECT_URI = "https://bot.example/callback"
VERIFIER = "v" * 43


@pytest.fixture
async def provider() -> AsyncIterator[OAuthServer]:
    async with OAuthServer() as server:
        yield server


def create_client(provider: OAuthServer, **options: Any) -> AsyncOAuth2Client:
    """Return the client of Authlib for a new public client of the provider."""
    client = provider.register_client(REDIRECT_URI, auth_method="none")
    return AsyncOAuth2Client(
        client.id,
        redirect_uri=REDIRECT_URI,
        scope="calendar profile",
        token_endpoint_auth_method="none",
        code_challenge_method="S256",
        token_endpoint=f"{provider.url}/token",
        **options,
    )


async def sign_in(provider: OAuthServer, client: AsyncOAuth2Client, user: str = "ada", **options: Any) -> Any:
    """Sign in as a user with a client, and return the tokens."""
    url, state = client.create_authorization_url(f"{provider.url}/authorize", code_verifier=VERIFIER)
    redirect = await provider.sign_in(user, url, **options)
    return await client.fetch_token(authorization_response=redirect, state=state, code_verifier=VERIFIER)


def read_query(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


async def get(provider: OAuthServer, path: str, token: str = "") -> tuple[int, Any, str]:
    """Return the status, JSON and `WWW-Authenticate` of a GET request."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession(headers=headers) as session, session.get(provider.url + path) as response:
        return response.status, await response.json(), response.headers.get("WWW-Authenticate", "")


async def post(provider: OAuthServer, path: str, **options: Any) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.post(provider.url + path, **options) as response:
        return response.status, await response.json() if response.content_type == "application/json" else None
