"""Runs the agent for a session and tells what it says while it runs."""

import logging
import re
import warnings
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from copy import copy
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.invocation_context import InvocationContext, LlmCallsLimitExceededError
from google.adk.agents.run_config import RunConfig, StreamingMode, ToolThreadPoolConfig
from google.adk.apps import App, ResumabilityConfig
from google.adk.artifacts import BaseArtifactService, InMemoryArtifactService
from google.adk.events.event import Event
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService, Session
from google.adk.sessions.base_session_service import BaseSessionService
from google.genai import types

from core.endings import BLOCKED, ended
from core.errors import ContentBlockedError, ParleyError, ProviderError, StepLimitError
from core.events import StreamEvent
from core.models.adapter import NO_CONTENT
from core.models.attempts import takes_back
from core.models.provider import Usage
from core.sessions.reopening import correction_of

log = logging.getLogger(__name__)

#: How ADK, in its several paths, says that a model named an agent that does not exist.
_INVENTED_AGENT = re.compile(
    r"failed to find agent: (?P<a>[^\s.,]+)"
    r"|Transfer target agent '(?P<b>[^']+)' not found"
    r"|Agent (?P<c>\S+) not found in the agent tree"
)

#: Threads for tools that are plain functions; ADK would run those on the event loop.
_TOOL_THREADS = 32


with warnings.catch_warnings():  # ADK: to go on with a run is an experiment
    warnings.simplefilter("ignore")
    _RESUMABLE = ResumabilityConfig(is_resumable=True)


