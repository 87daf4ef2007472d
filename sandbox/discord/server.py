"""The sandbox itself: one HTTP server on loopback, and the hands of the people in the Discord server."""

from base64 import b64encode
from collections.abc import Callable, Iterable
from secrets import token_urlsafe
from types import TracebackType
from typing import TypeVar

from aiohttp import web

from sandbox.discord.api.base import DiscordRestApi
from sandbox.discord.api.directory import DirectoryRoutes
from sandbox.discord.api.faults import DiscordFaults
from sandbox.discord.api.files import DiscordFiles
from sandbox.discord.api.limits import DiscordRateLimits
from sandbox.discord.api.messages import MessageRoutes
from sandbox.discord.api.threads import ThreadRoutes
from sandbox.discord.events.dispatcher import DiscordEventDispatcher
from sandbox.discord.events.gateway import GatewaySession, LocalGateway
from sandbox.discord.interactions.commands import CommandRegistry
from sandbox.discord.interactions.delivery import DiscordInteractions
from sandbox.discord.router import PREFIX, DiscordRouter
from sandbox.discord.state.activity_log import DiscordActivityLog, Subscription
from sandbox.discord.state.guild import DiscordMessage, DiscordUser, Guild, GuildChange, GuildChannel
from sandbox.discord.state.payloads import DiscordPayloads, Json
from sandbox.discord.state.permissions import PERMISSIONS, PRIVILEGED
from sandbox.discord.user_actions import DiscordUserActions
from sandbox.rate_limit import RateLimitUsage

T = TypeVar("T")

_PEOPLE = {"ada": "Ada Lovelace", "grace": "Grace Hopper", "linus": "Linus Pauling"}
_CHANNELS = ("general", "random")
_FORUM = "ideas"


