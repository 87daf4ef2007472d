"""Client of Discord's REST API, within the rate limits, and its error codes."""

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
from channels.rate_limits.limiter import RateLimiter, Window
from channels.rate_limits.registry import RateLimiters
from channels.rate_limits.retries import RETRY_SECONDS, Caller, RefusedError, TransientError

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Discord: each post and each edit parses mentions unless this is sent with it.
NO_MENTIONS = discord.AllowedMentions.none()

#: Usual rate limits of a channel, plus 0.25 s for network delays. Discord documents none, but sends them in headers.
#: discord.py obeys the headers by waiting inside a call: with these windows that seldom happens.
MESSAGE_WINDOW = Window(calls=5, seconds=5.25)
DELETION_WINDOW = Window(calls=5, seconds=1.25)
REACTION_WINDOW = Window(calls=1, seconds=0.3)

#: Discord: 50 requests per second for a bot; responses to interactions do not count.
GLOBAL_WINDOW = Window(calls=45, seconds=1.05)

#: Discord's codes for a message that is deleted, or that is old and was edited too often.
UNEDITABLE_CODES = {"10008", "30046"}
THREAD_ARCHIVED_CODE = "50083"

#: Discord's code for a reply in a channel in which the bot may not read the message history.
REPLY_FORBIDDEN_CODE = "160002"

#: Discord's codes for a message that has a thread already, and for a locked thread.
THREAD_EXISTS_CODE, THREAD_LOCKED_CODE = "160004", "160005"

#: Minutes of inactivity after which a thread of the bot is archived.
THREAD_MINUTES: Literal[1440] = 1440

#: Types of messages that users and bots write; all others are system messages (a join, a pin, a boost, ...).
USER_MESSAGE_TYPES = (discord.MessageType.default, discord.MessageType.reply)

_MESSAGE_PATH = re.compile(r"/channels/(?P<channel>\d+)/messages(?:/(?P<message>\d+))?$")

#: Most messages after a user's message that are searched for the bot's replies to it.
_MAX_OWN_MESSAGES = 200


@dataclass(frozen=True, slots=True)
class SentMessage:
    """Id and content of a message that Discord has accepted."""

    id: int
    text: str


