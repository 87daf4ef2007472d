"""Client of the local Slack, through which users read and act."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from html import escape

from rich.emoji import Emoji

from chatrig.client import mrkdwn, updates
from chatrig.client.forms import ClientForm, FormValues
from chatrig.client.platform import (
    NO_FILES,
    ActionRefusedError,
    ClientEvent,
    ClientLocation,
    ClientMessage,
    ClientReaction,
    PlatformUser,
    ThreadSupport,
)
from chatrig.client.slack_inputs import convert_view, list_buttons, list_menus, to_input_value
from chatrig.slack import SlackContent, SlackFile, SlackMessage, SlackSimulator, SlackView, TaskCard
from chatrig.slack.state.workspace import create_id

#: Seconds for the bot to open a modal.
MODAL_TIMEOUT_SECONDS = 1.0

#: Id of Slack's own button to stop an agent.
STOP_BUTTON_ID = "stop the agent"

#: Signs of finished tasks, for Slack's icons.
_STATUS_SIGNS = {"complete": "✓ ", "error": "✗ "}


class SlackPlatform:
    """`ClientPlatform` for the users of the local Slack in a `SlackSimulator`."""

    name = "Slack"

    def __init__(self, slack: SlackSimulator) -> None:
        self._slack = slack
        self._markdown_cache = updates.MarkdownCache()

    @property
    def bot_name(self) -> str:
        return self._slack.bot_name

    @property
    def is_connected(self) -> bool:
        return self._slack.connection_count > 0

    async def wait_until_connected(self, seconds: float) -> bool:
        return await updates.wait_until_connected(self._slack, seconds)

    @property
    def people(self) -> Sequence[PlatformUser]:
        return [PlatformUser(user.id, user.name) for user in self._slack.people.values()]

    @property
    def channels(self) -> Sequence[ClientLocation]:
        return [ClientLocation(c.id, name=f"#{c.name}") for c in self._slack.channels.values() if not c.is_dm]

    def get_dm(self, person: PlatformUser) -> ClientLocation:
        channel = self._slack.open_dm(person.id)
        return ClientLocation(channel.id, name=f"@{self.bot_name}", is_dm=True, thread_support=ThreadSupport.ALWAYS)

    def list_threads(self, person: PlatformUser) -> Sequence[ClientLocation]:
        newest: list[tuple[str, ClientLocation]] = []
        for channel in (*self.channels, self.get_dm(person)):
            for message in self._visible_messages(channel, person):
                if message.newest_reply is not None:
                    thread = ClientLocation(
                        channel.channel,
                        message.id,
                        updates.create_thread_name(message),
                        channel.is_dm,
                        channel.thread_support,
                    )
                    newest.append((message.newest_reply.id, thread))
        return [place for _, place in sorted(newest, key=lambda pair: pair[0], reverse=True)]

    def list_messages(self, place: ClientLocation, person: PlatformUser) -> Sequence[ClientMessage]:
        return updates.filter_by_place(place, self._visible_messages(place, person))

    async def post_message(
        self, person: PlatformUser, place: ClientLocation, text: str, files: Mapping[str, bytes] = NO_FILES
    ) -> ClientMessage:
        uploads = [SlackFile(create_id("F"), name, data) for name, data in files.items()]
        with updates.raise_refusals():
            posted = await self._slack.post_message(
                person.id, place.channel, self._encode_text(text), thread_ts=place.thread, files=uploads
            )
        return self._convert_message(posted)

    async def edit_message(self, person: PlatformUser, message: ClientMessage, text: str) -> None:
        with updates.raise_refusals():
            await self._slack.edit_message(person.id, self._find_message(message), self._encode_text(text))

    async def delete_message(self, person: PlatformUser, message: ClientMessage) -> None:
        with updates.raise_refusals():
            await self._slack.delete_message(person.id, self._find_message(message))

    async def run_command(self, person: PlatformUser, place: ClientLocation, name: str, text: str) -> None:
        if place.thread is not None:
            # Slack refuses slash commands in threads with this text.
            raise ActionRefusedError(f"/{name} is not supported in threads. Sorry!")
        with updates.raise_refusals():
            await self._slack.run_command(person.id, place.channel, f"/{name}", text)

    async def click_button(self, person: PlatformUser, message: ClientMessage, button: str) -> None:
        with updates.raise_refusals():
            if button == STOP_BUTTON_ID:
                await self._slack.click_stop(person.id, self._find_message(message))
            elif not await self._slack.click_button(person.id, self._find_message(message), button):
                raise ActionRefusedError(f"{self.bot_name} did not respond.")

    @property
    def menu_entries(self) -> Sequence[str]:
        return list(self._slack.shortcuts)

    async def use_menu_entry(self, person: PlatformUser, message: ClientMessage, entry: str, text: str) -> None:
        with updates.raise_refusals():
            if not await self._slack.use_shortcut(person.id, self._find_message(message), self._slack.shortcuts[entry]):
                raise ActionRefusedError(f"{self.bot_name} did not respond.")
            try:
                modal = (
                    await self._slack.wait_for(lambda: self._slack.modals(person.id), timeout=MODAL_TIMEOUT_SECONDS)
                )[-1]
            except TimeoutError:
                return
            if not text:
                labels = ", ".join(block["label"]["text"] for block in modal.inputs.values())
                raise ActionRefusedError(
                    f"This shortcut asks for: {labels}. Add the text after a colon: /menu {entry}: ..."
                )
            if not await self._slack.submit_modal(modal, **dict.fromkeys(modal.inputs, text)):
                raise ActionRefusedError(f"{self.bot_name} did not accept the form.")

    async def select_values(
        self, person: PlatformUser, message: ClientMessage, menu: str, values: Sequence[str]
    ) -> None:
        with updates.raise_refusals():
            target = self._find_message(message)
            inputs = self._slack.list_inputs(person.id, target)
            elements = {f"{block_id}/{element['action_id']}": element for block_id, element, _ in inputs}
            if menu not in elements:
                raise ActionRefusedError("This menu was removed.")
            value = to_input_value(elements[menu], values)
            if not await self._slack.set_input(person.id, target, menu, value):
                raise ActionRefusedError(f"{self.bot_name} did not respond.")

    def find_form(self, person: PlatformUser) -> ClientForm | None:
        views = self._slack.modals(person.id)
        return convert_view(self._slack, views[-1]) if views else None

    async def submit_form(self, person: PlatformUser, form: str, values: FormValues) -> None:
        with updates.raise_refusals():
            view = self._find_view(person, form)
            entered = {
                name: to_input_value(view.inputs[name]["element"], value_list)
                for name, value_list in values.items()
                if name in view.inputs
            }
            if not await self._slack.submit_modal(view, **entered) and not view.errors:
                raise ActionRefusedError("We had some trouble connecting. Try again?")

    def close_form(self, person: PlatformUser, form: str) -> None:
        with updates.raise_refusals():
            self._slack.close_modal(self._find_view(person, form))

    async def wait_for_change(self) -> None:
        await self._slack.wait_for_change()

    def changes(self) -> AsyncGenerator[ClientEvent, None]:
        return updates.convert_changes(self._slack.changes(), lambda change: self._convert_message(change.message))

    @property
    def _names_by_id(self) -> dict[str, str]:
        """Names of the users and of the bots, by id."""
        people = {user.id: user.name for user in self._slack.people.values()}
        return people | {self._slack.bot_user_id: self.bot_name, "USLACKBOT": "Slackbot"}

    def _encode_text(self, text: str) -> str:
        """Return typed text as Slack's message box sends it.

        Mentions become ids, and `&`, `<`, `>` are escaped.
        """
        return updates.encode_mentions(escape(text, quote=False), self._names_by_id)

    def _find_message(self, message: ClientMessage) -> SlackMessage:
        """Return the `SlackMessage` from which a client message was converted.

        Raises:
            ValueError: the message is deleted.
        """
        slack_message = next((m for m in self._slack.messages(message.channel) if m.ts == message.id), None)
        if slack_message is None:
            raise ValueError("This message was deleted.")
        return slack_message

    def _find_view(self, person: PlatformUser, id_: str) -> SlackView:
        """Return the open modal of a user with the view id `id_`.

        Raises:
            ValueError: the modal is closed.
        """
        view = next((view for view in self._slack.modals(person.id) if view.id == id_), None)
        if view is None:
            raise ValueError("This modal is closed.")
        return view

    def _buttons(self, message: SlackMessage) -> Mapping[str, str]:
        """Return the ids of a message's buttons by label.

        Slack's own Stop button is included while the bot streams the message.
        """
        session = self._slack.find_session(message)
        is_own = message.bot_id == self._slack.bot_id and message.stream is not None and message.stream.is_live
        stop = {"Stop": STOP_BUTTON_ID} if is_own and session is not None and session.status == "processing" else {}
        return {**stop, **{control.label: id_ for id_, control in list_buttons(self._slack, message)}}

    def _visible_messages(self, place: ClientLocation, person: PlatformUser) -> list[ClientMessage]:
        """Return the messages of a channel and its threads, oldest first.

        Ephemeral messages to other users are left out. It is not checked that the user can see the channel.
        """
        messages = [
            message for message in self._slack.messages(place.channel) if message.ephemeral_to in (None, person.id)
        ]
        replies: dict[str, list[SlackMessage]] = {}
        for message in messages:
            if message.is_thread_reply and message.thread_ts is not None:
                replies.setdefault(message.thread_ts, []).append(message)
        return [self._convert_message(message, replies.get(message.ts, ()), person) for message in messages]

    def _convert_message(
        self, message: SlackMessage, replies: Iterable[SlackMessage] = (), person: PlatformUser | None = None
    ) -> ClientMessage:
        """Convert a Slack message to a client message.

        Args:
            replies: the messages of the message's thread, oldest first.
            person: the user for whom the message is shown: see `SlackMessage.version_for`; None for the newest version.
        """
        converted_replies = [self._convert_message(reply, (), person) for reply in replies]
        links = {
            control.label: str(control.element["url"])
            for _, control in list_buttons(self._slack, message)
            if control.element.get("url")
        }
        version = message.versions[-1] if person is None else message.version_for(person.id)
        author = message.username or self._names_by_id.get(message.user or "", message.bot_id or "")
        menus = list_menus(self._slack, message, person.id if person else None)
        return ClientMessage(
            id=message.ts,
            channel=message.channel.id,
            author=author,
            is_from_bot=message.bot_id == self._slack.bot_id,
            sent_at=float(message.ts),
            markdown=self._markdown_cache.get_or_render(
                (message.channel.id, message.ts),
                version.content,
                lambda: self._render_markdown(version.content, message),
            ),
            plain_text=updates.append_extras(
                "\n".join([*map(_format_task, version.tasks), *filter(None, [version.text])]),
                (file.name for file in message.files),
                (control.label for _, control in list_buttons(self._slack, message)),
                menus,
                updates.format_links(links),
            ),
            thread=message.thread_ts if message.is_thread_reply else None,
            is_broadcast=message.is_thread_reply and message.is_in_channel,
            revision=message.versions.index(version),
            is_edited=message.edited,
            ephemeral_to=message.ephemeral_to,
            is_pending=message.stream is not None and message.stream.is_live,
            reactions=tuple(
                ClientReaction(Emoji.replace(f":{name}:"), len(users)) for name, users in message.reactions.items()
            ),
            reply_count=len(converted_replies),
            newest_reply=converted_replies[-1] if converted_replies else None,
            buttons=self._buttons(message),
            links=links,
            menus=menus,
            has_files=bool(message.files),
        )

    def _render_markdown(self, content: SlackContent, message: SlackMessage) -> str:
        """Return a message's task cards, text or blocks, and file names as CommonMark.

        Args:
            content: the version of the message's content to render.
        """
        if content.blocks:
            text = mrkdwn.convert_blocks(content.blocks, self._resolve_name)
        elif content.is_markdown:
            text = mrkdwn.convert_markdown(content.text, self._resolve_name)
        else:
            text = mrkdwn.convert_mrkdwn(content.text, self._resolve_name)
        cards = [
            f"_{mrkdwn.convert_mrkdwn(escape(_format_task(task), quote=False), self._resolve_name)}_"
            for task in content.tasks
        ]
        files = [f"`[file {file.name}]`" for file in message.files]
        attachments = mrkdwn.convert_attachments(content.attachments, self._resolve_name)
        return "\n\n".join(filter(None, [*map(Emoji.replace, [*cards, text, attachments]), *files]))

    def _resolve_name(self, target: str) -> str:
        """Return the name of the target of a mention, such as `@U1`, `#C1` or `!here`.

        The name begins with `@` or `#`. An unknown id is its own name.
        """
        sign, key = target[0], target[1:]
        if sign == "!":
            return f"@{key.partition('^')[0]}"
        channels = {channel.id: channel.name for channel in self._slack.channels.values()}
        return f"{sign}{(self._names_by_id | channels).get(key, key)}"


def _format_task(task: TaskCard) -> str:
    """Return a task's title, after `✓` if it is complete or `✗` if it failed."""
    return f"{_STATUS_SIGNS.get(task.status, '')}{task.title}"
