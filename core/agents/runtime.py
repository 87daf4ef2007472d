"""Runner of an ADK app in stored sessions: each run yields `StreamEvent`s."""

import logging
import re
import sys
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.invocation_context import LlmCallsLimitExceededError
from google.adk.agents.run_config import StreamingMode, ToolThreadPoolConfig
from google.adk.apps import App
from google.adk.artifacts import BaseArtifactService, InMemoryArtifactService
from google.adk.memory import BaseMemoryService, InMemoryMemoryService
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.telemetry.context import ContentCapturingMode, TelemetryConfig
from google.genai import types
from opentelemetry import trace

from core.agents.event_mapper import EventMapper
from core.agents.events import StreamEvent
from core.agents.failures import explain_failure
from core.agents.loader import BUILTIN_PROGRESS_TEXTS, get_progress_texts, has_memory_tool, list_llm_agents
from core.agents.runner import ResumableRunner, RunCorrectedError
from core.errors import ProviderError, SessionResetError, StepLimitError, TurnLostError
from core.messages.identity import ADDRESSED_STATE_KEY, USER_STATE_KEY, User, intersect_rights, to_user_state
from core.models.adapter import ModelAdapter
from core.models.provider import DEFAULT_FILES, SupportedFiles
from core.models.selection import AgentRunConfig
from core.observability.secret_redaction import RunSecrets, format_error, set_run_secrets
from core.sessions.artifacts import ArtifactService, GeneratedFile
from core.sessions.memory import MemoryService
from core.sessions.prompt_text import AttributedPrompt, ReadMessages
from core.sessions.resume import correction_run_id, list_run_ids
from core.sessions.service import SessionService
from core.signin.adk import RunCredentials, SignInService
from core.store.workers.fencing import FencingToken
from core.tools.adk_requests import (
    HumanDecision,
    MessageAnswer,
    add_answer_secrets,
    find_events_after_response,
    find_resumed_calls,
    to_contents,
)
from core.tools.chat import ChatContext, set_current_chat
from core.turns.automation.context import AutomationContext, set_current_automation
from core.usage.meter import UsageMeter, set_current_meter

log = logging.getLogger(__name__)

#: ADK's errors for an unknown agent name.
_UNKNOWN_AGENT_ERROR = re.compile(
    r"failed to find agent: (?P<a>[^\s.,]+)"
    r"|Transfer target agent '(?P<b>[^']+)' not found"
    r"|Agent (?P<c>\S+) not found in the agent tree"
)

#: Telemetry of a run without a trace. Without this, ADK reads the environment for each partial event, and builds spans
#: that nobody collects.
_NO_TELEMETRY = TelemetryConfig(
    genai_semconv_stability_opt_in="stable",
    capture_message_content=ContentCapturingMode.NO_CONTENT,
    adk_experimental_telemetry_opt_in=False,
)

