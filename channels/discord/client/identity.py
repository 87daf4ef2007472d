"""Sign-in with Discord: names the user of a browser.

Discord: docs.discord.com/developers/topics/oauth2.
"""

from collections.abc import Mapping
from typing import Any

import aiohttp

from core.errors import SignInError, SignInUnavailableError
from core.signin.oauth import OAuthClient, check_redirect
from core.signin.target import CredentialKind, Person, SignInTarget

#: Seconds that the request for the user may take.
TIMEOUT_SECONDS = 10


class DiscordIdentityProvider:
    """OAuth2 of Discord with the scope `identify`, for one app.

    Args:
        api_url: the URL of Discord's API, without a slash at its end.
        client_id: the id of the application.
    """

    label = "Discord"

    def __init__(self, oauth: OAuthClient, api_url: str, client_id: str, client_secret: str) -> None:
        self._oauth = oauth
        self._user_url = f"{api_url}/users/@me"
        self._target = SignInTarget(
            credential_key="",
            kind=CredentialKind.OAUTH,
            label=self.label,
            authorization_url=f"{api_url.partition('/api/')[0]}/oauth2/authorize",
            token_url=f"{api_url}/oauth2/token",
            client_id=client_id,
            client_secret=client_secret,
            scopes=("identify",),
        )

    def create_authorization_url(
        self, person: Person, *, redirect_uri: str, state: str, verifier: str, nonce: str
    ) -> str:
        return self._oauth.create_authorization_url(
            self._target, redirect_uri=redirect_uri, state=state, verifier=verifier
        )

    async def fetch_person(
        self, parameters: Mapping[str, str], *, redirect_uri: str, verifier: str, nonce: str
    ) -> Person:
        code = check_redirect(self._target, parameters)
        credential = await self._oauth.exchange_code(
            self._target, code=code, redirect_uri=redirect_uri, verifier=verifier
        )
        try:
            user = await self._fetch_user(credential.secret)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise SignInUnavailableError(f"Discord cannot tell the user ({type(error).__name__})") from error
        if not isinstance(user, dict) or not isinstance(id_ := user.get("id"), str):
            raise SignInError("Discord names no user")
        return Person("discord", "", id_)

    async def _fetch_user(self, token: str) -> Any:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=True, raise_for_status=True) as session,
            session.get(self._user_url, headers={"Authorization": f"Bearer {token}"}) as response,
        ):
            return await response.json()
