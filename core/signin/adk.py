"""ADK's side of sign-ins: each tool call gets the credentials of the one person who speaks in the run.

Credentials are only in the state of the call itself, under ADK's `temp:` keys, while its tool runs. Nothing that the
tool returns or stores in ADK's state may have one.
"""

import hashlib
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from fastapi.openapi.models import HTTPBearer
from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.auth.auth_credential import AuthCredential
from google.adk.auth.auth_tool import AuthConfig, AuthToolArguments
from google.adk.auth.credential_service.base_credential_service import BaseCredentialService
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from pydantic import BaseModel

from core.errors import SignInError, SignInUnavailableError
from core.messages.identity import BOT_PREFIX, User
from core.observability.secret_redaction import MAX_JSON_DEPTH, RunSecrets, add_temporary_secret
from core.sessions.writer import StoredSession
from core.signin.adk_credentials import is_credential, list_forms, read_target, to_adk_credential
from core.signin.credentials import CredentialStore
from core.signin.mcp import McpAuthorization
from core.signin.pending import PendingSignIns
from core.signin.target import Credential, CredentialKind, Person, SignInTarget
from core.tools.adk_confirmations import Account
from core.tools.adk_requests import CREDENTIAL_CALL, CredentialOwner, set_credential_owner
from core.tools.results import convert_object

#: ADK: prefix of the state key under which a tool finds a credential.
_STATE_PREFIX = "temp:"

#: ADK: ends and beginnings of the state keys by which OpenAPI tools keep a credential, and count its failures, in a
#: session that several people share.
_SHARED_SUFFIX = "_existing_exchanged_credential"
_SHARED_PREFIXES = ("_adk_reauth_requests:", "_adk_recovery_refreshes:")


@dataclass(frozen=True, slots=True)
class _Request:
    """Request of a tool call for a credential.

    Attributes:
        needs_consent: whether only the person can help: no present or refreshed credential does.
    """

    config: AuthConfig
    target: SignInTarget
    needs_consent: bool = False


#: Credential requests of an agent that runs as a tool, for the call of the agent; None outside of such a call.
_child_requests: ContextVar[list[_Request] | None] = ContextVar("child_requests", default=None)


class SignInService:
    """Credentials of people for the tools of all agents.

    Args:
        platforms: the platforms on which a person can sign in.
        client_secrets: secrets of OAuth clients, by client id, for tools whose requests have none.
        servers: finds where people sign in at MCP servers.
    """

    def __init__(
        self,
        store: CredentialStore,
        pending: PendingSignIns,
        *,
        platforms: Collection[str],
        client_secrets: Mapping[str, str],
        servers: McpAuthorization | None = None,
    ) -> None:
        self.store = store
        self.pending = pending
        self.servers = servers
        self.platforms = frozenset(platforms)
        self.client_secrets = dict(client_secrets)
        #: The targets that tools have asked for in this process: by app, agent and tool, and then by credential key.
        self._targets = dict[tuple[str, str, str], dict[str, SignInTarget]]()

    def add_target(self, tool: tuple[str, str, str], target: SignInTarget) -> None:
        self._targets.setdefault(tool, {})[target.credential_key] = target

    def get_targets(self, tool: tuple[str, str, str]) -> Mapping[str, SignInTarget]:
        return dict(self._targets.get(tool, {}))


