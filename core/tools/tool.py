"""Tools: their declaration, loading, access rules and time limits."""

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from copy import copy, deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

from google.adk.plugins.plugin_manager import PluginManager
from google.adk.sessions.state import State
from google.adk.tools._node_tool import NodeTool  # ADK has no other name for a workflow that is a tool
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from pydantic_core import to_jsonable_python

from core.errors import ToolError
from core.messages.identity import User, find_time_zone, is_permitted
from core.observability.secret_redaction import RunSecrets, get_run_secrets, redact_secret_formats
from core.tools.chat import find_chat
from core.tools.results import to_model_result
from core.turns.automation.context import find_automation, find_call, set_current_automation, set_current_call
from core.turns.automation.jobs import JobResult

log = logging.getLogger(__name__)

#: Threads of tools: a tool that hangs must not block the event loop's default threads, which resolve host names.
_THREADS = ThreadPoolExecutor(max_workers=32, thread_name_prefix="tool")

#: The most characters of a tool's error for the model.
MAX_ERROR_CHARACTERS = 500

#: The note for the model beside the id of a job.
PENDING_NOTE = (
    "It runs in the background. Its result comes as a new message, which you then answer. Tell the user so, and do not "
    "call the tool again for it."
)

#: Prefix of the names of Parley's plugins.
PLUGIN_PREFIX = "parley_"

AnyTool = TypeVar("AnyTool", bound=Callable[..., Any] | BaseTool)

ToolHandler = Callable[[dict[str, Any]], Awaitable[Any] | Any]


@dataclass(frozen=True, slots=True)
class Tool:
    """Declaration of a tool with the JSON Schema of its arguments.

    Attributes:
        handler: function that gets the arguments as a dict; one that is not async runs in a thread.
        parameters: the JSON Schema of the arguments.
        idempotent: whether an interrupted call may be made again: see `idempotent`.
        require_confirmation: whether each call needs an approval.
        approvers: people and roles that may decide (see `core.tools.human_requests`); None for those of the settings.
        may_allow_always: whether a person may allow all calls of the tool in a session.
        restrict_to: ids of people and roles that may use the tool (see `restrict_to`); None for everybody.
        background: whether a call runs on after its turn: see `background`.
        progress: text to show while the tool runs, with argument names in braces; empty for the tool's name.
    """

    name: str
    description: str
    handler: ToolHandler
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    idempotent: bool = False
    require_confirmation: bool = False
    approvers: Sequence[str] | None = None
    may_allow_always: bool = True
    restrict_to: Sequence[str] | None = None
    progress: str = ""
    background: bool = False


class ToolAdapter(BaseTool):
    """ADK tool (`BaseTool`) that calls the handler of a `Tool`, and raises its errors."""

    def __init__(self, tool: Tool) -> None:
        super().__init__(name=tool.name, description=tool.description)
        self._tool = tool
        self.idempotent = tool.idempotent
        self.approvers = None if tool.approvers is None else tuple(tool.approvers)
        self.may_allow_always = tool.may_allow_always
        self.progress = tool.progress
        self.background = tool.background
        if tool.restrict_to is not None:
            restrict_to(*tool.restrict_to)(self)

    async def check_require_confirmation(self, args: dict[str, Any], tool_context: ToolContext) -> bool:
        return self._tool.require_confirmation

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=dict(self._tool.parameters)
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        handler = self._tool.handler
        if inspect.iscoroutinefunction(handler):
            return await handler(args)
        call = partial(contextvars.copy_context().run, handler, args)
        result = await asyncio.get_running_loop().run_in_executor(_THREADS, call)
        return await result if inspect.isawaitable(result) else result


def idempotent(tool: AnyTool) -> AnyTool:
    """Mark a function or an ADK tool as safe to call twice, and return it.

    If the process dies during a call, a marked tool is called again. For other tools the model gets "interrupted, may
    have taken effect". A `Tool` has an attribute of this name instead.
    """
    tool.__dict__["idempotent"] = True
    return tool


def background(tool: AnyTool) -> AnyTool:
    """Mark a function or an ADK tool as work that runs on after its turn, and return it.

    The model gets `{"status": "pending"}` at once, and the result begins a new turn in the conversation. A `Tool` has
    an attribute of this name instead.

    Raises:
        ToolError: the tool is an agent or a workflow, which cannot run without its turn.
    """
    if isinstance(tool, AgentTool | NodeTool):
        raise ToolError(f"{tool.name} is an agent or a workflow, which cannot run in the background")
    tool.__dict__["background"] = True
    return tool


