"""Chat commands: parses and runs them, and renders their results."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Literal, get_args

from channels.base import Button, File
from channels.commands.listed_items import render_items
from channels.commands.schedules import list_jobs, list_schedules
from channels.commands.services import PlatformServices
from channels.commands.sign_ins import list_sign_ins
from channels.commands.syntax import CommandName, CommandSyntax
from channels.commands.usage import render_usage
from channels.commands.why import find_turn_id, render_report
from channels.i18n import messages as words
from channels.i18n.messages import MessageCatalog
from channels.replies.diff import file_prefix
from channels.replies.reactions import QueuedReactions
from channels.replies.tool_status import shorten_plain
from core.conversations.feedback import Rating
from core.inbox.entries import InboxEntry
from core.messages.inbox_message import InboxMessage
from core.privacy.export import ExportFormat, ExportViewer
from core.signin.target import Person
from core.turns.rerun import RerunDenial
from core.usage.user_rate_limits import CommandLimiter, RateLimitDenial

#: The description of each command.
COMMAND_DESCRIPTIONS: Mapping[CommandName, str] = {
    "reset": words.RESET_HELP,
    "stop": words.STOP_HELP,
    "info": words.INFO_HELP,
    "why": words.WHY_HELP,
    "agent": words.AGENT_HELP,
    "model": words.MODEL_HELP,
    "export": words.EXPORT_HELP,
    "mute": words.MUTE_HELP,
    "listen": words.LISTEN_HELP,
    "schedule": words.SCHEDULE_HELP,
    "connections": words.CONNECTIONS_HELP,
    "usage": words.USAGE_HELP,
    "help": words.HELP_HELP,
}

#: The commands that choose an agent or a model by name, also before the first prompt.
CHOICE_COMMANDS: frozenset[CommandName] = frozenset({"agent", "model"})

#: The placeholder of a command's argument.
ARGUMENT_PLACEHOLDERS: Mapping[CommandName, str] = {
    "agent": words.NAME_ARGUMENT,
    "model": words.NAME_ARGUMENT,
    "why": words.TURN_ARGUMENT,
    "export": "json",
}

#: The most characters of an argument: the rest is cut off before the argument is read.
MAX_ARGUMENT_CHARACTERS = 200

#: The most characters of an unknown name that a message quotes.
_MAX_NAME = 100

#: The most characters of an agent's description in a list.
_MAX_DESCRIPTION = 200

#: The formats of an export; the first one is the default.
EXPORT_FORMATS: Sequence[ExportFormat] = ("md", "json")

#: The most bytes of an export. Discord: a bot may send files of 10 MiB.
MAX_EXPORT_BYTES = 8 * 2**20

#: The commands with an argument.
_ARGUMENT_COMMANDS: frozenset[CommandName] = CHOICE_COMMANDS | {"why"}

#: The commands whose result only their author may see, and the answer to them in a message, which names the slash
#: command: see `CommandHandler.format_private_hint`. A message needs `/` or `!` before them, since they are words that
#: people use.
PRIVATE_COMMANDS: Mapping[CommandName, str] = {
    "why": words.WHY_PRIVATELY,
    "usage": words.USAGE_PRIVATELY,
    "schedule": words.USAGE_PRIVATELY,
    "connections": words.USAGE_PRIVATELY,
}


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Result of a command.

    Attributes:
        is_visible: whether a reply in the session shows the effect of the command. The text then need not be shown.
    """

    text: str
    file: File | None = None
    is_visible: bool = False
    buttons: Sequence[Button] = ()


