"""A message on the screen."""

from time import localtime, strftime

from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.widgets import ListItem, Static

from sandbox.client.platform import ShownMessage, opening

#: How much of a message is shown above one that refers to it.
QUOTED = 60


class MessageRow(ListItem):
    """One message, and below it the newest reply in its thread."""

    def __init__(self, message: ShownMessage, *, in_thread: bool) -> None:
        super().__init__()
        self.message = message
        self._in_thread = in_thread
        self._body = Static(self._painted())

    def compose(self) -> ComposeResult:
        yield self._body

    def show(self, message: ShownMessage) -> None:
        """Show how the message stands now."""
        if message != self.message:
            self.message = message
            self._body.update(self._painted())

    def _painted(self) -> RenderableType:
        message = self.message
        parts = _parts(message)
        if message.newest is not None and not self._in_thread:
            count = "1 reply" if message.replies == 1 else f"{message.replies} replies, the newest:"
            parts += [
                Text(f"  ↳ {count}", style="bright_blue"),
                Padding(Group(*_parts(message.newest)), (0, 0, 0, 4)),
                Text("    ↑ and Enter, or a click, open the thread", style="dim"),
            ]
        return Group(*parts)


def _button(message: ShownMessage, label: str) -> Text:
    """What a click presses."""
    press = {"@click": f"app.press({message.id!r}, {label!r})"}
    return Text(f"[ {label} ]", Style(color="bright_blue", bold=True, meta=press))


def _parts(message: ShownMessage) -> list[RenderableType]:
    head = Text.assemble(
        (message.author, "bold cyan" if message.by_bot else "bold"),
        (" APP" if message.by_bot else "", "dim"),
        (strftime("  %H:%M", localtime(message.sent_at)), "dim"),
        ("  (edited)" if message.edited else "", "dim"),
        ("  only visible to you" if message.only_for else "", "italic yellow"),
    )
    parts: list[RenderableType] = [head, Markdown(message.text, hyperlinks=False)]
    if (asked := message.reply_to) is not None:
        parts.insert(0, Text(f"╭ {asked.author}: {opening(asked.plain, QUOTED)}", style="dim"))
    if message.buttons:
        parts.append(Text(" ").join(_button(message, label) for label in message.buttons))
    if message.reactions:
        parts.append(Text("  ".join(f"{reaction.emoji} {reaction.count}" for reaction in message.reactions)))
    return parts
