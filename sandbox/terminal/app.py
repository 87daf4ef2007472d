"""The screen: places at the left, what was said there at the right, and a line to type in."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import ClassVar

from rich.text import Text
from textual import events, on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Footer, Input, ListView, OptionList, Static
from textual.widgets.option_list import Option

from sandbox.client.platform import (
    ActionRefusedError,
    ClientEvent,
    ClientLocation,
    ClientPlatform,
    HappeningKind,
    PlatformUser,
    ShownMessage,
    ThreadSupport,
    opening,
)
from sandbox.client.session import ClientSession
from sandbox.terminal.rows import MessageRow
from sandbox.terminal.sessions import TerminalSessions
from sandbox.terminal.tab import PlatformTab

#: Messages of a place that are on the screen, the newest ones.
SHOWN = 200


class TerminalApp(App[None]):
    """One person in the sandboxes. What it shows is always painted from the platform as it stands."""

    ENABLE_COMMAND_PALETTE = False
    TITLE = "Parley"
    CSS = """
    #top { height: 1; background: $primary; color: $text; padding: 0 1; }
    #top > Static { width: auto; padding: 0 2 0 0; }
    #notices { height: auto; max-height: 3; background: $warning-muted; color: $text; padding: 0 1; }
    #notices.-none { display: none; }
    #places { width: 22; border: none; border-right: solid $primary-muted; padding: 0; height: 1fr; }
    #messages { height: 1fr; background: $background; padding: 0 1; }
    #messages, #places { scrollbar-size-vertical: 1; }
    #messages:focus { background-tint: transparent; }
    #messages > MessageRow { background: $background; padding: 0 0 1 0; }
    #messages:focus > MessageRow.-highlight { background: $primary-muted; color: $text; text-style: none; }
    #hint { height: auto; color: $text-muted; padding: 0 1; }
    #told { height: auto; color: $text-warning; padding: 0 1; }
    #told.-none { display: none; }
    #line { border: round $primary; height: 3; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "home", "Back", priority=True),
        Binding("ctrl+t", "thread", "Thread", priority=True),
        Binding("ctrl+n", "next_place", "Next", priority=True),
        Binding("ctrl+g", "direct", "DM", priority=True),
        Binding("ctrl+r", "next_speaker", "Speaker", priority=True),
        Binding("f2,ctrl+p", "next_platform", "Platform", key_display="f2", priority=True),
        Binding("up", "mark", "Mark a message", show=False),
        Binding("f1", "help", "Help", priority=True),
        Binding("ctrl+c,ctrl+d", "quit", "Quit", key_display="^c", priority=True),
    ]

    def __init__(self, *platforms: ClientPlatform, notices: Sequence[str]) -> None:
        super().__init__()
        self.desks = TerminalSessions(platforms)
        self._notices = notices
        self._told = ""
        self._dirty = asyncio.Event()
        self._choices: dict[str, Callable[[], None]] = {}
        self._painted_place: ClientLocation | None = None
        self._painted_places: Sequence[object] = ()

    @property
    def desk(self) -> ClientSession:
        return self.desks.desk

    @property
    def _platform(self) -> ClientPlatform:
        return self.desk.platform

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Static(Text("Parley sandbox", style="bold"))
            for desk in self.desks.all:
                yield PlatformTab(desk)
        yield Static(Text("\n".join(self._notices)), id="notices", classes="" if self._notices else "-none")
        with Horizontal():
            yield OptionList(id="places", compact=True)
            with Vertical():
                yield ListView(id="messages", initial_index=None)
                yield Static(id="hint")
                yield Static(id="told", classes="-none")
                yield Input(id="line", select_on_focus=False)
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#line").focus()
        self.query_one("#messages").anchor()
        for desk in self.desks.all:
            self._listen(desk)
        self._paint()
        self.set_interval(0.5, self._paint_top)

    # What happens

    @work
    async def _listen(self, desk: ClientSession) -> None:
        async with aclosing(desk.platform.changes()) as changes:
            self._dirty.set()
            async for happening in changes:
                desk.note(happening)
                _follow(desk, happening)
                self._dirty.set()

    # What one does

    @on(Input.Submitted, "#line")
    def _entered(self, event: Input.Submitted) -> None:
        line = event.value
        event.input.clear()
        self._tell("")
        self.query_one("#messages").anchor()
        self._enter(line)

    @work
    async def _enter(self, line: str) -> None:
        unheard = self._unheard(line)
        self._tell(await self.desks.enter(line) or unheard)
        if self.desks.closed:
            self.exit()

    def _unheard(self, line: str) -> str:
        """What one has to know who spoke past the bot."""
        bot, place = self._platform.bot, self.desk.place
        if place.direct or place.thread or not line.strip() or line.startswith("/") or f"@{bot}" in line.casefold():
            return ""
        return f"In a channel {bot} answers to @{bot}."

    @on(OptionList.OptionSelected, "#places")
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self._do(self._choices[event.option_id or ""])

    @on(ListView.Selected, "#messages")
    def _opened(self, event: ListView.Selected) -> None:
        if isinstance(event.item, MessageRow):
            self._open(event.item.message)

    @on(PlatformTab.Chosen)
    def _taken(self, event: PlatformTab.Chosen) -> None:
        self._do(lambda: self.desks.sit(event.desk))

    def on_key(self, event: events.Key) -> None:
        """What one types lands in the line, wherever the focus is."""
        line = self.query_one("#line", Input)
        if event.is_printable and event.character is not None and self.focused is not line:
            line.focus()
            line.insert_text_at_cursor(event.character)
            event.stop()

    def action_home(self) -> None:
        self._do(lambda: self.desk.go(self.desk.home()))

    def action_direct(self) -> None:
        self._do(lambda: self.desk.go(self._platform.direct(self.desk.speaker)))

    def action_thread(self) -> None:
        """Open the thread of the marked message, or of the newest one."""
        messages = self.query_one("#messages", ListView)
        rows = list(messages.query(MessageRow))
        marked = messages.highlighted_child
        if isinstance(marked, MessageRow):
            self._open(marked.message)
        elif rows:
            self._open(rows[-1].message)

    def action_mark(self) -> None:
        """Go from the line up into the messages, to mark one of them."""
        messages = self.query_one("#messages", ListView)
        messages.focus()
        messages.index = len(messages) - 1 if len(messages) else None

    def action_next_place(self) -> None:
        """Go on to the next place with something unread, else to the next one of the list."""
        places = self.desk.places()
        here = places.index(self.desk.place) + 1 if self.desk.place in places else 0
        ring = places[here:] + places[:here]
        place = next((place for place in ring if self.desk.unread[place]), ring[0])
        self._do(lambda: self.desk.go(place))

    def action_next_speaker(self) -> None:
        people = self._platform.people
        person = people[(people.index(self.desk.speaker) + 1) % len(people)]
        self._do(lambda: self.desk.speak_as(person))

    def action_next_platform(self) -> None:
        self._do(lambda: self.desks.sit(self.desks.next()))

    @work
    async def action_press(self, message_id: str, label: str) -> None:
        """Press a button of a message that is on the screen."""
        shown = [row.message for row in self.query(MessageRow)]
        shown += [message.newest for message in shown if message.newest is not None]
        for message in shown:
            if message.id == message_id and label in message.buttons:
                self._tell(await self.desk.press(message, label))

    def action_help(self) -> None:
        self._enter("/help")

    def _open(self, message: ShownMessage) -> None:
        try:
            thread = self.desk.thread_of(message)
        except ActionRefusedError as refusal:
            self._tell(str(refusal))
        else:
            self._do(lambda: self.desk.go(thread))

    def _do(self, step: Callable[[], None]) -> None:
        """Take a step to another place or person; then one can type on."""
        step()
        self._tell("")
        self.query_one("#line").focus()

    def _tell(self, told: str) -> None:
        self._told = told
        self._dirty.set()

    # What one sees

    @work
    async def _paint(self) -> None:
        """Paint whenever something changed; changes that come together are painted once."""
        while self.is_running:
            self._dirty.clear()
            self._paint_top()
            self._paint_places()
            self._paint_line()
            await self._paint_messages()
            await self._dirty.wait()

    def _paint_top(self) -> None:
        if not self.is_running:  # the screen is being taken down
            return
        for tab in self.query(PlatformTab):
            tab.paint(is_open=tab.desk is self.desk)

    def _paint_places(self) -> None:
        places = self.desk.places()
        self._choices = {}
        options: list[Option | None] = [_heading("Places")]
        options += [self._place_option(place) for place in places if place.thread is None]
        options += [None, _heading("You are")]
        options += [self._person_option(person) for person in self._platform.people]
        threads = [self._place_option(place) for place in places if place.thread is not None]
        if threads:
            options += [None, _heading("Threads"), *threads]
        looks = [option and option.prompt for option in options]
        if looks != self._painted_places:  # painting anew loses how far one has scrolled
            self._painted_places = looks
            widget = self.query_one("#places", OptionList)
            marked = widget.highlighted
            widget.set_options(options)
            widget.highlighted = marked

    def _place_option(self, place: ClientLocation) -> Option:
        unread = self.desk.unread[place]
        sign = "↳ " if place.thread else ""
        mark = f" ({unread})" if unread else ""
        name = opening(place.name, 19 - len(sign) - len(mark))
        look = f"{sign}{name}{mark}".ljust(21)
        style = "reverse" if place == self.desk.place else "bold" if unread else ""
        key = f"{place.channel}-{place.thread}"
        self._choices[key] = lambda: self.desk.go(place)
        return Option(Text.assemble((look, style)), id=key)

    def _person_option(self, person: PlatformUser) -> Option:
        mark = "● " if person == self.desk.speaker else "○ "
        self._choices[person.id] = lambda: self.desk.speak_as(person)
        return Option(Text(f"{mark}{person.name}"), id=person.id)

    def _paint_line(self) -> None:
        desk, home = self.desk, self.desk.home()
        line = self.query_one("#line", Input)
        where = home.name if desk.place.thread is None else f"{home.name}, thread “{opening(desk.place.name, 24)}”"
        line.border_title = f"{desk.speaker.name} → {where}"
        line.placeholder = self._what_to_type()
        told = self.query_one("#told", Static)
        told.update(Text(self._told))
        told.set_class(not self._told, "-none")

    def _what_to_type(self) -> str:
        bot, place = self._platform.bot, self.desk.place
        if place.thread is not None:
            new = "; Esc begins a new conversation" if place.threads is ThreadSupport.ALL else ""
            return f"Reply in this thread{new}"
        if place.direct:
            return f"Ask {bot} something and press Enter"
        begins = "Begin a post: " if place.threads is ThreadSupport.ALL else ""
        return f"{begins}@{bot} what can you do?"

    async def _paint_messages(self) -> None:
        desk = self.desk
        messages = list(self._platform.messages(desk.place, desk.speaker))[-SHOWN:]
        in_thread = desk.place.thread is not None
        widget = self.query_one("#messages", ListView)
        rows = list(widget.query(MessageRow))
        fits = desk.place == self._painted_place and _ids(rows) == [m.id for m in messages[: len(rows)]]
        if not fits:
            await widget.clear()
            rows = []
            if not self.is_running:  # the screen is being taken down
                return
            widget.anchor()
        self._painted_place = desk.place
        for row, message in zip(rows, messages, strict=False):
            row.show(message)
        await widget.extend(MessageRow(message, in_thread=in_thread) for message in messages[len(rows) :])
        hint = self.query_one("#hint", Static)
        hint.update("" if messages else self._opening_hint())
        hint.display = not messages

    def _opening_hint(self) -> str:
        bot = self._platform.bot
        if self.desk.place.direct:
            return f"This is your direct line to {bot}. Type a question below and press Enter."
        return f"Nobody has said anything here yet. {bot} answers to @{bot}."


def _follow(desk: ClientSession, happening: ClientEvent) -> None:
    """Where each message opens a conversation of its own: go along with the first answer."""
    message, said = happening.message, desk.said
    if (
        desk.place.threads is ThreadSupport.ALL
        and desk.place.thread is None
        and happening.kind is HappeningKind.POSTED
        and message.by_bot
        and said is not None
        and (message.channel, message.thread) == (said.channel, said.id)
    ):
        desk.go(desk.thread_of(said))


def _heading(text: str) -> Option:
    return Option(Text(text, style="bold"), disabled=True)


def _ids(rows: Sequence[MessageRow]) -> list[str]:
    return [row.message.id for row in rows]
