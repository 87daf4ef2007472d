"""Chat sessions of the terminal's user, and the commands of the terminal client."""

from collections.abc import Iterable

from chatrig.client.extension import SimulatorExtension, TerminalCommand
from chatrig.client.platform import ClientPlatform
from chatrig.client.session import ChatSession

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
{further}/quit  quit
Any other /command goes to the bot. //NAME is the bot's command of the same name."""


class TerminalSessions:
    """One chat session per platform; those that are not shown count unread messages.

    Attributes:
        all: the sessions in the order of their platforms.
        current: the session that is shown and runs the typed lines.
        is_closed: whether the user has quit.
    """

    def __init__(self, platforms: Iterable[ClientPlatform], extension: SimulatorExtension | None = None) -> None:
        self.extension = extension or SimulatorExtension()
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

    def find_extension_command(self, line: str) -> TerminalCommand | None:
        """Return the command of the extension that a line runs; None for another line."""
        return self.extension.commands.get(" ".join(line.split()))

    async def run_line(self, line: str) -> str:
        """Run a typed line: a command of the terminal, or a line for the current session.

        Commands of the terminal are a platform's name (`/discord`), `/help`, `/quit`, and those of the extension.
        `/quit` only sets `is_closed`.

        Returns:
            A text for the user, such as an error; "" for none.
        """
        if session := self.find_by_command(line):
            self.switch_to(session)
        elif line.strip() == "/quit":
            self.is_closed = True
        elif line.strip() == "/help":
            return self._help()
        elif command := self.find_extension_command(line):
            return await command.run()
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
            further="".join(f"{command.help}\n" for command in self.extension.commands.values() if command.help),
            menu=f": {', '.join(platform.menu_entries)}" if platform.menu_entries else "",
        )


def _platform_command(session: ChatSession) -> str:
    return f"/{session.platform.name.lower()}"
