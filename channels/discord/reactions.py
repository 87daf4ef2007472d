"""The reaction that says in Discord that a message was heard and waits."""

from channels.discord.api import DiscordApi
from channels.receipts import Address, Receipts

EMOJI = "👀"


def receipts(api: DiscordApi) -> Receipts:
    async def add(address: Address) -> None:
        await api.react(int(address["channel"]), int(address["message"]), EMOJI)

    async def remove(address: Address) -> None:
        await api.unreact(int(address["channel"]), int(address["message"]), EMOJI)

    return Receipts(add, remove)
