"""Messages as the core sees them."""

from dataclasses import replace
from itertools import count
from typing import Any

from core.inbox_message import Inbound

_numbers = count(1)


def inbound(text: str = "hello", *, session: str = "place:1", **more: Any) -> Inbound:
    """A message of its own, sent after all that were made before it."""
    number = next(_numbers)
    message = Inbound(
        event_key=f"event {number}",
        session_id=session,
        place=session.rpartition(":")[0],
        channel="test",
        address={"number": number},
        author="ada",
        text=text,
        sent_at=float(number),
    )
    return replace(message, **more)
