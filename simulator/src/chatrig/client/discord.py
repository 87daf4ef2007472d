"""Client of the local Discord, through which users read and act.

A Discord thread is a channel of its own with the id of its first message, also in a forum. The client shows it as a
thread of its channel.
"""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import replace

from chatrig.client import markdown, updates
from chatrig.client.discord_inputs import convert_modal, list_menus, to_modal_value
from chatrig.client.forms import ClientField, ClientForm, FormValues
from chatrig.client.options import parse_options
from chatrig.client.platform import (
    NO_FILES,
    ActionRefusedError,
    ClientEvent,
    ClientLocation,
    ClientMessage,
    ClientReaction,
    PlatformUser,
    ThreadSupport,
    shorten_text,
)
from chatrig.discord import DiscordMessage, DiscordModal, DiscordSimulator, GuildChange, GuildChannel
from chatrig.discord.interactions.commands import MESSAGE
from chatrig.discord.interactions.modals import TEXT_DISPLAY, TEXT_INPUT
from chatrig.discord.state.mentions import replace_ids
from chatrig.discord.state.messages import THREAD_STARTER, DiscordContent, iterate_components

#: Discord: limit of a thread's name.
MAX_THREAD_NAME_LENGTH = 100


class DiscordPlatform:
    """`ClientPlatform` for the users of the local Discord in a `DiscordSimulator`."""

    name = "Discord"

    def __init__(self, discord: DiscordSimulator) -> None:
        self._discord = discord
        self._markdown_cache = updates.MarkdownCache()

    @property
    def bot_name(self) -> str:
        return self._discord.bot_name

    @property
    def is_connected(self) -> bool:
        return self._discord.connection_count > 0

    async def wait_until_connected(self, seconds: float) -> bool:
        return await updates.wait_until_connected(self._discord, seconds)

    @property
    def people(self) -> Sequence[PlatformUser]:
        return [PlatformUser(user.id, user.name) for user in self._discord.people.values()]

    @property
    def channels(self) -> Sequence[ClientLocation]:
        return [
            ClientLocation(
                channel.id,
                name=f"#{channel.name}",
                thread_support=ThreadSupport.ALWAYS if channel.kind == "forum" else ThreadSupport.OPTIONAL,
            )
            for channel in self._discord.channels.values()
        ]

    def get_dm(self, person: PlatformUser) -> ClientLocation:
        channel = self._discord.open_dm(person.id)
        return ClientLocation(channel.id, name=f"@{self.bot_name}", is_dm=True, thread_support=ThreadSupport.NONE)

    def list_threads(self, person: PlatformUser) -> Sequence[ClientLocation]:
        newest: list[tuple[int, ClientLocation]] = []
        for channel in self.channels:
            for thread in self._discord.threads(channel.channel):
                if thread.is_visible_to(person.id):
                    ids = [thread.id, *(message.id for message in self._discord.messages(thread))]
                    newest.append(
                        (
                            max(map(int, ids)),
                            ClientLocation(
                                channel.channel, thread.id, thread.name, thread_support=channel.thread_support
                            ),
                        )
                    )
        return [place for _, place in sorted(newest, key=lambda pair: pair[0], reverse=True)]

    def list_messages(self, place: ClientLocation, person: PlatformUser) -> Sequence[ClientMessage]:
        channels: list[GuildChannel | str] = [place.channel, *self._discord.threads(place.channel)]
        messages = sorted(
            (m for channel in channels for m in self._visible_messages(channel, person)),
            key=lambda message: int(message.id),
        )
        replies: dict[str, list[DiscordMessage]] = {}
        for message in messages:
            if (thread := _thread_id(message)) is not None:
                replies.setdefault(thread, []).append(message)
        return updates.filter_by_place(
            place, [self._convert_message(message, replies.get(message.id, ())) for message in messages]
        )

    async def post_message(
        self, person: PlatformUser, place: ClientLocation, text: str, files: Mapping[str, bytes] = NO_FILES
    ) -> ClientMessage:
        encoded = updates.encode_mentions(text, self._names_by_id)
        with updates.raise_refusals():
            if self._is_forum(place):
                if files:
                    raise ActionRefusedError("Start the post with text, then send the file in it.")
                post = await self._discord.start_forum_post(
                    person.id, place.channel, shorten_text(text, MAX_THREAD_NAME_LENGTH), encoded
                )
                return self._convert_message(self._discord.messages(post)[0])
            channel = await self._get_or_start_channel(person, place)
            return self._convert_message(await self._discord.post_message(person.id, channel, encoded, files=files))

    async def edit_message(self, person: PlatformUser, message: ClientMessage, text: str) -> None:
        with updates.raise_refusals():
            await self._discord.edit_message(
                person.id, self._find_message(person, message), updates.encode_mentions(text, self._names_by_id)
            )

    async def delete_message(self, person: PlatformUser, message: ClientMessage) -> None:
        with updates.raise_refusals():
            await self._discord.delete_message(person.id, self._find_message(person, message))

    async def run_command(self, person: PlatformUser, place: ClientLocation, name: str, text: str) -> None:
        if self._is_forum(place):
            raise ActionRefusedError("Commands do not work in a forum. Open a post first.")
        with updates.raise_refusals():
            command = next((command for command in self._discord.commands if command["name"] == name), None)
            if command is None:
                raise ActionRefusedError(f"There is no command /{name}.")
            channel = await self._get_or_start_channel(person, place)
            await self._discord.run_command(person.id, channel, name, **parse_options(command, text))

    async def click_button(self, person: PlatformUser, message: ClientMessage, button: str) -> None:
        with updates.raise_refusals():
            await self._discord.click_button(person.id, self._find_message(person, message), button)

    @property
    def menu_entries(self) -> Sequence[str]:
        return [command["name"] for command in self._discord.commands if command.get("type") == MESSAGE]

    async def use_menu_entry(self, person: PlatformUser, message: ClientMessage, entry: str, text: str) -> None:
        with updates.raise_refusals():
            before = self._discord.modals(person.id)
            await self._discord.run_message_command(person.id, self._find_message(person, message), entry)
            if not text:
                return
            modal = next((modal for modal in self._discord.modals(person.id) if modal not in before), None)
            if modal is None:
                raise ActionRefusedError(f"This command opened no form for the text: /menu {entry}")
            inputs = [name for name, part in modal.inputs.items() if part["type"] == TEXT_INPUT]
            await self.submit_form(person, modal.interaction.id, {name: [text] for name in inputs})

    async def select_values(
        self, person: PlatformUser, message: ClientMessage, menu: str, values: Sequence[str]
    ) -> None:
        with updates.raise_refusals():
            await self._discord.select_values(person.id, self._find_message(person, message), menu, values)

    def find_form(self, person: PlatformUser) -> ClientForm | None:
        modals = self._discord.modals(person.id)
        return convert_modal(self._discord, modals[-1]) if modals else None

    async def submit_form(self, person: PlatformUser, form: str, values: FormValues) -> None:
        with updates.raise_refusals():
            modal = self._find_modal(person, form)
            inputs = modal.inputs
            entered = {name: to_modal_value(inputs[name], value) for name, value in values.items() if name in inputs}
            await self._discord.submit_modal(modal, entered)
            if modal in self._discord.modals(person.id):
                raise ActionRefusedError("Something went wrong. Try again.")

    def close_form(self, person: PlatformUser, form: str) -> None:
        with updates.raise_refusals():
            self._discord.close_modal(self._find_modal(person, form))

    async def wait_for_change(self) -> None:
        await self._discord.wait_for_change()

    def changes(self) -> AsyncGenerator[ClientEvent, None]:
        def convert_change(change: GuildChange) -> ClientMessage | None:
            return None if change.message.type == THREAD_STARTER else self._convert_message(change.message)

        return updates.convert_changes(self._discord.changes(), convert_change)

    @property
    def _thinking_text(self) -> str:
        """Text that Discord shows for a deferred response of the bot."""
        return f"{self.bot_name} is thinking…"

    @property
    def _names_by_id(self) -> dict[str, str]:
        """Names of the users and of the bot, by id."""
        people = {user.id: user.name for user in self._discord.people.values()}
        return people | {self._discord.bot_id: self.bot_name}

    def _find_message(self, person: PlatformUser, message: ClientMessage) -> DiscordMessage:
        """Return the `DiscordMessage` from which a client message was converted.

        Raises:
            ValueError: the message is deleted, or the user cannot see it.
        """
        discord_message = next(
            (m for m in self._visible_messages(message.thread or message.channel, person) if m.id == message.id), None
        )
        if discord_message is None:
            raise ValueError("This message was deleted.")
        return discord_message

    def _find_modal(self, person: PlatformUser, id_: str) -> DiscordModal:
        """Return an open modal of a user.

        Args:
            id_: id of the interaction with which the bot opened the modal.

        Raises:
            ValueError: the modal is closed.
        """
        modal = next((modal for modal in self._discord.modals(person.id) if modal.interaction.id == id_), None)
        if modal is None:
            raise ValueError("This modal is closed.")
        return modal

    def _is_forum(self, place: ClientLocation) -> bool:
        """Return whether a location is a forum channel itself, not a post in it."""
        return place.thread is None and any(
            c.id == place.channel and c.kind == "forum" for c in self._discord.channels.values()
        )

    async def _get_or_start_channel(self, person: PlatformUser, place: ClientLocation) -> GuildChannel | str:
        """Return the channel or thread of a location; start a missing thread.

        The thread is started on its first message, as the user.

        Returns:
            The thread of the location; the channel's id if the location is no thread.

        Raises:
            ValueError: the first message of the thread is deleted, or cannot have a thread.
        """
        if place.thread is None:
            return place.channel
        for thread in self._discord.threads(place.channel):
            if thread.id == place.thread:
                return thread
        root = next((m for m in self._visible_messages(place.channel, person) if m.id == place.thread), None)
        if root is None:
            raise ValueError("The first message of this thread was deleted.")
        name = shorten_text(_plain_text(root.content, self._names_by_id), MAX_THREAD_NAME_LENGTH)
        return await self._discord.start_thread(person.id, root, name)

    def _visible_messages(self, channel: GuildChannel | str, person: PlatformUser) -> list[DiscordMessage]:
        """Return the messages of a channel or thread, oldest first.

        Ephemeral messages to other users, and Discord's copy of the first message at the top of a thread, are left out.
        It is not checked that the user can see the channel.

        Args:
            channel: the channel or thread, or its name or id.
        """
        return [
            message
            for message in self._discord.messages(channel)
            if message.type != THREAD_STARTER and (message.ephemeral_to is None or message.ephemeral_to.id == person.id)
        ]

    def _convert_message(
        self, message: DiscordMessage, replies: Iterable[DiscordMessage] = (), *, alone: bool = False
    ) -> ClientMessage:
        """Convert a Discord message to a client message.

        Args:
            replies: the messages of the message's thread, oldest first.
            alone: whether to leave out the message to which this one replies.
        """
        newest = [self._convert_message(reply) for reply in replies]
        reply_to = None if alone else message.reply_to
        parent = message.channel.parent or message.channel
        names = self._names_by_id | {channel.id: channel.name for channel in self._discord.channels.values()}
        menus = list_menus(self._discord, message)
        return ClientMessage(
            id=message.id,
            channel=parent.id,
            author=names.get(message.author.id, message.author.name),
            is_from_bot=message.author.id == self._discord.bot_id,
            sent_at=message.posted_at.timestamp(),
            markdown=self._markdown_cache.get_or_render(
                message.id, message.content, lambda: self._render_markdown(message, names)
            ),
            plain_text=self._thinking_text
            if message.loading
            else _plain_text(
                _visible_content(message), names, message.buttons, menus, updates.format_links(message.links)
            ),
            thread=_thread_id(message),
            revision=len(message.versions) - 1,
            is_edited=message.edited,
            ephemeral_to=message.ephemeral_to.id if message.ephemeral_to else None,
            is_pending=message.loading,
            reply_to=self._convert_message(reply_to, alone=True) if reply_to else None,
            reactions=tuple(ClientReaction(emoji, len(users)) for emoji, users in message.reactions.items()),
            reply_count=len(newest),
            newest_reply=newest[-1] if newest else None,
            buttons=message.buttons,
            links=message.links,
            menus=menus,
            has_files=bool(message.content.attachments),
        )

    def _render_markdown(self, message: DiscordMessage, names: Mapping[str, str]) -> str:
        """Return a message's text, embeds and file names as CommonMark, without buttons.

        Args:
            names: names of users and channels by id, for mentions.
        """
        if message.loading:
            return f"*{self._thinking_text}*"
        content = _visible_content(message)
        parts = [markdown.convert_discord(text, names) for text in (content.text, *_list_texts(content))]
        parts += [f"`[file {attachment.name}]`" for attachment in content.attachments]
        return "\n\n".join(filter(None, parts))


