"""Clients of the local provider: registered by a test, by RFC 7591, or by a client-metadata document.

The id of a client with a document is the document's URL (draft-ietf-oauth-client-id-metadata-document).
"""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from time import time
from typing import Any
from urllib.parse import urlsplit

from aiohttp import ClientError, ClientSession, ClientTimeout

AUTH_METHODS = ("none", "client_secret_basic", "client_secret_post")
DOCUMENT_TIMEOUT_SECONDS = 5
_LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})


class OAuthError(Exception):
    """Error response of the provider.

    Attributes:
        code: the value of `error`.
        description: the value of `error_description`.
        status: the HTTP status, unless the error goes to the redirect URI.
    """

    def __init__(self, code: str, description: str, status: int = 400) -> None:
        super().__init__(f"{code}: {description}")
        self.code = code
        self.description = description
        self.status = status

    def body(self) -> dict[str, str]:
        return {"error": self.code, "error_description": self.description}


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """Client of the provider.

    Attributes:
        secret: "" for a public client.
        auth_method: `token_endpoint_auth_method`, one of `AUTH_METHODS`.
    """

    id: str
    secret: str
    name: str
    redirect_uris: tuple[str, ...]
    auth_method: str


class ClientRegistry:
    """Registered clients, and those of client-metadata documents.

    Attributes:
        clients: registered clients by id.
        documents: client-metadata documents by URL. Others are fetched, from this machine only.
    """

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClient] = {}
        self.documents: dict[str, Mapping[str, Any]] = {}

    def add_client(
        self, redirect_uris: Iterable[str], *, auth_method: str = "client_secret_basic", name: str = ""
    ) -> OAuthClient:
        secret = "" if auth_method == "none" else secrets.token_urlsafe(24)
        client = OAuthClient(secrets.token_urlsafe(12), secret, name, tuple(redirect_uris), auth_method)
        self.clients[client.id] = client
        return client

    def register_client(self, metadata: Any) -> dict[str, Any]:
        """Register a client by its metadata; return the response of RFC 7591.

        Raises:
            OAuthError: `invalid_redirect_uri` or `invalid_client_metadata`.
        """
        name, redirect_uris, auth_method = _read_metadata(metadata, default_auth_method="client_secret_basic")
        client = self.add_client(redirect_uris, auth_method=auth_method, name=name)
        secret = {"client_secret": client.secret, "client_secret_expires_at": 0} if client.secret else {}
        return {
            **metadata,
            "client_id": client.id,
            "client_id_issued_at": int(time()),
            **secret,
            "redirect_uris": redirect_uris,
            "token_endpoint_auth_method": auth_method,
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
        }

    async def find_client(self, client_id: str) -> OAuthClient:
        """Return a client by its id; read its client-metadata document if the id is a URL.

        Raises:
            OAuthError: `invalid_client`.
        """
        if client_id in self.clients:
            return self.clients[client_id]
        if not client_id.startswith(("https://", "http://")):
            raise OAuthError("invalid_client", "The client is unknown.", 401)
        document = self.documents.get(client_id) or await _fetch_document(client_id)
        try:
            name, redirect_uris, auth_method = _read_metadata(document, default_auth_method="none")
        except OAuthError as error:
            raise OAuthError("invalid_client", error.description, 401) from None
        if document.get("client_id") != client_id or auth_method != "none":
            raise OAuthError("invalid_client", "The document must have its URL as client_id, and no secret.", 401)
        return OAuthClient(client_id, "", name, tuple(redirect_uris), auth_method)


async def _fetch_document(url: str) -> Any:
    if urlsplit(url).hostname not in _LOOPBACK_HOSTS:
        raise OAuthError("invalid_client", "The document is neither in client_documents nor on this machine.", 401)
    try:
        async with (
            ClientSession(timeout=ClientTimeout(DOCUMENT_TIMEOUT_SECONDS)) as session,
            session.get(url, allow_redirects=False) as response,
        ):
            response.raise_for_status()
            return await response.json(content_type=None)
    except (ClientError, TimeoutError, ValueError):
        raise OAuthError("invalid_client", "The client-metadata document cannot be read.", 401) from None


def _read_metadata(metadata: Any, *, default_auth_method: str) -> tuple[str, list[str], str]:
    """Return name, redirect URIs and authentication method of a client's metadata.

    Raises:
        OAuthError: `invalid_redirect_uri` or `invalid_client_metadata`.
    """
    if not isinstance(metadata, dict):
        raise OAuthError("invalid_client_metadata", "The metadata must be a JSON object.")
    uris = metadata.get("redirect_uris")
    if not isinstance(uris, list) or not uris or not all(isinstance(uri, str) and _is_redirect(uri) for uri in uris):
        raise OAuthError("invalid_redirect_uri", "redirect_uris must be absolute URIs without a fragment.")
    auth_method = metadata.get("token_endpoint_auth_method") or default_auth_method
    if auth_method not in AUTH_METHODS:
        raise OAuthError("invalid_client_metadata", f"token_endpoint_auth_method must be in {AUTH_METHODS}.")
    return str(metadata.get("client_name", "")), uris, auth_method


def _is_redirect(uri: str) -> bool:
    parts = urlsplit(uri)
    return bool(parts.scheme) and not parts.fragment and parts.scheme not in ("data", "javascript")
