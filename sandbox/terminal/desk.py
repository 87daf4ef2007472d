"""Where a person sits at the terminal: who speaks, where, and what an entered line does."""

from collections import Counter
from collections.abc import Callable

from sandbox.terminal.view import Happening, Kind, Message, Person, Place, Platform, RefusedError, opening

HELP = """\
What you type is said where you are.
@{bot} mentions the bot: in a channel it answers to that.
/as NAME  speak as somebody else: {people}
/channel NAME  go to a channel: {channels}
/dm  go to the direct messages with {bot}
/thread ID|last  go to the thread of a message (last: of what was said last)
/quit  leave
Any other /command is sent to the bot, as {platform} does it."""


class Desk:
    """One person at a time, in one place at a time.

    Attributes:
        said: what was said last from here.
        unread: how many messages came to the places where one was not.
        closed: whether the person has had enough.
    """

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.speaker = platform.people[0]
        self.place = platform.direct(self.speaker)
        self.said: Message | None = None
        self.unread: Counter[Place] = Counter()
        self.closed = False
        self._own: dict[str, Callable[[str], str]] = {
            "as": self._become,
            "channel": self._enter_channel,
            "dm": self._enter_direct,
            "help": self._help,
            "quit": self._close,
            "thread": self._enter_thread,
        }

    def go(self, place: Place) -> None:
        self.place = place
        self.unread.pop(place, None)

    def speak_as(self, person: Person) -> None:
        """Become `person`; who was in the direct messages of another goes to the own ones."""
        self.speaker = person
        if self.place.direct:
            self.go(self.platform.direct(person))

    def thread_of(self, message: Message) -> Place:
        """The thread that the message is in, or begins."""
        root = message.thread or message.id
        for thread in self.platform.threads(self.speaker):
            if (thread.channel, thread.thread) == (message.channel, root):
                return thread
        return Place(message.channel, root, opening(message.plain), direct=self._home(message.channel).direct)

    def home(self) -> Place:
        """The channel or the direct messages that the place belongs to."""
        return self._home(self.place.channel)

    def note(self, happening: Happening) -> None:
        """Take notice of what happened: it may be news in a place where one is not."""
        message = happening.message
        if happening.kind is Kind.POSTED and message.only_for is None:
            place = Place(message.channel, message.thread)
            if place != self.place:
                self.unread[place] += 1

    async def enter(self, line: str) -> str:
        """Do what the line says.

        Returns:
            What the terminal or the platform has to tell the person about it, if anything.
        """
        line = line.strip()
        if not line:
            return ""
        if not line.startswith("/"):
            return await self._say(line)
        name, _, rest = line[1:].partition(" ")
        own = self._own.get(name)
        return own(rest.strip()) if own else await self._command(name, rest.strip())

    async def _say(self, text: str) -> str:
        try:
            self.said = await self.platform.say(self.speaker, self.place, text)
        except RefusedError as refusal:
            return str(refusal)
        return ""

    async def _command(self, name: str, text: str) -> str:
        try:
            await self.platform.command(self.speaker, self.place, name, text)
        except RefusedError as refusal:
            return str(refusal)
        return ""

    def _home(self, channel: str) -> Place:
        direct = self.platform.direct(self.speaker)
        return next((place for place in self.platform.channels if place.channel == channel), direct)

    def _close(self, _: str) -> str:
        self.closed = True
        return ""

    def _help(self, _: str) -> str:
        return HELP.format(
            bot=self.platform.bot,
            platform=self.platform.name,
            people=", ".join(person.name for person in self.platform.people),
            channels=", ".join(place.name for place in self.platform.channels),
        )

    def _become(self, name: str) -> str:
        for person in self.platform.people:
            if person.name.casefold() == name.removeprefix("@").casefold():
                self.speak_as(person)
                return ""
        people = ", ".join(person.name for person in self.platform.people)
        return f"There is nobody called {name!r} here. There are: {people}."

    def _enter_direct(self, _: str) -> str:
        self.go(self.platform.direct(self.speaker))
        return ""

    def _enter_channel(self, name: str) -> str:
        for place in self.platform.channels:
            if place.name.lstrip("#") == name.lstrip("#"):
                self.go(place)
                return ""
        channels = ", ".join(place.name for place in self.platform.channels)
        return f"There is no channel {name!r} here. There are: {channels}."

    def _enter_thread(self, which: str) -> str:
        if which == "last":
            message = self.said
            if message is None:
                return "Nothing has been said yet that could have a thread."
            if self._home(message.channel).channel != message.channel:
                return "That was said in somebody else's direct messages."
        else:
            here = self.platform.messages(self.home(), self.speaker)
            message = next((message for message in here if message.id == which), None)
            if message is None:
                return f"There is no message {which!r} in {self.home().name}."
        self.go(self.thread_of(message))
        return ""
