"""Sign in with Slack: names the user and workspace of a browser.

Slack: docs.slack.dev/authentication/sign-in-with-slack. There is no PKCE: it makes an app a public client for ever
(docs.slack.dev/authentication/using-pkce), and `openid.connect.token` fails with PKCE and a client secret
(github.com/paradigmxyz/centaur/pull/1101). The nonce in the ID token binds the code to the browser instead.
"""

import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import aiohttp
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from channels.slack.client.api import is_transient, parse_error
from core.errors import SignInError, SignInUnavailableError
from core.signin.target import Person

#: Log of the SDK's client, whose DEBUG lines have authorization codes.
_sdk_log = logging.getLogger(f"{__name__}.sdk")
_sdk_log.setLevel(logging.INFO)

ISSUER = "https://slack.com"

#: The only scope: the ids of the user and of their workspace. Slack: it is a user scope of the app.
OPENID_SCOPE = "openid"

#: Seconds that a request to Slack may take.
TIMEOUT_SECONDS = 10

#: Seconds by which the clocks of Slack and of this machine may differ.
LEEWAY_SECONDS = 60


class SlackIdentityProvider:
    """Sign in with Slack, for one app.

    Args:
        api_url: the URL of Slack's Web API, which ends with `/api/`.
    """

    label = "Slack"

    def __init__(self, api_url: str, client_id: str, client_secret: str) -> None:
        self._url = api_url.removesuffix("api/") + "openid/connect/"
        self._web = AsyncWebClient(base_url=api_url, timeout=TIMEOUT_SECONDS, retry_handlers=[], logger=_sdk_log)
        self._client_id = client_id
        self._client_secret = client_secret

    def create_authorization_url(
        self, person: Person, *, redirect_uri: str, state: str, verifier: str, nonce: str
    ) -> str:
        query = {
            "response_type": "code",
            "client_id": self._client_id,
            "scope": OPENID_SCOPE,
            "redirect_uri": redirect_uri,
            "state": state,
            "nonce": nonce,
            "team": person.workspace,
        }
        return f"{self._url}authorize?{urlencode(query)}"

    async def fetch_person(
        self, parameters: Mapping[str, str], *, redirect_uri: str, verifier: str, nonce: str
    ) -> Person:
        if not (code := parameters.get("code")):
            raise SignInError("Slack: the redirect has no code", code=parameters.get("error", "")[:80])
        try:
            response: Any = await self._web.openid_connect_token(
                client_id=self._client_id, client_secret=self._client_secret, code=code, redirect_uri=redirect_uri
            )
            claims = self._read_claims(response.get("id_token"), await self._fetch_keys(), nonce)
            return Person("slack", claims[f"{ISSUER}/team_id"], claims[f"{ISSUER}/user_id"])
        except SlackApiError as error:
            status, reason, _ = parse_error(error)
            if is_transient(status, reason):
                raise SignInUnavailableError(f"Slack says {reason or f'HTTP {status}'}") from error
            raise SignInError(f"Slack says {reason or f'HTTP {status}'}", code=reason) from error
        except (JoseError, KeyError, TypeError, ValueError) as error:
            raise SignInError(f"Slack: the ID token cannot be used ({type(error).__name__})") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise SignInUnavailableError(f"Slack cannot be reached ({type(error).__name__})") from error

    async def _fetch_keys(self) -> KeySet:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=True, raise_for_status=True) as session,
            session.get(f"{self._url}keys") as response,
        ):
            return KeySet.import_key_set(await response.json())

    def _read_claims(self, id_token: str, keys: KeySet, nonce: str) -> Mapping[str, str]:
        claims = jwt.decode(id_token, keys, algorithms=["RS256"]).claims
        jwt.JWTClaimsRegistry(
            leeway=LEEWAY_SECONDS,
            iss={"essential": True, "value": ISSUER},
            aud={"essential": True, "value": self._client_id},
            exp={"essential": True},
            nonce={"essential": True, "value": nonce},
        ).validate(claims)
        return claims