class RunCredentials(BaseCredentialService):
    """ADK credential service of one run: it has only the credentials of the person who speaks in it.

    The person is fixed when the run begins: a tool that changes the run's configuration or state gets no others.

    Args:
        service: None if sign-in is off.
        app: the name of the ADK app.
        speakers: the people whose words are in the run.

    Attributes:
        secrets: the forms of the credentials that the run has used.
    """

    def __init__(self, service: SignInService | None, app: str, speakers: Sequence[User]) -> None:
        self._service = service
        self._app = app
        self._person, self._refusal = _find_person(service, speakers)
        self._name = speakers[0].name if speakers else ""
        self._client_secrets = dict(service.client_secrets if service is not None else {})
        self._requests = dict[str, _Request]()
        #: Targets by the id of a call in progress, in place of those of their configurations.
        self._bound = dict[str, SignInTarget]()
        self.secrets = RunSecrets()

    @property
    def person(self) -> Person | None:
        return self._person

    def require_service(self) -> SignInService:
        """Return the service, or raise `SignInError` with the reason why the run acts as nobody."""
        if self._service is None or self._person is None:
            raise SignInError(self._refusal)
        return self._service

    async def load_credential(
        self, auth_config: AuthConfig, callback_context: CallbackContext
    ) -> AuthCredential | None:
        """Return the person's credential for a tool's configuration; None without one.

        Raises:
            SignInUnavailableError: the token has expired, and the service cannot be reached to refresh it.
        """
        target = self._bound.get(getattr(callback_context, "function_call_id", None) or "")
        try:
            target = target or self.read_target(auth_config)
        except SignInError:
            return None
        credential = await self.get_credential(target)
        return None if credential is None else to_adk_credential(target, credential)

    async def save_credential(self, auth_config: AuthConfig, callback_context: CallbackContext) -> None:
        """Store nothing: a credential is only stored when its person has signed in."""

    async def get_credential(self, target: SignInTarget) -> Credential | None:
        """Return the person's credential for a target; see `load_credential`."""
        if self._service is None or self._person is None:
            return None
        credential = await self._service.store.get(self._person, self._app, target)
        if credential is not None:
            self._hide(credential)
        return credential

    async def refresh(self, target: SignInTarget, rejected: Credential) -> Credential | None:
        """Return a credential in place of one that the service has rejected; see `CredentialStore.refresh`."""
        service = self.require_service()
        assert self._person is not None, "`require_service` has checked it"
        credential = await service.store.refresh(self._person, self._app, target, rejected=rejected.secret)
        if credential is not None:
            self._hide(credential)
        return credential

    def add_target(self, agent: str, tool: str, target: SignInTarget) -> None:
        """Remember the target that calls of an agent's tool need."""
        if self._service is not None:
            self._service.add_target((self._app, agent, tool), target)

    @contextmanager
    def bind_target(self, tool_context: ToolContext, target: SignInTarget) -> Iterator[None]:
        """Within the block, give a call the credential of a target, whatever its tool's configuration says."""
        call_id = tool_context.function_call_id or ""
        self._bound[call_id] = target
        try:
            yield
        finally:
            self._bound.pop(call_id, None)

    def request(self, tool_context: ToolContext, target: SignInTarget, *, needs_consent: bool = False) -> None:
        """Ask for the credential of a target on behalf of a call, as `ToolContext.request_credential` does.

        ADK's request names no URL: the target is in the vault.

        Args:
            needs_consent: whether to ask the person even if they have a credential.
        """
        added = hashlib.sha256(" ".join(sorted(target.added_scopes)).encode()).hexdigest()
        key = f"{target.credential_key} {added}" if target.added_scopes else target.credential_key
        config = AuthConfig(auth_scheme=HTTPBearer(), credential_key=key)
        self._requests[tool_context.function_call_id or ""] = _Request(config, target, needs_consent)
        tool_context.request_credential(config)

    async def find_account(self, tool: BaseTool, tool_context: ToolContext) -> Account | None:
        """Return the person's accounts that a call may use: all of the app, if it is unknown what the tool needs."""
        if self._service is None or self._person is None:
            return None
        targets = await self._find_targets(tool, tool_context)
        signed_in = [
            sign_in.label for sign_in in await self._service.store.list(self._person) if sign_in.app == self._app
        ]
        services = {target.label for target in targets.values()} or set(signed_in)
        return Account(str(self._person), self._name, tuple(sorted(services))) if services else None

    def clear_shared_state(self, state: dict[str, Any]) -> None:
        """Remove what ADK's tools keep about credentials in a session's loaded state, in place."""
        for key in [key for key in state if _is_shared(key)]:
            del state[key]

    def clean_event(self, event: Event) -> None:
        """Remove credentials from an event, in place."""
        self._remove_secrets(event.actions.state_delta)
        event.custom_metadata = self._mask(event.custom_metadata)
        event.output = self._mask(event.output)
        for response in event.get_function_responses():
            response.response = self._mask(response.response)

    def _remove_secrets(self, delta: dict[str, Any]) -> None:
        """Remove values with a credential from ADK's state or a change of it, in place."""
        for key, value in list(delta.items()):
            if _is_shared(key) or self._has_secret(key) or self._has_secret(value):
                del delta[key]

    async def run_tool(
        self, tool: BaseTool, run: Callable[..., Awaitable[Any]], args: dict[str, Any], tool_context: ToolContext
    ) -> Any:
        """Run a tool with the person's credentials, and return its result without them.

        A tool that asks for a credential runs again if the person has one, and once more with a refreshed one. Without
        one, ADK asks for it, and the run waits for the person.
        """
        requested = tool_context.actions.requested_auth_configs
        call_id = tool_context.function_call_id or ""
        given = dict[str, Credential]()
        renewed = set[str]()
        children = list[_Request]()
        outer = _child_requests.get()
        token = _child_requests.set(children) if isinstance(tool, AgentTool) else None
        try:
            while True:
                injected = await self._inject(tool, tool_context, given)
                result = await run(args=args, tool_context=tool_context)
                for key in injected:
                    tool_context.actions.state_delta.pop(key, None)
                if children:  # tools of the agent, which have tried the person's credentials
                    if isinstance(tool_context.session, StoredSession):
                        requested[call_id] = children[-1].config
                        await self._ask(tool, tool_context, children[-1])
                    break
                if not requested:
                    break
                (config,) = requested.values()
                known = self._requests.pop(call_id, None)
                request = replace(known, config=config) if known else _Request(config, self.read_target(config, tool))
                if not await self._renew(tool, tool_context, request, given, renewed):
                    await self._ask(tool, tool_context, request)
                    break
                requested.clear()
        except (SignInError, SignInUnavailableError) as error:
            requested.clear()
            result = {"error": f"{tool.name} was not called: {error}. Say that it was not done, and why."}
        except BaseException:
            requested.clear()  # ADK would store its own authorization URL and verifier, and end the run
            raise
        finally:
            self._remove_secrets(tool_context.session.state)  # an instruction may read it
            self._clean_actions(tool_context.actions)
            if token is not None:
                _child_requests.reset(token)
                if outer is not None:
                    outer += children
        return self._mask(result)

    async def _inject(self, tool: BaseTool, tool_context: ToolContext, given: dict[str, Credential]) -> Sequence[str]:
        """Write the credentials for a tool to the state of its call, and return the state's keys.

        ADK's state has placeholders of former sign-ins: they are hidden.
        """
        state = tool_context.session.state
        self.clear_shared_state(state)
        targets = await self._find_targets(tool, tool_context)
        keys = {key for key, value in state.items() if key.startswith(_STATE_PREFIX) and is_credential(value)}
        changes: dict[str, Any] = dict.fromkeys(keys)
        for key, target in targets.items() if not isinstance(tool, AgentTool) else ():  # its own tools get theirs
            if (credential := await self.get_credential(target)) is not None:
                given[key] = credential
                adk_credential = to_adk_credential(target, credential)
                changes[_STATE_PREFIX + key] = adk_credential.model_dump(mode="json", exclude_none=True)
        tool_context.actions.state_delta.update(changes)
        return list(changes)

    async def _find_targets(self, tool: BaseTool, tool_context: ToolContext) -> Mapping[str, SignInTarget]:
        """Return the targets of a tool by credential key, with that for which its call waited in another process."""
        if self._service is None or self._person is None:
            return {}
        name = self._app, tool_context.agent_name, tool.name
        call = tool_context.session.id, tool_context.invocation_id, tool_context.function_call_id or ""
        targets = self._service.get_targets(name)
        if targets or not self._was_requested(tool_context):
            return targets
        target = await self._service.pending.get(self._person, *call)
        if target is not None:
            self._service.add_target(name, target)
        return self._service.get_targets(name)

    def _was_requested(self, tool_context: ToolContext, key: str | None = None) -> bool:
        """Return whether this call, or any of the run for a credential key, has asked for a credential before."""
        return any(
            id_ == tool_context.function_call_id if key is None else config.credential_key == key
            for event in tool_context.session.events
            if event.invocation_id == tool_context.invocation_id
            for id_, config in event.actions.requested_auth_configs.items()
        )

    async def _renew(
        self,
        tool: BaseTool,
        tool_context: ToolContext,
        request: _Request,
        given: Mapping[str, Credential],
        renewed: set[str],
    ) -> bool:
        """Return whether a tool that asks for a credential should run again, since there is one that it did not have.

        Args:
            given: the credentials that the tool had, by credential key.
            renewed: the keys whose credentials were refreshed for this call.

        Raises:
            SignInError: nobody can sign in for this call.
        """
        self.require_service()
        target = request.target
        self.add_target(tool_context.agent_name, tool.name, target)
        if request.needs_consent:
            return False
        had = given.get(target.credential_key)
        if had is None:
            return await self.get_credential(target) is not None
        if target.credential_key in renewed:
            return False
        renewed.add(target.credential_key)
        return await self.refresh(target, had) is not None

    async def _ask(self, tool: BaseTool, tool_context: ToolContext, request: _Request) -> None:
        """Prepare a request to the person, which ADK stores after the call.

        Raises:
            SignInError: the person cannot be asked for this.
        """
        service = self.require_service()
        assert self._person is not None, "`require_service` has checked it"
        label = request.target.label
        if not isinstance(tool_context.session, StoredSession):
            if (children := _child_requests.get()) is not None:
                children.append(request)
            raise SignInError(f"{label} is not connected yet")
        if not isinstance(tool_context.get_invocation_context().agent, LlmAgent):
            raise SignInError(f"a step of a workflow cannot ask the user to connect {label}: an agent's tool can")
        if self._was_requested(tool_context, request.config.credential_key):
            raise SignInError(f"the user has not connected {label}, or it does not accept the sign-in")
        call = tool_context.session.id, tool_context.invocation_id, tool_context.function_call_id or ""
        if not await service.pending.put(self._person, *call, request.target):
            raise SignInError("the user was asked to sign in too often")
        person = self._person
        set_credential_owner(request.config, CredentialOwner(person.platform, person.workspace, person.id, label))
        if tool_context.tool_confirmation is not None:  # see `add_credential_calls`
            tool_context.actions.skip_summarization = True

    def read_target(self, config: AuthConfig, tool: BaseTool | None = None) -> SignInTarget:
        """Return the target of a tool's configuration or request, with the client's secret if it is known.

        ADK leaves the secret out of requests, but it is in the tool's own configuration.

        Raises:
            SignInError: it is of a kind that no person can complete.
        """
        own = getattr(tool, "auth_credential", None)
        for credential in (own, config.raw_auth_credential):
            oauth = credential.oauth2 if isinstance(credential, AuthCredential) else None
            if oauth is not None and oauth.client_id and oauth.client_secret:
                self._client_secrets[oauth.client_id] = oauth.client_secret
        target = read_target(config, self._client_secrets)
        endpoint = getattr(tool, "endpoint", None)  # of an OpenAPI tool
        if target.kind is CredentialKind.OAUTH or endpoint is None:
            return target
        # ADK gives all API keys in the same header the same `credential_key`
        return replace(target, label=f"{target.label} at {urlsplit(endpoint.base_url).netloc}")

    def _hide(self, credential: Credential) -> None:
        for text in list_forms(credential):
            self.secrets.add(text)
            add_temporary_secret(text)

    def _clean_actions(self, actions: EventActions) -> None:
        self._remove_secrets(actions.state_delta)
        for confirmation in actions.requested_tool_confirmations.values():
            confirmation.hint = self._mask(confirmation.hint)
            confirmation.payload = self._mask(confirmation.payload)

    def _has_secret(self, value: Any) -> bool:
        return self._mask(value) is not value

    def _mask(self, value: Any) -> Any:
        """Return a value of any type without credentials: the same one if it has none, else a plain copy."""
        if self.secrets.is_empty:
            return value
        plain = _to_plain(value)
        masked = self.secrets.mask(plain)
        return value if masked == plain else masked


