"""Answerer: runs the agent for a turn, and shows the reply until the turn ends."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from channels.base import Button, Priority
from channels.commands.services import PlatformServices
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.intake.context import ContextBuilder
from channels.intake.prompt import PromptBuilder
from channels.intake.steering import SteeringReader, may_be_steered, may_read
from channels.platform import Platforms
from channels.rate_limits.retries import RefusedError
from channels.replies.buttons import answer_buttons, create_button, growing_buttons
from channels.replies.reply import Reply
from channels.replies.tool_status import ToolStatus
from channels.requests.question_message import entry_error_text
from channels.settings import ExtraButton, ReplySettings
from channels.turns.error_messages import (
    ErrorMessages,
    add_model_note,
    add_notice,
    announce_restart,
    error_summary,
    log_level,
    post_as_file,
    spending_notice,
)
from channels.turns.schedules import add_schedules, schedule_buttons
from channels.turns.sources import add_sources
from channels.turns.tool_chat import TurnChat
from channels.turns.turn_state import Answer, ReplyLatency, TurnState
from channels.turns.update_after_edit import load_files
from core.agents.events import StreamEvent
from core.agents.run_record import RunRecorder
from core.agents.runtime import AgentRuntime, RunRequest
from core.errors import (
    ParleyError,
    SessionResetError,
    StoreError,
    SurfaceError,
    TurnLostError,
    is_permanent_store_error,
)
from core.messages.inbox_message import storable_text
from core.observability.secret_redaction import describe_failure, format_error
from core.store.turn_states import EndState
from core.tools.adk_requests import SignInDecision
from core.tools.human_request_service import AgentRequest
from core.tools.human_requests import MessageAnswerResult
from core.turns.automation.context import AutomationContext
from core.turns.automation.schedules import Schedule
from core.turns.steering import MayRead, SteeringQueue
from core.turns.store import TurnStore
from core.turns.turn import CancelReason, Turn

log = logging.getLogger(__name__)

#: The message below a cancelled reply, by the reason of the cancel.
_CANCEL_MESSAGES = {
    CancelReason.RESET: words.STOPPED_BY_RESET,
    CancelReason.STOP: words.STOPPED,
    CancelReason.MESSAGE_DELETED: words.STOPPED_BY_DELETION,
}


#: Returns the queue of the messages that a running turn is to read.
OpenSteering = Callable[[Turn, MayRead], SteeringQueue]


class _MessageIsAnswerError(Exception):
    """The turn's message answers an agent's question, so that no agent is run for it.

    The `text` is for the reply, in the author's language; the `cause` is for operators, stored with the turn.
    """

    def __init__(self, text: str, cause: str) -> None:
        super().__init__(cause)
        self.text = text
        self.cause = cause


class Answerer:
    """Answers the turns that a worker has claimed: runs the agent and shows the reply.

    Without `error_messages`, the texts name no administrators. `runtime` is that of the default agent. Without
    `open_steering`, all messages that come while a turn runs wait for the next turn.
    """

    def __init__(
        self,
        runtime: AgentRuntime,
        turns: TurnStore,
        platforms: Platforms,
        services: PlatformServices,
        context: ContextBuilder,
        *,
        settings: ReplySettings | None = None,
        error_messages: ErrorMessages | None = None,
        other_runtimes: Mapping[str, AgentRuntime] = MappingProxyType({}),
        open_steering: OpenSteering | None = None,
    ) -> None:
        self._runtime = runtime
        self._other_runtimes = other_runtimes
        self._turns = turns
        self._platforms = platforms
        self._settings = settings or ReplySettings()
        self._prompt_builder = PromptBuilder(turns, context, services.access_policy, self._settings.attachment_limits)
        self._conversations = services.conversations
        self._human_requests = services.human_requests
        self._schedules = services.schedules
        self._jobs = services.jobs
        self._error_messages = error_messages or ErrorMessages()
        self._request_messages = services.request_messages
        self._rerenderer = services.rerenderer
        self._turn_states = services.rerenderer.turn_states
        self._access_policy = services.access_policy
        self._open_steering = open_steering

    async def answer(self, turn: Turn) -> None:
        """Run the agent for a claimed turn, show its reply, and end the turn.

        If the turn was claimed before, its reply is continued. The reply's messages are then looked up on the platform,
        since the former worker may have died before it stored the id of one. If the reply cannot be shown, the turn
        ends as failed.

        Raises:
            CancelledError: the task was cancelled with a `CancelReason`. The reply says so, and the turn is ended. At a
                shutdown the turn is released for another worker; for `LEASE_LOST` nothing is done.
            TurnLostError: another worker has claimed the turn.
            StoreError: the database cannot be used, and the turn is not ended. After more than `max_attempts` claims,
                an error that a retry would repeat ends the turn as failed, and is not raised.
        """

        async def save_ids(ids: Sequence[str]) -> None:
            await self._turns.save_message_ids(turn, ids)

        state = self._turn_states[turn.id] = TurnState(ReplyLatency(turn))
        try:
            platform = self._platforms[turn.newest_message.platform]
            surface = platform.create_surface(turn.newest_message.address, turn_id=turn.origin)
            for place in [*(platform.create_surface(message.address) for message in turn.messages[:-1]), surface]:
                if turn.may_have_queued_reaction:
                    place.mark_queued_reaction_added()
                if place is not surface:
                    place.remove_queued_reaction()
            known_ids = turn.message_ids
            if turn.is_resumed:
                known_ids = tuple(await surface.find_message_ids(turn.message_ids, stops_stream=True))
            if known_ids != turn.message_ids:
                await save_ids(known_ids)
            say = words.messages_for(await words.resolve_locale(platform.get_locale(turn.newest_message)))
            if (
                turn.is_resumed
                and turn.fault is None
                and (latest := await self._conversations.get_latest_turn(turn.id)) is not None
            ):
                state.is_revised = latest.is_revised
            async with Reply(
                surface,
                known_ids=known_ids,
                save_ids=save_ids,
                check_owned=partial(self._turns.check_owned, turn),
                max_messages=self._settings.max_messages,
                say=say,
                buttons=growing_buttons(turn.id, say, is_revised=state.is_revised),
                on_shown=state.latency.record_shown,
                has_placeholder=turn.is_addressed and turn.text is None,  # a stored answer is shown at once
            ) as reply:
                state.reply = reply
                await self._answer_in_reply(turn, reply)
        except asyncio.CancelledError as cancel:
            if state.reply is None and cancel.args == (CancelReason.SHUTDOWN,):
                await self._turns.hand_back(turn, turn.partial_text)
            raise
        except Exception as error:
            if isinstance(error, StoreError) and (
                turn.claim_number <= self._settings.max_attempts or not is_permanent_store_error(error)
            ):
                raise
            log.error("turn %s: the reply cannot be shown: %s", turn.id, format_error(error))
            await self._turns.end(turn, "failed", error=error_summary(error), run_record=self._run_record(turn))
        finally:
            self._turn_states.pop(turn.id, None)

    async def _answer_in_reply(self, turn: Turn, reply: Reply) -> None:
        """Run the turn, or show its stored answer or cancel, in the reply; end the turn.

        If the platform refuses the text, it is attached as a file, and the error is raised: the turn is not ended.
        """
        try:
            if turn.text is not None and turn.cancel in (None, CancelReason.RESET):
                await self._show_saved_answer(turn, reply, turn.text)
            elif turn.cancel is not None:
                reply.replace(turn.text or turn.partial_text)
                await self._handle_cancel(turn, reply, turn.cancel)
            elif turn.fault is not None:
                await self._fail(turn, reply, turn.fault)
            elif isinstance(runnable := self._check_runnable(turn), Turn):
                await self._run_turn(runnable, reply)
            else:
                await self._close_with_message(turn, reply, *runnable)
        except asyncio.CancelledError as cancel:
            reason = cancel.args[0] if cancel.args else CancelReason.LEASE_LOST
            await self._handle_cancel(turn, reply, reason)
            raise
        except RefusedError:
            _, files, _ = self._turn_states[turn.id].answer or ("", (), ())
            await post_as_file(reply, turn.id, reply.text_without_ending, files)
            raise

    async def _show_saved_answer(self, turn: Turn, reply: Reply, text: str) -> None:
        """Show an answer that an earlier attempt stored, and end the turn.

        If the answer's files or approvals can never be read, the reply shows the text and an error, and the turn ends
        as failed. After more than `max_attempts` attempts, the text is attached as a file, and the turn ends as failed.
        """
        if turn.attempt > self._settings.max_attempts:
            await post_as_file(reply, turn.id, text, (), words.TOO_MANY_ATTEMPTS)
            cause = f"{self._settings.max_attempts} workers died before they showed it"
            return await self._turns.end(turn, "failed", error=cause)
        if not text:  # the agent declined to answer
            return await self._end_without_answer(turn, reply)
        try:
            files = await load_files(self._runtime, turn.session_id, turn.origin)
            answer = text, files, await self._human_requests.list_of_turn(turn.id)
        except Exception as error:
            if not is_permanent_store_error(error):
                raise
            reply.replace(text)
            return await self._fail(turn, reply, error)
        return await self._show_answer(turn, reply, answer)

    def _check_runnable(self, turn: Turn) -> Turn | tuple[str, EndState, str]:
        """Return the turn to run, without messages whose authors have lost access.

        If nothing can be run, return the untranslated sentence to show, the end state, and the reason for operators.
        """
        if turn.kind == "decision" and turn.run is None:
            return words.ANSWER_NOT_STORED, "cancelled", "the run that it continues is not stored any more"
        if turn.kind == "decision" and self._other_runtimes and turn.agent not in self._other_runtimes:
            return words.AGENT_REMOVED, "cancelled", f"the agent {turn.agent} is not configured any more"
        if turn.attempt > self._settings.max_attempts:
            return words.TOO_MANY_ATTEMPTS, "failed", f"{self._settings.max_attempts} workers died while they ran it"
        denied: tuple[str, EndState, str] = (words.ACCESS_REVOKED, "cancelled", "all authors have lost access")
        return self._prompt_builder.remove_denied_messages(turn) or denied

    async def _run_turn(self, turn: Turn, reply: Reply) -> None:
        recorder = self._turn_states[turn.id].recorder = RunRecorder()
        try:
            async with asyncio.timeout(self._settings.time_limit):
                done = await self._run_agent(turn, reply, recorder)
            files = await load_files(self._runtime, turn.session_id, turn.origin)
            requests: list[AgentRequest] = [*done.confirmations, *done.questions, *done.sign_ins]
            notice = self._turn_states[turn.id].notice
            schedules = await self._list_schedules(turn)
            is_declined = not (turn.is_addressed or reply.text.strip() or files or requests or schedules)
            if is_declined and not notice:
                await self._turns.save_answer(turn, "", turn.meter.to_json(), recorder.run_record)
                return await self._end_without_answer(turn, reply)
            text = add_model_note(reply.text, done.calls, reply.say)
            text = add_sources(text, done.sources, reply.say)
            text = await add_schedules(text, schedules, self._schedules, reply.say)
            if requests:
                empty = reply.say(_get_request_text(done))
                text = add_notice(text if text.strip() else empty, notice)
                human_requests = await self._human_requests.save_answer(
                    turn, text, turn.meter.to_json(), requests, recorder.run_record
                )
            else:
                empty = reply.say(words.ONLY_FILES if files else words.NO_ANSWER)
                text = add_notice(text if text.strip() or is_declined else empty, notice)
                human_requests = []
                await self._turns.save_answer(turn, text, turn.meter.to_json(), recorder.run_record)
        except SessionResetError:
            return await self._handle_cancel(turn, reply, CancelReason.RESET)
        except _MessageIsAnswerError as ending:
            return await self._close_with_message(turn, reply, ending.text, "cancelled", ending.cause)
        except TimeoutError:
            return await self._close_with_message(turn, reply, words.TOO_LONG, "failed", "time limit")
        except (SurfaceError, TurnLostError):
            raise
        except Exception as error:
            return await self._fail(turn, reply, error)
        return await self._show_answer(turn, reply, (text, files, human_requests))

    async def _run_agent(self, turn: Turn, reply: Reply, recorder: RunRecorder) -> StreamEvent:
        """Run the agent, show its text and tools in the reply, return the `done` event.

        A cancel of this call cancels the run. At a shutdown, running tools first get `TOOL_TIMEOUT_SECONDS` to end.
        """
        tools = ToolStatus()
        run = asyncio.create_task(self._stream_events(turn, reply, recorder, tools), name=f"run of turn {turn.id}")
        try:
            return await asyncio.shield(run)
        except asyncio.CancelledError as cancel:
            if cancel.args == (CancelReason.SHUTDOWN,):
                await tools.wait_until_idle()
            raise
        finally:
            run.cancel()
            await asyncio.wait([run])

    async def _stream_events(self, turn: Turn, reply: Reply, recorder: RunRecorder, tools: ToolStatus) -> StreamEvent:
        """Build the prompt, run the agent, pass its text and tool status to the reply, and return the `done` event."""
        runtime = self._other_runtimes.get(turn.agent, self._runtime)
        decisions = await self._human_requests.list_decisions(turn.origin) if turn.run is not None else ()
        platform = self._platforms[turn.newest_message.platform]
        if left_out := await self._prompt_builder.list_spent_messages(turn):
            turn = replace(turn, messages=tuple(message for message in turn.messages if message not in left_out))
            self._turn_states[turn.id].notice = await spending_notice(platform, left_out, reply.say)
        prompt = await self._prompt_builder.build(turn, platform, runtime, recorder, left_out)
        text = prompt.attributed_prompt
        answered = await self._human_requests.answer_with_message(turn, prompt.authors, text.unattributed_text)
        self._check_message(turn, answered, reply.say)
        speakers = await self._prompt_builder.list_speakers(turn, platform, prompt, continues=bool(answered.answers))
        automation = self._turn_states[turn.id].automation = AutomationContext(
            turn.newest_message,
            turn.origin,
            turn.generation,
            speakers,
            prompt.time_zone,
            platform.can_post(turn.newest_message.address),
            self._schedules,
            self._jobs,
        )
        is_signed_in = any(isinstance(decision, SignInDecision) for decision in decisions)
        if turn.is_resumed or is_signed_in:  # the worker that took the decision may have died before it was shown
            for request in await self._human_requests.list_decided(turn.origin):
                self._request_messages.start_update(request)
        read_messages = None
        if self._open_steering is not None and may_be_steered(turn, speakers):
            queue = self._open_steering(turn, partial(may_read, turn, access_policy=self._access_policy))
            reader = SteeringReader(queue, self._prompt_builder, turn, platform, runtime, reply, tools)
            read_messages = reader.read
        events = runtime.stream(
            RunRequest(
                user_id=turn.newest_message.place,
                session_id=turn.session_id,
                text=text.text,
                attributed_prompt=text,
                media=prompt.media,
                speakers=speakers,
                bot_name=prompt.bot_name,
                is_addressed=turn.is_addressed,
                model=turn.model,
                run_id=turn.run_id,
                generation=turn.generation,
                fence=self._turns.fencing_token(turn),
                decisions=decisions,
                answers=answered.answers,
                state=prompt.state,
                automation=automation,
                chat=TurnChat(platform, turn.newest_message.address, prompt.time_zone),
                meter=turn.meter,
                read_messages=read_messages,
            )
        )
        async with aclosing(events):
            async for event in events:
                recorder.record_event(event)
                match event.type:
                    case "text_delta":
                        reply.feed(storable_text(event.text))
                    case "step_reset":
                        reply.replace(reply.say.translate_ending(storable_text(event.text)))
                    case "error" if event.error is not None and not event.call_id:
                        raise event.error
                    case "tool_start" | "tool_wait" | "tool_end" | "error":
                        tools.update(event, reply.say)
                        reply.show_status(tools.line, tools.calls)
                    case "done":
                        reply.replace(reply.say.translate_ending(storable_text(event.text)))
                        return event
        raise ParleyError("the run ended without an outcome")

    def _check_message(self, turn: Turn, answered: MessageAnswerResult, say: MessageCatalog) -> None:
        """Update the message of an agent's question, in the background, if the turn's message answered it.

        Raises:
            _MessageIsAnswerError: the agent is not run, since the answer does not fit the question, or the same turn
                has other open questions.
        """
        if answered.question is None:
            return
        if answered.error is not None:
            reason = entry_error_text(answered.error, say)
            raise _MessageIsAnswerError(say(words.ANSWER_REFUSED, why=reason), "it does not fit the question")
        self._request_messages.start_update(answered.question)
        if not answered.answers:
            raise _MessageIsAnswerError(say(words.ANSWER_NOTED), "other questions are open")

    async def _handle_cancel(self, turn: Turn, reply: Reply, reason: CancelReason) -> None:
        """Close the reply with a sentence on the cancel, and end the turn.

        At a shutdown, the turn is released for another worker instead. For `LEASE_LOST`, nothing is done. A reset does
        not delete a complete answer without approvals: it is still shown.
        """
        match reason:
            case CancelReason.RESET if (answer := self._turn_states[turn.id].answer) and not answer[-1]:
                await self._show_answer(turn, reply, answer)  # the answer is complete and waits for no approval
            case CancelReason.RESET | CancelReason.STOP | CancelReason.MESSAGE_DELETED:
                await self._close_with_message(turn, reply, _CANCEL_MESSAGES[reason], "cancelled", reason)
            case CancelReason.SHUTDOWN:
                if not reply.is_closed:  # the next attempt shows the stored answer
                    await announce_restart(
                        reply,
                        turn.id,
                        growing_buttons(turn.id, reply.say, is_revised=self._turn_states[turn.id].is_revised),
                    )
                await reply.abandon()
                await self._turns.hand_back(turn, reply.text_without_ending.rstrip())

    async def _fail(self, turn: Turn, reply: Reply, error: Exception) -> None:
        line, details = describe_failure(error)
        log.log(log_level(error), "turn %s failed: %s", turn.id, line, extra=details)
        sentence = await self._error_messages.describe(error, turn, reply.say)
        await self._close_with_message(turn, reply, sentence, "failed", error_summary(error))

    async def _close_with_message(self, turn: Turn, reply: Reply, sentence: str, state: EndState, cause: str) -> None:
        """Close a reply with an untranslated sentence below the text so far, then end the turn.

        The state `failed` adds the turn's id and a *Retry* button. The cause `CancelReason.STOP` adds the buttons of a
        finished answer.
        """
        text = reply.text_without_ending.rstrip()
        say = reply.say
        text = add_notice(text, self._turn_states[turn.id].notice)
        schedules = await self._list_schedules(turn)
        text = await add_schedules(text, schedules, self._schedules, say)
        if state == "failed":
            buttons = [create_button("retry", turn.id, say), *schedule_buttons(schedules, say)]
            await reply.close(text, Priority.ERROR, ending=say.format_error_with_id(sentence, turn.id), buttons=buttons)
        else:
            buttons = (
                self._answer_buttons(turn, say, self._settings.extra_buttons - {"feedback"})
                if cause == CancelReason.STOP
                else []
            )
            buttons = [*schedule_buttons(schedules, say), *buttons]
            await reply.close(text, ending=say(sentence), buttons=buttons)
        await self._turns.end(turn, state, error=cause, run_record=self._run_record(turn))

    async def _show_answer(self, turn: Turn, reply: Reply, answer: Answer) -> None:
        """Show the final text and files, then each approval or question as a message of its own; end the turn."""
        text, files, requests = self._turn_states[turn.id].answer = answer
        controls = schedule_buttons(await self._list_schedules(turn), reply.say)
        controls += self._answer_buttons(turn, reply.say, frozenset() if requests else self._settings.extra_buttons)
        await reply.close(text, buttons=controls, files=files)
        self._turn_states[turn.id].latency.record_final()
        for request in requests:
            await self._turns.check_owned(turn)
            await self._request_messages.update(request)
        await self._turns.end(turn, "done")

    async def _end_without_answer(self, turn: Turn, reply: Reply) -> None:
        """Delete the reply, and end the turn as done: the agent declined to answer.

        The caller has checked that no message of the turn is addressed to the bot.
        """
        await reply.discard()
        await self._turns.end(turn, "done")

    async def _list_schedules(self, turn: Turn) -> list[Schedule]:
        """Return the schedules that a turn has made; the database is read only if there may be some."""
        automation = self._turn_states[turn.id].automation
        may_have = turn.is_resumed or (automation is not None and automation.has_schedules)
        return await self._schedules.list_of_turn(turn.origin) if may_have else []

    def _run_record(self, turn: Turn) -> dict[str, Any] | None:
        recorder = self._turn_states[turn.id].recorder
        return recorder.run_record if recorder is not None else None

    def _answer_buttons(self, turn: Turn, say: MessageCatalog, extra_buttons: Set[ExtraButton]) -> list[Button]:
        excluded = {"regenerate"} if turn.run is not None else set()  # a decided call is not run again
        return answer_buttons(turn.id, say, extra_buttons - excluded, is_revised=self._turn_states[turn.id].is_revised)


def _get_request_text(done: StreamEvent) -> str:
    """Return the untranslated sentence of a reply without a text, whose run waits for people."""
    if done.confirmations:
        return words.NEEDS_APPROVAL
    return words.HAS_QUESTION if done.questions else words.NEEDS_SIGN_IN