class CommandHandler:
    """Runs the commands that come as messages, slash commands or shortcuts."""

    def __init__(self, services: PlatformServices, queued_reactions: QueuedReactions, syntax: CommandSyntax) -> None:
        self._services = services
        self.syntax = syntax
        self._queued_reactions = queued_reactions
        self._limiter = CommandLimiter()

    def apply_rate_limit(self, message: InboxMessage) -> RateLimitDenial | None:
        """Count a command towards its author's limit in this process, also one over the limit."""
        return self._limiter.consume(f"{message.platform}:{message.author}")

    async def explain_message(
        self, message_id: str, event_key: str, file_ids: Sequence[str], entry: InboxEntry
    ) -> CommandResult:
        """Return the turn report for a message of a reply, or for a user's message.

        If no turn has the message, or the user may not see the report, the text of the result says so.

        Args:
            file_ids: the platform's ids of the message's files. A file of a reply may be a message of its own.
        """
        reports = self._services.turn_reports
        prefixes = [file_prefix(id_) for id_ in file_ids]
        turn_id = await reports.find_turn_of_message(entry.message.session_id, message_id, event_key, prefixes)
        say = words.messages_for(entry.locale)
        is_admin = self._is_admin(entry)
        return CommandResult(await render_report(reports, turn_id, entry.message.author, say, is_admin=is_admin))

    async def rate_message(self, message_id: str, event_key: str, rating: Rating, entry: InboxEntry) -> CommandResult:
        """Store a user's rating of an answer; it replaces their earlier one.

        The message is one of the answer, or the user's own. If no stored answer belongs to it, the text says so.
        """
        turn_id = await self._services.turn_reports.find_turn_of_message(
            entry.message.session_id, message_id, event_key
        )
        author = entry.message.author
        feedback = self._services.feedback
        is_stored = turn_id is not None and await feedback.save_feedback(turn_id, author, rating)
        say = words.messages_for(entry.locale)
        return CommandResult(say(words.FEEDBACK_THANKS if is_stored else words.ANSWER_NOT_STORED))

    async def run(self, name: CommandName, argument: str, entry: InboxEntry) -> CommandResult:
        """Run a command, and return the result to show its author.

        The caller checks access and counts the command first.

        Raises:
            StoreError: nothing is changed, except that a `stop` may have taken effect.
        """
        say = words.messages_for(entry.locale)
        argument = argument.strip()[:MAX_ARGUMENT_CHARACTERS]
        match name:
            case "help":
                return CommandResult(self._help(say))
            case "usage":
                return CommandResult(await self._usage(entry, say))
            case "why":
                return CommandResult(await self._why(argument, entry, say))
            case "schedule" | "connections":
                return await self._list(name, entry.message, say)
        session = entry.message.session_id  # without one, the list of a choice is that before the first prompt
        is_choice = name in CHOICE_COMMANDS and (session or not argument)
        if not (is_choice or await self._services.inbox.has_session(session)):
            return CommandResult(say(words.NOTHING_TO_RESET))
        match name:
            case "agent":
                result = await self._agent(session, argument, entry, say)
            case "model":
                result = await self._model(session, argument, entry, say)
            case "reset":
                result = await self._reset(session, entry, say)
            case "stop":
                result = await self._stop(session, entry, say)
            case "export":
                result = await self._export(session, argument, entry, say)
            case "mute" | "listen":
                result = CommandResult(say(await self._mute(session, entry, name == "mute")))
            case _:
                result = await self._info(session, entry, say)
        return result

    async def _list(
        self, name: Literal["schedule", "connections"], message: InboxMessage, say: MessageCatalog
    ) -> CommandResult:
        if name == "schedule":
            items = await list_schedules(self._services.schedules, message, say)
            items += await list_jobs(self._services.jobs.store, message, say)
            heading, empty = words.YOUR_SCHEDULES, words.NO_SCHEDULES
        else:
            to_user = self._services.access_policy.to_user
            author = Person.of(to_user(message.actor_or_author, "", message.location.workspace))
            items = await list_sign_ins(self._services.sign_ins, author, say)
            heading, empty = words.YOUR_CONNECTIONS, words.NO_CONNECTIONS
        if not items:
            return CommandResult(say(empty))
        text, buttons = render_items(items, say(heading))
        return CommandResult(text, buttons=buttons)

    async def _mute(self, session: str, entry: InboxEntry, is_mute: bool) -> str:
        if is_mute and entry.message.location.is_direct:
            return words.CANNOT_MUTE_DM
        await self._services.conversations.set_muted(session, is_mute)
        return words.MUTED if is_mute else words.UNMUTED

    async def _export(self, session: str, format_name: str, entry: InboxEntry, say: MessageCatalog) -> CommandResult:
        format_ = next((format_ for format_ in EXPORT_FORMATS if format_ == (format_name.lower() or "md")), None)
        if format_ is None:
            return CommandResult(say(words.UNKNOWN_EXPORT_FORMAT))
        prices = self._services.spending.prices
        viewer = ExportViewer(entry.message.author, is_admin=self._is_admin(entry), is_private=entry.is_private)
        exported = await self._services.conversations.export_session(
            session, format_, prices, max_bytes=MAX_EXPORT_BYTES, viewer=viewer
        )
        return CommandResult(say(words.EXPORTED), File(f"transcript.{format_}", exported.encode()))

    async def _why(self, argument: str, entry: InboxEntry, say: MessageCatalog) -> str:
        reports = self._services.turn_reports
        is_admin = self._is_admin(entry)
        author = None if is_admin else entry.message.author
        turn_id = find_turn_id(argument) or await reports.find_newest_turn(
            session_id=entry.message.session_id or None, place=entry.message.place, author=author
        )
        return await render_report(reports, turn_id, entry.message.author, say, is_admin=is_admin)

    def _is_admin(self, entry: InboxEntry) -> bool:
        return entry.message.actor is not None and self._services.access_policy.is_admin(entry.message.actor)

    async def _stop(self, session: str, entry: InboxEntry, say: MessageCatalog) -> CommandResult:
        open_requests = await self._services.human_requests.list_open(session_id=session)
        stopped = await self._services.conversations.stop_session(
            session, author=entry.message.author, until=entry.until, command=entry.message
        )
        if stopped is None:
            return CommandResult(say(words.STOPPING), is_visible=True)
        self._remove_reactions(stopped.dropped_messages)
        for turn_id in stopped.undecided_turn_ids:
            for request in await self._services.human_requests.list_of_turn(turn_id):
                self._services.request_messages.start_update(request)
        for request in open_requests if stopped.has_cancelled_questions else ():
            if await self._services.human_requests.get(request.id) is None:
                self._services.request_messages.start_update(request, is_void=True)
        return CommandResult(
            say(words.STOPPING if stopped else words.NOTHING_TO_STOP), is_visible=stopped.turn_id is not None
        )

    async def _reset(self, session: str, entry: InboxEntry, say: MessageCatalog) -> CommandResult:
        requests = await self._services.human_requests.list_open(session_id=session)
        scheduled = await self._services.schedules.count_of_session(session)
        dropped = await self._services.inbox.reset_session(entry.message, until=entry.until)
        if isinstance(dropped, RerunDenial):
            return CommandResult(say(words.RESET_SUPERSEDED))
        for request in requests if dropped is not None else ():
            self._services.request_messages.start_update(request, is_void=True)
        self._remove_reactions(dropped or ())
        ended = say(words.SCHEDULES_ENDED, count=scheduled) if scheduled else ""
        text = " ".join(filter(None, [say(words.RESET_DONE), ended]))
        return CommandResult(text, is_visible=dropped is None and not scheduled)

    async def _info(self, session: str, entry: InboxEntry, say: MessageCatalog) -> CommandResult:
        status = await self._services.conversations.get_status(session, entry.message.location_names)
        lines = [say(words.STATUS_AGENT, agent=status.agent), say(words.STATUS_MODEL, model=status.model)]
        if status.since is not None:
            since = datetime.fromtimestamp(status.since, UTC)
            lines.append(say(words.STATUS_SINCE, when=f"{since:%Y-%m-%d %H:%M}"))
        lines += [
            say(words.STATUS_MESSAGES, count=f"{status.messages:,}"),
            say(words.STATUS_HISTORY, tokens=f"{status.history_tokens:,}", budget=f"{status.budget:,}"),
            say(words.STATUS_USED, tokens=f"{status.used_tokens:,}"),
            say(words.STATUS_WAITING, count=f"{status.waiting:,}"),
            say(words.STATUS_ANSWERING if status.is_running else words.STATUS_IDLE),
        ]
        if status.is_muted:
            lines.append(say(words.MUTED))
        return CommandResult("\n".join(f"- {line}" for line in lines))

    async def _usage(self, entry: InboxEntry, say: MessageCatalog) -> str:
        return await render_usage(
            self._services.spending,
            platform=entry.message.platform,
            author=entry.message.author,
            place=entry.message.place,
            is_admin=self._is_admin(entry),
            say=say,
        )

    async def _agent(self, session: str, agent: str, entry: InboxEntry, say: MessageCatalog) -> CommandResult:
        conversations = self._services.conversations
        names = entry.message.location_names
        offered = conversations.agents.list_selectable(names)
        if agent in offered:
            await conversations.choose_agent(session, agent, place=entry.message.place, location_names=names)
            return CommandResult(say(words.AGENT_CHANGED, agent=agent))
        agent_lines = "\n".join(_agent_line(name, conversations.agents.get_description(name)) for name in offered)
        if agent:
            return CommandResult("\n".join([say(words.UNKNOWN_AGENT, agent=_quote_name(agent)), agent_lines]))
        current = await conversations.get_agent(session, names)
        lines = [say(words.CURRENT_AGENT, agent=current.name)]
        if current.unavailable_choice:
            lines.append(say(words.CHOSEN_AGENT_REMOVED, agent=current.unavailable_choice))
        lines += [say(words.SELECTABLE_AGENTS), agent_lines] if len(offered) > 1 else [say(words.NO_OTHER_AGENT)]
        return CommandResult("\n".join(lines))

    async def _model(self, session: str, model_name: str, entry: InboxEntry, say: MessageCatalog) -> CommandResult:
        conversations = self._services.conversations
        names = entry.message.location_names
        models = await conversations.list_models(session, names)
        model_list = ", ".join(f"`{model}`" for model in models)
        if not model_name:
            lines = [say(words.CURRENT_MODEL, model=await conversations.get_model(session, names))]
            lines += [say(words.SELECTABLE_MODELS, models=model_list) if len(models) > 1 else say(words.NO_OTHER_MODEL)]
            return CommandResult("\n".join(lines))
        if model_name in models:
            await conversations.choose_model(session, model_name, place=entry.message.place, location_names=names)
            return CommandResult(say(words.MODEL_CHANGED, model=model_name))
        return CommandResult(say(words.UNKNOWN_MODEL, model=_quote_name(model_name), models=model_list))

    def _help(self, say: MessageCatalog) -> str:
        syntax = self.syntax
        ask_lines = (
            [f"- `{syntax.format_slash_command('ask')} {say(words.QUESTION_ARGUMENT)}`: {say(words.ASK_HELP)}"]
            if "ask" in syntax.names
            else []
        )
        commands = (
            f"- {', '.join(self._list_inputs(name, say))}: {say(text)}" for name, text in COMMAND_DESCRIPTIONS.items()
        )
        menu = say(words.HELP_MENU, entries=", ".join(f"*{entry}*" for entry in syntax.list_menu_entries(say)))
        return "\n".join([say(words.HELP_COMMANDS), "", *ask_lines, *commands, "", menu])

    def _list_inputs(self, name: CommandName, say: MessageCatalog) -> list[str]:
        """Return the ways to enter a command, each as inline code, for the help text."""
        argument = f" [{say(ARGUMENT_PLACEHOLDERS[name])}]" if name in ARGUMENT_PLACEHOLDERS else ""
        word = None if name in PRIVATE_COMMANDS else name
        slash_command = self.syntax.format_slash_command(name) if name in self.syntax.names else None
        return [f"`{text}{argument}`" for text in (word, slash_command) if text]

    def format_private_hint(self, name: CommandName, say: MessageCatalog) -> str:
        """Return the public answer to one of `PRIVATE_COMMANDS`, which names its slash command."""
        return say(PRIVATE_COMMANDS[name], command=self.syntax.format_slash_command(name))

    def _remove_reactions(self, dropped: Sequence[InboxMessage]) -> None:
        for message in dropped:
            self._queued_reactions.remove(message.address)


