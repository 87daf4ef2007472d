"""Screen of the terminal client: channels, messages and an input line."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import ClassVar

from rich.text import Text
from textual import events, on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.filter import LineFilter
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, ListView, OptionList, Static
from textual.widgets.option_list import Option

from chatrig.client.extension import SimulatorExtension
from chatrig.client.platform import (
    ActionRefusedError,
    ClientEvent,
    ClientEventKind,
    ClientLocation,
    ClientMessage,
    ClientPlatform,
    PlatformUser,
    ThreadSupport,
    shorten_text,
)
from chatrig.client.session import ChatSession
from chatrig.terminal.controls import ControlFilter
from chatrig.terminal.dialogs import FormScreen, MenuScreen
from chatrig.terminal.rows import MessageRow
from chatrig.terminal.sessions import TerminalSessions
from chatrig.terminal.tab import PlatformTab

#: Most messages of a channel or thread on the screen; these are the newest ones.
MAX_MESSAGES = 200


class TerminalApp(App[None]):
    """Textual app of the terminal client for one user.

    Each change of a platform repaints the screen from the platform's current data.

    Args:
        platforms: the platforms in the order of their tabs; the first one is shown.
        extension: further commands and notices; None for none.
        notices: lines at the top.

    Attributes:
        sessions: the user's sessions, one for each platform.
    """

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #top { height: 1; background: $primary; color: $text; padding: 0 1; }
    #top > Static { width: auto; padding: 0 2 0 0; }
    #notices { height: auto; max-height: 4; background: $warning-muted; color: $text; padding: 0 1; }
    #notices.-none { display: none; }
    #places { width: 22; border: none; border-right: solid $primary-muted; padding: 0; height: 1fr; }
    #messages { height: 1fr; background: $background; padding: 0 1; }
    #messages, #places { scrollbar-size-vertical: 1; }
    #messages:focus { background-tint: transparent; }
    #messages > MessageRow { background: $background; padding: 0 0 1 0; }
    #messages:focus > MessageRow.-highlight { background: $primary-muted; color: $text; text-style: none; }
    #hint { height: auto; color: $text-muted; padding: 0 1; }
    #notice { height: auto; color: $text-warning; padding: 0 1; }
    #notice.-none { display: none; }
    #line { border: round $primary; height: 3; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "open_channel", "Back", priority=True),
        Binding("ctrl+t", "thread", "Thread", priority=True),
        Binding("ctrl+n", "next_place", "Next", priority=True),
        Binding("ctrl+g", "open_dm", "DM", priority=True),
        Binding("ctrl+r", "next_user", "User", priority=True),
        Binding("f2,ctrl+p", "next_platform", "Platform", key_display="f2", priority=True),
        Binding("up", "focus_messages", "Select a message", show=False),
        Binding("f1", "help", "Help", priority=True),
        Binding("ctrl+c,ctrl+d", "quit", "Quit", key_display="^c", priority=True),
    ]

    def __init__(
        self, *platforms: ClientPlatform, extension: SimulatorExtension | None = None, notices: Sequence[str]
    ) -> None:
        super().__init__()
        self.sessions = TerminalSessions(platforms, extension)
        self.title = self.sessions.extension.title
        self._notices = notices
        self._notice = ""
        self._changed = asyncio.Event()
        self._option_actions: dict[str, Callable[[], None]] = {}
        self._painted_place: ClientLocation | None = None
        self._painted_places: Sequence[object] = ()

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), ControlFilter()]

    @property
    def session(self) -> ChatSession:
        return self.sessions.current

    @property
    def _platform(self) -> ClientPlatform:
        return self.session.platform

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Static(Text(f"{self.title} simulator", style="bold"))
            for session in self.sessions.all:
                yield PlatformTab(session)
        yield Static(id="notices")
        with Horizontal():
            yield OptionList(id="places", compact=True)
            with Vertical():
                yield ListView(id="messages", initial_index=None)
                yield Static(id="hint")
                yield Static(id="notice", classes="-none")
                yield Input(id="line", select_on_focus=False)
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#line").focus()
        self.query_one("#messages").anchor()
        for session in self.sessions.all:
            self._watch_platform(session)
            self._watch_forms(session.platform)
        self._paint()
        self.set_interval(0.5, self._paint_top)

    # Events

    @work
    async def _watch_platform(self, session: ChatSession) -> None:
        async with aclosing(session.platform.changes()) as changes:
            self._changed.set()
            async for event in changes:
                session.record_event(event)
                _follow_first_reply(session, event)
                self._changed.set()

    @work
    async def _watch_forms(self, platform: ClientPlatform) -> None:
        """Show each form that the bot opens for the user over the screen."""
        while self.is_running:
            session = self.session
            form = platform.find_form(session.user) if session.platform is platform else None
            if form is not None and not isinstance(self.screen, ModalScreen):
                self.push_screen(FormScreen(session, form))
            await platform.wait_for_change()

    # Actions of the user

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        """Return whether Textual may run a key's action: not while a form or menu is open.

        Quitting is always allowed.
        """
        del parameters
        return action in ("quit", "help_quit") or not isinstance(self.screen, ModalScreen)

    @on(Input.Submitted, "#line")
    def _submit_line(self, event: Input.Submitted) -> None:
        line = event.value
        event.input.clear()
        self._show_notice("")
        self.query_one("#messages").anchor()
        self._run_line(line)

    @work
    async def _run_line(self, line: str) -> None:
        hint = self._mention_hint(line)
        if command := self.sessions.find_extension_command(line):
            self._show_notice(command.progress)
        self._show_notice(await self.sessions.run_line(line) or hint)
        if self.sessions.is_closed:
            self.exit()

    def _mention_hint(self, line: str) -> str:
        """Return a hint if a line to a channel does not mention the bot; else ""."""
        bot, place = self._platform.bot_name, self.session.place
        if place.is_dm or place.thread or not line.strip() or line.startswith("/") or f"@{bot}" in line.casefold():
            return ""
        return f"In a channel, mention @{bot} to get an answer."

    @on(OptionList.OptionSelected, "#places")
    def _select_place(self, event: OptionList.OptionSelected) -> None:
        self._navigate(self._option_actions[event.option_id or ""])

    @on(ListView.Selected, "#messages")
    def _select_message(self, event: ListView.Selected) -> None:
        if isinstance(event.item, MessageRow):
            self._open_thread(event.item.message)

    @on(PlatformTab.Chosen)
    def _select_platform(self, event: PlatformTab.Chosen) -> None:
        self._navigate(lambda: self.sessions.switch_to(event.session))

    def on_key(self, event: events.Key) -> None:
        """Insert a character that the user types elsewhere into the input line; focus it."""
        if isinstance(self.screen, ModalScreen):
            return
        line = self.query_one("#line", Input)
        if event.is_printable and event.character is not None and self.focused is not line:
            line.focus()
            line.insert_text_at_cursor(event.character)
            event.stop()

    def action_open_channel(self) -> None:
        self._navigate(lambda: self.session.open_place(self.session.get_open_channel()))

    def action_open_dm(self) -> None:
        self._navigate(lambda: self.session.open_place(self._platform.get_dm(self.session.user)))

    def action_thread(self) -> None:
        """Open the thread of the selected message; without a selection, of the newest.

        Nothing happens without messages. If the message cannot have a thread, the user sees the reason.
        """
        messages = self.query_one("#messages", ListView)
        rows = list(messages.query(MessageRow))
        marked = messages.highlighted_child
        if isinstance(marked, MessageRow):
            self._open_thread(marked.message)
        elif rows:
            self._open_thread(rows[-1].message)

    def action_focus_messages(self) -> None:
        """Move the focus to the list of messages, and select the newest one."""
        messages = self.query_one("#messages", ListView)
        messages.focus()
        messages.index = len(messages) - 1 if len(messages) else None

    def action_next_place(self) -> None:
        """Open the shown platform's next channel, DM or thread with unread messages.

        Without unread messages, open the next one in the list. After the last one comes the first.
        """
        places = self.session.list_places()
        index = places.index(self.session.place) + 1 if self.session.place in places else 0
        ring = places[index:] + places[:index]
        place = next((place for place in ring if self.session.unread[place]), ring[0])
        self._navigate(lambda: self.session.open_place(place))

    def action_next_user(self) -> None:
        people = self._platform.people
        person = people[(people.index(self.session.user) + 1) % len(people)]
        self._navigate(lambda: self.session.switch_user(person))

    def action_next_platform(self) -> None:
        self._navigate(lambda: self.sessions.switch_to(self.sessions.next_session()))

    @work
    async def action_click_button(self, message_id: str, label: str) -> None:
        """Click a button of a message on the screen, and show a refusal to the user.

        Args:
            message_id: the id of a message on the screen; for any other, nothing happens.
            label: label of the button; nothing happens if the message has no such button.
        """
        for message in self._list_shown_messages():
            if message.id == message_id and label in message.buttons:
                self._show_notice(await self.session.click_button(message, label))

    @work
    async def action_open_menu(self, message_id: str, menu_id: str) -> None:
        """Show the options of a message's menu, and select those that the user chooses.

        Nothing is selected if the user cancels. A refusal is shown to the user.

        Args:
            message_id: the id of a message on the screen; for any other, nothing happens.
            menu_id: the id of the menu; nothing happens if the message has no such menu.
        """
        for message in self._list_shown_messages():
            for menu in message.menus:
                if message.id == message_id and menu.id == menu_id:
                    values = await self.push_screen_wait(MenuScreen(menu))
                    if values is not None:
                        self._show_notice(await self.session.select_values(message, menu, values))

    def _list_shown_messages(self) -> list[ClientMessage]:
        messages = [row.message for row in self.query(MessageRow)]
        return messages + [message.newest_reply for message in messages if message.newest_reply is not None]

    def action_help(self) -> None:
        self._run_line("/help")

    def _open_thread(self, message: ClientMessage) -> None:
        try:
            thread = self.session.get_thread(message)
        except ActionRefusedError as refusal:
            self._show_notice(str(refusal))
        else:
            self._navigate(lambda: self.session.open_place(thread))

    def _navigate(self, step: Callable[[], None]) -> None:
        """Run `step`, which opens a channel or switches the user; focus the input line."""
        step()
        self._show_notice("")
        self.query_one("#line").focus()

    def _show_notice(self, notice: str) -> None:
        self._notice = notice
        self._changed.set()

    # Painting

    @work
    async def _paint(self) -> None:
        """Repaint the screen after each change until the app ends.

        Simultaneous changes are painted once.
        """
        while self.is_running:
            self._changed.clear()
            self._paint_top()
            self._paint_places()
            self._paint_line()
            await self._paint_messages()
            await self._changed.wait()

    def _paint_top(self) -> None:
        if not self.is_running:  # the app is closing
            return
        for tab in self.query(PlatformTab):
            tab.paint(is_open=tab.session is self.session)
        notices = [*self._notices, *self.sessions.extension.list_notices()]
        widget = self.query_one("#notices", Static)
        widget.update(Text("\n".join(notices)))
        widget.set_class(not notices, "-none")

    def _paint_places(self) -> None:
        places = self.session.list_places()
        self._option_actions = {}
        options: list[Option | None] = [_create_heading("Places")]
        options += [self._place_option(place) for place in places if place.thread is None]
        options += [None, _create_heading("You are")]
        options += [self._person_option(person) for person in self._platform.people]
        threads = [self._place_option(place) for place in places if place.thread is not None]
        if threads:
            options += [None, _create_heading("Threads"), *threads]
        prompts = [option and option.prompt for option in options]
        if prompts != self._painted_places:  # a new list loses the scroll position
            self._painted_places = prompts
            widget = self.query_one("#places", OptionList)
            marked = widget.highlighted
            widget.set_options(options)
            widget.highlighted = marked

    def _place_option(self, place: ClientLocation) -> Option:
        unread = self.session.unread[place]
        sign = "↳ " if place.thread else ""
        mark = f" ({unread})" if unread else ""
        name = shorten_text(place.name, 19 - len(sign) - len(mark))
        label = f"{sign}{name}{mark}".ljust(21)
        style = "reverse" if place == self.session.place else "bold" if unread else ""
        key = f"{place.channel}-{place.thread}"
        self._option_actions[key] = lambda: self.session.open_place(place)
        return Option(Text.assemble((label, style)), id=key)

    def _person_option(self, person: PlatformUser) -> Option:
        mark = "● " if person == self.session.user else "○ "
        self._option_actions[person.id] = lambda: self.session.switch_user(person)
        return Option(Text(f"{mark}{person.name}"), id=person.id)

    def _paint_line(self) -> None:
        session, channel = self.session, self.session.get_open_channel()
        line = self.query_one("#line", Input)
        title = (
            channel.name
            if session.place.thread is None
            else f"{channel.name}, thread “{shorten_text(session.place.name, 24)}”"
        )
        line.border_title = f"{session.user.name} → {title}"
        line.placeholder = self._get_placeholder()
        notice = self.query_one("#notice", Static)
        notice.update(Text(self._notice))
        notice.set_class(not self._notice, "-none")

    def _get_placeholder(self) -> str:
        bot, place = self._platform.bot_name, self.session.place
        if place.thread is not None:
            new = "; Esc starts a new conversation" if place.thread_support is ThreadSupport.ALWAYS else ""
            return f"Reply in this thread{new}"
        if place.is_dm:
            return f"Ask {bot} something and press Enter"
        begins = "New post: " if place.thread_support is ThreadSupport.ALWAYS else ""
        return f"{begins}@{bot} what can you do?"

    async def _paint_messages(self) -> None:
        session = self.session
        messages = list(self._platform.list_messages(session.place, session.user))[-MAX_MESSAGES:]
        in_thread = session.place.thread is not None
        widget = self.query_one("#messages", ListView)
        rows = list(widget.query(MessageRow))
        fits = session.place == self._painted_place and _message_ids(rows) == [m.id for m in messages[: len(rows)]]
        if not fits:
            await widget.clear()
            rows = []
            if not self.is_running:  # the app is closing
                return
            widget.anchor()
        self._painted_place = session.place
        hint = self.query_one("#hint", Static)  # before the rows, which would move otherwise
        hint.update("" if messages else self._empty_place_hint())
        hint.display = not messages
        for row, message in zip(rows, messages, strict=False):
            row.update_message(message)
        await widget.extend(MessageRow(message, in_thread=in_thread) for message in messages[len(rows) :])

    def _empty_place_hint(self) -> str:
        bot = self._platform.bot_name
        if self.session.place.is_dm:
            return f"This is the beginning of your direct messages with {bot}. Type a question and press Enter."
        return f"No messages yet. Mention @{bot} to get an answer."


def _follow_first_reply(session: ChatSession, event: ClientEvent) -> None:
    """Open the thread of the user's last message when the bot first replies in it.

    Nothing happens unless a channel or DM with a conversation per message (`ThreadSupport.ALWAYS`) is open.
    """
    message, sent = event.message, session.last_sent
    if (
        session.place.thread_support is ThreadSupport.ALWAYS
        and session.place.thread is None
        and event.kind is ClientEventKind.POSTED
        and message.is_from_bot
        and sent is not None
        and (message.channel, message.thread) == (sent.channel, sent.id)
    ):
        session.open_place(session.get_thread(sent))


def _create_heading(text: str) -> Option:
    return Option(Text(text, style="bold"), disabled=True)


def _message_ids(rows: Sequence[MessageRow]) -> list[str]:
    return [row.message.id for row in rows]