def is_background(tool: BaseTool) -> bool:
    """Return whether a tool, or the function in it, is marked as `background`, and runs so in this turn."""
    marked = (getattr(marked, "background", False) is True for marked in (tool, getattr(tool, "func", None)))
    return any(marked) and find_automation() is not None and find_call() is not None


def is_idempotent(tool: BaseTool) -> bool:
    """Return whether a tool, or the function in it, is marked as idempotent."""
    return any(getattr(marked, "idempotent", False) is True for marked in (tool, getattr(tool, "func", None)))


def restrict_to(*ids: str) -> Callable[[AnyTool], AnyTool]:
    """Return a decorator that restricts a function or an ADK tool to some people.

    The decorator marks the tool itself, and returns it. If a turn has several authors, all of them must be allowed.

    Args:
        ids: the platform's ids of users and roles, or `admins`. Without ids, nobody may use the tool.
    """

    def mark(tool: AnyTool) -> AnyTool:
        tool.__dict__["restrict_to"] = ids
        return tool

    return mark


def is_tool_allowed(tool: BaseTool, speaker: User) -> bool:
    """Return whether a user may use a tool, by the ids in its `restrict_to`.

    These are ids of users and of roles (on Slack: user groups), or `admins`; one of them must match. Without
    `restrict_to`, everybody may use the tool.
    """
    rules = (getattr(marked, "restrict_to", None) for marked in (tool, getattr(tool, "func", None)))
    return all(is_permitted(rule, speaker) for rule in rules if isinstance(rule, tuple))


