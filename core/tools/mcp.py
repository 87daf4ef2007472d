"""Tools of MCP servers from a configuration file. This needs the extra `mcp`.

An unreachable server ends neither the start nor a turn. A warning is logged, and the model is told that its tools are
unavailable. After a pause, the next turn connects to the server again.
"""

import asyncio
import logging
import os
import re
import time
import tomllib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.models import LlmRequest
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.tool_context import ToolContext
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from core.errors import SettingsError
from core.observability.messages import describe_invalid_value
from core.observability.secret_redaction import add_secret

if TYPE_CHECKING:
    from google.adk.tools.mcp_tool import McpToolset

log = logging.getLogger(__name__)

#: Pause before the next try of an unreachable server.
RETRY_PAUSE_SECONDS = 30.0

#: Time for which a server's list of tools is cached.
_TOOL_LIST_TTL_SECONDS = 300.0

#: Time limit of a server's shutdown.
_CLOSE_TIMEOUT_SECONDS = 5.0

_PREFIX_PATTERN = "^(?:[A-Za-z][A-Za-z0-9_]*)?$"
_PREFIX_RULE = "empty, or a letter with letters, digits and underscores after it"

#: Name of a header (RFC 9110, section 5.6.2).
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

_VARIABLE = re.compile(r"\$\{(\w+)\}")


HeaderProvider = Callable[[ReadonlyContext], Awaitable[dict[str, str]]]


class McpConfig(BaseModel):
    """Configuration of one MCP server: a table of the configuration file.

    Values of `env` and `headers` may refer to variables, as `${NAME}`.

    Attributes:
        command: program that starts a local server, which is used over its standard streams.
        url: address of a remote server, which is used over streamable HTTP; either this or `command` is set.
        tools: names of the tools that may be used; None for all.
        prefix: prefix of the tools' names, before an underscore; None for the server's name, empty for no prefix.
        seconds: time limit of the server's start and of each call.
        auth: `oauth` if each person signs in at the server with their own account.
        scopes: scopes that a person is asked for; empty for those that the server names.
        person_headers: header that each person fills with their own value, and the name of the value for people.
        progress: text to show while a tool runs, by tool name without prefix: see `Tool`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = Field(default_factory=dict)
    url: str = ""
    headers: Mapping[str, str] = Field(default_factory=dict)
    tools: tuple[str, ...] | None = None
    prefix: str | None = Field(default=None, pattern=_PREFIX_PATTERN)
    seconds: float = Field(default=30, gt=0)
    progress: Mapping[str, str] = Field(default_factory=dict)
    auth: Literal["oauth"] | None = None
    scopes: tuple[str, ...] = ()
    person_headers: Mapping[str, str] = Field(default_factory=dict)

    @property
    def is_personal(self) -> bool:
        """True if each person uses the server with their own account."""
        return self.auth is not None or bool(self.person_headers)

    @field_validator("env", "headers")
    @classmethod
    def _fill_in_variables(cls, values: Mapping[str, str], info: ValidationInfo) -> dict[str, str]:
        """Fill in each `${NAME}`; the value is registered as a secret, which is redacted in logs."""
        known: Mapping[str, str] = info.context or {}
        for name in _VARIABLE.findall(" ".join(values.values())):
            if name not in known:
                raise ValueError(f"names the variable {name}, which is not set")
            add_secret(known[name])
        return {key: _VARIABLE.sub(lambda match: known[match[1]], value) for key, value in values.items()}

    @model_validator(mode="after")
    def _check_transport(self) -> "McpConfig":
        if bool(self.command) == bool(self.url):
            raise ValueError("it must have either a command or a url")
        if self.command and self.is_personal:
            raise ValueError(
                "a command is one process for all people: write a url for auth or person_headers, or give the process "
                "one account by env"
            )
        if self.auth and self.person_headers:
            raise ValueError("it must have either auth or person_headers")
        if self.scopes and not self.auth:
            raise ValueError('scopes need auth = "oauth"')
        return self

    @field_validator("person_headers")
    @classmethod
    def _check_person_headers(cls, values: Mapping[str, str]) -> Mapping[str, str]:
        if len(values) > 1:
            raise ValueError("it must have one header: people enter one value")
        for name, label in values.items():
            if not _HEADER.fullmatch(name) or not label.strip():
                raise ValueError('it must be a header and the name of the service: { "X-Api-Key" = "Harbour Weather" }')
        return values


class McpServer(BaseToolset):
    """ADK toolset with the tools of one MCP server, connected at the first use.

    Args:
        header_provider: returns more headers for the requests of a run.

    Attributes:
        is_available: whether the server answered the last request for its tools; True before the first one.
        progress_texts: text to show while a tool runs, by tool name with prefix.
    """

    def __init__(
        self,
        name: str,
        config: McpConfig,
        *,
        header_provider: HeaderProvider | None = None,
        retry_pause: float = RETRY_PAUSE_SECONDS,
    ) -> None:
        super().__init__(tool_name_prefix=name.replace("-", "_") if config.prefix is None else config.prefix)
        self.name = name
        self.config = config
        self.is_available = True
        self._retry_pause = retry_pause
        self._next_try_at = 0.0
        self._toolset = _create_toolset(config, header_provider)
        prefix = f"{self.tool_name_prefix}_" if self.tool_name_prefix else ""
        self.progress_texts = {f"{prefix}{tool}": line for tool, line in config.progress.items()}

    @property
    def connection_params(self) -> Any:
        """ADK's parameters of the connection."""
        return self._toolset.connection_params

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """Return the server's tools for a model call; none while it is unreachable.

        After a failure, which is logged, `is_available` is False, and the server is not contacted again until
        `retry_pause` has passed.
        """
        if time.monotonic() < self._next_try_at:
            return []
        try:
            return await self.fetch_tools(readonly_context)
        except Exception as error:
            self._next_try_at = time.monotonic() + self._retry_pause
            self.is_available = False
            kind = type(error.__cause__ or error).__name__
            log.warning("the MCP server %s does not answer (%s): its tools cannot be used for now", self.name, kind)
            return []

    async def fetch_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """Fetch and return the server's tools, and set `is_available` to True.

        A list that is less than 5 minutes old is used again. Each tool gets the time limit of the server's calls.

        Raises:
            Exception: any error of the connection or the server; `is_available` stays as it is.
        """
        async with asyncio.timeout(self.config.seconds):
            tools: list[BaseTool] = await self._toolset.get_tools(readonly_context)
        if not self.is_available:
            log.info("the MCP server %s is available again", self.name)
        self.is_available = True
        for tool in tools:
            tool.__dict__["seconds"] = self.config.seconds
        return tools

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        await self.get_tools_with_prefix(tool_context)
        if not self.is_available:
            llm_request.append_instructions(
                [f"The tools of `{self.name}` are unavailable at the moment; say so if asked."]
            )

    async def close(self) -> None:
        """Disconnect from the server within 5 seconds; log a failure."""
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_SECONDS):
                await self._toolset.close()
        except Exception as error:
            log.warning("the MCP server %s did not shut down properly (%s)", self.name, type(error).__name__)


