"""Runs the agent for a session and tells what it says while it runs."""

import logging
import re
import warnings
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from copy import copy
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.invocation_context import LlmCallsLimitExceededError
from google.adk.agents.run_config import StreamingMode, ToolThreadPoolConfig
from google.adk.apps import App
from google.adk.artifacts import BaseArtifactService, InMemoryArtifactService
from google.adk.auth.credential_service.in_memory_credential_service import InMemoryCredentialService
from google.adk.events.event import Event
from google.adk.memory import BaseMemoryService, InMemoryMemoryService
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.telemetry.context import ContentCapturingMode, TelemetryConfig
from google.genai import types
from opentelemetry import trace

from core.agents.event_mapper import EventMapper
from core.agents.events import StreamEvent
from core.agents.loader import has_memory_tool, list_llm_agents
from core.agents.runner import ResumableRunner, RunCorrectedError
from core.agents.tool_progress import BUILTIN_PROGRESS_TEXTS, get_progress_texts
from core.errors import ParleyError, ProviderError, SessionResetError, StepLimitError, TurnLostError
from core.identity import USER_STATE_KEY, User, to_user_state
from core.models.adapter import ModelAdapter
from core.models.provider import DEFAULT_FILES, SupportedFiles
from core.models.selection import AgentRunConfig
from core.secret_redaction import format_error
from core.sessions.artifacts import ArtifactService, GeneratedFile
from core.sessions.memory import MemoryService
from core.sessions.prompt_text import AttributedPrompt
from core.sessions.resume import correction_run_id
from core.tools.adk_confirmations import ConfirmationRequest, Decision, confirmations_in, events_after, to_contents
from core.usage.meter import UsageMeter, set_current_meter
from core.workers.fencing import FencingToken

log = logging.getLogger(__name__)

#: How ADK, in its several paths, says that a model named an agent that does not exist.
_UNKNOWN_AGENT_ERROR = re.compile(
    r"failed to find agent: (?P<a>[^\s.,]+)"
    r"|Transfer target agent '(?P<b>[^']+)' not found"
    r"|Agent (?P<c>\S+) not found in the agent tree"
)

#: What ADK is told of a run of which no trace is made. Told nothing, it asks the environment anew for each piece of a
#: reply, and lays out what nobody collects.
_NO_TELEMETRY = TelemetryConfig(
    genai_semconv_stability_opt_in="stable",
    capture_message_content=ContentCapturingMode.NO_CONTENT,
    adk_experimental_telemetry_opt_in=False,
)

#: Threads for tools that are plain functions; ADK would run those on the event loop.
_TOOL_THREAD_POOL = ToolThreadPoolConfig(max_workers=32)


