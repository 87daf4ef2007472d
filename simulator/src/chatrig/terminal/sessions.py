"""Chat sessions of the terminal's user, and the commands of the terminal client."""

from collections.abc import Iterable

from chatrig.client.platform import ClientPlatform
from chatrig.client.session import ChatSession
from chatrig.managed_bot import ManagedBot, describe_model
from chatrig.tour import STEPS

HELP = """\
Type a message and press Enter to send it.
@{bot} mentions the bot. In a channel the bot answers only mentions.
{platforms}  switch to the platform
/as NAME  act as another user: {people}
/channel NAME, /dm  open a channel or the DM
/thread ID|last  open the thread of a message
/press LABEL  click a button or menu option
/submit LABEL: TEXT; ...  submit the open form
/edit TEXT, /delete  edit or delete your last message
/file PATH TEXT  send a file from this machine
/menu ENTRY  use an entry in the newest message's menu{menu}
{tour}/quit  quit
Any other /command goes to the bot. //NAME is the bot's command of the same name."""

TOUR_HELP = "/tour  take the scripted tour; /tour end ends it\n"


class TerminalSessions:
    """One chat session per platform; those that are not shown count unread messages.

    Attributes:
        all: the sessions in the order of their platforms.
        current: the session that is shown and runs the typed lines.
        is_closed: whether the user has quit.
    """

    def __init__(self, platforms: Iterable[ClientPlatform], bot: ManagedBot | None = None) -> None:
        """Create the sessions.

        Args:
            bot: the bot's process, which the tour restarts; None for a bot without a tour.
        """
        self.bot = bot
        self.all = [ChatSession(platform) for platform in platforms]
        self.current = self.all[0]
        self.current.focus()
        self.is_closed = False

    def switch_to(self, session: ChatSession) -> None:
        """Show another session; the messages of its open channel become read."""
        self.current.has_focus = False
        self.current = session
        session.focus()

    def next_session(self) -> ChatSession:
        """Return the session after the current one in `all`; after the last, the first."""
        return self.all[(self.all.index(self.current) + 1) % len(self.all)]

    def find_by_command(self, line: str) -> ChatSession | None:
        """Return the session of the platform that a line such as `/discord` names.

        It is None for another line.
        """
        return next((session for session in self.all if line.strip() == _platform_command(session)), None)

    async def run_line(self, line: str) -> str:
        """Run a typed line: a command of the terminal, or a line for the current session.

        Commands of the terminal are a platform's name (`/discord`), `/help`, `/quit`, and, with a bot, `/tour` and
        `/tour end`. `/quit` only sets `is_closed`. The tour's commands wait for the restart of the bot.

        Returns:
            A text for the user, such as an error; "" for none.
        """
        if session := self.find_by_command(line):
            self.switch_to(session)
        elif line.strip() == "/quit":
            self.is_closed = True
        elif line.strip() == "/help":
            return self._help()
        elif self.bot is not None and is_tour_command(line):
            return await _switch_tour(self.bot, starts=line.split() == ["/tour"])
        else:
            return await self.current.run_line(line)
        return ""

    def _help(self) -> str:
        platform = self.current.platform
        return HELP.format(
            bot=platform.bot_name,
            platform=platform.name,
            platforms=", ".join(_platform_command(session) for session in self.all),
            people=", ".join(person.name for person in platform.people),
            tour=TOUR_HELP if self.bot else "",
            menu=f": {', '.join(platform.menu_entries)}" if platform.menu_entries else "",
        )


def is_tour_command(line: str) -> bool:
    """Return whether a line is `/tour` or `/tour end`."""
    return line.split() in (["/tour"], ["/tour", "end"])


async def _switch_tour(bot: ManagedBot, *, starts: bool) -> str:
    """Start or end the tour, which restarts the bot; return a text about the result."""
    await (bot.start_tour() if starts else bot.end_tour())
    if bot.state != "running":
        return f"The bot is not running. {bot.exit_reason}".strip()
    if starts:
        return f"The tour has begun. Write: {STEPS[0].prompt} (/tour end ends it)"
    return "\n".join(["The tour has ended.", *describe_model(bot)])


def _platform_command(session: ChatSession) -> str:
    return f"/{session.platform.name.lower()}"