def load_servers(file: Path, variables: Mapping[str, str | None] | None = None) -> list[McpServer]:
    """Return the MCP servers that a TOML file configures, not connected yet.

    The environment takes precedence over `variables`. An empty value counts as not set.

    Raises:
        SettingsError: the file is missing or malformed, names an unset variable, or the extra `mcp` is not installed.
    """
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"MCP_FILE={file}: it cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise SettingsError(f"MCP_FILE={file}: it is not TOML ({type(error).__name__})") from None
    known = {**{name: word for name, word in (variables or {}).items() if word}, **os.environ}
    servers = dict[str, McpConfig]()
    faults = list[str]()
    for name, table in tables.items():
        try:
            servers[name] = McpConfig.model_validate(table, context=known)
        except ValidationError as error:
            for fault in error.errors():
                place = ".".join(str(part) for part in (name, *fault["loc"]))
                if fault["loc"] not in (("seconds",), ("tools",), ("prefix",)):
                    fault["input"] = None  # it may contain secrets
                line = describe_invalid_value(fault, rule=_PREFIX_RULE, known_keys=McpConfig.model_fields)
                faults.append(f"MCP_FILE={file}: [{place}] {line}")
    if faults:
        raise SettingsError(*faults)
    try:
        return [McpServer(name, config) for name, config in servers.items()]
    except ImportError:
        raise SettingsError(
            f"MCP_FILE={file}: the package `mcp` is not installed: run `uv add 'parley[mcp]'`"
        ) from None


def _create_toolset(config: McpConfig, header_provider: HeaderProvider | None) -> "McpToolset":
    from google.adk.tools.mcp_tool import (  # noqa: PLC0415 - an extra
        McpToolset,
        StdioConnectionParams,
        StreamableHTTPConnectionParams,
    )
    from google.adk.tools.mcp_tool.mcp_session_manager import StdioServerParameters  # noqa: PLC0415

    parameters: StdioConnectionParams | StreamableHTTPConnectionParams
    if config.command:
        server = StdioServerParameters(command=config.command, args=list(config.args), env=dict(config.env) or None)
        parameters = StdioConnectionParams(server_params=server, timeout=config.seconds)
    else:
        parameters = StreamableHTTPConnectionParams(
            url=config.url,
            headers=dict(config.headers) or None,
            timeout=config.seconds,
            sse_read_timeout=config.seconds,
        )
    return McpToolset(
        connection_params=parameters,
        tool_filter=None if config.tools is None else list(config.tools),
        tool_list_cache_ttl_seconds=_TOOL_LIST_TTL_SECONDS,
        header_provider=header_provider,
        errlog=_DISCARD,
    )


#: Standard error of servers is discarded: it may hold secrets.
_DISCARD = Path(os.devnull).open("w")  # noqa: SIM115 - as long as the process
