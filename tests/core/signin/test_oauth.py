"""The OAuth client against the local provider, and against servers that answer wrongly."""

import asyncio
import base64
import json
import socket
import time
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.resolver import DefaultResolver
from hypothesis import given
from hypothesis import strategies as st

from core.errors import GrantLostError, SignInError, SignInUnavailableError
from core.signin import oauth as oauth_module
from core.signin.oauth import MAX_BYTES, OAuthClient, check_redirect, new_verifier
from core.signin.target import Credential, CredentialKind, SignInTarget
from tests.core.signin.conftest import CALLBACK, Provider, TokenServer, read_query

SERVICE = SignInTarget(
    credential_key="key",
    kind=CredentialKind.OAUTH,
    label="Service",
    authorization_url="https://service.example/authorize",
    token_url="https://service.example/token",
    client_id="client",
)
OLD = Credential(secret="old", refresh_token="refresh me", scopes=("read",), account="ada@example.com")


LOCAL = OAuthClient(allows_private_hosts=True)


def create_url(target: SignInTarget, oauth: OAuthClient | None = None) -> str:
    verifier = new_verifier()
    return (oauth or OAuthClient()).create_authorization_url(
        target, redirect_uri=CALLBACK, state="s", verifier=verifier
    )


async def exchange(target: SignInTarget, oauth: OAuthClient, code: str = "code") -> Credential:
    return await oauth.exchange_code(target, code=code, redirect_uri=CALLBACK, verifier=new_verifier())


# With the provider


@pytest.mark.parametrize("auth_method", ["none", "client_secret_basic", "client_secret_post"])
async def test_a_person_signs_in_with_each_authentication_of_a_client(provider: Provider, auth_method: str) -> None:
    target = provider.create_target(auth_method=auth_method)
    credential = await provider.sign_in(target, "grace")
    assert await provider.get_user(credential) == "grace"
    assert credential.scopes == ("calendar", "profile")
    assert credential.refresh_token
    assert credential.expires_at == pytest.approx(time.time() + 3600, abs=60)


async def test_a_code_is_worth_nothing_without_its_verifier(provider: Provider) -> None:
    target = provider.create_target()
    url = create_url(target, provider.oauth)
    query = read_query(url)
    assert query["code_challenge_method"] == "S256"
    code = check_redirect(target, read_query(await provider.server.sign_in("ada", url)))
    with pytest.raises(SignInError, match="Calendar refused the sign-in: invalid_grant") as refused:
        await exchange(target, provider.oauth, code)
    assert not isinstance(refused.value, GrantLostError)


async def test_a_code_is_exchanged_for_its_resource(provider: Provider) -> None:
    target = provider.create_target(resource=provider.server.mcp_url)
    credential = await provider.sign_in(target)
    (grant,) = provider.server.grants
    assert grant.request.resource == provider.server.mcp_url
    assert await provider.get_user(credential) == "401", "the token is for another resource"


async def test_a_refresh_rotates_the_tokens(provider: Provider) -> None:
    target = provider.create_target()
    first = await provider.sign_in(target)
    provider.server.faults.expire_access_tokens()
    second = await provider.oauth.refresh(target, first)
    assert await provider.get_user(second) == "ada"
    assert second.refresh_token not in ("", first.refresh_token)
    with pytest.raises(GrantLostError):
        await provider.oauth.refresh(target, first)


async def test_a_refresh_tells_the_scopes_that_are_left(provider: Provider) -> None:
    target = provider.create_target()
    credential = await provider.sign_in(target)
    provider.server.faults.change_scopes(["profile"])
    assert (await provider.oauth.refresh(target, credential)).scopes == ("profile",)


async def test_a_revoked_grant_is_lost(provider: Provider) -> None:
    target = provider.create_target()
    credential = await provider.sign_in(target)
    provider.server.faults.revoke_grants("ada")
    with pytest.raises(GrantLostError) as lost:
        await provider.oauth.refresh(target, credential)
    assert credential.refresh_token not in str(lost.value)


async def test_a_refresh_that_fails_for_now_loses_nothing(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth_module, "TIMEOUT_SECONDS", 0.2)
    target = provider.create_target()
    credential = await provider.sign_in(target)
    faults = provider.server.faults
    for status, error in ((500, "server_error"), (503, ""), (429, "slow_down"), (401, "invalid_client")):
        faults.fail("/token", status=status, error=error)
        with pytest.raises(SignInUnavailableError):
            await provider.oauth.refresh(target, credential)
    faults.fail("/token")
    faults.delay("/token", 1)
    with pytest.raises(SignInUnavailableError):
        await provider.oauth.refresh(target, credential)
    faults.clear()
    assert await provider.get_user(await provider.oauth.refresh(target, credential)) == "ada"


