"""Chat context: allows tools to react and to post messages beside the reply."""

from contextvars import ContextVar
from typing import Protocol

from core.errors import ChatError


class ChatContext(Protocol):
    """Conversation of the running turn, in which its tools can react and post.

    The calls take effect at once and at most once: no call is repeated when a crash interrupts the turn.
    """

    @property
    def time_zone(self) -> str:
        """The IANA name of the time zone of the newest message's author; empty if it is unknown."""
        ...

    async def add_reaction(self, emoji: str) -> None:
        """Add the bot's reaction to the message that the turn answers.

        Args:
            emoji: a Unicode emoji (`🎉`), or the short name of one (`tada`) or of the workspace's own emoji on Slack.

        Raises:
            ChatError: the limit of the turn is reached, the emoji is unknown, or the platform refuses the reaction.
        """
        ...

    async def post_message(self, text: str) -> None:
        """Post a message in the conversation, beside the reply.

        It notifies nobody whom it mentions.

        Args:
            text: Markdown that fits into one message of the platform.

        Raises:
            ChatError: the limit of the turn is reached, the text is empty or too long, or the platform refuses it.
        """
        ...


_current: ContextVar[ChatContext | None] = ContextVar("chat", default=None)


def find_chat() -> ChatContext | None:
    """Return the chat context of the running turn; None outside of a turn of Slack or Discord."""
    return _current.get()


def get_chat() -> ChatContext:
    """Return the chat context of the running turn.

    Raises:
        ChatError: no turn of Slack or Discord runs here, for example under `adk web`.
    """
    chat = find_chat()
    if chat is None:
        raise ChatError("there is no conversation: get_chat works in a turn of Slack or Discord")
    return chat


def set_current_chat(chat: ChatContext | None) -> None:
    """Set the chat context of this asyncio task and of the tasks that it starts."""
    _current.set(chat)
