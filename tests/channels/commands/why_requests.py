"""Commands and menus that return a turn report privately, on both platforms."""

from typing import Any

from channels.i18n import messages as words
from channels.slack.interactions.shortcuts import WHY
from tests.channels.platforms import SlackChat


async def run_why_command(chat: Any, user: str = "ada", turn: str = "") -> str:
    if isinstance(chat, SlackChat):
        seen = await chat.sandbox.run_command(user, chat.channel, "/why", turn)
        await chat.sandbox.wait_for(lambda: seen)
        assert seen[0].ephemeral_to == chat.sandbox.people[user].id
    else:
        seen = await chat.sandbox.run_command(user, chat.place, "/why", **({"turn": turn} if turn else {}))
        await chat.sandbox.wait_for(lambda: seen and not seen[0].loading)
        assert seen[0].ephemeral_to is chat.sandbox.people[user]
    return str(seen[0].text)


async def use_why_menu(chat: Any, message: Any, user: str = "ada") -> str:
    """Choose "Why?" in a message's menu, and return the text of the private answer."""
    if isinstance(chat, SlackChat):
        before = len(chat.list_private_messages(user))
        assert await chat.sandbox.use_shortcut(user, message, WHY)
        await chat.sandbox.wait_for(lambda: len(chat.list_private_messages(user)) > before)
        return chat.list_private_messages(user)[-1]
    (seen,) = await chat.sandbox.run_message_command(user, message, words.WHY_THIS)
    await chat.sandbox.wait_for(lambda: not seen.loading)
    assert seen.ephemeral_to is chat.sandbox.people[user]
    return str(seen.text)