async def test_a_lost_response_is_no_lost_grant(provider: Provider) -> None:
    target = provider.create_target()
    credential = await provider.sign_in(target)
    provider.server.faults.lose_response("/token")
    with pytest.raises(SignInUnavailableError):
        await provider.oauth.refresh(target, credential)


@pytest.mark.parametrize("has_refresh_token", [True, False])
async def test_a_revocation_ends_the_grant(provider: Provider, has_refresh_token: bool) -> None:
    target = provider.create_target()
    credential = await provider.sign_in(target)
    if not has_refresh_token:
        credential = Credential(secret=credential.secret)
    await provider.oauth.revoke(target, credential)
    assert await provider.get_user(credential) == "401"
    assert provider.server.grants[0].is_revoked is has_refresh_token


async def test_a_failed_revocation_is_logged_without_the_token(
    provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    target = provider.create_target()
    credential = await provider.sign_in(target)
    faults = provider.server.faults
    faults.fail("/revoke", status=503)
    faults.fail("/revoke", status=400)
    for _ in range(2):
        await provider.oauth.revoke(target, credential)
    await provider.oauth.revoke(provider.create_target(revocation_url=""), credential)
    await provider.oauth.revoke(provider.create_target(revocation_url="http://10.0.0.1/revoke"), credential)
    assert caplog.text.count("was not revoked") == 3
    assert credential.refresh_token not in caplog.text


# The browser's way there and back


def test_an_authorization_url_keeps_the_query_of_the_service() -> None:
    target = replace(
        SERVICE,
        authorization_url="https://service.example/authorize?tenant=a%26b&hd=one&hd=two&prompt=none&state=theirs&scope=all",
        scopes=("read write", "a+b"),
        resource="https://api.example/mcp",
        audience="api",
    )
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"  # RFC 7636, appendix B
    url = OAuthClient().create_authorization_url(
        target, redirect_uri=CALLBACK, state="s&t=u", verifier=verifier, nonce="n"
    )
    assert url.startswith("https://service.example/authorize?")
    assert "&hd=one&hd=two&" in url
    assert read_query(url) == {
        "tenant": "a&b",
        "hd": "two",
        "access_type": "offline",
        "prompt": "none",
        "response_type": "code",
        "client_id": "client",
        "redirect_uri": CALLBACK,
        "state": "s&t=u",
        "scope": "read write a+b",
        "nonce": "n",
        "resource": "https://api.example/mcp",
        "audience": "api",
        "code_challenge": "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
        "code_challenge_method": "S256",
    }


def test_verifiers_are_random_and_long_enough() -> None:
    verifiers = {new_verifier() for _ in range(10)}
    assert len(verifiers) == 10
    assert all(43 <= len(verifier) <= 128 for verifier in verifiers)


REFUSED_URLS = {
    "plain http": "http://service.example/x",
    "a script": "javascript:alert(1)//service.example/",
    "data": "data:text/html,x",
    "a file": "file:///etc/passwd",
    "no scheme": "//service.example/x",
    "no host": "https:///x",
    "nothing": "",
    "a user before the host": "https://service.example@evil.example/x",
    "a user with a password": "https://service.example:443@evil.example/x",
    "a backslash": "https://service.example\\@evil.example/x",
    "letters that look alike": "https://\u0455ervice.example/x",
    "full-width letters": "https://\uff53ervice.example/x",
    "an ideographic dot": "https://service。example/x",
    "an invisible character": "https://service.example\u200b/x",
    "a line break": "https://service.example/x\r\nHost: evil",
    "a tab within the scheme": "java\tscript:alert(1)",
    "a space": "https://service.example /x",
    "a fragment": "https://service.example/x#y",
    "an impossible port": "https://service.example:99999/x",
    "an open bracket": "https://[::1/x",
    "this machine": "https://127.0.0.1/x",
    "this machine in short": "https://127.1/x",
    "this machine in IPv6": "https://[::1]/x",
    "the network": "https://10.0.0.1/x",
    "the cloud's metadata": "https://169.254.169.254/latest/meta-data",
    "an address within IPv6": "https://[::ffff:10.0.0.1]/x",
}


@pytest.mark.parametrize("case", REFUSED_URLS)
async def test_an_unsafe_url_is_refused_for_each_request(case: str) -> None:
    url = REFUSED_URLS[case]
    with pytest.raises(SignInError, match="refused"):
        create_url(replace(SERVICE, authorization_url=url))
    with pytest.raises(SignInError, match="refused"):
        await exchange(replace(SERVICE, token_url=url), OAuthClient())
    with pytest.raises(SignInUnavailableError, match="refused"):
        await OAuthClient().refresh(replace(SERVICE, token_url=url), OLD)


@pytest.mark.parametrize("url", ["http://service.example/x", "https://10.0.0.1/x", "http://192.168.1.1/x"])
async def test_the_simulator_opens_only_this_machine(url: str) -> None:
    with pytest.raises(SignInError, match="refused"):
        create_url(replace(SERVICE, authorization_url=url), LOCAL)


@pytest.mark.parametrize("url", ["http://localhost:1/x", "http://[::1]:1/x", "https://service.example/x"])
def test_the_simulator_permits_this_machine_and_the_internet(url: str) -> None:
    assert create_url(replace(SERVICE, authorization_url=url), LOCAL).startswith(url)


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "::1", "169.254.169.254"])
async def test_a_name_of_a_private_address_gets_no_connection(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(_: Any, host: str, port: int = 0, family: int = socket.AF_INET) -> list[dict[str, Any]]:
        return [{"hostname": host, "host": address, "port": port, "family": family, "proto": 0, "flags": 0}]

    async def connect(*_: Any, **__: Any) -> None:
        pytest.fail("it connects")

    monkeypatch.setattr(DefaultResolver, "resolve", resolve)
    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", connect)
    with pytest.raises(SignInError, match="this address is not public"):
        await exchange(SERVICE, OAuthClient())


def test_a_redirect_of_another_issuer_is_refused(provider: Provider) -> None:
    target = provider.create_target()
    assert check_redirect(target, {"iss": target.issuer, "code": "c"}) == "c"
    for issuer in ("https://evil.example", target.issuer + "/", target.issuer.upper(), ""):
        with pytest.raises(SignInError, match="not from"):
            check_redirect(target, {"iss": issuer, "code": "c"})
    for parameters in ({"code": "c"}, {"error": "access_denied"}):
        with pytest.raises(SignInError, match="not from"):
            check_redirect(target, parameters)


@pytest.mark.parametrize(
    "iss", ["https://evil.example", "https://service.example.evil.example", "http://service.example", ""]
)
def test_without_a_known_issuer_it_has_the_services_host(iss: str) -> None:
    for own in ("https://service.example", "https://service.example/tenant"):
        assert check_redirect(SERVICE, {"iss": own, "code": "c"}) == "c"
    with pytest.raises(SignInError, match=r"not from https://service\.example"):
        check_redirect(SERVICE, {"iss": iss, "code": "c"})


async def test_a_denied_sign_in_has_a_code(provider: Provider) -> None:
    target = provider.create_target()
    with pytest.raises(SignInError, match="access_denied") as denied:
        check_redirect(target, read_query(await provider.server.deny(create_url(target, provider.oauth))))
    assert denied.value.code == "access_denied"


@pytest.mark.parametrize("parameters", [{}, {"code": ""}, {"state": "s"}])
def test_a_redirect_without_a_code_is_refused(parameters: dict[str, str]) -> None:
    with pytest.raises(SignInError, match="has no code"):
        check_redirect(SERVICE, parameters)


@given(st.dictionaries(st.sampled_from(["error", "code", "iss", "state"]), st.text()))
def test_any_redirect_has_a_code_or_a_short_error(parameters: dict[str, str]) -> None:
    if parameters.get("code") and not parameters.keys() & {"error", "iss"}:
        assert check_redirect(SERVICE, parameters) == parameters["code"]
        return
    with pytest.raises(SignInError) as refused:
        check_redirect(SERVICE, parameters)
    text = str(refused.value)
    assert len(text) < 150
    assert text.isascii()
    assert text.isprintable()


# Wrong answers


def tokens(**changes: Any) -> str:
    return json.dumps({"access_token": "new", "token_type": "Bearer", **changes})


WRONG_ANSWERS = {
    "no JSON": "<html>Sign in</html>",
    "nothing": "",
    "a list": "[]",
    "no token": "{}",
    "an empty token": tokens(access_token=""),
    "a token with a line break": tokens(access_token="a\r\nb"),
    "a token with letters of others": tokens(access_token="tökén"),
    "a token as a number": tokens(access_token=5),
    "no bearer token": tokens(token_type="DPoP"),
    "deep JSON": "[" * 50_000,
    "an error with HTTP 200, as GitHub": json.dumps({"error": "bad_verification_code"}),
    "an error that is no text": json.dumps({"error": {"code": 5}}),
}


@pytest.mark.parametrize("case", WRONG_ANSWERS)
async def test_a_wrong_answer_is_an_error_and_loses_nothing(token_server: TokenServer, case: str) -> None:
    token_server.answer(WRONG_ANSWERS[case])
    with pytest.raises(SignInError):
        await exchange(token_server.create_target(), LOCAL)
    with pytest.raises(SignInUnavailableError):
        await LOCAL.refresh(token_server.create_target(), OLD)


@pytest.mark.parametrize("status", [201, 204, 301, 302, 307, 400, 404])
async def test_another_status_is_an_error_and_no_redirect_is_followed(token_server: TokenServer, status: int) -> None:
    token_server.answer(tokens(), status=status, headers={"Location": f"{token_server.url}/elsewhere"})
    with pytest.raises(SignInError):
        await exchange(token_server.create_target(), LOCAL)
    assert token_server.requests == 1


async def test_a_huge_answer_is_not_read(token_server: TokenServer) -> None:
    sent = 0

    async def stream(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while sent < 1000 * MAX_BYTES:
            await response.write(b" " * MAX_BYTES)
            sent += MAX_BYTES
        return response

    token_server.handler = stream
    with pytest.raises(SignInError, match="too long"):
        await exchange(token_server.create_target(), LOCAL)
    assert sent < 1000 * MAX_BYTES


async def test_a_slow_answer_ends_at_the_time_limit(token_server: TokenServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth_module, "TIMEOUT_SECONDS", 0.3)

    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.01)

    token_server.handler = drip
    with pytest.raises(SignInUnavailableError, match="no answer within"):
        await exchange(token_server.create_target(), LOCAL)


@pytest.mark.parametrize("code", ["invalid_grant", "bad_refresh_token", "interaction_required"])
@pytest.mark.parametrize("status", [200, 400, 401])
async def test_only_errors_of_the_grant_lose_it(token_server: TokenServer, code: str, status: int) -> None:
    token_server.answer(json.dumps({"error": code, "error_description": "refresh me"}), status=status)
    with pytest.raises(GrantLostError) as lost:
        await LOCAL.refresh(token_server.create_target(), OLD)
    assert "refresh me" not in str(lost.value)


async def test_a_refresh_keeps_what_the_answer_lacks(token_server: TokenServer) -> None:
    token_server.answer(tokens())
    renewed = await LOCAL.refresh(token_server.create_target(), OLD)
    assert renewed == Credential(secret="new", refresh_token="refresh me", scopes=("read",), account="ada@example.com")


EXPIRIES = {"3600": 3600, '"3600"': 3600, "0": None, "-1": None, "null": None, '"soon"': None, "[]": None}
EXPIRIES |= {"1e999": None, "NaN": None, "{}": None, "9" * 400: None}


@pytest.mark.parametrize("seconds", EXPIRIES)
async def test_a_lifetime_of_any_form_is_read(token_server: TokenServer, seconds: str) -> None:
    token_server.answer(tokens()[:-1] + f', "expires_in": {seconds}}}', content_type="text/plain")
    credential = await exchange(token_server.create_target(), LOCAL)
    lifetime = EXPIRIES[seconds]
    expected = None if lifetime is None else pytest.approx(time.time() + lifetime, abs=60)
    assert credential.expires_at == expected


@pytest.mark.parametrize(
    ("granted", "scopes"),
    [(None, ("read",)), ("a b", ("a", "b")), ("a,b", ("a", "b")), ("", ("read",)), (5, ("read",))],
)
async def test_granted_scopes_are_stored(token_server: TokenServer, granted: Any, scopes: tuple[str, ...]) -> None:
    token_server.answer(tokens(scope=granted, refresh_token=7))
    credential = await exchange(token_server.create_target(), LOCAL)
    assert credential.scopes == scopes
    assert credential.refresh_token == ""


def encode_claims(claims: Any) -> str:
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.c2ln"


ACCOUNTS = {
    encode_claims({"email": "ada@example.com", "name": "Ada"}): "ada@example.com",
    encode_claims({"name": "Ada\n\u202eLovelace"}): "Ada Lovelace",
    encode_claims({"email": "", "name": 5}): "5",
    encode_claims([]): "",
    encode_claims({}): "",
    "no token": "",
    "a.ä.c": "",
    "a.b": "",
}


@pytest.mark.parametrize("id_token", ACCOUNTS)
async def test_the_account_is_read_from_an_id_token(token_server: TokenServer, id_token: str) -> None:
    token_server.answer(tokens(id_token=id_token))
    assert (await exchange(token_server.create_target(), LOCAL)).account == ACCOUNTS[id_token]


async def test_odd_client_credentials_are_encoded(token_server: TokenServer) -> None:
    seen = list[str]()

    async def record(request: web.Request) -> web.Response:
        seen.append(base64.b64decode(request.headers["Authorization"].removeprefix("Basic ")).decode())
        return web.Response(text=tokens(), content_type="application/json")

    token_server.handler = record
    await exchange(token_server.create_target(client_id="https://bot:1/é", client_secret="a b:c%"), LOCAL)
    assert seen == ["https%3A%2F%2Fbot%3A1%2F%C3%A9:a+b%3Ac%25"]
