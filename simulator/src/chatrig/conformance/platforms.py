"""Local Slack and Discord for a case: questions of people, faults, and a record of the bot's visible messages."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, ClassVar, Literal, Self

from chatrig.conformance.verdicts import Question, Version
from chatrig.discord import DiscordMessage, DiscordSimulator
from chatrig.discord.state.messages import iterate_components
from chatrig.slack import SlackMessage, SlackSimulator

PlatformName = Literal["slack", "discord"]
FaultName = Literal["fail", "rate_limit", "lose_response"]
#: Kinds of calls that a fault can hit.
CallKind = Literal["post", "edit"]

_RETRY_AFTER_SECONDS = 2
#: Limit for the acknowledgement of a question, after Slack's first two retries.
_ACKNOWLEDGEMENT_SECONDS = 66.0


class CasePlatform(ABC):
    """Local platform with a record of what people see, as an async context manager.

    Attributes:
        versions: the states of the bot's messages, oldest first.
        posts: the time, the author, the channel's id and the text of each message of a person.
        names: names of the channels by id.
    """

    name: PlatformName
    simulator: Any
    calls: ClassVar[Mapping[CallKind, Sequence[str]]]

    def __init__(self) -> None:
        self.versions: list[Version] = []
        self.posts: list[tuple[float, str, str, str]] = []
        self.names: dict[str, str] = {}
        self._watcher: asyncio.Task[None] | None = None
        self._faults: list[FaultName] = []

    async def __aenter__(self) -> Self:
        await self.simulator.__aenter__()
        self._watcher = asyncio.create_task(self._watch(self.simulator.changes()))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.simulator.__aexit__(None, None, None)
        if self._watcher is not None:
            self._watcher.cancel()
            with suppress(asyncio.CancelledError):
                await self._watcher

    @abstractmethod
    def create_version(self, message: Any, at: float) -> Version | None:
        """Return the state of a message; None for one that is not the bot's."""

    @abstractmethod
    def create_question(self, key: str, words: int, message: Any) -> Question: ...

    @abstractmethod
    def add_fault(self, fault: FaultName, calls: CallKind) -> None:
        """Let the next call of this kind fail once."""

    @abstractmethod
    async def post_follow_up(self, user: str, question: Any, text: str) -> Any:
        """Post a message without a mention in the thread of a question, or as a reply to its answer."""

    async def post(self, user: str, place: str, text: str, *, mention: bool = True) -> Any:
        """Post a message of a person; the place `dm` is their DM with the bot."""
        if place == "dm":
            message = await self.simulator.post_dm(user, text)
        elif mention:
            message = await self.simulator.mention_bot(user, place, text)
        else:
            message = await self.simulator.post_message(user, place, text)
        self.record_post(user, message)
        return message

    def record_post(self, user: str, message: Any) -> None:
        self.names[message.channel.id] = message.channel.name
        self.posts.append((monotonic(), user, message.channel.id, message.text))

    @property
    def has_pending_fault(self) -> bool:
        """True while a fault has hit no call."""
        return any(self.simulator.faults.has_pending(fault) for fault in self._faults)

    @abstractmethod
    async def redeliver(self, message: Any) -> bool:
        """Deliver the event of a message again; return False on a platform that never does."""

    @abstractmethod
    async def end_redeliveries(self) -> None:
        """End all deliveries of former events, as after a long time."""

    @abstractmethod
    async def wait_for_acknowledgements(self) -> None:
        """Wait until no question is delivered again, but at most for a minute."""

    async def _watch(self, changes: Any) -> None:
        async for change in changes:
            if change.kind in ("reaction_added", "reaction_removed"):
                continue
            version = self.create_version(change.message, monotonic())
            if version is not None:
                self.versions.append(version)
                self.names.setdefault(version.channel, change.message.channel.name)


