"""The bot's own messages behind a question, as the channel has them: which of them belong to a reply."""

from collections.abc import Collection, Sequence

import discord

from channels.discord.client.api import SPOKEN
from channels.discord.replies.components import has_button


def chain(own: Sequence[discord.Message], question: int | None) -> list[discord.Message]:
    """The first reply to the question, the reply to that, and so on.

    Args:
        question: none in a thread that was begun from it. There the first of them is a reply to nothing.
    """
    found, last = list[discord.Message](), question
    for message in own:
        if message.type in SPOKEN and _answered(message) == last:
            found.append(message)
            last = message.id
    return found


def beside(own: Sequence[discord.Message], question: int | None, shown: Collection[int]) -> list[discord.Message]:
    """What answers the same as the messages of a reply that are shown, and is none of them. A reply to nothing may be
    anything.
    """
    answered = {question, *shown} - {None}
    return [
        message
        for message in own
        if message.type in SPOKEN and _answered(message) in answered and message.id not in shown
    ]


def apart(own: Sequence[discord.Message], name: str) -> list[discord.Message]:
    """The first that has a button whose id ends in this name, if one has."""
    return [message for message in own if has_button(message, f":{name}")][:1]


def _answered(message: discord.Message) -> int | None:
    """The id of the message that it replies to."""
    return message.reference.message_id if message.reference else None
