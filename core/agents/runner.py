"""ADK's runner, made to go on where a run was broken off or has waited."""

import warnings
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
from core.agents.workflow_input import filter_input_events, find_input_chain, merge_runs
from core.errors import SessionResetError
from core.sessions.codec import get_role
from core.sessions.history import HistoryWindow, is_user_message
from core.sessions.prompt_text import AttributedPrompt
from core.sessions.resume import correction_run_id
from core.sessions.service import SessionService
from core.sessions.writer import StoredSession
from core.workers.fencing import FencingToken

with warnings.catch_warnings():  # ADK: to go on with a run is an experiment
    warnings.simplefilter("ignore")
    _RESUMABLE = ResumabilityConfig(is_resumable=True)

#: The agents that run others and keep how far those have come.
_COMPOSITE_AGENTS = (SequentialAgent, ParallelAgent, LoopAgent)


class RunCorrectedError(Exception):
    """The run named an agent that does not exist, and is to go on behind what it was told about that."""


class _RunContext(InvocationContext):
    """A run, as its agents see it: each goes on from what was said and done, whatever is noted meanwhile.

    ADK has a workflow note that a node was started once it was, and whether that is stored before the node looks at
    its newest event is a matter of who is quicker. Behind a note, a call that is to be made yet is not the newest
    event: ADK would have the agent wait for its answer to come from elsewhere, and the run would end without a word.
    """

    def _get_events(self, *, current_invocation: bool = False, current_branch: bool = False) -> list[Event]:
        events = super()._get_events(current_invocation=current_invocation, current_branch=current_branch)
        return [event for event in events if event.content is not None] if current_branch else events


class ResumableRunner(Runner):
    """ADK's runner, made to go on where a run was broken off.

    For ADK that is a property of the app, and costs every run a stored event for each agent that ends. A run of an
    `LlmAgent` needs none of those: it goes on from its calls. An agent of any other kind keeps in them how far it has
    come.

    One object is for one run.
    """

    _session: Session | None = None
    _run_id = ""
    _earlier_event_ids = frozenset[str]()
    _answer_event: Event | None = None

    @property
    def messages(self) -> list[Event]:
        """What people and agents have said in the run."""
        events = self._get_run_events(self._session) if self._session is not None else []
        events = [
            self._answer_event if self._answer_event and event.id == self._answer_event.id else event
            for event in events
        ]
        return [event for event in events if get_role(event) in ("user", "assistant")]

    @property
    def history(self) -> HistoryWindow | None:
        """How much of the conversation the run goes on with, where that is known."""
        return self._session.window if isinstance(self._session, StoredSession) else None

    async def load_run(
        self,
        run_id: str,
        generation: int | None,
        fence: FencingToken | None,
        spoken: AttributedPrompt | None,
        **session: str,
    ) -> list[Event]:
        """What an earlier attempt at the run has stored. The run goes on with the session as it is read here.

        Raises:
            SessionResetError: the session is of another generation.
            CorrectedError: it has named an agent that does not exist, and was told so.
        """
        self._session, self._run_id = await self._get_or_create_session(**session), run_id
        found = self._session.generation if isinstance(self._session, StoredSession) else generation
        if generation is not None and generation != found:
            raise SessionResetError.of(self._session.id, generation)
        if isinstance(self._session, StoredSession):
            self._session.fence, self._session.prompt = fence, spoken
        if any(event.invocation_id == correction_run_id(run_id) for event in self._session.events):
            raise RunCorrectedError
        return _filter_run_events(self._session, run_id)

    async def answer_workflow(self, message: types.Content) -> list[Event] | None:
        """Have a message answer what a workflow has asked for, if one waits for that: the run goes on with the one that
        has asked.

        Returns:
            What is stored of it from the answer on; None if nothing was asked.
        """
        session, run = self._session, self._run_id
        if isinstance(self.agent, BaseAgent) or not isinstance(session, StoredSession):
            return None
        said = Event(author="user", invocation_id=run, content=message)
        is_new = not _filter_run_events(session, run)
        chain = find_input_chain([*session.events, said] if is_new else session.events, run, self.agent.name)
        if not chain:
            return None
        service = self.session_service
        assert isinstance(service, SessionService), "whose the session is"
        if is_new:
            await service.append_event(session, said)
        turns = filter_input_events(session.events, chain)
        self._answer_event = next(event for event in _filter_run_events(session, run) if is_user_message(event))
        self._earlier_event_ids = frozenset(event.id for event in session.events if event.invocation_id != run)
        session.events[:] = merge_runs(
            session.events, run, self.agent.name, await service.read_stored_events(session, turns)
        )
        return self._get_run_events(session)

    def _get_run_events(self, session: Session) -> list[Event]:
        """What is of this run, and not of those that it goes on with."""
        return [event for event in _filter_run_events(session, self._run_id) if event.id not in self._earlier_event_ids]

    async def _get_or_create_session(self, **session: Any) -> Session:
        return self._session or await super()._get_or_create_session(**session)

    def _create_invocation_context(self, **values: Any) -> InvocationContext:
        return _RunContext(**values)

    def _find_agent_to_run(self, session: Session, root_agent: BaseAgent) -> BaseAgent:
        """ADK has an answer to a call told to the agent that made it, and to that one alone. Where agents take their
        turns, the one goes on that runs them, from where it was: it has the others take theirs.
        """
        found = super()._find_agent_to_run(session, root_agent)
        while isinstance(found.parent_agent, _COMPOSITE_AGENTS):
            found = found.parent_agent
        return found

    def _restore_branch_from_history(
        self, invocation_context: InvocationContext, node: Any, *, root: Any, invocation_id: str | None = None
    ) -> None:
        """Restore the branch of the agent that goes on.

        ADK 2.13 takes it from the newest event with the agent's node path. The agents that a `ParallelAgent` runs have
        that agent's path and branches of their own, so an agent that runs others is found by its name.
        """
        if isinstance(node, _COMPOSITE_AGENTS):
            events = reversed(_filter_run_events(invocation_context.session, invocation_context.invocation_id))
            invocation_context.branch = next((event.branch for event in events if event.author == node.name), None)
        else:
            super()._restore_branch_from_history(invocation_context, node, root=root, invocation_id=invocation_id)

    def _new_invocation_context(self, session: Session, **more: Any) -> InvocationContext:  # ADK: an extension point
        context = super()._new_invocation_context(session, **more)
        if not isinstance(self.agent, LlmAgent) or _has_composite_agents(self.agent):
            context.resumability_config = _RESUMABLE
            context.populate_invocation_agent_states()
        elif find_open_calls(_filter_run_events(session, context.invocation_id)):
            context.resumability_config = _RESUMABLE
        return context


def _has_composite_agents(agent: BaseAgent) -> bool:
    return any(isinstance(each, _COMPOSITE_AGENTS) or _has_composite_agents(each) for each in agent.sub_agents)


def _filter_run_events(session: Session, run_id: str) -> list[Event]:
    return [event for event in session.events if event.invocation_id == run_id]
