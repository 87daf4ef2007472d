"""Prompt of a turn: texts and files of its messages, and its authors' rights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from google.genai.types import Part

from channels.access import AccessDecision, AccessPolicy
from channels.base import MessageText
from channels.intake.attachments import AttachmentReader, PromptFiles
from channels.intake.context import ContextBuilder
from channels.platform import Platform
from channels.settings import AttachmentLimits
from core.agents.run_record import RunRecorder
from core.agents.runtime import AgentRuntime
from core.conversations.history_state import HistoryState
from core.messages.identity import ANONYMOUS_USER, BOT_PREFIX, Actor, User
from core.messages.inbox_message import InboxMessage, storable_text
from core.sessions.prompt_text import AttributedPrompt
from core.sessions.state import TEMPORARY_PREFIX
from core.turns.store import TurnStore
from core.turns.turn import Turn


@dataclass(frozen=True, slots=True)
class Prompt:
    """Prompt of a turn, as input of a run of the agent.

    Attributes:
        bot_name: the bot's display name; empty if it is unknown.
        authors: the author of each of the turn's messages.
        state: the `MessageText.agent_context` of the newest message, under a key of the agent's state: `temp:` and the
            adapter's name, such as `temp:slack`. Empty without such a context.
        time_zone: that of the newest message.
    """

    attributed_prompt: AttributedPrompt
    media: Sequence[Part]
    bot_name: str = ""
    authors: Sequence[User] = ()
    state: Mapping[str, Any] = field(default_factory=dict)
    time_zone: str = ""


class PromptBuilder:
    """Builds the prompt of a turn from the texts, files and context of its messages."""

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
        """Return a turn without the messages whose authors have lost access meanwhile; None if none is left.

        The stored turn stays as it is.
        """
        allowed = tuple(
            message
            for message in turn.messages
            if _is_hook(message)
            or self._access_policy.check(message.actor_or_author, message.location) is AccessDecision.ALLOWED
        )
        if len(allowed) == len(turn.messages):
            return turn
        return replace(turn, messages=allowed) if allowed else None

    async def list_spent_messages(self, turn: Turn) -> tuple[InboxMessage, ...]:
        """Return the messages of a turn whose authors have reached their spending limit, if others have not.

        They are left out of the prompt. If the run has stored its prompt, they are the messages that it lacks. If all
        authors have reached their limit, none is returned: `build` then raises an error.

        Raises:
            SpendingLimitError: the turn repeats a stored prompt, and the limit of one of its authors is reached.
        """
        authors = {f"{message.platform}:{message.author}": message.author for message in turn.messages}
        if len(authors) == 1:
            return ()
        written = await self._turns.get_prompt_authors(turn)
        spent = set[str]()
        if written is None or not turn.is_resumed:  # a run that has begun goes on
            errors = await turn.meter.find_spent_authors(authors)
            spent = {authors[key] for key in errors}
            if written is not None and len(written) > 1 and spent & written:
                raise next(iter(errors.values()))
        missing = tuple(
            message
            for message in turn.messages
            if (message.author in spent if written is None else message.author not in written)
        )
        return missing if len(missing) < len(turn.messages) else ()

    async def build(
        self,
        turn: Turn,
        platform: Platform,
        runtime: AgentRuntime,
        recorder: RunRecorder,
        left_out: Sequence[InboxMessage] = (),
        *,
        history: HistoryState | None = None,
    ) -> Prompt:
        """Read the texts, files and context of a turn's messages, and return the prompt.

        If the run has stored its prompt, files are not downloaded, and `media` is empty. The author and place are set
        on the turn's usage meter. The turn is without `left_out`, the result of `list_spent_messages`.

        Args:
            history: the end of the history, if the messages of `turn` are further ones, which its run is to read.

        Raises:
            SurfaceError: the platform cannot read a message: see `Platform.read_message`.
            SpendingLimitError: a spending limit is reached.
        """
        texts: Sequence[MessageText] = [await platform.read_message(message) for message in turn.messages]
        agent_context = texts[-1].agent_context
        turn.meter.place = turn.newest_message.place
        turn.meter.author = f"{turn.newest_message.platform}:{turn.newest_message.author}"
        turn.meter.author_name = storable_text(texts[-1].speaker)
        await turn.meter.check_limits(
            runtime.get_model_name(turn.model), lambda: 0
        )  # before files are fetched and messages stored
        authors = [
            self._to_user(message, prompt_text.speaker)
            for message, prompt_text in zip(turn.messages, texts, strict=True)
        ]
        context = await self._context.fetch(turn, platform, texts, left_out, history)
        recorder.context = context.quotes.record
        quoted = context.list_messages()
        files = PromptFiles()
        is_referenced = any(message.attachments for message in quoted)
        has_files = is_referenced or any(message.attachments for message in turn.messages)
        if has_files and (history is not None or not await self._turns.has_stored_prompt(turn)):
            supported = runtime.get_media_support(turn.model)
            given = await self._turns.list_history_files(turn) if is_referenced else ()
            texts, files = await self._attachments.read(
                platform, turn.messages, texts, supported, context=quoted, given=given
            )
            recorder.set_files(files.records)
        return Prompt(
            context.build_prompt(turn.messages, texts, files),
            files.media,
            next((text.bot_name for text in texts if text.bot_name), ""),
            authors,
            {f"{TEMPORARY_PREFIX}{platform.name}": dict(agent_context)} if agent_context else {},
            texts[-1].time_zone,
        )

    async def list_speakers(self, turn: Turn, platform: Platform, prompt: Prompt, *, continues: bool) -> list[User]:
        """Return the people whose words are in the run of a turn, each once.

        Tools have the rights that all of them have. They are the authors of the turn's messages. If the run has read
        more before, or `continues` another one by an answer to its question, they are also the authors of its earlier
        messages and of the runs that it continues, and the people who answered its questions. A person who only
        approves or retries is not among them. The result of a job of several people adds a person without rights.
        """
        speakers = {author.id: author for author in prompt.authors}
        if any(message.trigger is not None and message.trigger.is_shared for message in turn.messages):
            speakers[ANONYMOUS_USER.id] = ANONYMOUS_USER
        is_new_run = turn.run is None and turn.kind in ("message", "revise") and not turn.is_resumed
        if is_new_run and not continues:
            return list(speakers.values())
        run = await self._turns.get_run_authors(turn)
        for message in run.messages:
            if message.author not in speakers:
                speakers[message.author] = self._to_user(message, (await platform.read_message(message)).speaker)
        for answer in run.answers:
            actor = Actor(answer["platform"], answer["id"], tuple(answer["roles"]))
            speakers.setdefault(actor.author, self._access_policy.to_user(actor, answer["name"]))
        return [*speakers.values(), *([] if run.is_complete else [ANONYMOUS_USER])]

    def _to_user(self, message: InboxMessage, name: str) -> User:
        return self._access_policy.to_user(message.actor_or_author, name, message.location.workspace)


def _is_hook(message: InboxMessage) -> bool:
    """Return whether an operator's hook began the turn, or its job: no person's access counts then."""
    return message.trigger is not None and message.author.startswith(f"{BOT_PREFIX}hook:")
