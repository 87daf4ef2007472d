"""Actions of the users of the local Discord."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from chatrig.discord.api.component_rules import (
    ACTION_ROW,
    IS_COMPONENTS_V2,
    check_components,
    check_embed,
    check_legacy_fields,
)
from chatrig.discord.api.files import create_attachment
from chatrig.discord.interactions.delivery import DiscordInteractions
from chatrig.discord.interactions.interaction import DiscordModal
from chatrig.discord.interactions.modals import ModalValue, list_menu_options
from chatrig.discord.oauth import DiscordOAuth
from chatrig.discord.state.guild import Guild
from chatrig.discord.state.messages import (
    DEFAULT,
    JOIN,
    REPLY,
    DiscordAttachment,
    DiscordContent,
    DiscordMessage,
    DiscordPoll,
    DiscordUser,
    GuildChannel,
    GuildEvent,
)
from chatrig.discord.state.snowflakes import create_id
from chatrig.lookup import find_named


class DiscordUserActions:
    """Actions of the users of the local Discord, and queries of the things they see.

    Users and channels can be given by object, id or name (`"ada"`, `"general"`); an unknown one raises `ValueError`.
    Texts are in Discord's own markup: a mention is `<@...>`.

    Attributes:
        people: users by name.
        channels: channels by name.
    """

    oauth: DiscordOAuth

    def __init__(self, guild: Guild, interactions: DiscordInteractions) -> None:
        self._guild = guild
        self._interactions = interactions
        self.people: dict[str, DiscordUser] = {}
        self.channels: dict[str, GuildChannel] = {}
        self._other_bots: dict[str, DiscordUser] = {}

    def add_user(self, name: str, display_name: str | None = None) -> DiscordUser:
        """Add a user to the server; `GUILD_MEMBER_ADD` is sent.

        Discord's welcome message is not posted (see `join_guild`).

        Args:
            display_name: the displayed name; None for `name` with capital letters (`Ada` for `ada`).

        Raises:
            ValueError: the name exists.
        """
        user = self._guild.add_user(name, display_name or name.title())
        self.people[name] = user
        self._guild.emit(GuildEvent("GUILD_MEMBER_ADD", user=user))
        return user

    def assign_role(self, user: DiscordUser | str, name: str) -> str:
        """Assign a role to a user, and return the role's id; create a missing role.

        No event tells the bot.

        Args:
            name: the name of the role.
        """
        return self._guild.roles.assign(name, self._user(user).id).id

    def leave_guild(self, user: DiscordUser | str) -> None:
        """Remove a user from the members of the server; `GUILD_MEMBER_REMOVE` is sent.

        The DM with the bot still works. The user cannot post in the server's channels any more.
        """
        leaver = self._user(user)
        self._guild.roles.absent_user_ids.add(leaver.id)
        self._guild.emit(GuildEvent("GUILD_MEMBER_REMOVE", user=leaver))

    def set_nickname(self, user: DiscordUser | str, nickname: str | None) -> None:
        """Set or remove the name of a user in this server; `GUILD_MEMBER_UPDATE` is sent.

        Args:
            nickname: the name; None or "" to remove it.
        """
        self._guild.set_nickname(self._user(user), nickname)

    async def start_typing(self, user: DiscordUser | str, channel: GuildChannel | str) -> None:
        """Start typing in a channel as a user; the bot receives one event.

        Discord shows the indicator for 10 seconds.

        Raises:
            ValueError: the user is not in the channel.
        """
        author = self._user(user)
        self._guild.emit(GuildEvent("TYPING_START", self._get_accessible_channel(author, channel), author))

    async def start_private_thread(
        self, user: DiscordUser | str, channel: GuildChannel | str, name: str
    ) -> GuildChannel:
        """Start a private thread as a user, and return it.

        Only the user and the bot can see it, and it has no first message.

        Raises:
            ValueError: the user is not in the channel.
        """
        author = self._user(user)
        return self._guild.start_thread(
            self._get_accessible_channel(author, channel), name, author, member_ids=[self._guild.bot.id]
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
        """Post a message as a user, and return it.

        Args:
            reply_to: the message to reply to; None for no reply.
            mention: whether the reply pings the author of `reply_to`.
            files: bytes by file name.
            stickers: names of stickers; missing ones are added to the server.
            poll: first the question, then its answers; empty for no poll.

        Raises:
            ValueError: the user is not in the channel, it is a forum, or the thread is locked.
        """
        author, place = self._user(user), self._get_accessible_channel(self._user(user), channel)
        if place.kind == "forum" or place.locked:
            raise ValueError(f"{place.name} is read-only")
        allowed = None if mention else {"parse": ["users", "roles", "everyone"], "replied_user": False}
        content = DiscordContent(
            text,
            attachments=[create_attachment(name, data) for name, data in (files or {}).items()],
            allowed_mentions=allowed,
            stickers=[self._guild.integrations.get_or_add_sticker(name) for name in stickers],
            poll=DiscordPoll(poll[0], [{"text": answer} for answer in poll[1:]]) if poll else None,
        )
        return self._guild.post_message(place, author, content, type=REPLY if reply_to else DEFAULT, reply_to=reply_to)

    async def mention_bot(
        self,
        user: DiscordUser | str,
        channel: GuildChannel | str,
        text: str,
        *,
        reply_to: DiscordMessage | None = None,
    ) -> DiscordMessage:
        """Post a message that begins with a mention of the bot: see `post_message`."""
        return await self.post_message(user, channel, f"<@{self._guild.bot.id}> {text}", reply_to=reply_to)

    async def post_dm(self, user: DiscordUser | str, text: str) -> DiscordMessage:
        """Post a message in the user's DM with the bot: see `post_message`."""
        return await self.post_message(user, self._guild.open_dm(self._user(user)), text)

    async def forward_message(
        self, user: DiscordUser | str, message: DiscordMessage, channel: GuildChannel | str
    ) -> DiscordMessage:
        """Post a message as a user that forwards a copy of another message; return it.

        Args:
            message: the message to forward.
            channel: the channel of the new message.

        Raises:
            ValueError: the user cannot see the channel.
        """
        author = self._user(user)
        return self._guild.forward_message(message, self._get_accessible_channel(author, channel), author)

    async def vote(self, user: DiscordUser | str, message: DiscordMessage, answer: int, *, voted: bool = True) -> None:
        """Vote for an answer of a poll as a user, or remove the vote.

        If the poll allows one answer only, the vote replaces the user's former vote.

        Args:
            answer: the number of the answer, from 1.
            voted: False to remove the vote.

        Raises:
            ValueError: the message has no such answer, or its poll was ended or has expired.
        """
        poll = message.content.poll
        if poll is None or not 1 <= answer <= len(poll.answers):
            raise ValueError("there is no such answer")
        if message.is_poll_over or poll.expires_at <= datetime.now(UTC):
            raise ValueError("the poll is over")
        voter = self._user(user)
        if voted and not poll.allows_multiple:
            for other in list(message.poll_votes):
                if other != answer:
                    self._guild.set_vote(message, voter, other, voted=False)
        self._guild.set_vote(message, voter, answer, voted=voted)

    async def edit_message(self, user: DiscordUser | str, message: DiscordMessage, text: str) -> None:
        """Replace the text of a user's own message; of other content, only files stay.

        Raises:
            ValueError: another user wrote the message, or it is deleted.
        """
        self._check_author(user, message)
        self._guild.update_message(message, DiscordContent(text, attachments=message.content.attachments))

    async def unfurl_link(self, message: DiscordMessage) -> None:
        """Add a link preview to a message: an update without "(edited)".

        Discord does this shortly after a post with a link. Here the preview is always of `https://a.example`. The
        message keeps its text and files; other content, such as former embeds, is removed.
        """
        embed = {"type": "link", "url": "https://a.example", "title": "An example"}
        content = DiscordContent(message.content.text, [embed], attachments=message.content.attachments)
        self._guild.update_message(message, content, edited=False)

    async def delete_message(self, user: DiscordUser | str, message: DiscordMessage) -> None:
        """Delete a user's own message.

        Raises:
            ValueError: another user wrote the message, or it is deleted.
        """
        self._check_author(user, message)
        self._guild.delete_message(message)

    async def delete_messages(self, messages: Sequence[DiscordMessage]) -> None:
        """Delete messages of one channel with one event (`MESSAGE_DELETE_BULK`).

        Moderation bots do this. An empty list does nothing; deleted messages are not refused.
        """
        self._guild.delete_messages(messages)

    async def delete_channel(self, channel: GuildChannel | str) -> None:
        """Delete a channel with its threads, or a thread; an event is sent for each."""
        deleted_channel = self._channel(channel)
        self._guild.remove_channel(deleted_channel)
        if self.channels.get(deleted_channel.name) is deleted_channel:
            del self.channels[deleted_channel.name]

    async def add_reaction(self, user: DiscordUser | str, message: DiscordMessage, emoji: str) -> None:
        """Add a user's reaction to a message; if it exists already, nothing changes.

        Args:
            emoji: a Unicode emoji.
        """
        self._guild.add_reaction(message, self._user(user), emoji)

    async def remove_reaction(self, user: DiscordUser | str, message: DiscordMessage, emoji: str) -> None:
        """Remove a user's reaction from a message, if it exists."""
        self._guild.remove_reaction(message, self._user(user), emoji)

    async def start_thread(self, user: DiscordUser | str, message: DiscordMessage, name: str) -> GuildChannel:
        """Start a thread from a message as a user, and return it.

        The thread has the id of the message.

        Raises:
            ValueError: the message has a thread, or is not in a text channel.
        """
        if message.thread is not None or message.channel.kind != "text":
            raise ValueError("a message in a text channel can start one thread")
        return self._guild.start_thread(message.channel, name, self._user(user), first_message=message)

    async def start_forum_post(
        self,
        user: DiscordUser | str,
        forum: GuildChannel | str,
        name: str,
        text: str,
        *,
        tags: Sequence[str] = (),
        files: Mapping[str, bytes] | None = None,
    ) -> GuildChannel:
        """Start a post in a forum as a user, and return its thread.

        The thread has the id of its first message.

        Args:
            name: the title of the post.
            text: the text of the first message.
            tags: names of tags; missing ones are added to the forum, and `CHANNEL_UPDATE` is sent.
            files: the files of the first message: bytes by file name.

        Raises:
            ValueError: the channel is not a forum, or the user cannot see it.
        """
        author, place = self._user(user), self._get_accessible_channel(self._user(user), forum)
        if place.kind != "forum":
            raise ValueError(f"{place.name} is not a forum")
        if missing := [tag for tag in tags if tag not in place.tags]:
            place.tags |= {tag: create_id() for tag in missing}
            self._guild.emit(GuildEvent("CHANNEL_UPDATE", place))
        post = self._guild.start_thread(place, name, author, applied_tags=[place.tags[tag] for tag in tags])
        attachments = [create_attachment(name, data) for name, data in (files or {}).items()]
        self._guild.post_message(post, author, DiscordContent(text, attachments=attachments), id=post.id)
        return post

    async def archive_thread(self, thread: GuildChannel, *, locked: bool = False) -> None:
        """Archive a thread; `THREAD_UPDATE` is sent.

        Args:
            locked: whether users cannot post in the thread any more. False also unlocks a locked thread: the next
                message reopens it.
        """
        thread.locked = locked
        self._guild.set_archived(thread, True)
        self._guild.publish_thread(thread)

    async def pin_message(self, user: DiscordUser | str, message: DiscordMessage) -> DiscordMessage:
        """Pin a message as a user, and return Discord's system message about it.

        The system message is posted also if the message is pinned already.
        """
        return self._guild.pin_message(message, self._user(user))

    async def join_guild(self, name: str) -> DiscordMessage:
        """Add a new user, and return Discord's welcome message in the channel `general`.

        Raises:
            ValueError: the name exists.
        """
        return self._guild.post_message(self.channels["general"], self.add_user(name), DiscordContent(), type=JOIN)

    async def post_as_other_bot(
        self,
        name: str,
        channel: GuildChannel | str,
        text: str,
        *,
        webhook: bool = False,
        embeds: Sequence[Mapping[str, Any]] = (),
        components: Sequence[Mapping[str, Any]] = (),
        files: Mapping[str, bytes] | None = None,
    ) -> DiscordMessage:
        """Post a message as another bot or a webhook, and return it.

        Args:
            name: name of the bot or webhook; the same name is the same user of the server.
            webhook: whether to post as a webhook.
            embeds: JSON of embeds.
            components: JSON of components. Others than action rows make it a message with Components V2, which has
                neither text nor embeds.
            files: bytes by file name.

        Raises:
            ValueError: a person or the simulator's bot has this name.
            DiscordError: Discord would refuse an embed or a component.
        """
        flags = IS_COMPONENTS_V2 if any(component["type"] != ACTION_ROW for component in components) else 0
        attachments = [create_attachment(file, data) for file, data in (files or {}).items()]
        check_components(components, flags, {file.name for file in attachments})
        if flags:
            check_legacy_fields({"content": text, "embeds": embeds})
        for number, embed in enumerate(embeds):
            check_embed(f"embeds.{number}", embed)
        bot = self._other_bots.get(name)
        if bot is None:
            bot = self._other_bots[name] = self._guild.add_user(name, name, is_bot=True)
        content = DiscordContent(text, embeds, components, attachments)
        webhook_id = bot.id if webhook else None
        return self._guild.post_message(self._channel(channel), bot, content, webhook_id=webhook_id, flags=flags)

    async def run_command(
        self, user: DiscordUser | str, channel: GuildChannel | str, command: str, /, **options: str | float | bool
    ) -> list[DiscordMessage]:
        """Run a slash command as a user, and wait for its acknowledgement.

        A deferred response is `loading` until it is edited. Without an acknowledgement in time, Discord posts an
        error.

        Args:
            command: the name, with or without `/`.
            options: values of the command's options by name.

        Returns:
            The responses so far, or Discord's error; later ones are appended to the same list.

        Raises:
            ValueError: the command is not available, its options are invalid, or the user is not in the channel.
        """
        author = self._user(user)
        return await self._interactions.run_command(
            author, self._get_accessible_channel(author, channel), command.removeprefix("/"), options
        )

    async def autocomplete_option(
        self, user: DiscordUser | str, channel: GuildChannel | str, command: str, option: str, typed: str
    ) -> list[str]:
        """Type into an option of a slash command; return the names of the bot's choices.

        Without an answer in time there are none.

        Args:
            command: the name of the command, with or without `/`.
            typed: the part of the value that the user has typed.

        Raises:
            ValueError: the command does not exist, the option has no autocompletion, or the user is not in the channel.
        """
        author = self._user(user)
        name = command.removeprefix("/")
        return await self._interactions.autocomplete(
            author, self._get_accessible_channel(author, channel), name, option, typed
        )

    async def run_message_command(
        self, user: DiscordUser | str, message: DiscordMessage, command: str
    ) -> list[DiscordMessage]:
        """Run a command in a message's context menu, and wait for its acknowledgement.

        Without an acknowledgement in time, Discord posts an error.

        Returns:
            The responses so far, or Discord's error; later ones are appended to the same list.

        Raises:
            ValueError: the command is not available in the channel.
        """
        return await self._interactions.run_message_command(self._user(user), message, command)

    async def click_button(
        self, user: DiscordUser | str, message: DiscordMessage, custom_id: str
    ) -> list[DiscordMessage]:
        """Click a button of a message as a user, and wait for the acknowledgement.

        Without an acknowledgement in time, Discord posts an error.

        Returns:
            The messages that the bot has posted in response, or Discord's error; later ones are appended to the same
            list. An update of `message` is not in it.

        Raises:
            ValueError: the button does not exist, or is disabled.
        """
        return await self._interactions.click_button(self._user(user), message, custom_id)

    async def select_values(
        self, user: DiscordUser | str, message: DiscordMessage, custom_id: str, values: Sequence[str]
    ) -> list[DiscordMessage]:
        """Select values in a menu of a message, and wait for the acknowledgement.

        Without an acknowledgement in time, Discord posts an error.

        Args:
            values: values of options, or ids of users, roles or channels.

        Returns:
            The messages that the bot has posted in response, or Discord's error; later ones are appended to the same
            list. An update of `message` is not in it.

        Raises:
            ValueError: the menu does not exist, is disabled, or does not accept the values.
        """
        return await self._interactions.select_values(self._user(user), message, custom_id, values)

    def list_menu_options(self, component: Mapping[str, Any]) -> dict[str, str]:
        """Return the options of a menu: displayed names by value.

        They are its own options, or the server's members, roles (`@team`) or channels (`#general`) with their ids as
        values.

        Args:
            component: JSON of the menu.
        """
        return list_menu_options(component, self._guild)

    def modals(self, user: DiscordUser | str) -> list[DiscordModal]:
        """Return a list with the open modal of a user; an empty list without one."""
        return [modal for modal in self._interactions.modals if modal.user == self._user(user)]

    async def submit_modal(
        self, modal: DiscordModal, values: Mapping[str, ModalValue] | None = None
    ) -> list[DiscordMessage]:
        """Submit a modal as its user, and wait for the acknowledgement.

        Without an acknowledgement in time, the modal stays open, and Discord posts an error.

        Args:
            values: values by custom id; an omitted one is the preset value.

        Returns:
            The responses so far, or Discord's error; later ones are appended to the same list.

        Raises:
            ValueError: the modal is not open, or does not accept a value.
        """
        return await self._interactions.submit_modal(modal, values or {})

    def close_modal(self, modal: DiscordModal) -> None:
        """Close a modal without submitting it; Discord sends nothing to the bot."""
        self._interactions.close_modal(modal)

    def find_message(self, id_: str) -> DiscordMessage | None:
        """Return the message with this id, also a deleted one; None without one."""
        return next((message for message in self._guild.all_messages() if message.id == id_), None)

    def find_file(self, id_: str) -> DiscordAttachment | None:
        """Return the attachment with this id, also of a deleted message; else None."""
        files = (file for message in self._guild.all_messages() for file in message.content.attachments)
        return next((file for file in files if file.id == id_), None)

    # OAuth2

    async def sign_in(self, user: DiscordUser | str, url: str) -> str:
        """Approve the request at an OAuth2 authorization URL as a user.

        Args:
            url: the address with the query that the app wrote; the part before the query is not checked.

        Returns:
            The redirect of the browser, with `code` and `state`. The code is valid once, for ten minutes.

        Raises:
            ValueError: Discord would show an error and not redirect, or the user is unknown.
        """
        return self.oauth.approve(url, self._user(user))

    async def deny_sign_in(self, url: str) -> str:
        """Deny the request at an authorization URL; return the redirect of the browser, with `error` and `state`.

        Raises:
            ValueError: Discord would show an error and not redirect.
        """
        return self.oauth.deny(url)

    # Internals

    def _user(self, user: DiscordUser | str) -> DiscordUser:
        return user if isinstance(user, DiscordUser) else find_named("user", user, self.people, self._guild.users)

    def _channel(self, channel: GuildChannel | str) -> GuildChannel:
        return (
            channel
            if isinstance(channel, GuildChannel)
            else find_named("channel", channel, self.channels, self._guild.channels)
        )

    def _get_accessible_channel(self, user: DiscordUser, channel: GuildChannel | str) -> GuildChannel:
        """Return the channel if a user can see it.

        Raises:
            ValueError: the channel does not exist, or the user cannot see it.
        """
        place = self._channel(channel)
        if not self._guild.is_visible(place, user.id):
            raise ValueError(f"{user.name} is not in {place.name}")
        return place

    def _check_author(self, user: DiscordUser | str, message: DiscordMessage) -> None:
        """Raise `ValueError` if a message is deleted, or its author is another user."""
        if message.deleted or message.author != self._user(user):
            raise ValueError("Only the author can change a message, until it is deleted")
