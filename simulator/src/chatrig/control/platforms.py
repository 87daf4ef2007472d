"""Actions of the control API on the local Slack and Discord: each public method is a route."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from chatrig.control.steps import check_status
from chatrig.discord import DiscordSimulator
from chatrig.discord.state.messages import DiscordMessage
from chatrig.observable import VisibleMessage
from chatrig.slack import SlackSimulator
from chatrig.slack.state.messages import SlackMessage

Json = dict[str, Any]
M = TypeVar("M", bound=VisibleMessage)

MAX_FAULTS = 1_000
#: Requests to Slack that have faults without being API methods.
_SLACK_TRANSFERS = frozenset({"response_url", "upload", "download"})


class Faults(Protocol):
    """Faults that both platforms have."""

    def lose_response(self, call: str, times: int, /) -> None: ...

    def delay(self, call: str, seconds: float, times: int, /) -> None: ...

    def clear(self) -> None: ...


class Simulator(Protocol[M]):
    """Actions and queries that both platforms have."""

    @property
    def faults(self) -> Faults: ...

    def list_replies(self, question: M, /) -> Sequence[M]: ...

    async def wait_for_reply(self, question: M, /, *, until: str | None, quiet: float, timeout: float) -> M: ...  # noqa: ASYNC109 (as in `ObservableSimulator`)

    async def wait_until_connected(self, seconds: float, /) -> None: ...

    async def post_dm(self, user: str, text: str, /) -> M: ...

    async def edit_message(self, user: str, message: M, text: str, /) -> None: ...

    async def delete_message(self, user: str, message: M, /) -> None: ...

    async def add_reaction(self, user: str, message: M, emoji: str, /) -> None: ...

    async def drop_sockets(self) -> None: ...

    async def freeze_sockets(self) -> None: ...

    def find_message(self, id_: str, /) -> M | None: ...


class PlatformControl(ABC, Generic[M]):
    """Actions of both platforms.

    Attributes:
        queries: names of the methods that change nothing.
    """

    queries = ("messages", "replies")

    def __init__(self, simulator: Simulator[M]) -> None:
        self._simulator = simulator

    @abstractmethod
    def _to_json(self, message: M) -> Json:
        """Return a message as people see it, as JSON."""

    @abstractmethod
    def _check_call(self, call: str) -> None:
        """Raise `ValueError` for an unknown API method or route."""

    # People

    async def post_dm(self, user: str, text: str) -> Json:
        """Post a message in the user's DM with the bot; return it."""
        return self._to_json(await self._simulator.post_dm(user, text))

    async def edit_message(self, user: str, message: str, text: str) -> Json:
        """Replace the text of a user's own message; return it."""
        edited = self._find_message(message)
        await self._simulator.edit_message(user, edited, text)
        return self._to_json(edited)

    async def delete_message(self, user: str, message: str) -> Json:
        """Delete a user's own message; return it."""
        deleted = self._find_message(message)
        await self._simulator.delete_message(user, deleted)
        return self._to_json(deleted)

    async def add_reaction(self, user: str, message: str, emoji: str) -> Json:
        """Add a user's reaction to a message; return it."""
        target = self._find_message(message)
        await self._simulator.add_reaction(user, target, emoji)
        return self._to_json(target)

    async def replies(self, message: str) -> Json:
        """Return the bot's messages after a question, in its place or its thread."""
        return self._list_json(self._simulator.list_replies(self._find_message(message)))

    async def wait_for_reply(
        self,
        message: str,
        until: str | None = None,
        quiet: float = 1.0,
        timeout: float = 20,  # noqa: ASYNC109 (a field of the request)
    ) -> Json:
        """Wait for the reply with the text `until`, or that does not change for `quiet` seconds."""
        question = self._find_message(message)
        return self._to_json(await self._simulator.wait_for_reply(question, until=until, quiet=quiet, timeout=timeout))

    async def wait_until_connected(self, timeout: float = 20) -> Json:  # noqa: ASYNC109 (a field of the request)
        """Wait until the bot is connected."""
        await self._simulator.wait_until_connected(timeout)
        return {}

    # Faults

    async def lose_response(self, call: str, times: int = 1) -> Json:
        """Run the next calls of an API method or route, but close their connections unanswered."""
        self._check_fault(call, times)
        self._simulator.faults.lose_response(call, times)
        return {}

    async def delay(self, call: str, seconds: float, times: int = 1) -> Json:
        """Run the next calls of an API method or route after a delay."""
        self._check_fault(call, times, seconds)
        self._simulator.faults.delay(call, seconds, times)
        return {}

    async def drop_sockets(self) -> Json:
        """Abort the bot's WebSockets without a close frame."""
        await self._simulator.drop_sockets()
        return {}

    async def freeze_sockets(self) -> Json:
        """Stop all traffic on the bot's WebSockets, which stay open."""
        await self._simulator.freeze_sockets()
        return {}

    async def clear_faults(self) -> Json:
        """Cancel all pending faults."""
        self._simulator.faults.clear()
        return {}

    # Internals

    def _find_message(self, id_: str) -> M:
        message = self._simulator.find_message(id_)
        if message is None:
            raise ValueError(f"there is no message {id_}")
        return message

    def _list_json(self, messages: Sequence[M]) -> Json:
        return {"messages": [self._to_json(message) for message in messages]}

    def _check_fault(self, call: str, times: int, seconds: float = 0) -> None:
        self._check_call(call)
        if seconds < 0:
            raise ValueError("the number of seconds must not be negative")
        if not 1 <= times <= MAX_FAULTS:
            raise ValueError(f"the field 'times' must be from 1 to {MAX_FAULTS}")


