"""A message as the core sees it, whatever platform it came from."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Author:
    """Who wrote it: the platform's id, and the name that the model reads."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Inbound:
    """One message that asks for an answer.

    Attributes:
        event_key: the same for each delivery of the same message, by whichever path, and for no other.
        session_id: the conversation that it belongs to.
        place: who or where the conversation is, stable over its sessions: ADK's `user_id`.
        channel: the name of the adapter that heard it, and that shows the answer.
        address: where the answer is to be shown, in the adapter's own words (JSON).
        text: what was said, without the mention that called the bot.
        shared: whether more people than the author speak in this session.
        attachments: the names of the files that came along.
        sent_at: when the platform got it, in seconds since the epoch: the order within the session.
    """

    event_key: str
    session_id: str
    place: str
    channel: str
    address: Mapping[str, Any]
    author: Author
    text: str
    sent_at: float
    shared: bool = False
    attachments: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Inbound":
        return cls(
            **{
                **data,
                "author": Author(**data["author"]),
                "attachments": tuple(data["attachments"]),
            }
        )