def _visible_content(message: DiscordMessage) -> DiscordContent:
    """Return a message's content; for a forward, the original content with a prefix."""
    if message.forwarded_message is None:
        return message.content
    return replace(message.forwarded_message.content, text=f"Forwarded: {message.forwarded_message.content.text}")


def _thread_id(message: DiscordMessage) -> str | None:
    """Return the id of the thread of a message.

    It is None for a message outside threads, and for the first message of a thread.
    """
    channel = message.channel
    return channel.id if channel.is_thread and channel.id != message.id else None


def _plain_text(
    content: DiscordContent,
    names: Mapping[str, str],
    buttons: Iterable[str] = (),
    menus: Iterable[ClientField] = (),
    links: Iterable[str] = (),
) -> str:
    text = "\n".join(filter(None, (replace_ids(text, names) for text in (content.text, *_list_texts(content)))))
    return updates.append_extras(text, (file.name for file in content.attachments), buttons, menus, links)


def _list_texts(content: DiscordContent) -> list[str]:
    """Return the texts of the text displays and embeds of a message."""
    displays = [part["content"] for part in iterate_components(content.components) if part["type"] == TEXT_DISPLAY]
    texts = (text for embed in content.embeds for text in (embed.get("title"), embed.get("description")))
    return displays + [str(text) for text in texts if text]
