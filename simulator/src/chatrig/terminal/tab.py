"""Tab of a platform at the top of the screen."""

from rich.text import Text
from textual.message import Message
from textual.widgets import Static

from chatrig.client.session import ChatSession


class PlatformTab(Static):
    """Tab at the top of the screen for a platform; a click sends `Chosen`.

    It shows whether the bot is connected, and the number of unread messages.
    """

    class Chosen(Message):
        def __init__(self, session: ChatSession) -> None:
            super().__init__()
            self.session = session

    def __init__(self, session: ChatSession) -> None:
        super().__init__(id=session.platform.name)
        self.session = session

    def on_click(self) -> None:
        self.post_message(self.Chosen(self.session))

    def paint(self, *, is_open: bool) -> None:
        """Update the connection and the number of unread messages.

        Args:
            is_open: whether this platform's session is shown; its name is highlighted then.
        """
        platform, unread = self.session.platform, self.session.count_unread()
        sign, state = ("●", "connected") if platform.is_connected else ("○", "not connected yet")
        self.update(
            Text.assemble(
                (f"{sign} ", "green" if platform.is_connected else "red"),
                (platform.name, "bold reverse" if is_open else "bold"),
                f" {state}",
                (f" ({unread})" if unread else "", "bold"),
            )
        )
