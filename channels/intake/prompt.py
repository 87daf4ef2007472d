"""Prompt of a turn: texts and files of its messages, and its authors' rights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from google.genai.types import Part

from channels.access import AccessDecision, AccessPolicy
from channels.base import Channel, MessageText
from channels.intake.attachments import AttachmentReader
from channels.intake.context import ContextBuilder
from channels.settings import AttachmentLimits
from core.agents.run_record import RunRecorder
from core.agents.runtime import AgentRuntime
from core.errors import DamagedTurnError
from core.identity import User, intersect_rights
from core.inbox_message import InboxMessage, storable_text
from core.sessions.prompt_text import AttributedPrompt
from core.sessions.state import TEMPORARY_PREFIX
from core.turns.store import TurnStore
from core.turns.turn import Turn


@dataclass(frozen=True, slots=True)
class Prompt:
    """Prompt of a turn, as input of a run of the agent.

    Attributes:
        attributed_prompt: the text, with the author of each part.
        media: the files that the model reads.
        speaker: one user, with the rights that all authors have; tools act for this user. If the turn continues a run,
            the authors of the run's earlier messages are included.
        bot_name: the bot's display name; empty if it is unknown.
        authors: the authors of the turn's messages.
        state: the `MessageText.agent_context` of the newest message, under a key of the agent's state: `temp:` and the
            adapter's name, such as `temp:slack`. Empty without such a context.
    """

    attributed_prompt: AttributedPrompt
    media: Sequence[Part]
    speaker: User
    bot_name: str = ""
    authors: Sequence[User] = ()
    state: Mapping[str, Any] = field(default_factory=dict)


class PromptBuilder:
    """Builds the prompt of a turn from the texts, files and context of its messages.

    Args:
        turns: the store of the turns.
        context: builds the prompt text from the texts and their context messages.
        access_policy: the users and places that the bot answers.
        attachment_limits: the limits of the attachments that the model reads.
    """

    def __init__(
        self,
        turns: TurnStore,
        context: ContextBuilder,
        access_policy: AccessPolicy,
        attachment_limits: AttachmentLimits,
    ) -> None:
        self._turns = turns
        self._context = context
        self._access_policy = access_policy
        self._attachments = AttachmentReader(attachment_limits)

    def remove_denied_messages(self, turn: Turn) -> Turn | None:
        """Return a turn without the messages whose authors have lost access meanwhile.

        The stored turn stays as it is.

        Returns:
            The turn; None if no message is left.
        """
        allowed = tuple(
            message
            for message in turn.messages
            if self._access_policy.check(message.actor_or_author, message.location) is AccessDecision.ALLOWED
        )
        if len(allowed) == len(turn.messages):
            return turn
        return replace(turn, messages=allowed) if allowed else None

    async def build(self, turn: Turn, channel: Channel, runtime: AgentRuntime, recorder: RunRecorder) -> Prompt:
        """Read the texts, files and context of a turn's messages, and return the prompt.

        If the run has stored its prompt, attachments are not downloaded, and `media` is empty. The author and place are
        set on the turn's usage meter.

        Args:
            channel: the adapter that received the messages.
            runtime: the runtime of the agent that answers.
            recorder: stores the number of context messages and the files, for the turn report.

        Raises:
            DamagedTurnError: a stored message of the turn cannot be read.
            StoreError: the history or the stored prompt cannot be read.
            SurfaceError: the platform cannot read a message: see `Channel.read_message`.
            SpendingLimitError: a spending limit is reached.
        """
        if turn.is_damaged:
            raise DamagedTurnError(f"turn {turn.id}: its stored messages cannot be read")
        texts: Sequence[MessageText] = [await channel.read_message(message) for message in turn.messages]
        files: Sequence[Part] = ()
        context = texts[-1].agent_context
        turn.meter.place = turn.newest_message.place
        turn.meter.author = f"{turn.newest_message.channel}:{turn.newest_message.author}"
        turn.meter.author_name = storable_text(texts[-1].speaker)
        await turn.meter.check_limits(
            runtime.get_model_name(turn.model), lambda: 0
        )  # before files are fetched and messages stored
        speakers = [
            self._to_speaker(message, prompt_text.speaker)
            for message, prompt_text in zip(turn.messages, texts, strict=True)
        ]
        authors = tuple(speakers)
        speakers += await self._list_earlier_authors(turn, channel)
        if any(message.attachments for message in turn.messages) and not await self._turns.has_stored_prompt(turn):
            supported = runtime.get_media_support(turn.model)
            texts, files, uses = await self._attachments.read(channel, turn.messages, texts, supported)
            recorder.set_files(uses)
        attributed_prompt, recorder.context = await self._context.build(turn, channel, texts)
        return Prompt(
            attributed_prompt,
            files,
            intersect_rights(speakers),
            next((text.bot_name for text in texts if text.bot_name), ""),
            authors,
            {f"{TEMPORARY_PREFIX}{channel.name}": dict(context)} if context else {},
        )

    async def _list_earlier_authors(self, turn: Turn, channel: Channel) -> list[User]:
        """Return the authors of earlier messages to which the turn's run goes back.

        A run that continues after an approval goes back to the messages that led to the approval. Authors of the
        turn's own messages are left out. The list is empty if the turn continues no run.
        """
        current_authors = {message.author for message in turn.messages}
        others = {
            message.author: message
            for message in await self._turns.get_message_chain(turn)
            if message.author not in current_authors
        }
        return [self._to_speaker(message, (await channel.read_message(message)).speaker) for message in others.values()]

    def _to_speaker(self, message: InboxMessage, name: str) -> User:
        author = message.actor_or_author
        return User(
            id=author.author,
            name=name,
            roles=frozenset(author.roles),
            is_admin=self._access_policy.is_admin(author),
            platform=author.platform,
            workspace=message.location.workspace,
        )
