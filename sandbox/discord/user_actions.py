"""The hands of the people in the Discord server."""

from collections.abc import Mapping, Sequence

from sandbox.discord.api.files import create_attachment
from sandbox.discord.events.dispatcher import DiscordEventDispatcher
from sandbox.discord.interactions.delivery import DiscordInteractions
from sandbox.discord.state.guild import (
    DEFAULT,
    JOIN,
    PIN,
    REPLY,
    DiscordAttachment,
    DiscordContent,
    DiscordMessage,
    DiscordUser,
    Guild,
    GuildChannel,
)
from sandbox.lookup import find_named


class DiscordUserActions:
    """What people do. Wherever a user or a channel is asked for, its id or name will do as well (`"ada"`, `"general"`).
    What they write is given in Discord's own way: a mention is `<@...>`.

    Attributes:
        people: by name.
        channels: by name.
    """

    def __init__(self, guild: Guild, events: DiscordEventDispatcher, interactions: DiscordInteractions) -> None:
        self._guild = guild
        self._events = events
        self._interactions = interactions
        self.people: dict[str, DiscordUser] = {}
        self.channels: dict[str, GuildChannel] = {}
        self._other_bots: dict[str, DiscordUser] = {}

    def add_user(self, name: str, display_name: str | None = None) -> DiscordUser:
        """Add a person. Who watches members is told; nobody says so in a channel (see `join`)."""
        user = self._guild.add_user(name, display_name or name.title())
        self.people[name] = user
        self._events.dispatch_member_add(user)
        return user

    def assign_role(self, user: DiscordUser | str, name: str) -> str:
        """Give somebody a role; its id."""
        return self._guild.roles.assign(name, self._user(user).id).id

    def leave_guild(self, user: DiscordUser | str) -> None:
        """Let somebody leave the server; he can still write to the bot alone."""
        self._guild.roles.absent_user_ids.add(self._user(user).id)

    async def start_private_thread(
        self, user: DiscordUser | str, channel: GuildChannel | str, name: str
    ) -> GuildChannel:
        """Begin a thread that nobody sees but its author, and the bot, which is added to it."""
        author = self._user(user)
        return self._guild.start_thread(
            self._get_accessible_channel(author, channel), name, author, guest_ids=[self._guild.bot.id]
        )

    async def post_message(
        self,
        user: DiscordUser | str,
        channel: GuildChannel | str,
        text: str,
        *,
        reply_to: DiscordMessage | None = None,
        mention: bool = True,
        files: Mapping[str, bytes] | None = None,
        stickers: Sequence[str] = (),
        poll: Sequence[str] = (),
    ) -> DiscordMessage:
        """Post as a person, perhaps in reply to a message (which calls its author, unless he switches the `mention`
        off); `files` by their names, and so `stickers`; a `poll` is a question and its answers.

        Raises:
            ValueError: he may not be there, it is a forum, or the thread is locked.
        """
        author, place = self._user(user), self._get_accessible_channel(self._user(user), channel)
        if place.kind == "forum" or place.locked:
            raise ValueError(f"nobody can write in {place.name}")
        allowed = None if mention else {"parse": ["users", "roles", "everyone"], "replied_user": False}
        content = DiscordContent(
            text,
            attachments=[create_attachment(name, data) for name, data in (files or {}).items()],
            allowed_mentions=allowed,
            stickers=stickers,
            poll=poll,
        )
        return self._guild.post_message(place, author, content, type=REPLY if reply_to else DEFAULT, reply_to=reply_to)

    async def forward_message(
        self, user: DiscordUser | str, message: DiscordMessage, channel: GuildChannel | str
    ) -> DiscordMessage:
        """Pass a message on, as it is now."""
        author = self._user(user)
        return self._guild.post_message(
            self._get_accessible_channel(author, channel), author, DiscordContent(), forwarded_message=message
        )

    async def edit_message(self, user: DiscordUser | str, message: DiscordMessage, text: str) -> None:
        """Edit one's own message.

        Raises:
            ValueError: it is another's, or gone.
        """
        self._check_author(user, message)
        self._guild.update_message(message, DiscordContent(text, attachments=message.content.attachments))

    async def unfurl_link(self, message: DiscordMessage) -> None:
        """Discord shows a preview of a link: the message is updated, and nobody has edited it."""
        embed = {"type": "link", "url": "https://a.example"}
        content = DiscordContent(message.content.text, [embed], attachments=message.content.attachments)
        self._guild.update_message(message, content, edited=False)

    async def delete_message(self, user: DiscordUser | str, message: DiscordMessage) -> None:
        """Delete one's own message.

        Raises:
            ValueError: it is another's, or gone.
        """
        self._check_author(user, message)
        self._guild.delete_message(message)

    async def delete_messages(self, messages: Sequence[DiscordMessage]) -> None:
        """Delete messages of one channel at once, as a moderator's bot does."""
        self._guild.delete_messages(messages)
        self._events.dispatch_bulk_delete(messages)

    async def delete_channel(self, channel: GuildChannel | str) -> None:
        """Delete a channel with its threads, or a thread."""
        gone = self._channel(channel)
        threads = [thread for thread in self._guild.channels.values() if thread.parent is gone]
        self._guild.remove_channel(gone)
        for place in [*threads, gone]:
            self._events.dispatch_channel_delete(place)
        self.channels.pop(gone.name, None)

    async def add_reaction(self, user: DiscordUser | str, message: DiscordMessage, emoji: str) -> None:
        """Add an emoji, as it is, to a message."""
        self._guild.add_reaction(message, self._user(user), emoji)

    async def remove_reaction(self, user: DiscordUser | str, message: DiscordMessage, emoji: str) -> None:
        """Take one's own emoji back, if it is there."""
        self._guild.remove_reaction(message, self._user(user), emoji)

    async def start_thread(self, user: DiscordUser | str, message: DiscordMessage, name: str) -> GuildChannel:
        """Begin a thread from a message.

        Raises:
            ValueError: it has one, or is in a thread or in direct messages.
        """
        if message.thread is not None or message.channel.kind != "text":
            raise ValueError("a thread begins once, from a message in a channel")
        return self._guild.start_thread(message.channel, name, self._user(user), first_message=message)

    async def start_forum_post(
        self, user: DiscordUser | str, forum: GuildChannel | str, name: str, text: str
    ) -> GuildChannel:
        """Begin a post in a forum: a thread, whose first message has its id.

        Raises:
            ValueError: it is no forum.
        """
        author, place = self._user(user), self._get_accessible_channel(self._user(user), forum)
        if place.kind != "forum":
            raise ValueError(f"{place.name} is no forum")
        post = self._guild.start_thread(place, name, author)
        self._guild.post_message(post, author, DiscordContent(text), id=post.id)
        return post

    async def archive_thread(self, thread: GuildChannel, *, locked: bool = False) -> None:
        """Archive a thread; unless it is `locked`, the next message opens it again."""
        thread.archived, thread.locked = True, locked
        self._events.dispatch_thread_update(thread)

    async def pin_message(self, user: DiscordUser | str, message: DiscordMessage) -> DiscordMessage:
        """Pin a message; returns the system message that says so."""
        message.pinned = True
        return self._guild.post_message(message.channel, self._user(user), DiscordContent(), type=PIN, reply_to=message)

    async def join_guild(self, name: str) -> DiscordMessage:
        """Let a new person come in; returns the system message in `general` that says so."""
        return self._guild.post_message(self.channels["general"], self.add_user(name), DiscordContent(), type=JOIN)

    async def post_as_bot(
        self, name: str, channel: GuildChannel | str, text: str, *, webhook: bool = False
    ) -> DiscordMessage:
        """Post as another bot of that name, or as a webhook."""
        bot = self._other_bots.get(name)
        if bot is None:
            bot = self._other_bots[name] = self._guild.add_user(name, name, is_bot=True)
        return self._guild.post_message(
            self._channel(channel), bot, DiscordContent(text), webhook_id=bot.id if webhook else None
        )

    async def run_command(
        self, user: DiscordUser | str, channel: GuildChannel | str, command: str, **options: str | float | bool
    ) -> list[DiscordMessage]:
        """Give a slash command, and return, once it is acknowledged, what the person sees for it.

        What follows is appended to that same list as it comes; a deferred answer is `loading` until it is edited.
        If nobody is connected or nobody acknowledges in time, it is Discord that says so.

        Raises:
            ValueError: it is not registered, or has no such option; or he may not be there.
        """
        author = self._user(user)
        return await self._interactions.run_command(
            author, self._get_accessible_channel(author, channel), command.removeprefix("/"), options
        )

    async def autocomplete_option(
        self, user: DiscordUser | str, channel: GuildChannel | str, command: str, option: str, typed: str
    ) -> list[str]:
        """Begin to type an option of a slash command, and return what the bot offers to complete it.

        Raises:
            ValueError: there is no such command, or the option is not to be completed.
        """
        author = self._user(user)
        name = command.removeprefix("/")
        return await self._interactions.autocomplete(
            author, self._get_accessible_channel(author, channel), name, option, typed
        )

    async def run_message_command(
        self, user: DiscordUser | str, message: DiscordMessage, command: str
    ) -> list[DiscordMessage]:
        """Choose a command in the menu of a message, and return, once it is acknowledged, what the person sees for it.

        Raises:
            ValueError: it is not registered for such a place.
        """
        return await self._interactions.run_message_command(self._user(user), message, command)

    async def click_button(
        self, user: DiscordUser | str, message: DiscordMessage, custom_id: str
    ) -> list[DiscordMessage]:
        """Press a button, and return, once that is acknowledged, what the person sees beside the message.

        Raises:
            ValueError: there is no such button, or it is disabled.
        """
        return await self._interactions.click_button(self._user(user), message, custom_id)

    def find_file(self, id_: str) -> DiscordAttachment | None:
        """A file that stands in a message."""
        channels = self._guild.channels.values()
        contents = (message.content for channel in channels for message in self._guild.list_messages(channel))
        return next((file for content in contents for file in content.attachments if file.id == id_), None)

    # Inside

    def _user(self, user: DiscordUser | str) -> DiscordUser:
        return user if isinstance(user, DiscordUser) else find_named("user", user, self.people, self._guild.users)

    def _channel(self, channel: GuildChannel | str) -> GuildChannel:
        return (
            channel
            if isinstance(channel, GuildChannel)
            else find_named("channel", channel, self.channels, self._guild.channels)
        )

    def _get_accessible_channel(self, user: DiscordUser, channel: GuildChannel | str) -> GuildChannel:
        place = self._channel(channel)
        if not place.is_visible_to(user.id):
            raise ValueError(f"{user.name} is not in {place.name}")
        return place

    def _check_author(self, user: DiscordUser | str, message: DiscordMessage) -> None:
        if message.deleted or message.author != self._user(user):
            raise ValueError("people edit and delete what they wrote themselves, as long as it stands")
