"""Discord's REST API: the calls that a reply needs, and what their refusals mean."""

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
from channels.discord.client.components import view_of
from channels.discord.client.files import sent
from channels.discord.client.rate_limits import PRIORITY, Taking, trace_requests
from channels.rate_limits.caller import PAUSES, Caller, RefusedError, TransientError
from channels.rate_limits.limiter import RateLimiter, Window
from channels.rate_limits.registry import RateLimiters

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Discord: parsing of mentions is to be switched off anew with each post and each edit.
NO_MENTIONS = discord.AllowedMentions.none()

#: Discord publishes no numbers and tells them in headers, which discord.py keeps to: it then waits inside of the
#: call. This is what is commonly seen, for a channel, so that a call seldom has to wait there; with a quarter of a
#: second on top for what the network delays.
MESSAGES = Window(calls=5, seconds=5.25)
DELETIONS = Window(calls=5, seconds=1.25)
REACTIONS = Window(calls=1, seconds=0.3)

#: Discord: 50 requests a second for a bot, whatever they are; interactions are answered outside of it.
ALL = Window(calls=45, seconds=1.05)

#: Discord's codes for what cannot be edited: it is gone, or too old to be edited so often.
GONE = {"10008", "30046"}
ARCHIVED = "50083"

#: Discord's code for a reply where the bot may not read what was said.
NO_REPLIES = "160002"

#: Discord's codes for a message from which a thread was begun before, and for one that is locked.
THREAD_EXISTS, THREAD_LOCKED = "160004", "160005"

#: After how many minutes without a word a thread that the bot began is archived.
THREAD_MINUTES: Literal[1440] = 1440

#: What is said, by people or bots; every other type is Discord's own talk (a join, a pin, a boost, ...).
SPOKEN = (discord.MessageType.default, discord.MessageType.reply)

_MESSAGES = re.compile(r"/channels/(?P<channel>\d+)/messages(?:/(?P<message>\d+))?$")

#: How far behind a question its answers are looked for, in messages.
_LOOK = 200


@dataclass(frozen=True, slots=True)
class Said:
    """A message that stands."""

    id: int
    text: str


