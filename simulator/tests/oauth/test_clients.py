"""Registration of clients, and client-metadata documents."""

from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from chatrig.oauth import OAuthServer
from tests.oauth.conftest import REDIRECT_URI, post, read_query
from tests.oauth.test_server import create_url

DOCUMENT_URL = "https://bot.example/oauth/client.json"


async def test_a_client_registers_itself(provider: OAuthServer) -> None:
    metadata = {"client_name": "Bot", "redirect_uris": [REDIRECT_URI], "token_endpoint_auth_method": "none"}
    status, body = await post(provider, "/register", json=metadata)
    assert (status, body["client_name"], body["token_endpoint_auth_method"]) == (201, "Bot", "none")
    assert "client_secret" not in body
    status, body = await post(provider, "/register", json={"redirect_uris": [REDIRECT_URI]})
    assert provider.clients[body["client_id"]].secret == body["client_secret"]


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ([], "invalid_client_metadata"),
        ({}, "invalid_redirect_uri"),
        ({"redirect_uris": ["/callback"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["javascript:alert(1)"]}, "invalid_redirect_uri"),
        ({"redirect_uris": [f"{REDIRECT_URI}#part"]}, "invalid_redirect_uri"),
        ({"redirect_uris": [REDIRECT_URI], "token_endpoint_auth_method": "tls"}, "invalid_client_metadata"),
    ],
)
async def test_wrong_metadata_is_refused(provider: OAuthServer, metadata: Any, error: str) -> None:
    status, body = await post(provider, "/register", json=metadata)
    assert (status, body["error"]) == (400, error)
    assert provider.clients == {}


async def test_the_url_of_a_document_is_a_client_id(provider: OAuthServer) -> None:
    provider.client_documents[DOCUMENT_URL] = {"client_id": DOCUMENT_URL, "redirect_uris": [REDIRECT_URI]}
    redirect = await provider.sign_in("ada", create_url(provider, DOCUMENT_URL))
    assert "code" in read_query(redirect)


@pytest.mark.parametrize(
    "changes", [{"client_id": "other"}, {"redirect_uris": []}, {"token_endpoint_auth_method": "client_secret_post"}]
)
async def test_a_wrong_document_is_refused(provider: OAuthServer, changes: dict[str, Any]) -> None:
    document = {"client_id": DOCUMENT_URL, "redirect_uris": [REDIRECT_URI], **changes}
    provider.client_documents[DOCUMENT_URL] = document
    with pytest.raises(ValueError, match="invalid_client"):
        await provider.sign_in("ada", create_url(provider, DOCUMENT_URL))


async def test_documents_are_fetched_from_this_machine_only(provider: OAuthServer) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.json_response({"client_id": str(request.url), "redirect_uris": [REDIRECT_URI]})

    app = web.Application()
    app.router.add_get("/client.json", handle)
    async with TestServer(app) as server:
        url = str(server.make_url("/client.json"))
        assert "code" in read_query(await provider.sign_in("ada", create_url(provider, url)))
        with pytest.raises(ValueError, match="cannot be read"):
            await provider.sign_in("ada", create_url(provider, f"{url}x"))
    with pytest.raises(ValueError, match="on this machine"):
        await provider.sign_in("ada", create_url(provider, DOCUMENT_URL))