with warnings.catch_warnings():  # ADK: to keep what a tool may show is an experiment
    warnings.simplefilter("ignore")
    _CREDENTIALS = InMemoryCredentialService()  # it keeps them by app and user


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A run of an agent in a session.

    Attributes:
        media: files of the message, as `core.models.media.part` makes them.
        speaker: the person for whom the agent runs, as tools and instructions see them (`temp:speaker` of the state).
        bot_name: the bot's name on the platform, for the agent's instruction.
        model: full name of the chosen model, None for the default. It takes a `ModelSelectionPlugin`.
        run_id: the events of the run are stored under it, and under its `correction_run_id`. A run with stored events
            does not store `text` again, and its reply begins with the stored text.
        generation: the session's generation. A newer one in the database is the run's error.
        fence: fencing token of the turn, with a `run_id`. If another worker owns the turn, the run stores nothing and
            starts no tool; `TurnLostError` is its error.
        spoken: authors of the text, stored with it.
        decisions: people's decisions on everything that the run has asked for. The run goes on with them instead of
            `text`, and its reply begins with what follows.
        meter: counts the model calls, also for callers that do not get the last event.
    """

    user_id: str
    session_id: str
    text: str
    media: Sequence[types.Part] = ()
    speaker: User | None = None
    bot_name: str = ""
    streaming: bool = True
    model: str | None = None
    run_id: str | None = None
    generation: int | None = None
    fence: FencingToken | None = None
    spoken: AttributedPrompt | None = None
    decisions: Sequence[Decision] = ()
    meter: UsageMeter = field(default_factory=UsageMeter)


class AgentRuntime:
    """An ADK app over stored sessions.

    Any number of sessions may run at once; that one session runs once at a time is the caller's care.

    Args:
        lines: what is shown while a tool runs, by its name, where that is not what it says itself.

    Attributes:
        max_llm_calls: how many model calls one run may take before it is ended.
    """

    def __init__(
        self,
        app: App,
        sessions: BaseSessionService,
        *,
        artifacts: BaseArtifactService | None = None,
        memory: BaseMemoryService | None = None,
        progress_texts: Mapping[str, str] = MappingProxyType({}),
        max_llm_calls: int = 25,
    ) -> None:
        self.app = app
        self.sessions = sessions
        self.max_llm_calls = max_llm_calls
        self._progress_texts = {**BUILTIN_PROGRESS_TEXTS, **get_progress_texts(app), **progress_texts}
        self._artifacts = artifacts or InMemoryArtifactService()
        self._memory = memory or InMemoryMemoryService()
        self._has_memory_tool = has_memory_tool(app)
        self._runner = ResumableRunner(
            app=app,
            session_service=sessions,
            artifact_service=self._artifacts,
            memory_service=self._memory,
            credential_service=_CREDENTIALS,
        )

    def get_media_support(self, model: str | None = None) -> SupportedFiles:
        """The files that the agent can be given, if it asks that model; of models that are not ours, what most take."""
        agent = self.app.root_agent
        asked = agent.canonical_model if isinstance(agent, LlmAgent) else None
        return asked.supported_files(asked.resolve_name(model)) if isinstance(asked, ModelAdapter) else DEFAULT_FILES

    def get_model_name(self, model: str | None = None) -> str:
        """The full name of the one model that the agent and all others of its app ask where that one was chosen, or
        none; empty if they ask several: who of them begins is not known before.
        """
        asked = [agent.canonical_model for agent in list_llm_agents(self.app)]
        names = {each.resolve_name(model) if isinstance(each, ModelAdapter) else each.model for each in asked}
        return names.pop() if len(names) == 1 else ""

    async def list_generated_files(self, session_id: str, origin: str) -> list[GeneratedFile]:
        """The files that the turns of an origin have made, in the order in which they did."""
        return (
            await self._artifacts.list_generated_files(session_id, origin)
            if isinstance(self._artifacts, ArtifactService)
            else []
        )

    async def aclose(self) -> None:
        """Close the agent's toolsets and plugins."""
        await self._runner.close()

    async def stream(self, request: RunRequest) -> AsyncGenerator[StreamEvent, None]:
        """Run the agent and yield its events, ending with one `done` or one run-wide `error`.

        A model that hands over to an agent that does not exist is told the valid names and tried once more
        (seeds: hallucination retry).
        """
        failed: StreamEvent | None = None
        async with aclosing(self._stream_once(request)) as events:
            async for event in events:
                if event.type == "error" and not event.call_id:
                    failed = event
                else:
                    yield event
        if failed is None or failed.error is None:
            return
        correction = (
            request.text if isinstance(failed.error, RunCorrectedError) else self._create_correction(failed.error)
        )
        if correction is None:
            yield failed
            return
        yield StreamEvent("step_reset")
        run_id = request.run_id and correction_run_id(request.run_id)
        corrected = replace(request, text=correction, media=(), spoken=None, decisions=(), run_id=run_id)
        async with aclosing(self._stream_once(corrected)) as events:
            async for event in events:
                if event.error is not None and not event.call_id:
                    event.error.__cause__ = event.error.__cause__ or failed.error
                yield event

    async def run_and_collect(self, *, user_id: str, session_id: str, text: str, streaming: bool = True) -> str:
        """The whole reply, with one retry for an invented agent name.

        Raises:
            Exception: what the run failed with; after a retry the retry's error, caused by the first.
        """
        events = self.stream(RunRequest(user_id=user_id, session_id=session_id, text=text, streaming=streaming))
        return await _collect_text(events)

    async def run_and_collect_once(self, *, user_id: str, session_id: str, text: str, streaming: bool = True) -> str:
        """The whole reply of one run. A step's text is taken from its partial events or from its final one,
        never from both.
        """
        events = self._stream_once(RunRequest(user_id=user_id, session_id=session_id, text=text, streaming=streaming))
        return await _collect_text(events)

    async def _stream_once(self, request: RunRequest) -> AsyncGenerator[StreamEvent, None]:
        set_current_meter(request.meter)
        runner = copy(self._runner)
        if request.run_id is not None and isinstance(self._artifacts, ArtifactService):
            runner.artifact_service = self._artifacts.bind_run(request.run_id, request.generation, request.fence)
        if isinstance(self._memory, MemoryService):
            runner.memory_service = self._memory.bind_run(request.session_id, request.generation, request.fence)
        message = types.Content(role="user", parts=[types.Part(text=request.text), *request.media])
        messages = [message]
        steps = EventMapper(self._progress_texts)
        config = AgentRunConfig(
            model=request.model,
            speaker=request.speaker,
            bot_name=request.bot_name,
            streaming_mode=StreamingMode.SSE if request.streaming else StreamingMode.NONE,
            max_llm_calls=self.max_llm_calls,
            tool_thread_pool_config=_TOOL_THREAD_POOL,
            telemetry=None if trace.get_current_span().is_recording() else _NO_TELEMETRY,
        )
        try:
            if request.run_id is not None:
                whose = {"user_id": request.user_id, "session_id": request.session_id}
                stored = await runner.load_run(
                    request.run_id, request.generation, request.fence, request.spoken, **whose
                )
                if (loaded := runner.history) is not None:
                    yield StreamEvent("history", history=loaded)
                stored = await runner.answer_workflow(message) or stored
                if request.decisions:
                    after = events_after(stored, request.decisions)
                    # an earlier attempt that got some of the decisions goes on from there before it gets the others
                    messages = [*([] if after is None else [message]), *to_contents(stored, request.decisions)]
                    for ask in _find_approved_calls(stored, request.decisions):
                        yield steps.create_tool_start(ask.tool, ask.tool_call_id, ask.arguments)
                    stored = after or []
                request.meter.add_stored_answers(stored)
                for again in steps.replay_events(stored):
                    yield again
            state = {USER_STATE_KEY: to_user_state(request.speaker)} if request.speaker else None
            run = _run_messages(
                runner,
                messages,
                request.user_id,
                request.session_id,
                invocation_id=request.run_id,
                state_delta=state,
                run_config=config,
            )
            async with aclosing(run) as events:
                async for event in events:
                    for said in steps.map_event(event):
                        yield (
                            replace(said, seconds=config.tool_timer.get_seconds(said.call_id)) if said.call_id else said
                        )
            if self._has_memory_tool and request.run_id is not None:
                await self._save_memory(request.user_id, request.session_id, runner)
            yield replace(steps.create_last_event(), calls=request.meter.calls, usage=request.meter.usage)
        except LlmCallsLimitExceededError as error:
            limit = StepLimitError(f"the run took more than {self.max_llm_calls} model calls")
            limit.__cause__ = error
            yield StreamEvent("error", error=limit, calls=request.meter.calls, usage=request.meter.usage)
        except Exception as error:
            yield StreamEvent("error", error=_unwrap_error(error), calls=request.meter.calls, usage=request.meter.usage)

    async def _save_memory(self, user_id: str, session_id: str, runner: ResumableRunner) -> None:
        """Have the memory keep what was said in a run. What it cannot keep ends no answer."""
        assert runner.memory_service is not None, "it was given one"
        try:
            await runner.memory_service.add_events_to_memory(
                app_name=self.app.name, user_id=user_id, session_id=session_id, events=runner.messages
            )
        except (SessionResetError, TurnLostError):
            raise
        except Exception as error:
            log.warning("what was said in session %s is not remembered: %s", session_id, format_error(error))

    def _create_correction(self, error: Exception) -> str | None:
        found = _UNKNOWN_AGENT_ERROR.search(str(error))
        valid = list(_walk_sub_agent_names(self.app.root_agent))
        if found is None or not valid:
            return None
        log.warning("the model named an agent that does not exist; telling it the right names")
        name = next(group for group in found.groups() if group)
        return (
            f'[System: Agent "{name}" does not exist. Valid agents: {", ".join(valid)}. '
            "Please retry using one of the valid agent names listed above.]"
        )