class AgentRuntime:
    """An ADK app over stored sessions.

    Any number of sessions may run at once; that one session runs once at a time is the caller's care.

    Attributes:
        max_llm_calls: how many model calls one run may take before it is ended.
    """

    def __init__(
        self,
        app: App,
        sessions: BaseSessionService,
        *,
        artifacts: BaseArtifactService | None = None,
        max_llm_calls: int = 25,
    ) -> None:
        self.app = app
        self.sessions = sessions
        self.max_llm_calls = max_llm_calls
        self._runner = _Runner(
            app=app, session_service=sessions, artifact_service=artifacts or InMemoryArtifactService()
        )

    async def aclose(self) -> None:
        """Close the agent's toolsets and plugins."""
        await self._runner.close()

    async def stream(
        self,
        *,
        user_id: str,
        session_id: str,
        text: str,
        speaker: str = "",
        streaming: bool = True,
        run_id: str | None = None,
    ) -> AsyncGenerator[StreamEvent, None]:
        """Run the agent on `text` and yield what happens, ending with one `done` or one run-wide `error`.

        A model that hands over to an agent that it made up is told the right names and tried once more
        (seeds: hallucination retry).

        Args:
            run_id: what the run stores is stored under it, and under `correction_of` it. A run that goes on with what
                an earlier one has stored under the same id does not store `text` again, and its reply begins with
                what that one has said.
        """
        said: dict[str, Any] = {
            "user_id": user_id,
            "session_id": session_id,
            "speaker": speaker,
            "streaming": streaming,
        }
        failed: StreamEvent | None = None
        async with aclosing(self._stream_once(text=text, run_id=run_id, **said)) as events:
            async for event in events:
                if event.type == "error" and not event.call_id:
                    failed = event
                else:
                    yield event
        if failed is None or failed.error is None:
            return
        correction = text if isinstance(failed.error, _CorrectedError) else self._correction(failed.error)
        if correction is None:
            yield failed
            return
        yield StreamEvent("step_reset")
        again = self._stream_once(text=correction, run_id=run_id and correction_of(run_id), **said)
        async with aclosing(again) as events:
            async for event in events:
                if event.error is not None and not event.call_id:
                    event.error.__cause__ = event.error.__cause__ or failed.error
                yield event

    async def run_and_collect(self, *, user_id: str, session_id: str, text: str, streaming: bool = True) -> str:
        """The whole reply, with one retry for an invented agent name.

        Raises:
            Exception: what the run failed with; after a retry the retry's error, caused by the first.
        """
        events = self.stream(user_id=user_id, session_id=session_id, text=text, streaming=streaming)
        return await _collect(events)

    async def run_and_collect_once(self, *, user_id: str, session_id: str, text: str, streaming: bool = True) -> str:
        """The whole reply of one run. A step's text is taken from its partial events or from its final one,
        never from both.
        """
        events = self._stream_once(user_id=user_id, session_id=session_id, text=text, speaker="", streaming=streaming)
        return await _collect(events)

    async def _stream_once(
        self, *, user_id: str, session_id: str, text: str, speaker: str, streaming: bool, run_id: str | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        runner = copy(self._runner)
        run = runner.run_async(
            user_id=user_id,
            session_id=session_id,
            invocation_id=run_id,
            new_message=types.UserContent(parts=[types.Part(text=text)]),
            state_delta={"temp:speaker": speaker} if speaker else None,
            run_config=RunConfig(
                streaming_mode=StreamingMode.SSE if streaming else StreamingMode.NONE,
                max_llm_calls=self.max_llm_calls,
                tool_thread_pool_config=ToolThreadPoolConfig(max_workers=_TOOL_THREADS),
            ),
        )
        steps = _Steps()
        try:
            if run_id is not None:
                for told in steps.retold(await runner.stored(run_id, user_id=user_id, session_id=session_id)):
                    yield told
            async with aclosing(run) as events:
                async for event in events:
                    for told in steps.take(event):
                        yield told
            yield steps.end()
        except LlmCallsLimitExceededError as error:
            limit = StepLimitError(f"the run took more than {self.max_llm_calls} model calls")
            limit.__cause__ = error
            yield StreamEvent("error", error=limit)
        except Exception as error:
            yield StreamEvent("error", error=_ours(error))

    def _correction(self, error: Exception) -> str | None:
        found = _INVENTED_AGENT.search(str(error))
        valid = list(_sub_agents(self.app.root_agent))
        if found is None or not valid:
            return None
        log.warning("the model named an agent that does not exist; telling it the right names")
        name = next(group for group in found.groups() if group)
        return (
            f'[System: Agent "{name}" does not exist. Valid agents: {", ".join(valid)}. '
            "Please retry using one of the valid agent names listed above.]"
        )


class _CorrectedError(Exception):
    """The run named an agent that does not exist, and is to go on behind what it was told about that."""


class _Runner(Runner):
    """ADK's runner, made to go on where a run was broken off.

    For ADK that is a property of the app, and costs every run a stored event for each agent that ends. A run of an
    `LlmAgent` needs none of those: it goes on from its calls. An agent of any other kind keeps in them how far it has
    come.

    One object is for one run.
    """

    _session: Session | None = None

    async def stored(self, run_id: str, **session: str) -> list[Event]:
        """What an earlier attempt at the run has stored. The run goes on with the session as it is read here.

        Raises:
            _CorrectedError: it has named an agent that does not exist, and was told so.
        """
        self._session = await self._get_or_create_session(**session)
        if any(event.invocation_id == correction_of(run_id) for event in self._session.events):
            raise _CorrectedError
        return _of_run(self._session, run_id)

    async def _get_or_create_session(self, **session: Any) -> Session:
        return self._session or await super()._get_or_create_session(**session)

    def _new_invocation_context(self, session: Session, **more: Any) -> InvocationContext:  # ADK: an extension point
        context = super()._new_invocation_context(session, **more)
        if not isinstance(self.agent, LlmAgent):
            context.resumability_config = _RESUMABLE
            context.populate_invocation_agent_states()
        elif _open_calls(_of_run(session, context.invocation_id)):
            context.resumability_config = _RESUMABLE
        return context


def _of_run(session: Session, run_id: str) -> list[Event]:
    return [event for event in session.events if event.invocation_id == run_id]


def _open_calls(events: Sequence[Event]) -> set[str | None]:
    """The calls that are to be made yet; a long-running one may have been, and its answer is to come."""
    answered = {answer.id for event in events for answer in event.get_function_responses()}
    made = (
        {call.id for call in event.get_function_calls()} - (event.long_running_tool_ids or set()) for event in events
    )
    return set().union(*made) - answered


class _Steps:
    """Turns ADK's events into ours, and knows the reply's text so far.

    A step is one model call of one agent; its partial texts are provisional, and its final event replaces
    them. Agents that run side by side have a step open each, told apart by author and branch.
    """

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._open: dict[tuple[str, str | None], int] = {}
        self._usage = Usage()
        self._error_code = ""  # of the newest step, if that said nothing else

    def take(self, event: Event) -> Iterator[StreamEvent]:
        if event.partial:
            if takes_back(event):
                yield from self._write(self._step(event), "")
            elif text := _visible_text(event):
                yield from self._write(self._step(event), text, append=True)
            return
        if event.content is not None:
            text = _visible_text(event)
            if text.strip() and not event.get_function_calls():  # with calls, the run goes on
                text = ended(text, event.finish_reason)
            step = self._open.pop((event.author, event.branch), None)
            if step is not None:
                yield from self._write(step, text)
            elif text:
                yield from self._write(self._step(event), text)
                self._open.pop((event.author, event.branch))
        for call in event.get_function_calls():
            yield StreamEvent("tool_start", tool=call.name or "", call_id=call.id or "", data=call.args or {})
        for response in event.get_function_responses():
            yield from _tool_end(response)
        if event.usage_metadata is not None:
            self._usage = _add(self._usage, event.usage_metadata)
        self._error_code = "" if _visible_text(event).strip() else event.error_code or ""

    def retold(self, stored: Sequence[Event]) -> Iterator[StreamEvent]:
        """What an earlier attempt at the run has said, and the calls that are made now."""
        open_calls = _open_calls(stored)
        for event in stored:
            for told in self.take(event):
                if not told.tool or told.call_id in open_calls:
                    yield told

    def end(self) -> StreamEvent:
        if self._error_code in BLOCKED:
            return StreamEvent("error", error=ContentBlockedError(f"blocked: {self._error_code}"))
        if self._error_code and self._error_code != NO_CONTENT:
            return StreamEvent("error", error=ProviderError(f"the model ended with {self._error_code}"))
        return StreamEvent("done", text=self.text, usage=self._usage)

    @property
    def text(self) -> str:
        return "\n\n".join(text for text in self._texts if text.strip())

    def _step(self, event: Event) -> int:
        key = (event.author, event.branch)
        if key not in self._open:
            self._open[key] = len(self._texts)
            self._texts.append("")
        return self._open[key]

    def _write(self, step: int, text: str, *, append: bool = False) -> Iterator[StreamEvent]:
        is_last, begun = step == len(self._texts) - 1, self._texts[step]
        if append and is_last and begun and not begun.isspace():  # the usual case, at no cost of the length
            self._texts[step] += text
            yield StreamEvent("text_delta", text=text)
            return
        before = self.text
        self._texts[step] = self._texts[step] + text if append else text
        after = self.text
        if after.startswith(before):
            if after != before:
                yield StreamEvent("text_delta", text=after[len(before) :])
        else:
            yield StreamEvent("step_reset", text=after)


def _ours(error: Exception) -> Exception:
    """The error that a plugin of ours raised, out of those in which ADK has wrapped it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ParleyError):
            return cause
        cause = cause.__cause__
    return error


def _visible_text(event: Event) -> str:
    if event.content is None or event.content.role == "user" or event.author == "user":
        return ""
    return "".join(part.text for part in event.content.parts or [] if part.text and not part.thought)


def _tool_end(response: types.FunctionResponse) -> Iterator[StreamEvent]:
    name, call_id, result = response.name or "", response.id or "", response.response or {}
    if set(result) == {"error"}:
        error = RuntimeError(str(result["error"]))
        yield StreamEvent("error", tool=name, call_id=call_id or name, data=result, error=error)
    yield StreamEvent("tool_end", tool=name, call_id=call_id, data=result)


def _add(usage: Usage, more: types.GenerateContentResponseUsageMetadata) -> Usage:
    return Usage(
        input=usage.input + (more.prompt_token_count or 0),
        output=usage.output + (more.candidates_token_count or 0),
        thinking=usage.thinking + (more.thoughts_token_count or 0),
        cached=usage.cached + (more.cached_content_token_count or 0),
    )


def _sub_agents(agent: Any) -> Iterator[str]:
    for sub_agent in agent.sub_agents if isinstance(agent, BaseAgent) else ():
        yield sub_agent.name
        yield from _sub_agents(sub_agent)


async def _collect(events: AsyncGenerator[StreamEvent, None]) -> str:
    async with aclosing(events) as told:
        async for event in told:
            if event.type == "error" and event.error is not None and not event.call_id:
                raise event.error
            if event.type == "done":
                return event.text
    raise ProviderError("the run ended without an outcome")


class _Mute(BaseLlm):
    """A model that says nothing of note, at once."""

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
    """Run an agent that says nothing once: ADK imports a second's worth of code at the first run of a process."""
    sessions = InMemorySessionService()
    runtime = AgentRuntime(App(name="warm_up", root_agent=LlmAgent(name="mute", model=_Mute(model="mute"))), sessions)
    await sessions.create_session(app_name="warm_up", user_id="nobody", session_id="none")
    await runtime.run_and_collect_once(user_id="nobody", session_id="none", text="hello")
    await runtime.aclose()