def add_credential_calls(context: InvocationContext, event: Event) -> None:
    """Add the calls that ask for credentials to the event of a tool's response, in place.

    ADK 2.13 makes no such calls if the tool's own call was made after an approval, and it calls the model again.
    """
    configs = event.actions.requested_auth_configs
    asked = {
        (call.args or {}).get("functionCallId")
        for asking in context.session.events
        for call in asking.get_function_calls()
        if call.name == CREDENTIAL_CALL and asking.invocation_id == event.invocation_id
    }
    if not configs or event.content is None or configs.keys() & asked:
        return
    parts = event.content.parts = list(event.content.parts or ())
    event.long_running_tool_ids = set(event.long_running_tool_ids or ())
    for call_id, config in configs.items():
        arguments = AuthToolArguments(function_call_id=call_id, auth_config=config)
        call = types.FunctionCall(
            name=CREDENTIAL_CALL,
            id=f"adk-{uuid.uuid4()}",
            args=arguments.model_dump(mode="json", exclude_none=True, by_alias=True),
        )
        event.long_running_tool_ids.add(call.id or "")
        parts.append(types.Part(function_call=call))


async def find_account(tool: BaseTool, tool_context: ToolContext) -> Account | None:
    """Return the accounts of the run's person that a call may use."""
    credentials = get_run_credentials(tool_context)
    return None if credentials is None else await credentials.find_account(tool, tool_context)


