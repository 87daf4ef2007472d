"""Local Discord: a server (guild) behind an HTTP server on this machine."""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from secrets import token_urlsafe
from types import TracebackType
from typing import Any

from aiohttp import web

from chatrig.discord.api.base import DiscordRestApi
from chatrig.discord.api.channels import ChannelRoutes
from chatrig.discord.api.directory import DirectoryRoutes
from chatrig.discord.api.faults import DiscordFaults
from chatrig.discord.api.files import DiscordFiles
from chatrig.discord.api.limits import DiscordRateLimits
from chatrig.discord.api.messages import MessageRoutes
from chatrig.discord.api.reactions import ReactionRoutes
from chatrig.discord.api.threads import ThreadRoutes
from chatrig.discord.client_run import start_discord_client
from chatrig.discord.events.dispatcher import DiscordEventDispatcher
from chatrig.discord.events.gateway import GatewayServer, GatewaySession
from chatrig.discord.interactions.commands import CommandRegistry
from chatrig.discord.interactions.delivery import DiscordInteractions
from chatrig.discord.interactions.webhooks import WebhookRoutes
from chatrig.discord.oauth import DiscordOAuth
from chatrig.discord.router import PREFIX, DiscordRouter
from chatrig.discord.state.activity_log import DiscordActivityLog
from chatrig.discord.state.guild import Guild
from chatrig.discord.state.messages import DiscordMessage, DiscordUser, GuildChange, GuildChannel, GuildEvent
from chatrig.discord.state.payloads import DiscordPayloads, Json
from chatrig.discord.state.permissions import DEFAULT_PERMISSIONS, GUILDS, PRIVILEGED_INTENTS
from chatrig.discord.state.saved_state import load_guild, save_guild
from chatrig.discord.user_actions import DiscordUserActions
from chatrig.observable import ObservableSimulator

_PEOPLE = {"ada": "Ada Lovelace", "grace": "Grace Hopper", "linus": "Linus Pauling"}
_CHANNELS = ("general", "random")
_FORUM = "ideas"


