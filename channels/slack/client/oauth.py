"""Installation of the app in workspaces by OAuth, with Bolt's pages.

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

from channels.slack.client.auth import OPTIONAL_SCOPES, SCOPES
from channels.slack.client.workspaces import WorkspaceTokenStore
from core.errors import StoreError
from core.observability.secret_redaction import format_error
from core.privacy.vault import Vault

log = logging.getLogger(__name__)

INSTALL_PATH, REDIRECT_PATH = "/slack/install", "/slack/oauth_redirect"

#: Seconds within which a user must allow an installation that they began.
STATE_SECONDS = 600

#: Prefix of the signed text of an OAuth state: the same key signs other texts.
_STATE_PREFIX = "slack:state:"

#: Seconds that the response with one page may take.
PAGE_SECONDS = 30.0


class VaultInstallationStore(AsyncInstallationStore):
    """Bolt's installation store that encrypts tokens; slack_sdk's stores do not.

    Only `async_save` is implemented: `WorkspaceTokenStore` reads and deletes the tokens.
    """

    def __init__(self, tokens: WorkspaceTokenStore) -> None:
        self._tokens = tokens

    async def async_save(self, installation: Installation) -> None:
        if installation.is_enterprise_install or not installation.team_id or not installation.bot_token:
            raise BoltError("the app is installed workspace by workspace, and not for a whole organisation")
        if installation.bot_refresh_token:
            raise BoltError("the app's tokens are not rotated: turn token rotation off")
        details = {"name": installation.team_name, "bot": installation.bot_user_id, "by": installation.user_id}
        try:
            await self._tokens.add(installation.team_id, details, installation.bot_token)
        except StoreError as error:
            raise BoltError("the token cannot be stored right now") from error
        log.info("installed in workspace %s", installation.team_id)


class SignedStateStore(AsyncOAuthStateStore):
    """Bolt's store of OAuth `state` parameters: signs them, and accepts each once.

    A state is stored when a browser sends it back, and not when it is issued: anybody may open the page.
    """

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    async def async_issue(self, *_: object, **__: object) -> str:
        """Return a new signed OAuth state, which Bolt stores in a cookie of the browser."""
        return self._vault.create_token(_STATE_PREFIX + secrets.token_urlsafe(16)).rstrip("=")

    async def async_consume(self, state: str) -> bool:
        """Return whether an OAuth state is valid and used for the first time; a valid one is stored."""
        name = self._vault.read_token(state + "=" * (-len(state) % 4), max_age=STATE_SECONDS)
        if name is None or not name.startswith(_STATE_PREFIX):
            return False
        # stored for longer than the state is valid, on any worker's clock
        return await self._vault.reserve(name, seconds=2 * STATE_SECONDS)


def oauth_routes(
    web_client: AsyncWebClient, tokens: WorkspaceTokenStore, *, client_id: str, client_secret: str
) -> Sequence[web.AbstractRouteDef]:
    """Return the HTTP routes of the two pages with which users install the app.

    `INSTALL_PATH` redirects the user to Slack. Slack redirects them to `REDIRECT_PATH`, which stores the bot's token.
    The response is HTTP 503 if a page fails or takes longer than `PAGE_SECONDS`.
    """
    settings = AsyncOAuthSettings(
        client_id=client_id,
        client_secret=client_secret,
        scopes=sorted(SCOPES | OPTIONAL_SCOPES),
        install_path=INSTALL_PATH,
        install_page_rendering_enabled=False,  # the user is redirected to Slack's own page
        redirect_uri_path=REDIRECT_PATH,
        authorization_url=web_client.base_url.removesuffix("api/") + "oauth/v2/authorize",
        installation_store=VaultInstallationStore(tokens),
        state_store=SignedStateStore(tokens.vault),
        state_expiration_seconds=STATE_SECONDS,
    )
    flow = AsyncOAuthFlow(client=web_client, settings=settings, logger=log)
    return [
        web.get(INSTALL_PATH, lambda request: _respond(request, flow.handle_installation)),
        web.get(REDIRECT_PATH, lambda request: _respond(request, flow.handle_callback)),
    ]


async def _respond(
    request: web.Request, handle: Callable[[AsyncBoltRequest], Awaitable[BoltResponse]]
) -> web.StreamResponse:
    try:
        async with asyncio.timeout(PAGE_SECONDS):
            response = await to_aiohttp_response(await handle(await to_bolt_request(request)))
    except Exception as error:
        log.error("the app cannot be installed: %s", format_error(error))
        response = web.Response(status=503, text="This cannot be done right now. Please try again in a moment.")
    response.headers["Cache-Control"] = "no-store"
    response.headers["Referrer-Policy"] = "no-referrer"
    return response
