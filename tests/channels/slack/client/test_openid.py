"""Sign in with Slack: forged, expired and mixed-up ID tokens, and answers that are none."""

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from channels.slack.client.openid import ISSUER, SlackIdentityProvider
from core.errors import SignInError, SignInUnavailableError
from core.signin.target import Person

KEY, OTHER_KEY = (RSAKey.generate_key(2048, {"kid": "key"}) for _ in range(2))
ADA = Person("slack", "T1", "U1")


class Slack:
    """Token endpoint and keys of Slack.

    Attributes:
        response: the JSON of the token endpoint, or the status of another answer.
    """

    def __init__(self) -> None:
        self.response: dict[str, Any] | int = {}
        self.url = ""

    async def exchange(self, _: web.Request) -> web.Response:
        return (
            web.Response(status=self.response) if isinstance(self.response, int) else web.json_response(self.response)
        )

    async def list_keys(self, _: web.Request) -> web.Response:
        return web.json_response({"keys": [KEY.as_dict(private=False)]})

    async def fetch_person(self) -> Person:
        provider = SlackIdentityProvider(f"{self.url}/api/", "client", "secret")
        return await provider.fetch_person({"code": "c"}, redirect_uri="https://bot", verifier="v", nonce="nonce")

    def answer_with(self, key: Any = KEY, algorithm: str = "RS256", **changes: Any) -> None:
        claims = {
            "iss": ISSUER,
            "aud": "client",
            "exp": int(time.time()) + 300,
            "nonce": "nonce",
            f"{ISSUER}/team_id": "T1",
            f"{ISSUER}/user_id": "U1",
        }
        claims = {name: value for name, value in {**claims, **changes}.items() if value is not None}
        header = {"alg": algorithm, "kid": "key"}
        self.response = {"ok": True, "id_token": jwt.encode(header, claims, key, algorithms=["RS256", "HS256"])}


@pytest.fixture
async def slack() -> AsyncIterator[Slack]:
    slack = Slack()
    app = web.Application()
    app.router.add_post("/api/openid.connect.token", slack.exchange)
    app.router.add_get("/openid/connect/keys", slack.list_keys)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    slack.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield slack
    await runner.cleanup()


async def test_an_id_token_names_the_user_and_workspace(slack: Slack) -> None:
    slack.answer_with()
    assert await slack.fetch_person() == ADA


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://evil.example"},
        {"aud": "another client"},
        {"aud": None},
        {"nonce": "another nonce"},
        {"nonce": None},
        {"exp": 1},
        {"exp": None},
        {"exp": "soon"},
        {f"{ISSUER}/team_id": None},
        {f"{ISSUER}/user_id": None},
        {"key": OTHER_KEY},
        {"key": OctKey.import_key("a shared secret of 32 characters."), "algorithm": "HS256"},
    ],
)
async def test_a_forged_or_expired_id_token_is_refused(slack: Slack, changes: dict[str, Any]) -> None:
    slack.answer_with(**changes)
    with pytest.raises(SignInError):
        await slack.fetch_person()


@pytest.mark.parametrize("token", [None, "", "a.b.c", "eyJhbGciOiJub25lIn0.e30.", 7])
async def test_an_answer_without_an_id_token_is_refused(slack: Slack, token: Any) -> None:
    slack.response = {"ok": True, "id_token": token}
    with pytest.raises(SignInError):
        await slack.fetch_person()


async def test_an_outage_and_a_refusal_differ(slack: Slack) -> None:
    for status in (500, 503, 429):
        slack.response = status
        with pytest.raises(SignInUnavailableError):
            await slack.fetch_person()
    slack.response = {"ok": False, "error": "invalid_code"}
    with pytest.raises(SignInError) as error:
        await slack.fetch_person()
    assert error.value.code == "invalid_code"
    slack.url = "http://127.0.0.1:1"
    with pytest.raises(SignInUnavailableError):
        await slack.fetch_person()