def set_tool_timeout(tool: BaseTool, seconds: float) -> None:
    """Change a tool so that each call raises `ToolError` after a time limit.

    The tool is changed in place, at most once. Exceptions that would end the process, such as `SystemExit`, become a
    `ToolError` too. The call is cancelled at the limit. But the thread of a function that is not async continues:
    threads cannot be stopped. An agent or workflow node that runs as a tool has no limit but its turn's. An agent gets
    Parley's plugins, even if it does not include those of its app.

    Args:
        seconds: the time limit, unless the tool has an attribute `seconds`.
    """
    run = tool.run_async
    if getattr(run, "has_limit", False):
        return
    is_apart = isinstance(tool, AgentTool) and not tool.include_plugins
    if is_apart:
        tool.__dict__["include_plugins"] = True
    limit = None if isinstance(tool, AgentTool | NodeTool) else getattr(tool, "seconds", seconds)

    async def run_within(limit: float | None, args: dict[str, Any], context: ToolContext) -> Any:
        try:
            async with asyncio.timeout(limit) as time:
                return await run(args=args, tool_context=_without_app_plugins(context) if is_apart else context)
        except TimeoutError as error:
            if not time.expired():
                raise
            raise ToolError(f"it did not end within {limit:g} seconds, and may have taken effect") from error
        except (Exception, asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            if type(error).__module__.startswith("google.adk."):  # a run within the tool pauses this way
                raise
            raise ToolError(f"{tool.name} raised {type(error).__name__}") from error

    async def run_with_limit(*, args: dict[str, Any], tool_context: ToolContext) -> Any:
        if is_background(tool):
            return await _start_job(tool, partial(run_within, None, args, _JobContext(tool_context)))
        return await run_within(limit, args, tool_context)

    run_with_limit.__dict__["has_limit"] = True
    tool.__dict__["run_async"] = run_with_limit


async def _start_job(tool: BaseTool, run: Callable[[], Awaitable[Any]]) -> dict[str, Any]:
    """Start the job of the running call, and return the result for the model."""
    automation = find_automation()
    call = find_call()
    assert automation is not None, "`is_background` has checked it"
    assert call is not None, "`is_background` has checked it"
    jobs = automation.jobs
    function = tool._tool.handler if isinstance(tool, ToolAdapter) else getattr(tool, "func", tool.run_async)
    slot = nullcontext() if inspect.iscoroutinefunction(function) else jobs.threads
    secrets = get_run_secrets() or RunSecrets()

    async def work() -> JobResult:
        set_current_automation(None)
        set_current_call(None)
        async with slot:
            try:
                result = to_model_result(await run())
            except Exception as error:
                log.warning("background tool %s failed", tool.name, exc_info=error)
                return JobResult(secrets.mask(describe_tool_error(tool.name, error)), "failed")
        return JobResult.from_json(secrets.mask(to_jsonable_python(result, fallback=str)))

    target = automation.job_target
    id_ = await jobs.start(call, automation.message, work, target=target, is_shared=automation.is_shared)
    return {"status": "pending", "job": id_, "note": PENDING_NOTE}


def describe_tool_error(tool: str, error: Exception) -> str:
    """Return a tool's exception as text for the model, without secrets."""
    if isinstance(error, ToolError) and isinstance(error.__cause__, TimeoutError):
        return f"{tool} failed: {error}"
    raised = error.__cause__ if isinstance(error, ToolError) and error.__cause__ else error
    return redact_secret_formats(f"{tool} failed: {type(raised).__name__}: {raised}")[:MAX_ERROR_CHARACTERS]


class _JobState(State):
    """Copy of a session's state that refuses changes."""

    def __setitem__(self, key: str, value: Any) -> None:
        raise _refuse("change the state")

    def update(self, delta: dict[str, Any]) -> None:
        raise _refuse("change the state")


class _JobContext(ToolContext):
    """Context of a background job: it reads the session, and refuses what only a running turn can store."""

    def __init__(self, call: ToolContext) -> None:
        super().__init__(
            call.get_invocation_context(),
            function_call_id=call.function_call_id,
            tool_confirmation=call.tool_confirmation,
        )
        self._state = _JobState(deepcopy(call.state.to_dict()), self.actions.state_delta)

    async def save_artifact(self, *_: Any, **__: Any) -> int:
        raise _refuse("save a file")

    def request_confirmation(self, **_: Any) -> None:
        raise _refuse("ask for a confirmation")

    def request_credential(self, auth_config: Any) -> None:
        raise _refuse("ask for a sign-in")


def _refuse(act: str) -> ToolError:
    return ToolError(f"a background job cannot {act}: its turn has ended")


def _without_app_plugins(context: ToolContext) -> ToolContext:
    call = copy(context)
    run = context._invocation_context
    plugins = PluginManager([plugin for plugin in run.plugin_manager.plugins if plugin.name.startswith(PLUGIN_PREFIX)])
    call._invocation_context = run.model_copy(update={"plugin_manager": plugins})
    return call


def to_adk_tool(tool: Tool | BaseTool | Callable[..., Any]) -> BaseTool:
    """Return a `Tool`, an ADK tool or a function as an ADK tool; raise `ToolError` for anything else."""
    match tool:
        case Tool():
            return ToolAdapter(tool)
        case BaseTool():
            return tool
        case _ if callable(tool):
            return FunctionTool(tool)
        case _:
            raise ToolError(f"{type(tool).__name__} is neither a tool nor a function")


def load_tools(names: Sequence[str]) -> list[BaseTool]:
    """Import the tools that the setting `TOOLS` names, each as `package.module:name`.

    Raises:
        ToolError: a module or name is unknown, or names no tool; the message has one line for each.
    """
    tools = list[BaseTool]()
    faults = list[str]()
    for name in names:
        try:
            tools.append(_load_tool(name))
        except ToolError as error:
            faults.append(str(error))
    if faults:
        raise ToolError("\n".join(faults))
    return tools


def _load_tool(name: str) -> BaseTool:
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ToolError(f"{name or 'an empty name'} is no tool: write it as package.module:name")
    try:
        namespace = import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        is_named = module == missing or module.startswith(f"{missing}.")
        cause = (
            f"there is no module {missing}" if is_named else f"it needs the module {missing}, which is not installed"
        )
        raise ToolError(f"{name}: {cause}") from error
    except Exception as error:  # a module may raise anything while it is imported
        raise ToolError(f"{name}: {module} raises {type(error).__name__} when it is imported") from error
    if not hasattr(namespace, attribute):
        nearest = get_close_matches(attribute, {*vars(namespace), *getattr(namespace, "__all__", ())}, n=1)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        raise ToolError(f"{name}: {module} has no {attribute}{hint}")
    return to_adk_tool(getattr(namespace, attribute))


def _current_time(arguments: dict[str, Any]) -> dict[str, str]:
    chat = find_chat()
    name = str(arguments.get("timezone") or (chat and chat.time_zone) or "UTC")
    if (zone := find_time_zone(name)) is None:
        return {"error": f"no such time zone: {name}", "utc": datetime.now(UTC).isoformat(timespec="seconds")}
    now = datetime.now(zone)
    return {"time": now.isoformat(timespec="seconds"), "weekday": now.strftime("%A"), "timezone": name}


current_time = Tool(
    name="current_time",
    description="The current date, weekday and time in a time zone.",
    handler=_current_time,
    idempotent=True,
    parameters={
        "type": "object",
        "properties": {
            "timezone": {
                "type": "string",
                "description": "IANA name, such as Europe/Paris; when left out, the author's zone, or UTC if unknown",
            }
        },
    },
)
