"""Calls to the REST API of Discord, and the meaning of its error codes."""

import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

import aiohttp
import discord

from channels.base import Button, File, Priority
from channels.discord.client.components import make_view
from channels.discord.client.files import to_discord_files
from channels.discord.client.rate_limits import REQUEST_PRIORITY, PendingCalls, trace_requests
from channels.rate_limits.caller import PAUSES, Caller, RefusedError, TransientError
from channels.rate_limits.limiter import RateLimiter, Window
from channels.rate_limits.registry import RateLimiters

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Discord: each post and each edit parses mentions unless this is sent with it.
NO_MENTIONS = discord.AllowedMentions.none()

#: Common limits of a channel. Discord documents none and sends them in headers, for which discord.py waits inside a
#: call. With these, and 0.25 s for network delays, a call seldom waits there.
MESSAGE_WINDOW = Window(calls=5, seconds=5.25)
DELETION_WINDOW = Window(calls=5, seconds=1.25)
REACTION_WINDOW = Window(calls=1, seconds=0.3)

#: Discord: 50 requests per second for a bot; answers to interactions do not count.
GLOBAL_WINDOW = Window(calls=45, seconds=1.05)

#: Discord's codes for a message that is deleted, or too old to be edited so often.
UNEDITABLE_CODES = {"10008", "30046"}
THREAD_ARCHIVED = "50083"

#: Discord's code for a reply where the bot may not read the message history.
REPLY_FORBIDDEN = "160002"

#: Discord's codes for a message that has a thread already, and for a locked thread.
THREAD_EXISTS, THREAD_LOCKED = "160004", "160005"

#: Minutes of inactivity after which a thread of the bot is archived.
THREAD_MINUTES: Literal[1440] = 1440

#: Types of messages that users and bots write; all others are system messages (a join, a pin, a boost, ...).
USER_MESSAGE_TYPES = (discord.MessageType.default, discord.MessageType.reply)

_MESSAGE_PATH = re.compile(r"/channels/(?P<channel>\d+)/messages(?:/(?P<message>\d+))?$")

#: Most messages after a question that are searched for its replies.
_MAX_OWN_MESSAGES = 200


@dataclass(frozen=True, slots=True)
class SentMessage:
    """Id and text of a message that Discord has accepted."""

    id: int
    text: str


