"""Commands: what people ask of the bot beside questions, and what it answers."""

import re
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from typing import Any, Literal, Protocol, get_args

from channels.base import File
from channels.commands.usage import render_usage
from channels.commands.why import find_turn_id, render_report
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.replies.reactions import QueuedReactions
from channels.replies.tool_status import plain_text
from channels.services import ChannelServices
from core.identity import UNKNOWN_LOCATION, Actor, Location
from core.inbox_message import InboxMessage
from core.privacy.export import Form, Viewer
from core.turns.rerun import RerunDenied
from core.usage.user_rate_limits import CommandLimiter, RateLimited

CommandName = Literal["reset", "stop", "help", "status", "why", "agent", "model", "export", "mute", "listen", "usage"]

#: What each of them does.
COMMANDS: Mapping[CommandName, str] = {
    "reset": words.RESET_DOES,
    "stop": words.STOP_DOES,
    "status": words.STATUS_DOES,
    "why": words.WHY_DOES,
    "agent": words.AGENT_DOES,
    "model": words.MODEL_DOES,
    "export": words.EXPORT_DOES,
    "mute": words.MUTE_DOES,
    "listen": words.LISTEN_DOES,
    "usage": words.USAGE_DOES,
    "help": words.HELP_DOES,
}

#: Those that may have a name behind them. What they choose, they choose before the first question, too.
CHOICE_COMMANDS: frozenset[CommandName] = frozenset({"agent", "model"})

#: The placeholder of a command's argument.
ARGUMENTS: Mapping[CommandName, str] = {
    "agent": words.A_NAME,
    "model": words.A_NAME,
    "why": words.A_TURN,
    "export": "json",
}

#: The most characters of an argument: the rest is cut off before the argument is read.
MAX_ARGUMENT = 200

#: Characters of a name that is said again.
_MAX_NAME = 100

#: Characters of an agent's description.
_MAX_DESCRIPTION = 200

#: In which form a conversation is given, the first one unless another is asked for.
EXPORT_FORMATS: Sequence[Form] = ("md", "json")

#: The most bytes of it. Discord: a bot may send files of 10 MiB.
MAX_EXPORT_BYTES = 8 * 2**20

#: Those that go by something behind them.
_ARGUMENT_COMMANDS: frozenset[CommandName] = CHOICE_COMMANDS | {"why"}

#: Those that end what was asked for.
CANCELLING_COMMANDS: frozenset[CommandName] = frozenset({"stop", "reset"})

#: Those whose answer is for who asks alone, and what is said where all see it. In a message they are commands only with
#: a sign before them, since they are words that people say, and the answer there is no more than how to ask.
PRIVATE_COMMANDS: Mapping[CommandName, str] = {"why": words.WHY_PRIVATELY, "usage": words.USAGE_PRIVATELY}

