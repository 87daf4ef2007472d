"""Answers a turn: runs the agent and shows what it says, to one end that the user sees."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict

from channels import words
from channels.channel import Channel, Priority
from channels.reply import Reply
from core.errors import ParleyError, SessionResetError, SurfaceError
from core.models.provider import Usage
from core.runtime import AgentRuntime
from core.turns import Ended, Turn, Turns
from core.worker import RESET

log = logging.getLogger(__name__)


class Answerer:
    """Runs turns for the worker.

    Args:
        channels: the adapters by name.
        time_limit: the most seconds that one run of the agent may take.
    """

    def __init__(
        self, runtime: AgentRuntime, turns: Turns, channels: Mapping[str, Channel], *, time_limit: float
    ) -> None:
        self._runtime = runtime
        self._turns = turns
        self._channels = channels
        self._time_limit = time_limit

    async def answer(self, turn: Turn) -> None:
        """Run `turn` to its end. Cancelled, it still closes the reply with a word on why."""
        async with self._reply(turn) as reply:
            try:
                usage = await self._run(turn, reply)
            except asyncio.CancelledError as stop:
                await self._stopped(turn, reply, was_reset=stop.args == (RESET,))
                raise
            except SessionResetError:
                await self._stopped(turn, reply, was_reset=True)
            except TimeoutError:
                await self._close(turn, reply, words.apology(words.TOO_LONG, turn.id), "failed", "time limit")
            except Exception as error:
                log.exception("turn %s: the agent failed", turn.id)
                sentence = error.public if isinstance(error, ParleyError) else ParleyError.public
                cause = type(error).__name__
                await self._close(turn, reply, words.apology(sentence, turn.id), "failed", cause)
            else:
                text = reply.text if reply.text.strip() else words.NO_ANSWER
                await self._turns.answered(turn.id, text, asdict(usage))
                await self._show(turn, reply, text, "done")

    async def recover(self, turn: Turn) -> None:
        """End a turn that was left by a process that is gone: show its answer, or apologise for it."""
        async with self._reply(turn) as reply:
            if turn.text is None:
                await self._close(turn, reply, words.INTERRUPTED, "failed", "the process ended")
            else:
                await self._show(turn, reply, turn.text, "done")

    @asynccontextmanager
    async def _reply(self, turn: Turn) -> AsyncIterator[Reply]:
        """The turn's reply; what cannot be shown ends the turn, and the log says why."""
        surface = self._channels[turn.inbound.channel].surface(turn.inbound.address, turn_id=turn.id)

        async def keep(ids: Sequence[str]) -> None:
            await self._turns.shown(turn.id, ids)

        try:
            async with Reply(surface, known=turn.chunks, keep=keep) as reply:
                yield reply
        except SurfaceError as error:
            log.error("turn %s: the reply cannot be shown: %s", turn.id, error)
            await self._turns.end(turn.id, "failed", error=str(error))

    async def _run(self, turn: Turn, reply: Reply) -> Usage:
        """Run the agent and feed the reply."""
        inbound = turn.inbound
        async with asyncio.timeout(self._time_limit):
            heard = await self._channels[inbound.channel].read(inbound)
            events = self._runtime.stream(
                user_id=inbound.place, session_id=inbound.session_id, text=heard.text, speaker=heard.speaker
            )
            async with aclosing(events):
                async for event in events:
                    match event.type:
                        case "text_delta":
                            reply.feed(event.text)
                        case "step_reset":
                            reply.replace(event.text)
                        case "tool_start":
                            reply.status(words.using(event.tool))
                        case "tool_end":
                            reply.status("")
                        case "error" if event.error is not None and not event.call_id:
                            raise event.error
                        case "done":
                            reply.replace(event.text)
                            return event.usage
        raise ParleyError("the run ended without an outcome")

    async def _stopped(self, turn: Turn, reply: Reply, *, was_reset: bool) -> None:
        if was_reset:
            await self._close(turn, reply, words.RESET_STOPPED, "cancelled", "reset")
        else:
            await self._close(turn, reply, words.INTERRUPTED, "failed", "the process was stopped")

    async def _close(self, turn: Turn, reply: Reply, line: str, state: Ended, cause: str) -> None:
        """End the reply with `line` below what was said so far."""
        said = reply.text.rstrip()
        await self._show(turn, reply, f"{said}\n\n{line}" if said else line, state, cause=cause)

    async def _show(self, turn: Turn, reply: Reply, text: str, state: Ended, *, cause: str | None = None) -> None:
        priority = Priority.ERROR if state == "failed" else Priority.FINAL
        await reply.close(text, priority)
        await self._turns.end(turn.id, state, error=cause)
