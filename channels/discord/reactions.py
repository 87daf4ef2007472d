"""The reaction that says in Discord that a message was heard and waits."""

from channels.discord.api import DiscordApi
from channels.receipts import Address, Receipts

EMOJI = "👀"


def receipts(api: DiscordApi) -> Receipts:
    async def add(address: Address) -> None:
        if "token" not in address:  # who asked by that sees that the bot thinks
            await api.react(_channel(address), int(address["message"]), EMOJI)

    async def remove(address: Address) -> None:
        if "token" not in address:
            await api.unreact(_channel(address), int(address["message"]), EMOJI)

    return Receipts(add, remove)


def _channel(address: Address) -> int:
    """Where the message stands; a thread that was begun from it has the answer only."""
    return int(address.get("root") or address["channel"])
