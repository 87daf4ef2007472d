"""The sandbox itself: one HTTP server on loopback, and the hands of the people in the Discord server."""

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from secrets import token_urlsafe
from types import TracebackType
from typing import TypeVar

from aiohttp import web

from sandbox.discord.api import Api
from sandbox.discord.chat import Chat
from sandbox.discord.directory import Directory
from sandbox.discord.door import PREFIX, Door
from sandbox.discord.events import Events
from sandbox.discord.faults import Faults
from sandbox.discord.files import Files, attached
from sandbox.discord.gateway import Gateway
from sandbox.discord.guild import (
    DEFAULT,
    JOIN,
    PIN,
    REPLY,
    Change,
    Channel,
    Content,
    Guild,
    Message,
    User,
)
from sandbox.discord.interactions import Interactions
from sandbox.discord.journal import Journal, Subscription
from sandbox.discord.limits import RateLimits
from sandbox.discord.payloads import Json, Payloads
from sandbox.discord.permissions import PERMISSIONS, PRIVILEGED
from sandbox.discord.threads import Threads

T = TypeVar("T")

_PEOPLE = {"ada": "Ada Lovelace", "grace": "Grace Hopper", "linus": "Linus Pauling"}
_CHANNELS = ("general", "random")
_FORUM = "ideas"


