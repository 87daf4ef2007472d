"""What the bot tells the sandbox's page of itself: its turns, what it asks the model, its calls of tools.

Only the sandbox asks for it, by an address in the environment of the process that it has started; `sandbox.page.feed`
says what goes over the line. No turn waits for it.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any
from uuid import uuid4

import aiohttp
import sqlalchemy as sa
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.models import LlmRequest, LlmResponse
from google.adk.plugins import BasePlugin

from core.concurrency.tasks import run_in_background
from core.conversations.turn_report import TurnReport, TurnReports
from core.models.messages import convert_messages
from core.models.provider import Media, ModelMessage, Part, Text, Thought, ToolCall, ToolResult
from core.secret_redaction import redact_secrets
from core.store.database import Database
from core.store.schema import inbox, messages, sessions, tool_calls, turns
from core.store.turn_states import ACTIVE_STATES
from core.usage.prices import UNITS_PER_DOLLAR, Prices

log = logging.getLogger(__name__)

#: Seconds between two looks at the turns: as long as one is under way, and otherwise.
LOOK, REST = 0.15, 1.0

#: How many turns are told of, and how many of the messages that were cut out of a prompt; the letters of one part.
TURNS, CUT, LETTERS = 30, 100, 20_000

Json = dict[str, Any]


@asynccontextmanager
async def feeding(address: str, database: Database, prices: Prices) -> AsyncIterator["Feed"]:
    """Connect to the page of the sandbox at `address`."""
    feed = Feed(address, database, prices)
    async with run_in_background(feed.keep(), name="feed"):
        yield feed


class Feed(BasePlugin):
    """Tells the page, and holds the model up by as much as that asks for.

    Args:
        address: the page's, `http://...`.
        prices: what models cost.
    """

    def __init__(self, address: str, database: Database, prices: Prices) -> None:
        super().__init__(name="parley_feed")
        self._address = address
        self._database = database
        self._reports = TurnReports(database, prices)
        self._news: asyncio.Queue[str] = asyncio.Queue()
        self._slow = 0.0
        self._told: dict[str, str] = {}
        self._under_way: dict[str, str] = {}
        self._asks: dict[tuple[str, str], tuple[str, float]] = {}
        self._begun = asyncio.Event()

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """A turn is run: a session has one at a time."""
        session = invocation_context.session.id
        mine = sa.select(turns.c.id).where(turns.c.session == session, turns.c.state.in_(ACTIVE_STATES))
        async with self._database.read() as connection:
            self._under_way[session] = (await connection.execute(mine)).scalar_one_or_none() or ""
        await self._tell_turns()
        self._begun.set()

    # The line

    async def keep(self) -> None:
        """Tell the page, until this is cancelled."""
        try:
            async with aiohttp.ClientSession() as session, session.ws_connect(self._address) as socket:
                ways = (self._send(socket), self._hear(socket), self._look())
                tasks = [asyncio.create_task(way, name="feed's way") for way in ways]
                try:
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
        except (aiohttp.ClientError, OSError) as error:
            log.warning("the sandbox's page cannot be told: %s", type(error).__name__)

    async def _send(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            await socket.send_str(await self._news.get())

    async def _hear(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        async for message in socket:
            self._slow = float(json.loads(message.data)["slow"])

    async def _look(self) -> None:
        while True:
            under_way = await self._tell_turns()
            self._begun.clear()
            try:
                async with asyncio.timeout(LOOK if under_way else REST):
                    await self._begun.wait()
            except TimeoutError:
                pass

    def send_notice(self, text: str) -> None:
        """Show a line on top of the page."""
        self._tell("notice", {"id": text})

    def _tell(self, kind: str, about: Mapping[str, Any]) -> None:
        """Tell it, if it is news."""
        news = json.dumps({kind: about}, ensure_ascii=False, default=str)
        key = f"{kind} {about['id']}"
        if self._told.get(key) != news:
            self._told[key] = news
            self._news.put_nowait(news)

    # Turns and tools, as they are stored

    async def _tell_turns(self) -> bool:
        """Tell what has changed; whether a turn is under way."""
        reports = list(reversed(await self._reports.list(limit=TURNS)))
        these = turns.c.id.in_([report.id for report in reports])
        said = sa.select(turns.c.id, inbox.c.message).join(inbox, inbox.c.turn == turns.c.origin)
        run = sa.func.coalesce(turns.c.run, turns.c.origin)
        called = sa.select(tool_calls, turns.c.id.label("turn_id")).join(turns, tool_calls.c.run == run)
        async with self._database.read() as connection:
            questions: dict[str, list[str]] = {}
            for turn, inbound in await connection.execute(said.where(these).order_by(inbox.c.sent_at)):
                questions.setdefault(turn, []).append(str((inbound or {}).get("text", "")))
            oldest_first = called.where(these).order_by(turns.c.created_at, tool_calls.c.started_at)
            calls = {(call.run, call.id): call for call in await connection.execute(oldest_first)}
        for report in reports:
            question = redact_secrets("\n".join(questions.get(report.id, ())))
            self._tell("turn", _turn(report) | ({"question": question} if question else {}))
        for call in calls.values():
            self._tell("tool", _tool(call, call.turn_id))
        return any(report.state in ACTIVE_STATES for report in reports)

    # What the model is asked

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        context = callback_context._invocation_context
        turn = self._under_way.get(context.session.id)
        if not turn:
            return
        sent = convert_messages(llm_request.contents, llm_request.config.system_instruction)
        ask = uuid4().hex
        self._asks[context.invocation_id, callback_context.agent_name] = ask, time.monotonic()
        prompt: Json = {
            "messages": [_message(message) for message in sent],
            "tools": list(llm_request.tools_dict),
            "cut": await self._cut(context.session.id, [event.id for event in context.session.events]),
        }
        about = {"id": ask, "turn": turn, "agent": callback_context.agent_name, "model": llm_request.model or ""}
        self._tell("ask", about | {"prompt": prompt, "messages": len(sent), "cut": prompt["cut"]["messages"]})
        await asyncio.sleep(self._slow)

    async def after_model_callback(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> None:
        about = self._ask(callback_context)
        if about is None:
            return
        if llm_response.partial:
            if f"answer {about['id']}" not in self._told:
                self._tell("answer", {**about, "first": about["seconds"]})
            await asyncio.sleep(self._slow / 10)
            return
        usage = llm_response.usage_metadata
        tokens = (
            {
                "input": usage.prompt_token_count or 0,
                "output": usage.candidates_token_count or 0,
                "thinking": usage.thoughts_token_count or 0,
                "cached": usage.cached_content_token_count or 0,
            }
            if usage
            else {}
        )
        self._tell("answer", {**about, "tokens": tokens, "ended": True, "error": llm_response.error_code or ""})

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> None:
        del llm_request
        if (about := self._ask(callback_context)) is not None:
            self._tell("answer", {**about, "ended": True, "error": type(error).__name__})

    def _ask(self, context: CallbackContext) -> Json | None:
        """The question that is being answered."""
        found = self._asks.get((context.invocation_id, context.agent_name))
        turn = self._under_way.get(context._invocation_context.session.id)
        if found is None or not turn:
            return None
        return {"id": found[0], "turn": turn, "seconds": round(time.monotonic() - found[1], 3)}

    async def _cut(self, session: str, sent: Iterable[str]) -> Json:
        """What the session holds and the model is not sent: how much, and the newest of it."""
        known = set(sent)
        c = messages.c
        query = (
            sa.select(c.role, c.author, c.content, c.tokens, c.event_id)
            .join(sessions, (sessions.c.id == c.session) & (sessions.c.generation == c.generation))
            .where(c.session == session, c.role != "event")
            .order_by(c.id)
        )
        async with self._database.read() as connection:
            rows = [row for row in await connection.execute(query) if row.event_id not in known]
        shown = [{"role": row.role, "text": redact_secrets(row.content[:LETTERS])} for row in rows[-CUT:]]
        return {"messages": len(rows), "tokens": sum(row.tokens for row in rows), "newest": shown}


def _turn(report: TurnReport) -> Json:
    return {
        "id": report.id,
        "session": report.session,
        "kind": report.kind,
        "state": report.state,
        "attempt": report.attempt,
        "chunks": report.chunks,
        "tokens": report.tokens,
        "cost": None if report.known_cost is None else report.known_cost / UNITS_PER_DOLLAR,
        "error": report.error or "",
        "others": None if report.receipt is None else asdict(report.receipt.context),
        "at": report.created_at,
        "seconds": None if report.took is None else round(report.took, 3),
    }


def _tool(call: sa.Row[Any], turn: str) -> Json:
    result = None if call.result is None else json.dumps(call.result, ensure_ascii=False)[:LETTERS]
    arguments = json.dumps(call.arguments, ensure_ascii=False)[:LETTERS]
    about = {"id": f"{call.run} {call.id}", "turn": turn, "tool": call.tool, "state": call.state}
    return {**about, "arguments": redact_secrets(arguments), "result": result and redact_secrets(result)}


def _message(message: ModelMessage) -> Json:
    return {"role": message.role, "parts": [_part(part) for part in message.parts]}


def _part(part: Part) -> list[str]:
    """What it is, and what it says."""
    match part:
        case Text(text):
            told = ["text", text]
        case Thought(text):
            told = ["thought", text]
        case Media(kind, data, uri):
            told = ["file", f"{kind}, {len(data)} bytes" if data is not None else f"{kind}, {uri}"]
        case ToolCall(_, name, arguments):
            told = ["call", f"{name}({json.dumps(arguments, ensure_ascii=False, default=str)})"]
        case ToolResult(_, name, result):
            told = ["result", f"{name}: {json.dumps(result, ensure_ascii=False, default=str)}"]
    return [told[0], redact_secrets(told[1][:LETTERS])]
