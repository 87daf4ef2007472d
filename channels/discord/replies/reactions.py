"""The reactions that say in Discord that a message was heard and waits, or that it is not answered."""

from channels.discord.client.api import DiscordApi
from channels.replies.reactions import Address, QueuedReactions

EMOJI = "👀"

#: Says that a message is not answered, where its author cannot be told.
NO_ENTRY = "🚫"


def receipts(api: DiscordApi) -> QueuedReactions:
    async def add(address: Address) -> None:
        if "token" not in address:  # who asked by that sees that the bot thinks
            await api.react(_channel(address), int(address["message"]), EMOJI)

    async def remove(address: Address) -> None:
        if "token" not in address:
            await api.unreact(_channel(address), int(address["message"]), EMOJI)

    return QueuedReactions(add, remove)


async def send_away(api: DiscordApi, address: Address) -> None:
    """Say by a sign that a message is not answered."""
    await api.react(_channel(address), int(address["message"]), NO_ENTRY)


def _channel(address: Address) -> int:
    """Where the message stands; a thread that was begun from it has the answer only."""
    return int(address.get("root") or address["channel"])
