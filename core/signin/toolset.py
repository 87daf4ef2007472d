"""MCP servers at which each person has their own account.

A person without a sign-in sees one tool, which asks for it: ADK alone asks before the model runs, whatever the person
wants. A person with a sign-in sees the server's tools over a connection that nobody else uses.
"""

import asyncio
import copy
import hashlib
import logging
import os
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fastapi.openapi.models import APIKey, APIKeyIn, OAuth2, OAuthFlows
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.auth.auth_credential import AuthCredentialTypes
from google.adk.auth.auth_schemes import OpenIdConnectWithConfig
from google.adk.auth.auth_tool import AuthConfig
from google.adk.models import LlmRequest
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from core.concurrency.tasks import BackgroundTasks
from core.errors import SignInError, SignInUnavailableError
from core.observability.secret_redaction import format_error
from core.signin.adk import RunCredentials, get_run_credentials
from core.signin.adk_credentials import read_target, to_adk_credential
from core.signin.target import Credential, CredentialKind, Person, SignInTarget, host_label
from core.tools.mcp import McpServer

if TYPE_CHECKING:
    from google.adk.tools.mcp_tool import McpToolset

log = logging.getLogger(__name__)

#: The most connections to one server, apart from those that are in use.
MAX_CONNECTIONS = 100

#: Seconds after which an unused connection is closed, at the next use of any.
IDLE_SECONDS = 900.0

#: The most scopes that a response may demand.
MAX_SCOPES = 50

_CLOSE_SECONDS = 5.0

_PENDING = {"status": "pending", "note": "The user is asked to sign in."}

#: Kinds of an OAuth client's own credential; a person's token comes in addition to it.
_SIGN_IN_CREDENTIALS = (AuthCredentialTypes.OAUTH2, AuthCredentialTypes.OPEN_ID_CONNECT)

FindTarget = Callable[[RunCredentials], Awaitable[SignInTarget]]
OpenToolset = Callable[[SignInTarget, Credential], "McpServer | McpToolset"]


@dataclass(frozen=True, eq=False, slots=True)
class _Challenge:
    """Response that refuses a credential, compared by identity.

    Attributes:
        scopes: those that a call needs in addition.
    """

    status: int
    scopes: tuple[str, ...] = ()


@dataclass(eq=False, slots=True)
class _Connection:
    """Connection of one person with one credential.

    Attributes:
        challenge: the last response that refused the credential.
        is_refused: whether the server did not accept the credential, which is fresh, for its list of tools.
        uses: the calls in progress.
        used_at: monotonic seconds.
    """

    person: Person
    secret_hash: str
    toolset: "McpServer | McpToolset"
    challenge: _Challenge | None = None
    is_refused: bool = False
    uses: int = 0
    used_at: float = 0.0


class _ConnectionPool:
    """Open connections to one server, by person and credential."""

    def __init__(self, open_toolset: OpenToolset) -> None:
        # ADK 2.13 looks for a Google client certificate before each first connection: seconds without Google's cloud
        os.environ.setdefault("GOOGLE_API_USE_CLIENT_CERTIFICATE", "false")
        self._open_toolset = open_toolset
        self._connections = OrderedDict[tuple[Person, str], _Connection]()
        self._closing = BackgroundTasks()

    def get(self, person: Person, target: SignInTarget, credential: Credential) -> _Connection:
        """Return the connection for a credential; those for other credentials of the person are closed."""
        secret_hash = hashlib.sha256(credential.secret.encode()).hexdigest()
        self.close_person(person, except_for=secret_hash)
        connection = self._connections.get((person, secret_hash))
        if connection is None:
            connection = _Connection(person, secret_hash, self._open_toolset(target, credential))
            _record_challenges(connection)
        return connection

    @contextmanager
    def use(self, connection: _Connection) -> Iterator[None]:
        key = connection.person, connection.secret_hash
        self._connections[key] = connection
        self._connections.move_to_end(key)
        connection.uses += 1
        try:
            yield
        finally:
            connection.uses -= 1
            connection.used_at = time.monotonic()
            self._close_unused()

    def close_person(self, person: Person, *, except_for: str = "") -> None:
        for key, connection in list(self._connections.items()):
            if key[0] == person and key[1] != except_for and not connection.uses:
                self._close(key)

    async def aclose(self) -> None:
        """Close unused connections: ADK closes the toolsets of an agent that is a tool after each of its calls."""
        for key in [key for key, connection in self._connections.items() if not connection.uses]:
            self._close(key)
        await self._closing.drain(_CLOSE_SECONDS)

    def _close_unused(self) -> None:
        surplus = len(self._connections) - MAX_CONNECTIONS
        for key, connection in list(self._connections.items()):
            is_idle = connection.used_at < time.monotonic() - IDLE_SECONDS
            if not connection.uses and (is_idle or surplus > 0):
                self._close(key)
                surplus -= 1

    def _close(self, key: tuple[Person, str]) -> None:
        toolset = self._connections.pop(key).toolset

        async def close() -> None:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await toolset.close()

        self._closing.start(close(), name="close of an MCP connection")