async def _run_messages(
    runner: ResumableRunner, messages: Sequence[types.Content], user_id: str, session_id: str, **options: Any
) -> AsyncGenerator[Event, None]:
    """Run ADK on one message after the other, and yield the events of all."""
    for message in messages:
        run = runner.run_async(user_id=user_id, session_id=session_id, new_message=message, **options)
        async with aclosing(run) as events:
            async for event in events:
                yield event


def _find_approved_calls(stored: Sequence[Event], decisions: Sequence[Decision]) -> Iterator[ConfirmationRequest]:
    """The calls that were allowed, and are made now."""
    calls = {decision.confirmation_id for decision in decisions if decision.is_allowed}
    made = {answer.id for event in events_after(stored, decisions) or () for answer in event.get_function_responses()}
    for event in stored:
        for ask in confirmations_in(event):
            if ask.confirmation_id in calls and ask.tool_call_id not in made:
                yield ask


def _unwrap_error(error: Exception) -> Exception:
    """The error that a plugin of ours raised, out of those in which ADK has wrapped it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ParleyError):
            return cause
        cause = cause.__cause__
    return error


def _walk_sub_agent_names(agent: Any) -> Iterator[str]:
    for sub_agent in agent.sub_agents if isinstance(agent, BaseAgent) else ():
        yield sub_agent.name
        yield from _walk_sub_agent_names(sub_agent)


async def _collect_text(events: AsyncGenerator[StreamEvent, None]) -> str:
    async with aclosing(events) as to_user_state:
        async for event in to_user_state:
            if event.type == "error" and event.error is not None and not event.call_id:
                raise event.error
            if event.type == "done":
                return event.text
    raise ProviderError("the run ended without an outcome")