class SlackCasePlatform(CasePlatform):
    name = "slack"
    calls: ClassVar[Mapping[CallKind, Sequence[str]]] = {
        "post": ("chat.postMessage", "chat.startStream"),
        "edit": ("chat.update", "chat.appendStream", "chat.stopStream"),
    }

    def __init__(self) -> None:
        self.simulator = SlackSimulator()
        super().__init__()

    def create_version(self, message: SlackMessage, at: float) -> Version | None:
        if message.bot_id != self.simulator.bot_id:
            return None
        root = message.thread_ts if message.is_thread_reply else None
        files = "\n".join(file.data.decode(errors="replace") for file in message.files)
        text = None if message.deleted else message.text
        return Version(at, message.ts, message.channel.id, root, text, message.loading, files)

    def create_question(self, key: str, words: int, message: SlackMessage) -> Question:
        roots = (message.ts, message.thread_ts or message.ts)
        return Question(key, words, message.channel.id, roots, monotonic())

    def add_fault(self, fault: FaultName, calls: CallKind) -> None:
        self._faults.append(fault)
        if fault == "rate_limit":
            self.simulator.faults.rate_limit(self.calls[calls], _RETRY_AFTER_SECONDS)
        else:
            getattr(self.simulator.faults, fault)(self.calls[calls])

    async def post_follow_up(self, user: str, question: SlackMessage, text: str) -> SlackMessage:
        message: SlackMessage = await self.simulator.post_message(user, question.channel, text, thread_ts=question.ts)
        self.record_post(user, message)
        return message

    async def redeliver(self, message: SlackMessage) -> bool:
        await self.simulator.redeliver(message)
        return True

    async def end_redeliveries(self) -> None:
        await self.simulator.discard_pending()

    async def wait_for_acknowledgements(self) -> None:
        with suppress(TimeoutError):
            await self.simulator.wait_for(self._are_questions_acknowledged, timeout=_ACKNOWLEDGEMENT_SECONDS)

    def _are_questions_acknowledged(self) -> bool:
        acknowledged = {each.id for each in self.simulator.envelopes if each.acknowledged_at is not None}
        return all(each.id in acknowledged for each in self.simulator.envelopes if _is_question(each.payload))


class DiscordCasePlatform(CasePlatform):
    name = "discord"
    calls: ClassVar[Mapping[CallKind, Sequence[str]]] = {
        "post": ("POST /channels/{channel}/messages",),
        "edit": ("PATCH /channels/{channel}/messages/{message}",),
    }

    def __init__(self) -> None:
        self.simulator = DiscordSimulator()
        super().__init__()

    def create_version(self, message: DiscordMessage, at: float) -> Version | None:
        if message.author.id != self.simulator.bot_id:
            return None
        channel, root = message.channel, self._find_root(message)
        if channel.is_thread and channel.parent is not None:
            channel, root = channel.parent, channel.id  # a thread has the id of the message from which it was started
        files = "\n".join(file.data.decode(errors="replace") for file in message.content.attachments)
        text = None if message.deleted else _read_text(message)
        return Version(at, message.id, channel.id, root, text, message.loading, files)

    def _find_root(self, message: DiscordMessage) -> str | None:
        """Return the id of the first message in a chain of the bot's replies; None for no reply."""
        while message.reply_to is not None:
            message = message.reply_to
            if message.author.id != self.simulator.bot_id:
                return message.id
        return None

    def create_question(self, key: str, words: int, message: DiscordMessage) -> Question:
        return Question(key, words, message.channel.id, (message.id,), monotonic())

    def add_fault(self, fault: FaultName, calls: CallKind) -> None:
        self._faults.append(fault)
        [route] = self.calls[calls]
        if fault == "rate_limit":
            self.simulator.faults.rate_limit(route, _RETRY_AFTER_SECONDS)
        elif fault == "fail":
            self.simulator.faults.fail(route, status=502)
        else:
            self.simulator.faults.lose_response(route)

    async def post_follow_up(self, user: str, question: DiscordMessage, text: str) -> DiscordMessage:
        replies = self.simulator.list_replies(question)
        place, reply_to = (replies[-1].channel, replies[-1]) if replies else (question.channel, question)
        message: DiscordMessage = await self.simulator.post_message(user, place, text, reply_to=reply_to)
        self.record_post(user, message)
        return message

    async def redeliver(self, message: DiscordMessage) -> bool:
        return False

    async def end_redeliveries(self) -> None:
        """Do nothing: Discord never sends the events that a bot missed without a session."""

    async def wait_for_acknowledgements(self) -> None:
        """Do nothing: Discord has no acknowledgements of events."""


def create_platform(name: PlatformName) -> CasePlatform:
    return SlackCasePlatform() if name == "slack" else DiscordCasePlatform()


def _is_question(payload: dict[str, Any]) -> bool:
    event: dict[str, Any] = payload.get("event", {})
    return event.get("type") == "app_mention" or (event.get("type") == "message" and event.get("channel_type") == "im")


def _read_text(message: DiscordMessage) -> str:
    """Return the text of a message, with that of its embeds and components."""
    texts = [message.text]
    for embed in message.content.embeds:
        fields = [part for field in embed.get("fields") or () for part in (field.get("name"), field.get("value"))]
        footer = (embed.get("footer") or {}).get("text")
        texts += [part for part in (embed.get("title"), embed.get("description"), *fields, footer) if part]
    texts += [str(part["content"]) for part in iterate_components(message.content.components) if part.get("content")]
    return "\n".join(text for text in texts if text)
