"""Flows of the local provider, with the client of Authlib."""

from urllib.parse import urlencode

import aiohttp
import pytest
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client

from chatrig.oauth import OAuthServer
from chatrig.oauth.authorization import create_challenge
from tests.oauth.conftest import REDIRECT_URI, VERIFIER, create_client, get, post, read_query, sign_in


def create_url(provider: OAuthServer, client_id: str, **changes: str) -> str:
    query = {
        "response_type": "code",
        "client_id": client_id,
        "scope": "profile",
        "redirect_uri": REDIRECT_URI,
        "state": "s-1",
        "code_challenge": create_challenge(VERIFIER),
        "code_challenge_method": "S256",
        **changes,
    }
    return f"{provider.url}/authorize?{urlencode(query)}"


async def test_two_people_have_their_own_tokens(provider: OAuthServer) -> None:
    for user in ("ada", "grace"):
        async with create_client(provider) as client:
            token = await sign_in(provider, client, user)
            about = (await client.get(f"{provider.url}/me")).json()
            calendar = (await client.get(f"{provider.url}/calendar")).json()
        assert token["scope"] == "calendar profile"
        assert about == {"id": provider.users[user].id, "name": user, "email": f"{user}@example.com"}
        assert [event["title"] for event in calendar["events"]] == [f"Meeting of {user}"]


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_a_client_with_a_secret_signs_in(provider: OAuthServer, method: str) -> None:
    registered = provider.register_client(REDIRECT_URI, auth_method=method)
    async with AsyncOAuth2Client(
        registered.id,
        registered.secret,
        redirect_uri=REDIRECT_URI,
        token_endpoint_auth_method=method,
        code_challenge_method="S256",
        token_endpoint=f"{provider.url}/token",
    ) as client:
        assert (await sign_in(provider, client))["access_token"]


async def test_the_metadata_names_the_server_and_its_resource(provider: OAuthServer) -> None:
    _, server, _ = await get(provider, "/.well-known/oauth-authorization-server")
    _, resource, _ = await get(provider, "/.well-known/oauth-protected-resource")
    assert server["issuer"] == resource["authorization_servers"][0] == resource["resource"] == provider.url
    assert server["code_challenge_methods_supported"] == ["S256"]
    assert server["authorization_response_iss_parameter_supported"] is True


async def test_the_redirect_has_the_issuer_and_the_state(provider: OAuthServer) -> None:
    client = provider.register_client(REDIRECT_URI)
    approved = read_query(await provider.sign_in("ada", create_url(provider, client.id)))
    denied = read_query(await provider.deny(create_url(provider, client.id)))
    assert (approved["iss"], approved["state"]) == (denied["iss"], denied["state"]) == (provider.url, "s-1")
    assert denied["error"] == "access_denied"


async def test_a_browser_chooses_the_user_by_the_url(provider: OAuthServer) -> None:
    url = create_url(provider, provider.register_client(REDIRECT_URI).id)
    async with aiohttp.ClientSession() as session:
        async with session.get(url) as response:
            assert "simulator_user=grace" in await response.text()
        async with session.get(f"{url}&simulator_user=grace", allow_redirects=False) as response:
            assert "code" in read_query(response.headers["Location"])


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"code_challenge": ""}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"scope": "admin"}, "invalid_scope"),
        ({"resource": "https://other.example"}, "invalid_target"),
    ],
)
async def test_an_invalid_request_is_redirected_with_an_error(
    provider: OAuthServer, changes: dict[str, str], error: str
) -> None:
    url = create_url(provider, provider.register_client(REDIRECT_URI).id, **changes)
    assert read_query(await provider.sign_in("ada", url))["error"] == error