class DiscordApi:
    """Makes calls for all surfaces of a bot.

    Attributes:
        trace: keeps the requests of any client of the bot within the global limit: see `trace_requests`.

    Args:
        client: not logged in yet; it need not be connected to the gateway.
        silent: whether what is posted notifies nobody.
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
        self._taking = Taking()
        assert client.user is None, "who has logged in before does not hear of the limits"
        self.trace = trace_requests(self._report_headers, lambda: self._caller.limiters.get("all", ALL))
        client.http.http_trace = self.trace  # discord.py reads it when it logs in

    @property
    def me(self) -> discord.ClientUser:
        """The bot; known once the client is logged in."""
        assert self._client.user is not None, "the client is logged in"
        return self._client.user

    @property
    def limiters(self) -> RateLimiters:
        return self._caller.limiters

    def budget(self, key: Hashable, window: Window) -> RateLimiter:
        return self._caller.limiters.get(key, window)

    def posts(self, channel: int) -> RateLimiter:
        return self._caller.limiters.get(("post", channel), MESSAGES)

    def edits(self, channel: int) -> RateLimiter:
        return self._caller.limiters.get(("edit", channel), MESSAGES)

    async def post(
        self,
        channel: int,
        text: str,
        controls: Sequence[Button] = (),
        *,
        reply_to: int | None,
        name: str,
        priority: Priority,
        is_admitted: bool,
        found: Callable[[], Awaitable[Said | None]],
    ) -> Said | None:
        """Post in reply to a message, if to any, or beside it if that is gone, without a preview of links.

        Args:
            name: what is the same for this message and for no other. Discord: for some minutes, a post with a
                nonce that it knows posts nothing, and is answered with the first one.
            found: looks whether the message stands, when the answer to its posting was lost.

        Returns:
            The message, which an earlier attempt of the same name may have posted; none for a tick that had no place.
        """
        # discord.py's own word for none of them is None, though its types know none
        reference: Any = None if reply_to is None else _reference(channel, reply_to)

        async def send() -> Said:
            view: Any = view_of(controls)
            said = await self._taking.taken(
                self._client.get_partial_messageable(channel).send(
                    text,
                    reference=reference,
                    nonce=_nonce(name),
                    allowed_mentions=NO_MENTIONS,
                    suppress_embeds=True,
                    silent=self._silent,
                    view=view,
                )
            )
            return Said(int(said["id"]), said["content"])

        return await self.call(
            "post", send, self.posts(channel), priority=priority, is_admitted=is_admitted, found=found
        )

    async def ping(self, channel: int, question: int | None, author: int, text: str, *, name: str) -> None:
        """Say something that notifies somebody: in reply to his question, or by name if that stands elsewhere.

        Args:
            name: see `post`.
        """
        reference: Any = None if question is None else _reference(channel, question)
        named = [] if question is not None else [discord.Object(author)]
        allowed = discord.AllowedMentions(everyone=False, users=named, roles=False, replied_user=True)
        text = text if question is not None else f"<@{author}> {text}"

        async def send() -> None:
            place = self._client.get_partial_messageable(channel)
            await place.send(text, reference=reference, nonce=_nonce(name), allowed_mentions=allowed)

        await self.call("ping", send, self.posts(channel))

    async def tell(self, user: int, text: str) -> None:
        """Say something to a person directly."""

        async def send() -> None:
            user_ = await self._client.fetch_user(user)
            await user_.send(text, allowed_mentions=NO_MENTIONS, suppress_embeds=True)

        await self.call("tell", send, self._caller.limiters.get(("tell", user), MESSAGES))

    async def begin_thread(self, channel: int, message: int, name: str) -> None:
        """Begin a thread from a message: it has the message's id. One that is there already is as good.

        Args:
            name: what it is called; Discord: 100 characters at the most.
        """
        start = self._client.http.start_thread_with_message
        send = partial(start, channel, message, name=name, auto_archive_duration=THREAD_MINUTES)
        try:
            await self.call("thread", send, self.budget(("thread", channel), MESSAGES))
        except RefusedError as refusal:
            if refusal.code != THREAD_EXISTS:
                raise

    async def edit(
        self,
        channel: int,
        message: int,
        text: str,
        controls: Sequence[Button] = (),
        *,
        priority: Priority,
        is_admitted: bool,
    ) -> bool:
        """Edit a message; false for a tick that had no place."""

        async def send() -> bool:
            place = self._message(channel, message)
            await self._taking.taken(place.edit(content=text, view=view_of(controls), allowed_mentions=NO_MENTIONS))
            return True

        edited = await self.call("edit", send, self.edits(channel), priority=priority, is_admitted=is_admitted)
        return bool(edited)

    async def attach(self, channel: int, message: int, files: Sequence[File]) -> None:
        """Let a message have these files, and no others."""

        async def send() -> None:
            place = self._message(channel, message)
            await self._taking.taken(place.edit(attachments=sent(files), allowed_mentions=NO_MENTIONS))

        await self.call("attach", send, self.edits(channel), priority=Priority.FINAL)

    async def delete(self, channel: int, message: int) -> None:
        send = self._message(channel, message).delete
        await self.call("delete", send, self.budget(("delete", channel), DELETIONS))

    async def react(self, channel: int, message: int, emoji: str) -> None:
        send = partial(self._message(channel, message).add_reaction, emoji)
        await self.call("react", send, self.budget(("react", channel), REACTIONS))

    async def unreact(self, channel: int, message: int, emoji: str) -> None:
        send = partial(self._message(channel, message).remove_reaction, emoji, self.me)
        await self.call("unreact", send, self.budget(("react", channel), REACTIONS))

    async def unarchive(self, thread: int) -> None:
        """Open a thread again that was archived. Discord: a new message would do so too, an edit does not."""
        send = partial(self._client.http.edit_channel, thread, archived=False)
        await self.call("unarchive", send, self.budget(("channel", thread), MESSAGES))

    async def channel(self, channel: int, guild: discord.Guild | None = None) -> Any:
        """Return a channel or thread as discord.py has it; with its `guild`, if that is given."""
        send = partial((guild or self._client).fetch_channel, channel)
        return await self.call("channel", send, self.budget(("channel", channel), MESSAGES))

    def direct(self, channel: int) -> discord.PartialMessageable:
        """Direct messages."""
        return self._client.get_partial_messageable(channel)

    async def member(self, guild: int, user: int) -> Any:
        """Return a member of a server. Discord: this needs no privileged intent."""
        send = partial(self._client.http.get_member, guild, user)
        return await self.call("member", send, self.budget(("member", guild), MESSAGES))

    async def guild(self, guild: int) -> discord.Guild:
        """Return a server with its roles."""
        return await self._look("guild", partial(self._client.fetch_guild, guild, with_counts=False), ("guild", guild))

    async def latest(self, guild: int) -> dict[int, int]:
        """The id of the latest message of each channel of a server that may have some; 0 where nothing was said."""

        async def send() -> dict[int, int]:
            channels: Any = await self._client.http.get_all_guild_channels(guild)  # discord.py would read each kind
            told = {int(channel["id"]): channel for channel in channels if "last_message_id" in channel}
            return {id_: int(channel["last_message_id"] or 0) for id_, channel in told.items()}

        return await self._look("channels", send, ("channels", guild))

    async def threads(self, guild: discord.Guild) -> list[discord.Thread]:
        """The threads of a server that are active."""
        return await self._look("threads", guild.active_threads, ("threads", guild.id))

    async def _look(self, name: str, send: Callable[[], Awaitable[T]], key: Hashable) -> T:
        """Make a call that nobody waits for."""
        answer = await self.call(name, send, self._caller.limiters.get(key, MESSAGES), priority=Priority.BACKFILL)
        assert answer is not None, "only a tick may be dropped"
        return answer

    async def own_behind(self, channel: int, message: int) -> list[discord.Message]:
        """The bot's own messages after another one, in their order."""

        async def send() -> list[discord.Message]:
            place = self._client.get_partial_messageable(channel)
            behind = place.history(after=discord.Object(message), limit=_LOOK, oldest_first=True)
            return [message async for message in behind if message.author == self.me]

        return await self.call("history", send, self._caller.limiters.get(("history", channel), MESSAGES)) or []

    def _report_headers(self, method: str, path: str, remaining: int, reset_after: float) -> None:
        found = _MESSAGES.search(path)
        if found is None:
            return
        channel = int(found["channel"])
        if method == "POST" and not found["message"]:
            self.posts(channel).report_headers(remaining=remaining, reset_after=reset_after)
        elif method == "PATCH" and found["message"]:
            self.edits(channel).report_headers(remaining=remaining, reset_after=reset_after)

    async def aclose(self) -> None:
        """Wait for nothing more."""
        await self._taking.aclose()

    def _message(self, channel: int, message: int) -> discord.PartialMessage:
        return self._client.get_partial_messageable(channel).get_partial_message(message)

    async def call(
        self,
        name: str,
        send: Callable[[], Awaitable[T]],
        budget: RateLimiter,
        *,
        priority: Priority = Priority.PROGRESS,
        is_admitted: bool = False,
        found: Callable[[], Awaitable[T | None]] | None = None,
    ) -> T | None:
        """Make a call within the limits: see `Caller.call`."""

        async def attempt() -> T:
            token = PRIORITY.set(priority)
            try:
                return await send()
            except discord.RateLimited as error:
                raise TransientError("rate limited", retry_after=error.retry_after) from error
            except discord.HTTPException as error:
                raise _named(name, error) from error
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise TransientError(type(error).__name__) from error
            finally:
                PRIORITY.reset(token)

        return await self._caller.call(
            name, attempt, budget, priority=priority, has_slot=is_admitted, find_effect=found
        )


def _reference(channel: int, message: int) -> discord.MessageReference:
    return discord.MessageReference(message_id=message, channel_id=channel, fail_if_not_exists=False)


def _nonce(name: str) -> str:
    """Discord: 25 characters at the most."""
    return hashlib.blake2s(name.encode(), digest_size=12).hexdigest()


def _named(name: str, error: discord.HTTPException) -> Exception:
    """Discord's own words stay out of it: they may quote the message."""
    if str(error.code) in GONE:
        return RefusedError(name, str(error.code))
    if error.status == 429:  # without a word of Discord's own: it comes from what stands in front of it
        return TransientError("HTTP 429", retry_after=retry_after(error))
    if error.status >= 500 or error.status == 408:
        return TransientError(f"HTTP {error.status}")
    return RefusedError(name, str(error.code) if error.code else f"HTTP {error.status}")


def retry_after(error: discord.HTTPException) -> float:
    """Seconds that the answer asks to wait."""
    try:
        return max(1.0, float(error.response.headers.get("Retry-After", "1")))
    except ValueError:
        return 1.0
