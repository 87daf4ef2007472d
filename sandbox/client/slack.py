"""The Slack sandbox as its people see it."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from html import escape

from rich.emoji import Emoji

from sandbox.client import mrkdwn
from sandbox.client import updates as talk
from sandbox.client.platform import (
    NOTHING,
    ActionRefusedError,
    ClientEvent,
    ClientLocation,
    PlatformUser,
    ShownMessage,
    ShownReaction,
    ThreadSupport,
)
from sandbox.slack import SlackContent, SlackFile, SlackMessage, SlackSandbox, TaskCard
from sandbox.slack.state.workspace import create_id

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
        self._texts = talk.MarkdownCache()

    @property
    def connected(self) -> bool:
        return self._slack.connection_count > 0

    async def connects_within(self, seconds: float) -> bool:
        return await talk.connects_within(self._slack, seconds)

    @property
    def people(self) -> Sequence[PlatformUser]:
        return [PlatformUser(user.id, user.name) for user in self._slack.people.values()]

    @property
    def channels(self) -> Sequence[ClientLocation]:
        return [ClientLocation(c.id, name=f"#{c.name}") for c in self._slack.channels.values() if not c.is_dm]

    def direct(self, person: PlatformUser) -> ClientLocation:
        channel = self._slack.open_dm(person.id)
        return ClientLocation(channel.id, name=f"@{self.bot}", direct=True, threads=ThreadSupport.ALL)

    def threads(self, person: PlatformUser) -> Sequence[ClientLocation]:
        newest: list[tuple[str, ClientLocation]] = []
        for home in (*self.channels, self.direct(person)):
            for message in self._seen(home, person):
                if message.newest is not None:
                    thread = ClientLocation(
                        home.channel, message.id, talk.thread_name(message), home.direct, home.threads
                    )
                    newest.append((message.newest.id, thread))
        return [place for _, place in sorted(newest, key=lambda pair: pair[0], reverse=True)]

    def messages(self, place: ClientLocation, person: PlatformUser) -> Sequence[ShownMessage]:
        return talk.standing_in(place, self._seen(place, person))

    async def post_message(
        self, person: PlatformUser, place: ClientLocation, text: str, files: Mapping[str, bytes] = NOTHING
    ) -> ShownMessage:
        sent = [SlackFile(create_id("F"), name, data) for name, data in files.items()]
        with talk.refusals():
            said = await self._slack.post_message(
                person.id, place.channel, self._written(text), thread_ts=place.thread, files=sent
            )
        return self._message(said)

    async def edit_message(self, person: PlatformUser, message: ShownMessage, text: str) -> None:
        with talk.refusals():
            await self._slack.edit_message(person.id, self._found(message), self._written(text))

    async def delete_message(self, person: PlatformUser, message: ShownMessage) -> None:
        with talk.refusals():
            await self._slack.delete_message(person.id, self._found(message))

    async def run_command(self, person: PlatformUser, place: ClientLocation, name: str, text: str) -> None:
        if place.thread is not None:
            # Slack: slash commands cannot be used in threads; these are its words.
            raise ActionRefusedError(f"/{name} is not supported in threads. Sorry!")
        with talk.refusals():
            await self._slack.run_command(person.id, place.channel, f"/{name}", text)

    async def click_button(self, person: PlatformUser, message: ShownMessage, button: str) -> None:
        with talk.refusals():
            if button == STOP:
                await self._slack.click_stop(person.id, self._found(message))
            elif not await self._slack.click_button(person.id, self._found(message), button):
                raise ActionRefusedError(f"{self.bot} has not heard it.")

    @property
    def menu(self) -> Sequence[str]:
        return list(self._slack.shortcuts)

    async def choose(self, person: PlatformUser, message: ShownMessage, entry: str, text: str) -> None:
        with talk.refusals():
            if not await self._slack.use_shortcut(person.id, self._found(message), self._slack.shortcuts[entry]):
                raise ActionRefusedError(f"{self.bot} has not heard it.")
            try:
                modal = (await self._slack.wait_for(lambda: self._slack.modals(person.id), timeout=MODAL_WITHIN))[-1]
            except TimeoutError:
                return
            if not text:
                asked = ", ".join(block["label"]["text"] for block in modal.inputs.values())
                raise ActionRefusedError(f"It asks: {asked}. Write that behind a colon: /menu {entry}: ...")
            if not await self._slack.submit_modal(modal, **dict.fromkeys(modal.inputs, text)):
                raise ActionRefusedError(f"{self.bot} has not taken it.")

    def changes(self) -> AsyncGenerator[ClientEvent, None]:
        return talk.happenings(self._slack.changes(), lambda change: self._message(change.message))

    @property
    def _names(self) -> dict[str, str]:
        people = {user.id: user.name for user in self._slack.people.values()}
        return people | {self._slack.bot_user_id: self.bot, "USLACKBOT": "Slackbot"}

    def _written(self, text: str) -> str:
        """What Slack's input line makes of what was typed."""
        return talk.mentioning(escape(text, quote=False), self._names)

    def _found(self, message: ShownMessage) -> SlackMessage:
        """Raises ValueError."""
        found = next((m for m in self._slack.messages(message.channel) if m.ts == message.id), None)
        if found is None:
            raise ValueError("the message is gone")
        return found

    def _buttons(self, message: SlackMessage) -> Mapping[str, str]:
        """What can be pressed at a message, Slack's own button to stop an agent included."""
        session = self._slack.find_session(message)
        is_own = message.bot_id == self._slack.bot_id and message.stream is not None and message.stream.is_live
        stop = {"Stop": STOP} if is_own and session is not None and session.status == "processing" else {}
        return {**stop, **message.buttons}

    def _seen(self, place: ClientLocation, person: PlatformUser) -> list[ShownMessage]:
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
        self, message: SlackMessage, replies: Iterable[SlackMessage] = (), person: PlatformUser | None = None
    ) -> ShownMessage:
        """As that person sees it; without one, as he sees it who sees most of it."""
        shown = [self._message(reply, (), person) for reply in replies]
        seen = message.versions[-1] if person is None else message.version_for(person.id)
        author = message.username or self._names.get(message.user or "", message.bot_id or "")
        return ShownMessage(
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
                ShownReaction(Emoji.replace(f":{name}:"), len(users)) for name, users in message.reactions.items()
            ),
            replies=len(shown),
            newest=shown[-1] if shown else None,
            buttons=self._buttons(message),
            has_files=bool(message.files),
        )

    def _markdown(self, content: SlackContent, message: SlackMessage) -> str:
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


def _card(task: TaskCard) -> str:
    """The card of a task, in a line."""
    return f"{_SIGNS.get(task.status, '')}{task.title}"
