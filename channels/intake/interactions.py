"""Interactions: commands, button presses, menu entries and submitted forms.

An interaction is stored before the platform gets its acknowledgement, and deleted once processed. Slack and Discord
deliver it once: if a worker dies, another worker processes the stored interactions of the dead one.
"""

import asyncio
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal

from channels.base import Button
from channels.commands.handlers import CommandContext, CommandResult, command_limit_message, prompt_limit_message
from channels.i18n import messages as words
from channels.intake.handler import IncomingMessage, MessageHandler
from channels.services import ChannelServices
from core.errors import StoreError, SurfaceError
from core.identity import Actor, User
from core.inbox_message import InboxMessage
from core.privacy.vault import Cipher
from core.secret_redaction import format_error

log = logging.getLogger(__name__)

#: Seconds after which an interaction is acknowledged, stored or not. Slack and Discord wait for 3 seconds, and a
#: statement that waits for a lock of SQLite cannot be interrupted.
ACK_SECONDS = 1.5

#: Seconds that identifying the author may take before the interaction is stored without the author's identity.
AUTHORIZE_TIMEOUT_SECONDS = 1.0

#: A "form" is a request to open a form: it is acknowledged by the form itself and not stored. The user then submits a
#: "prompt" for the agent, or an "answer" to a question of the agent.
Kind = Literal["command", "press", "prompt", "menu", "form", "answer"]

#: Action of an entry in the menu of a message: it shows the turn report of the answer, or rates the answer.
MenuAction = Literal["why", "good", "bad"]

#: Awaited with a sentence: deletes a posted prompt, and sends its author the sentence with the reason.
Retract = Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Interaction:
    """Command, button press, menu entry or submitted form of a user.

    Attributes:
        kind: `command`, `press` of a button, `menu` entry, or `form` to open. Of submitted forms, `prompt` is a
            text for the agent, and `answer` answers a question of the agent.
        context: the author, the place and the event key. Its `actor` is None until the author is identified.
        values: the input (JSON): of a command its `name` and `argument`; of a press the `button`; of a prompt its
            `text` and what the adapter needs to show it; of a menu entry its `action`, the id of the `message`, its
            event `key` and perhaps the ids of its `files`; of an answer the id of the agent's `question`, the `page` of
            its form and the `entries`.
        surface: what the adapter needs to answer the interaction, such as its token (JSON).
        name: the author's display name.
    """

    kind: Kind
    context: CommandContext
    values: Mapping[str, Any]
    surface: Mapping[str, Any]
    name: str = ""

    @property
    def id(self) -> str:
        """The event key: the same for each delivery of the interaction."""
        return self.context.event_key

    def to_json(self) -> dict[str, Any]:
        """Return the interaction as JSON for the database: see `from_json`.

        The keys are the attributes of the interaction, without `id`. In the JSON, `CommandContext.until` is the time at
        which the interaction was sent: a delayed `stop` or reset must not affect messages that were sent after it.
        """
        return asdict(replace(self, context=replace(self.context, until=self.context.sent_at)))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Interaction":
        """Return the interaction in the output of `to_json`."""
        return cls(**{**data, "context": CommandContext.from_json(data["context"])})


#: Returns an interaction with its author and place, or a refusal (empty for one that the author is not told).
Identify = Callable[[], Awaitable[Interaction | str]]