def get_run_credentials(context: ReadonlyContext) -> RunCredentials | None:
    """Return the credential service of a run.

    ADK 2.13: toolsets get a `ReadonlyContext`, which has no public way to the services of its run.
    """
    credentials = context._invocation_context.credential_service
    return credentials if isinstance(credentials, RunCredentials) else None


def add_credentials(tool: BaseTool) -> None:
    """Change a tool in place, once, so that each call runs with the credentials of its run's person."""
    run = tool.run_async
    if getattr(run, "has_credentials", False) or getattr(run, "has_limit", False):
        return

    async def run_with_credentials(*, args: dict[str, Any], tool_context: ToolContext) -> Any:
        credentials = get_run_credentials(tool_context)
        if credentials is None:
            return await run(args=args, tool_context=tool_context)
        return await credentials.run_tool(tool, run, args, tool_context)

    run_with_credentials.__dict__["has_credentials"] = True
    tool.__dict__["run_async"] = run_with_credentials


def _find_person(service: SignInService | None, speakers: Sequence[User]) -> tuple[Person | None, str]:
    """Return the person as whom a run acts; if it acts as nobody, the reason."""
    if service is None:
        return None, "it needs a sign-in, which the operator has not set up"
    if len(speakers) > 1:
        return None, "it acts as one person, and messages of several people led to this call: one of them can ask anew"
    if not speakers or not speakers[0].id or speakers[0].id.startswith(BOT_PREFIX):
        return None, "it acts as a person, and no person asked for it"
    if speakers[0].platform not in service.platforms:
        return None, "it needs a sign-in, which the operator has not set up here"
    return Person.of(speakers[0]), ""


def _is_shared(key: str) -> bool:
    return key.endswith(_SHARED_SUFFIX) or key.startswith(_SHARED_PREFIXES)


def _to_plain(value: Any, depth: int = 0) -> Any:
    """Return a value as mappings, lists, scalars and bytes, to a depth below which `RunSecrets.mask` hides all."""
    match value:
        case bytearray() | memoryview():
            return bytes(value)
        case BaseModel() if depth <= MAX_JSON_DEPTH:
            return _to_plain(value.model_dump(), depth)
        case Mapping() if depth <= MAX_JSON_DEPTH:
            return {_to_plain(key, depth): _to_plain(item, depth + 1) for key, item in value.items()}
        case list() | tuple() | set() | frozenset() if depth <= MAX_JSON_DEPTH:
            return [_to_plain(item, depth + 1) for item in value]
        case None | bool() | int() | float() | str() | bytes() | BaseModel() | Mapping() | list() | tuple():
            return value
        case _:
            return convert_object(value)
