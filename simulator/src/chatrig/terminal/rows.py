"""Widget of the terminal client for one message."""

from time import localtime, strftime

from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.widgets import ListItem, Static

from chatrig.client.platform import ClientMessage, shorten_text
from chatrig.client.updates import format_links

#: Characters of a quoted message.
MAX_QUOTE_LENGTH = 60


class MessageRow(ListItem):
    """List item with a message; outside a thread, also with its newest reply.

    Args:
        in_thread: whether the list shows a thread.
    """

    def __init__(self, message: ClientMessage, *, in_thread: bool) -> None:
        super().__init__()
        self.message = message
        self._in_thread = in_thread
        self._body = Static(self._create_body())

    def compose(self) -> ComposeResult:
        yield self._body

    def update_message(self, message: ClientMessage) -> None:
        """Repaint the row with a new version of its message, if it differs."""
        if message != self.message:
            self.message = message
            self._body.update(self._create_body())

    def _create_body(self) -> RenderableType:
        message = self.message
        parts = _render_message(message)
        if message.newest_reply is not None and not self._in_thread:
            count = "1 reply" if message.reply_count == 1 else f"{message.reply_count} replies, newest:"
            parts += [
                Text(f"  ↳ {count}", style="bright_blue"),
                Padding(Group(*_render_message(message.newest_reply)), (0, 0, 0, 4)),
                Text("    ↑ and Enter, or a click, opens the thread", style="dim"),
            ]
        return Group(*parts)


def _render_control(label: str, action: str) -> Text:
    """Return a button label as text that runs an action of the app when it is clicked.

    Args:
        action: call of an action in Textual's syntax, such as `app.open_menu(...)`.
    """
    return Text(f"[ {label} ]", Style(color="bright_blue", bold=True, meta={"@click": action}))


def _render_controls(message: ClientMessage) -> list[Text]:
    """Return the menus and buttons of a message as clickable texts."""
    menus = [
        _render_control(f"{menu.label} ▾", f"app.open_menu({message.id!r}, {menu.id!r})") for menu in message.menus
    ]
    return menus + [_render_control(label, f"app.click_button({message.id!r}, {label!r})") for label in message.buttons]


def _render_message(message: ClientMessage) -> list[RenderableType]:
    head = Text.assemble(
        (message.author, "bold cyan" if message.is_from_bot else "bold"),
        (" APP" if message.is_from_bot else "", "dim"),
        (strftime("  %H:%M", localtime(message.sent_at)), "dim"),
        ("  (edited)" if message.is_edited else "", "dim"),
        ("  only visible to you" if message.ephemeral_to else "", "italic yellow"),
    )
    parts: list[RenderableType] = [head, Markdown(message.markdown, hyperlinks=False)]
    if (replied := message.reply_to) is not None:
        parts.insert(0, Text(f"╭ {replied.author}: {shorten_text(replied.plain_text, MAX_QUOTE_LENGTH)}", style="dim"))
    parts += map(Text, format_links(message.links))
    if controls := _render_controls(message):
        parts.append(Text(" ").join(controls))
    if message.reactions:
        parts.append(Text("  ".join(f"{reaction.emoji} {reaction.count}" for reaction in message.reactions)))
    return parts