class DiscordSandbox:
    """A Discord server with one bot in it, for as long as it is entered.

    Wherever a user or a channel is asked for, its id or name will do as well (`"ada"`, `"general"`). What people
    write is given in Discord's own way: a mention is `<@...>`.

    Attributes:
        api_url, gateway_url: for the client; known once the sandbox is entered. discord.py takes them as
            `discord.http.Route.BASE` and `discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY`.
        people: by name; there are a few to start with, and who is added is here at once.
        channels: by name; it starts with `general`, `random` and the forum `ideas`, open to all.
        permissions: what the bot may do; take one away and see 50013.
        privileged_intents: which are switched on for the app; one that is not ends the identification with 4014,
            and without `message_content` the history is as empty as the events.
        calls: each call of the REST API, as it came.
        events: each event, as each session was told it.
        sessions: each that a client has begun at the gateway.
        faults: what is to go wrong.
    """

    def __init__(self, *, port: int = 0, speed: float = 1.0, rate_limits: bool = True) -> None:
        """Build the server.

        Args:
            port: where to listen; 0 for any that is free.
            speed: how many times faster than Discord's the rate limit windows, time limits and heartbeats run; at
                20, an interaction must be answered within 150 ms.
            rate_limits: whether to refuse what comes too often.
        """
        self._port = port
        self._journal = Journal()
        self._guild = Guild(self._changed, self._thread_begun)
        self.permissions = set(PERMISSIONS)
        self.privileged_intents = set(PRIVILEGED)
        self.bot_token = f"{b64encode(self.bot_id.encode()).decode()}.{token_urlsafe(5)}.{token_urlsafe(27)}"
        self.api_url = ""
        self.gateway_url = ""
        self.calls = self._journal.calls
        self.events = self._journal.events
        self.people: dict[str, User] = {}
        self.channels: dict[str, Channel] = {}
        self._other_bots: dict[str, User] = {}

        self._payloads = Payloads(self._guild, self.permissions, self.privileged_intents)
        api = Api(self._guild, self._payloads, self.permissions, self.privileged_intents)
        self.faults = Faults(api.routes)
        self._gateway = Gateway(
            self._journal,
            self.faults,
            self._payloads,
            token=self.bot_token,
            privileged=self.privileged_intents,
            speed=speed,
        )
        self.sessions = self._gateway.sessions
        self._events = Events(api, self._gateway)
        chat = Chat(api, speed)
        Threads(api, chat, self._events.thread_updated)
        self._interactions = Interactions(api, chat, self._tell_interaction, speed)
        Directory(api, self._gateway)
        limits = RateLimits(speed) if rate_limits else None
        door = Door(self._journal, self.faults, limits, api, self.bot_token)
        app = web.Application(client_max_size=32 * 2**20)
        app.router.add_route("*", PREFIX + "/{path:.*}", door.call)
        app.router.add_get("/attachments/{channel}/{file}/{name}", Files(self._guild).serve)
        app.router.add_get("/gateway/", self._gateway.handle)
        self._runner = web.AppRunner(app, shutdown_timeout=1)

        for name, display_name in _PEOPLE.items():
            self.people[name] = self._guild.add_user(name, display_name)
        for name in _CHANNELS:
            self.channels[name] = self._guild.add_channel(name, "text", None)
        self.channels[_FORUM] = self._guild.add_channel(_FORUM, "forum", None)

    async def __aenter__(self) -> "DiscordSandbox":
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self._port = self._runner.addresses[0][1]
        address = f"http://127.0.0.1:{self._port}"
        self._payloads.address = address
        self.api_url = address + PREFIX
        self.gateway_url = self._gateway.url = f"ws://127.0.0.1:{self._port}/gateway/"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._journal.close()
        await self._gateway.stop()
        await self._runner.cleanup()

    # The server

    @property
    def guild_id(self) -> str:
        return self._guild.id

    @property
    def bot_id(self) -> str:
        """The bot's user, and its application: Discord gives both one id."""
        return self._guild.bot.id

    @property
    def bot_role_id(self) -> str:
        """The role that the bot came with: who mentions it (`<@&...>`) calls the bot."""
        return self._guild.bot_role

    @property
    def commands(self) -> list[Json]:
        """The application commands that are registered, those for all servers first."""
        return [command for commands in self._interactions.commands.values() for command in commands]

    def add_user(self, name: str, display_name: str | None = None) -> User:
        """Add a person. Who watches members is told; nobody says so in a channel (see `join`)."""
        user = self._guild.add_user(name, display_name or name.title())
        self.people[name] = user
        self._events.joined(user)
        return user

    def add_channel(
        self, name: str, *, forum: bool = False, members: Iterable[User | str] | None = None, bot: bool = True
    ) -> Channel:
        """Add a channel; everybody is in it if `members` are not given, otherwise they are, and the bot if `bot`."""
        ids = None if members is None else {self._user(user).id for user in members} | ({self.bot_id} if bot else set())
        channel = self._guild.add_channel(name, "forum" if forum else "text", ids)
        self.channels[name] = channel
        self._events.channel(channel)
        return channel

    def open_dm(self, user: User | str) -> Channel:
        """The direct messages between a person and the bot."""
        return self._guild.open_dm(self._user(user))

    def messages(self, channel: Channel | str, *, deleted: bool = False) -> list[Message]:
        """What stands in a channel or thread, oldest first, ephemeral messages included; what was deleted as well."""
        return [m for m in self._guild.messages(self._channel(channel)) if deleted or not m.deleted]

    def threads(self, channel: Channel | str) -> list[Channel]:
        """The threads of a channel, or the posts of a forum, archived ones included."""
        place = self._channel(channel)
        return [thread for thread in self._guild.channels.values() if thread.parent is place]

    # What people do

    async def say(
        self,
        user: User | str,
        channel: Channel | str,
        text: str,
        *,
        reply_to: Message | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> Message:
        """Post as a person, perhaps in reply to a message (which calls its author); `files` by their names.

        Raises:
            ValueError: he may not be there, it is a forum, or the thread is locked.
        """
        author, place = self._user(user), self._place(self._user(user), channel)
        if place.kind == "forum" or place.locked:
            raise ValueError(f"nobody can write in {place.name}")
        content = Content(text, attachments=[attached(name, data) for name, data in (files or {}).items()])
        return self._guild.post(place, author, content, type=REPLY if reply_to else DEFAULT, reply_to=reply_to)

    async def edit(self, user: User | str, message: Message, text: str) -> None:
        """Edit one's own message.

        Raises:
            ValueError: it is another's, or gone.
        """
        self._check_own(user, message)
        self._guild.update(message, Content(text, attachments=message.content.attachments))

    async def delete(self, user: User | str, message: Message) -> None:
        """Delete one's own message.

        Raises:
            ValueError: it is another's, or gone.
        """
        self._check_own(user, message)
        self._guild.delete(message)

    async def react(self, user: User | str, message: Message, emoji: str) -> None:
        """Add an emoji, as it is, to a message."""
        self._guild.react(message, self._user(user), emoji)

    async def start_thread(self, user: User | str, message: Message, name: str) -> Channel:
        """Begin a thread from a message.

        Raises:
            ValueError: it has one, or is in a thread or in direct messages.
        """
        if message.thread is not None or message.channel.kind != "text":
            raise ValueError("a thread begins once, from a message in a channel")
        return self._guild.start_thread(message.channel, name, self._user(user), root=message)

    async def start_post(self, user: User | str, forum: Channel | str, name: str, text: str) -> Channel:
        """Begin a post in a forum: a thread, whose first message has its id.

        Raises:
            ValueError: it is no forum.
        """
        author, place = self._user(user), self._place(self._user(user), forum)
        if place.kind != "forum":
            raise ValueError(f"{place.name} is no forum")
        post = self._guild.start_thread(place, name, author)
        self._guild.post(post, author, Content(text), id=post.id)
        return post

    async def archive(self, thread: Channel, *, locked: bool = False) -> None:
        """Archive a thread; unless it is `locked`, the next message opens it again."""
        thread.archived, thread.locked = True, locked
        self._events.thread_updated(thread)

    async def pin(self, user: User | str, message: Message) -> Message:
        """Pin a message; returns the system message that says so."""
        message.pinned = True
        return self._guild.post(message.channel, self._user(user), Content(), type=PIN, reply_to=message)

    async def join(self, name: str) -> Message:
        """Let a new person come in; returns the system message in `general` that says so."""
        return self._guild.post(self.channels["general"], self.add_user(name), Content(), type=JOIN)

    async def bot_says(self, name: str, channel: Channel | str, text: str, *, webhook: bool = False) -> Message:
        """Post as another bot of that name, or as a webhook."""
        bot = self._other_bots.get(name)
        if bot is None:
            bot = self._other_bots[name] = self._guild.add_user(name, name, is_bot=True)
        return self._guild.post(self._channel(channel), bot, Content(text), webhook=bot.id if webhook else None)

    async def command(
        self, user: User | str, channel: Channel | str, command: str, **options: str | float | bool
    ) -> list[Message]:
        """Give a slash command, and return, once it is acknowledged, what the person sees for it.

        What follows is appended to that same list as it comes; a deferred answer is `loading` until it is edited.
        If nobody is connected or nobody acknowledges in time, it is Discord that says so.

        Raises:
            ValueError: it is not registered, or has no such option; or he may not be there.
        """
        author = self._user(user)
        return await self._interactions.give(author, self._place(author, channel), command.removeprefix("/"), options)

    async def press(self, user: User | str, message: Message, custom_id: str) -> list[Message]:
        """Press a button, and return, once that is acknowledged, what the person sees beside the message.

        Raises:
            ValueError: there is no such button, or it is disabled.
        """
        return await self._interactions.press(self._user(user), message, custom_id)

    # What Discord does

    async def drop_sockets(self) -> None:
        """Cut every connection without a word; the sessions can be resumed."""
        self._gateway.drop()

    async def freeze_sockets(self) -> None:
        """Let every connection go dead: it stays open, and nothing comes, not even heartbeats' acknowledgements."""
        self._gateway.freeze()

    async def refresh_sockets(self) -> None:
        """Ask every client to connect anew (op 7), and close its socket some seconds later."""
        self._gateway.reconnect()

    async def invalidate_sessions(self, *, resumable: bool = False) -> None:
        """Tell every client that its session is invalid (op 9); unless `resumable`, events until the next are lost."""
        self._gateway.invalidate(resumable=resumable)

    @property
    def connected(self) -> int:
        """How many sessions have a live socket."""
        return self._gateway.connected

    # Watching

    def changes(self) -> Subscription:
        """All that people see happen from now on; any number of subscribers get all of it."""
        return self._journal.subscribe()

    async def wait_for(self, predicate: Callable[[], T], *, timeout: float = 10) -> T:  # noqa: ASYNC109 (the message)
        """Return what `predicate` gives as soon as it is truthy.

        Raises:
            TimeoutError: it was not within `timeout` seconds; tells what the sandbox has seen.
        """
        return await self._journal.until(predicate, timeout, self._state)

    async def wait_connected(self, timeout: float = 10) -> None:  # noqa: ASYNC109 (as `wait_for`)
        """Return as soon as a client has a session.

        Raises:
            TimeoutError: none had within `timeout` seconds.
        """
        await self.wait_for(lambda: self.connected, timeout=timeout)

    def _state(self) -> str:
        calls = [f"{c.route} {c.status} {c.code or ''}".rstrip() for c in self.calls[-10:]]
        said = [f"{m.channel.name}/{m.id}: {m.text[:80]!r}" for m in self._guild.latest(10)]
        return "\n  ".join(
            [
                f"{self.connected} of {len(self.sessions)} sessions connected, {len(self.events)} events",
                f"{len(self.calls)} calls, the last: {calls}",
                "messages:",
                *said,
            ]
        )

    # Inside

    def _changed(self, change: Change) -> None:
        self._journal.change(change)
        self._events.change(change)

    def _thread_begun(self, thread: Channel) -> None:
        self._events.thread(thread)

    def _tell_interaction(self, data: Json, guild_id: str | None) -> bool:
        told = self._gateway.dispatch("INTERACTION_CREATE", 0, lambda _: data, guild_id=guild_id)
        return bool(told)

    def _user(self, user: User | str) -> User:
        if isinstance(user, User):
            return user
        found = self.people.get(user) or self._guild.users.get(user)
        if found is None:
            raise ValueError(f"there is no user {user}")
        return found

    def _channel(self, channel: Channel | str) -> Channel:
        if isinstance(channel, Channel):
            return channel
        found = self.channels.get(channel.removeprefix("#")) or self._guild.channels.get(channel)
        if found is None:
            raise ValueError(f"there is no channel {channel}")
        return found

    def _place(self, user: User, channel: Channel | str) -> Channel:
        place = self._channel(channel)
        if not place.admits(user.id):
            raise ValueError(f"{user.name} is not in {place.name}")
        return place

    def _check_own(self, user: User | str, message: Message) -> None:
        if message.deleted or message.author != self._user(user):
            raise ValueError("people edit and delete what they wrote themselves, as long as it stands")
