"""ADK plugins of every run: checks of tool calls, metering of external models.

An external model is one that a user's agent brings as an object, not a `ModelAdapter`.
"""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.agents.run_config import RunConfig
from google.adk.events.event import Event
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.plugins import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.adk.tools.tool_context import ToolContext
from google.adk.tools.transfer_to_agent_tool import TransferToAgentTool
from google.genai import types

from core.agents.config import TOOL_TIMEOUT_SECONDS
from core.agents.structured_output import remove_text_around_output
from core.messages.identity import ANONYMOUS_USER, AUTHOR, USER_STATE_KEY, User, intersect_rights, to_user_state
from core.models.adapter import ModelAdapter
from core.models.messages import convert_messages, find_parameter_schema, list_tools, parameter_schema
from core.models.provider import ModelRequest
from core.models.selection import AgentRunConfig
from core.models.tokens import estimate_media_tokens, estimate_text_tokens
from core.models.tool_calls import (
    MALFORMED_CALL_PREFIX,
    explain_malformed_call,
    format_value,
    refuse_malformed_arguments,
    unique_id,
)
from core.observability.secret_redaction import RunSecrets, get_run_secrets
from core.sessions.codec import to_json_value
from core.sessions.history import INTERRUPTED_ERROR
from core.sessions.prompt_text import SteeringPrompt
from core.sessions.writer import StoredSession
from core.signin.adk import RunCredentials, add_credential_calls, add_credentials, find_account
from core.tools.adk_confirmations import (
    ApprovalRule,
    ArgumentPath,
    find_confirmations,
    find_masked_paths,
    find_secret_paths,
    has_secret_mark,
    set_approval_rule,
    standing_approval_key,
)
from core.tools.adk_requests import FORGED_CALL_PREFIX, clean_model_call
from core.tools.call_log import ToolCallEntry, ToolCallLog, hash_arguments
from core.tools.json_schema import SchemaError
from core.tools.results import save_files, to_model_result
from core.tools.tool import (
    ToolAdapter,
    describe_tool_error,
    is_background,
    is_idempotent,
    is_tool_allowed,
    set_tool_timeout,
)
from core.turns.automation.context import set_current_call
from core.turns.automation.jobs import ToolInvocation
from core.turns.automation.tickets import cancel_ticket, store_pending_call
from core.usage.meter import get_current_meter

log = logging.getLogger(__name__)