class DiscordApi:
    """Client of Discord's REST API that obeys the rate limits and retries failures.

    The ids of channels, messages and users are Discord's snowflakes. Unless it says otherwise, a method raises
    `RefusedError` with Discord's code if Discord refuses the call, and another `SurfaceError` if Discord cannot be
    reached.

    Args:
        client: a client that is not logged in yet; it need not be connected to the gateway.
        silent: whether posts notify nobody (Discord's flag `SUPPRESS_NOTIFICATIONS`).

    Attributes:
        trace: an aiohttp trace that makes the requests of any client of the bot obey the global rate limit: see
            `trace_requests`.
    """

    def __init__(
        self,
        client: discord.Client,
        *,
        silent: bool = False,
        pauses: tuple[float, ...] = RETRY_SECONDS,
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
        """The bot's own user; the client must be logged in."""
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
        mentioned_user: int = 0,
    ) -> SentMessage | None:
        """Post a message without link previews; its mentions notify `mentioned_user` only. For the result see `call`.

        Args:
            reply_to: the id of the message to reply to, if that still exists.
            nonce_key: unique per message. Discord: for some minutes, a post with a known nonce posts nothing and
                returns the first message.
            has_slot: whether a slot of `post_limiter` is acquired for the call already.
            find_posted: looks up the message if a call got no response; returns None if nothing was posted.
        """
        # discord.py accepts None, though its types do not
        reference: Any = None if reply_to is None else _reference(channel, reply_to)
        people = [discord.Object(mentioned_user)]
        allowed = (
            NO_MENTIONS if not mentioned_user else discord.AllowedMentions(users=people, everyone=False, roles=False)
        )

        async def send() -> SentMessage:
            view: Any = make_view(controls)
            message = await self._pending_calls.run_call(
                self._client.get_partial_messageable(channel).send(
                    text,
                    reference=reference,
                    nonce=_nonce(nonce_key),
                    allowed_mentions=allowed,
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
        self, channel: int, prompt_id: int | None, author: int, text: str, *, nonce_key: str
    ) -> None:
        """Post a message that notifies the author of a user's message.

        The post replies to the user's message; if that is in another channel (`prompt_id` is None), it mentions the
        author.
        """
        reference: Any = None if prompt_id is None else _reference(channel, prompt_id)
        mentioned = [] if prompt_id is not None else [discord.Object(author)]
        allowed = discord.AllowedMentions(everyone=False, users=mentioned, roles=False, replied_user=True)
        text = text if prompt_id is not None else f"<@{author}> {text}"

        async def send() -> None:
            target = self._client.get_partial_messageable(channel)
            await target.send(text, reference=reference, nonce=_nonce(nonce_key), allowed_mentions=allowed)

        await self.call("ping", send, self.post_limiter(channel))

    async def send_direct_message(self, user: int, text: str) -> None:
        """Send a user a direct message. Discord refuses it if the user accepts none."""

        async def send() -> None:
            recipient = await self._client.fetch_user(user)
            await recipient.send(text, allowed_mentions=NO_MENTIONS, suppress_embeds=True)

        await self.call("tell", send, self._caller.limiters.get(("tell", user), MESSAGE_WINDOW))

    async def open_dm(self, user: int) -> discord.DMChannel:
        """Open the direct messages with a user, without a message. Discord: the same channel each time."""

        async def send() -> discord.DMChannel:
            return await (await self._client.fetch_user(user)).create_dm()

        return await self.fetch("dm", send, ("dm", user))

    async def start_thread(self, channel: int, message: int, name: str) -> None:
        """Start a thread on a message, unless the message has one.

        Discord: the thread has the id of the message.

        Args:
            name: the name of the thread. Discord: at most 100 characters.
        """
        start = self._client.http.start_thread_with_message
        send = partial(start, channel, message, name=name, auto_archive_duration=THREAD_MINUTES)
        try:
            await self.call("thread", send, self.get_limiter(("thread", channel), MESSAGE_WINDOW))
        except RefusedError as refusal:
            if refusal.code != THREAD_EXISTS_CODE:
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
        """Replace the text and the buttons of a message; those that are left out disappear.

        Returns True, or None as `call` does. The code of the `RefusedError` is in `UNEDITABLE_CODES` if the message is
        deleted, or is old and was edited too often.
        """

        async def send() -> bool:
            target = self._get_partial_message(channel, message)
            edit = target.edit(content=text, view=make_view(controls), allowed_mentions=NO_MENTIONS)
            await self._pending_calls.run_call(edit)
            return True

        return await self.call("edit", send, self.edit_limiter(channel), priority=priority, has_slot=has_slot)

    async def set_files(self, channel: int, message: int, files: Sequence[File]) -> None:
        """Replace all attachments of a message by `files`; without files, remove them."""

        async def send() -> None:
            target = self._get_partial_message(channel, message)
            edit = target.edit(attachments=to_discord_files(files), allowed_mentions=NO_MENTIONS)
            await self._pending_calls.run_call(edit)

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

    async def unarchive_thread(self, thread: int) -> None:
        """Unarchive a thread. Discord: a new message does so too, an edit does not."""
        send = partial(self._client.http.edit_channel, thread, archived=False)
        await self.call("unarchive", send, self.get_limiter(("channel", thread), MESSAGE_WINDOW))

    async def fetch_channel(self, channel: int, guild: discord.Guild | None = None) -> Any:
        """Fetch a channel or thread, as a discord.py object.

        Args:
            guild: the server, if it was fetched before; the result then refers to this object. Its posts find a fetched
                forum as their parent.

        Raises:
            RefusedError: the channel does not exist (code 10003), or the bot may not see it (50001).
            discord.InvalidData: discord.py does not know the channel's type, or the channel is not in `guild`.
        """
        found = await self.fetch(
            "channel", partial((guild or self._client).fetch_channel, channel), ("channel", channel)
        )
        if guild is not None and isinstance(found, discord.ForumChannel):
            guild._add_channel(found)  # discord.py 2.7: a thread has its parent and tags only from this cache
        return found

    def get_partial_channel(self, channel: int) -> discord.PartialMessageable:
        """Return a discord.py object for the channel or thread with an id, without a call."""
        return self._client.get_partial_messageable(channel)

    async def fetch_member(self, guild: int, user: int) -> Any:
        """Fetch a member of a server, as Discord's JSON; no privileged intent is needed.

        The code of the `RefusedError` is 10007 if the user is not a member.
        """
        return await self.fetch("member", partial(self._client.http.get_member, guild, user), ("member", guild))

    async def fetch_guild(self, guild: int, *, priority: Priority = Priority.PROGRESS) -> discord.Guild:
        """Fetch a server with its roles."""
        send = partial(self._client.fetch_guild, guild, with_counts=False)
        return await self.fetch("guild", send, ("guild", guild), priority)

    async def fetch_guild_ids(self) -> list[int]:
        """Fetch the ids of all servers of the bot."""

        async def send() -> list[int]:
            return [guild.id async for guild in self._client.fetch_guilds(limit=None)]

        return await self.fetch("guilds", send, "guilds", Priority.BACKFILL)

    async def fetch_latest_message_ids(self, guild: int) -> dict[int, int]:
        """Fetch the id of the latest message by text channel (without threads); 0 for an empty channel."""

        async def send() -> dict[int, int]:
            channels: Any = await self._client.http.get_all_guild_channels(guild)  # discord.py would read each kind
            text_channels = (channel for channel in channels if "last_message_id" in channel)
            return {int(channel["id"]): int(channel["last_message_id"] or 0) for channel in text_channels}

        return await self.fetch("channels", send, ("channels", guild), Priority.BACKFILL)

    async def fetch_active_threads(self, guild: discord.Guild) -> list[discord.Thread]:
        """Fetch the threads of a server that are not archived."""
        return await self.fetch("threads", guild.active_threads, ("threads", guild.id), Priority.BACKFILL)

    async def fetch_message(self, channel: int, message: int) -> discord.Message:
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
        """Fetch the newest messages of a channel or thread, newest first."""
        start = discord.Object(after)
        end = None if before is None else discord.Object(before)

        async def send() -> list[discord.Message]:
            found = channel.history(limit=limit, after=start, before=end, oldest_first=False)
            return [message async for message in found]

        return await self.fetch("history", send, ("history", channel.id), priority)

    async def fetch_own_messages(self, channel: int, after: int) -> list[discord.Message]:
        """Fetch the bot's messages in a channel after a message, oldest first.

        Only the first `_MAX_OWN_MESSAGES` messages of all authors after that message are searched.
        """

        async def send() -> list[discord.Message]:
            start = discord.Object(after)
            target = self.get_partial_channel(channel)
            messages = target.history(after=start, limit=_MAX_OWN_MESSAGES, oldest_first=True)
            return [message async for message in messages if message.author == self.bot_user]

        return await self.fetch("history", send, ("history", channel))

    async def fetch(
        self, name: str, send: Callable[[], Awaitable[T]], key: Hashable, priority: Priority = Priority.PROGRESS
    ) -> T:
        """Make a call whose priority is no `STREAM_UPDATE`, and return its result.

        The call waits for the rate limiter of `key`, whose window is `MESSAGE_WINDOW`, and is retried: see `call`.
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
        """Cancel the calls that `PendingCalls` still runs; the client stays open."""
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
        """Make a call when its rate limits allow it, with retries: see `Caller.call`."""

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
    """Return a hash of a text as message nonce: Discord allows at most 25 characters."""
    return hashlib.blake2s(name.encode(), digest_size=12).hexdigest()


def _to_error(name: str, error: discord.HTTPException) -> Exception:
    """Return a `RefusedError` or `TransientError` for an HTTP error of discord.py.

    It is transient for the HTTP status 408, 429 or 5xx, unless Discord's error code is in `UNEDITABLE_CODES`. It has
    that code, or else the status. Discord's error text is left out: it may quote the message.
    """
    if str(error.code) in UNEDITABLE_CODES:
        return RefusedError(name, str(error.code))
    if error.status == 429:  # without a code of Discord: it is from the proxy before it
        return TransientError("HTTP 429", retry_after=get_retry_after(error))
    if error.status >= 500 or error.status == 408:
        return TransientError(f"HTTP {error.status}")
    return RefusedError(name, str(error.code) if error.code else f"HTTP {error.status}")


def get_retry_after(error: discord.HTTPException) -> float:
    """Return the seconds in the `Retry-After` header, at least 1; 1 if it is missing or no number."""
    try:
        return max(1.0, float(error.response.headers.get("Retry-After", "1")))
    except ValueError:
        return 1.0