#: Threads for tools that are plain functions; ADK would run those on the event loop.
_TOOL_THREAD_POOL = ToolThreadPoolConfig(max_workers=32)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """Arguments of one run of the agent in a session.

    Attributes:
        user_id: ADK's user id: the place (channel or person) of the session, as `InboxMessage.place`; not the author.
        text: the text of the prompt.
        media: files of the message, as `core.models.media.make_part` returns them.
        speakers: the people whose words are in the run. A tool may run only if each of them may use it; tools and
            instructions see them as one user (`temp:speaker` of the state). Empty if they are unknown.
        bot_name: the bot's name on the platform, for the agent's instruction.
        is_addressed: whether the message is addressed to the bot (`temp:is_addressed` of the state).
        state: more keys of the state, with their prefix `temp:`.
        streaming: whether the model is asked for partial texts.
        model: full name of the chosen model; None for the default. It needs a `ModelSelectionPlugin`.
        run_id: id under which the events of the run are stored; a corrected run uses its `correction_run_id`. A run
            with stored events resumes: it does not store `text` again, and its reply begins with the stored text. None
            for a run that cannot be resumed.
        generation: with a `run_id`: the session's generation; if the database has a newer one, the run ends with an
            error. None to accept any.
        fence: fencing token of the turn, with a `run_id`. If another worker owns the turn, the run stores nothing and
            starts no tool; `TurnLostError` is its error.
        attributed_prompt: the parts of `text` with their authors, stored with it; None if the authors are unknown.
        decisions: people's decisions on all approvals and questions of the run. The run continues with them instead of
            `text`, and its reply has only the text after them.
        answers: the user messages by which the run continues earlier runs, oldest first. Each answers a question of the
            run before it. If the last one is of this run, `text` is the answer.
        automation: the turn, as tools that begin later turns get it; None without a turn.
        chat: the conversation that tools get by `core.tools.get_chat`, to react and post; None without a conversation.
        may_correct: whether the agent runs once more if a model names an unknown agent, and the app has sub-agents. A
            prompt that lists the valid names then replaces the text, files, decisions and answers.
        meter: collects the model calls, also for callers that stop before the last event.
        read_messages: awaited before each model call of the run, also at once by agents that run in parallel. It needs
            a `run_id` and a `GuardPlugin`.
    """

    user_id: str
    session_id: str
    text: str
    media: Sequence[types.Part] = ()
    speakers: Sequence[User] = ()
    bot_name: str = ""
    is_addressed: bool = True
    streaming: bool = True
    model: str | None = None
    run_id: str | None = None
    generation: int | None = None
    fence: FencingToken | None = None
    attributed_prompt: AttributedPrompt | None = None
    decisions: Sequence[HumanDecision] = ()
    answers: Sequence[MessageAnswer] = ()
    state: Mapping[str, Any] = field(default_factory=dict)
    automation: AutomationContext | None = None
    chat: ChatContext | None = None
    may_correct: bool = True
    meter: UsageMeter = field(default_factory=UsageMeter)
    read_messages: ReadMessages | None = None