class GuardPlugin(BasePlugin):
    """ADK plugin that checks and logs tool calls, and makes their results fit a model.

    It is one plugin because ADK calls no further plugin after one that returns a result. The access check must run
    before the call log, and the call log must store the result that the model gets. It comes before the app's own
    plugins, so that results of these plugins are logged as the tool's result.

    Args:
        call_log: log of the calls in stored sessions. The session of an agent that runs as a tool is not stored: only
            the call of that agent is logged.
        tool_seconds: the most seconds of a call, unless the tool has an attribute `seconds`.
        approvers: people and roles that may decide on tool calls, if the tool names none.
    """

    def __init__(
        self,
        call_log: ToolCallLog | None = None,
        *,
        tool_seconds: float = TOOL_TIMEOUT_SECONDS,
        approvers: Sequence[str] = (AUTHOR,),
    ) -> None:
        super().__init__(name="parley_guard")
        self._call_log = call_log
        self._tool_seconds = tool_seconds
        self._approvers = tuple(approvers)

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Remove credentials from the state, and set `temp:speaker`, also for an agent that runs as a tool."""
        if isinstance(credentials := invocation_context.credential_service, RunCredentials):
            credentials.clear_shared_state(invocation_context.session.state)
        if speakers := _get_speakers(invocation_context.run_config):
            invocation_context.session.state.setdefault(USER_STATE_KEY, to_user_state(intersect_rights(speakers)))

    async def before_agent_callback(self, *, agent: BaseAgent, callback_context: CallbackContext) -> None:
        _move_input_before_work(callback_context)

    async def after_model_callback(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> None:
        """Rename calls that a model must not make, and replace ids that the session has already, in place.

        A model sees only the calls of its own branch, so agents that run in parallel may return the same id.
        """
        run = callback_context.run_config
        remove_text_around_output(callback_context._invocation_context.agent, llm_response)
        calls = [part.function_call for part in _get_parts(llm_response) if part.function_call]
        for call in calls:
            refuse_malformed_arguments(call)
            clean_model_call(call)
        if not any(call.id for call in calls) or llm_response.partial or not isinstance(run, AgentRunConfig):
            return
        stored = (call.id for event in callback_context.session.events for call in event.get_function_calls())
        run.call_ids.update(id_ for id_ in stored if id_)
        for call in calls:
            call.id = call.id and unique_id(call.id, call.name or "", run.call_ids)

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        """Store the request's configuration, which declares the tools, for `on_event_callback`; add new messages.

        These are the messages that people sent while the run was in progress. They follow the responses of the tools.

        Raises:
            SessionResetError, TurnLostError, StoreError: see `SessionService.append_event`.
        """
        run = callback_context.run_config
        if not isinstance(run, AgentRunConfig):
            return
        run.model_configs[callback_context.agent_name] = llm_request.config
        context = callback_context._invocation_context
        session = context.session
        if not isinstance(session, StoredSession) or session.read_messages is None or _has_own_task(context):
            return
        for message in await session.read_messages():
            session.steering[message.event_id] = message.prompt
            llm_request.contents.append(await _store_message(context, message))

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> None:
        """Remove credentials from an event, and collect its secret arguments, before ADK stores it."""
        run = invocation_context.run_config
        if isinstance(credentials := invocation_context.credential_service, RunCredentials):
            credentials.clean_event(event)
            add_credential_calls(invocation_context, event)
        secrets = get_run_secrets()
        if secrets is None or event.partial or not isinstance(run, AgentRunConfig):
            return
        for call in event.get_function_calls():
            for config in run.model_configs.values():
                _add_secret_arguments(secrets, config, call)

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Store a call's start in the call log; return a result if it must not be made.

        The call is confirmed if a person has allowed all calls of the same tool in the session, under the tool's
        present approvers. A transfer to an agent is not stored, nor is a call that needs an approval or whose session
        is not stored. If an earlier attempt at the run made the same call, the stored result is returned; without one,
        it is the error `INTERRUPTED_ERROR`. Two such calls are made again: an unfinished call of an idempotent tool,
        and a call whose confirmation request has been decided.

        Raises:
            SessionResetError, TurnLostError, StoreError: see `ToolCallLog.begin`; the call is not made.
        """
        add_credentials(tool)
        set_tool_timeout(tool, self._tool_seconds)
        if isinstance(run := tool_context.run_config, AgentRunConfig):
            run.tool_timer.start(tool_context.function_call_id or tool.name)
            if tool_context.function_call_id not in run.call_ids and (secrets := get_run_secrets()) is not None:
                # a workflow, not a model, makes the call
                paths = find_masked_paths(_get_schema(tool) or {}, tool_args)
                _add_call(secrets, tool_context.function_call_id, tool_args, paths)
        if (error := _check_speakers(tool, tool_context)) is not None or isinstance(tool, TransferToAgentTool):
            return error or _check_agent_name(tool, tool_args)
        if tool_context.tool_confirmation is None and (
            await self._has_standing_approval(tool, tool_context) or _was_approved(tool_context)
        ):
            tool_context.tool_confirmation = ToolConfirmation(confirmed=True)
        call = self._create_invocation(tool, tool_args, tool_context)
        set_current_call(call)
        needs_approval = await _requires_confirmation(tool, tool_args, tool_context)
        if needs_approval and not isinstance(tool_context.session, StoredSession):
            return _approval_unavailable_error(tool)
        if self._call_log is None or call is None or needs_approval:
            return None

        def may_repeat(entry: ToolCallEntry) -> bool:
            # the job of a background tool is stored once, however often its call is made
            may_begin_again = is_idempotent(tool) or is_background(tool)
            return (may_begin_again and not entry.has_ended) or _has_decision(entry, tool_context)

        entry = await self._call_log.begin(call, may_repeat)
        return None if entry is None else _LoggedResult.from_entry(entry, tool, tool_context)

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, result: Any
    ) -> Any:
        """Store a tool call's result in the call log; return the result for the model, None to use the tool's own.

        A request for an approval becomes an error in a session that is not stored.

        Raises:
            TurnLostError, StoreError: see `ToolCallLog.end`.
        """
        if isinstance(run := tool_context.run_config, AgentRunConfig):
            run.tool_timer.stop(tool_context.function_call_id or tool.name)
        if isinstance(result, _LoggedResult):
            return None
        if tool_context.actions.requested_tool_confirmations and not isinstance(tool_context.session, StoredSession):
            tool_context.actions.requested_tool_confirmations.clear()
            return _approval_unavailable_error(tool)
        raw_result = result
        if tool_context.actions.requested_tool_confirmations:
            rule = self._get_approval_rule(tool, tool_context)
            try:
                account = await find_account(tool, tool_context)
                set_approval_rule(tool_context, rule, find_secret_paths(_get_schema(tool) or {}, tool_args), account)
            except SchemaError as error:  # people would see a secret, or not all that they approve
                tool_context.actions.requested_tool_confirmations.clear()
                tool_context.actions.skip_summarization = None
                raw_result = {"error": f"{tool.name} was not called: the secrets in its arguments are unknown: {error}"}
        call = self._create_invocation(tool, tool_args, tool_context)
        model_result = to_model_result(
            raw_result if call is None else await save_files(raw_result, tool.name, tool_context)
        )
        if tool.is_long_running:
            await store_pending_call(raw_result)
        if self._call_log is not None and call is not None:
            await self._call_log.end(call, model_result, tool_context.actions)
        return None if model_result == result else model_result

    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, error: BaseException
    ) -> dict[str, Any] | None:
        """Write a tool's exception to the process's log; return it as an error result without secrets.

        The call log stores nothing. Without this result, ADK ends the run.
        """
        if not isinstance(error, Exception):  # ADK passes cancellations too, and raises them anyway
            return None
        if tool.name.startswith(MALFORMED_CALL_PREFIX):
            return {"error": explain_malformed_call(tool.name, tool_args)}
        if tool.name.startswith(FORGED_CALL_PREFIX):
            log.warning("a model imitated a call that only ADK may make: %s", tool.name)
            return {"error": f"{tool.name.removeprefix(FORGED_CALL_PREFIX)} is not a tool with these arguments"}
        log.warning("tool %s failed", tool.name, exc_info=error)
        if not isinstance(error.__cause__, TimeoutError):  # the call may have taken effect
            await cancel_ticket()
        return {"error": describe_tool_error(tool.name, error)}

    def _get_approval_rule(self, tool: BaseTool, tool_context: ToolContext) -> ApprovalRule:
        """Return the rule of a tool's approvals, from the tool and the settings as they are now."""
        own = tool.approvers if isinstance(tool, ToolAdapter) else None
        may_allow_always = not isinstance(tool, ToolAdapter) or tool.may_allow_always
        identity = to_json_value([tool_context.agent_name, tool.name, _get_schema(tool)])
        return ApprovalRule(self._approvers if own is None else own, may_allow_always, hash_arguments(identity))

    async def _has_standing_approval(self, tool: BaseTool, tool_context: ToolContext) -> bool:
        """Return whether a person has allowed all calls of a tool in the session, under its present rule."""
        session = tool_context.session
        if not isinstance(session, StoredSession):
            return False
        key = standing_approval_key(session.app_name, tool.name)
        if not any(stored.startswith(key) for stored in session.reserved_state):
            return False
        account = await find_account(tool, tool_context)
        standing = session.reserved_state.get(standing_approval_key(session.app_name, tool.name, account))
        return standing is not None and self._get_approval_rule(tool, tool_context).matches(standing)

    def _create_invocation(
        self, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> ToolInvocation | None:
        session = tool_context.session
        if not isinstance(session, StoredSession) or type(tool) is BaseTool:  # ADK: the model called an unknown tool
            return None
        return ToolInvocation(
            session=session.id,
            generation=session.generation,
            run=tool_context.invocation_id,
            id=tool_context.function_call_id or tool.name,
            tool=tool.name,
            arguments=tool_args,
            fence=session.fence,
        )


def _move_input_before_work(context: CallbackContext) -> None:
    """Move a resumed agent's newest input event before its other events of the run, in place.

    ADK appends the input to the session each time the agent begins or resumes, and hides earlier events from the model.
    It would not find the function calls before the input, and the agent would make them again.
    """
    events = context.session.events
    path = context.node_path
    own = [i for i, event in enumerate(events) if path and event.node_info.path == path]
    if own and events[own[-1]].author == "user" and not events[own[-1]].invocation_id:
        done = (i for i in own if events[i].invocation_id == context.invocation_id)
        events.insert(next(done, own[-1]), events.pop(own[-1]))


def _has_own_task(context: InvocationContext) -> bool:
    """Return whether an agent works on an input of its own, and not on the messages of people."""
    return context.isolation_scope is not None or getattr(context.agent, "mode", None) not in (None, "chat")


async def _store_message(context: InvocationContext, message: SteeringPrompt) -> types.Content:
    """Store a user's message for the present branch of the run, and return its content for a model request.

    Another branch would get the message between a call and its response, where ADK drops it.
    """
    content = types.Content(role="user", parts=[types.Part(text=message.prompt.text), *message.media])
    event = Event(
        id=message.event_id,
        author="user",
        invocation_id=context.invocation_id,
        branch=context.branch,
        content=content,
    )
    await context.session_service.append_event(context.session, event)
    return content.model_copy(deep=True)


class _LoggedResult(dict[str, Any]):
    """Logged result of an earlier tool call, which `after_tool_callback` does not log a second time."""

    @classmethod
    def from_entry(cls, entry: ToolCallEntry, tool: BaseTool, tool_context: ToolContext) -> "_LoggedResult":
        """Return a logged call's result, and apply its state changes and actions, if the call has ended."""
        if not entry.has_ended:
            return cls(error=INTERRUPTED_ERROR)
        changed = entry.actions.state_delta
        tool_context.state.update(changed)
        for name in entry.actions.model_fields_set - {"state_delta"}:
            setattr(tool_context.actions, name, getattr(entry.actions, name))
        if isinstance(entry.result, dict):
            return cls(entry.result)
        if entry.result is None and tool.is_long_running:  # the tool returned nothing, since its response follows later
            return cls()
        return cls(result=entry.result)


def _get_parts(response: LlmResponse) -> Sequence[types.Part]:
    return (response.content and response.content.parts) or ()


def _approval_unavailable_error(tool: BaseTool) -> dict[str, Any]:
    """Return the error for a tool of an agent that runs as a tool: ADK cannot resume its session after an approval."""
    return {
        "error": f"{tool.name} was not called: it needs an approval, and an agent that runs as a tool cannot ask for "
        "one. Say that it was not done, and why."
    }


async def _requires_confirmation(tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext) -> bool:
    """Return whether ADK asks a person for a confirmation instead of making the call."""
    if tool_context.tool_confirmation is not None:
        return False
    try:
        return await tool.check_require_confirmation(tool_args, tool_context) is True
    except Exception:  # ADK checks again, and tells the model that the tool failed
        return False


def _get_schema(tool: BaseTool) -> dict[str, Any] | None:
    declaration = tool._get_declaration()  # ADK: no public method returns a tool's schema without a request
    return None if declaration is None else parameter_schema(declaration)


def _add_secret_arguments(secrets: RunSecrets, config: types.GenerateContentConfig, call: types.FunctionCall) -> None:
    """Add a call's secret arguments; if they are no JSON object, and may have a secret, their whole text is secret."""
    name = (call.name or "").removeprefix(MALFORMED_CALL_PREFIX)
    arguments = call.args or {}
    schema = find_parameter_schema(config, name)
    if schema is None:
        return
    if name == call.name:
        _add_call(secrets, call.id, arguments, find_masked_paths(schema, arguments))
    elif has_secret_mark(schema):
        _add_call(secrets, call.id, arguments, [()])


def _add_call(
    secrets: RunSecrets, call_id: str | None, arguments: dict[str, Any], paths: Sequence[ArgumentPath]
) -> None:
    """Add the secret arguments of a call; all of them if a path is that of the whole arguments."""
    secrets.add_call(call_id or "", arguments, [(name,) for name in arguments] if () in paths else paths)


def _has_decision(entry: ToolCallEntry, tool_context: ToolContext) -> bool:
    """Return whether a person has decided on a logged call; ADK then starts it again, even if it was denied."""
    id_ = tool_context.function_call_id
    return bool(entry.actions.requested_tool_confirmations or entry.actions.requested_auth_configs) and any(
        answer.id == id_ for event in tool_context.session.events for answer in event.get_function_responses()
    )


def _was_approved(tool_context: ToolContext) -> bool:
    """Return whether a person approved a call which then asked for a credential: ADK forgets the approval meanwhile."""
    events = [event for event in tool_context.session.events if event.invocation_id == tool_context.invocation_id]
    id_ = tool_context.function_call_id
    if not any(id_ in event.actions.requested_auth_configs for event in events):
        return False
    requests = {request.call_id for request in find_confirmations(events) if request.tool_call_id == id_}
    return any(
        answer.id in requests and (answer.response or {}).get("confirmed") is True
        for event in events
        if event.author == "user"
        for answer in event.get_function_responses()
    )


def _check_speakers(tool: BaseTool, tool_context: ToolContext) -> dict[str, Any] | None:
    """Return an error if a speaker may not use a tool; without a known one, only unrestricted tools may be used."""
    speakers = _get_speakers(tool_context.run_config) or (ANONYMOUS_USER,)
    if all(is_tool_allowed(tool, speaker) for speaker in speakers):
        return None
    return {"error": f"{tool.name} may not be used by this user: tell them so"}


def _get_speakers(run: RunConfig | None) -> tuple[User, ...]:
    """Return the run's speakers, but not from the session state, because tools can change the state."""
    return run.speakers if isinstance(run, AgentRunConfig) else ()


def _check_agent_name(tool: BaseTool, tool_args: dict[str, Any]) -> dict[str, Any] | None:
    if not isinstance(tool, TransferToAgentTool):
        return None
    valid = list(tool._agent_names)  # ADK: otherwise only the tool's declaration has them
    unknown_name = tool_args.get("agent_name")
    return (
        None
        if unknown_name in valid
        else {"error": f"Agent {unknown_name!r} does not exist. Valid agents: {', '.join(valid)}."}
    )


class WorkflowAnswerPlugin(BasePlugin):
    """ADK plugin that converts a workflow's messages and result to model answers.

    ADK stores a workflow's `Event(message=...)` with the role `user`, and the result of its last node as `output`
    without content.
    """

    def __init__(self) -> None:
        super().__init__(name="parley_workflow_answer")

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> None:
        if event.author == "user":
            return
        if event.content is not None:
            if event.content.role == "user" and not event.get_function_responses():
                event.content = types.Content(role="model", parts=event.content.parts)
        elif event.output and any("/" not in path for path in event.node_info.output_for or ()):
            event.content = types.ModelContent(format_value(event.output))


class MeterPlugin(BasePlugin):
    """ADK plugin that checks limits, counts usage and stores prompts for models that are no `ModelAdapter`."""

    def __init__(self) -> None:
        super().__init__(name="parley_meter")

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        """Check the limits, and store the prompt; at a limit, `SpendingLimitError` keeps ADK from the call."""
        if (model := _get_external_model(callback_context)) is not None:
            messages = convert_messages(llm_request.contents, llm_request.config.system_instruction)
            files = await estimate_media_tokens(messages)
            tools = list_tools(llm_request.config)
            name = llm_request.model or model.model
            texts = partial(estimate_text_tokens, messages, tools)
            meter = get_current_meter()
            await meter.begin_external_call(_call_key(callback_context), name, lambda: files + texts())
            if meter.prompts is not None:
                request = ModelRequest(name, messages, tools)
                meter.prompts.save(meter.turn, name, callback_context.agent_name, request)

    async def after_model_callback(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> None:
        """Count the call, and mark its response as counted; at a limit, a long answer raises `SpendingLimitError`."""
        if (model := _get_external_model(callback_context)) is not None:
            answer = convert_messages([llm_response.content] if llm_response.content else [])
            output = estimate_text_tokens(answer) + await estimate_media_tokens(answer)
            await get_current_meter().add_response(_call_key(callback_context), llm_response, model.model, output)

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> None:
        if (model := _get_external_model(callback_context)) is not None:
            get_current_meter().add_failure(_call_key(callback_context), llm_request.model or model.model, error)


def _get_external_model(context: CallbackContext) -> BaseLlm | None:
    agent = context._invocation_context.agent
    model = agent.canonical_model if isinstance(agent, LlmAgent) else None
    return None if isinstance(model, ModelAdapter) else model


def _call_key(context: CallbackContext) -> Any:
    return context.invocation_id, context.agent_name, context._invocation_context.branch
