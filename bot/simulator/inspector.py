"""WebSocket client that sends turns and their calls to the simulator's page.

The page shows turns, model calls and tool calls in its inspector. The simulator sets the WebSocket's address in the
environment of the bot's process; `inspector_store.py` describes the messages. No turn waits for the connection.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
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
from sqlalchemy.ext.asyncio import AsyncConnection

from core.concurrency.tasks import run_every, run_in_background
from core.conversations.turn_report import TurnReport, TurnReports
from core.models.messages import convert_messages
from core.models.provider import ModelMessage, Part, describe_part
from core.observability.secret_redaction import redact_secrets
from core.sessions.codec import USER_ROLES
from core.sessions.resume import INPUT_CALL
from core.store.database import Database
from core.store.schema import human_requests, inbox, messages, sessions, tool_calls, turns
from core.store.turn_states import ACTIVE_STATES
from core.tools.human_requests import Verdict
from core.usage.prices import UNITS_PER_DOLLAR, Prices

log = logging.getLogger(__name__)

#: Seconds between two polls of the turns, while one is active and otherwise.
ACTIVE_POLL_SECONDS, IDLE_POLL_SECONDS = 0.15, 1.0

#: Most turns that are sent, most messages that a prompt leaves out, and most characters of one part.
MAX_TURNS, MAX_CUT_MESSAGES, MAX_PART_CHARS = 30, 100, 20_000

#: Decisions on requests to people, as the title of a turn shows them.
_DECISIONS: Mapping[Verdict, str] = {
    "approved": "Approved",
    "always": "Always approved",
    "denied": "Denied",
    "answered": "Answered",
    "connected": "Connected",
    "expired": "Expired",
}

Json = dict[str, Any]


@asynccontextmanager
async def connect_inspector(address: str, database: Database, prices: Prices) -> AsyncIterator["InspectorPlugin"]:
    """Yield a plugin that sends turns, model and tool calls to the simulator's page.

    A background task connects to the page once, and sends updates; the block does not wait for the connection. Updates
    that are not sent at the end of the block are dropped.
    """
    plugin = InspectorPlugin(address, database, prices)
    async with run_in_background(plugin.run(), name="inspector"):
        yield plugin


class InspectorPlugin(BasePlugin):
    """ADK plugin that sends turns, model calls and tool calls to the simulator's page.

    Callbacks queue updates, and `run` sends them. The plugin also delays model calls by the seconds that the user of
    the page has set.
    """

    def __init__(self, address: str, database: Database, prices: Prices) -> None:
        super().__init__(name="parley_inspector")
        self._address = address
        self._database = database
        self._reports = TurnReports(database, prices)
        self._updates: asyncio.Queue[str] = asyncio.Queue()
        self._model_delay = 0.0
        self._last_sent: dict[str, str] = {}
        self._active_turns: dict[str, str] = {}
        self._model_calls: dict[tuple[str, str], tuple[str, float]] = {}
        self._turn_started = asyncio.Event()

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Store the session's only active turn, to which its next model calls belong."""
        session = invocation_context.session.id
        active_turn = sa.select(turns.c.id).where(turns.c.session == session, turns.c.state.in_(ACTIVE_STATES))
        async with self._database.read() as connection:
            self._active_turns[session] = (await connection.execute(active_turn)).scalar_one_or_none() or ""
        await self._queue_turns()
        self._turn_started.set()

    async def run(self) -> None:
        """Connect to the page, and send queued updates until cancelled or disconnected.

        A failed connection is logged. So is a failed poll of the turns, and the next one follows after
        `IDLE_POLL_SECONDS`.
        """
        try:
            async with aiohttp.ClientSession() as session, session.ws_connect(self._address) as socket:
                loops = (self._send_updates(socket), self._receive_settings(socket), self._poll_turns())
                tasks = [asyncio.create_task(loop, name="inspector") for loop in loops]
                try:
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
        except (aiohttp.ClientError, OSError) as error:
            log.warning("no connection to the simulator's page: %s", type(error).__name__)

    async def _send_updates(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            await socket.send_str(await self._updates.get())

    async def _receive_settings(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        async for message in socket:
            self._model_delay = float(json.loads(message.data)["model_delay"])

    async def _poll_turns(self) -> None:
        async def poll() -> None:
            is_any_active = await self._queue_turns()
            self._turn_started.clear()
            try:
                async with asyncio.timeout(ACTIVE_POLL_SECONDS if is_any_active else IDLE_POLL_SECONDS):
                    await self._turn_started.wait()
            except TimeoutError:
                pass

        failure = "the turns for the simulator's page cannot be read"
        await run_every(0, poll, failure=failure, retry_seconds=IDLE_POLL_SECONDS)

    def send_models(self, names: Sequence[str], *, uses_default: bool, replaced: Sequence[str]) -> None:
        """Queue the models that answer: see `AgentModels`."""
        fields = {"names": names, "uses_default": uses_default, "replaced": replaced}
        self._queue_update("agent_models", {"id": "", **fields})

    def _queue_update(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Queue an update for the page, unless it equals the last one of its kind and id."""
        update = json.dumps({kind: fields}, ensure_ascii=False, default=str)
        key = f"{kind} {fields['id']}"
        if self._last_sent.get(key) != update:
            self._last_sent[key] = update
            self._updates.put_nowait(update)

    async def _queue_turns(self) -> bool:
        """Queue the newest turns that changed, and their tool calls; return whether one is active."""
        reports = list(reversed(await self._reports.list(limit=MAX_TURNS)))
        is_reported = turns.c.id.in_([report.id for report in reports])
        run = sa.func.coalesce(turns.c.run, turns.c.origin)
        called = sa.select(tool_calls, turns.c.id.label("turn_id")).join(turns, tool_calls.c.run == run)
        async with self._database.read() as connection:
            titles = await _load_titles(connection, is_reported)
            oldest_first = called.where(is_reported).order_by(turns.c.created_at, tool_calls.c.started_at)
            calls = {(call.run, call.id): call for call in await connection.execute(oldest_first)}
        for report in reports:
            self._queue_update("turn", _turn_json(report) | {"title": redact_secrets(titles.get(report.id, ""))})
        for call in calls.values():
            self._queue_update("tool_call", _tool_json(call, call.turn_id))
        return any(report.state in ACTIVE_STATES for report in reports)

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        """Queue the prompt of a model call in a turn for the page, and delay the call."""
        context = callback_context._invocation_context
        turn = self._active_turns.get(context.session.id)
        if not turn:
            return
        sent = convert_messages(llm_request.contents, llm_request.config.system_instruction)
        call_id = uuid4().hex
        self._model_calls[context.invocation_id, callback_context.agent_name] = call_id, time.monotonic()
        prompt: Json = {
            "messages": [_message_json(message) for message in sent],
            "tools": list(llm_request.tools_dict),
            "cut": await self._describe_cut(context.session.id, [event.id for event in context.session.events]),
        }
        call = {"id": call_id, "turn": turn, "agent": callback_context.agent_name, "model": llm_request.model or ""}
        counts = {"message_count": len(sent), "cut_count": prompt["cut"]["count"]}
        self._queue_update("model_call", {**call, "prompt": prompt, **counts})
        await asyncio.sleep(self._model_delay)

    async def after_model_callback(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> None:
        """Queue the first text or the end of an answer in a turn; delay each part of a stream."""
        call = self._current_call(callback_context)
        if call is None:
            return
        if llm_response.partial:
            if f"model_response {call['id']}" not in self._last_sent:
                self._queue_update("model_response", {**call, "first_text_seconds": call["seconds"]})
            await asyncio.sleep(self._model_delay / 10)
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
        end = {"tokens": tokens, "ended": True, "error": llm_response.error_code or ""}
        self._queue_update("model_response", {**call, **end})

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> None:
        if (call := self._current_call(callback_context)) is not None:
            self._queue_update("model_response", {**call, "ended": True, "error": type(error).__name__})

    def _current_call(self, context: CallbackContext) -> Json | None:
        found = self._model_calls.get((context.invocation_id, context.agent_name))
        turn = self._active_turns.get(context._invocation_context.session.id)
        if found is None or not turn:
            return None
        return {"id": found[0], "turn": turn, "seconds": round(time.monotonic() - found[1], 3)}

    async def _describe_cut(self, session: str, sent: Iterable[str]) -> Json:
        """Return a session's messages since its last reset that are not in a prompt."""
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
        newest = [
            {
                "role": "user" if row.role in USER_ROLES else row.role,
                "text": redact_secrets(row.content[:MAX_PART_CHARS]),
            }
            for row in rows[-MAX_CUT_MESSAGES:]
        ]
        return {"count": len(rows), "tokens": sum(row.tokens for row in rows), "newest": newest}


def _turn_json(report: TurnReport) -> Json:
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
        "context": None if report.run_record is None else asdict(report.run_record.context),
        "created_at": report.created_at,
        "seconds": None if report.duration_seconds is None else round(report.duration_seconds, 3),
    }


async def _load_titles(connection: AsyncConnection, condition: sa.ColumnElement[bool]) -> dict[str, str]:
    """Return the texts of each turn's messages, or else the decisions that started it."""
    messages_of_turns = (
        sa.select(turns.c.id, inbox.c.message).join(inbox, inbox.c.turn == turns.c.origin).where(condition)
    )
    texts: dict[str, list[str]] = {}
    for turn, inbound in await connection.execute(messages_of_turns.order_by(inbox.c.sent_at)):
        if text := (inbound or {}).get("text"):
            texts.setdefault(turn, []).append(str(text))
    first = turns.alias()
    c = human_requests.c
    decisions_of_turns = sa.select(turns.c.id, c.decision, c.tool, c.arguments).join(
        first, first.c.id == turns.c.origin
    )
    decisions_of_turns = decisions_of_turns.join(
        human_requests, (c.turn == first.c.parent) & c.decision.is_not(None)
    ).where(condition)
    subjects: dict[str, dict[str, list[str]]] = {}
    for turn, decision, tool, arguments in await connection.execute(decisions_of_turns.order_by(c.requested_at, c.id)):
        question = arguments.get("message") if tool == INPUT_CALL else None
        subjects.setdefault(turn, {}).setdefault(_DECISIONS[decision], []).append(str(question or tool))
    decisions = {
        turn: "; ".join(f"{label}: {' · '.join(names)}" for label, names in groups.items())
        for turn, groups in subjects.items()
    }
    return decisions | {turn: "\n".join(lines) for turn, lines in texts.items()}


def _tool_json(call: sa.Row[Any], turn: str) -> Json:
    result = None if call.result is None else json.dumps(call.result, ensure_ascii=False)[:MAX_PART_CHARS]
    arguments = json.dumps(call.arguments, ensure_ascii=False)[:MAX_PART_CHARS]
    fields = {"id": f"{call.run} {call.id}", "turn": turn, "tool": call.tool, "state": call.state}
    return {**fields, "arguments": redact_secrets(arguments), "result": result and redact_secrets(result)}


def _message_json(message: ModelMessage) -> Json:
    return {"role": message.role, "parts": [_part_json(part) for part in message.parts]}


def _part_json(part: Part) -> list[str]:
    """Return the kind and the text of a part, cut and with secrets redacted, for the page."""
    kind, text = describe_part(part)
    return [kind, redact_secrets(text[:MAX_PART_CHARS])]
