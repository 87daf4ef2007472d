"""What stands behind the channels: the parts of the core that what people say, press and change goes to."""

from dataclasses import dataclass
from typing import Literal, Protocol

from core.conversations import Conversations
from core.feedback import Feedback
from core.inbox import Inbox

#: What is for the bot of that which does not call it, in a conversation that it is in: nothing, what follows from the
#: one whom it speaks with, or all.
Follow = Literal["mention", "asker", "all"]


class Reshow(Protocol):
    """See `Answerer.reshow`."""

    async def __call__(self, turn_id: str, *, ending: str = "") -> None: ...


@dataclass(frozen=True, slots=True)
class Desk:
    """One for all channels of a process."""

    inbox: Inbox
    conversations: Conversations
    feedback: Feedback
    reshow: Reshow
    follow: Follow = "asker"
