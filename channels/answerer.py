"""Answers a turn: runs the agent and shows what it says, to one end that the user sees."""

import asyncio
import logging
from collections.abc import Mapping, Sequence, Set
from contextlib import aclosing
from functools import partial
from types import MappingProxyType
from typing import Any

from channels.access import Door
from channels.base import Button, Channel, Priority
from channels.i18n import messages as words
from channels.i18n.messages import Words
from channels.intake.context import Context
from channels.intake.prompt import Asking
from channels.rate_limits.caller import RefusedError
from channels.replies.approval_message import show_request
from channels.replies.buttons import button, growing, under_answer
from channels.replies.error_messages import Apologies, cause_of, instead, level, marked, restarting
from channels.replies.reply import Reply
from channels.replies.rerender import Standing, made
from channels.replies.tool_status import Tools
from channels.replies.turn_state import Answer, AtWork, Delays
from channels.settings import Extra, ReplySettings
from core.agents.events import StreamEvent
from core.agents.run_record import Clerk
from core.agents.runtime import AgentRuntime, RunRequest
from core.concurrency.tasks import Work
from core.conversations.service import ConversationService, LatestTurn
from core.errors import ParleyError, SessionResetError, StoreError, SurfaceError, TurnLostError, lasts
from core.inbox_message import InboxMessage, storable_text
from core.secret_redaction import traced
from core.store.turn_states import Ended
from core.tools.approvals import Approval, Approvals
from core.turns import store as turns
from core.turns.store import TurnStore
from core.turns.turn import Turn

log = logging.getLogger(__name__)

#: What is said of a turn that is ended, by the reason.
_LAST_WORDS = {turns.RESET: words.RESET_STOPPED, turns.STOP: words.STOPPED, turns.WITHDRAWN: words.WITHDRAWN}


