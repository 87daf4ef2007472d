"""A conversation with the real runtime: ADK's own runner, sessions in an SQLite file, and a scripted provider."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
import sqlalchemy as sa
from google.adk.agents import LlmAgent
from google.adk.agents.base_agent import BaseAgent
from google.adk.apps import App
from google.adk.events.event import Event
from google.adk.sessions import Session
from google.adk.tools.base_tool import BaseTool
from google.adk.workflow import Workflow

from core.agents.config import AgentConfig
from core.agents.events import StreamEvent
from core.agents.factory import make_app, ours
from core.agents.plugins import GuardPlugin
from core.agents.runtime import AgentRuntime
from core.identity import DEFAULT_AGENT_NAME
from core.models.adapter import ModelAdapter
from core.models.provider import Done, ProviderEvent, Request, Takes, Text
from core.models.tokens import TokenCounter
from core.sessions.service import SessionService
from core.store.database import Database
from core.store.schema import messages
from core.tools.call_log import Journal
from core.tools.tool import Tool, adapt
from tests import tables

USER, SESSION = "place", "s"

#: What the provider yields for one request; at an `asyncio.Event` it waits. A string is said and done.
Answer = str | Sequence[ProviderEvent | asyncio.Event]


class ScriptedProvider:
    """Gives its answers one a request, and keeps the requests."""

    name = "scripted"

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []
        self.asked = asyncio.Event()
        self.closed = asyncio.Event()

    def takes(self, model: str) -> Takes:
        return Takes({"image/png": 1_000}, total=1_500)

    async def stream(self, request: Request) -> AsyncIterator[ProviderEvent]:
        self.requests.append(request)
        self.asked.set()
        answer = self.answers.pop(0)
        try:
            for event in (Text(answer), Done()) if isinstance(answer, str) else answer:
                if isinstance(event, asyncio.Event):
                    await event.wait()
                else:
                    yield event
        finally:
            self.closed.set()

    async def aclose(self) -> None:
        pass


def adapter(provider: ScriptedProvider) -> ModelAdapter:
    return ModelAdapter(model="scripted", provider=provider, idle_seconds=30)


def team(provider: ScriptedProvider, *members: str, guarded: bool = True) -> App:
    """An app whose root agent can hand over to its members; all of them ask the same provider."""
    agents: list[BaseAgent] = [
        LlmAgent(name=name, description=f"Knows about {name}.", model=adapter(provider)) for name in members
    ]
    root = LlmAgent(name=DEFAULT_AGENT_NAME, model=adapter(provider), sub_agents=agents)
    return App(name=DEFAULT_AGENT_NAME, root_agent=root, plugins=[GuardPlugin()] if guarded else [])


def shown(events: Iterable[StreamEvent]) -> str:
    """What a reader has before him who does as the events say."""
    text = ""
    for event in events:
        if event.type == "text_delta":
            text += event.text
        elif event.type == "step_reset":
            text = event.text
    return text


def kinds(events: Iterable[StreamEvent]) -> list[str]:
    return [event.type for event in events]


@dataclass
class Conversation:
    """One session of one app."""

    runtime: AgentRuntime
    sessions: SessionService
    database: Database

    def stream(self, text: str, **more: Any) -> AsyncGenerator[StreamEvent, None]:
        """What happens when the user says `text`, as it happens."""
        return self.runtime.stream(user_id=USER, session_id=SESSION, text=text, **more)

    async def events(self, text: str, **more: Any) -> list[StreamEvent]:
        """All that happens when the user says `text`."""
        async with aclosing(self.stream(text, **more)) as events:
            return [event async for event in events]

    async def reply(self, text: str, **more: Any) -> str:
        return await self.runtime.run_and_collect(user_id=USER, session_id=SESSION, text=text, **more)

    async def reply_once(self, text: str, **more: Any) -> str:
        return await self.runtime.run_and_collect_once(user_id=USER, session_id=SESSION, text=text, **more)

    async def session(self) -> Session:
        """The session as it is loaded for the next run."""
        session = await self.sessions.get_session(app_name=self.runtime.app.name, user_id=USER, session_id=SESSION)
        assert session is not None
        return session

    async def history(self) -> list[Event]:
        return (await self.session()).events

    async def rows(self) -> list[sa.Row[Any]]:
        """The stored messages, oldest first."""
        async with self.database.read() as connection:
            return list((await connection.execute(sa.select(messages).order_by(messages.c.id))).all())

    async def keep(
        self, role: str, content: str = "", *calls: dict[str, str], author: str = "", tokens: int = 1
    ) -> None:
        """Store a message as it was stored before events were: in its columns alone."""
        row = {"role": role, "author": author, "content": content, "tool_calls": list(calls), "tokens": tokens}
        async with self.database.write() as connection:
            await connection.execute(sa.insert(messages).values(session=SESSION, generation=1, created_at=1.0, **row))


class Converse(Protocol):
    def __call__(
        self,
        provider: ScriptedProvider | None = None,
        *,
        app: App | None = None,
        root: BaseAgent | Workflow | None = None,
        tools: Sequence[Tool | BaseTool | Callable[..., Any]] = (),
        budget: int | None = None,
        agent: str = DEFAULT_AGENT_NAME,
    ) -> Coroutine[Any, Any, Conversation]: ...


@pytest.fixture
async def converse(tmp_path: Path) -> AsyncIterator[Converse]:
    """Begins a conversation with the default agent over a provider, with an agent of any kind, or with an app."""
    async with AsyncExitStack() as stack:

        async def begin(
            provider: ScriptedProvider | None = None,
            *,
            app: App | None = None,
            root: BaseAgent | Workflow | None = None,
            tools: Sequence[Tool | BaseTool | Callable[..., Any]] = (),
            budget: int | None = None,
            agent: str = DEFAULT_AGENT_NAME,
        ) -> Conversation:
            database = Database(f"sqlite+aiosqlite:///{tmp_path / 'parley.db'}")
            stack.push_async_callback(database.aclose)
            await tables.lay(database)
            sessions = SessionService(database, TokenCounter(tmp_path), budget=budget, agent=agent)
            model = adapter(provider or ScriptedProvider())
            config = AgentConfig(name=agent or DEFAULT_AGENT_NAME)
            journal = Journal(database)
            if root is not None:
                app = App(name=DEFAULT_AGENT_NAME, root_agent=root, plugins=[GuardPlugin(journal)])
            app = app or make_app(config, model=model, tools=[adapt(tool) for tool in tools], plugins=ours(journal))
            runtime = AgentRuntime(app, sessions)
            stack.push_async_callback(runtime.aclose)
            await sessions.create_session(app_name=app.name, user_id=USER, session_id=SESSION)
            return Conversation(runtime, sessions, database)

        yield begin