class SignInToolset(BaseToolset):
    """ADK toolset with the tools of a server as the person of the run sees them.

    Args:
        name: the name of the server in the name of the tool that connects it.
        find_target: returns the target of the server.
        open_toolset: returns a new toolset for one person.

    Attributes:
        connect_name: the name of the tool that asks for the sign-in.
        progress_texts: text to show while a tool runs, by tool name with prefix.
    """

    def __init__(
        self,
        name: str,
        find_target: FindTarget,
        open_toolset: OpenToolset,
        *,
        progress_texts: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._use_invocation_cache = False  # ADK 2.13: or the tools of a run would not change after the sign-in
        self.name = name
        self.connect_name = f"connect_{re.sub(r'[^A-Za-z0-9]+', '_', name).strip('_')}"
        self.progress_texts = dict(progress_texts or {})
        self._find_target = find_target
        self._connections = _ConnectionPool(open_toolset)

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """Return the tools of the run's person, and the tool that connects, which a model sees if there are none."""
        credentials = None if readonly_context is None else get_run_credentials(readonly_context)
        tools: list[BaseTool] | None = None
        if readonly_context is not None and credentials is not None and credentials.person is not None:
            try:
                tools = await self._list_tools(credentials, await self._find_target(credentials), readonly_context)
            except (SignInError, SignInUnavailableError) as error:
                log.warning("the tools of %s cannot be listed: %s", self.name, error)
        return [*(tools or ()), _ConnectTool(self, is_offered=not tools)]

    async def connect(self, credentials: RunCredentials, tool_context: ToolContext) -> Any:
        """Return the names of the person's tools, or ask the person to sign in.

        Raises:
            SignInError: nobody can sign in for this run, or at this server.
            SignInUnavailableError: the server cannot answer now.
        """
        credentials.require_service()
        target = await self._find_target(credentials)
        tools = await self._list_tools(credentials, target, tool_context)
        if tools is None:
            credentials.request(tool_context, target, needs_consent=True)
            return _PENDING
        if not tools:
            return {"error": f"{target.label} is connected, but its tools are unavailable at the moment. Say so."}
        return {"status": "connected", "tools": [tool.name for tool in tools]}

    async def close(self) -> None:
        await self._connections.aclose()

    async def _list_tools(
        self, credentials: RunCredentials, target: SignInTarget, context: ReadonlyContext
    ) -> list[BaseTool] | None:
        """Return the person's tools; none if the server does not answer, None if the person must sign in.

        A credential that the server does not accept is refreshed once.
        """
        person = credentials.person
        assert person is not None, "the callers have checked it"
        credential = await credentials.get_credential(target)
        is_refreshed = False
        while credential is not None:
            connection = self._connections.get(person, target, credential)
            if connection.is_refused:
                return None
            former = connection.challenge
            with self._connections.use(connection):
                try:
                    tools = await connection.toolset.get_tools_with_prefix(context)
                except Exception as error:
                    log.warning("the MCP server %s does not answer: %s", self.name, format_error(error))
                    tools = []
            challenge = connection.challenge
            if tools or challenge is None or challenge is former or challenge.status != 401:
                for tool in tools:
                    credentials.add_target(context.agent_name, tool.name, target)
                    self._bind(tool, connection, target)
                return tools
            if is_refreshed:
                connection.is_refused = True
                return None
            credential = await credentials.refresh(target, credential)
            is_refreshed = True
        self._connections.close_person(person)
        return None

    def _bind(self, tool: BaseTool, connection: _Connection, target: SignInTarget) -> None:
        """Change a tool in place, once, so that its calls ask for what the server demands."""
        if "connection" in tool.__dict__:
            return
        tool.__dict__["connection"] = connection
        run = tool.run_async

        async def run_for_person(*, args: dict[str, Any], tool_context: ToolContext) -> Any:
            credentials = get_run_credentials(tool_context)
            if credentials is None or credentials.person != connection.person:
                raise SignInError("it belongs to another person")
            credential = await credentials.get_credential(target)
            if credential is None:
                credentials.request(tool_context, target)
                return _PENDING
            former = connection.challenge
            with self._connections.use(connection), credentials.bind_target(tool_context, target):
                result = await run(args=args, tool_context=tool_context)
            challenge = connection.challenge
            has_failed = isinstance(result, Mapping) and "error" in result
            if not has_failed or challenge is None or challenge is former:
                return result
            if challenge.status == 401:
                credentials.request(tool_context, target)
            elif challenge.scopes and target.kind is CredentialKind.OAUTH:
                added = tuple(dict.fromkeys((*credential.scopes, *challenge.scopes)))
                credentials.request(tool_context, replace(target, added_scopes=added), needs_consent=True)
            return result

        tool.__dict__["run_async"] = run_for_person


class _ConnectTool(BaseTool):
    """Tool that asks the person of the run to sign in at a server.

    Args:
        is_offered: whether models see the tool. A run that waits for a sign-in calls it once more either way.
    """

    idempotent = True

    def __init__(self, toolset: SignInToolset, *, is_offered: bool) -> None:
        super().__init__(
            name=toolset.connect_name,
            description=f"Connects the user's own account at {toolset.name}. Its tools are available after that: call "
            "this when the user asks for something that needs them.",
        )
        self._toolset = toolset
        self._is_offered = is_offered

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(name=self.name, description=self.description)

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        if self._is_offered:
            await super().process_llm_request(tool_context=tool_context, llm_request=llm_request)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        credentials = get_run_credentials(tool_context)
        if credentials is None:
            raise SignInError("it needs a sign-in, which is not possible here")
        return await self._toolset.connect(credentials, tool_context)


def wrap_server(server: McpServer) -> SignInToolset:
    """Return the toolset of a server whose configuration `is_personal`."""
    config = server.config
    (header, label), *_ = config.person_headers.items() or [("Authorization", "")]
    is_oauth = config.auth is not None
    own_key = SignInTarget(
        credential_key=f"mcp:{config.url} {header}", kind=CredentialKind.API_KEY, label=label, resource=config.url
    )

    async def find_target(credentials: RunCredentials) -> SignInTarget:
        if not is_oauth:
            return own_key
        servers = credentials.require_service().servers
        assert servers is not None, "`bot` refuses servers with `auth` if sign-in is off"
        return await servers.find_target(server.name, config.url, config.scopes)

    def open_toolset(target: SignInTarget, _: Credential) -> McpServer:
        async def get_headers(context: ReadonlyContext) -> dict[str, str]:
            credentials = get_run_credentials(context)
            credential = None if credentials is None else await credentials.get_credential(target)
            if credential is None:
                return {}
            return {header: f"Bearer {credential.secret}" if is_oauth else credential.secret}

        return McpServer(server.name, config, header_provider=get_headers)

    name = server.tool_name_prefix or server.name
    return SignInToolset(name, find_target, open_toolset, progress_texts=server.progress_texts)


def replace_toolset(toolset: BaseToolset) -> BaseToolset:
    """Return the toolset that takes the place of a user's toolset; the same one if it needs no person's credential.

    Raises:
        SignInError: it needs a credential of a person that nobody can give.
    """
    config = toolset.get_auth_config()
    if config is None or not _needs_person(config):
        return toolset
    from google.adk.tools.mcp_tool import McpToolset, SseConnectionParams, StreamableHTTPConnectionParams  # noqa: PLC0415

    if not isinstance(toolset, McpToolset):
        raise SignInError("only a McpToolset asks people to sign in: give it a credential that needs none")
    if not isinstance(toolset.connection_params, SseConnectionParams | StreamableHTTPConnectionParams):
        raise SignInError("its server is one process for all people: connect to it by a URL")
    scheme = config.auth_scheme
    if isinstance(scheme, APIKey) and scheme.in_ is not APIKeyIn.header:
        raise SignInError("ADK sends a person's API key to MCP servers only in a header: write in=header")
    try:
        _copy_toolset(toolset)
    except TypeError as error:
        raise SignInError(f"it cannot be copied for each person: {error}") from error
    return _wrap_toolset(toolset, toolset.connection_params.url, config, read_target(config, {}))


def _needs_person(config: AuthConfig) -> bool:
    """Return whether only a person has the credential of a toolset."""
    credential = config.raw_auth_credential
    if credential is not None and credential.auth_type not in _SIGN_IN_CREDENTIALS:
        return False
    match config.auth_scheme:
        case OAuth2(flows=OAuthFlows(clientCredentials=flow)):
            needs_person = flow is None
        case OpenIdConnectWithConfig(grant_types_supported=grants):
            needs_person = "client_credentials" not in (grants or ())
        case _:
            needs_person = credential is None
    return needs_person and not (credential and credential.oauth2 and credential.oauth2.access_token)


def _wrap_toolset(toolset: "McpToolset", url: str, config: AuthConfig, known: SignInTarget) -> SignInToolset:
    async def find_target(credentials: RunCredentials) -> SignInTarget:
        if known.kind is not CredentialKind.OAUTH:
            return replace(known, resource=url)  # or another server with such a header would get the same value
        return credentials.read_target(config)

    def open_toolset(target: SignInTarget, credential: Credential) -> "McpToolset":
        own = _copy_toolset(toolset)
        own_config = own.get_auth_config()
        assert own_config is not None, "the toolset has an `auth_scheme`"
        own_config.exchanged_auth_credential = to_adk_credential(target, credential)
        return own

    return SignInToolset(toolset.tool_name_prefix or host_label(url), find_target, open_toolset)


def _copy_toolset(toolset: "McpToolset") -> "McpToolset":
    """Return a copy with the same functions, and no connections, as ADK pickles it."""
    parameters: Any = toolset.connection_params
    shared = [value for value in (*vars(toolset).values(), parameters.httpx_client_factory) if callable(value)]
    return copy.deepcopy(toolset, {id(value): value for value in shared})


def _record_challenges(connection: _Connection) -> None:
    """Record responses that refuse a connection's credential: ADK's tools return only a text."""
    from mcp.client.auth.utils import extract_field_from_www_auth  # noqa: PLC0415 - an extra

    async def record(response: Any) -> None:
        if response.status_code == 401:
            connection.challenge = _Challenge(401)
        elif response.status_code == 403 and extract_field_from_www_auth(response, "error") == "insufficient_scope":
            scopes = (extract_field_from_www_auth(response, "scope") or "").split()
            connection.challenge = _Challenge(403, tuple(scopes[:MAX_SCOPES]))

    parameters: Any = connection.toolset.connection_params
    create = parameters.httpx_client_factory

    def create_client(**options: Any) -> Any:
        client = create(**options)
        client.event_hooks.setdefault("response", []).append(record)
        return client

    parameters.httpx_client_factory = create_client
