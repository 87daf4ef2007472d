"""Installing the app in workspaces by OAuth: Bolt's pages, with what they keep in the vault.

Slack: docs.slack.dev/authentication/installing-with-oauth.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web
from slack_bolt.adapter.aiohttp import to_aiohttp_response, to_bolt_request
from slack_bolt.error import BoltError
from slack_bolt.oauth.async_oauth_flow import AsyncOAuthFlow
from slack_bolt.oauth.async_oauth_settings import AsyncOAuthSettings
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_bolt.response import BoltResponse
from slack_sdk.oauth.installation_store import Installation
from slack_sdk.oauth.installation_store.async_installation_store import AsyncInstallationStore
from slack_sdk.oauth.state_store.async_state_store import AsyncOAuthStateStore
from slack_sdk.web.async_client import AsyncWebClient

from channels.slack.client.auth import SCOPES, WISHES
from channels.slack.client.workspaces import Workspaces
from core.errors import StoreError
from core.privacy.vault import Vault
from core.secret_redaction import traced

log = logging.getLogger(__name__)

INSTALL_PATH, REDIRECT_PATH = "/slack/install", "/slack/oauth_redirect"

#: Seconds within which who began to install the app has allowed it.
STATE_SECONDS = 600

#: The text of a state begins with this: the same key signs other things.
_STATE = "slack:state:"

#: Seconds that one page may take.
PAGE_SECONDS = 30.0


class InstallationStore(AsyncInstallationStore):
    """Keeps what the flow has got. Slack_sdk's own for SQLAlchemy keeps tokens as they are, and tables of its own."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    async def async_save(self, installation: Installation) -> None:
        """Keep the bot's token.

        Raises:
            BoltError: it cannot be kept, or would be of no use.
        """
        if installation.is_enterprise_install or not installation.team_id or not installation.bot_token:
            raise BoltError("the app is installed workspace by workspace, and not for a whole organisation")
        if installation.bot_refresh_token:
            raise BoltError("the app's tokens are not rotated: turn token rotation off")
        about = {"name": installation.team_name, "bot": installation.bot_user_id, "by": installation.user_id}
        try:
            await self._workspaces.add(installation.team_id, about, installation.bot_token)
        except StoreError as error:
            raise BoltError("the token cannot be kept right now") from error
        log.info("installed in workspace %s", installation.team_id)


class StateStore(AsyncOAuthStateStore):
    """Issues signed states, which the installer's browser keeps in a cookie, and accepts each once.

    The database learns of a state when it comes back: anybody may open the page, and nothing is stored for that.
    """

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    async def async_issue(self, *_: object, **__: object) -> str:
        """Return a new state."""
        return self._vault.sign(_STATE + secrets.token_urlsafe(16)).rstrip("=")

    async def async_consume(self, state: str) -> bool:
        """Return whether a state was issued within `STATE_SECONDS` and was not used yet.

        Raises:
            StoreError: the database does not say.
        """
        name = self._vault.verified(state + "=" * (-len(state) % 4), seconds=STATE_SECONDS)
        if name is None or not name.startswith(_STATE):
            return False
        return await self._vault.add(name, seconds=2 * STATE_SECONDS)  # longer than it is good, by any worker's clock


class Installing:
    """The pages by which the app is installed.

    Args:
        client: without a token.
    """

    def __init__(
        self, client: AsyncWebClient, workspaces: Workspaces, vault: Vault, *, client_id: str, client_secret: str
    ) -> None:
        settings = AsyncOAuthSettings(
            client_id=client_id,
            client_secret=client_secret,
            scopes=sorted(SCOPES | WISHES),
            install_path=INSTALL_PATH,
            install_page_rendering_enabled=False,  # who opens it is sent to Slack's own page
            redirect_uri_path=REDIRECT_PATH,
            authorization_url=client.base_url.removesuffix("api/") + "oauth/v2/authorize",
            installation_store=InstallationStore(workspaces),
            state_store=StateStore(vault),
            state_expiration_seconds=STATE_SECONDS,
        )
        self._flow = AsyncOAuthFlow(client=client, settings=settings, logger=log)

    @property
    def routes(self) -> Sequence[web.AbstractRouteDef]:
        return [
            web.get(INSTALL_PATH, lambda request: _page(request, self._flow.handle_installation)),
            web.get(REDIRECT_PATH, lambda request: _page(request, self._flow.handle_callback)),
        ]


async def _page(
    request: web.Request, answer: Callable[[AsyncBoltRequest], Awaitable[BoltResponse]]
) -> web.StreamResponse:
    try:
        async with asyncio.timeout(PAGE_SECONDS):
            response = await to_aiohttp_response(await answer(await to_bolt_request(request)))
    except Exception as error:
        log.error("the app cannot be installed: %s", traced(error))
        response = web.Response(status=503, text="This cannot be done right now. Please try again in a moment.")
    response.headers["Cache-Control"] = "no-store"
    response.headers["Referrer-Policy"] = "no-referrer"
    return response
