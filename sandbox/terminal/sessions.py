"""The desks in front of a person at the terminal, one for each platform; he sits at one of them."""

from collections.abc import Iterable

from sandbox.client.platform import ClientPlatform
from sandbox.client.session import ClientSession

HELP = """\
What you type is said where you are.
@{bot} mentions the bot: in a channel it answers to that.
{platforms}  go to that platform
/as NAME  speak as somebody else: {people}
/channel NAME  go to a channel: {channels}
/dm  go to the direct messages with {bot}
/thread ID|last  go to the thread of a message (last: of what was said last)
/press LABEL  press the newest button here that begins so (a click does it, too)
/edit WORDS, /delete  change or take back what you said last here
/file PATH WORDS  say something with a file of this machine
/menu ENTRY  choose from the newest message's menu{menu}
/quit  leave
Any other /command is sent to the bot, as {platform} does it; //help is the bot's own help."""


class TerminalSessions:
    """What happens at the other desks goes on; one sees there is something unread.

    Attributes:
        all: the desks, in the order of their platforms.
        desk: where one sits.
        closed: whether the person has had enough.
    """

    def __init__(self, platforms: Iterable[ClientPlatform]) -> None:
        self.all = [ClientSession(platform) for platform in platforms]
        self.desk = self.all[0]
        self.desk.attend()
        self.closed = False

    def sit(self, desk: ClientSession) -> None:
        self.desk.attended = False
        self.desk = desk
        desk.attend()

    def next(self) -> ClientSession:
        """The desk of the next platform."""
        return self.all[(self.all.index(self.desk) + 1) % len(self.all)]

    def called(self, line: str) -> ClientSession | None:
        """The desk to which the line goes (`/discord`), if it is such a line."""
        return next((desk for desk in self.all if line.strip() == _call(desk)), None)

    async def enter(self, line: str) -> str:
        """Do what the line says.

        Returns:
            What the terminal or the platform has to tell the person about it, if anything.
        """
        if desk := self.called(line):
            self.sit(desk)
        elif line.strip() == "/quit":
            self.closed = True
        elif line.strip() == "/help":
            return self._help()
        else:
            return await self.desk.enter(line)
        return ""

    def _help(self) -> str:
        platform = self.desk.platform
        return HELP.format(
            bot=platform.bot,
            platform=platform.name,
            platforms=", ".join(_call(desk) for desk in self.all),
            people=", ".join(person.name for person in platform.people),
            channels=", ".join(place.name for place in platform.channels),
            menu=f": {', '.join(platform.menu)}" if platform.menu else "",
        )


def _call(desk: ClientSession) -> str:
    return f"/{desk.platform.name.lower()}"