class SlackControl(PlatformControl[SlackMessage]):
    """Actions on the local Slack. A message's id is its `ts`."""

    def __init__(self, slack: SlackSimulator) -> None:
        super().__init__(slack)
        self._slack = slack

    async def mention_bot(self, user: str, channel: str, text: str, thread: str | None = None) -> Json:
        """Post a message that begins with a mention of the bot; return it."""
        return self._to_json(await self._slack.mention_bot(user, channel, text, thread_ts=thread))

    async def post_message(self, user: str, channel: str, text: str, thread: str | None = None) -> Json:
        """Post a message; return it."""
        return self._to_json(await self._slack.post_message(user, channel, text, thread_ts=thread))

    async def messages(self, channel: str, thread: str | None = None) -> Json:
        """Return the messages of a channel or of one thread, with ephemeral ones, oldest first."""
        return self._list_json(self._slack.messages(channel, thread_ts=thread))

    async def run_command(self, user: str, channel: str, command: str, text: str = "") -> Json:
        """Run a slash command; return the responses until its acknowledgement."""
        return self._list_json(await self._slack.run_command(user, channel, command, text))

    async def click_button(self, user: str, message: str, button: str) -> Json:
        """Click a button with this label or id; return whether the bot acknowledged it in time."""
        target = self._find_message(message)
        id_ = target.buttons.get(button, button)
        return {"acknowledged": await self._slack.click_button(user, target, id_)}

    async def rate_limit(self, call: str, retry_after: float, times: int = 1) -> Json:
        """Refuse the next calls of an API method with HTTP 429."""
        self._check_fault(call, times, retry_after)
        self._slack.faults.rate_limit(call, math.ceil(retry_after), times)
        return {}

    async def fail(self, call: str, status: int = 500, error: str | None = None, times: int = 1) -> Json:
        """Refuse the next calls of an API method with an HTTP status, or with Slack's error code."""
        self._check_fault(call, times)
        check_status(status)
        self._slack.faults.fail(call, times, status=status, error=error)
        return {}

    async def redeliver(self, message: str) -> Json:
        """Send the events of a message to the bot again."""
        await self._slack.redeliver(self._find_message(message))
        return {}

    def _check_call(self, call: str) -> None:
        if call not in self._slack.methods | _SLACK_TRANSFERS:
            raise ValueError(f"there is no method {call}")

    def _to_json(self, message: SlackMessage) -> Json:
        names = {user.id: name for name, user in self._slack.people.items()}
        author = message.user or ""
        return {
            "id": message.ts,
            "channel": message.channel.name,
            "channel_id": message.channel.id,
            "user": message.username or names.get(author, author),
            "is_from_bot": message.bot_id == self._slack.bot_id,
            "text": message.text,
            "thread": message.thread_ts,
            "buttons": message.buttons,
            "files": [file.name for file in message.files],
            "reactions": _name_users(message.reactions, names),
            "ephemeral_to": names.get(message.ephemeral_to or ""),
            "is_edited": message.edited,
            "is_deleted": message.deleted,
            "is_loading": message.loading,
        }


