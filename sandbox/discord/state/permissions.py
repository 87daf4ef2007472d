"""Permissions of the bot, and gateway intents.

Discord: docs.discord.com/developers/topics/permissions and docs.discord.com/developers/events/gateway.
"""

from collections.abc import Iterable, Mapping

PERMISSIONS: Mapping[str, int] = {
    "add_reactions": 1 << 6,
    "view_channel": 1 << 10,
    "send_messages": 1 << 11,
    "embed_links": 1 << 14,
    "attach_files": 1 << 15,
    "read_message_history": 1 << 16,
    "mention_everyone": 1 << 17,
    "use_application_commands": 1 << 31,
    "create_public_threads": 1 << 35,
    "send_messages_in_threads": 1 << 38,
}

GUILDS, GUILD_MEMBERS, GUILD_PRESENCES = 1 << 0, 1 << 1, 1 << 8
GUILD_MESSAGES, GUILD_REACTIONS = 1 << 9, 1 << 10
DM_MESSAGES, DM_REACTIONS = 1 << 12, 1 << 13
MESSAGE_CONTENT = 1 << 15

#: Intents that an app must enable in the developer portal.
PRIVILEGED: Mapping[str, int] = {
    "guild_members": GUILD_MEMBERS,
    "guild_presences": GUILD_PRESENCES,
    "message_content": MESSAGE_CONTENT,
}
#: Application flags of enabled privileged intents, for an app in fewer than 100 servers.
APPLICATION_FLAGS: Mapping[str, int] = {
    "guild_presences": 1 << 13,
    "guild_members": 1 << 15,
    "message_content": 1 << 19,
}


def combine_bits(names: Iterable[str], table: Mapping[str, int]) -> int:
    """Return the bits of these names in one number."""
    return sum(table[name] for name in set(names))