class AgentRuntime:
    """Runner of an ADK app in stored sessions; each run yields `StreamEvent`s.

    Several sessions may run at once. The caller must not run two turns of a session at the same time.

    Args:
        artifacts, memory: stores of files and memories; None to keep them in memory until the process ends.
        sign_ins: credentials of people; None if nobody can sign in.
        progress_texts: text to show while a tool runs, by the tool's name; it replaces the tool's own text.
    """

    def __init__(
        self,
        app: App,
        sessions: BaseSessionService,
        *,
        artifacts: BaseArtifactService | None = None,
        memory: BaseMemoryService | None = None,
        sign_ins: SignInService | None = None,
        progress_texts: Mapping[str, str] = MappingProxyType({}),
        max_llm_calls: int = 25,
    ) -> None:
        self.app = app
        self.sessions = sessions
        self.max_llm_calls = max_llm_calls
        self._progress_texts = {**BUILTIN_PROGRESS_TEXTS, **get_progress_texts(app), **progress_texts}
        self._artifacts = artifacts or InMemoryArtifactService()
        self._memory = memory or InMemoryMemoryService()
        self._sign_ins = sign_ins
        self._has_memory_tool = has_memory_tool(app)
        # ADK: without it, an agent gets only what follows the newest message of a user
        self._reads_history = all(
            getattr(agent, "include_contents", "default") == "default" for agent in _walk_agents(app.root_agent)
        )
        self._runner = ResumableRunner(
            app=app,
            session_service=sessions,
            artifact_service=self._artifacts,
            memory_service=self._memory,
        )

    def get_media_support(self, model: str | None = None) -> SupportedFiles:
        """Return the files that the root agent can read; `DEFAULT_FILES` if its model is no `ModelAdapter`."""
        agent = self.app.root_agent
        adapter = agent.canonical_model if isinstance(agent, LlmAgent) else None
        return (
            adapter.supported_files(adapter.resolve_name(model)) if isinstance(adapter, ModelAdapter) else DEFAULT_FILES
        )

    def get_model_name(self, model: str | None = None) -> str:
        """Return the full name of the model that all agents use; empty if there are several, or none."""
        models = [agent.canonical_model for agent in list_llm_agents(self.app)]
        names = {each.resolve_name(model) if isinstance(each, ModelAdapter) else each.model for each in models}
        return names.pop() if len(names) == 1 else ""

    async def list_generated_files(self, session_id: str, origin: str) -> list[GeneratedFile]:
        """Return the newest version of each file that a turn and its reruns, with this `Turn.origin`, saved."""
        return (
            await self._artifacts.list_generated_files(session_id, origin)
            if isinstance(self._artifacts, ArtifactService)
            else []
        )

    async def aclose(self) -> None:
        """Close toolsets and plugins; if a plugin fails, the others are closed, and `RuntimeError` is raised."""
        await self._runner.close()

    async def stream(self, request: RunRequest) -> AsyncGenerator[StreamEvent, None]:
        """Run the agent and yield its events; the last is `done` or an `error` of the run.

        Exceptions of the run are not raised: they are the `error`. If earlier attempts stored events of the run
        `request.run_id`, that run resumes. If a model names an unknown agent, the agent runs once more, after a
        `step_reset`: see `RunRequest.may_correct`.
        """
        first_error: Exception | None = None
        while True:
            secrets = _set_context(request)
            runner = self._bind_runner(request, secrets)
            mapper = EventMapper(self._progress_texts, secrets)
            config = self._create_config(request)
            try:
                messages, outputs = await _load_run(request, runner, mapper, secrets)
                if self._reads_history:
                    runner.set_message_source(request.read_messages)
                for output in outputs:
                    yield output
                async with _record_calls(request.meter):
                    for message in messages:
                        run = runner.run_async(
                            user_id=request.user_id,
                            session_id=request.session_id,
                            new_message=message,
                            invocation_id=request.run_id,
                            state_delta=_create_state(request),
                            run_config=config,
                        )
                        async with aclosing(run) as events:
                            async for event in events:
                                for output in mapper.map_event(event):
                                    yield replace(output, seconds=config.tool_timer.get_seconds(output.call_id))
                if self._has_memory_tool and request.run_id is not None:
                    await self._save_memory(request, runner)
                yield replace(mapper.create_last_event(), calls=request.meter.calls, usage=request.meter.usage)
                return
            except Exception as error:
                failure = self._explain(error)
            corrected = self._correct(request, failure)
            if corrected is None:
                if first_error is not None:
                    failure.__cause__ = failure.__cause__ or first_error
                yield StreamEvent("error", error=failure, calls=request.meter.calls, usage=request.meter.usage)
                return
            yield StreamEvent("step_reset")
            request = corrected
            first_error = failure

    async def run_and_collect(self, *, user_id: str, session_id: str, text: str, streaming: bool = True) -> str:
        """Run the agent, and return the text of the whole reply, or raise the error of the run.

        If a model names an unknown agent, the run is repeated once: see `stream`. The error of the second run has the
        first error as its cause.
        """
        events = self.stream(RunRequest(user_id=user_id, session_id=session_id, text=text, streaming=streaming))
        return await _collect_text(events)

    async def run_and_collect_once(self, *, user_id: str, session_id: str, text: str, streaming: bool = True) -> str:
        """Do the same as `run_and_collect`, but never repeat the run."""
        request = RunRequest(user_id=user_id, session_id=session_id, text=text, streaming=streaming, may_correct=False)
        return await _collect_text(self.stream(request))

    def _create_config(self, request: RunRequest) -> AgentRunConfig:
        return AgentRunConfig(
            model=request.model,
            speakers=tuple(request.speakers),
            bot_name=request.bot_name,
            streaming_mode=StreamingMode.SSE if request.streaming else StreamingMode.NONE,
            max_llm_calls=self.max_llm_calls,
            tool_thread_pool_config=_TOOL_THREAD_POOL,
            telemetry=None if trace.get_current_span().is_recording() else _NO_TELEMETRY,
        )

    def _bind_runner(self, request: RunRequest, secrets: RunSecrets) -> ResumableRunner:
        """Return a copy of the runner whose services write for one run."""
        runner = copy(self._runner)
        with warnings.catch_warnings():  # ADK: the credential service is experimental
            warnings.simplefilter("ignore")
            credentials = RunCredentials(self._sign_ins, self.app.name, request.speakers)
        runner.credential_service = credentials
        if isinstance(self.sessions, SessionService):
            runs = _list_runs(request.run_id, request.answers) if request.run_id is not None else ()
            runner.session_service = self.sessions.bind_run(runs, secrets)
        if request.run_id is not None and isinstance(self._artifacts, ArtifactService):
            runner.artifact_service = self._artifacts.bind_run(
                request.run_id, request.generation, request.fence, credentials.secrets
            )
        if isinstance(self._memory, MemoryService):
            runner.memory_service = self._memory.bind_run(
                request.session_id, request.generation, request.fence, secrets, credentials.secrets
            )
        return runner

    async def _save_memory(self, request: RunRequest, runner: ResumableRunner) -> None:
        """Store the run's messages in the memory; log a failure, but raise that of a reset session or a lost turn."""
        assert runner.memory_service is not None, "the runtime sets one"
        session_id = request.session_id
        try:
            await runner.memory_service.add_events_to_memory(
                app_name=self.app.name, user_id=request.user_id, session_id=session_id, events=runner.messages
            )
        except (SessionResetError, TurnLostError):
            raise
        except Exception as error:
            log.warning("messages of session %s cannot be saved in the memory: %s", session_id, format_error(error))

    def _explain(self, error: Exception) -> Exception:
        if not isinstance(error, LlmCallsLimitExceededError):
            return explain_failure(error)
        limit = StepLimitError(f"the run took more than {self.max_llm_calls} model calls")
        limit.__cause__ = error
        return limit

    def _correct(self, request: RunRequest, error: Exception) -> RunRequest | None:
        """Return the request of the second run, whose prompt lists the valid agent names."""
        match = _UNKNOWN_AGENT_ERROR.search(str(error))
        valid = [agent.name for agent in _walk_agents(self.app.root_agent)][1:]
        if not request.may_correct:
            return None
        if isinstance(error, RunCorrectedError):
            text = request.text
        elif match is not None and valid:
            log.warning("the model named an unknown agent; the run is repeated with the valid names")
            name = next(group for group in match.groups() if group)
            text = (
                f'[System: Agent "{name}" does not exist. Valid agents: {", ".join(valid)}. '
                "Please retry using one of the valid agent names listed above.]"
            )
        else:
            return None
        return replace(
            request,
            text=text,
            media=(),
            attributed_prompt=None,
            decisions=(),
            answers=(),
            run_id=request.run_id and correction_run_id(request.run_id),
            may_correct=False,
        )


