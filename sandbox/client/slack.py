"""The Slack sandbox as its people see it."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from html import escape

from rich.emoji import Emoji

from sandbox.client import mrkdwn
from sandbox.client import updates as talk
from sandbox.client.platform import (
    NOTHING,
    Happening,
    Message,
    Person,
    Place,
    Reaction,
    RefusedError,
    Threads,
)
from sandbox.slack import Content, File, SlackSandbox, Task
from sandbox.slack import Message as SlackMessage
from sandbox.slack.state.workspace import new_id

#: Seconds within which a bot that asks for something does so.
MODAL_WITHIN = 1.0

#: What Slack's own button to stop an agent is pressed by.
STOP = "stop the agent"

#: What Slack's icons say of a task that is not under way.
_SIGNS = {"complete": "✓ ", "error": "✗ "}


class SlackPlatform:
    """A `Platform` over a `SlackSandbox`."""

    name = "Slack"
    bot = "parley"

    def __init__(self, slack: SlackSandbox) -> None:
        self._slack = slack
        self._texts = talk.Texts()

    @property
    def connected(self) -> bool:
        return self._slack.connected > 0

    async def connects_within(self, seconds: float) -> bool:
        return await talk.connects_within(self._slack, seconds)

    @property
    def people(self) -> Sequence[Person]:
        return [Person(user.id, user.name) for user in self._slack.people.values()]

    @property
    def channels(self) -> Sequence[Place]:
        return [Place(c.id, name=f"#{c.name}") for c in self._slack.channels.values() if not c.is_dm]

    def direct(self, person: Person) -> Place:
        channel = self._slack.open_dm(person.id)
        return Place(channel.id, name=f"@{self.bot}", direct=True, threads=Threads.ALL)

    def threads(self, person: Person) -> Sequence[Place]:
        newest: list[tuple[str, Place]] = []
        for home in (*self.channels, self.direct(person)):
            for message in self._seen(home, person):
                if message.newest is not None:
                    thread = Place(home.channel, message.id, talk.thread_name(message), home.direct, home.threads)
                    newest.append((message.newest.id, thread))
        return [place for _, place in sorted(newest, key=lambda pair: pair[0], reverse=True)]

    def messages(self, place: Place, person: Person) -> Sequence[Message]:
        return talk.standing_in(place, self._seen(place, person))

    async def say(self, person: Person, place: Place, text: str, files: Mapping[str, bytes] = NOTHING) -> Message:
        sent = [File(new_id("F"), name, data) for name, data in files.items()]
        with talk.refusals():
            said = await self._slack.say(
                person.id, place.channel, self._written(text), thread_ts=place.thread, files=sent
            )
        return self._message(said)

    async def edit(self, person: Person, message: Message, text: str) -> None:
        with talk.refusals():
            await self._slack.edit(person.id, self._found(message), self._written(text))

    async def delete(self, person: Person, message: Message) -> None:
        with talk.refusals():
            await self._slack.delete(person.id, self._found(message))

    async def command(self, person: Person, place: Place, name: str, text: str) -> None:
        if place.thread is not None:
            # Slack: slash commands cannot be used in threads; these are its words.
            raise RefusedError(f"/{name} is not supported in threads. Sorry!")
        with talk.refusals():
            await self._slack.command(person.id, place.channel, f"/{name}", text)

    async def press(self, person: Person, message: Message, button: str) -> None:
        with talk.refusals():
            if button == STOP:
                await self._slack.stop(person.id, self._found(message))
            elif not await self._slack.press(person.id, self._found(message), button):
                raise RefusedError(f"{self.bot} has not heard it.")

    @property
    def menu(self) -> Sequence[str]:
        return list(self._slack.shortcuts)

    async def choose(self, person: Person, message: Message, entry: str, text: str) -> None:
        with talk.refusals():
            if not await self._slack.shortcut(person.id, self._found(message), self._slack.shortcuts[entry]):
                raise RefusedError(f"{self.bot} has not heard it.")
            try:
                modal = (await self._slack.wait_for(lambda: self._slack.modals(person.id), timeout=MODAL_WITHIN))[-1]
            except TimeoutError:
                return
            if not text:
                asked = ", ".join(block["label"]["text"] for block in modal.inputs.values())
                raise RefusedError(f"It asks: {asked}. Write that behind a colon: /menu {entry}: ...")
            if not await self._slack.submit(modal, **dict.fromkeys(modal.inputs, text)):
                raise RefusedError(f"{self.bot} has not taken it.")

    def changes(self) -> AsyncGenerator[Happening, None]:
        return talk.happenings(self._slack.changes(), lambda change: self._message(change.message))

    @property
    def _names(self) -> dict[str, str]:
        people = {user.id: user.name for user in self._slack.people.values()}
        return people | {self._slack.bot_user_id: self.bot, "USLACKBOT": "Slackbot"}

    def _written(self, text: str) -> str:
        """What Slack's input line makes of what was typed."""
        return talk.mentioning(escape(text, quote=False), self._names)

    def _found(self, message: Message) -> SlackMessage:
        """Raises ValueError."""
        found = next((m for m in self._slack.messages(message.channel) if m.ts == message.id), None)
        if found is None:
            raise ValueError("the message is gone")
        return found

    def _buttons(self, message: SlackMessage) -> Mapping[str, str]:
        """What can be pressed at a message, Slack's own button to stop an agent included."""
        session = self._slack.session(message)
        is_own = message.bot_id == self._slack.bot_id and message.stream is not None and message.stream.is_live
        stop = {"Stop": STOP} if is_own and session is not None and session.status == "processing" else {}
        return {**stop, **message.buttons}

    def _seen(self, place: Place, person: Person) -> list[Message]:
        """All that stands in the channel, in or out of threads, as far as the person sees it."""
        found = [
            message for message in self._slack.messages(place.channel) if message.ephemeral_to in (None, person.id)
        ]
        replies: dict[str, list[SlackMessage]] = {}
        for message in found:
            if message.is_reply and message.thread_ts is not None:
                replies.setdefault(message.thread_ts, []).append(message)
        return [self._message(message, replies.get(message.ts, ()), person) for message in found]

    def _message(
        self, message: SlackMessage, replies: Iterable[SlackMessage] = (), person: Person | None = None
    ) -> Message:
        """As that person sees it; without one, as he sees it who sees most of it."""
        shown = [self._message(reply, (), person) for reply in replies]
        seen = message.versions[-1] if person is None else message.seen_by(person.id)
        author = message.username or self._names.get(message.user or "", message.bot_id or "")
        return Message(
            id=message.ts,
            channel=message.channel.id,
            author=author,
            by_bot=message.bot_id == self._slack.bot_id,
            sent_at=float(message.ts),
            text=self._texts.of(
                (message.channel.id, message.ts), seen.content, lambda: self._markdown(seen.content, message)
            ),
            plain=talk.with_extras(
                "\n".join([*map(_card, seen.tasks), *filter(None, [seen.text])]),
                (file.name for file in message.files),
                message.buttons,
            ),
            thread=message.thread_ts if message.is_reply else None,
            revision=message.versions.index(seen),
            edited=message.edited,
            only_for=message.ephemeral_to,
            pending=message.stream is not None and message.stream.is_live,
            reactions=tuple(
                Reaction(Emoji.replace(f":{name}:"), len(users)) for name, users in message.reactions.items()
            ),
            replies=len(shown),
            newest=shown[-1] if shown else None,
            buttons=self._buttons(message),
            has_files=bool(message.files),
        )

    def _markdown(self, content: Content, message: SlackMessage) -> str:
        if content.blocks:
            text = mrkdwn.from_blocks(content.blocks, self._name)
        elif content.markdown:
            text = mrkdwn.from_markdown(content.text, self._name)
        else:
            text = mrkdwn.from_mrkdwn(content.text, self._name)
        cards = [f"_{mrkdwn.from_mrkdwn(escape(_card(task), quote=False), self._name)}_" for task in content.tasks]
        files = [f"`[file {file.name}]`" for file in message.files]
        return "\n\n".join(filter(None, [*map(Emoji.replace, [*cards, text]), *files]))

    def _name(self, target: str) -> str:
        """The name behind `@U1`, `#C1` or `!here`."""
        sign, key = target[0], target[1:]
        if sign == "!":
            return f"@{key.partition('^')[0]}"
        channels = {channel.id: channel.name for channel in self._slack.channels.values()}
        return f"{sign}{(self._names | channels).get(key, key)}"


def _card(task: Task) -> str:
    """The card of a task, in a line."""
    return f"{_SIGNS.get(task.status, '')}{task.title}"
