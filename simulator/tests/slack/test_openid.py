"""Sign in with Slack, with the clients of Authlib and Slack."""

from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import aiohttp
import pytest
from authlib.integrations.httpx_client import AsyncOAuth2Client
from joserfc import jwt
from joserfc.jwk import KeySet
from slack_sdk.oauth import OpenIDConnectAuthorizeUrlGenerator
from slack_sdk.web.async_client import AsyncWebClient

from chatrig.slack import SlackSimulator
from tests.slack.conftest import catch_error

REDIRECT_URI = "https://bot.example/callback?from=slack"


@pytest.fixture
def app(slack: SlackSimulator) -> SlackSimulator:
    slack.oauth.redirect_urls.add(REDIRECT_URI)
    return slack


def create_url(slack: SlackSimulator, **changes: str) -> str:
    query = {
        "response_type": "code",
        "client_id": slack.oauth.client_id,
        "scope": "openid email profile",
        "redirect_uri": REDIRECT_URI,
        "state": "s-1",
        "nonce": "n-1",
        **changes,
    }
    return f"{slack.authorize_url}?{urlencode(query)}"


def read_query(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


async def exchange(slack: SlackSimulator, code: str, **changes: str) -> Any:
    arguments = {
        "client_id": slack.oauth.client_id,
        "client_secret": slack.oauth.client_secret,
        "code": code,
        "redirect_uri": REDIRECT_URI,
        **changes,
    }
    return await AsyncWebClient(base_url=slack.api_url).openid_connect_token(**arguments)


async def get_json(url: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return await response.json()


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_authlib_signs_in_a_user(app: SlackSimulator, method: str) -> None:
    metadata = await get_json(app.api_url.replace("/api/", "/.well-known/openid-configuration"))
    async with AsyncOAuth2Client(
        app.oauth.client_id,
        app.oauth.client_secret,
        scope="openid email profile",
        redirect_uri=REDIRECT_URI,
        token_endpoint_auth_method=method,
        code_challenge_method="S256",
    ) as client:
        verifier = "v" * 43
        url, state = client.create_authorization_url(
            metadata["authorization_endpoint"], nonce="n-1", code_verifier=verifier
        )
        redirect = await app.sign_in("ada", url)
        assert redirect.startswith(f"{REDIRECT_URI}&code=")
        token = await client.fetch_token(
            metadata["token_endpoint"], authorization_response=redirect, state=state, code_verifier=verifier
        )
        about = (await client.post(metadata["userinfo_endpoint"])).json()
    keys = KeySet.import_key_set(await get_json(metadata["jwks_uri"]))
    claims = jwt.decode(token["id_token"], keys, algorithms=["RS256"]).claims
    ada = app.people["ada"]
    assert (claims["iss"], claims["aud"], claims["nonce"]) == ("https://slack.com", app.oauth.client_id, "n-1")
    assert claims["exp"] == claims["iat"] + 300
    for identity in (claims, about):
        assert (identity["sub"], identity["email"], identity["name"]) == (ada.id, ada.email, "Ada Lovelace")
        assert identity["https://slack.com/user_id"] == ada.id
        assert identity["https://slack.com/team_id"] == app.team_id
    assert "client_secret" not in app.calls[0].arguments


async def test_a_browser_chooses_the_user_by_the_url(app: SlackSimulator) -> None:
    generator = OpenIDConnectAuthorizeUrlGenerator(
        client_id=app.oauth.client_id,
        redirect_uri=REDIRECT_URI,
        scopes=["openid"],
        authorization_url=app.authorize_url,
    )
    url = generator.generate(state="<s>", nonce="n")
    async with aiohttp.ClientSession() as session:
        async with session.get(url) as response:
            page = await response.text()
        async with session.get(f"{url}&simulator_user=grace", allow_redirects=False) as response:
            location = response.headers["Location"]
        async with session.get(f"{url}&simulator_user=", allow_redirects=False) as response:
            denial = response.headers["Location"]
        async with session.get(f"{url}&simulator_user=nobody", allow_redirects=False) as response:
            assert (response.status, await response.text()) == (400, "there is no user nobody")
    assert "simulator_user=grace" in page
    assert "<s>" not in page
    assert read_query(denial) == {"from": "slack", "error": "access_denied", "state": "<s>"}
    assert read_query(location)["state"] == "<s>"
    token = await exchange(app, read_query(location)["code"])
    about = await AsyncWebClient(token["access_token"], base_url=app.api_url).openid_connect_userInfo()
    assert about["sub"] == app.people["grace"].id
    assert "email" not in about.data


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"client_id": "1.1"}, "invalid_client_id"),
        ({"redirect_uri": "https://bot.example/callback"}, "bad_redirect_uri"),
        ({"scope": "email"}, "invalid_scope"),
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"code_challenge": "c", "code_challenge_method": "plain"}, "invalid_code_challenge_method"),
    ],
)
async def test_an_invalid_request_is_not_redirected(app: SlackSimulator, changes: dict[str, str], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        await app.sign_in("ada", create_url(app, **changes))
    with pytest.raises(ValueError, match=error):
        await app.deny_sign_in(create_url(app, **changes))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"client_id": "1.1"}, "invalid_client_id"),
        ({"client_secret": "wrong"}, "bad_client_secret"),
        ({"redirect_uri": "https://bot.example/callback"}, "bad_redirect_uri"),
        ({"code": "unknown"}, "invalid_code"),
        ({"grant_type": "password"}, "invalid_grant_type"),
        ({"grant_type": "refresh_token"}, "invalid_refresh_token"),
        ({"code_verifier": "v"}, "invalid_code_verifier"),
    ],
)
async def test_a_wrong_exchange_is_refused(app: SlackSimulator, changes: dict[str, str], error: str) -> None:
    code = read_query(await app.sign_in("ada", create_url(app)))["code"]
    assert (await catch_error(exchange(app, **{"code": code, **changes})))["error"] == error


