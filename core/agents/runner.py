"""ADK runner that resumes runs that a crash interrupted or that waited for people."""

import warnings
from collections.abc import Sequence
from typing import Any

from google.adk.agents import LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.apps import ResumabilityConfig
from google.adk.events.event import Event
from google.adk.runners import Runner
from google.adk.sessions import Session
from google.genai import types

from core.agents.event_mapper import find_open_calls
from core.agents.message_answers import filter_answer_events, list_secrets, merge_runs, remove_response_schemas
from core.errors import SessionResetError
from core.sessions.codec import SEARCHABLE_ROLES, get_role
from core.sessions.history import HistoryWindow, is_user_message
from core.sessions.prompt_text import AttributedPrompt, ReadMessages
from core.sessions.resume import correction_run_id
from core.sessions.service import SessionService
from core.sessions.writer import StoredSession
from core.store.workers.fencing import FencingToken
from core.tools.adk_confirmations import find_confirmations
from core.tools.adk_requests import MessageAnswer, find_credential_requests

with warnings.catch_warnings():  # ADK: resuming is experimental
    warnings.simplefilter("ignore")
    _RESUMABLE = ResumabilityConfig(is_resumable=True)

#: ADK's agents that run other agents, and store their own progress in events.
_COMPOSITE_AGENTS = (SequentialAgent, ParallelAgent, LoopAgent)


class RunCorrectedError(Exception):
    """An earlier attempt at the run named an unknown agent, so the run was repeated.

    The caller resumes the repeated run, whose id is `correction_run_id(run_id)`.
    """


class _RunContext(InvocationContext):
    """ADK invocation context that hides some events from the decision how agents resume; models get them.

    A workflow stores an event without content when a node starts. ADK resumes with a function call only if the call is
    the newest event. After such an event it would wait for the response instead, and end the run without a reply. A
    message that the run has read is hidden as well: ADK takes a newest event of a user for a function response, and
    raises `ValueError`.
    """

    def _get_events(self, *, current_invocation: bool = False, current_branch: bool = False) -> list[Event]:
        events = super()._get_events(current_invocation=current_invocation, current_branch=current_branch)
        events = [event for event in events if get_role(event) != "steering"]
        return [event for event in events if event.content is not None] if current_branch else events


