"""Steering: reads the messages that the author of a running turn sends meanwhile, as prompts for its next model call.

A run reads only messages by whose author, with the same rights, it runs already. All others wait for the next turn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from channels.access import AccessDecision, AccessPolicy
from channels.i18n import messages as words
from channels.intake.prompt import PromptBuilder
from channels.platform import Platform
from channels.replies.reply import Reply
from channels.replies.tool_status import ToolStatus
from core.agents.run_record import RunRecorder
from core.agents.runtime import AgentRuntime
from core.conversations.history_state import HistoryState
from core.messages.identity import User
from core.messages.inbox_message import InboxMessage
from core.sessions.prompt_text import SteeringPrompt
from core.turns.steering import SteeringQueue
from core.turns.turn import Turn


def may_be_steered(turn: Turn, speakers: Sequence[User]) -> bool:
    """Return whether the run of a turn may read further messages: a message of its only author began it."""
    is_own_run = turn.run is None and not turn.is_triggered
    return is_own_run and [speaker.id for speaker in speakers] == [turn.newest_message.author]


def may_read(turn: Turn, message: InboxMessage, access_policy: AccessPolicy) -> bool:
    """Return whether the run of a turn may read a further message of the turn's author.

    A message that must be answered is not read by a turn that may end without an answer.
    """
    actor = message.actor_or_author
    has_access = access_policy.check(actor, message.location) is AccessDecision.ALLOWED
    has_same_rights = access_policy.to_user(actor, "") == access_policy.to_user(turn.newest_message.actor_or_author, "")
    return has_access and has_same_rights and (turn.is_addressed or not message.is_addressed)


@dataclass(slots=True)
class SteeringReader:
    """Reads the waiting messages of one running turn, and shows in its reply that they were read."""

    queue: SteeringQueue
    prompts: PromptBuilder
    turn: Turn
    platform: Platform
    runtime: AgentRuntime
    reply: Reply
    tools: ToolStatus

    async def read(self) -> list[SteeringPrompt]:
        """Return the messages for the next model call, each once.

        Raises:
            StoreError, SurfaceError, SpendingLimitError: as for the prompt of a turn: see `PromptBuilder.build`.
        """
        read = list[SteeringPrompt]()
        for steering in await self.queue.take():
            message = steering.message
            surface = self.platform.create_surface(message.address)
            surface.mark_queued_reaction_added()
            surface.remove_queued_reaction()
            history = HistoryState(since=self.turn.newest_message.sent_at)
            self.turn = replace(self.turn, messages=(message,))
            prompt = await self.prompts.build(self.turn, self.platform, self.runtime, RunRecorder(), history=history)
            read.append(SteeringPrompt(steering.event_id, prompt.attributed_prompt, prompt.media))
        if read:
            self.reply.show_status(self.reply.say(words.READ_MESSAGE), self.tools.calls)
        return read