class DiscordControl(PlatformControl[DiscordMessage]):
    """Actions on the local Discord."""

    def __init__(self, discord: DiscordSimulator) -> None:
        super().__init__(discord)
        self._discord = discord

    async def mention_bot(self, user: str, channel: str, text: str, reply_to: str | None = None) -> Json:
        """Post a message that begins with a mention of the bot; return it."""
        target = self._find_target(reply_to)
        return self._to_json(await self._discord.mention_bot(user, channel, text, reply_to=target))

    async def post_message(self, user: str, channel: str, text: str, reply_to: str | None = None) -> Json:
        """Post a message; return it."""
        target = self._find_target(reply_to)
        return self._to_json(await self._discord.post_message(user, channel, text, reply_to=target))

    async def messages(self, channel: str) -> Json:
        """Return the messages of a channel or thread, with ephemeral ones, oldest first."""
        return self._list_json(self._discord.messages(channel))

    async def run_command(
        self, user: str, channel: str, command: str, options: Mapping[str, Any] | None = None
    ) -> Json:
        """Run a slash command with options by name; return the responses until its acknowledgement."""
        if not all(isinstance(value, str | int | float | bool) for value in (options or {}).values()):
            raise ValueError("an option must be a text, a number, or true or false")
        return self._list_json(await self._discord.run_command(user, channel, command, **(options or {})))

    async def click_button(self, user: str, message: str, button: str) -> Json:
        """Click a button with this label or id; return the responses until its acknowledgement."""
        target = self._find_message(message)
        id_ = target.buttons.get(button, button)
        return self._list_json(await self._discord.click_button(user, target, id_))

    async def rate_limit(self, call: str, retry_after: float, times: int = 1) -> Json:
        """Refuse the next calls of a route with HTTP 429."""
        self._check_fault(call, times, retry_after)
        self._discord.faults.rate_limit(call, retry_after, times)
        return {}

    async def fail(self, call: str, status: int = 500, code: int = 0, times: int = 1) -> Json:
        """Refuse the next calls of a route with an HTTP status and Discord's error code."""
        self._check_fault(call, times)
        check_status(status)
        self._discord.faults.fail(call, times, status=status, code=code)
        return {}

    def _find_target(self, id_: str | None) -> DiscordMessage | None:
        return None if id_ is None else self._find_message(id_)

    def _check_call(self, call: str) -> None:
        if call not in self._discord.faults.routes:
            raise ValueError(f"there is no route {call}")

    def _to_json(self, message: DiscordMessage) -> Json:
        names = {user.id: name for name, user in self._discord.people.items()}
        return {
            "id": message.id,
            "channel": message.channel.name,
            "channel_id": message.channel.id,
            "user": message.author.name,
            "is_from_bot": message.author.id == self._discord.bot_id,
            "text": message.text,
            "reply_to": None if message.reply_to is None else message.reply_to.id,
            "thread": None if message.thread is None else message.thread.id,
            "buttons": message.buttons,
            "files": [file.name for file in message.content.attachments],
            "reactions": _name_users(message.reactions, names),
            "ephemeral_to": None if message.ephemeral_to is None else message.ephemeral_to.name,
            "is_edited": message.edited,
            "is_deleted": message.deleted,
            "is_loading": message.loading,
        }


def _name_users(reactions: Mapping[str, Sequence[str]], names: Mapping[str, str]) -> Json:
    return {emoji: [names.get(user, user) for user in users] for emoji, users in reactions.items()}
