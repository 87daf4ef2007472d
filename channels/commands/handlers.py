"""Commands: what people ask of the bot beside questions, and what it answers."""

import re
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from typing import Any, Literal, Protocol, get_args

from channels.base import File
from channels.commands.usage import usage
from channels.commands.why import render_report, turn_in
from channels.i18n import messages as words
from channels.i18n.messages import Words
from channels.replies.reactions import Receipts
from channels.replies.tool_status import plain
from channels.services import Desk
from core.identity import UNKNOWN_LOCATION, Actor, Location
from core.inbox_message import InboxMessage
from core.privacy.export import Form, Viewer
from core.turns.rerun import RerunDenied
from core.usage.user_rate_limits import CommandLimiter, RateLimited

Name = Literal["reset", "stop", "help", "status", "why", "agent", "model", "export", "mute", "listen", "usage"]

#: What each of them does.
COMMANDS: Mapping[Name, str] = {
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
WITH_NAME: frozenset[Name] = frozenset({"agent", "model"})

#: The placeholder of a command's argument.
ARGUMENTS: Mapping[Name, str] = {"agent": words.A_NAME, "model": words.A_NAME, "why": words.A_TURN, "export": "json"}

#: The most characters of an argument: the rest is cut off before the argument is read.
MAX_ARGUMENT = 200

#: Characters of a name that is said again.
_MOST_NAMED = 100

#: Characters of an agent's description.
_MOST_DESCRIBED = 200

#: In which form a conversation is given, the first one unless another is asked for.
FORMS: Sequence[Form] = ("md", "json")

#: The most bytes of it. Discord: a bot may send files of 10 MiB.
MOST_EXPORTED = 8 * 2**20

#: Those that go by something behind them.
_WITH_ARGUMENT: frozenset[Name] = WITH_NAME | {"why"}

#: Those that end what was asked for.
ENDING: frozenset[Name] = frozenset({"stop", "reset"})

#: Those whose answer is for who asks alone, and what is said where all see it. In a message they are commands only with
#: a sign before them, since they are words that people say, and the answer there is no more than how to ask.
PRIVATE: Mapping[Name, str] = {"why": words.WHY_PRIVATELY, "usage": words.USAGE_PRIVATELY}

_COMMAND = re.compile(rf"[/!]?(?P<name>{'|'.join(get_args(Name))})(?:\s+(?P<argument>[^\s?]+))?[.!]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Ways:
    """How people give commands on a platform, beside saying them to the bot.

    Attributes:
        slashes: what they type for each, where there is a slash command for it.
        asking: what they type to ask a question; empty if nothing.
        menu: what stands in the menu of a message, in a language.
    """

    slashes: Mapping[Name, str]
    asking: str
    menu: Callable[[Words], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Asker:
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
    def of(cls, inbound: InboxMessage, locale: str) -> "Asker":
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

    def message(self, session: str, text: str) -> InboxMessage:
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
    def from_json(cls, data: Mapping[str, Any]) -> "Asker":
        """Read what `asdict` made, and JSON kept."""
        visitor = data["visitor"] and Actor.from_json(data["visitor"])
        return cls(**{**data, "visitor": visitor, "spot": Location.from_json(data["spot"])})


@dataclass(frozen=True, slots=True)
class Said:
    """The answer to a command.

    Attributes:
        is_seen: whether the conversation shows what it says, so that it need not be said there.
    """

    text: str
    file: File | None = None
    is_seen: bool = False


class Run(Protocol):
    """See `Intake.run`."""

    def __call__(self, errand: Coroutine[Any, Any, None], *, name: str) -> None: ...


class Commands:
    """Does what they ask for: for slash commands, messages and shortcuts alike.

    Args:
        run: does what nobody waits for.
    """

    def __init__(self, desk: Desk, receipts: Receipts, ways: Ways, run: Run) -> None:
        self._desk = desk
        self._ways = ways
        self._receipts = receipts
        self._run = run
        self._limiter = CommandLimiter()

    def count(self, asker: Asker) -> RateLimited | None:
        """Count a command of a person, or return until when the limit refuses it."""
        return self._limiter.count(f"{asker.channel}:{asker.author}")

    async def why_of(self, message_id: str, event_key: str, asker: Asker) -> Said:
        """What an answer was made of, by one of its messages or by its question; as `run`."""
        reports = self._desk.turn_reports
        turn_id = await reports.find_turn_of_message(asker.session_id or "", message_id, event_key)
        say, is_admin = words.of(asker.locale), self._is_admin(asker)
        return Said(await render_report(reports, turn_id, asker.author, say, is_admin=is_admin))

    async def run(self, name: Name, argument: str, asker: Asker) -> Said:
        """Run a command.

        Raises:
            StoreError: the database cannot be reached, and nothing is done.
        """
        say, argument = words.of(asker.locale), argument.strip()[:MAX_ARGUMENT]
        match name:
            case "help":
                return Said(self._help(say))
            case "usage":
                return Said(await self._usage(asker, say))
            case "why":
                return Said(await self._why(argument, asker, say))
        session = asker.session_id
        if session is None and name in WITH_NAME and not argument:
            session = ""  # it is yet to begin
        if session is None or not (name in WITH_NAME or await self._desk.inbox.has_session(session)):
            return Said(say(words.NOTHING_TO_RESET))
        match name:
            case "agent":
                said = await self._agent(session, argument, asker, say)
            case "model":
                said = await self._model(session, argument, asker, say)
            case "reset":
                said = await self._reset(session, asker, say)
            case "stop":
                said = await self._stop(session, asker, say)
            case "export":
                said = await self._export(session, argument, asker, say)
            case "mute" | "listen":
                said = Said(say(await self._mute(session, asker, name == "mute")))
            case _:
                said = await self._status(session, asker, say)
        return said

    async def _mute(self, session: str, asker: Asker, is_mute: bool) -> str:
        if is_mute and asker.spot.is_direct:
            return words.NOT_MUTED
        await self._desk.conversations.set_muted(session, is_mute)
        return words.MUTED if is_mute else words.LISTENING

    async def _export(self, session: str, wanted: str, asker: Asker, say: Words) -> Said:
        form = next((form for form in FORMS if form == (wanted.lower() or "md")), None)
        if form is None:
            return Said(say(words.NO_SUCH_FORM))
        prices = self._desk.spending.prices
        viewer = Viewer(asker.author, is_admin=self._is_admin(asker), is_private=asker.is_private)
        exported = await self._desk.conversations.export_session(
            session, form, prices, most=MOST_EXPORTED, viewer=viewer
        )
        return Said(say(words.EXPORTED), File(f"transcript.{form}", exported.encode()))

    async def _why(self, named: str, asker: Asker, say: Words) -> str:
        reports, is_admin = self._desk.turn_reports, self._is_admin(asker)
        author = None if is_admin else asker.author
        turn_id = turn_in(named) or await reports.find_newest_turn(
            session_id=asker.session_id, place=asker.place, author=author
        )
        return await render_report(reports, turn_id, asker.author, say, is_admin=is_admin)

    def _is_admin(self, asker: Asker) -> bool:
        return asker.visitor is not None and self._desk.door.is_admin(asker.visitor)

    async def _stop(self, session: str, asker: Asker, say: Words) -> Said:
        asked = asker.message(session, "stop")
        halt = await self._desk.conversations.stop_session(session, author=asker.author, until=asker.until, asked=asked)
        if halt is None:
            return Said(say(words.STOPPING), is_seen=True)
        self._take_back(halt.dropped_messages)
        for turn_id in halt.undecided_turn_ids:
            for approval in await self._desk.approvals.asked(turn_id):
                self._run(self._desk.reask(approval), name="request")
        return Said(say(words.STOPPING if halt else words.NOTHING_RUNS), is_seen=halt.turn_id is not None)

    async def _reset(self, session: str, asker: Asker, say: Words) -> Said:
        inbound = asker.message(session, "reset")
        asked = await self._desk.approvals.open(session_id=session)
        dropped = await self._desk.inbox.reset_session(inbound, until=asker.until)
        if isinstance(dropped, RerunDenied):
            return Said(say(words.NOT_RESET))
        for approval in asked if dropped is not None else ():
            self._run(self._desk.reask(approval, is_void=True), name="request")
        self._take_back(dropped or ())
        return Said(say(words.RESET_DONE), is_seen=dropped is None)

    async def _status(self, session: str, asker: Asker, say: Words) -> Said:
        status = await self._desk.conversations.get_status(session, asker.spots)
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
        return Said("\n".join(f"- {line}" for line in lines))

    async def _usage(self, asker: Asker, say: Words) -> str:
        return await usage(
            self._desk.spending,
            platform=asker.channel,
            author=asker.author,
            place=asker.place,
            is_admin=self._is_admin(asker),
            say=say,
        )

    async def _agent(self, session: str, wanted: str, asker: Asker, say: Words) -> Said:
        """Tell who answers, or have another one answer. It reads what was said before as another agent's words."""
        conversations = self._desk.conversations
        offered = conversations.agents.list_selectable(asker.spots)
        if wanted in offered:
            await conversations.choose_agent(session, wanted, place=asker.place, spots=asker.spots)
            return Said(say(words.AGENT_CHOSEN, agent=wanted))
        listed = "\n".join(_listed(name, conversations.agents.get_description(name)) for name in offered)
        if wanted:
            return Said("\n".join([say(words.NO_SUCH_AGENT, agent=_bounded(wanted)), listed]))
        chosen = await conversations.get_agent(session, asker.spots)
        lines = [say(words.AGENT_IS, agent=chosen.name)]
        if chosen.unavailable_choice:
            lines.append(say(words.AGENT_GONE, agent=chosen.unavailable_choice))
        lines += [say(words.AGENTS_ARE), listed] if len(offered) > 1 else [say(words.ONE_AGENT)]
        return Said("\n".join(lines))

    async def _model(self, session: str, wanted: str, asker: Asker, say: Words) -> Said:
        conversations = self._desk.conversations
        models = await conversations.list_models(session, asker.spots)
        others = ", ".join(f"`{model}`" for model in models)
        if not wanted:
            lines = [say(words.MODEL_IS, model=await conversations.get_model(session, asker.spots))]
            lines += [say(words.MODELS_ARE, models=others) if len(models) > 1 else say(words.ONE_MODEL)]
            return Said("\n".join(lines))
        if wanted in models:
            await conversations.choose_model(session, wanted, place=asker.place, spots=asker.spots)
            return Said(say(words.MODEL_CHOSEN, model=wanted))
        return Said(say(words.NO_SUCH_MODEL, model=_bounded(wanted), models=others))

    def _help(self, say: Words) -> str:
        ways = self._ways
        asking = [f"- `{ways.asking} {say(words.A_QUESTION)}`: {say(words.ASK_DOES)}"] if ways.asking else []
        commands = (f"- {', '.join(self._given(name, say))}: {say(does)}" for name, does in COMMANDS.items())
        menu = say(words.HELPS_MENU, entries=", ".join(f"*{entry}*" for entry in ways.menu(say)))
        return "\n".join([say(words.HELPS), "", *asking, *commands, "", menu])

    def _given(self, name: Name, say: Words) -> list[str]:
        """In which ways a command is given."""
        behind = f" [{say(ARGUMENTS[name])}]" if name in ARGUMENTS else ""
        said, typed = None if name in PRIVATE else name, self._ways.slashes.get(name)
        return [f"`{way}{behind}`" for way in (said, typed) if way]

    def _take_back(self, dropped: Sequence[InboxMessage]) -> None:
        """What was dropped waits no more."""
        for message in dropped:
            self._receipts.take_back(message.address)


def command_in(text: str) -> tuple[Name, str] | None:
    """The command that a message consists of, and what stands behind it; nothing if it is something else."""
    found = _COMMAND.fullmatch(text.strip())
    name = next((name for name in COMMANDS if found and name == found["name"].lower()), None)
    argument = (found["argument"] or "").rstrip(".!") if found else ""
    if name is None or (name in PRIVATE and not text.strip().startswith(("/", "!"))):
        return None
    is_form = name == "export" and argument.lower() in FORMS
    if argument and name not in _WITH_ARGUMENT and not is_form:
        return None
    return name, argument


def too_many(limited: RateLimited, say: Words) -> str:
    """Return the sentence for a person who gave too many commands."""
    return say(words.TOO_MANY_COMMANDS, minutes=limited.minutes)


def too_often(limited: RateLimited, say: Words) -> str:
    """Return the sentence for a person who asked too many questions."""
    return say(words.TOO_OFTEN, minutes=limited.minutes)


def _listed(name: str, description: str) -> str:
    return f"- `{name}`: {plain(description, _MOST_DESCRIBED)}" if description else f"- `{name}`"


def _bounded(name: str) -> str:
    """What somebody has named that is not there, to be said again."""
    return plain(name, _MOST_NAMED)