@pytest.mark.parametrize("uri", ["https://bot.example/callback/", "https://bot.example/callback?a=1", ""])
async def test_another_redirect_uri_gets_no_redirect(provider: OAuthServer, uri: str) -> None:
    url = create_url(provider, provider.register_client(REDIRECT_URI).id, redirect_uri=uri)
    with pytest.raises(ValueError, match="redirect URI"):
        await provider.sign_in("ada", url)
    with pytest.raises(ValueError, match="unknown"):
        await provider.deny(create_url(provider, "other"))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"code_verifier": "w" * 43}, "invalid_grant"),
        ({"redirect_uri": "https://bot.example/"}, "invalid_grant"),
        ({"resource": "https://other.example"}, "invalid_target"),
        ({"grant_type": "password"}, "unsupported_grant_type"),
        ({"client_id": "other"}, "invalid_client"),
        ({"client_secret": "any"}, "invalid_client"),
    ],
)
async def test_a_wrong_exchange_is_refused(provider: OAuthServer, changes: dict[str, str], error: str) -> None:
    client = provider.register_client(REDIRECT_URI, auth_method="none")
    code = read_query(await provider.sign_in("ada", create_url(provider, client.id)))["code"]
    form = {
        "grant_type": "authorization_code",
        "client_id": client.id,
        "code": code,
        "redirect_uri": REDIRECT_URI,
        "code_verifier": VERIFIER,
        **changes,
    }
    status, body = await post(provider, "/token", data=form)
    assert (status, body["error"]) == (401 if error == "invalid_client" else 400, error)


async def test_a_second_use_of_a_code_revokes_its_tokens(provider: OAuthServer) -> None:
    client = provider.register_client(REDIRECT_URI, auth_method="none")
    code = read_query(await provider.sign_in("ada", create_url(provider, client.id)))["code"]
    form = {"grant_type": "authorization_code", "client_id": client.id, "code": code}
    form |= {"redirect_uri": REDIRECT_URI, "code_verifier": VERIFIER}
    _, tokens = await post(provider, "/token", data=form)
    assert (await get(provider, "/me", tokens["access_token"]))[0] == 200
    assert (await post(provider, "/token", data=form))[1]["error"] == "invalid_grant"
    assert (await get(provider, "/me", tokens["access_token"]))[0] == 401


async def test_a_second_use_of_a_refresh_token_revokes_its_family(provider: OAuthServer) -> None:
    async with create_client(provider) as client:
        first = await sign_in(provider, client)
        second = await client.refresh_token(f"{provider.url}/token")
        assert second["refresh_token"] != first["refresh_token"]
        assert (await get(provider, "/me", second["access_token"]))[0] == 200
        with pytest.raises(OAuthError, match="invalid_grant"):
            await client.refresh_token(f"{provider.url}/token", refresh_token=first["refresh_token"])
        with pytest.raises(OAuthError, match="invalid_grant"):
            await client.refresh_token(f"{provider.url}/token", refresh_token=second["refresh_token"])
    assert (await get(provider, "/me", second["access_token"]))[0] == 401
    assert [grant.is_revoked for grant in provider.grants] == [True]


async def test_revocation_of_an_access_token_keeps_the_grant(provider: OAuthServer) -> None:
    async with create_client(provider) as client:
        tokens = await sign_in(provider, client)
        await client.revoke_token(f"{provider.url}/revoke", token=tokens["access_token"])
        assert (await get(provider, "/me", tokens["access_token"]))[0] == 401
        renewed = await client.refresh_token(f"{provider.url}/token", refresh_token=tokens["refresh_token"])
        await client.revoke_token(f"{provider.url}/revoke", token=renewed["refresh_token"])
        assert (await get(provider, "/me", renewed["access_token"]))[0] == 401
        with pytest.raises(OAuthError, match="invalid_grant"):
            await client.refresh_token(f"{provider.url}/token", refresh_token=renewed["refresh_token"])


async def test_a_resource_says_what_is_missing(provider: OAuthServer) -> None:
    metadata = f'resource_metadata="{provider.url}/.well-known/oauth-protected-resource"'
    status, _, challenge = await get(provider, "/calendar")
    assert (status, challenge) == (401, f'Bearer scope="calendar", {metadata}')
    async with create_client(provider) as client:
        token = (await sign_in(provider, client, scopes=["profile"]))["access_token"]
    status, _, challenge = await get(provider, "/calendar", token)
    assert (status, challenge) == (403, f'Bearer error="insufficient_scope", scope="calendar", {metadata}')
    status, _, challenge = await get(provider, "/me", "unknown")
    assert (status, challenge) == (401, f'Bearer error="invalid_token", scope="profile", {metadata}')


async def test_a_code_expires() -> None:
    async with OAuthServer(speed=1e9) as provider, create_client(provider) as client:
        with pytest.raises(OAuthError, match="invalid_grant"):
            await sign_in(provider, client)