class InteractionHandler(ABC):
    """Base of handlers that store, check and process a platform's interactions.

    A subclass parses interactions, and shows their results on the platform.

    Args:
        intake: checks access, and accepts prompts as messages.
        cipher: encrypts the stored interactions.

    Attributes:
        channel: the name of the adapter.
        must_refuse: whether each refused interaction, except a button press, must get an answer, since the platform
            would show a failure. Otherwise a user is told once an hour that they have no access.
        form_page_size: the most fields on a page of a form; 0 for no limit.
    """

    channel: ClassVar[str]
    must_refuse: ClassVar[bool]
    form_page_size: ClassVar[int] = 0

    def __init__(self, services: ChannelServices, intake: MessageHandler, cipher: Cipher) -> None:
        self._services = services
        self._intake = intake
        self._cipher = cipher
        self._queue = services.interactions
        self._orphans: asyncio.Task[None] | None = None

    @abstractmethod
    async def answer(self, interaction: Interaction, result: CommandResult) -> None:
        """Show the result of an interaction, only to its author if the platform permits.

        Otherwise its private content is left out.

        Raises:
            SurfaceError: the result cannot be shown.
        """

    async def refuse(self, interaction: Interaction, text: str) -> None:
        """Show only the author why the interaction is not processed.

        Args:
            text: the translated reason.

        Raises:
            SurfaceError: the text cannot be shown.
        """
        await self.answer(interaction, CommandResult(text))

    async def close_form(self, interaction: Interaction) -> None:
        """Delete the private message from which the author opened a submitted form.

        By default there is no such message, and nothing is done.
        """
        del interaction

    @abstractmethod
    async def post_prompt(self, interaction: Interaction) -> tuple[InboxMessage, Retract] | None:
        """Post a user's prompt for the agent, so that others see it too.

        Args:
            interaction: the command, form or menu entry by which the user asked.

        Returns:
            The posted prompt as a message to answer, and a function that deletes the prompt and tells its author the
            reason. None if the prompt cannot be shown and the author was told.

        Raises:
            SurfaceError: the prompt cannot be shown, and the author was not told.
        """

    async def find_session(self, interaction: Interaction) -> Interaction | None:
        """Return a command with the id of the session to which it applies.

        A platform may show the author the sessions to choose from, if they are several.

        Returns:
            The command, by default unchanged; None if the author was asked to choose a session. Their choice arrives as
            another interaction.
        """
        return interaction

    def start(self) -> None:
        """Start to process the stored interactions of dead workers, until `stop`."""
        work = self._queue.run_orphaned(self.channel, self._run_orphaned)
        self._orphans = asyncio.create_task(work, name=f"{self.channel} interactions")

    async def stop(self, seconds: float) -> None:
        """Cancel the task that processes interactions of dead workers.

        Args:
            seconds: the most seconds to wait for the end of the task; the call then returns.
        """
        if self._orphans is not None:
            self._orphans.cancel()
            await asyncio.wait([self._orphans], timeout=seconds)  # the database may hang

    async def receive(
        self,
        interaction: Interaction,
        identify: Identify,
        acknowledge: Callable[[Interaction], Awaitable[bool]],
    ) -> None:
        """Store an interaction, acknowledge it within `ACK_SECONDS`, and process it.

        A second delivery, or an interaction whose acknowledgement fails, is not processed. A refusal is shown to the
        author. If the database cannot store the interaction, it is processed all the same. `StoreError` and
        `SurfaceError` of the processing are logged.

        Args:
            identify: returns the interaction with its author and place; if it is refused, the reason to show.
            acknowledge: sends the acknowledgement; returns whether the platform accepts it. If not, the platform has
                told the author of the failure. For a refused interaction, its argument has `context.is_private` set.

        Raises:
            Exception: raised by `identify` or `acknowledge`.
        """
        storing = asyncio.create_task(self._store(interaction, identify), name="interaction")
        try:
            await asyncio.wait([storing], timeout=ACK_SECONDS)
            if storing.done() and isinstance(storing.result(), str):
                interaction = replace(interaction, context=replace(interaction.context, is_private=True))
            is_acknowledged = await acknowledge(interaction)
            stored = await storing
        finally:
            storing.cancel()
        if isinstance(stored, str):
            await self._refuse(interaction, stored)
        elif stored is not None and is_acknowledged:
            await self._process(stored)
        elif stored is not None:
            await self._queue.remove(stored.id)

    async def authorize(self, identify: Identify) -> Interaction | str:
        """Identify an interaction's author, and check their access.

        Of a prompt, the rate limits are checked, too; nothing is counted. For notices of missing access see
        `MessageHandler.get_refusal`.

        Args:
            identify: returns the interaction with its author and place; if it is refused, the reason to show.

        Returns:
            The identified interaction. If it is refused, the translated reason to show; empty if the author is not told
            now.

        Raises:
            Exception: raised by `identify`.
        """
        identified = await identify()
        if isinstance(identified, str):
            return identified
        refusal = await self._get_refusal(identified)
        return identified if refusal is None else refusal

    async def _store(self, interaction: Interaction, identify: Identify) -> Interaction | str | None:
        """Store an interaction, unless it is refused within `AUTHORIZE_TIMEOUT_SECONDS`.

        If its author is not identified by then, it is stored as it is, and deleted if it is refused later.

        Returns:
            The identified interaction; the reason of a refusal (see `authorize`); None if the interaction was
            delivered before.
        """
        authorizing = asyncio.create_task(self.authorize(identify), name="authorize")
        try:
            await asyncio.wait([authorizing], timeout=AUTHORIZE_TIMEOUT_SECONDS)
            known = authorizing.result() if authorizing.done() else interaction
            if isinstance(known, str):
                return known
            payload = self._cipher.encrypt(json.dumps(known.to_json()))
            if not await self._queue.add(self.channel, known.id, payload):
                return None
            authorized = await authorizing
        finally:
            authorizing.cancel()
        if isinstance(authorized, str):
            await self._queue.remove(interaction.id)
        return authorized

    async def _get_refusal(self, interaction: Interaction) -> str | None:
        """Return the reason to refuse an interaction: missing access or a rate limit.

        Only a prompt is refused for a rate limit. If the reason is missing access, the database stores that the
        author was told: see `MessageHandler.get_refusal`.

        Returns:
            The translated reason; empty if the author was told within the last hour. None to process the interaction.
        """
        context, say = interaction.context, words.messages_for(interaction.context.locale)
        must_reply = self.must_refuse and interaction.kind != "press"
        refusal = await self._intake.get_refusal(self._get_actor(interaction), context.location, must_reply=must_reply)
        if refusal is not None:
            return say(refusal) if refusal else ""
        limited = await self._intake.find_rate_limit_denial(context) if interaction.kind == "prompt" else None
        return prompt_limit_message(limited, say) if limited else None

    async def _run_orphaned(self, key: str, payload: str) -> None:
        """Process a stored interaction of a dead worker; delete it, also after a failure.

        If it is refused, it is not processed, and the author gets the reason, if any. If the author was not identified
        yet, they get an error message instead. If the interaction cannot be decrypted, only a warning is logged.

        Args:
            key: the id of the interaction.
            payload: the interaction as encrypted JSON.
        """
        async with self._queue.process(key):
            decrypted = self._cipher.decrypt(payload)
            if not decrypted:
                log.warning("a stored interaction cannot be read and is dropped")
                return
            interaction = Interaction.from_json(json.loads(decrypted))
            if interaction.context.actor is None:
                refusal: str | None = words.messages_for(interaction.context.locale).format_error(SurfaceError.public)
            else:
                refusal = await self._get_refusal(interaction)
            if refusal is None:
                await self._perform(interaction)
            else:
                await self._refuse(interaction, refusal)

    async def _process(self, interaction: Interaction) -> None:
        async with self._queue.process(interaction.id):
            await self._perform(interaction)

    async def _perform(self, interaction: Interaction) -> None:
        try:
            match interaction.kind:
                case "press":
                    await self._handle_press(interaction)
                case "answer":
                    await self._submit_answer(interaction)
                case "prompt":
                    await self._accept_prompt(interaction)
                case "menu":
                    await self.answer(interaction, await self._use_menu(interaction))
                case "command":
                    await self._run_command(interaction)
        except StoreError as error:
            log.error("an interaction cannot be processed: %s", format_error(error))
            await self._refuse(interaction, words.messages_for(interaction.context.locale).format_error(error.public))
        except SurfaceError as error:
            log.error("an interaction cannot be answered: %s", error)

    async def _handle_press(self, interaction: Interaction) -> None:
        text = await self._intake.presses.handle(
            interaction.values["button"],
            actor=self._get_actor(interaction),
            locale=interaction.context.locale,
            name=interaction.name,
        )
        if text:
            await self.answer(interaction, CommandResult(text))

    async def _use_menu(self, interaction: Interaction) -> CommandResult:
        values, context, commands = interaction.values, interaction.context, self._intake.commands
        if values["action"] == "why":
            return await commands.explain_message(values["message"], values["key"], values.get("files", ()), context)
        return await commands.rate_message(values["message"], values["key"], values["action"], context)

    async def _submit_answer(self, interaction: Interaction) -> None:
        say, values = words.messages_for(interaction.context.locale), interaction.values
        result = await self._intake.presses.answers.submit(
            values["question"],
            values["entries"],
            self._get_user(interaction),
            say,
            page=values.get("page", 0),
            page_size=self.form_page_size,
        )
        if result.text:
            label = say(words.CORRECT_ANSWER if result.is_correction else words.CONTINUE_FORM)
            button = Button(f"form:{result.page}:{result.question_id}", label)
            buttons = (button,) if result.question_id else ()
            await self.answer(interaction, CommandResult(result.text, buttons=buttons))
        else:
            await self.close_form(interaction)

    async def _run_command(self, interaction: Interaction) -> None:
        command = await self.find_session(interaction)
        if command is not None:
            context, commands = command.context, self._intake.commands
            if limited := commands.apply_rate_limit(context):
                result = CommandResult(command_limit_message(limited, words.messages_for(context.locale)))
            else:
                result = await commands.run(command.values["name"], command.values["argument"], context)
            await self.answer(command, result)

    async def _accept_prompt(self, interaction: Interaction) -> None:
        if await self._intake.is_known(interaction.context):  # a worker died after it accepted the prompt
            return
        posted = await self.post_prompt(interaction)
        if posted is None:
            return
        inbound, retract = posted
        try:
            prefix = self._intake.commands.syntax.prefix
            await self._intake.accept(
                IncomingMessage(inbound, is_mention=True, command_prefix=prefix, deny_privately=retract)
            )
        except StoreError as error:
            log.error("a prompt cannot be stored: %s", format_error(error))
            await retract(words.messages_for(interaction.context.locale).format_error(error.public))

    async def _refuse(self, interaction: Interaction, text: str) -> None:
        if not text:
            return
        try:
            await self.refuse(interaction, text)
        except SurfaceError as error:
            log.error("an interaction cannot be answered: %s", error)

    def _get_user(self, interaction: Interaction) -> User:
        return self._services.access_policy.to_user(self._get_actor(interaction), interaction.name)

    def _get_actor(self, interaction: Interaction) -> Actor:
        return interaction.context.actor or Actor(self.channel, interaction.context.author)