class DiscordSimulator(DiscordUserActions, ObservableSimulator[GuildChange, DiscordMessage]):
    """Local Discord server with one bot, as an async context manager.

    Methods take a user or a channel as an object, or as its name or id; they raise `ValueError` for an unknown one.

    Attributes:
        api_url, gateway_url: addresses for the client, known once the context is entered. discord.py takes them as
            `discord.http.Route.BASE` and `discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY`.
        bot_token: the bot's token.
        people: users by name; `ada`, `grace` and `linus` exist from the start.
        channels: channels by name; `general`, `random` and the forum `ideas` exist from the start.
        permissions: names of the bot's permissions, which may be changed; a call without one is refused with 50013.
        privileged_intents: names of the enabled privileged intents, which may be changed. A session that requests a
            disabled one is closed with 4014; without `message_content`, events and history have no content.
        calls: REST calls, in order.
        downloads: the path of each file download.
        events: records of gateway events, one for each session, also of those not delivered yet.
        sessions: gateway sessions.
        oauth: the app's `client_id`, `client_secret` and `redirect_urls`.
        faults: faults that tests inject.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        speed: float = 1.0,
        rate_limits: bool = True,
        bot_name: str = "bot",
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """Create the server; it listens once the context is entered.

        Args:
            port: the port to listen on; 0 for a free one.
            speed: factor by which rate limits, timeouts and heartbeats run faster than Discord's. At 20, an
                interaction must be acknowledged within 150 ms.
            rate_limits: whether to enforce rate limits.
            bot_name: the name of the app; the bot's username is it in lower case, with `_` for spaces.
            state: the result of an earlier server's `save_state`, with which this one begins.
        """
        self._port = port
        self._activity_log = DiscordActivityLog()
        guild = Guild(self._publish_change, self._publish_event, bot_name=bot_name)
        if state is not None:
            load_guild(guild, state)
        self.permissions = set(DEFAULT_PERMISSIONS)
        self.privileged_intents = set(PRIVILEGED_INTENTS)
        token = f"{b64encode(guild.bot.id.encode()).decode()}.{token_urlsafe(5)}.{token_urlsafe(27)}"
        self.bot_token: str = token if state is None else state["bot_token"]
        self.api_url = ""
        self.gateway_url = ""
        self.allowed_unknown_calls = set()
        self.calls = self._activity_log.calls
        self.events = self._activity_log.events
        self.downloads = self._activity_log.downloads

        self._payloads = DiscordPayloads(guild, self.permissions, self.privileged_intents)
        api = DiscordRestApi(guild, self._payloads, self.permissions, self.privileged_intents)
        self.faults = DiscordFaults(api.routes)
        self._gateway = GatewayServer(
            self._activity_log,
            self.faults,
            self._payloads,
            token=self.bot_token,
            privileged_intents=self.privileged_intents,
            speed=speed,
        )
        self.sessions = self._gateway.sessions
        self._events = DiscordEventDispatcher(api, self._gateway)
        messages = MessageRoutes(api, speed)
        ChannelRoutes(api, ThreadRoutes(api, messages))
        ReactionRoutes(api)
        self._commands = CommandRegistry(api)
        interactions = DiscordInteractions(api, messages, self._commands, self._dispatch_interaction, speed)
        WebhookRoutes(api, messages, interactions)
        super().__init__(guild, interactions)
        DirectoryRoutes(api)
        self.oauth = DiscordOAuth(api, speed)
        limits = self._limits = DiscordRateLimits(speed) if rate_limits else None
        router = DiscordRouter(self._activity_log, self.faults, limits, api, self.bot_token)
        app = web.Application(client_max_size=32 * 2**20)
        app.router.add_route("*", PREFIX + "/{path:.*}", router.handle)
        app.router.add_get("/attachments/{channel}/{file}/{name}", DiscordFiles(guild, self._activity_log).serve)
        app.router.add_get("/gateway/", self._gateway.handle)
        self.oauth.add_page(app.router, self.people)
        self._runner = web.AppRunner(app, shutdown_timeout=1)

        if state is not None:
            self.people.update({user.name: user for user in guild.users.values() if not user.is_bot})
            places = (place for place in guild.channels.values() if place.kind in ("text", "forum"))
            self.channels.update({place.name: place for place in places})
            return
        for name, display_name in _PEOPLE.items():
            self.people[name] = self._guild.add_user(name, display_name)
        for name in _CHANNELS:
            self.channels[name] = self._guild.add_channel(name, "text", None)
        self.channels[_FORUM] = self._guild.add_channel(_FORUM, "forum", None)

    async def __aenter__(self) -> "DiscordSimulator":
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
        """Set the lifetime of new file URLs, in seconds.

        URLs with a lifetime of 0 or less have expired already.
        """
        self._payloads.file_url_seconds = seconds

    @property
    def guild_id(self) -> str:
        return self._guild.id

    @property
    def bot_id(self) -> str:
        """The id of the bot's user and of its application, which are the same in Discord."""
        return self._guild.bot.id

    @property
    def bot_name(self) -> str:
        """The bot's username, with which people mention it."""
        return self._guild.bot.name

    @property
    def bot_role_id(self) -> str:
        """The id of the bot's own role, which users can mention in place of the bot.

        The mention is `<@&...>`.
        """
        return self._guild.bot_role_id

    @property
    def authorize_url(self) -> str:
        """The address at which users authorize the app, without its query."""
        return f"{self._payloads.base_url}/oauth2/authorize"

    @property
    def commands(self) -> list[Json]:
        """The registered application commands as JSON, both global and of the server."""
        return [command for commands in self._commands.registered.values() for command in commands]

    def add_channel(
        self, name: str, *, forum: bool = False, members: Iterable[DiscordUser | str] | None = None, bot: bool = True
    ) -> GuildChannel:
        """Add a text channel or forum to the server; `CHANNEL_CREATE` is sent.

        Args:
            forum: whether to add a forum.
            members: the users who can see the channel, as objects, names or ids; empty for no user. None for all users
                and the bot.
            bot: whether the bot can see the channel, too, if `members` is not None.

        Raises:
            ValueError: the name exists, or a user of `members` is unknown.
        """
        ids = None if members is None else {self._user(user).id for user in members} | ({self.bot_id} if bot else set())
        channel = self._guild.add_channel(name, "forum" if forum else "text", ids)
        self.channels[name] = channel
        self._guild.emit(GuildEvent("CHANNEL_CREATE", channel))
        return channel

    @property
    def locale(self) -> str:
        """Language of the server (Discord's `preferred_locale`), such as `en-US`.

        Discord: only community servers can change it, so any other language adds the feature `COMMUNITY`.
        """
        return self._guild.locale

    @locale.setter
    def locale(self, locale: str) -> None:
        """Set the server's `preferred_locale`; no event tells the bot.

        It is in later interactions (`guild_locale`), REST responses and GUILD_CREATE.
        """
        self._guild.locale = locale

    def set_locale(self, user: DiscordUser | str, locale: str) -> None:
        """Set the language of a user's Discord client; the default is `en-US`."""
        self._guild.locales[self._user(user).id] = locale

    def deny_permissions(self, user: DiscordUser | str, *permissions: str) -> None:
        """Remove further permissions from a user in the server.

        Interactions then report the user without these permissions; the simulator refuses nothing for lack of them.

        Args:
            permissions: names in `PERMISSIONS`.
        """
        self._guild.denied_permissions.setdefault(self._user(user).id, set()).update(permissions)

    def remove_bot(self) -> None:
        """Remove the bot from the server's members and its own list of servers.

        GUILD_DELETE is sent. Later, the bot receives no events of the server except interactions, and its calls about
        the server are refused.
        """
        self._guild.roles.absent_user_ids.add(self.bot_id)
        self._gateway.dispatch("GUILD_DELETE", GUILDS, lambda _: {"id": self.guild_id}, guild_id=self.guild_id)

    async def set_guild_available(self, available: bool) -> None:
        """Begin or end an outage of the server, whose events in between are lost.

        Args:
            available: False begins an outage, True ends it. The bot receives GUILD_DELETE or GUILD_CREATE.
        """
        self._gateway.set_guild_available(available)

    def open_group_dm(self, name: str, *users: DiscordUser | str) -> GuildChannel:
        """Add a group DM of at least one user, in which no bot can be.

        Users can run commands of their installed apps there. It is not in `channels`.
        """
        return self._guild.add_group_dm(name, map(self._user, users))

    def add_foreign_channel(self, name: str, *users: DiscordUser | str) -> GuildChannel:
        """Add a channel of another new server with some users, without the bot.

        Users can run commands of their installed apps there. It is not in `channels`.
        """
        return self._guild.add_foreign_channel(name, map(self._user, users))

    def open_dm(self, user: DiscordUser | str) -> GuildChannel:
        """Return the DM of a user and the bot; create it if it does not exist."""
        return self._guild.open_dm(self._user(user))

    @property
    def unknown_calls(self) -> list[str]:
        return sorted({call.route for call in self.calls} - set(self.faults.routes) - self.allowed_unknown_calls)

    @property
    def env(self) -> dict[str, str]:
        return {
            "DISCORD_TOKEN": self.bot_token,
            "DISCORD_BOT_TOKEN": self.bot_token,
            "DISCORD_API_URL": self.api_url,
            "DISCORD_GATEWAY_URL": self.gateway_url,
        }

    def list_replies(self, question: DiscordMessage) -> list[DiscordMessage]:
        places = [question.channel] if question.thread is None else [question.channel, question.thread]
        found: list[DiscordMessage] = []
        for message in (message for place in places for message in self.messages(place)):
            is_later = message.author.id == self.bot_id and int(message.id) > int(question.id)
            if is_later and (message.reply_to is None or message.reply_to in (question, *found)):
                found.append(message)
        return found

    def messages(self, channel: GuildChannel | str, *, deleted: bool = False) -> list[DiscordMessage]:
        """Return a channel's messages, oldest first, with ephemeral messages.

        Args:
            channel: the channel, or its name or id.
            deleted: include deleted messages.
        """
        return [m for m in self._guild.list_messages(self._channel(channel)) if deleted or not m.deleted]

    def threads(self, channel: GuildChannel | str) -> list[GuildChannel]:
        """Return the threads of a channel or the posts of a forum, the oldest first.

        Archived and private ones are included, deleted ones are not.

        Args:
            channel: the channel or forum, or its name or id.
        """
        place = self._channel(channel)
        return [thread for thread in self._guild.channels.values() if thread.parent is place]

    def run_client(self, client: Any) -> AbstractAsyncContextManager[None]:
        """Run a client of discord.py until the returned context is left.

        Its addresses hold for the whole process: one client's simulator at a time.
        """
        return start_discord_client(client, self.bot_token, self.api_url, self.gateway_url)

    def save_state(self) -> Json:
        """Return the server and its bot token as JSON, for the parameter `state` of a later simulator.

        The module `chatrig.discord.state.saved_state` lists the parts that are left out.
        """
        return {"bot_token": self.bot_token, **save_guild(self._guild)}

    # Actions of Discord

    async def drop_sockets(self) -> None:
        """Close every gateway connection without a close frame.

        The sessions can be resumed.
        """
        self._gateway.drop_connections()

    async def freeze_sockets(self, session: GatewaySession | None = None) -> None:
        """Stop sending and reading on every gateway connection, or on that of one session.

        The connection stays open but is never used again; heartbeats are not acknowledged. The session can be resumed.

        Args:
            session: the session; None for all.
        """
        self._gateway.freeze_connections(session)

    def recommend_shards(self, count: int, *, max_concurrency: int = 1) -> None:
        """Set the numbers that `GET /gateway/bot` returns.

        Args:
            count: the recommended number of shards.
            max_concurrency: the number of shards that may identify at once; not enforced.
        """
        self._gateway.shards, self._gateway.max_concurrency = count, max_concurrency

    async def reset(self) -> None:
        """Remove messages, modals, faults and records of calls and events, for another test with the same bot.

        The bot receives no event. Users, channels, threads, connections and the token stay.
        """
        self.faults.clear()
        self._guild.clear_messages()
        self._interactions.modals.clear()
        self.calls.clear()
        self.events.clear()
        if self._limits:
            self._limits.clear()
        self._activity_log.notify()

    async def refresh_sockets(self) -> None:
        """Request every gateway client to reconnect (op 7), and return.

        A connection that is still open after `RECONNECT_CLOSE_SECONDS`, divided by `speed`, is closed with 4000.
        """
        self._gateway.request_reconnect()

    async def invalidate_sessions(self, *, resumable: bool = False) -> None:
        """Report every gateway session as invalid (op 9) to its client.

        The connections stay open.

        Args:
            resumable: whether the sessions can be resumed; otherwise they end, and events that they missed are lost.
        """
        self._gateway.invalidate_sessions(resumable=resumable)

    @property
    def connection_count(self) -> int:
        """Number of gateway sessions with an open connection that is not frozen."""
        return self._gateway.connection_count

    @property
    def is_online(self) -> bool:
        """True while users see the bot as online.

        A session that did not close normally counts for `SESSION_LIFETIME_SECONDS` more, in real seconds.
        """
        return self._gateway.is_online

    # Watching

    def describe(self) -> str:
        calls = [f"{c.route} {c.status} {c.code or ''}".rstrip() for c in self.calls[-10:]]
        messages = [f"{m.channel.name}/{m.id}: {m.text[:80]!r}" for m in self._guild.latest_messages(10)]
        return "\n  ".join(
            [
                f"{self.connection_count} of {len(self.sessions)} sessions connected, {len(self.events)} events",
                f"{len(self.calls)} calls, the last: {calls}",
                "messages:",
                *messages,
            ]
        )

    # Internals

    def _publish_change(self, change: GuildChange) -> None:
        self._activity_log.publish(change)
        self._events.dispatch_change(change)

    def _publish_event(self, event: GuildEvent) -> None:
        self._activity_log.notify()
        self._events.dispatch_event(event)

    def _dispatch_interaction(self, data: Json, guild_id: str | None) -> bool:
        """Send an interaction to the sessions of its shard; return whether there were any.

        Args:
            data: the JSON of the interaction.
            guild_id: the server of the interaction; None for a DM.
        """
        receivers = self._gateway.dispatch("INTERACTION_CREATE", 0, lambda _: data, guild_id=guild_id)
        return bool(receivers)