class ResumableRunner(Runner):
    """ADK runner that continues one run from the events that earlier attempts stored.

    Copy it for each run, and call `load_run` before any other method. In ADK, resuming is a property of the app and
    stores an event for each agent that ends. An `LlmAgent` does not need these events: it resumes from its function
    calls. Agents of other kinds store their progress in them.
    """

    _session: Session | None = None
    _run_id = ""
    _earlier_event_ids = frozenset[str]()
    _answer_event: Event | None = None

    @property
    def messages(self) -> list[Event]:
        """The run's messages of users and agents, as events; empty before `load_run`."""
        events = self._get_run_events(self._session) if self._session is not None else []
        events = [
            self._answer_event if self._answer_event and event.id == self._answer_event.id else event
            for event in events
        ]
        return [event for event in events if get_role(event) in SEARCHABLE_ROLES]

    @property
    def history(self) -> HistoryWindow | None:
        """Size and limits of the history that the model gets; None before `load_run`."""
        return self._session.window if isinstance(self._session, StoredSession) else None

    async def load_run(
        self,
        run_id: str,
        generation: int | None,
        fence: FencingToken | None,
        attributed_prompt: AttributedPrompt | None,
        **session: str,
    ) -> list[Event]:
        """Load or create the session of a run, and return the run's stored events, oldest first.

        The run's writes fail once another worker has claimed the turn of `fence`. Any `generation` is accepted if it is
        None.

        Raises:
            SessionResetError: the session has another generation.
            RunCorrectedError: an earlier attempt named an unknown agent, and was repeated under another id.
        """
        self._session = await self._get_or_create_session(**session)
        self._run_id = run_id
        current = self._session.generation if isinstance(self._session, StoredSession) else generation
        if generation is not None and generation != current:
            raise SessionResetError.of(self._session.id, generation)
        if isinstance(self._session, StoredSession):
            self._session.fence = fence
            self._session.prompt = attributed_prompt
        if any(event.invocation_id == correction_run_id(run_id) for event in self._session.events):
            raise RunCorrectedError
        return _filter_run_events(self._session, run_id)

    def is_waiting(self, events: Sequence[Event]) -> bool:
        """Return whether a run has stored its requests to people, and only waits for them.

        An `LlmAgent` would call the model again, with the placeholder that is the result of such a tool call. Agents
        that run others, and workflows, find in their own state whether another agent can continue.
        """
        is_alone = isinstance(self.agent, LlmAgent) and not _has_composite_agents(self.agent)
        asked = {request.call_id for request in find_confirmations(events)}
        asked |= {request.call_id for request in find_credential_requests(events)}
        answered = {answer.id for event in events for answer in event.get_function_responses()}
        return is_alone and bool(asked - answered) and not find_open_calls(events)

    def set_message_source(self, read: ReadMessages | None) -> None:
        """Set the function that returns the messages for the run's next model call."""
        if isinstance(self._session, StoredSession):
            self._session.read_messages = read

    async def continue_runs(
        self, answers: Sequence[MessageAnswer], message: types.Content, *, is_decided: bool
    ) -> list[Event] | None:
        """Merge this run and the runs that it continues in the loaded session; return this run's stored events.

        A run continues an earlier one if its message answers a question of the earlier one. In the loaded session, the
        events of the earlier runs then get this run's invocation id. The user's message becomes the function response
        to the question there. The message is stored, unless an earlier attempt stored it. If there are neither
        `answers` (oldest first) nor decisions of people, nothing is merged, and the result is None.

        Raises:
            StoreError: the session cannot be read, or the message cannot be stored.
        """
        session = self._session
        run = self._run_id
        if not isinstance(session, StoredSession) or not (answers or is_decided):
            return None
        service = self.session_service
        assert isinstance(service, SessionService), "a StoredSession comes from a SessionService"
        if answers and not _filter_run_events(session, run):
            asking = filter_answer_events(session.events, run, answers)
            text = session.prompt.unattributed_text if session.prompt else _get_text(message)
            secrets = list_secrets(answers[-1], text, await service.read_stored_events(session, asking))
            session.has_secret_prompt = bool(secrets)
            session.secrets.add(secrets)
            await service.append_event(session, Event(author="user", invocation_id=run, content=message))
        prompts = [event for event in _filter_run_events(session, run) if is_user_message(event)]
        self._answer_event = prompts[0] if answers else None
        self._earlier_event_ids = frozenset(event.id for event in session.events if event.invocation_id != run)
        texts = await service.read_stored_events(session, filter_answer_events(session.events, run, answers))
        session.events[:] = merge_runs(session.events, run, answers, texts)
        run_events = self._get_run_events(session)
        session.events[:] = map(remove_response_schemas, session.events)
        return run_events

    def _get_run_events(self, session: Session) -> list[Event]:
        """Return this run's events, without those of earlier runs, to which `continue_runs` gives the same id."""
        return [event for event in _filter_run_events(session, self._run_id) if event.id not in self._earlier_event_ids]

    async def _get_or_create_session(self, **session: Any) -> Session:
        return self._session or await super()._get_or_create_session(**session)

    def _create_invocation_context(self, **values: Any) -> InvocationContext:
        return _RunContext(**values)

    def _find_agent_to_run(self, session: Session, root_agent: BaseAgent) -> BaseAgent:
        """Return ADK's choice, or the outermost sequential, parallel or loop agent around it.

        ADK would send a function response only to the agent that made the call; the outermost agent runs the other
        agents too.
        """
        agent = super()._find_agent_to_run(session, root_agent)
        while isinstance(agent.parent_agent, _COMPOSITE_AGENTS):
            agent = agent.parent_agent
        return agent

    def _restore_branch_from_history(
        self, invocation_context: InvocationContext, node: Any, *, root: Any, invocation_id: str | None = None
    ) -> None:
        """Set the branch of the invocation to that of the agent that continues the run.

        ADK 2.13 takes the branch from the newest event with the agent's node path. The agents that a `ParallelAgent`
        runs have its path but other branches. So for agents that run others the event is found by the author's name.
        """
        if isinstance(node, _COMPOSITE_AGENTS):
            events = reversed(_filter_run_events(invocation_context.session, invocation_context.invocation_id))
            invocation_context.branch = next((event.branch for event in events if event.author == node.name), None)
        else:
            super()._restore_branch_from_history(invocation_context, node, root=root, invocation_id=invocation_id)

    def _new_invocation_context(self, session: Session, **options: Any) -> InvocationContext:  # ADK: an extension point
        context = super()._new_invocation_context(session, **options)
        if not isinstance(self.agent, LlmAgent) or _has_composite_agents(self.agent):
            context.resumability_config = _RESUMABLE
            context.populate_invocation_agent_states()
        elif find_open_calls(_filter_run_events(session, context.invocation_id)):
            context.resumability_config = _RESUMABLE
        return context


def _has_composite_agents(agent: BaseAgent) -> bool:
    return any(
        isinstance(sub_agent, _COMPOSITE_AGENTS) or _has_composite_agents(sub_agent) for sub_agent in agent.sub_agents
    )


def _get_text(message: types.Content) -> str:
    return "\n".join(part.text for part in message.parts or () if part.text)


def _filter_run_events(session: Session, run_id: str) -> list[Event]:
    return [event for event in session.events if event.invocation_id == run_id]
