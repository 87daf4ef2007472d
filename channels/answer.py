"""Answers a turn: runs the agent and shows what it says, to one end that the user sees."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict

from channels import words
from channels.channel import Button, Channel, Priority
from channels.intake import RETRY
from channels.reply import MOST_MESSAGES, Reply
from core.errors import ParleyError, SessionResetError, StoreError, SurfaceError
from core.inbound import storable
from core.models.provider import Usage
from core.runtime import AgentRuntime
from core.secrets import traced
from core.turns import Ended, Turn, Turns
from core.worker import RESET

log = logging.getLogger(__name__)


class Answerer:
    """Runs turns for the worker.

    Args:
        channels: the adapters by name.
        time_limit: the most seconds that one run of the agent may take.
        most_messages: how many messages a reply may have; of a longer one, a file holds the whole.
    """

    def __init__(
        self,
        runtime: AgentRuntime,
        turns: Turns,
        channels: Mapping[str, Channel],
        *,
        time_limit: float,
        most_messages: int = MOST_MESSAGES,
    ) -> None:
        self._runtime = runtime
        self._turns = turns
        self._channels = channels
        self._time_limit = time_limit
        self._most_messages = most_messages

    async def answer(self, turn: Turn) -> None:
        """Run `turn` to its end. Cancelled, it still closes the reply with a word on why."""
        await self._in_reply(turn, self._answer)

    async def recover(self, turn: Turn) -> None:
        """End a turn that was left by a process that is gone: show its answer, or apologise for it.

        What stands of its reply is looked up, since a process may end between a post and its record.
        """
        await self._in_reply(turn, self._recover, is_left=True)

    async def _in_reply(
        self, turn: Turn, work: Callable[[Turn, Reply], Awaitable[None]], *, is_left: bool = False
    ) -> None:
        """Do `work` in the turn's reply. A reply that cannot be shown ends the turn, and the log says why; what
        the database makes of that is told in `core.turns`.
        """

        async def keep(ids: Sequence[str]) -> None:
            await self._turns.shown(turn.id, ids)

        try:
            surface = self._channel(turn).surface(turn.inbound.address, turn_id=turn.origin)
            known = tuple(await surface.find(turn.chunks)) if is_left else turn.chunks
            if known != turn.chunks:
                await keep(known)
            async with Reply(surface, known=known, keep=keep, most=self._most_messages) as reply:
                await work(turn, reply)
        except StoreError:
            raise
        except Exception as error:
            log.error("turn %s: the reply cannot be shown: %s", turn.id, traced(error))
            await self._turns.end(turn.id, "failed", error=_cause(error))

    async def _answer(self, turn: Turn, reply: Reply) -> None:
        is_kept = False
        try:
            try:
                usage = await self._run(turn, reply)
                text = reply.text if reply.text.strip() else words.NO_ANSWER
                await self._turns.answered(turn.id, text, asdict(usage))
            except SessionResetError:
                await self._close(turn, reply, words.RESET_STOPPED, "cancelled", "reset")
            except TimeoutError:
                await self._close(turn, reply, words.apology(words.TOO_LONG, turn.id), "failed", "time limit")
            except SurfaceError:
                raise
            except Exception as error:
                log.error("turn %s failed: %s", turn.id, traced(error))
                sentence = error.public if isinstance(error, ParleyError) else ParleyError.public
                await self._close(turn, reply, words.apology(sentence, turn.id), "failed", _cause(error))
            else:
                is_kept = True
                await self._show(turn, reply, text)
        except asyncio.CancelledError as stop:
            if stop.args == (RESET,):
                await self._close(turn, reply, words.RESET_STOPPED, "cancelled", "reset")
            elif not is_kept:  # what is kept is shown by the next start
                await self._close(turn, reply, words.INTERRUPTED, "failed", "the process was stopped")
            raise

    async def _recover(self, turn: Turn, reply: Reply) -> None:
        if turn.text is None:
            await self._close(turn, reply, words.INTERRUPTED, "failed", "the process ended")
        else:
            await self._show(turn, reply, turn.text)

    def _channel(self, turn: Turn) -> Channel:
        channel = self._channels.get(turn.inbound.channel)
        if channel is None:
            raise SurfaceError(f"the channel {turn.inbound.channel} is not set up")
        return channel

    async def _run(self, turn: Turn, reply: Reply) -> Usage:
        """Run the agent and feed the reply."""
        inbound = turn.inbound
        async with asyncio.timeout(self._time_limit):
            heard = await self._channel(turn).read(inbound)
            events = self._runtime.stream(
                user_id=inbound.place,
                session_id=inbound.session_id,
                text=heard.text,
                speaker=heard.speaker,
                run_id=turn.origin,
            )
            async with aclosing(events):
                async for event in events:
                    match event.type:
                        case "text_delta":
                            reply.feed(storable(event.text))
                        case "step_reset":
                            reply.replace(storable(event.text))
                        case "tool_start":
                            reply.status(words.using(event.tool))
                        case "tool_end":
                            reply.status("")
                        case "error" if event.error is not None and not event.call_id:
                            raise event.error
                        case "done":
                            reply.replace(storable(event.text))
                            return event.usage
        raise ParleyError("the run ended without an outcome")

    async def _close(self, turn: Turn, reply: Reply, line: str, state: Ended, cause: str) -> None:
        """End the reply with `line` below what was said so far. What failed can be tried again."""
        said = reply.said.rstrip()
        controls = [Button(f"{RETRY}:{turn.id}", words.RETRY)] if state == "failed" else []
        priority = Priority.ERROR if state == "failed" else Priority.FINAL
        await reply.close(said, priority, ending=line, controls=controls)
        await self._turns.end(turn.id, state, error=cause)

    async def _show(self, turn: Turn, reply: Reply, text: str) -> None:
        await reply.close(text)
        await self._turns.end(turn.id, "done")


def _cause(error: Exception) -> str:
    """For operators, and free of secrets."""
    return f"{type(error).__name__}: {error}" if isinstance(error, ParleyError) else type(error).__name__