def parse_command(text: str, prefix: str = "") -> tuple[CommandName, str] | None:
    """Parse a message that consists of a command and its argument; None for any other text.

    The name may follow `/` or `!`, with or without the prefix, in upper or lower case; one of `PRIVATE_COMMANDS` must.
    The argument is one word without `?` that the command takes; empty for none. Final `.` and `!` are ignored.
    """
    match_ = _compile_pattern(prefix).fullmatch(text.strip())
    name = next((name for name in COMMAND_DESCRIPTIONS if match_ and name == match_["name"].lower()), None)
    argument = (match_["argument"] or "").rstrip(".!") if match_ else ""
    if name is None or (name in PRIVATE_COMMANDS and not text.strip().startswith(("/", "!"))):
        return None
    is_export_format = name == "export" and argument.lower() in EXPORT_FORMATS
    if argument and name not in _ARGUMENT_COMMANDS and not is_export_format:
        return None
    return name, argument


@cache
def _compile_pattern(prefix: str) -> re.Pattern[str]:
    names = "|".join(get_args(CommandName))
    return re.compile(
        rf"(?:[/!](?:{re.escape(prefix)})?)?(?P<name>{names})(?:\s+(?P<argument>[^\s?]+))?[.!]*", re.IGNORECASE
    )


def command_limit_message(limited: RateLimitDenial, say: MessageCatalog) -> str:
    return say(words.COMMAND_LIMIT_REACHED, minutes=limited.minutes)


def prompt_limit_message(limited: RateLimitDenial, say: MessageCatalog) -> str:
    return say(words.MESSAGE_LIMIT_REACHED, minutes=limited.minutes)


def _agent_line(name: str, description: str) -> str:
    return f"- `{name}`: {shorten_plain(description, _MAX_DESCRIPTION)}" if description else f"- `{name}`"


def _quote_name(name: str) -> str:
    return shorten_plain(name, _MAX_NAME)