def _set_context(request: RunRequest) -> RunSecrets:
    """Set what tools of a run get from its task; return the run's secrets, which are empty."""
    secrets = RunSecrets()
    set_current_meter(request.meter)
    set_current_chat(request.chat)
    set_current_automation(request.automation)
    set_run_secrets(secrets)
    return secrets


async def _load_run(
    request: RunRequest, runner: ResumableRunner, mapper: EventMapper, secrets: RunSecrets
) -> tuple[list[types.Content], list[StreamEvent]]:
    """Return the messages for which ADK runs, one after the other, and the events of earlier attempts."""
    message = types.Content(role="user", parts=[types.Part(text=request.text), *request.media])
    messages = [message]
    outputs = list[StreamEvent]()
    if request.run_id is None:
        return messages, outputs
    session_key = {"user_id": request.user_id, "session_id": request.session_id}
    stored = await runner.load_run(
        request.run_id, request.generation, request.fence, request.attributed_prompt, **session_key
    )
    if runner.history is not None:
        outputs.append(StreamEvent("history", history=runner.history))
    continued = await runner.continue_runs(request.answers, message, is_decided=bool(request.decisions))
    stored = stored if continued is None else continued
    if request.decisions:
        add_answer_secrets(secrets, stored, request.decisions)
        later_events = find_events_after_response(stored, request.decisions)
        # if an earlier attempt stored some of the decisions, ADK resumes it before it gets the others
        messages = [*([] if later_events is None else [message]), *to_contents(stored, request.decisions)]
        for call in find_resumed_calls(stored, request.decisions):
            outputs.append(mapper.create_tool_start(call.name or "", call.id or "", call.args or {}))
        stored = later_events or []
    if messages == [message] and runner.is_waiting(stored):  # the process died before it stored the requests
        messages = []
    request.meter.add_stored_answers(stored)
    outputs += mapper.replay_events(stored)
    return messages, outputs