class DiscordApi:
    """Client of the REST API for all replies of a bot.

    Attributes:
        trace: keeps the requests of any client of the bot within the global limit: see `trace_requests`.

    Args:
        client: not logged in; it need not be connected to the gateway.
        silent: whether posts notify nobody.
    """

    def __init__(
        self,
        client: discord.Client,
        *,
        silent: bool = False,
        pauses: tuple[float, ...] = PAUSES,
        speed: float = 1.0,
    ) -> None:
        self._client = client
        self._silent = silent
        self._caller = Caller("discord", pauses=pauses, speed=speed)
        self._pending_calls = PendingCalls()
        assert client.user is None, "a client that has logged in before does not report its limits"
        self.trace = trace_requests(self._report_headers, lambda: self._caller.limiters.get("all", GLOBAL_WINDOW))
        client.http.http_trace = self.trace  # discord.py reads it when it logs in

    @property
    def bot_user(self) -> discord.ClientUser:
        """The bot; known once the client is logged in."""
        assert self._client.user is not None, "the client is logged in"
        return self._client.user

    @property
    def limiters(self) -> RateLimiters:
        return self._caller.limiters

    def get_limiter(self, key: Hashable, window: Window) -> RateLimiter:
        return self._caller.limiters.get(key, window)

    def post_limiter(self, channel: int) -> RateLimiter:
        return self._caller.limiters.get(("post", channel), MESSAGE_WINDOW)

    def edit_limiter(self, channel: int) -> RateLimiter:
        return self._caller.limiters.get(("edit", channel), MESSAGE_WINDOW)

    async def post_message(
        self,
        channel: int,
        text: str,
        controls: Sequence[Button] = (),
        *,
        reply_to: int | None,
        nonce_key: str,
        priority: Priority,
        has_slot: bool,
        find_posted: Callable[[], Awaitable[SentMessage | None]],
    ) -> SentMessage | None:
        """Post a message without link previews, as a reply if `reply_to` exists.

        Args:
            nonce_key: unique per message. Discord: for some minutes, a post with a known nonce posts nothing and
                returns the first message.
            find_posted: looks for the message after the answer to its post was lost.

        Returns:
            The message, which an earlier attempt may have posted; None for a stream update that was dropped.
        """
        # discord.py accepts None, though its types do not
        reference: Any = None if reply_to is None else _reference(channel, reply_to)

        async def send() -> SentMessage:
            view: Any = make_view(controls)
            message = await self._pending_calls.wait_until_applied(
                self._client.get_partial_messageable(channel).send(
                    text,
                    reference=reference,
                    nonce=_nonce(nonce_key),
                    allowed_mentions=NO_MENTIONS,
                    suppress_embeds=True,
                    silent=self._silent,
                    view=view,
                )
            )
            return SentMessage(int(message["id"]), message["content"])

        return await self.call(
            "post",
            send,
            self.post_limiter(channel),
            priority=priority,
            has_slot=has_slot,
            find_posted=find_posted,
        )

    async def send_notification(
        self, channel: int, question: int | None, author: int, text: str, *, nonce_key: str
    ) -> None:
        """Post a message that notifies the author: as a reply to their question, or by a mention.

        Args:
            question: the message to reply to; None if it is in another channel.
            nonce_key: see `post_message`.
        """
        reference: Any = None if question is None else _reference(channel, question)
        mentioned = [] if question is not None else [discord.Object(author)]
        allowed = discord.AllowedMentions(everyone=False, users=mentioned, roles=False, replied_user=True)
        text = text if question is not None else f"<@{author}> {text}"

        async def send() -> None:
            target = self._client.get_partial_messageable(channel)
            await target.send(text, reference=reference, nonce=_nonce(nonce_key), allowed_mentions=allowed)

        await self.call("ping", send, self.post_limiter(channel))

    async def send_direct_message(self, user: int, text: str) -> None:

        async def send() -> None:
            recipient = await self._client.fetch_user(user)
            await recipient.send(text, allowed_mentions=NO_MENTIONS, suppress_embeds=True)

        await self.call("tell", send, self._caller.limiters.get(("tell", user), MESSAGE_WINDOW))

    async def start_thread(self, channel: int, message: int, name: str) -> None:
        """Start a thread on a message, unless it has one. The thread has the id of the message.

        Args:
            name: Discord: at most 100 characters.
        """
        start = self._client.http.start_thread_with_message
        send = partial(start, channel, message, name=name, auto_archive_duration=THREAD_MINUTES)
        try:
            await self.call("thread", send, self.get_limiter(("thread", channel), MESSAGE_WINDOW))
        except RefusedError as refusal:
            if refusal.code != THREAD_EXISTS:
                raise

    async def edit_message(
        self,
        channel: int,
        message: int,
        text: str,
        controls: Sequence[Button] = (),
        *,
        priority: Priority,
        has_slot: bool,
    ) -> bool | None:
        """Edit a message; return None for a stream update that was dropped."""

        async def send() -> bool:
            target = self._get_partial_message(channel, message)
            edit = target.edit(content=text, view=make_view(controls), allowed_mentions=NO_MENTIONS)
            await self._pending_calls.wait_until_applied(edit)
            return True

        return await self.call("edit", send, self.edit_limiter(channel), priority=priority, has_slot=has_slot)

    async def set_files(self, channel: int, message: int, files: Sequence[File]) -> None:
        """Attach these files to a message, and remove all others."""

        async def send() -> None:
            target = self._get_partial_message(channel, message)
            edit = target.edit(attachments=to_discord_files(files), allowed_mentions=NO_MENTIONS)
            await self._pending_calls.wait_until_applied(edit)

        await self.call("attach", send, self.edit_limiter(channel), priority=Priority.FINAL)

    async def delete_message(self, channel: int, message: int) -> None:
        send = self._get_partial_message(channel, message).delete
        await self.call("delete", send, self.get_limiter(("delete", channel), DELETION_WINDOW))

    async def add_reaction(self, channel: int, message: int, emoji: str) -> None:
        send = partial(self._get_partial_message(channel, message).add_reaction, emoji)
        await self.call("react", send, self.get_limiter(("react", channel), REACTION_WINDOW))

    async def remove_reaction(self, channel: int, message: int, emoji: str) -> None:
        send = partial(self._get_partial_message(channel, message).remove_reaction, emoji, self.bot_user)
        await self.call("unreact", send, self.get_limiter(("react", channel), REACTION_WINDOW))

    async def show_typing(self, channel: int) -> None:
        """Show that the bot types. Discord: for ten seconds, or until its next message."""
        send = partial(self._client.http.send_typing, channel)
        limiter = self.get_limiter(("typing", channel), MESSAGE_WINDOW)
        await self.call("type", send, limiter, priority=Priority.STREAM_UPDATE)

    async def unarchive_thread(self, thread: int) -> None:
        """Unarchive a thread. Discord: a new message does so too, an edit does not."""
        send = partial(self._client.http.edit_channel, thread, archived=False)
        await self.call("unarchive", send, self.get_limiter(("channel", thread), MESSAGE_WINDOW))

    async def fetch_channel(self, channel: int, guild: discord.Guild | None = None) -> Any:
        """Return a channel or thread, with its `guild` if that is known."""
        return await self.fetch(
            "channel", partial((guild or self._client).fetch_channel, channel), ("channel", channel)
        )

    def get_partial_channel(self, channel: int) -> discord.PartialMessageable:
        """Return a channel, thread or direct message of which only the id is known."""
        return self._client.get_partial_messageable(channel)

    async def fetch_member(self, guild: int, user: int) -> Any:
        """Return a member of a server. Discord: this needs no privileged intent."""
        return await self.fetch("member", partial(self._client.http.get_member, guild, user), ("member", guild))

    async def fetch_guild(self, guild: int, *, priority: Priority = Priority.PROGRESS) -> discord.Guild:
        """Return a server with its roles."""
        send = partial(self._client.fetch_guild, guild, with_counts=False)
        return await self.fetch("guild", send, ("guild", guild), priority)

    async def fetch_latest_message_ids(self, guild: int) -> dict[int, int]:
        """Return the ids of the latest messages of a server's text channels, by channel; 0 in an empty channel."""

        async def send() -> dict[int, int]:
            channels: Any = await self._client.http.get_all_guild_channels(guild)  # discord.py would read each kind
            with_text = (channel for channel in channels if "last_message_id" in channel)
            return {int(channel["id"]): int(channel["last_message_id"] or 0) for channel in with_text}

        return await self.fetch("channels", send, ("channels", guild), Priority.BACKFILL)

    async def fetch_active_threads(self, guild: discord.Guild) -> list[discord.Thread]:
        """Return the active threads of a server."""
        return await self.fetch("threads", guild.active_threads, ("threads", guild.id), Priority.BACKFILL)

    async def fetch_message(self, channel: int, message: int) -> discord.Message:
        """Return a message."""
        return await self.fetch(
            "message", partial(self.get_partial_channel(channel).fetch_message, message), ("message", channel)
        )

    async def fetch_messages(
        self,
        channel: Any,
        *,
        after: int,
        before: int | None = None,
        limit: int,
        priority: Priority = Priority.PROGRESS,
    ) -> list[discord.Message]:
        """Return the newest messages of a channel or thread between two ids, the newest first."""
        start, end = discord.Object(after), None if before is None else discord.Object(before)

        async def send() -> list[discord.Message]:
            found = channel.history(limit=limit, after=start, before=end, oldest_first=False)
            return [message async for message in found]

        return await self.fetch("history", send, ("history", channel.id), priority)

    async def fetch_own_messages(self, channel: int, after: int) -> list[discord.Message]:
        """Return the bot's own messages after another one, the oldest first."""

        async def send() -> list[discord.Message]:
            start, target = discord.Object(after), self.get_partial_channel(channel)
            messages = target.history(after=start, limit=_MAX_OWN_MESSAGES, oldest_first=True)
            return [message async for message in messages if message.author == self.bot_user]

        return await self.fetch("history", send, ("history", channel))

    async def fetch(
        self, name: str, send: Callable[[], Awaitable[T]], key: Hashable, priority: Priority = Priority.PROGRESS
    ) -> T:
        """Make a call that returns something.

        Raises:
            SurfaceError: Discord refuses it, or cannot be reached.
        """
        answer = await self.call(name, send, self.get_limiter(key, MESSAGE_WINDOW), priority=priority)
        assert answer is not None, "only a stream update may be dropped"
        return answer

    def _report_headers(self, method: str, path: str, remaining: int, reset_after: float) -> None:
        found = _MESSAGE_PATH.search(path)
        if found is None:
            return
        channel = int(found["channel"])
        if method == "POST" and not found["message"]:
            self.post_limiter(channel).report_headers(remaining=remaining, reset_after=reset_after)
        elif method == "PATCH" and found["message"]:
            self.edit_limiter(channel).report_headers(remaining=remaining, reset_after=reset_after)

    async def aclose(self) -> None:
        """Cancel the pending calls."""
        await self._pending_calls.aclose()

    def _get_partial_message(self, channel: int, message: int) -> discord.PartialMessage:
        return self._client.get_partial_messageable(channel).get_partial_message(message)

    async def call(
        self,
        name: str,
        send: Callable[[], Awaitable[T]],
        limiter: RateLimiter,
        *,
        priority: Priority = Priority.PROGRESS,
        has_slot: bool = False,
        find_posted: Callable[[], Awaitable[T | None]] | None = None,
    ) -> T | None:
        """Make a call within the limits: see `Caller.call`.

        Raises:
            SurfaceError: Discord refuses it, or cannot be reached.
        """

        async def attempt() -> T:
            token = REQUEST_PRIORITY.set(priority)
            try:
                return await send()
            except discord.RateLimited as error:
                raise TransientError("rate limited", retry_after=error.retry_after) from error
            except discord.HTTPException as error:
                raise _to_error(name, error) from error
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise TransientError(type(error).__name__) from error
            finally:
                REQUEST_PRIORITY.reset(token)

        return await self._caller.call(
            name, attempt, limiter, priority=priority, has_slot=has_slot, find_effect=find_posted
        )


def _reference(channel: int, message: int) -> discord.MessageReference:
    return discord.MessageReference(message_id=message, channel_id=channel, fail_if_not_exists=False)


def _nonce(name: str) -> str:
    """Return the nonce of a key. Discord: at most 25 characters."""
    return hashlib.blake2s(name.encode(), digest_size=12).hexdigest()


def _to_error(name: str, error: discord.HTTPException) -> Exception:
    """Return the error for an HTTP error, without Discord's text, which may quote the message."""
    if str(error.code) in UNEDITABLE_CODES:
        return RefusedError(name, str(error.code))
    if error.status == 429:  # without a code of Discord: it is from the proxy before it
        return TransientError("HTTP 429", retry_after=retry_after(error))
    if error.status >= 500 or error.status == 408:
        return TransientError(f"HTTP {error.status}")
    return RefusedError(name, str(error.code) if error.code else f"HTTP {error.status}")


def retry_after(error: discord.HTTPException) -> float:
    """Return the seconds that the answer asks to wait."""
    try:
        return max(1.0, float(error.response.headers.get("Retry-After", "1")))
    except ValueError:
        return 1.0
