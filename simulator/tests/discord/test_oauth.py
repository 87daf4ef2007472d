"""OAuth2 of the local Discord, with the client of Authlib."""

from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import aiohttp
import pytest
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client

from chatrig.discord import DiscordSimulator, oauth
from tests.discord.conftest import call_route

REDIRECT_URI = "https://bot.example/callback"


@pytest.fixture
def app(server: DiscordSimulator) -> DiscordSimulator:
    server.oauth.redirect_urls.add(REDIRECT_URI)
    return server


def create_url(server: DiscordSimulator, **changes: str) -> str:
    query = {
        "response_type": "code",
        "client_id": server.oauth.client_id,
        "scope": "identify",
        "redirect_uri": REDIRECT_URI,
        "state": "s-1",
        **changes,
    }
    return f"{server.authorize_url}?{urlencode(query)}"


def create_client(server: DiscordSimulator, **options: Any) -> AsyncOAuth2Client:
    return AsyncOAuth2Client(
        server.oauth.client_id,
        server.oauth.client_secret,
        redirect_uri=REDIRECT_URI,
        token_endpoint=f"{server.api_url}/oauth2/token",
        **options,
    )


async def post_form(server: DiscordSimulator, path: str, **fields: str) -> tuple[int, Any]:
    credentials = {"client_id": server.oauth.client_id, "client_secret": server.oauth.client_secret}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{server.api_url}{path}", data=credentials | fields) as response,
    ):
        return response.status, await response.json()


async def get_me(server: DiscordSimulator, token: str, path: str = "/users/@me") -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers) as session, session.get(server.api_url + path) as response:
        return response.status, await response.json()


async def sign_in(server: DiscordSimulator, user: str = "ada", **changes: str) -> Any:
    async with create_client(server) as client:
        redirect = await server.sign_in(user, create_url(server, **changes))
        return await client.fetch_token(authorization_response=redirect, state="s-1")


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_authlib_signs_in_refreshes_and_revokes(app: DiscordSimulator, method: str) -> None:
    async with create_client(app, scope="identify", token_endpoint_auth_method=method) as client:
        url, state = client.create_authorization_url(app.authorize_url)
        token = await client.fetch_token(authorization_response=await app.sign_in("ada", url), state=state)
        assert (token["token_type"], token["expires_in"], token["scope"]) == ("Bearer", 604_800, "identify")
        about = (await client.get(f"{app.api_url}/users/@me")).json()
        assert (about["id"], about["global_name"]) == (app.people["ada"].id, "Ada Lovelace")
        assert "email" not in about

        renewed = await client.refresh_token(f"{app.api_url}/oauth2/token")
        assert renewed["access_token"] != token["access_token"]
        with pytest.raises(OAuthError, match="invalid_grant"):
            await client.refresh_token(f"{app.api_url}/oauth2/token", refresh_token=token["refresh_token"])
        await client.revoke_token(f"{app.api_url}/oauth2/token/revoke", token=renewed["refresh_token"])
    assert await get_me(app, renewed["access_token"]) == (401, {"message": "401: Unauthorized", "code": 0})
    assert "client_secret" not in app.calls[0].body


async def test_the_authorization_lists_its_scopes(app: DiscordSimulator) -> None:
    token = await sign_in(app, "grace", scope="identify email")
    _, about = await get_me(app, token["access_token"], "/oauth2/@me")
    assert about["scopes"] == ["identify", "email"]
    assert about["user"]["id"] == app.people["grace"].id
    assert (await get_me(app, token["access_token"]))[1]["email"] == "grace@example.com"


async def test_a_user_token_is_no_bot_token(app: DiscordSimulator) -> None:
    token = await sign_in(app)
    assert (await get_me(app, token["access_token"], f"/guilds/{app.guild_id}"))[0] == 401
    assert (await get_me(app, app.bot_token))[0] == 401
    assert (await call_route(app, "GET", "/users/@me"))[1]["id"] == app.bot_id


async def test_a_browser_chooses_the_user_by_the_url(app: DiscordSimulator) -> None:
    url = f"{create_url(app)}&simulator_user=linus"
    async with aiohttp.ClientSession() as session, session.get(url, allow_redirects=False) as response:
        location = response.headers["Location"]
    async with create_client(app) as client:
        token = await client.fetch_token(authorization_response=location, state="s-1")
    assert (await get_me(app, token["access_token"]))[1]["username"] == "linus"
    denial = dict(parse_qsl(urlsplit(await app.deny_sign_in(create_url(app))).query))
    assert (denial["error"], denial["state"]) == ("access_denied", "s-1")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"client_id": "1"}, "Unknown Application"),
        ({"redirect_uri": f"{REDIRECT_URI}/"}, "redirect_uri"),
        ({"scope": "bot"}, "scope"),
        ({"response_type": "token"}, "response_type"),
    ],
)
async def test_an_invalid_request_is_not_redirected(app: DiscordSimulator, changes: dict[str, str], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        await app.sign_in("ada", create_url(app, **changes))


@pytest.mark.parametrize(
    ("changes", "status", "error"),
    [
        ({"client_secret": "wrong"}, 401, {"error": "invalid_client"}),
        ({"grant_type": "password"}, 400, {"error": "unsupported_grant_type"}),
        ({"code": "x"}, 400, {"error": "invalid_grant", "error_description": 'Invalid "code" in request.'}),
        (
            {"redirect_uri": "https://other.example"},
            400,
            {"error": "invalid_grant", "error_description": 'Invalid "redirect_uri" in request.'},
        ),
    ],
)
async def test_a_wrong_exchange_is_refused(
    app: DiscordSimulator, changes: dict[str, str], status: int, error: dict[str, str]
) -> None:
    code = dict(parse_qsl(urlsplit(await app.sign_in("ada", create_url(app))).query))["code"]
    fields = {"grant_type": "authorization_code", "code": code, "redirect_uri": REDIRECT_URI} | changes
    assert await post_form(app, "/oauth2/token", **fields) == (status, error)
    assert app.calls[-1].status == status


async def test_a_code_is_valid_once(app: DiscordSimulator) -> None:
    code = dict(parse_qsl(urlsplit(await app.sign_in("ada", create_url(app))).query))["code"]
    fields = {"grant_type": "authorization_code", "code": code, "redirect_uri": REDIRECT_URI}
    assert (await post_form(app, "/oauth2/token", **fields))[0] == 200
    assert (await post_form(app, "/oauth2/token", **fields))[1]["error"] == "invalid_grant"


async def test_the_token_route_takes_no_json(app: DiscordSimulator) -> None:
    status, body = await call_route(app, "POST", "/oauth2/token", {"grant_type": "authorization_code"})
    assert (status, body["error"]) == (400, "invalid_request")


async def test_faults_apply_to_the_token_route(app: DiscordSimulator) -> None:
    app.faults.fail("POST /oauth2/token", status=503)
    assert (await post_form(app, "/oauth2/token", grant_type="refresh_token"))[0] == 503


async def test_an_access_token_expires(app: DiscordSimulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth, "TOKEN_SECONDS", -1)
    token = await sign_in(app)
    assert (await get_me(app, token["access_token"]))[0] == 401
