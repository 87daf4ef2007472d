"""The slash commands.

Slack: docs.slack.dev/interactivity/implementing-slash-commands. There are none in threads, and none is told with one:
so which of his conversations somebody means may have to be asked.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from channels.base import Button
from channels.commands.handlers import FORMS, Asker, Commands, Name
from channels.i18n import messages as words
from channels.slack.access import Seen
from channels.slack.interactions.responses import Doer, Handed, Private
from channels.slack.session_ids import NAME, root_of
from channels.slack.text import titled
from channels.slack.users import People
from core.conversations.service import Conversations, Recent
from core.errors import StoreError
from core.secret_redaction import traced

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Command:
    """One that people find in the list of all commands.

    Attributes:
        name: what it is to the bot.
        about: what it does, in a line.
        hint: what may be written behind it.
        question: asks which conversation is meant, where there are several; without one, the latest is.
    """

    name: Name
    about: str
    hint: str = ""
    question: str = ""


#: Slash commands by their name in Slack, in the order of `channels.commands.handlers.COMMANDS`. Slack refuses a
#: manifest with a command of its own, such as `/status`. Its slash commands do not work in threads, so `mute` and
#: `listen` have none.
COMMANDS: Mapping[str, Command] = {
    "/reset": Command("reset", "Start over in a conversation of yours here", question=words.WHICH_TO_RESET),
    "/stop": Command("stop", "Stop what I am answering you here"),
    "/agent-status": Command("status", "How your conversation here stands, and which model answers"),
    "/why": Command("why", "What your latest answer here was made of, for you alone", "[turn]"),
    "/agent": Command("agent", "See or choose the agent that answers you here", "[name]"),
    "/model": Command("model", "See or choose the model that answers you here", "[name]"),
    "/export": Command(
        "export", "A conversation of yours here as a file for you", "[json]", question=words.WHICH_TO_EXPORT
    ),
    "/usage": Command("usage", "What you have spent, told to you alone"),
    "/help": Command("help", "What I can do"),
}

#: How many conversations there are to choose from, at the most.
MOST = 5

#: What the id of a button begins with that chooses one; then come the command and the session.
PICK = "pick:"


class SlashCommands:
    """Does them. Who has given one hears of it, and nobody else."""

    def __init__(self, commands: Commands, conversations: Conversations, people: People, private: Private) -> None:
        self._commands = commands
        self._conversations = conversations
        self._people = people
        self._private = private

    async def take(self, body: Mapping[str, Any], seen: Seen) -> None:
        """Do what a command asks for, or ask where.

        Raises:
            SurfaceError: who has given it cannot be told.
        """
        doer, command = Doer.of_command(body), COMMANDS[body["command"]]
        argument = str(body.get("text") or "").strip()
        locale = await words.told(self._people.locale(doer.team, doer.user))
        try:
            found = await self._conversations.recent(doer.place, doer.user, MOST, until=doer.until)
        except StoreError as error:
            log.error("%s cannot be done: %s", command.name, traced(error))
            await self._private.answer(doer, words.of(locale).sorry(error.public))
            return
        form = argument.lower() if command.name == "export" else ""
        if command.question and len(found) > 1 and form in ("", *FORMS):
            choices = _choices(command.name, form, found)
            await self._private.ask(doer, words.of(locale)(command.question), choices)
            return
        # the latest answer is that of the latest question, in whichever conversation
        session = found[0].session_id if found and command.name != "why" else None
        asker = asking(doer, session, root_of(session or ""), locale, seen)
        await self._do(command.name, argument, doer, asker)

    async def pick(self, body: Mapping[str, Any], id_: str, seen: Seen) -> None:
        """Do what was asked for in the conversation that was chosen.

        Args:
            id_: of the button that was pressed.

        Raises:
            SurfaceError: who has pressed it cannot be told.
        """
        doer = Doer.of_press(body)
        wish, _, session = id_.removeprefix(PICK).partition(":")
        name, _, argument = wish.partition(" ")
        command = next((command for command in COMMANDS.values() if command.name == name), None)
        if command is None or not session.startswith(f"{doer.place}:"):
            return
        locale = await words.told(self._people.locale(doer.team, doer.user))
        asker = asking(doer, session, root_of(session), locale, seen)
        await self._do(command.name, argument, doer, asker, replaces=True)

    async def _do(self, name: Name, argument: str, doer: Doer, asker: Asker, *, replaces: bool = False) -> None:
        said, say = await self._commands.run(name, argument, asker), words.of(asker.locale)
        text = said.text
        if said.file is not None:
            handed = await self._private.hand(doer, said.text, said.file, thread_ts=asker.address["thread_ts"])
            if handed is Handed.AS_TEXT and not replaces:
                return
            text = say(words.SENT_DIRECTLY) if handed is Handed.DIRECTLY else text
        await self._private.answer(doer, text, replaces=replaces)


def asking(doer: Doer, session: str | None, root: str, locale: str, seen: Seen) -> Asker:
    """Who asks for something in a session.

    Args:
        root: its thread.
    """
    visitor, spot = seen
    return Asker(
        session_id=session,
        place=doer.place,
        author=doer.user,
        channel=NAME,
        address={"team": doer.team, "channel": doer.channel, "thread_ts": root, "ts": root},
        event_key=doer.event_key,
        locale=locale,
        sent_at=min(doer.until, time.time()),
        until=doer.until,
        visitor=visitor,
        spot=spot,
        is_private=True,
    )


def _choices(name: Name, argument: str, found: Sequence[Recent]) -> list[Button]:
    wish = f"{name} {argument}".rstrip()
    return [Button(f"{PICK}{wish}:{one.session_id}", titled(one.first.text) or "…") for one in found]