def _create_state(request: RunRequest) -> dict[str, Any]:
    speaker = {USER_STATE_KEY: to_user_state(intersect_rights(request.speakers))} if request.speakers else {}
    return {**request.state, **speaker, ADDRESSED_STATE_KEY: request.is_addressed}


def _list_runs(run_id: str, answers: Sequence[MessageAnswer]) -> set[str]:
    """Return the ids of the events of a run, of the run that it corrects, and of those that it continues."""
    runs = (run_id, *(answer.asking_run for answer in answers))
    return {id_ for run in runs for id_ in list_run_ids(run)}


@asynccontextmanager
async def _record_calls(meter: UsageMeter) -> AsyncIterator[None]:
    """At the end of the block, count the external calls that have not ended, and store all prompts."""
    try:
        yield
    finally:
        meter.end_external_calls()
        if meter.prompts is not None:
            await meter.prompts.wait(meter.turn)


def _walk_agents(agent: Any) -> Iterator[BaseAgent]:
    if isinstance(agent, BaseAgent):
        yield agent
        for sub_agent in agent.sub_agents:
            yield from _walk_agents(sub_agent)


async def _collect_text(events: AsyncGenerator[StreamEvent, None]) -> str:
    """Return the text of the `done` event, or raise the error of the run."""
    async with aclosing(events) as stream:
        async for event in stream:
            if event.type == "error" and event.error is not None and not event.call_id:
                raise event.error
            if event.type == "done":
                return event.text
    raise ProviderError("the run ended without an outcome")


class _SilentModel(BaseLlm):
    """Fake model that answers with a period at once, for `warm_up`."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        content = types.Content(role="model", parts=[types.Part(text=".")])
        yield LlmResponse(
            content=content,
            partial=False,
            usage_metadata=types.GenerateContentResponseUsageMetadata(prompt_token_count=0, candidates_token_count=0),
        )


async def warm_up() -> None:
    """Run an agent with a fake model, so that the first user's turn starts faster.

    ADK imports code for a second at the first run of a process.
    """
    sessions = InMemorySessionService()
    runtime = AgentRuntime(
        App(name="warm_up", root_agent=LlmAgent(name="mute", model=_SilentModel(model="mute"))), sessions
    )
    await sessions.create_session(app_name="warm_up", user_id="nobody", session_id="none")
    await runtime.run_and_collect_once(user_id="nobody", session_id="none", text="hello")
    await runtime.aclose()
    if find_spec("a2a") is None:  # without the A2A SDK, each run of ADK reads and runs two modules until that fails
        sys.modules["google.adk.agents.remote_a2a_agent"] = None  # type: ignore[assignment]
