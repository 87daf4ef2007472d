"""A platform's name at the top of the screen."""

from rich.text import Text
from textual.message import Message
from textual.widgets import Static

from sandbox.client.session import ClientSession


class PlatformTab(Static):
    """Tells whether the bot is connected there and what is unread; a click goes there."""

    class Chosen(Message):
        def __init__(self, desk: ClientSession) -> None:
            super().__init__()
            self.desk = desk

    def __init__(self, desk: ClientSession) -> None:
        super().__init__(id=desk.platform.name)
        self.desk = desk

    def on_click(self) -> None:
        self.post_message(self.Chosen(self.desk))

    def paint(self, *, is_open: bool) -> None:
        """Show how the platform stands now."""
        platform, news = self.desk.platform, self.desk.news()
        sign, state = ("●", "connected") if platform.connected else ("○", "not connected yet")
        self.update(
            Text.assemble(
                (f"{sign} ", "green" if platform.connected else "red"),
                (platform.name, "bold reverse" if is_open else "bold"),
                f" {state}",
                (f" ({news})" if news else "", "bold"),
            )
        )