_COMMAND = re.compile(
    rf"[/!]?(?P<name>{'|'.join(get_args(CommandName))})(?:\s+(?P<argument>[^\s?]+))?[.!]*", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class CommandSyntax:
    """How people give commands on a platform, beside saying them to the bot.

    Attributes:
        slashes: what they type for each, where there is a slash command for it.
        asking: what they type to ask a question; empty if nothing.
        menu: what stands in the menu of a message, in a language.
    """

    slash_commands: Mapping[CommandName, str]
    ask_command: str
    list_menu_entries: Callable[[MessageCatalog], Sequence[str]]


@dataclass(frozen=True, slots=True)
class CommandContext:
    """Who gives a command, and where.

    Attributes:
        session_id: the conversation that is meant, if it is known.
        event_key: the same for each delivery of the same command: see `InboxMessage`.
        locale: as the platform names it; empty if it does not.
        sent_at: in seconds since the epoch.
        until: what was said after it (seconds since the epoch) is not meant to be stopped or forgotten.
        visitor: who he is to the door, and `spot` where.
        is_private: whether nobody else sees the answer.
    """

    session_id: str | None
    place: str
    author: str
    channel: str
    address: Mapping[str, Any]
    event_key: str
    locale: str = ""
    sent_at: float = field(default_factory=time.time)
    until: float = inf
    visitor: Actor | None = None
    spot: Location = UNKNOWN_LOCATION
    is_private: bool = False

    @property
    def spots(self) -> tuple[str, ...]:
        """What rules on places may call where he is: see `Spot.names`."""
        return self.spot.get_names(self.channel)

    @classmethod
    def from_message(cls, inbound: InboxMessage, locale: str) -> "CommandContext":
        """Who has said it."""
        return cls(
            session_id=inbound.session_id,
            place=inbound.place,
            author=inbound.author,
            channel=inbound.channel,
            address=inbound.address,
            event_key=inbound.event_key,
            locale=locale,
            sent_at=inbound.sent_at,
            until=inbound.sent_at,
            visitor=inbound.visitor,
            spot=inbound.spot,
        )

    def to_message(self, session: str, text: str) -> InboxMessage:
        """What he asks for, as if it had been said in a session."""
        return InboxMessage(
            event_key=self.event_key,
            session_id=session,
            place=self.place,
            channel=self.channel,
            address=self.address,
            author=self.author,
            text=text,
            sent_at=self.sent_at,
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "CommandContext":
        """Read what `asdict` made, and JSON kept."""
        visitor = data["visitor"] and Actor.from_json(data["visitor"])
        return cls(**{**data, "visitor": visitor, "spot": Location.from_json(data["spot"])})


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The answer to a command.

    Attributes:
        is_seen: whether the conversation shows what it says, so that it need not be said there.
    """

    text: str
    file: File | None = None
    is_visible: bool = False


class RunInBackground(Protocol):
    """See `MessageHandler.run_in_background`."""

    def __call__(self, work: Coroutine[Any, Any, None], *, name: str) -> None: ...


class CommandHandler:
    """Does what they ask for: for slash commands, messages and shortcuts alike.

    Args:
        run: does what nobody waits for.
    """

    def __init__(
        self,
        services: ChannelServices,
        queued_reactions: QueuedReactions,
        syntax: CommandSyntax,
        run_in_background: RunInBackground,
    ) -> None:
        self._services = services
        self._syntax = syntax
        self._queued_reactions = queued_reactions
        self._run_in_background = run_in_background
        self._limiter = CommandLimiter()

    def count_command(self, context: CommandContext) -> RateLimited | None:
        """Count a command of a person, or return until when the limit refuses it."""
        return self._limiter.count(f"{context.channel}:{context.author}")

    async def explain_message(self, message_id: str, event_key: str, context: CommandContext) -> CommandResult:
        """What an answer was made of, by one of its messages or by its question; as `run`."""
        reports = self._services.turn_reports
        turn_id = await reports.find_turn_of_message(context.session_id or "", message_id, event_key)
        say, is_admin = words.messages_for(context.locale), self._is_admin(context)
        return CommandResult(await render_report(reports, turn_id, context.author, say, is_admin=is_admin))

    async def run(self, name: CommandName, argument: str, context: CommandContext) -> CommandResult:
        """Run a command.

        Raises:
            StoreError: the database cannot be reached, and nothing is done.
        """
        say, argument = words.messages_for(context.locale), argument.strip()[:MAX_ARGUMENT]
        match name:
            case "help":
                return CommandResult(self._help(say))
            case "usage":
                return CommandResult(await self._usage(context, say))
            case "why":
                return CommandResult(await self._why(argument, context, say))
        session = context.session_id
        if session is None and name in CHOICE_COMMANDS and not argument:
            session = ""  # it is yet to begin
        if session is None or not (name in CHOICE_COMMANDS or await self._services.inbox.has_session(session)):
            return CommandResult(say(words.NOTHING_TO_RESET))
        match name:
            case "agent":
                said = await self._agent(session, argument, context, say)
            case "model":
                said = await self._model(session, argument, context, say)
            case "reset":
                said = await self._reset(session, context, say)
            case "stop":
                said = await self._stop(session, context, say)
            case "export":
                said = await self._export(session, argument, context, say)
            case "mute" | "listen":
                said = CommandResult(say(await self._mute(session, context, name == "mute")))
            case _:
                said = await self._status(session, context, say)
        return said

    async def _mute(self, session: str, asker: CommandContext, is_mute: bool) -> str:
        if is_mute and asker.spot.is_direct:
            return words.NOT_MUTED
        await self._services.conversations.set_muted(session, is_mute)
        return words.MUTED if is_mute else words.LISTENING

    async def _export(self, session: str, wanted: str, asker: CommandContext, say: MessageCatalog) -> CommandResult:
        form = next((form for form in EXPORT_FORMATS if form == (wanted.lower() or "md")), None)
        if form is None:
            return CommandResult(say(words.NO_SUCH_FORM))
        prices = self._services.spending.prices
        viewer = Viewer(asker.author, is_admin=self._is_admin(asker), is_private=asker.is_private)
        exported = await self._services.conversations.export_session(
            session, form, prices, most=MAX_EXPORT_BYTES, viewer=viewer
        )
        return CommandResult(say(words.EXPORTED), File(f"transcript.{form}", exported.encode()))

    async def _why(self, named: str, asker: CommandContext, say: MessageCatalog) -> str:
        reports, is_admin = self._services.turn_reports, self._is_admin(asker)
        author = None if is_admin else asker.author
        turn_id = find_turn_id(named) or await reports.find_newest_turn(
            session_id=asker.session_id, place=asker.place, author=author
        )
        return await render_report(reports, turn_id, asker.author, say, is_admin=is_admin)

    def _is_admin(self, asker: CommandContext) -> bool:
        return asker.visitor is not None and self._services.access_policy.is_admin(asker.visitor)

    async def _stop(self, session: str, asker: CommandContext, say: MessageCatalog) -> CommandResult:
        asked = asker.to_message(session, "stop")
        halt = await self._services.conversations.stop_session(
            session, author=asker.author, until=asker.until, asked=asked
        )
        if halt is None:
            return CommandResult(say(words.STOPPING), is_visible=True)
        self._remove_reactions(halt.dropped_messages)
        for turn_id in halt.undecided_turn_ids:
            for approval in await self._services.approvals.asked(turn_id):
                self._run_in_background(self._services.update_approval_message(approval), name="request")
        return CommandResult(say(words.STOPPING if halt else words.NOTHING_RUNS), is_visible=halt.turn_id is not None)

    async def _reset(self, session: str, asker: CommandContext, say: MessageCatalog) -> CommandResult:
        inbound = asker.to_message(session, "reset")
        asked = await self._services.approvals.open(session_id=session)
        dropped = await self._services.inbox.reset_session(inbound, until=asker.until)
        if isinstance(dropped, RerunDenied):
            return CommandResult(say(words.NOT_RESET))
        for approval in asked if dropped is not None else ():
            self._run_in_background(self._services.update_approval_message(approval, is_void=True), name="request")
        self._remove_reactions(dropped or ())
        return CommandResult(say(words.RESET_DONE), is_visible=dropped is None)

    async def _status(self, session: str, asker: CommandContext, say: MessageCatalog) -> CommandResult:
        status = await self._services.conversations.get_status(session, asker.spots)
        lines = [say(words.STATUS_AGENT, agent=status.agent), say(words.STATUS_MODEL, model=status.model)]
        if status.since is not None:
            since = datetime.fromtimestamp(status.since, UTC)
            lines.append(say(words.STATUS_SINCE, when=f"{since:%Y-%m-%d %H:%M}"))
        lines += [
            say(words.STATUS_MESSAGES, count=f"{status.messages:,}"),
            say(words.STATUS_HISTORY, tokens=f"{status.history_tokens:,}", budget=f"{status.budget:,}"),
            say(words.STATUS_USED, tokens=f"{status.used_tokens:,}"),
            say(words.STATUS_WAITING, count=f"{status.waiting:,}"),
            say(words.STATUS_RUNS if status.is_running else words.STATUS_RESTS),
        ]
        if status.is_muted:
            lines.append(say(words.MUTED))
        return CommandResult("\n".join(f"- {line}" for line in lines))

    async def _usage(self, asker: CommandContext, say: MessageCatalog) -> str:
        return await render_usage(
            self._services.spending,
            platform=asker.channel,
            author=asker.author,
            place=asker.place,
            is_admin=self._is_admin(asker),
            say=say,
        )

    async def _agent(self, session: str, wanted: str, asker: CommandContext, say: MessageCatalog) -> CommandResult:
        """Tell who answers, or have another one answer. It reads what was said before as another agent's words."""
        conversations = self._services.conversations
        offered = conversations.agents.list_selectable(asker.spots)
        if wanted in offered:
            await conversations.choose_agent(session, wanted, place=asker.place, spots=asker.spots)
            return CommandResult(say(words.AGENT_CHOSEN, agent=wanted))
        listed = "\n".join(_agent_line(name, conversations.agents.get_description(name)) for name in offered)
        if wanted:
            return CommandResult("\n".join([say(words.NO_SUCH_AGENT, agent=_quote_name(wanted)), listed]))
        chosen = await conversations.get_agent(session, asker.spots)
        lines = [say(words.AGENT_IS, agent=chosen.name)]
        if chosen.unavailable_choice:
            lines.append(say(words.AGENT_GONE, agent=chosen.unavailable_choice))
        lines += [say(words.AGENTS_ARE), listed] if len(offered) > 1 else [say(words.ONE_AGENT)]
        return CommandResult("\n".join(lines))

    async def _model(self, session: str, wanted: str, asker: CommandContext, say: MessageCatalog) -> CommandResult:
        conversations = self._services.conversations
        models = await conversations.list_models(session, asker.spots)
        others = ", ".join(f"`{model}`" for model in models)
        if not wanted:
            lines = [say(words.MODEL_IS, model=await conversations.get_model(session, asker.spots))]
            lines += [say(words.MODELS_ARE, models=others) if len(models) > 1 else say(words.ONE_MODEL)]
            return CommandResult("\n".join(lines))
        if wanted in models:
            await conversations.choose_model(session, wanted, place=asker.place, spots=asker.spots)
            return CommandResult(say(words.MODEL_CHOSEN, model=wanted))
        return CommandResult(say(words.NO_SUCH_MODEL, model=_quote_name(wanted), models=others))

    def _help(self, say: MessageCatalog) -> str:
        ways = self._syntax
        asking = [f"- `{ways.ask_command} {say(words.A_QUESTION)}`: {say(words.ASK_DOES)}"] if ways.ask_command else []
        commands = (f"- {', '.join(self._list_inputs(name, say))}: {say(does)}" for name, does in COMMANDS.items())
        menu = say(words.HELPS_MENU, entries=", ".join(f"*{entry}*" for entry in ways.list_menu_entries(say)))
        return "\n".join([say(words.HELPS), "", *asking, *commands, "", menu])

    def _list_inputs(self, name: CommandName, say: MessageCatalog) -> list[str]:
        """In which ways a command is given."""
        behind = f" [{say(ARGUMENTS[name])}]" if name in ARGUMENTS else ""
        said, typed = None if name in PRIVATE_COMMANDS else name, self._syntax.slash_commands.get(name)
        return [f"`{way}{behind}`" for way in (said, typed) if way]

    def _remove_reactions(self, dropped: Sequence[InboxMessage]) -> None:
        """What was dropped waits no more."""
        for message in dropped:
            self._queued_reactions.remove(message.address)


def parse_command(text: str) -> tuple[CommandName, str] | None:
    """The command that a message consists of, and what stands behind it; nothing if it is something else."""
    found = _COMMAND.fullmatch(text.strip())
    name = next((name for name in COMMANDS if found and name == found["name"].lower()), None)
    argument = (found["argument"] or "").rstrip(".!") if found else ""
    if name is None or (name in PRIVATE_COMMANDS and not text.strip().startswith(("/", "!"))):
        return None
    is_form = name == "export" and argument.lower() in EXPORT_FORMATS
    if argument and name not in _ARGUMENT_COMMANDS and not is_form:
        return None
    return name, argument


def command_limit_message(limited: RateLimited, say: MessageCatalog) -> str:
    """Return the sentence for a person who gave too many commands."""
    return say(words.TOO_MANY_COMMANDS, minutes=limited.minutes)


def question_limit_message(limited: RateLimited, say: MessageCatalog) -> str:
    """Return the sentence for a person who asked too many questions."""
    return say(words.TOO_OFTEN, minutes=limited.minutes)


def _agent_line(name: str, description: str) -> str:
    return f"- `{name}`: {plain_text(description, _MAX_DESCRIPTION)}" if description else f"- `{name}`"


def _quote_name(name: str) -> str:
    """What somebody has named that is not there, to be said again."""
    return plain_text(name, _MAX_NAME)