class Answerer:
    """Runs turns for the worker.

    Args:
        runtime: of the agent that answers unless the turn names one of the `others`.
        channels: the adapters by name.
        apologies: finds the words for why there is none.
    """

    def __init__(
        self,
        runtime: AgentRuntime,
        turns: TurnStore,
        channels: Mapping[str, Channel],
        conversations: ConversationService,
        context: Context,
        *,
        approvals: Approvals,
        door: Door,
        settings: ReplySettings | None = None,
        apologies: Apologies | None = None,
        others: Mapping[str, AgentRuntime] = MappingProxyType({}),
    ) -> None:
        self._runtime = runtime
        self._others = others
        self._turns = turns
        self._channels = channels
        self._settings = settings or ReplySettings()
        self._asking = Asking(turns, context, door, self._settings.allowance)
        self._conversations = conversations
        self._approvals = approvals
        self._apologies = apologies or Apologies()
        self._standing = Standing(runtime, conversations, approvals, self._settings)
        self._at_work = dict[str, AtWork]()  # by the ids of the turns
        self._work = Work()

    async def answer(self, turn: Turn) -> None:
        """Run `turn` to its end; one that was begun before goes on with what stands. Cancelled, it still closes the
        reply with a word on why, or hands the turn back.

        What stands of a resumed turn's reply is looked up, since a process may end between a post and its record. A
        reply that cannot be shown ends the turn, and the log says why; what the database makes of that is told in
        `core.turns.store`.
        """

        async def keep(ids: Sequence[str]) -> None:
            await self._turns.save_message_ids(turn, ids)

        at_work = self._at_work[turn.id] = AtWork(Delays(turn))
        try:
            channel = self._channel(turn.newest_message)
            surface = channel.create_surface(turn.newest_message.address, turn_id=turn.origin)
            for place in [*(channel.create_surface(message.address) for message in turn.messages[:-1]), surface]:
                if turn.may_have_queued_reaction:
                    place.assume_queued_reaction()
                if place is not surface:
                    await place.remove_queued_reaction()
            known = turn.chunks
            if turn.is_resumed:  # a worker that has lost it may only be slow
                known = tuple(await surface.find_message_ids(turn.chunks, is_contested=turn.attempt > 1))
            if known != turn.chunks:
                await keep(known)
            say = words.of(await words.told(channel.get_locale(turn.newest_message)))
            if turn.is_resumed and (latest := await self._conversations.get_latest_turn(turn.id)) is not None:
                at_work.is_revised = latest.is_revised
            async with Reply(
                surface,
                known=known,
                keep=keep,
                hold=partial(self._turns.check_owned, turn),
                most=self._settings.most_messages,
                say=say,
                controls=growing(turn.id, say, is_revised=at_work.is_revised),
                seen=at_work.delays.seen,
            ) as reply:
                at_work.reply = reply
                await self._in_reply(turn, reply)
        except asyncio.CancelledError as stop:
            if at_work.reply is None and stop.args == (turns.SHUTDOWN,):
                await self._turns.hand_back(turn, turn.partial_text)
            raise
        except Exception as error:
            if isinstance(error, StoreError) and (
                turn.claim_number <= self._settings.most_attempts or not lasts(error)
            ):
                raise
            log.error("turn %s: the reply cannot be shown: %s", turn.id, traced(error))
            await self._turns.end(turn, "failed", error=cause_of(error), receipt=self._receipt(turn))
        finally:
            self._at_work.pop(turn.id, None)
            if at_work.reply is not None and at_work.reply.orphans:
                deleting = self._standing.delete_orphans(turn.id, surface, at_work.reply.orphans)
                self._work.watch(asyncio.create_task(deleting, name=f"orphans of {turn.id}"))

    async def aclose(self) -> None:
        """Delete no more."""
        await self._work.end(0.0)

    async def reshow(self, turn_id: str, *, ending: str = "") -> None:
        """Show the reply of a turn as it is to be seen now that what it answers was edited or deleted: at once while
        it grows here, else when the turn has ended. A reply of which no text is kept, or not all messages stand, stays
        as it is.

        Args:
            ending: a sentence to be seen below it, in the place of the buttons.

        Raises:
            StoreError: what is kept of it cannot be read.
            SurfaceError: it cannot be shown.
        """
        latest = await self._conversations.get_latest_turn(turn_id)
        if latest is not None and not self._offer(latest):
            await self._standing.show(self._channel(latest.inbound), latest, ending=ending)

    async def reask(self, approval: Approval, *, is_void: bool = False) -> None:
        """Show a request as it stands: what is to be decided, or what was.

        Args:
            is_void: whether there is nothing to decide any more, though nobody has.

        Raises:
            StoreError: the ids of its messages cannot be kept.
            SurfaceError: it cannot be shown.
        """
        await show_request(self._channel(approval.inbound), self._approvals, approval, is_void=is_void)

    def _offer(self, latest: LatestTurn) -> bool:
        """Show other buttons under a reply that grows here; false if it does not."""
        at_work = self._at_work.get(latest.turn_id)
        if at_work is None or at_work.reply is None or at_work.reply.is_closed:
            return False
        at_work.is_revised = latest.is_revised
        at_work.reply.offer(growing(latest.turn_id, at_work.reply.say, is_revised=latest.is_revised))
        return True

    async def _in_reply(self, turn: Turn, reply: Reply) -> None:
        try:
            if turn.cancel is not None:
                reply.replace(turn.text or turn.partial_text)
                await self._cancelled(turn, reply, turn.cancel)
            elif turn.text is not None:
                await self._show_kept(turn, reply, turn.text)
            elif isinstance(admitted := self._admitted(turn), Turn):
                await self._run(admitted, reply)
            else:
                await self._close(turn, reply, *admitted)
        except asyncio.CancelledError as stop:
            await self._cancelled(turn, reply, str(stop.args[0]) if stop.args else turns.LOST)
            raise
        except RefusedError:
            _, files, _ = self._at_work[turn.id].answer or ("", (), ())
            await instead(reply, turn.id, reply.said, files)
            raise

    async def _show_kept(self, turn: Turn, reply: Reply, text: str) -> None:
        """Show an answer that is kept; if its rest never can be read, its text with the reason."""
        if turn.attempt > self._settings.most_attempts:
            await instead(reply, turn.id, text, (), words.TRIED)
            cause = f"{self._settings.most_attempts} workers did not live to show it"
            return await self._turns.end(turn, "failed", error=cause)
        reply.replace(text)
        try:
            files = await made(self._runtime, turn.session_id, turn.origin)
            answer = text, files, await self._approvals.asked(turn.id)
        except Exception as error:
            if not lasts(error):
                raise
            return await self._fail(turn, reply, error)
        return await self._show(turn, reply, answer)

    def _admitted(self, turn: Turn) -> Turn | tuple[str, Ended, str]:
        """The turn as it is to be run; or how one that cannot be ends: what who asked is told, the state, the cause."""
        if turn.kind == "approval" and turn.run is None:
            return words.FORGOTTEN, "cancelled", "nothing waits for it any more"
        if turn.kind == "approval" and self._others and turn.agent not in self._others:
            return words.ASKER_GONE, "cancelled", f"the agent {turn.agent} is gone"
        if turn.attempt > self._settings.most_attempts:
            return words.TRIED, "failed", f"{self._settings.most_attempts} workers did not live to its end"
        nobody: tuple[str, Ended, str] = (words.NOT_YOU_NOW, "cancelled", "nobody who asked may speak any more")
        return self._asking.admitted(turn) or nobody

    async def _run(self, turn: Turn, reply: Reply) -> None:
        """Run the agent and show what it says, to one end."""
        clerk = self._at_work[turn.id].clerk = Clerk()
        try:
            async with asyncio.timeout(self._settings.time_limit):
                done = await self._agent_said(turn, reply, clerk)
            text = marked(reply.text, done.calls, reply.say)
            files = await made(self._runtime, turn.session_id, turn.origin)
            if done.asks:
                text = text if text.strip() else reply.say(words.ASKS)
                asked = await self._approvals.answered(turn, text, turn.meter.to_json(), done.asks, clerk.receipt)
            else:
                text = text if text.strip() else reply.say(words.NO_ANSWER)
                asked = []
                await self._turns.save_answer(turn, text, turn.meter.to_json(), clerk.receipt)
        except SessionResetError:
            return await self._cancelled(turn, reply, turns.RESET)
        except TimeoutError:
            return await self._close(turn, reply, words.TOO_LONG, "failed", "time limit")
        except (SurfaceError, TurnLostError):
            raise
        except Exception as error:
            return await self._fail(turn, reply, error)
        return await self._show(turn, reply, (text, files, asked))

    async def _agent_said(self, turn: Turn, reply: Reply, clerk: Clerk) -> StreamEvent:
        """Feed the reply with what the agent says, to its end. What hands the turn back lets tools at work end."""
        tools = Tools()
        saying = asyncio.create_task(self._say(turn, reply, clerk, tools), name=f"run of turn {turn.id}")
        try:
            return await asyncio.shield(saying)
        except asyncio.CancelledError as stop:
            if stop.args == (turns.SHUTDOWN,):
                await tools.rest()
            raise
        finally:
            saying.cancel()
            await asyncio.wait([saying])

    async def _say(self, turn: Turn, reply: Reply, clerk: Clerk, tools: Tools) -> StreamEvent:
        runtime = self._others.get(turn.agent, self._runtime)
        decisions = await self._approvals.decisions(turn.origin) if turn.run is not None else ()
        channel = self._channel(turn.newest_message)
        asked = await self._asking.of(turn, channel, runtime, clerk)
        events = runtime.stream(
            RunRequest(
                user_id=turn.newest_message.place,
                session_id=turn.session_id,
                text=asked.spoken.text,
                spoken=asked.spoken,
                media=asked.media,
                speaker=asked.speaker,
                bot_name=asked.bot_name,
                model=turn.model,
                run_id=turn.run or turn.origin,
                generation=turn.generation,
                fence=self._turns.fencing_token(turn),
                decisions=decisions,
                meter=turn.meter,
            )
        )
        async with aclosing(events):
            async for event in events:
                clerk.take(event)
                match event.type:
                    case "text_delta":
                        reply.feed(storable_text(event.text))
                    case "step_reset":
                        reply.replace(reply.say.ending(storable_text(event.text)))
                    case "tool_start":
                        reply.status(tools.began(event, reply.say))
                    case "tool_end":
                        reply.status(tools.ended(event))
                    case "error" if event.error is not None and not event.call_id:
                        raise event.error
                    case "done":
                        reply.replace(reply.say.ending(storable_text(event.text)))
                        return event
        raise ParleyError("the run ended without an outcome")

    def _channel(self, inbound: InboxMessage) -> Channel:
        if (channel := self._channels.get(inbound.channel)) is None:
            raise SurfaceError(f"the channel {inbound.channel} is not set up")
        return channel

    async def _cancelled(self, turn: Turn, reply: Reply, reason: str) -> None:
        """End what was cancelled, or leave it to another worker."""
        match reason:
            case turns.RESET | turns.STOP | turns.WITHDRAWN:
                await self._close(turn, reply, _LAST_WORDS[reason], "cancelled", reason)
            case turns.SHUTDOWN:
                if not reply.is_closed:  # what is kept is shown by the next one
                    await restarting(
                        reply, turn.id, growing(turn.id, reply.say, is_revised=self._at_work[turn.id].is_revised)
                    )
                await reply.leave()
                await self._turns.hand_back(turn, reply.said.rstrip())

    async def _fail(self, turn: Turn, reply: Reply, error: Exception) -> None:
        log.log(level(error), "turn %s failed: %s", turn.id, traced(error))
        sentence = await self._apologies.why(error, turn, reply.say)
        await self._close(turn, reply, sentence, "failed", cause_of(error))

    async def _close(self, turn: Turn, reply: Reply, sentence: str, state: Ended, cause: str) -> None:
        """End the reply with a sentence below what was said; what failed or was stopped can be answered after all."""
        said, say = reply.said.rstrip(), reply.say
        if state == "failed":
            controls = [button("retry", turn.id, say)]
            await reply.close(said, Priority.ERROR, ending=say.apology(sentence, turn.id), controls=controls)
        else:
            controls = (
                self._under(turn, say, self._settings.extras - {"feedback", "why"}) if cause == turns.STOP else []
            )
            await reply.close(said, ending=say(sentence), controls=controls)
        await self._turns.end(turn, state, error=cause, receipt=self._receipt(turn))

    async def _show(self, turn: Turn, reply: Reply, answer: Answer) -> None:
        """Show the final text, and below it, each in a message of its own, what people are asked for."""
        text, files, asked = self._at_work[turn.id].answer = answer
        controls = self._under(turn, reply.say, frozenset() if asked else self._settings.extras)
        await reply.close(text, controls=controls, files=files)
        self._at_work[turn.id].delays.ended()
        for approval in asked:
            await self._turns.check_owned(turn)
            await self.reask(approval)
        await self._turns.end(turn, "done")

    def _receipt(self, turn: Turn) -> dict[str, Any] | None:
        """What a turn was made of, as far as it has run here."""
        clerk = self._at_work[turn.id].clerk
        return clerk.receipt if clerk is not None else None

    def _under(self, turn: Turn, say: Words, extras: Set[Extra]) -> list[Button]:
        once = {"regenerate"} if turn.run is not None else set()  # what somebody has decided is done, and not once more
        return under_answer(turn.id, say, extras - once, is_revised=self._at_work[turn.id].is_revised)