async def test_a_code_is_valid_once(app: SlackSimulator) -> None:
    code = read_query(await app.sign_in("ada", create_url(app)))["code"]
    await exchange(app, code)
    assert (await catch_error(exchange(app, code)))["error"] == "invalid_code"


async def test_a_code_expires() -> None:
    async with SlackSimulator(speed=1e9) as slack:
        slack.oauth.redirect_urls.add(REDIRECT_URI)
        code = read_query(await slack.sign_in("ada", create_url(slack)))["code"]
        assert (await catch_error(exchange(slack, code)))["error"] == "invalid_code"


async def test_user_info_needs_the_token_of_a_sign_in(app: SlackSimulator) -> None:
    tokens = {"": "not_authed", "xoxp-1": "invalid_auth", app.bot_token: "not_allowed_token_type"}
    for token, error in tokens.items():
        client = AsyncWebClient(token or None, base_url=app.api_url)
        assert (await catch_error(client.openid_connect_userInfo()))["error"] == error


async def test_a_second_workspace_signs_in_its_own_people(app: SlackSimulator) -> None:
    async with SlackSimulator(primary=app) as other:
        code = read_query(await other.sign_in("ada", create_url(app)))["code"]
        token = await exchange(app, code)
        about = await AsyncWebClient(token["access_token"], base_url=app.api_url).openid_connect_userInfo()
        assert about["https://slack.com/team_id"] == other.team_id
        assert about["sub"] == other.people["ada"].id


async def test_the_manifest_replaces_the_redirect_urls(app: SlackSimulator) -> None:
    app.install(
        {
            "display_information": {"name": "bot"},
            "features": {"bot_user": {"display_name": "bot"}},
            "oauth_config": {"redirect_urls": ["https://bot.example/new"], "scopes": {"bot": ["chat:write"]}},
        }
    )
    assert app.oauth.redirect_urls == {"https://bot.example/new"}