class DiscordSandbox(DiscordUserActions):
    """A Discord server with one bot in it, for as long as it is entered.

    Attributes:
        api_url, gateway_url: for the client; known once the sandbox is entered. discord.py takes them as
            `discord.http.Route.BASE` and `discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY`.
        people: by name; there are a few to start with, and who is added is here at once.
        channels: by name; it starts with `general`, `random` and the forum `ideas`, open to all.
        permissions: what the bot may do; take one away and see 50013.
        privileged_intents: which are switched on for the app; one that is not ends the identification with 4014,
            and without `message_content` the history is as empty as the events.
        calls: each call of the REST API, as it came.
        downloads: the path of each file that was fetched, as often as it was.
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
        self._activity_log = DiscordActivityLog()
        guild = Guild(self._publish_change, self._publish_thread)
        self.permissions = set(PERMISSIONS)
        self.privileged_intents = set(PRIVILEGED)
        self.bot_token = f"{b64encode(guild.bot.id.encode()).decode()}.{token_urlsafe(5)}.{token_urlsafe(27)}"
        self.api_url = ""
        self.gateway_url = ""
        self.calls = self._activity_log.calls
        self.events = self._activity_log.events
        self.downloads = self._activity_log.downloads

        self._payloads = DiscordPayloads(guild, self.permissions, self.privileged_intents)
        api = DiscordRestApi(guild, self._payloads, self.permissions, self.privileged_intents)
        self.faults = DiscordFaults(api.routes)
        self._gateway = LocalGateway(
            self._activity_log,
            self.faults,
            self._payloads,
            token=self.bot_token,
            privileged_intents=self.privileged_intents,
            speed=speed,
        )
        self.sessions = self._gateway.sessions
        events = DiscordEventDispatcher(api, self._gateway)
        chat = MessageRoutes(api, speed)
        ThreadRoutes(api, chat, events.dispatch_thread_update)
        self._commands = CommandRegistry(api)
        super().__init__(
            guild, events, DiscordInteractions(api, chat, self._commands, self._dispatch_interaction, speed)
        )
        DirectoryRoutes(api)
        limits = self._limits = DiscordRateLimits(speed) if rate_limits else None
        door = DiscordRouter(self._activity_log, self.faults, limits, api, self.bot_token)
        app = web.Application(client_max_size=32 * 2**20)
        app.router.add_route("*", PREFIX + "/{path:.*}", door.handle)
        app.router.add_get("/attachments/{channel}/{file}/{name}", DiscordFiles(guild, self._activity_log).serve)
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
        self._payloads.base_url = address
        self.api_url = address + PREFIX
        self.gateway_url = self._gateway.url = f"ws://127.0.0.1:{self._port}/gateway/"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._activity_log.close()
        await self._gateway.stop()
        await self._runner.cleanup()

    # The server

    def set_file_url_lifetime(self, seconds: int) -> None:
        """Let the addresses of files that are told from now on be good for so long; some may have expired already."""
        self._payloads.file_url_seconds = seconds

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
        return self._guild.bot_role_id

    @property
    def commands(self) -> list[Json]:
        """The application commands that are registered, those for all servers first."""
        return [command for commands in self._commands.registered.values() for command in commands]

    def add_channel(
        self, name: str, *, forum: bool = False, members: Iterable[DiscordUser | str] | None = None, bot: bool = True
    ) -> GuildChannel:
        """Add a channel; everybody is in it if `members` are not given, otherwise they are, and the bot if `bot`."""
        ids = None if members is None else {self._user(user).id for user in members} | ({self.bot_id} if bot else set())
        channel = self._guild.add_channel(name, "forum" if forum else "text", ids)
        self.channels[name] = channel
        self._events.dispatch_channel_create(channel)
        return channel

    @property
    def locale(self) -> str:
        """The server's language."""
        return self._guild.locale

    @locale.setter
    def locale(self, locale: str) -> None:
        self._guild.locale = locale

    def set_locale(self, user: DiscordUser | str, locale: str) -> None:
        """Let a person's Discord speak another language than `en-US`."""
        self._guild.locales[self._user(user).id] = locale

    def deny_permissions(self, user: DiscordUser | str, *permissions: str) -> None:
        """Take permissions from a person in the whole server: interactions tell of them."""
        self._guild.denied_permissions.setdefault(self._user(user).id, set()).update(permissions)

    def remove_bot(self) -> None:
        """Let the bot be in no server, as it is before it is invited: who connects is told of none."""
        self._guild.roles.absent_user_ids.add(self.bot_id)

    def open_group_dm(self, name: str, *users: DiscordUser | str) -> GuildChannel:
        """Direct messages of several people: no bot can be in them; people use there what they have installed."""
        return self._guild.add_group_dm(name, map(self._user, users))

    def add_foreign_channel(self, name: str, *users: DiscordUser | str) -> GuildChannel:
        """A channel of another server, which the bot is not in."""
        return self._guild.add_foreign_channel(name, map(self._user, users))

    def open_dm(self, user: DiscordUser | str) -> GuildChannel:
        """The direct messages between a person and the bot."""
        return self._guild.open_dm(self._user(user))

    def messages(self, channel: GuildChannel | str, *, deleted: bool = False) -> list[DiscordMessage]:
        """What stands in a channel or thread, oldest first, ephemeral messages included; what was deleted as well."""
        return [m for m in self._guild.list_messages(self._channel(channel)) if deleted or not m.deleted]

    def threads(self, channel: GuildChannel | str) -> list[GuildChannel]:
        """The threads of a channel, or the posts of a forum, archived ones included."""
        place = self._channel(channel)
        return [thread for thread in self._guild.channels.values() if thread.parent is place]

    # What Discord does

    async def drop_sockets(self) -> None:
        """Cut every connection without a word; the sessions can be resumed."""
        self._gateway.drop_connections()

    async def freeze_sockets(self, session: GatewaySession | None = None) -> None:
        """Let every connection, or that of one session, go dead: it stays open, and nothing comes, not even heartbeats'
        acknowledgements.
        """
        self._gateway.freeze_connections(session)

    def recommend_shards(self, count: int, *, max_concurrency: int = 1) -> None:
        """Let Discord recommend so many shards, and take the beginnings of so many sessions at once."""
        self._gateway.shards, self._gateway.max_concurrency = count, max_concurrency

    async def refresh_sockets(self) -> None:
        """Ask every client to connect anew (op 7), and close its socket some seconds later."""
        self._gateway.request_reconnect()

    async def invalidate_sessions(self, *, resumable: bool = False) -> None:
        """Tell every client that its session is invalid (op 9); unless `resumable`, events until the next are lost."""
        self._gateway.invalidate_sessions(resumable=resumable)

    @property
    def connection_count(self) -> int:
        """How many sessions have a live socket."""
        return self._gateway.connection_count

    @property
    def is_online(self) -> bool:
        """Whether people see the bot there. Discord waits for minutes for a session that did not end in good order."""
        return self._gateway.is_online

    # Watching

    def changes(self) -> Subscription:
        """All that people see happen from now on; any number of subscribers get all of it."""
        return self._activity_log.subscribe()

    async def wait_for_change(self) -> None:
        """Wait until something happens, be it a call."""
        await self._activity_log.wait_for_change()

    def rate_limit_usage(self) -> list[RateLimitUsage]:
        """What is left of the rate limits that calls have counted in."""
        return self._limits.list_usage() if self._limits else []

    async def wait_for(self, predicate: Callable[[], T], *, timeout: float = 20) -> T:  # noqa: ASYNC109 (the message)
        """Return what `predicate` gives as soon as it is truthy.

        Raises:
            TimeoutError: it was not within `timeout` seconds; tells what the sandbox has seen.
        """
        return await self._activity_log.wait_until(predicate, timeout, self._describe_state)

    async def wait_until_connected(self, timeout: float = 10) -> None:  # noqa: ASYNC109 (as `wait_for`)
        """Return as soon as a client has a session.

        Raises:
            TimeoutError: none had within `timeout` seconds.
        """
        await self.wait_for(lambda: self.connection_count, timeout=timeout)

    def _describe_state(self) -> str:
        calls = [f"{c.route} {c.status} {c.code or ''}".rstrip() for c in self.calls[-10:]]
        said = [f"{m.channel.name}/{m.id}: {m.text[:80]!r}" for m in self._guild.latest_messages(10)]
        return "\n  ".join(
            [
                f"{self.connection_count} of {len(self.sessions)} sessions connected, {len(self.events)} events",
                f"{len(self.calls)} calls, the last: {calls}",
                "messages:",
                *said,
            ]
        )

    # Inside

    def _publish_change(self, change: GuildChange) -> None:
        self._activity_log.publish(change)
        self._events.dispatch_change(change)

    def _publish_thread(self, thread: GuildChannel) -> None:
        self._events.dispatch_thread_create(thread)

    def _dispatch_interaction(self, data: Json, guild_id: str | None) -> bool:
        told = self._gateway.dispatch("INTERACTION_CREATE", 0, lambda _: data, guild_id=guild_id)
        return bool(told)
