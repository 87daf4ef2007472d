"""Faults of the local provider."""

import asyncio
from time import monotonic

import aiohttp
import pytest
from authlib.integrations.base_client import OAuthError

from chatrig.oauth import OAuthServer
from tests.oauth.conftest import create_client, get, post, sign_in


async def test_expired_tokens_are_refreshed(provider: OAuthServer) -> None:
    async with create_client(provider) as client:
        token = await sign_in(provider, client)
        provider.faults.expire_access_tokens("grace")
        assert (await get(provider, "/me", token["access_token"]))[0] == 200
        provider.faults.expire_access_tokens("ada")
        status, _, challenge = await get(provider, "/me", token["access_token"])
        assert (status, 'error="invalid_token"' in challenge) == (401, True)
        renewed = await client.refresh_token(f"{provider.url}/token")
    assert (await get(provider, "/me", renewed["access_token"]))[0] == 200


async def test_a_token_expires_after_its_lifetime(provider: OAuthServer) -> None:
    provider.faults.set_token_lifetime(0.05)
    async with create_client(provider) as client:
        token = await sign_in(provider, client)
    await asyncio.sleep(0.06)
    assert (await get(provider, "/me", token["access_token"]))[0] == 401


async def test_a_revoked_refresh_token_keeps_the_access_token(provider: OAuthServer) -> None:
    async with create_client(provider) as client:
        token = await sign_in(provider, client)
        provider.faults.revoke_refresh_tokens()
        with pytest.raises(OAuthError, match="invalid_grant"):
            await client.refresh_token(f"{provider.url}/token")
        assert (await get(provider, "/me", token["access_token"]))[0] == 200
        provider.faults.revoke_grants("ada")
        assert (await get(provider, "/me", token["access_token"]))[0] == 401


async def test_changed_scopes_apply_at_once_and_are_told_by_a_refresh(provider: OAuthServer) -> None:
    async with create_client(provider) as client:
        token = await sign_in(provider, client)
        provider.faults.change_scopes(["profile"], "ada")
        assert (await get(provider, "/calendar", token["access_token"]))[0] == 403
        assert (await client.refresh_token(f"{provider.url}/token"))["scope"] == "profile"


async def test_requests_fail_in_order(provider: OAuthServer) -> None:
    async with create_client(provider) as client:
        token = (await sign_in(provider, client))["access_token"]
    provider.faults.fail("/me", status=401)
    provider.faults.fail("/me", status=503)
    status, _, challenge = await get(provider, "/me", token)
    assert (status, challenge.startswith('Bearer error="invalid_token"')) == (401, True)
    assert [(await get(provider, "/me", token))[0] for _ in range(2)] == [503, 200]
    provider.faults.fail("/token", status=400, error="temporarily_unavailable")
    assert (await post(provider, "/token"))[1]["error"] == "temporarily_unavailable"


async def test_a_lost_response_has_its_effect(provider: OAuthServer) -> None:
    async with create_client(provider) as client:
        token = await sign_in(provider, client)
    provider.faults.lose_response("/token")
    form = {"grant_type": "refresh_token", "client_id": next(iter(provider.clients))}
    with pytest.raises(aiohttp.ClientError):
        await post(provider, "/token", data=form | {"refresh_token": token["refresh_token"]})
    assert provider.requests[-1].status == 0
    assert provider.grants[0].refresh_token != token["refresh_token"]


async def test_a_response_is_slow(provider: OAuthServer) -> None:
    provider.faults.delay("/me", 0.2)
    started_at = monotonic()
    assert (await get(provider, "/me"))[0] == 401
    assert monotonic() - started_at >= 0.2
