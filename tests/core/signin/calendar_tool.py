"""Tool of the crash tests, which reads a calendar at the local OAuth provider as the person who asked."""

import os
from typing import Any

import aiohttp
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.auth.auth_schemes import OpenIdConnectWithConfig
from google.adk.auth.auth_tool import AuthConfig
from google.adk.tools.tool_context import ToolContext

from core.tools import idempotent

#: Environment variables with the address of the provider, and the id of the client.
SERVICE, CLIENT = "TEST_SERVICE_URL", "TEST_CLIENT_ID"


@idempotent
async def list_events(people: str, tool_context: ToolContext) -> Any:
    """List the calendar's events.

    Args:
        people: the people who asked.
    """
    config = _create_config()
    credential = tool_context.get_auth_response(config)
    if credential is not None and credential.oauth2 is not None:
        headers = {"Authorization": f"Bearer {credential.oauth2.access_token}"}
        url = f"{os.environ[SERVICE]}/calendar"
        async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as response:
            if response.status != 401:
                return await response.text()
    tool_context.request_credential(config)
    return {"status": "pending"}


def _create_config() -> AuthConfig:
    url = os.environ[SERVICE]
    scheme = OpenIdConnectWithConfig(
        authorization_endpoint=f"{url}/authorize",
        token_endpoint=f"{url}/token",
        revocation_endpoint=f"{url}/revoke",
        scopes=["calendar"],
    )
    oauth = OAuth2Auth(client_id=os.environ[CLIENT])
    credential = AuthCredential(auth_type=AuthCredentialTypes.OPEN_ID_CONNECT, oauth2=oauth)
    return AuthConfig(auth_scheme=scheme, raw_auth_credential=credential)
