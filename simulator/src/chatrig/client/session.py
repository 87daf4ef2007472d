"""User interface state of one user: open channel, unread messages and typed lines."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from chatrig.client.forms import (
    ClientField,
    ClientForm,
    find_option,
    format_form,
    format_options,
    parse_field_values,
    parse_form_line,
)
from chatrig.client.platform import (
    NO_FILES,
    ActionRefusedError,
    ClientEvent,
    ClientEventKind,
    ClientLocation,
    ClientMessage,
    ClientPlatform,
    PlatformUser,
    ThreadSupport,
)
from chatrig.client.updates import create_thread_name, raise_refusals

#: Time for the bot to open a form, in seconds.
FORM_TIMEOUT_SECONDS = 3.0


class ChatSession:
    """User interface state of one user on one local platform.

    Attributes:
        user: the current user, which can be switched.
        place: the open channel, DM or thread.
        has_focus: whether the interface shows this session; if so, messages in `place` count as read.
        last_sent: the last message that was sent in this session; None before the first one.
        unread: the number of unread messages by channel, DM or thread.
    """

    def __init__(self, platform: ClientPlatform) -> None:
        self.platform = platform
        self.user = platform.people[0]
        self.place = platform.get_dm(self.user)
        self.has_focus = False
        self.last_sent: ClientMessage | None = None
        self.unread: Counter[ClientLocation] = Counter()
        self._navigation_commands: dict[str, Callable[[str], str]] = {
            "as": self._switch_user_by_name,
            "channel": self._open_channel,
            "dm": self._open_dm,
            "thread": self._open_thread,
        }
        self._message_commands: dict[str, Callable[[str], Awaitable[None]]] = {
            "press": self._click_button_by_label,
            "edit": self._edit_own_message,
            "delete": self._delete_own_message,
            "file": self._send_file,
            "menu": self._use_menu_entry,
            "submit": self._submit_form,
        }

    def focus(self) -> None:
        """Set `has_focus`, and mark the messages of the open location as read."""
        self.has_focus = True
        self.open_place(self.place)

    def open_place(self, place: ClientLocation) -> None:
        """Open a channel, DM or thread.

        Its messages become read if the session has the focus.
        """
        self.place = place
        if self.has_focus:
            self.unread.pop(place, None)

    def switch_user(self, person: PlatformUser) -> None:
        """Act as another user from now on.

        If a DM or a thread in it is open, the DM of the new user replaces it.
        """
        self.user = person
        if self.place.is_dm:
            self.open_place(self.platform.get_dm(person))

    def get_thread(self, message: ClientMessage) -> ClientLocation:
        """Return the thread of a message, or the thread that a reply to it would start.

        Raises:
            ActionRefusedError: the message cannot have a thread.
        """
        root, channel = message.thread or message.id, self._find_channel(message.channel)
        if channel.thread_support is ThreadSupport.NONE:
            raise ActionRefusedError(f"Direct messages in {self.platform.name} have no threads.")
        for thread in self.platform.list_threads(self.user):
            if (thread.channel, thread.thread) == (message.channel, root):
                return thread
        if message.ephemeral_to is not None:
            raise ActionRefusedError("Messages that only you can see have no threads.")
        return ClientLocation(message.channel, root, create_thread_name(message), channel.is_dm, channel.thread_support)

    def get_open_channel(self) -> ClientLocation:
        """Return the open channel or DM; of an open thread, the channel or DM it is in."""
        return self._find_channel(self.place.channel)

    def list_places(self) -> list[ClientLocation]:
        """Return the user's DM, then all channels, then the user's threads.

        Channels that the user cannot see are included; in Slack, so are their threads. The open location is added at
        the end if it is none of them.
        """
        platform = self.platform
        places = [platform.get_dm(self.user), *platform.channels, *platform.list_threads(self.user)]
        return places if self.place in places else [*places, self.place]

    def count_unread(self) -> int:
        """Return the number of unread messages in the locations of `list_places`."""
        return sum(self.unread[place] for place in self.list_places()) if self.unread else 0

    def record_event(self, event: ClientEvent) -> None:
        """Count a newly posted message as unread, unless the interface shows its location.

        Other events and ephemeral messages are ignored. The author does not matter: the user's own messages count.
        """
        message = event.message
        if event.kind is ClientEventKind.POSTED and message.ephemeral_to is None:
            place = ClientLocation(message.channel, message.thread)
            if place != self.place or not self.has_focus:
                self.unread[place] += 1

    async def run_line(self, line: str) -> str:
        """Run a typed line: a message, a client command, or a slash command of the bot.

        A line without `/` is posted in the open location. `/as`, `/channel`, `/dm`, `/thread`, `/press`, `/edit`,
        `/delete`, `/file`, `/menu` and `/submit` are client commands. Any other `/NAME`, or `//NAME`, runs a command of
        the bot.

        Returns:
            A text for the user, such as an error; "" for none.
        """
        line = line.strip()
        if not line:
            return ""
        try:
            if not line.startswith("/"):
                self.last_sent = await self.platform.post_message(self.user, self.place, line)
                return ""
            name, _, rest = line[1:].partition(" ")
            if navigate := self._navigation_commands.get(name):
                return navigate(rest.strip())
            if run_command := self._message_commands.get(name):
                await run_command(rest.strip())
            else:
                await self.platform.run_command(self.user, self.place, name.removeprefix("/"), rest.strip())
        except ActionRefusedError as refusal:
            return str(refusal)
        return ""

    async def post_message(self, text: str, files: Mapping[str, bytes] = NO_FILES) -> None:
        """Post a message in the open location.

        Slack: each message in a DM starts a conversation; its thread is then open.

        Raises:
            ActionRefusedError: as for `ClientPlatform.post_message`.
        """
        place = self.place
        message = await self.platform.post_message(self.user, place, text, files)
        if place.is_dm and place.thread is None and place.thread_support is ThreadSupport.ALWAYS:
            self.open_place(self.get_thread(message))

    async def click_button(self, message: ClientMessage, label: str) -> str:
        """Click the button with this label on a message.

        Returns:
            The text of the platform's refusal; "" for none.

        Raises:
            KeyError: the message has no such button.
        """
        return await _report_refusal(self.platform.click_button(self.user, message, message.buttons[label]))

    async def select_values(self, message: ClientMessage, menu: ClientField, values: Sequence[str]) -> str:
        """Select the values of options, or a date or time, in a menu of a message.

        Returns:
            The text of the platform's refusal; "" for none.
        """
        return await _report_refusal(self.platform.select_values(self.user, message, menu.id, values))

    def _visible_messages(self) -> list[ClientMessage]:
        """Return the messages of the open location, newest first.

        The newest reply in the thread of each message is included.
        """
        messages = list(self.platform.list_messages(self.place, self.user))
        messages += [m.newest_reply for m in messages if m.newest_reply is not None]
        return sorted(messages, key=lambda message: message.sent_at, reverse=True)

    async def _click_button_by_label(self, label: str) -> None:
        """Click the first button, or select the first option, whose label has a prefix.

        `MENU: ENTRY` selects in the menu with this label, several options with a comma between them. Newer messages
        come first.

        Args:
            label: the prefix, or `MENU: ENTRY`.

        Raises:
            ActionRefusedError: no message in the open location has such a button or option.
        """
        labels: dict[str, None] = {}
        for message in self._visible_messages():
            for name, button in message.buttons.items():
                if label and name.casefold().startswith(label.casefold()):
                    return await self.platform.click_button(self.user, message, button)
                labels[name] = None
            for menu in message.menus:
                try:
                    values = _parse_selection(menu, label)
                except ValueError:
                    labels[format_options(menu.options) or menu.label] = None
                    continue
                return await self.platform.select_values(self.user, message, menu.id, values)
        labels_hint = f"Buttons: {', '.join(labels)}." if labels else "There are no buttons."
        raise ActionRefusedError(f"There is no button {label!r} here. {labels_hint}")

    def _find_own_message(self) -> ClientMessage:
        """Return the user's newest message in the open location.

        Raises:
            ActionRefusedError: the user has no message there.
        """
        for message in self._visible_messages():
            if message.author == self.user.name and not message.is_from_bot:
                return message
        raise ActionRefusedError(f"{self.user.name} has no messages here.")

    async def _edit_own_message(self, text: str) -> None:
        if not text:
            raise ActionRefusedError("Add the new text: /edit TEXT")
        await self.platform.edit_message(self.user, self._find_own_message(), text)

    async def _delete_own_message(self, _: str) -> None:
        await self.platform.delete_message(self.user, self._find_own_message())

    async def _send_file(self, line: str) -> None:
        path, _, text = line.partition(" ")
        try:
            data = await asyncio.to_thread(_read_file, path)
        except OSError as error:
            raise ActionRefusedError(f"Cannot read {path or 'the file'}: {error.strerror}") from error
        self.last_sent = await self.platform.post_message(self.user, self.place, text.strip(), {Path(path).name: data})

    async def _use_menu_entry(self, line: str) -> None:
        """Select an entry in the context menu of the newest message that is not ephemeral.

        Args:
            line: `ENTRY` or `ENTRY: TEXT`; the first entry whose name begins with `ENTRY` is selected. `TEXT` is the
                value of each input of the modal that the bot opens.

        Raises:
            ActionRefusedError: there is no such entry or no message, or as for `ClientPlatform.use_menu_entry`.
        """
        prefix, _, text = line.partition(":")
        entry = next(
            (e for e in self.platform.menu_entries if prefix and e.casefold().startswith(prefix.casefold())), None
        )
        if entry is None:
            raise ActionRefusedError(
                f"There is no {prefix!r} in the menu. Entries: {', '.join(self.platform.menu_entries)}."
            )
        message = next((message for message in self._visible_messages() if message.ephemeral_to is None), None)
        if message is None:
            raise ActionRefusedError("There are no messages here.")
        await self.platform.use_menu_entry(self.user, message, entry, text.strip())

    async def _submit_form(self, line: str) -> None:
        """Fill in and submit the user's form, once the bot has opened it.

        It waits at most `FORM_TIMEOUT_SECONDS` for a form.

        Args:
            line: entries as in `parse_form_line`.

        Raises:
            ActionRefusedError: no form is open, or an entry is refused.
        """
        form = await self._wait_for_form()
        with raise_refusals():
            values = parse_form_line(form, line)
        await self.platform.submit_form(self.user, form.id, values)
        refused = self.platform.find_form(self.user)
        if refused is not None and any(field.error for field in refused.fields):
            raise ActionRefusedError(format_form(refused))

    async def _wait_for_form(self) -> ClientForm:
        try:
            async with asyncio.timeout(FORM_TIMEOUT_SECONDS):
                while (form := self.platform.find_form(self.user)) is None:
                    await self.platform.wait_for_change()
        except TimeoutError:
            raise ActionRefusedError(f"No form is open for {self.user.name}.") from None
        await asyncio.sleep(0)  # other tasks that wait for the form show it first
        return form

    def _find_channel(self, channel_id: str) -> ClientLocation:
        direct = self.platform.get_dm(self.user)
        return next((place for place in self.platform.channels if place.channel == channel_id), direct)

    def _switch_user_by_name(self, name: str) -> str:
        for person in self.platform.people:
            if person.name.casefold() == name.removeprefix("@").casefold():
                self.switch_user(person)
                return ""
        people = ", ".join(person.name for person in self.platform.people)
        return f"There is no user {name!r}. Users: {people}."

    def _open_dm(self, _: str) -> str:
        self.open_place(self.platform.get_dm(self.user))
        return ""

    def _open_channel(self, name: str) -> str:
        for place in self.platform.channels:
            if place.name.lstrip("#") == name.lstrip("#"):
                self.open_place(place)
                return ""
        channels = ", ".join(place.name for place in self.platform.channels)
        return f"There is no channel {name!r}. Channels: {channels}."

    def _open_thread(self, message_id: str) -> str:
        if message_id == "last":
            message = self.last_sent
            if message is None:
                return "You have not sent a message yet."
            if self._find_channel(message.channel).channel != message.channel:
                return "Your last message is in another user's direct messages."
        else:
            messages = self.platform.list_messages(self.get_open_channel(), self.user)
            message = next((message for message in messages if message.id == message_id), None)
            if message is None:
                return f"There is no message {message_id!r} in {self.get_open_channel().name}."
        self.open_place(self.get_thread(message))
        return ""


def _parse_selection(menu: ClientField, text: str) -> list[str]:
    """Return the values that a user selects in a menu by typing.

    Args:
        menu: the menu of the message.
        text: `MENU: ENTRY`, with the beginning of the menu's label and what `parse_field_values` takes; or one option's
                label.

    Raises:
        ValueError: the menu has no such option.
    """
    name, separator, entry = text.partition(":")
    if separator and name.strip() and menu.label.casefold().startswith(name.strip().casefold()):
        return parse_field_values(menu, entry.strip())
    return [find_option(menu.label, menu.options, text).value]


async def _report_refusal(action: Awaitable[None]) -> str:
    """Await a user's action; return the text of its refusal, or "" if it succeeds."""
    try:
        await action
    except ActionRefusedError as refusal:
        return str(refusal)
    return ""


def _read_file(path: str) -> bytes:
    return Path(path).expanduser().read_bytes()
