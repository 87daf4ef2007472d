"""Permissions of the bot, and gateway intents.

Discord: docs.discord.com/developers/topics/permissions and docs.discord.com/developers/events/gateway.
"""

from collections.abc import Iterable, Mapping

PERMISSIONS: Mapping[str, int] = {
    "create_instant_invite": 1 << 0,
    "manage_channels": 1 << 4,
    "add_reactions": 1 << 6,
    "view_channel": 1 << 10,
    "send_messages": 1 << 11,
    "manage_messages": 1 << 13,
    "embed_links": 1 << 14,
    "attach_files": 1 << 15,
    "read_message_history": 1 << 16,
    "mention_everyone": 1 << 17,
    "change_nickname": 1 << 26,
    "manage_nicknames": 1 << 27,
    "manage_webhooks": 1 << 29,
    "manage_guild_expressions": 1 << 30,
    "use_application_commands": 1 << 31,
    "manage_threads": 1 << 34,
    "create_public_threads": 1 << 35,
    "create_private_threads": 1 << 36,
    "send_messages_in_threads": 1 << 38,
    "create_guild_expressions": 1 << 43,
    "send_polls": 1 << 49,
    "pin_messages": 1 << 51,
}
#: Permissions of everybody in a new server.
DEFAULT_PERMISSIONS = PERMISSIONS.keys() - {
    "manage_channels",
    "manage_messages",
    "manage_nicknames",
    "manage_webhooks",
    "manage_guild_expressions",
    "manage_threads",
    "create_guild_expressions",
    "pin_messages",
}

GUILDS, GUILD_MEMBERS, GUILD_PRESENCES = 1 << 0, 1 << 1, 1 << 8
GUILD_EXPRESSIONS, GUILD_WEBHOOKS, GUILD_INVITES = 1 << 3, 1 << 5, 1 << 6
GUILD_MESSAGES, GUILD_REACTIONS, GUILD_TYPING = 1 << 9, 1 << 10, 1 << 11
DM_MESSAGES, DM_REACTIONS, DM_TYPING = 1 << 12, 1 << 13, 1 << 14
MESSAGE_CONTENT = 1 << 15
GUILD_POLLS, DM_POLLS = 1 << 24, 1 << 25

#: Intents that an app must enable in the developer portal.
PRIVILEGED_INTENTS: Mapping[str, int] = {
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
    """Return one number with the bits of several names; 0 without names.

    Args:
        table: bits by name.

    Raises:
        KeyError: a name is not in the table.
    """
    return sum(table[name] for name in set(names))
