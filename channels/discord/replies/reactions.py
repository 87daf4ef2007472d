"""Reactions on users' messages that wait, or that the bot does not answer."""

from channels.discord.client.api import DiscordApi
from channels.markdown.emoji_names import to_character
from channels.replies.reactions import Address, QueuedReactions

QUEUED_EMOJI = "👀"

#: Reaction on a message that is not answered, if its author accepts no direct messages.
DENIED_EMOJI = "🚫"


def make_queued_reactions(api: DiscordApi) -> QueuedReactions:
    async def add(address: Address) -> None:
        if "token" not in address:  # Discord shows that the bot is thinking
            await api.add_reaction(_get_channel(address), int(address["message"]), QUEUED_EMOJI)

    async def remove(address: Address) -> None:
        if "token" not in address:
            await api.remove_reaction(_get_channel(address), int(address["message"]), QUEUED_EMOJI)

    return QueuedReactions(add, remove)


async def add_reaction(api: DiscordApi, emoji: str, address: Address) -> None:
    """React to a user's message by a Unicode emoji, its short name, or `name:id` of a server's emoji."""
    await api.add_reaction(_get_channel(address), int(address["message"]), to_character(emoji))


async def mark_denied(api: DiscordApi, address: Address) -> None:
    """Add the reaction `DENIED_EMOJI` to a message that the bot does not answer."""
    await api.add_reaction(_get_channel(address), int(address["message"]), DENIED_EMOJI)


def _get_channel(address: Address) -> int:
    """Return the id of the channel with the user's message that an address replies to.

    If a thread was started on the message, this is the thread's parent channel, and not the thread.
    """
    return int(address.get("root") or address["channel"])
