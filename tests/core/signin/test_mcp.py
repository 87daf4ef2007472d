"""Where people sign in at MCP servers: discovery, registration, and servers that lie."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web

from core.errors import SignInError, SignInUnavailableError
from core.privacy.vault import Vault
from core.signin.mcp import McpAuthorization, create_client_document
from tests.core.signin.conftest import Provider, TokenServer
from tests.core.signin.test_adk import KEY, Bot, bot  # noqa: F401 - a fixture

PUBLIC_URL = "https://bot.example"
LOCAL_URL = "http://127.0.0.1:8080"  # too local for a client-metadata document


def create(bot: Bot, public_url: str = LOCAL_URL, *, key: str = KEY) -> McpAuthorization:  # noqa: F811
    vault = Vault(bot.database, key)
    return McpAuthorization(bot.provider.oauth, vault, public_url=public_url)


async def test_a_client_document_needs_no_registration(bot: Bot, provider: Provider) -> None:  # noqa: F811
    servers = create(bot, PUBLIC_URL)
    document = create_client_document(PUBLIC_URL)
    provider.server.client_documents[document["client_id"]] = document
    target = await servers.find_target("box", provider.server.mcp_url, ())
    assert (target.client_id, target.client_secret) == (f"{PUBLIC_URL}/oauth/client.json", "")
    assert target.resource == provider.server.mcp_url
    assert target.issuer == provider.server.url
    assert set(target.scopes) == {"calendar", "profile"}
    credential = await provider.sign_in(target, "grace")
    assert credential.secret
    assert provider.count_requests("/register") == 0


async def test_two_workers_register_once(bot: Bot, provider: Provider) -> None:  # noqa: F811
    provider.server.faults.delay("/register", 0.3)
    url = provider.server.mcp_url
    found = await asyncio.gather(*(create(bot).find_target("box", url, ("profile",)) for _ in range(2)))
    assert found[0] == found[1] == await create(bot).find_target("box", url, ("profile",))
    assert found[0].scopes == ("profile",)
    assert provider.count_requests("/register") == 1
    assert found[0].client_secret.encode() not in bot.read_files()
    assert (await provider.sign_in(found[0], redirect_uri=f"{LOCAL_URL}/sign-in/callback")).secret


async def test_another_secret_key_registers_anew(bot: Bot, provider: Provider) -> None:  # noqa: F811
    first = await create(bot).find_target("box", provider.server.mcp_url, ())
    second = await create(bot, key=KEY[::-1]).find_target("box", provider.server.mcp_url, ())
    assert first.client_id != second.client_id


async def test_a_failed_registration_leaves_no_claim(bot: Bot, provider: Provider) -> None:  # noqa: F811
    provider.server.faults.fail("/register", status=400, error="invalid_redirect_uri")
    url = provider.server.mcp_url
    with pytest.raises(SignInError, match="cannot be registered"):
        await create(bot).find_target("box", url, ())
    assert (await create(bot).find_target("box", url, ())).client_id


async def test_a_failure_is_not_repeated_at_once(bot: Bot, provider: Provider) -> None:  # noqa: F811
    servers = create(bot)
    path = "/.well-known/oauth-authorization-server"
    provider.server.faults.fail(path)
    for _ in range(3):
        with pytest.raises(SignInUnavailableError):
            await servers.find_target("box", provider.server.mcp_url, ())
    assert provider.count_requests(path) == 1


async def test_the_last_target_serves_while_the_servers_fail(
    bot: Bot,  # noqa: F811
    provider: Provider,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("core.signin.mcp.TARGET_SECONDS", 0.0)
    servers = create(bot)
    target = await servers.find_target("box", provider.server.mcp_url, ())
    provider.server.faults.fail("/.well-known/oauth-authorization-server", times=10)
    assert await servers.find_target("box", provider.server.mcp_url, ()) == target


#: Metadata of a server at `{url}`; None for none.
PRM: Mapping[str, Any] = {"resource": "{url}/mcp", "authorization_servers": ["{url}"]}
SERVER: Mapping[str, Any] = {
    "issuer": "{url}",
    "authorization_endpoint": "{url}/authorize",
    "token_endpoint": "{url}/token",
    "registration_endpoint": "{url}/register",
    "code_challenge_methods_supported": ["S256"],
}
PRIVATE = "http://169.254.169.254/latest"


@pytest.mark.parametrize(
    ("challenge", "resource", "server", "fault"),
    [
        (f'resource_metadata="{PRIVATE}"', {}, {}, "not public"),
        ('resource_metadata="file:///etc/passwd"', {}, {}, "refused"),
        ("", {"authorization_servers": ["http://10.0.0.1/"]}, {}, "not public"),
        ("", {"authorization_servers": []}, {"issuer": "https://other.example"}, "another issuer"),
        ("", {"resource": "https://other.example/mcp"}, {}, "of another server"),
        ("", {}, {"issuer": "https://other.example"}, "another issuer"),
        ("", {}, {"authorization_endpoint": "javascript:alert(1)"}, "does not say where people sign in"),
        ("", {}, {"authorization_endpoint": "http://192.168.0.1/authorize"}, "not public"),
        ("", {}, {"authorization_endpoint": "https://user@service.example/"}, "refused"),
        ("", {}, {"token_endpoint": PRIVATE}, "not public"),
        ("", {}, {"registration_endpoint": PRIVATE}, "not public"),
        ("", {}, {"registration_endpoint": None}, "registers no clients"),
        ("", {}, {"code_challenge_methods_supported": ["plain"]}, "does not offer PKCE"),
        ("", {}, {"code_challenge_methods_supported": None}, "does not offer PKCE"),
        ("", {}, {"token_endpoint_auth_methods_supported": ["private_key_jwt"]}, "demands the authentication"),
        ("", {}, None, "does not say where people sign in"),
    ],
)
async def test_an_evil_server_is_refused(
    bot: Bot,  # noqa: F811
    token_server: TokenServer,
    challenge: str,
    resource: Mapping[str, Any],
    server: Mapping[str, Any] | None,
    fault: str,
) -> None:
    def fill(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: fill(item) for key, item in value.items() if item is not None}
        if isinstance(value, list):
            return [fill(item) for item in value]
        return value.replace("{url}", token_server.url)

    async def respond(request: web.Request) -> web.Response:
        if request.path == "/mcp":
            return web.Response(status=401, headers={"WWW-Authenticate": f"Bearer {challenge}"})
        if "oauth-protected-resource" in request.path:
            return web.json_response(fill({**PRM, **resource}))
        if request.path == "/register":
            return web.json_response({"client_id": "c", "token_endpoint_auth_method": "private_key_jwt"}, status=201)
        if server is None:
            return web.Response(status=404)
        return web.json_response(fill({**SERVER, **server}))

    token_server.handler = respond
    with pytest.raises(SignInError, match=fault):
        await create(bot).find_target("box", f"{token_server.url}/mcp", ())


@pytest.mark.parametrize("body", ["", "{", "[]", "null", '{"issuer": 1}', "[" * 50_000, "x" * 70_000])
async def test_answers_that_are_no_metadata_are_refused(
    bot: Bot,  # noqa: F811
    token_server: TokenServer,
    body: str,
) -> None:
    token_server.answer(body)
    with pytest.raises(SignInError):
        await create(bot).find_target("box", f"{token_server.url}/mcp", ())
