"""OAuth installation: authorization codes, and their exchange for tokens.

Slack: docs.slack.dev/authentication/installing-with-oauth. A code is valid once, for ten minutes; a token until the
app is uninstalled.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from aiohttp import web

from chatrig.oauth.authorization import CodeStore, read_client_credentials
from chatrig.slack.api import requests as arguments
from chatrig.slack.api.requests import SlackError
from chatrig.slack.state.activity_log import SlackActivityLog
from chatrig.slack.state.workspace import Workspace


@dataclass(frozen=True, slots=True)
class OAuthGrant:
    """Installation that a user approved, for which an authorization code was created.

    Attributes:
        user: the id of the user who approved the installation.
        token: returns the workspace's bot token.
        scopes: the requested scopes, separated by commas.
        redirect_uri: the requested redirect URI; "" without one.
    """

    workspace: Workspace
    user: str
    token: Callable[[], str]
    scopes: str
    redirect_uri: str


class OAuthMethods:
    """OAuth server for the installation of one app.

    Attributes:
        client_id, client_secret: the app's credentials.
        redirect_urls: the app's redirect URLs. Only Sign in with Slack checks them.
    """

    def __init__(self, activity_log: SlackActivityLog) -> None:
        self._activity_log = activity_log
        self.client_id = f"{secrets.randbelow(10**12)}.{secrets.randbelow(10**13)}"
        self.client_secret = secrets.token_hex(16)
        self.redirect_urls: set[str] = set()
        self._grants = CodeStore[OAuthGrant]()

    def grant_access(self, url: str, workspace: Workspace, user: str, token: Callable[[], str]) -> str:
        """Approve the OAuth request at `url`, and create an authorization code.

        Args:
            url: the URL that a browser opens to install the app, with the query that the app wrote.
            user: the id of the user who approves.
            token: returns the workspace's bot token.

        Returns:
            The query of the redirect, with `code` and `state`. The code is valid once, for ten minutes.

        Raises:
            ValueError: the client id is unknown.
            KeyError: the URL has no `scope`.
        """
        query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        if query.get("client_id") != self.client_id:
            raise ValueError("invalid_client_id")
        redirect = query.get("redirect_uri", "")
        code = self._grants.create_code(OAuthGrant(workspace, user, token, query["scope"], redirect))
        return urlencode({"code": code, "state": query.get("state", "")})

    async def handle_access(self, request: web.Request) -> web.Response:
        """Respond to `oauth.v2.access`: exchange an authorization code for a bot token.

        The method needs client credentials and no token. An error has the HTTP status 200, too. The call is recorded in
        the log of calls.
        """
        call = self._activity_log.record_call("oauth.v2.access", {})
        try:
            values = await arguments.read_arguments(request)
            body = {"ok": True} | self._exchange_code(
                read_client_credentials(request.headers.get("Authorization", ""), values), values
            )
        except SlackError as error:
            body = error.body()
        call.status, call.error, call.response = 200, body.get("error"), body
        return web.json_response(body)

    def _exchange_code(self, credentials: tuple[str, str], values: Mapping[str, Any]) -> dict[str, Any]:
        client_id, client_secret = credentials
        if client_id != self.client_id:
            raise SlackError("invalid_client_id")
        if client_secret != self.client_secret:
            raise SlackError("bad_client_secret")
        grant = self._grants.redeem_code(str(values.get("code", "")))
        if grant is None:
            raise SlackError("invalid_code")
        if grant.redirect_uri != (values.get("redirect_uri") or ""):
            raise SlackError("bad_redirect_uri")
        return {
            "app_id": grant.workspace.app_id,
            "authed_user": {"id": grant.user},
            "scope": grant.scopes,
            "token_type": "bot",
            "access_token": grant.token(),
            "bot_user_id": grant.workspace.bot.id,
            "team": {"id": grant.workspace.team_id, "name": grant.workspace.name},
            "enterprise": None,
            "is_enterprise_install": False,
        }
