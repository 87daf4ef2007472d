"""MCP server behind the local provider, with the OAuth client of the MCP SDK."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import ClientSession
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from chatrig.oauth import OAuthServer
from tests.oauth.conftest import REDIRECT_URI, create_client, get, post, read_query, sign_in

DOCUMENT_URL = "https://bot.example/oauth/client.json"


class MemoryTokenStorage:
    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Browser:
    """Browser of a user, which signs in at the provider.

    Attributes:
        scopes: the granted scopes of each sign-in, in order; None for the requested ones.
        urls: the visited authorization URLs.
    """

    def __init__(self, provider: OAuthServer, user: str, *scopes: list[str]) -> None:
        self._provider = provider
        self._user = user
        self.scopes = list(scopes)
        self.urls: list[str] = []

    async def visit(self, url: str) -> None:
        self.urls.append(url)

    async def come_back(self) -> AuthorizationCodeResult:
        scopes = self.scopes.pop(0) if self.scopes else None
        query = read_query(await self._provider.sign_in(self._user, self.urls[-1], scopes=scopes))
        return AuthorizationCodeResult(code=query["code"], state=query["state"], iss=query["iss"])


@asynccontextmanager
async def connect(
    provider: OAuthServer, browser: Browser, storage: MemoryTokenStorage | None = None, document_url: str | None = None
) -> AsyncIterator[ClientSession]:
    auth = OAuthClientProvider(
        provider.mcp_url,
        OAuthClientMetadata.model_validate({"client_name": "Bot", "redirect_uris": [REDIRECT_URI]}),
        storage or MemoryTokenStorage(),
        browser.visit,
        browser.come_back,
        client_metadata_url=document_url,
    )
    async with (
        httpx2.AsyncClient(auth=auth) as http,
        streamable_http_client(provider.mcp_url, http_client=http) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        await session.initialize()
        yield session


async def call(session: ClientSession, tool: str) -> Any:
    result: Any = await session.call_tool(tool)
    return result.structured_content


async def test_each_person_has_their_own_connection(provider: OAuthServer) -> None:
    for user in ("ada", "grace"):
        browser = Browser(provider, user)
        async with connect(provider, browser) as session:
            names = [tool.name for tool in (await session.list_tools()).tools]
            assert names == ["whoami", "list_events"]
            assert (await call(session, "whoami"))["name"] == user
            [event] = (await call(session, "list_events"))["events"]
            assert event["title"] == f"Meeting of {user}"
        assert read_query(browser.urls[0])["resource"] == provider.mcp_url
        assert len(browser.urls) == 1
    assert len(provider.clients) == 2


async def test_the_url_of_a_document_replaces_the_registration(provider: OAuthServer) -> None:
    provider.client_documents[DOCUMENT_URL] = {"client_id": DOCUMENT_URL, "redirect_uris": [REDIRECT_URI]}
    async with connect(provider, Browser(provider, "ada"), document_url=DOCUMENT_URL) as session:
        assert (await call(session, "whoami"))["name"] == "ada"
    assert provider.clients == {}
    assert provider.grants[0].client_id == DOCUMENT_URL


async def test_a_tool_asks_for_a_missing_scope(provider: OAuthServer) -> None:
    browser = Browser(provider, "ada", ["profile"])
    async with connect(provider, browser) as session:
        assert (await call(session, "whoami"))["name"] == "ada"
        assert len((await call(session, "list_events"))["events"]) == 1
    assert len(browser.urls) == 2
    assert "calendar" in read_query(browser.urls[1])["scope"]


async def test_an_expired_token_is_refreshed_without_the_user(provider: OAuthServer) -> None:
    provider.faults.set_token_lifetime(1)
    browser = Browser(provider, "ada")
    async with connect(provider, browser) as session:
        await asyncio.sleep(1.1)
        assert (await call(session, "whoami"))["name"] == "ada"
    assert len(browser.urls) == 1
    assert provider.grants[0].used_refresh_tokens


async def test_a_request_without_a_token_gets_the_address_of_the_metadata(provider: OAuthServer) -> None:
    async with httpx2.AsyncClient() as http:
        response = await http.post(provider.mcp_url, json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
    address = "/.well-known/oauth-protected-resource/mcp"
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == f'Bearer resource_metadata="{provider.url}{address}"'
    assert (await get(provider, address))[1]["resource"] == provider.mcp_url


async def test_a_token_for_the_mcp_server_is_invalid_for_other_resources(provider: OAuthServer) -> None:
    storage = MemoryTokenStorage()
    async with connect(provider, Browser(provider, "ada"), storage):
        pass
    assert storage.tokens is not None
    status, _, challenge = await get(provider, "/me", storage.tokens.access_token)
    assert (status, 'error="invalid_token"' in challenge) == (401, True)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ([], -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": "prompts/list"}, -32601),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "other"}}, -32602),
    ],
)
async def test_an_unknown_message_is_an_error(provider: OAuthServer, message: Any, code: int) -> None:
    async with create_client(provider) as client:
        token = (await sign_in(provider, client))["access_token"]
    headers = {"Authorization": f"Bearer {token}"}
    assert (await post(provider, "/mcp", json=message, headers=headers))[1]["error"]["code"] == code


async def test_a_401_fault_of_the_server_has_its_metadata(provider: OAuthServer) -> None:
    provider.faults.fail("/mcp", status=401)
    async with httpx2.AsyncClient() as http:
        response = await http.post(provider.mcp_url, json={})
    assert 'error="invalid_token"' in response.headers["WWW-Authenticate"]
    assert response.headers["WWW-Authenticate"].endswith('/mcp"')
