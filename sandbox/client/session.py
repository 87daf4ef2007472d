"""Where a person sits: who speaks on a platform, where, and what an entered line does there."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from sandbox.client.platform import (
    ActionRefusedError,
    ClientEvent,
    ClientLocation,
    ClientPlatform,
    HappeningKind,
    PlatformUser,
    ShownMessage,
    ThreadSupport,
)
from sandbox.client.updates import thread_name


class ClientSession:
    """One person at a time, in one place of one platform at a time.

    Attributes:
        attended: whether the person is looking: what happens in the place is no news then.
        said: what was said last from here.
        unread: how many messages came to the places where one was not.
    """

    def __init__(self, platform: ClientPlatform) -> None:
        self.platform = platform
        self.speaker = platform.people[0]
        self.place = platform.direct(self.speaker)
        self.attended = False
        self.said: ShownMessage | None = None
        self.unread: Counter[ClientLocation] = Counter()
        self._own: dict[str, Callable[[str], str]] = {
            "as": self._become,
            "channel": self._enter_channel,
            "dm": self._enter_direct,
            "thread": self._enter_thread,
        }
        self._deeds: dict[str, Callable[[str], Awaitable[None]]] = {
            "press": self._press,
            "edit": self._edit,
            "delete": self._delete,
            "file": self._send,
            "menu": self._choose,
        }

    def attend(self) -> None:
        """Look at the desk."""
        self.attended = True
        self.go(self.place)

    def go(self, place: ClientLocation) -> None:
        self.place = place
        if self.attended:
            self.unread.pop(place, None)

    def speak_as(self, person: PlatformUser) -> None:
        """Become `person`; who was in the direct messages of another goes to the own ones."""
        self.speaker = person
        if self.place.direct:
            self.go(self.platform.direct(person))

    def thread_of(self, message: ShownMessage) -> ClientLocation:
        """The thread that the message is in, or begins.

        Raises:
            RefusedError: it has none, and cannot have one.
        """
        root, home = message.thread or message.id, self._home(message.channel)
        if home.threads is ThreadSupport.NONE:
            raise ActionRefusedError(f"There are no threads in the direct messages of {self.platform.name}.")
        for thread in self.platform.threads(self.speaker):
            if (thread.channel, thread.thread) == (message.channel, root):
                return thread
        if message.only_for is not None:
            raise ActionRefusedError("What only you can see has no thread.")
        return ClientLocation(message.channel, root, thread_name(message), home.direct, home.threads)

    def home(self) -> ClientLocation:
        """The channel or the direct messages that the place belongs to."""
        return self._home(self.place.channel)

    def places(self) -> list[ClientLocation]:
        """All that the person can go to, and where he is."""
        platform = self.platform
        places = [platform.direct(self.speaker), *platform.channels, *platform.threads(self.speaker)]
        return places if self.place in places else [*places, self.place]

    def news(self) -> int:
        """How many messages are unread in the places that the person can go to."""
        return sum(self.unread[place] for place in self.places()) if self.unread else 0

    def note(self, happening: ClientEvent) -> None:
        """Take notice of what happened: it may be news in a place where one is not."""
        message = happening.message
        if happening.kind is HappeningKind.POSTED and message.only_for is None:
            place = ClientLocation(message.channel, message.thread)
            if place != self.place or not self.attended:
                self.unread[place] += 1

    async def enter(self, line: str) -> str:
        """Do what the line says.

        Returns:
            What the terminal or the platform has to tell the person about it, if anything.
        """
        line = line.strip()
        if not line:
            return ""
        try:
            if not line.startswith("/"):
                self.said = await self.platform.post_message(self.speaker, self.place, line)
                return ""
            name, _, rest = line[1:].partition(" ")
            if own := self._own.get(name):
                return own(rest.strip())
            if deed := self._deeds.get(name):
                await deed(rest.strip())
            else:
                await self.platform.run_command(self.speaker, self.place, name.removeprefix("/"), rest.strip())
        except ActionRefusedError as refusal:
            return str(refusal)
        return ""

    async def press(self, message: ShownMessage, label: str) -> str:
        """Press a button of a message.

        Returns:
            What the platform has to tell the person about it, if anything.
        """
        try:
            await self.platform.click_button(self.speaker, message, message.buttons[label])
        except ActionRefusedError as refusal:
            return str(refusal)
        return ""

    def _seen(self) -> list[ShownMessage]:
        """What one sees here, the newest first."""
        seen = list(self.platform.messages(self.place, self.speaker))
        seen += [m.newest for m in seen if m.newest is not None]
        return sorted(seen, key=lambda message: message.sent_at, reverse=True)

    async def _press(self, label: str) -> None:
        """Press the newest button that says so, or begins so."""
        labels: dict[str, None] = {}
        for message in self._seen():
            for name, button in message.buttons.items():
                if label and name.casefold().startswith(label.casefold()):
                    return await self.platform.click_button(self.speaker, message, button)
                labels[name] = None
        there = f"There are: {', '.join(labels)}." if labels else "There are none."
        raise ActionRefusedError(f"There is no button {label!r} here. {there}")

    def _own_message(self) -> ShownMessage:
        """What one has said last, of what one sees here."""
        for message in self._seen():
            if message.author == self.speaker.name and not message.by_bot:
                return message
        raise ActionRefusedError(f"{self.speaker.name} has said nothing here.")

    async def _edit(self, text: str) -> None:
        if not text:
            raise ActionRefusedError("Write what it is to say instead: /edit WORDS")
        await self.platform.edit_message(self.speaker, self._own_message(), text)

    async def _delete(self, _: str) -> None:
        await self.platform.delete_message(self.speaker, self._own_message())

    async def _send(self, line: str) -> None:
        path, _, text = line.partition(" ")
        try:
            data = await asyncio.to_thread(_bytes_of, path)
        except OSError as error:
            raise ActionRefusedError(f"{path or 'No file'} cannot be read: {error.strerror}") from error
        self.said = await self.platform.post_message(self.speaker, self.place, text.strip(), {Path(path).name: data})

    async def _choose(self, line: str) -> None:
        """Choose an entry of the newest message's menu that is called so, or begins so."""
        wanted, _, text = line.partition(":")
        entry = next((e for e in self.platform.menu if wanted and e.casefold().startswith(wanted.casefold())), None)
        if entry is None:
            raise ActionRefusedError(f"There is no {wanted!r} in the menu. There are: {', '.join(self.platform.menu)}.")
        message = next((message for message in self._seen() if message.only_for is None), None)
        if message is None:
            raise ActionRefusedError("Nothing has been said here.")
        await self.platform.choose(self.speaker, message, entry, text.strip())

    def _home(self, channel: str) -> ClientLocation:
        direct = self.platform.direct(self.speaker)
        return next((place for place in self.platform.channels if place.channel == channel), direct)

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


def _bytes_of(path: str) -> bytes:
    return Path(path).expanduser().read_bytes()
