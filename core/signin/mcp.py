"""Authorization of MCP servers: finds where a person signs in, and registers the bot there as an OAuth client.

MCP: modelcontextprotocol.io/specification/2025-11-25/basic/authorization, with the metadata of RFC 9728 and RFC 8414.
All URLs come from other servers, so that only `OAuthClient` requests them. This needs the extra `mcp`.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cachetools import TTLCache
from pydantic import ValidationError

from core.concurrency.lookup_cache import LookupCache
from core.errors import ParleyError, SettingsError, SignInError, SignInUnavailableError
from core.privacy.vault import Vault
from core.signin.browser import CALLBACK_PATH
from core.signin.oauth import OAuthClient
from core.signin.target import CredentialKind, SignInTarget

if TYPE_CHECKING:
    from httpx2 import Response
    from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata

log = logging.getLogger(__name__)

#: Path of the client-metadata document, below `PUBLIC_URL`.
CLIENT_DOCUMENT_PATH = "/oauth/client.json"

#: Seconds for which a target is used again, and for which a failure is.
TARGET_SECONDS, FAILURE_SECONDS = 3600.0, 30.0

#: Time limit of a discovery with its registration; another worker may register in place of one that needs longer.
DISCOVERY_SECONDS = 10.0

#: Seconds between two looks at the registration of another worker.
POLL_SECONDS = 0.2

_MAX_SERVERS = 1000

#: URL of an MCP server, and the scopes to ask for.
_Key = tuple[str, tuple[str, ...]]

#: Message that a server answers with the metadata's URL if it needs a token.
_PROBE: Mapping[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
_ACCEPT = {"Accept": "application/json, text/event-stream"}

#: Methods by which the bot authenticates, the best first.
_AUTH_METHODS = ("client_secret_basic", "client_secret_post", "none")


class McpAuthorization:
    """Finder of the authorization servers of MCP servers.

    Args:
        public_url: the address of the process for browsers, without a slash at its end.
    """

    def __init__(self, oauth: OAuthClient, vault: Vault, *, public_url: str) -> None:
        self._oauth = oauth
        self._vault = vault
        self._public_url = public_url
        self._targets = LookupCache[_Key, SignInTarget]("authorization servers", TARGET_SECONDS)
        self._last = dict[_Key, SignInTarget]()
        self._failures: TTLCache[_Key, ParleyError, float] = TTLCache(_MAX_SERVERS, FAILURE_SECONDS)

    async def find_target(self, name: str, url: str, scopes: Sequence[str]) -> SignInTarget:
        """Return the target of an MCP server; the last one if the servers fail.

        Args:
            name: the name of the server for people.
            scopes: the scopes to ask for; none for those that the server names.

        Raises:
            SignInError: the server does not offer what a sign-in needs, or offers something that is not safe.
            SignInUnavailableError: the server, or its authorization server, cannot answer now.
        """
        key = url, tuple(scopes)
        return await self._targets.get(key, partial(self._find, name, key))

    async def _find(self, name: str, key: _Key) -> SignInTarget:
        failure = self._failures.get(key)
        if failure is None:
            try:
                async with asyncio.timeout(DISCOVERY_SECONDS):
                    self._last[key] = await self._discover(name, *key)
                return self._last[key]
            except (SignInError, SignInUnavailableError) as error:
                failure = error
            except TimeoutError:
                failure = SignInUnavailableError(f"{name}: no answer within {DISCOVERY_SECONDS:g} s")
            self._failures[key] = failure
        if key not in self._last:
            raise failure.with_traceback(None)
        log.warning("the last known authorization server is used: %s", failure)
        return self._last[key]

    async def _discover(self, name: str, url: str, scopes: Sequence[str]) -> SignInTarget:
        from mcp.client.auth.utils import extract_scope_from_www_auth, get_client_metadata_scopes  # noqa: PLC0415

        challenge = await self._fetch("POST", url, name, json=_PROBE, headers=_ACCEPT)
        resource = await self._fetch_resource(name, url, challenge)
        issuer = str(resource.authorization_servers[0]) if resource else ""
        server = await self._fetch_server(name, url, issuer)
        client = await self._get_client(name, server)
        granted = get_client_metadata_scopes(
            extract_scope_from_www_auth(challenge), resource, server, ["refresh_token"]
        )
        return SignInTarget(
            credential_key=f"mcp:{url}",
            kind=CredentialKind.OAUTH,
            label=name,
            authorization_url=str(server.authorization_endpoint),
            token_url=str(server.token_endpoint),
            revocation_url=str(server.revocation_endpoint or ""),
            issuer=str(server.issuer) if server.authorization_response_iss_parameter_supported else "",
            client_id=client["client_id"],
            client_secret=client["client_secret"],
            scopes=tuple(scopes or (granted or "").split()),
            resource=str(resource.resource) if resource else "",
            token_auth_method=client["auth_method"],
        )

    async def _fetch_resource(self, name: str, url: str, challenge: "Response") -> "ProtectedResourceMetadata | None":
        """Return the metadata of an MCP server; None for a server of MCP 2025-03-26, which has none."""
        from mcp.client.auth.utils import (  # noqa: PLC0415
            build_protected_resource_metadata_discovery_urls,
            extract_resource_metadata_from_www_auth,
            handle_protected_resource_response,
        )
        from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url  # noqa: PLC0415

        named = extract_resource_metadata_from_www_auth(challenge)
        for address in build_protected_resource_metadata_discovery_urls(named, url):
            metadata = await handle_protected_resource_response(await self._fetch("GET", address, name))
            if metadata is None:
                continue
            if not check_resource_allowed(resource_url_from_server_url(url), str(metadata.resource)):
                raise SignInError(f"{name}: its metadata are those of another server")
            return metadata
        return None

    async def _fetch_server(self, name: str, url: str, issuer: str) -> "OAuthMetadata":
        """Return the metadata of an authorization server; without an issuer, of that on the MCP server's host."""
        from mcp.client.auth import OAuthFlowError  # noqa: PLC0415
        from mcp.client.auth.utils import (  # noqa: PLC0415
            build_oauth_authorization_server_metadata_discovery_urls,
            handle_auth_metadata_response,
            validate_metadata_issuer,
        )

        for address in build_oauth_authorization_server_metadata_discovery_urls(issuer or None, url):
            _, metadata = await handle_auth_metadata_response(await self._fetch("GET", address, name))
            if metadata is None:
                continue
            parts = urlsplit(url)
            try:
                validate_metadata_issuer(metadata, issuer or f"{parts.scheme}://{parts.netloc}")
            except OAuthFlowError as error:
                raise SignInError(f"{name}: its authorization server names another issuer") from error
            if "S256" not in (metadata.code_challenge_methods_supported or ()):
                raise SignInError(f"{name}: its authorization server does not offer PKCE")
            for endpoint in (metadata.authorization_endpoint, metadata.token_endpoint):
                self._oauth.check_url(str(endpoint), name)
            return metadata
        raise SignInError(f"{name}: it does not say where people sign in")

    # The bot as a client

    async def _get_client(self, name: str, server: "OAuthMetadata") -> Mapping[str, str]:
        """Return the bot's client at an authorization server: id, secret and authentication method.

        The bot registers once for all workers: the first to reserve the name does, and the others wait.
        """
        from mcp.client.auth.utils import is_valid_client_metadata_url, should_use_client_metadata_url  # noqa: PLC0415

        document = self._public_url + CLIENT_DOCUMENT_PATH
        if is_valid_client_metadata_url(document) and should_use_client_metadata_url(server, document):
            return {"client_id": document, "client_secret": "", "auth_method": "none"}
        if server.registration_endpoint is None:
            raise SignInError(
                f"{name}: its authorization server registers no clients: use a McpToolset with an auth_credential"
            )
        key = f"sign-in-client:{server.issuer}"
        while True:
            if (client := await self._load_client(key)) is not None:
                return client
            if await self._vault.reserve(f"{key} lock", seconds=DISCOVERY_SECONDS):
                try:
                    if (client := await self._load_client(key)) is None:
                        client = await self._register(name, server)
                        await self._vault.put(key, client)
                    return client
                finally:
                    await self._vault.remove(f"{key} lock")
            await asyncio.sleep(POLL_SECONDS)

    async def _load_client(self, key: str) -> Mapping[str, Any] | None:
        """Return a registered client; None if it has expired, is unreadable, or is for another address of the bot."""
        try:
            client = await self._vault.get(key)
        except SettingsError:
            return None
        if not client or client["public_url"] != self._public_url:
            return None
        return None if client["expires_at"] and client["expires_at"] < time.time() else client

    async def _register(self, name: str, server: "OAuthMetadata") -> Mapping[str, Any]:
        """Register the bot by RFC 7591."""
        from mcp.client.auth import OAuthRegistrationError  # noqa: PLC0415
        from mcp.client.auth.utils import handle_registration_response  # noqa: PLC0415

        offered = server.token_endpoint_auth_methods_supported or ["client_secret_basic"]
        method = next((method for method in _AUTH_METHODS if method in offered), "none")
        metadata = _create_metadata(self._public_url, method)
        response = await self._fetch("POST", str(server.registration_endpoint), name, json=metadata)
        try:
            client = await handle_registration_response(response)
        except (OAuthRegistrationError, ValidationError) as error:
            raise SignInError(f"{name}: the bot cannot be registered (HTTP {response.status_code})") from error
        default = "client_secret_basic" if client.client_secret else "none"
        given = client.token_endpoint_auth_method or default
        if given not in _AUTH_METHODS:
            raise SignInError(f"{name}: its authorization server demands the authentication {given}")
        return {
            "client_id": client.client_id,
            "client_secret": "" if given == "none" else client.client_secret or "",
            "auth_method": given,
            "public_url": self._public_url,
            "expires_at": client.client_secret_expires_at,
        }

    async def _fetch(self, method: str, address: str, name: str, **options: Any) -> "Response":
        from httpx2 import Response  # noqa: PLC0415

        answer = await self._oauth.request(method, address, name, **options)
        challenges = [(key, value) for key, value in answer.headers if key.lower() == "www-authenticate"]
        return Response(answer.status, headers=challenges, content=answer.body)


def create_client_document(public_url: str) -> Mapping[str, Any]:
    """Return the client-metadata document at `CLIENT_DOCUMENT_PATH`."""
    return {"client_id": public_url + CLIENT_DOCUMENT_PATH, **_create_metadata(public_url, "none")}


def _create_metadata(public_url: str, auth_method: str) -> Mapping[str, Any]:
    return {
        "client_name": "Parley",
        "redirect_uris": [public_url + CALLBACK_PATH],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": auth_method,
        "application_type": "web",
    }
